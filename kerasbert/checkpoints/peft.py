"""LoRA of Hugging Face PEFT: adapter_config.json and adapter_model.safetensors, read and written.

What is read is what PEFT computes: W + alpha / r * B A, with alpha / sqrt(r) where the file says use_rslora. What it saves
beside A and B (modules_to_save) are heads of ours, or the pooler. Everything else is refused.
"""

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from kerasbert import registry
from kerasbert.checkpoints import fit, plans, source
from kerasbert.checkpoints.adapters import Adapter
from kerasbert.checkpoints.directory import ModelInfo
from kerasbert.checkpoints.formats import Format, ImportOptions
from kerasbert.checkpoints.json_files import read_json
from kerasbert.checkpoints.names import Dialect
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.checkpoints.write import class_of, in_units, read_model
from kerasbert.errors import InputError
from kerasbert.layers.lora import target_of
from kerasbert.storage import files, unused
from kerasbert.storage.json_view import Json, JsonView

WEIGHTS = "adapter_model.safetensors"
FRONT = "base_model.model."  # of every name of theirs
LETTERS = {"lora_A.weight": "lora_a", "lora_B.weight": "lora_b"}
# how a class of theirs ends -> their name of what it is for
TASKS = {
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
    "Model": "FEATURE_EXTRACTION",
}
# settings that change what is computed -> the only value that is read, and what to say of others
ONLY: Mapping[str, tuple[object, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "fan_in_fan_out": (False, None),
    "use_dora": (False, None),
    "lora_bias": (False, None),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "layer_replication": (None,),
    "trainable_token_indices": (None,),
    "target_parameters": (None, []),
    "alora_invocation_tokens": (None,),
    "arrow_config": (None,),
    "use_qalora": (False, None),
    "use_bdlora": (False, None),
    "kasa_config": (None,),
    # of others (pissa, olora, loftq) the base is changed too when training starts
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal", None),
}
# keys that change no number -> why
UNREAD: Mapping[str, str] = {
    "base_model_name_or_path": "the base is given",
    "revision": "of the base",
    "auto_mapping": "the base is given",
    "inference_mode": "what training may change",
    "target_modules": "the file's names say it",
    "exclude_modules": "the file's names say it",
    "layers_to_transform": "the file's names say it",
    "layers_pattern": "the file's names say it",
    "modules_to_save": "the file's names say it",
    "loftq_config": "how training starts",
    "eva_config": "how training starts",
    "corda_config": "how training starts",
    "lora_ga_config": "how training starts",
    "monteclora_config": "how training samples",
    "velora_config": "memory of training",
    "megatron_*": "where it was trained",
    "runtime_config": "where it is computed",
    "qalora_group_size": "of use_qalora alone",
    "peft_version": "who wrote it",
    "ensure_weight_tying": "the file's names say it",
}


def read(path: Path, base: ModelInfo) -> Adapter:
    """An adapter of PEFT for a base of ours.

    Raises:
        InputError: a setting that cannot be computed here; tensors that nothing of ours takes.
    """
    config = JsonView(read_json(path / source.PEFT))
    rank, scale = _scale(path, config)
    if not (path / WEIGHTS).is_file():
        raise InputError(f"{path} holds no {WEIGHTS}: save the adapter as safetensors")
    dialect = dialect_of(base.family)
    kind = _kind(dialect, config.get("task_type"))
    dialect = dialect.of(kind)
    tensors = Safetensors(path / WEIGHTS)
    arrays, targets, rest = _pairs(base, dialect, kind, tensors)
    heads, labels, task = _heads(dialect, base, kind, {theirs: tensors.shape(name) for theirs, name in rest.items()})
    taken = _others(dialect, heads, rest)
    extra = [f"{name} {list(tensors.shape(name))}" for theirs, name in rest.items() if theirs not in taken]
    if extra or not arrays:
        raise InputError(
            f"{path} does not fit {base.name}: {len(extra)} tensors that nothing takes: {', '.join(extra) or 'none'}; "
            f"{len(arrays)} of LoRA that something does"
        )
    for theirs, (ours, transposed) in taken.items():
        values = tensors.read(rest[theirs])
        arrays[ours] = values.T if transposed else values
    left = config.unread(UNREAD)
    unused.leave(path / source.PEFT, [key for key in left if (key, left[key]) != ("lora_dropout", 0.0)])
    changes: Json = {"lora.rank": rank, "lora.alpha": scale, "lora.targets": sorted(targets)}
    if any(name.startswith("pooler/") for name in arrays):
        changes["pooler"] = True
    info = dataclasses.replace(base, spec=base.spec.derive(changes), task=task, labels=labels)
    held = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
    return Adapter(info=info, arrays=held, digest=None, path=path)


def _scale(path: Path, config: JsonView) -> tuple[int, float]:
    """The rank, and the alpha that stands for alpha / r of theirs.

    Raises:
        InputError: a setting that is not computed here.
    """
    for key, known in ONLY.items():
        if _plain(config.get(key, known[-1])) not in known:
            raise InputError(f"{path} has {key} {config[key]!r}, expected {known[0]!r}: nothing here computes that")
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if type(rank) is not int or rank < 1 or isinstance(alpha, bool) or not isinstance(alpha, int | float):
        raise InputError(f"{path} has r {rank!r} and lora_alpha {alpha!r}, expected numbers above 0")
    return rank, float(alpha) * (math.sqrt(rank) if config.get("use_rslora") else 1.0)


def _pairs(
    base: ModelInfo, dialect: Dialect, kind: str | None, tensors: Safetensors
) -> tuple[dict[str, np.ndarray], set[str], dict[str, str]]:
    """The pairs of LoRA by our names, the layers that they are of, and module -> name of what is saved whole."""
    layers = _layers(base, dialect)
    bare = dialect.prefix if kind and kind.endswith("Model") else ""  # its names lack the prefix
    arrays, targets, rest = {}, set(), {}
    for name in tensors.names():
        theirs = dialect.spelled(bare + name.removeprefix(FRONT), ())
        module, _, letter = theirs.rpartition(".lora_")
        layer = layers.get(module)
        if layer is None or f"lora_{letter}" not in LETTERS:
            rest[theirs] = name
            continue
        targets.add(target_of(layer))
        arrays[f"{layer}/{LETTERS[f'lora_{letter}']}"] = tensors.read(name).T
    return arrays, targets, rest


def _plain(value: object) -> object:
    return value.plain() if isinstance(value, JsonView) else value


def dialect_of(family: str) -> Dialect:
    """The names of a family in their checkpoints."""
    found = registry.family(family).names.get("hf")
    if found is None:
        raise InputError(f"{family} has no names in Hugging Face's checkpoints: no adapter of PEFT is for it")
    return found


def _kind(dialect: Dialect, task: str | None) -> str | None:
    """Their class for what a task_type says; None for none of ours."""
    ending = next((ending for ending, theirs in TASKS.items() if theirs == (task or "FEATURE_EXTRACTION")), None)
    if ending is None:
        raise InputError(f"task_type {task!r} is none that is read: expected one of {', '.join(TASKS.values())}")
    return next((name for name in dialect.architectures if name.endswith(ending)), None)


def _layers(base: ModelInfo, dialect: Dialect) -> dict[str, str]:
    """Their module -> our layer, of every linear map of the encoder."""
    layers = {}
    for name in plans.shapes_of(registry.family(base.family), base.spec.derive({"pooler": True})):
        if name.endswith("/kernel"):
            layers[dialect.theirs(name)[0].removesuffix(".weight")] = name.removesuffix("/kernel")
    return layers


def _heads(
    dialect: Dialect, base: ModelInfo, kind: str | None, found: Mapping[str, tuple[int, ...]]
) -> tuple[Json, tuple[str, ...] | None, Json | None]:
    """Shapes of the heads among what was saved whole, the labels and the task."""
    named = base.labels or ()
    heads, labels, classes = fit.heads_of(dialect, base.spec, {}, kind, found, ())
    if named and len(named) == len(labels):
        labels = tuple(named)
    task = fit.task_of({}, kind, heads, classes, None) if heads else None
    return heads, labels if task and labels else None, task


def _others(dialect: Dialect, heads: Mapping[str, Mapping], rest: Iterable[str]) -> dict[str, tuple[str, bool]]:
    """Their tensor -> our weight and whether it is transposed, of what is saved whole: heads and the pooler."""
    ours = [f"heads/{head}/{weight}" for head, weights in heads.items() for weight in weights]
    known = {}
    for name in (*ours, "pooler/kernel", "pooler/bias"):
        theirs, transposed = dialect.theirs(name)
        known[theirs] = name, transposed
    return {theirs: known[theirs] for theirs in rest if theirs in known}


def write(
    run: Path,
    info: ModelInfo,
    kind: str,
    tensors: Safetensors,
    read: Callable[[str], np.ndarray],
    path: str | os.PathLike,
    overwrite: bool = False,
) -> None:
    """Write the LoRA of a model directory, and its head, as PEFT saves them.

    Args:
        run: the model directory.
        info: what it says.
        kind: their class of the model.
        tensors: its weights.
        read: gives one of them, in the unit that others answer in.
        path, overwrite: as those of `export_checkpoint`.

    Raises:
        InputError: a model without LoRA, or with adapters, which PEFT's LoRA cannot say.
    """
    spec = info.spec
    if not getattr(spec, "lora", None) or not spec.lora.rank or spec.adapters.width:
        held = "adapters" if spec != spec.base else "no LoRA"
        raise InputError(f"{run} has {held}, expected LoRA alone: PEFT's format is of that")
    dialect = dialect_of(info.family).of(kind)
    ending = next((ending for ending in TASKS if kind.endswith(ending)), "Model")
    modules, sources = _low_rank(dialect, tensors)
    whole = set()
    for name in _saved_whole(run, dialect, kind, tensors):
        theirs, transposed = dialect.theirs(name)
        sources[theirs] = name, transposed
        whole.add(_first(theirs, dialect))
    if clash := [module for module in modules if _first(module, dialect) in whole]:
        raise InputError(
            f"{run} has LoRA in {', '.join(clash)}, which PEFT saves whole with the head: merge it (kb.merged)"
        )
    front = dialect.prefix if ending == "Model" else ""  # a bare encoder's names lack it

    def values(theirs: str) -> np.ndarray:
        name, transposed = sources[theirs]
        return np.ascontiguousarray(read(name).T) if transposed else read(name)

    own = {FRONT + theirs.removeprefix(front): theirs for theirs in sources}
    config = _config(info, TASKS[ending]) | {
        "target_modules": sorted(module.removeprefix(front) for module in modules),
        "modules_to_save": sorted(whole) or None,
    }
    with files.new_directory(path, overwrite) as folder:
        files.write_json(folder / source.PEFT, config)
        shapes = {name: values(theirs).shape for name, theirs in own.items()}
        write_safetensors(folder / WEIGHTS, shapes, lambda name: values(own[name]), metadata={"format": "pt"})


def _config(info: ModelInfo, task: str) -> Json:
    """The adapter_config.json of a model with LoRA, but for its modules."""
    lora = info.spec.lora
    return {
        "peft_type": "LORA",
        "task_type": task,
        "base_model_name_or_path": (info.source or {}).get("hub"),
        "r": lora.rank,
        "lora_alpha": lora.alpha or lora.rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def _low_rank(dialect: Dialect, tensors: Safetensors) -> tuple[set[str], dict[str, tuple[str, bool]]]:
    """Their modules with LoRA, and their tensor -> (our weight, transposed)."""
    modules, sources = set(), {}
    for name in tensors.names():
        folder, _, leaf = name.rpartition("/")
        if leaf in LETTERS.values():
            module = dialect.theirs(f"{folder}/kernel")[0].removesuffix(".weight")
            modules.add(module)
            sources[f"{module}.{leaf[:-1]}{leaf[-1].upper()}.weight"] = name, True
    return modules, sources


def _saved_whole(run: Path, dialect: Dialect, kind: str, tensors: Safetensors) -> list[str]:
    """Our weights that are no longer the base's: the heads', and those of a pooler that is new or part of their head."""
    held = tensors.names()
    found = [name for name in held if name.startswith("heads/") and dialect.heads.get(name.split("/")[1]) is not None]
    if "pooler/kernel" in held:
        of_head = not dialect.theirs("pooler/kernel")[0].startswith(dialect.prefix)  # RoBERTa's classifier
        new = source.settings_of(run).get("pooler") == "new" and dialect.pooled(kind)
        found += ["pooler/bias", "pooler/kernel"] if of_head or new else []
    return found


def _first(module: str, dialect: Dialect) -> str:
    """The first part of a name behind the prefix: what modules_to_save has."""
    return module.removeprefix(dialect.prefix).partition(".")[0]


class Peft(Format):
    """The folder of an adapter alone."""

    title = "an adapter alone"

    def looks_like(self, path: Path) -> bool:
        """Whether there is the configuration of one, or ours."""
        return any((path / name).is_file() for name in (source.PEFT, source.ADAPTER))

    def plan(self, path: Path, asked: ImportOptions) -> plans.Plan:
        """None: an adapter is joined with its base (`tasks.load`)."""
        source.check(path)  # which says what to do
        raise InputError(f"{path} holds an adapter alone: give its base (--base DIR)")

    def write(self, run: Path, path: str | os.PathLike, overwrite: bool) -> None:
        """Write the LoRA of a model directory and its head."""
        run = source.directory(run)
        info, tensors = read_model(run)
        kind = class_of(dialect_of(info.family), info, tensors)
        write(run, info, kind, tensors, functools.partial(in_units, tensors, info.task or {}), path, overwrite)


registry.register_format("peft", Peft())

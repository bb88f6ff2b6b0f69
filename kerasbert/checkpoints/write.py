"""A model directory under the names of others: what the formats share that write it tensor by tensor."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerasbert import progress, registry, text
from kerasbert import spec as specs
from kerasbert.checkpoints import config as configs
from kerasbert.checkpoints import generation_config, views
from kerasbert.checkpoints.adapters import merged_directory
from kerasbert.checkpoints.directory import ModelInfo, head_names, read_model_json, read_tensors
from kerasbert.checkpoints.names import Dialect
from kerasbert.checkpoints.safetensors import Safetensors
from kerasbert.errors import InputError, unknown
from kerasbert.registry import FORMATS
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.text.base import Tokenizer

if TYPE_CHECKING:
    from kerasbert.checkpoints.readers import Tensors


LM_BIAS = "heads/lm/bias"
# of one row a piece, in families whose padding id is fixed
ROWS = (
    *(f"{stack}embeddings/tokens/table" for stack in ("", "encoder/", "decoder/")),
    *("heads/mlm/bias", "output/bias"),
)
POOLED = {"nsp", "sop", "classifier"}  # heads that read the pooled vector


@dataclasses.dataclass
class Named:
    """A model directory under the names of others.

    Args:
        run: the directory. info: its model.json. family: its family.
        tensors: its weights, with the head of a class of theirs that writes.
        dialect: of the class. kind: their class, or None in a format without classes.
        config: their configuration, without what only one format says.
        tokenizer: as its ids stand there, or None.
        sources: their name -> ours and whether theirs is transposed. shapes: their name -> shape, in our forms.
        order: of the rows of the vocabulary there, or None for ours.
    """

    run: Path
    info: ModelInfo
    family: registry.Family
    tensors: "Tensors"
    dialect: Dialect
    kind: str | None
    config: Json
    tokenizer: Tokenizer | None
    sources: dict[str, tuple[str, bool]]
    shapes: dict[str, tuple[int, ...]]
    order: np.ndarray | None = None

    def read(self, theirs: str) -> np.ndarray:
        """A tensor in our form, by their name."""
        name, transpose = self.sources[theirs]
        values = in_units(self.tensors, self.info.task or {}, name)
        if self.order is not None and name in ROWS:
            values = values[self.order]
        return np.ascontiguousarray(values.T) if transpose else values

    def whole(self) -> tuple[dict[str, tuple[int, ...]], Callable[[str], np.ndarray]]:
        """Shapes by name, and what reads them, in the forms of their file."""
        return views.whole(self.dialect.forms, self.shapes, self.read, self.info.spec.head_size)


def named(target: str, run: Path, classes: bool, beside: tuple[str, ...] = ()) -> Named:
    """A model directory, or what else `checkpoints.source` knows, under the names of a format; LoRA is merged.

    Args:
        target: the format. classes: whether its files say which class of theirs they are of.
        beside: beginnings of the names of heads that have files of their own there.

    Raises:
        InputError: the family has no such names, or the model something that has no place there.
    """
    run = merged_directory(run)
    info, tensors = read_model(run)
    dialect = dialect_of(target, info)
    tensors = Without(tensors, tuple(f"heads/{head}" for head in beside)) if beside else tensors
    tensors = _with_lm_head(dialect, info, tensors)
    return of_model(target, run, info, tensors, class_of(dialect, info, tensors) if classes else None)


def of_model(target: str, run: Path, info: ModelInfo, tensors: "Tensors", kind: str | None) -> Named:
    """A model under the names of a format, for a class of theirs or None; arguments as of `Named`.

    Raises:
        InputError: as `named`.
    """
    family = registry.family(info.family)
    dialect = dialect_of(target, info).of(kind)
    base = family.spec.derive(dialect.spec)
    _check_heads(dialect, info, base, tensors, kind or "the released code")
    left_out = tuple(f"heads/{head}/" for head in dialect.own_heads)
    unpooled = bool(info.task) and not dialect.pooled(kind)
    if unpooled:
        left_out += ("pooler/",)  # their head reads every token: the pooler that the training left alone has no place
    sources, shapes = _tensors(dialect, tensors, left_out)
    computed = {name: made(info.spec) for name, made in dialect.stored.items()}
    tensors = With(tensors, computed) if computed else tensors
    sources |= {name: (name, False) for name in computed}
    shapes |= {name: value.shape for name, value in computed.items()}
    config = configs.to_config(info.spec, dialect, base)
    tokenizer = text.held_tokenizer(run)
    if tokenizer is not None and tokenizer.knowledge is not None:
        progress.say(f"{run}: the knowledge graph has no place in a {target} checkpoint, which is a BERT without it")
    order = _order(dialect, info, config, tokenizer) if kind is not None and tokenizer is not None else None
    if order is not None and tokenizer is not None:
        tokenizer = tokenizer.renumbered(order[: tokenizer.size].tolist())
    if base.pooler and (unpooled or not info.spec.pooler):
        config["add_pooling_layer"] = False  # read by us; theirs is BertModel(config, add_pooling_layer=False)
    return Named(run, info, family, tensors, dialect, kind, config, tokenizer, sources, shapes, order)


def dialect_of(target: str, info: ModelInfo) -> Dialect:
    """What a format calls the weights and settings of a model.

    Raises:
        InputError: it has no such names.
    """
    family = registry.family(info.family)
    if not family.names:
        raise InputError(
            f"{info.name} has no format of other libraries: keep the model directory, or kerasbert export writes a SavedModel"
        )
    if target not in family.names:
        known = [name for name in family.names if FORMATS[name].writes]
        raise unknown(f"checkpoint format of {family.name}", target, known, ", ".join(known) or "none")
    return family.names[target]


def _order(dialect: Dialect, info: ModelInfo, config: JsonMap, tokenizer: Tokenizer) -> np.ndarray | None:
    """The order of the vocabulary's rows where theirs has another id of padding, from which they count positions.

    The two pieces change places, in the table and in the tokenizer.
    """
    key = next((f"{half}pad_token_id" for half in ("", "encoder.") if f"{half}pad_token_id" in dialect.fixed), "")
    if dialect.fixed.get(key, tokenizer.pad_id) == tokenizer.pad_id:
        return None
    order = np.arange(info.spec.embeddings.vocabulary)
    swapped = [config[key], tokenizer.pad_id]
    order[swapped] = order[swapped[::-1]]
    return order


class With:
    """Tensors of a model, and more that it computes or that are 0."""

    def __init__(self, tensors: "Tensors", more: Mapping[str, np.ndarray]) -> None:
        self.tensors, self.more = tensors, more

    def names(self) -> list[str]:
        return sorted([*self.tensors.names(), *self.more])

    def shape(self, name: str) -> tuple[int, ...]:
        return self.more[name].shape if name in self.more else self.tensors.shape(name)

    def read(self, name: str) -> np.ndarray:
        return self.more[name] if name in self.more else self.tensors.read(name)


class Without:
    """Tensors of a model, without those whose names begin so."""

    def __init__(self, tensors: "Tensors", beginnings: tuple[str, ...]) -> None:
        self.tensors, self.beginnings = tensors, beginnings
        self.shape, self.read = tensors.shape, tensors.read

    def names(self) -> list[str]:
        return [name for name in self.tensors.names() if not name.startswith(self.beginnings)]


def _with_lm_head(dialect: Dialect, info: ModelInfo, tensors: "Tensors") -> "Tensors":
    """The tensors with the head of their class that writes (BartForConditionalGeneration) where the task is to write."""
    writes = generation_config.writes(info.task) and dialect.heads.get("lm") == {"bias": "V"}
    if not writes or head_names(tensors):
        return tensors
    return With(tensors, {LM_BIAS: np.zeros(info.spec.embeddings.vocabulary, "float32")})


def read_model(run: Path) -> tuple[ModelInfo, Safetensors]:
    """What a model directory holds.

    Raises:
        InputError: its head reads other layers than the last, or reads a row otherwise than the family does.
    """
    info = read_model_json(run)
    pooling = (info.task or {}).get("options", {}).get("pooling")
    if info.labels and pooling:
        own = registry.family(info.family).readout
        raise InputError(
            f"their classes read the {own} token, the head of {run} the pooling {pooling!r}: export a SavedModel or a .tflite"
        )
    if layers := (info.task or {}).get("layers"):
        raise InputError(
            f"their classes read the last layer, the head of {run} reads layers {layers!r}: export a SavedModel or a .tflite"
        )
    return info, read_tensors(run)


def _tensors(
    dialect: Dialect, tensors: "Tensors", left_out: tuple[str, ...]
) -> tuple[dict[str, tuple[str, bool]], dict[str, tuple[int, ...]]]:
    """Their name -> (ours, whether it is transposed), and their name -> shape, of all tensors but those with such beginnings."""
    sources, shapes = {}, {}
    for name in tensors.names():
        if name.startswith(left_out):
            continue
        theirs, transpose = dialect.theirs(name)
        sources[theirs] = name, transpose
        shapes[theirs] = tuple(reversed(tensors.shape(name))) if transpose else tensors.shape(name)
    for copy, original in dialect.copied(list(sources)).items():
        sources[copy], shapes[copy] = sources[original], shapes[original]
    return sources, shapes


def in_units(tensors: "Tensors", task: Json, name: str) -> np.ndarray:
    """A tensor, that of a regression's head so that it answers in the unit of the targets: others know no mean and std."""
    values, mean, std = tensors.read(name), task.get("mean", 0.0), task.get("std", 1.0)
    if name not in ("heads/classifier/kernel", "heads/classifier/bias") or (mean, std) == (0.0, 1.0):
        return values
    return (values.astype("float64") * std + (mean if name.endswith("bias") else 0.0)).astype("float32")


def class_of(dialect: Dialect, info: ModelInfo, tensors: "Tensors") -> str:
    """Their class with exactly the heads that the model has, for its kind of task."""
    heads, answered = set(head_names(tensors)) - set(dialect.own_heads), (info.task or {}).get("kind")
    classes = [
        name for name, has in dialect.architectures.items() if set(has) == heads and dialect.computes(name, info.spec)
    ]
    fitting = [name for name in classes if configs.serves(name, answered)]
    said = {key: specs.get(info.spec, path) for path, key, *rule in dialect.config if not rule}
    fitting = [name for name in fitting if not dialect.classes[name].fixed.items() - said.items()] or fitting
    if not fitting:
        of = f" for {answered}" if classes else ""
        raise InputError(
            f"no class of theirs{of} has exactly the heads {', '.join(sorted(heads))}: export a model without one of them"
        )
    return fitting[0]


def _check_heads(dialect: Dialect, info: ModelInfo, base: specs.Spec, tensors: "Tensors", theirs: str) -> None:
    """Refuse adapters, and heads that their class would not compute as we do."""
    if width := specs.maybe(info.spec, "adapters.width"):
        raise InputError(
            f"{info.name} has adapters (adapters.width={width}), which {theirs} has no place for: keep the model directory"
        )
    heads = set(head_names(tensors)) - set(dialect.own_heads)
    strange = sorted(heads - set(dialect.heads))
    if strange:
        raise InputError(f"{theirs} has no place for the heads {', '.join(strange)}: export a model without them")
    mean = (info.task or {}).get("mean", 0.0)
    if mean and "classifier" in heads and "bias" not in dialect.shapes("classifier"):
        raise InputError(f"{theirs} has no bias in its head, which the mean of the targets, {mean:g}, would go into")
    for head in sorted(heads):
        lacking = [name for name in dialect.shapes(head) if f"heads/{head}/{name}" not in tensors.names()]
        if lacking:
            raise InputError(
                f"{theirs} has {', '.join(lacking)} in the head {head!r}, this model has not: "
                "export it in the format that it came from"
            )
    if base.pooler and not info.spec.pooler and heads & POOLED and dialect.pooled(theirs):
        raise InputError(
            f"{theirs} reads a pooled vector and this model was fine-tuned without a pooler (a masked LM has none): "
            "fine-tune once more from it, finetune makes one"
        )


def write_vocabulary(folder: Path, tokenizer: Tokenizer) -> None:
    """vocab.txt, vocab.json and merges.txt, or spiece.model: the files of the tokenizer's kind, by their usual names."""
    tokenizer.save(folder)
    (folder / "tokenizer.json").unlink()  # ours; Hugging Face has another under this name

"""Sizes of a checkpoint: config.json (Hugging Face) or bert_config.json (Google), whose keys agree, <-> Spec."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from kerasbert import spec as specs
from kerasbert.checkpoints.json_files import read_json
from kerasbert.checkpoints.names import Dialect
from kerasbert.errors import InputError

# Google's TF1 code calls the tanh approximation "gelu" since 2019, its checkpoints were trained with either; as in
# Hugging Face's conversions of the same files, "gelu" is the exact one here.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "swish",
    "swish": "swish",
    "tanh": "tanh",
    # T5's; with a gate its "gelu" is the tanh one
    "gated-gelu": "gated_gelu_tanh",
    "gated-relu": "gated_relu",
    "gated-silu": "gated_swish",
}
# problem_type of theirs -> the kind of task; what a class is for, by the end of its name: any other answers for a text
_PROBLEMS = {
    "regression": "regression",
    "single_label_classification": "classification",
    "multi_label_classification": "multi_label",
    None: None,
}
_CLASSES = {
    "ForTokenClassification": "tags",
    "ForQuestionAnswering": "span",
    "ForQuestionAnsweringSimple": "span",
    "ForMultipleChoice": "choice",
}
_PAIRS = {"span", "choice"}  # kinds of two parts, whatever a checkpoint says


def read_config(folder: Path) -> dict[str, Any] | None:
    """The configuration beside a checkpoint, or None where there is none."""
    for name in ("config.json", "bert_config.json", "albert_config.json"):
        if (folder / name).is_file():
            return read_json(folder / name)
    return None


def to_spec(config: Mapping[str, Any], dialect: Dialect, base: specs.Spec, where: Any) -> specs.Spec:
    """The Spec that a configuration describes.

    Args:
        config: content of their configuration.
        dialect: names of its keys.
        base: Spec that holds where the configuration is silent; sizes must be there.
        where: path of the checkpoint, for errors.

    Raises:
        InputError: a missing size, an unknown activation, or a setting this family cannot compute.
    """
    for key, only in dialect.fixed.items():
        if config.get(key, only) != only:
            raise InputError(f"{where} has {key} {config[key]!r}, expected {only!r}: no such model here")
    config = {
        **config,
        **{key: value for key, value in _told(dialect.silent, config).items() if config.get(key) is None},
    }
    kinds, changes, absent = specs.paths(type(base)), {}, []
    nothing = _told(dialect.none, config)
    for path, key, *factor in dialect.config:
        if key in nothing and config.get(key) == nothing[key]:
            changes.setdefault(path, None)
        elif key in config:
            value = config[key] * factor[0] if factor else config[key]
            value = value + dialect.shift[key] if key in dialect.shift and isinstance(value, int) else value
            value = _ours(value, dialect.values.get(key, {}))
            if changes.setdefault(path, value) != value and isinstance(value, int):  # one size here, several of theirs
                raise InputError(f"{where} has {key} {config[key]!r}, expected {changes[path]!r}: no such model here")
            if isinstance(config[key], int) and config[key] < 0 and config[key] not in dialect.values.get(key, ()):
                raise InputError(f"the configuration of {where} has {key} {config[key]}, expected at least 0")
        elif int in (kinds[path], *getattr(kinds[path], "__args__", ())):
            absent.append(key)
    if absent:
        raise InputError(f"the configuration of {where} lacks {', '.join(absent)}: add them")
    activation = changes.get("feedforward.activation")
    if activation is not None:
        known = dialect.activations or ACTIVATIONS
        if not isinstance(activation, str) or activation not in known:
            raise InputError(f"{where} has the activation {activation!r}, expected one of {', '.join(known)}")
        changes["feedforward.activation"] = known[activation]
    for (key, value), more in dialect.implied.items():
        if config.get(key) == value:
            changes |= more
    if changes.get("attention.dropout") == changes.get("dropout", base.dropout):
        changes["attention.dropout"] = None
    for path in ("attention.head_size", "decoder.layers"):
        if path in changes and changes[path] == _follows(path, changes, base):
            changes[path] = None
    if changes.get("embeddings.width") == changes.get("hidden", base.hidden):
        if dialect.unprojected:
            changes["embeddings.width"] = None
        elif "embeddings.projected" in kinds:
            changes["embeddings.projected"] = True
    try:
        return _usual(base.derive(changes), dialect, base)
    except InputError as error:
        raise InputError(f"the configuration of {where}: {error}") from None


def _ours(value: Any, values: Mapping[Any, Any]) -> Any:
    """A value of theirs as we write it; `values` says of which that is another."""
    return values.get(value, value) if isinstance(value, str | int) else value


def _told(values: Mapping[str, Any], of: Any) -> dict[str, Any]:
    """Values, those that are functions called on what they are functions of."""
    return {key: value(of) if callable(value) else value for key, value in values.items()}


def _usual(spec: specs.Spec, dialect: Dialect, base: specs.Spec) -> specs.Spec:
    """The Spec with what `Dialect.written` would write anyway left to the rest, as in `base`."""
    for path, tell in dialect.written.items():
        usual = spec.derive({path: specs.get(base, path)})
        spec = usual if tell(usual) == specs.get(spec, path) else spec
    return spec


def _follows(path: str, sizes: Mapping[str, Any], base: specs.Spec) -> Any:
    """What a size that may be None is then, of the others; None where they do not tell."""
    if path == "decoder.layers":
        return sizes.get("blocks.layers")
    hidden, heads = sizes.get(base.attended), sizes.get("attention.heads")
    return hidden / heads if isinstance(hidden, int) and isinstance(heads, int) and heads else None


def to_config(spec: specs.Spec, dialect: Dialect, base: specs.Spec) -> dict[str, Any]:
    """The configuration of a Spec; the inverse of `to_spec`.

    Raises:
        InputError: the Spec has something that their configuration cannot say.
    """
    named = [(path, key) for path, key, *factor in dialect.config if not factor]
    whole = spec.derive({path: tell(spec) for path, tell in dialect.written.items()})
    config: dict[str, Any] = {key: specs.get(whole, path) for path, key in named}
    config |= {
        key: list(config[key]) for path, key in named if path in dialect.lists and isinstance(config[key], tuple)
    }
    # what the dialect leaves out follows from the rest in their models
    projected = getattr(spec.embeddings, "projected", None)
    implied = {"attention.dropout": spec.dropout} | ({} if projected else {"embeddings.width": spec.hidden})
    if isinstance(spec.attention.heads, int):
        implied["attention.head_size"] = specs.get(spec, spec.attended) // spec.attention.heads
    if hasattr(spec, "decoder"):
        implied["decoder.layers"] = spec.blocks.layers
    plain = _usual(spec, dialect, base).derive(
        {path: None for path, value in implied.items() if specs.get(spec, path) == value}
    )
    kinds = specs.paths(type(spec))
    for path, key in named:
        if config[key] is None and bool in getattr(kinds[path], "__args__", ()):
            config[key] = False
        if path == "attention.dropout" and config[key] is None:
            config[key] = spec.dropout
        if path in ("attention.head_size", "decoder.layers") and config[key] is None:
            config[key] = implied[path]
        if path == "embeddings.width" and config[key] is None and dialect.unprojected:
            config[key] = spec.hidden
        if path == "feedforward.activation":
            names = (dialect.activations or ACTIVATIONS).items()
            config[key] = next((theirs for theirs, ours in names if ours == config[key]), config[key])
    for key, values in dialect.values.items():
        config[key] = next((theirs for theirs, ours in values.items() if ours == config[key]), config[key])
    config |= {key: value for key, value in _told(dialect.none, config).items() if config[key] is None}
    per_layer = [path for path, _ in named if int in getattr(kinds[path], "__args__", ())]
    per_layer = {path: key for path, key in named if path in per_layer and key not in dialect.by_layer}
    lost = {path: config[key] for path, key in per_layer.items() if isinstance(config[key], tuple)}
    config = {key: list(value) if isinstance(value, tuple) else value for key, value in config.items()}
    unprojected = spec.embeddings.width in (None, spec.hidden) and not projected
    if not dialect.unprojected and "embeddings.width" in dict(named) and unprojected:
        lost["embeddings.width"] = spec.embeddings.width
    lost |= {path: config[key] for path, key in named if dialect.fixed.get(key, config[key]) != config[key]}
    if not lost:
        theirs = config | {key: config[key] - more for key, more in dialect.shift.items()}
        back = to_spec(theirs, dialect, base, "the export").derive({"pooler": spec.pooler})
        by_file = {path for changes in (*dialect.untied.values(), *dialect.present.values()) for path in changes}
        by_file |= set(dialect.by_class)
        lost = {path: pair[0] for path, pair in specs.differences(plain, back).items() if path not in by_file}
    if lost:
        raise InputError(
            f"this checkpoint format cannot say {', '.join(f'{path}={value!r}' for path, value in lost.items())}: "
            "keep the model directory, or export a model without it"
        )
    config |= {key: config[key] - more for key, more in dialect.shift.items()}
    return dict(dialect.fixed) | _told(dialect.added, spec) | config


def labels(config: Mapping[str, Any], count: int | None) -> tuple[str, ...]:
    """Names of the classes in order; `LABEL_0` and so on where the configuration leaves them out."""
    names = config.get("id2label")
    if names is None:
        return tuple(f"LABEL_{i}" for i in range(2 if count is None else count))
    try:
        by_id = {int(number): str(name) for number, name in names.items()}
    except (AttributeError, ValueError) as error:
        raise InputError(f"id2label must map numbers to names. Received: {names!r}") from error
    if sorted(by_id) != list(range(len(by_id))) or len(set(by_id.values())) != len(by_id):
        raise InputError(
            f"id2label must number its classes 0 to {len(by_id) - 1} with one name each. Received: {names!r}"
        )
    return tuple(by_id[i] for i in range(len(by_id)))


def languages(config: Mapping[str, Any]) -> dict[str, int] | None:
    """XLM's numbers of languages, by number; None where the configuration has none."""
    table = config.get("lang2id")
    if not table:
        return None
    numbers = list(table.values()) if isinstance(table, Mapping) else []
    if (
        any(type(number) is not int for number in numbers)
        or sorted(numbers) != list(range(len(numbers)))
        or not numbers
    ):
        raise InputError(
            f"lang2id must number languages from 0, each its own, without a gap. Received: {str(table)[:200]}"
        )
    return dict(sorted(table.items(), key=lambda item: item[1]))


# what an export of ours adds to a configuration; transformers keeps a key that it does not know and computes nothing by it
PAIR, OPTIONS = "text_pair", "task_options"


def kind_of(architecture: str | None, heads: Collection[str]) -> str | None:
    """The kind of task that a class of theirs is for; None where its problem_type or the number of its labels tells.

    Args:
        architecture: name of the class, where the configuration has one. heads: that the file holds.
    """
    for ending, kind in _CLASSES.items():
        if architecture and architecture.endswith(ending):
            return kind
    return "span" if "span" in heads else None


def one_number(architecture: str | None) -> bool:
    """Whether a class of theirs has one output however many labels its configuration names."""
    return kind_of(architecture, ()) == "choice"


def serves(architecture: str, kind: str | None) -> bool:
    """Whether a class of theirs computes what a kind of task does, given that it has the heads."""
    own = kind_of(architecture, ())
    return own == kind if kind in _CLASSES.values() else own is None


def problem_of(kind: str | None) -> str | None:
    """Their problem_type of a kind; None for the usual one."""
    return next((name for name, ours in _PROBLEMS.items() if kind and ours == kind != "classification"), None)


def task_of(
    config: Mapping[str, Any], classes: int, pair: bool | None = None, kind: str | None = None
) -> dict[str, Any]:
    """The task of a checkpoint with a head of a task, as model.json records it.

    Args:
        config: content of their configuration.
        classes: int, outputs of the classifier.
        pair: bool, whether it reads two texts; None for what an export of ours wrote down, else one text: nothing else in
            a checkpoint tells.
        kind: str, where the class of theirs tells (`kind_of`).
    """
    problem = config.get("problem_type")
    if not isinstance(problem, str | None) or problem not in _PROBLEMS:
        known = ", ".join(name for name in _PROBLEMS if name)
        raise InputError(f"the checkpoint's problem_type is {problem!r}, expected one of {known}")
    if kind is None:
        kind = _PROBLEMS[problem] or ("regression" if classes == 1 else "classification")
        pair = config.get(PAIR) is True if pair is None else pair
    else:
        pair = kind in _PAIRS
    options = config.get(OPTIONS)
    more = {"options": options} if options and isinstance(options, dict) else {}
    return {"kind": kind, "inputs": "pair" if pair else "text"} | more

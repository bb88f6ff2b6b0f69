"""Sizes of a checkpoint: config.json (Hugging Face) or bert_config.json (Google), whose keys agree, <-> Spec."""

from collections.abc import Collection, Mapping
from pathlib import Path

from kerasbert import spec as specs
from kerasbert.checkpoints.json_files import read_json
from kerasbert.checkpoints.names import LIST, Dialect
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json, JsonMap, JsonView

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


def config_file(folder: Path) -> Path | None:
    """The configuration beside a checkpoint, or None where there is none."""
    names = ("config.json", "bert_config.json", "albert_config.json")
    return next((folder / name for name in names if (folder / name).is_file()), None)


def read_config(folder: Path) -> JsonView | None:
    """Its content, which notes what is read of it."""
    file = config_file(folder)
    return None if file is None else JsonView(read_json(file))


def flat(config: JsonView, halves: Collection[str]) -> JsonView:
    """A configuration whose objects of these names are keys of its own, `encoder.hidden_size`."""
    if not halves:
        return config
    content = config.plain()
    inside = {half: content.pop(half) for half in halves if isinstance(content.get(half), Mapping)}
    return JsonView(content | {f"{half}.{key}": value for half, own in inside.items() for key, value in own.items()})


def nested(config: JsonMap, halves: Collection[str]) -> Json:
    """The inverse of `flat`."""
    whole = {key: value for key, value in config.items() if key.partition(".")[0] not in halves}
    for half in halves:
        own = {key.partition(".")[2]: value for key, value in config.items() if key.startswith(f"{half}.")}
        whole[half] = dict(sorted(own.items()))
    return whole


def to_spec(config: JsonMap, dialect: Dialect, base: specs.Spec, where: object) -> specs.Spec:
    """The Spec that a configuration describes.

    Args:
        config: content of their configuration.
        dialect: names of its keys.
        base: Spec that holds where the configuration is silent; sizes must be there.
        where: path of the checkpoint, for errors.

    Raises:
        InputError: a missing size, an unknown activation, or a setting this family cannot compute.
    """
    view = config if isinstance(config, JsonView) else JsonView(config)
    for key, only in _told(dialect.fixed, view).items():
        if view.get(key, only) != only:
            raise InputError(f"{where} has {key} {view[key]!r}, expected {only!r}: no such model here")
    usual = {key: value for key, value in _told(dialect.silent, view).items() if view.get(key) is None}
    view.read(*(key for _, key, *_ in dialect.config))
    said = dialect.read_config(view.plain() | usual)
    changes = _changes(said, dialect, base, where)
    if changes.get("feedforward.activation") is not None:
        changes["feedforward.activation"] = _activation(said, dialect, where)
    kinds = specs.paths(type(base))
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


def _changes(config: JsonMap, dialect: Dialect, base: specs.Spec, where: object) -> Json:
    """What a configuration says of the Spec, by path.

    Raises:
        InputError: a size that is missing, below 0, or said twice in two ways.
    """
    kinds, changes, absent = specs.paths(type(base)), {}, []
    for path, key, *rule in dialect.config:
        if key in config:
            said, values = config[key], dialect.values.get(key, {})
            times = rule[0] if rule and rule[0] is not LIST else None
            value = _ours(said * times if times else said, values)
            if changes.setdefault(path, value) != value and isinstance(value, int):  # one size here, several of theirs
                raise InputError(f"{where} has {key} {said!r}, expected {changes[path]!r}: no such model here")
            if isinstance(said, int) and said < 0 and said not in values:
                raise InputError(f"the configuration of {where} has {key} {said}, expected at least 0")
        elif int in (kinds[path], *getattr(kinds[path], "__args__", ())):
            absent.append(key)
    if absent:
        raise InputError(f"the configuration of {where} lacks {', '.join(absent)}: add them")
    return changes


def _activation(config: JsonMap, dialect: Dialect, where: object) -> str:
    """The activation that a configuration names."""
    key = _keys(dialect, "feedforward.activation")[0]
    said, known = config[key], _activations(dialect, key)
    if not isinstance(said, str) or said not in known:
        raise InputError(f"{where} has the activation {said!r}, expected one of {', '.join(known)}")
    return str(known[said])


def _written(dialect: Dialect) -> list[tuple[str, str]]:
    """(path of the Spec, their key) of what is written; where ours is n times theirs another row writes it."""
    return [(path, key) for path, key, *rule in dialect.config if not rule or rule[0] is LIST]


def _keys(dialect: Dialect, path: str) -> list[str]:
    """Their keys for a path of the Spec."""
    return [key for own, key, *_ in dialect.config if own == path]


def _activations(dialect: Dialect, key: str) -> Mapping[str, object]:
    """Their names of activations -> ours."""
    return dialect.values.get(key, ACTIVATIONS)


def _ours(value: object, values: Mapping[object, object]) -> object:
    """A value of theirs as we write it; `values` says of which that is another."""
    return values.get(value, value) if isinstance(value, str | int) else value


def _told(values: Mapping[str, object], of: object) -> Json:
    """Values, those that are functions called on what they are functions of."""
    return {key: value(of) if callable(value) else value for key, value in values.items()}


def _usual(spec: specs.Spec, dialect: Dialect, base: specs.Spec) -> specs.Spec:
    """The Spec with what `Dialect.written` would write anyway left to the rest, as in `base`."""
    for path in dialect.written(spec):
        usual = spec.derive({path: specs.get(base, path)})
        spec = usual if dialect.written(usual)[path] == specs.get(spec, path) else spec
    return spec


def _follows(path: str, sizes: JsonMap, base: specs.Spec) -> object:
    """What a size that may be None is then, of the others; None where they do not tell."""
    if path == "decoder.layers":
        return sizes.get("blocks.layers")
    hidden, heads = sizes.get(base.attended), sizes.get("attention.heads")
    return hidden / heads if isinstance(hidden, int) and isinstance(heads, int) and heads else None


def to_config(spec: specs.Spec, dialect: Dialect, base: specs.Spec) -> Json:
    """The configuration of a Spec; the inverse of `to_spec`.

    Raises:
        InputError: the Spec has something that their configuration cannot say.
    """
    named = _written(dialect)
    written = dict(named)
    whole = spec.derive(dialect.written(spec))
    config = _in_theirs({key: specs.get(whole, path) for path, key in named}, spec, dialect)
    lists = {key for _, key, *rule in dialect.config if rule and rule[0] is LIST}
    kinds = specs.paths(type(spec))
    by_layer = [path for path in written if int in getattr(kinds[path], "__args__", ()) and written[path] not in lists]
    lost = {path: config[written[path]] for path in by_layer if isinstance(config[written[path]], tuple)}
    config = {key: list(value) if isinstance(value, tuple) else value for key, value in config.items()}
    projected = getattr(spec.embeddings, "projected", None)
    if "embeddings.width" in written and not dialect.unprojected and not projected:
        lost |= {"embeddings.width": spec.embeddings.width} if spec.embeddings.width in (None, spec.hidden) else {}
    if "embeddings.segments" in written and base.embeddings.segments and not spec.embeddings.segments:
        lost |= {"embeddings.segments": 0}  # their code reads the first row of the table
    fixed = _told(dialect.fixed, config)
    lost |= {path: config[key] for path, key in named if fixed.get(key, config[key]) != config[key]}
    theirs = {} if lost else fixed | dialect.write_config(config, spec)
    if not lost:
        back = to_spec(theirs, dialect, base, "the export").derive({"pooler": spec.pooler})
        plain, unsaid = _plain(spec, dialect, base), (*dialect.by_file, *dialect.by_call)
        lost = {path: pair[0] for path, pair in specs.differences(plain, back).items() if path not in unsaid}
    if lost:
        raise InputError(
            f"this checkpoint format cannot say {', '.join(f'{path}={value!r}' for path, value in lost.items())}: "
            "keep the model directory, or export a model without it"
        )
    return theirs


def _implied(spec: specs.Spec) -> Json:
    """Paths that may be None, and what they are then."""
    implied = {"attention.dropout": spec.dropout}
    if not getattr(spec.embeddings, "projected", None):
        implied["embeddings.width"] = spec.hidden
    heads, width = spec.attention.heads, specs.get(spec, spec.attended)
    if isinstance(heads, int) and width % heads == 0:
        implied["attention.head_size"] = width // heads
    if hasattr(spec, "decoder"):
        implied["decoder.layers"] = spec.blocks.layers
    return implied


def _plain(spec: specs.Spec, dialect: Dialect, base: specs.Spec) -> specs.Spec:
    """The Spec with None for what follows from the rest in their models."""
    implied = {path: None for path, value in _implied(spec).items() if specs.get(spec, path) == value}
    return _usual(spec, dialect, base).derive(implied)


def _in_theirs(config: Json, spec: specs.Spec, dialect: Dialect) -> Json:
    """Values of ours by their key -> theirs."""
    implied, kinds = _implied(spec), specs.paths(type(spec))
    activations = _keys(dialect, "feedforward.activation")
    for path, key in _written(dialect):
        value = config[key]
        if value is None and bool in getattr(kinds[path], "__args__", ()):
            value = False
        if value is None and (path != "embeddings.width" or dialect.unprojected):
            value = implied.get(path)
        values = _activations(dialect, key) if key in activations else dialect.values.get(key, {})
        config[key] = next((theirs for theirs, ours in values.items() if ours == value), value)
    return config


def labels(config: JsonMap, count: int | None) -> tuple[str, ...]:
    """Names of the classes in order; `LABEL_0` and so on where the configuration leaves them out."""
    names = config.get("id2label")
    for key in ("num_labels", "_num_labels"):
        if type(said := config.get(key)) is int and count is not None and said != count:
            raise InputError(f"the classifier has {count} outputs, and {key} says {said}: correct the configuration")
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
    if count is not None and len(by_id) != count:
        raise InputError(
            f"the classifier has {count} outputs, and id2label names {len(by_id)}: correct the configuration, whose labels "
            "would be given to other outputs"
        )
    return tuple(by_id[i] for i in range(len(by_id)))


def languages(config: JsonMap) -> dict[str, int] | None:
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


def for_texts(kind: str | None) -> bool:
    """Whether their classifiers of texts compute what a kind of task does; None is a checkpoint that says no kind."""
    return kind in _PROBLEMS.values()


def task_of(config: JsonMap, classes: int, pair: bool | None = None, kind: str | None = None) -> Json:
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
    said = config.get(PAIR) is True
    if kind is None:
        kind = _PROBLEMS[problem] or ("regression" if classes == 1 else "classification")
        if kind == "regression" and classes != 1:
            raise InputError(
                f"the checkpoint's problem_type is regression with {classes} outputs, and one number for a text is computed "
                "here: no such model here"
            )
        if kind == "classification" and classes == 1:
            raise InputError(
                "the checkpoint's problem_type is single_label_classification with one label, which every text has: "
                "correct it to regression if the number is what it answers"
            )
        pair = said if pair is None else pair
    else:
        pair = kind in _PAIRS
    options = config.get(OPTIONS)
    if isinstance(options, JsonView):
        options.read()
        options = options.plain()
    more = {"options": options} if options and isinstance(options, dict) else {}
    return {"kind": kind, "inputs": "pair" if pair else "text"} | more

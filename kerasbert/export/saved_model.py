"""SavedModels that take text, for TF Serving: the tokenizer is in the graph, the process needs tensorflow_text alone."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.export import beside, signatures
from kerasbert.export.model_card import card
from kerasbert.inputs import NAMES as INPUT_NAMES
from kerasbert.inputs import Input, Tensor, used, with_makers
from kerasbert.layers.backend import serving
from kerasbert.storage import files
from kerasbert.tasks import predict
from kerasbert.tasks.adapted_models import merged
from kerasbert.tasks.base import TaskKind, kind_of
from kerasbert.tasks.prompts import tell_prompt
from kerasbert.text.graph import graph_tokenizer

TOLERANCE = 1e-4
WARM = 16  # tokens of a row of ids that warms a server up
# Short, long, empty, accents, another script: what the file is compared on before it is put in place.
PROBES = (
    "a gripping film",
    "",
    "Ünïcödé, naïve café!",
    "一二三 four",
    "never " * 200,
    "so bad, so very bad .",
    "?",
    "x",
)


def export(
    model: Any,
    out: str | os.PathLike,
    *,
    length: int | None = None,
    overwrite: bool = False,
    next_version: bool = False,
) -> Path:
    """Write a SavedModel.

    Signature `serving_default` takes `text` (string [B]), or `text_a` and `text_b` for a task on pairs, or the parts that
    another kind names, such as `question` and `context` (a list of texts is [B, C]), and the settings that the model was
    trained with, such as `language` (string [B]); signature `ids` takes what the network reads: token_ids, padding_mask,
    segment_ids (int32 [B, S]). A model of vectors that has prompts has the signature `prompted` too, of `text` and
    `prompt_name` (string [B], "" for none). A classification returns `probabilities` [B, L] float32, `label_ids` [B] int32 and
    `labels` [B] string, a regression `value` [B], an encoder `vector` [B, H] (as `kb.encode` gives it); other kinds what the
    README.md beside it says. Loads with `tf.saved_model.load` after `import tensorflow_text`; for TF Serving put it at
    NAME/1.

    Args:
        model: a model or run directory, a loaded model, or a functional Keras model of one's own that holds a loaded
            encoder and has inputs named as the encoder's; its outputs are exported as they are.
        out: the directory to make.
        length: int, longest text in tokens; by default that of the task's training, else all the model's positions.
        overwrite: replace what `out` holds.
        next_version: `out` is what TF Serving calls a model's base path: write the folder of the next number within it.

    Returns:
        The directory.

    Raises:
        InputError: `out` is taken, the model has no tokenizer, or the written file answers differently.
    """
    if next_version:
        out = Path(out) / str(1 + max([0, *(int(each.name) for each in _versions(out))]))
    files.check_free(out, overwrite, [model] if isinstance(model, str | os.PathLike) else [])
    model, out = merged(predict.as_model(model)), Path(out)
    if not hasattr(model, "spec"):
        model = OwnModel(model)
    if model.tokenizer is None:
        raise InputError("the model has no tokenizer, and a SavedModel takes text: import it with one")
    longest = predict.longest(model, length)
    tell_prompt(model)
    with files.new_directory(out, replace=overwrite) as folder:
        _write(model, folder, longest)
        served = tf.saved_model.load(str(folder)).signatures
        _compare(model, served, longest)
        beside.write(folder, _warm_up(model, served))
        given = sorted(served["serving_default"].structured_outputs) if isinstance(model, OwnModel) else ()
        names = ", ".join(f"`{name}`" for name in given)
        (folder / "README.md").write_text(card(model, longest, _example(model), names), "utf-8")
        beside.sums(folder)
    return out


def _versions(base: str | os.PathLike) -> list[Path]:
    """Folders that TF Serving takes for versions of a model."""
    return [each for each in Path(base).glob("*") if re.fullmatch("[0-9]+", each.name) and each.is_dir()]


class OwnModel(keras.Model):
    """A user's Keras model around an encoder, as the exporter sees a model: inputs by name, outputs by name.

    Args:
        model: a keras.Model whose inputs are named as the encoder's, or some of them.
    Call: dict of int [B, S] -> dict of the model's outputs by their layers' names, or one `output`.
    Raises:
        InputError: other inputs, or no encoder in it.
    """

    def __init__(self, model: keras.Model) -> None:
        super().__init__(name="own_model")
        layers = getattr(model, "layers", ())
        encoder = next((layer for layer in layers if hasattr(layer, "spec") and hasattr(layer, "tokenizer")), None)
        inputs = getattr(model, "input", None)
        names = [] if encoder is None else [each.name for each in predict.declared(encoder)]
        if encoder is None or not isinstance(inputs, dict) or not inputs.keys() <= set(names):
            raise InputError(
                f"{type(model).__name__} cannot be exported: expected a kerasbert model, or a functional Keras model that "
                f"holds an encoder and whose inputs are a dict of {', '.join(names or INPUT_NAMES)} or some of them"
            )
        self.model, self.encoder, self.tokenizer, self.names = model, encoder, encoder.tokenizer, tuple(inputs)
        self.spec, self.built = encoder.spec, True

    def call(self, inputs):
        outputs = self.model({name: inputs[name] for name in self.names})
        return outputs if isinstance(outputs, dict) else {"output": outputs}


def answers(model: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The exported outputs of a batch."""
    with serving():
        return model(inputs) if isinstance(model, OwnModel) else kind_of(model).answered(model, inputs)


def text_names(model: Any) -> tuple[str, ...]:
    """Names of the texts that `serving_default` takes."""
    task = getattr(model, "task", None)
    return ("text",) if task is None else task.how.strings(task)


def _specs(model: Any, settings: Sequence[str]) -> dict[str, tf.TensorSpec]:
    """Of each input of `serving_default`: texts, settings of a call, and the numbers of the model's kind."""
    names, kind = text_names(model), kind_of(model)
    lists = {names[i] for i in kind.answers.lists if len(names) > 1}
    specs = {name: tf.TensorSpec([None, None] if name in lists else [None], tf.string) for name in names}
    specs |= {name: tf.TensorSpec([None], tf.string) for name in settings}
    return specs | {name: tf.TensorSpec([None], tf.int32) for name in kind.numbers(())}


def _example(model: Any) -> dict[str, list]:
    """A row of each input of `serving_default`, for a reader."""
    task = getattr(model, "task", None)
    found: dict[str, list] = {}
    for name, spec in _specs(model, list(task.settings) if task is not None else []).items():
        text = ["...", "..."] if len(spec.shape) > 1 else "..."
        found[name] = [text if spec.dtype == tf.string else 2]
    return found | {name: [value] for name, value in (task.settings if task is not None else {}).items()}


def _probes(model: Any) -> list[Any]:
    """Inputs that a SavedModel is compared on and warmed up with."""
    return kind_of(model).probes(PROBES, len(text_names(model)))


def _given(model: Any, texts: Sequence[Any]) -> dict[str, tf.Tensor]:
    """What `serving_default` takes of inputs as `kb.predict` takes them, with the settings that the model was trained with."""
    trained = getattr(getattr(model, "task", None), "settings", {})
    settings = {name: tf.fill([len(texts)], value) for name, value in trained.items()}
    return signatures.given(kind_of(model), text_names(model), texts) | settings


def _warm_up(model: Any, served: Any) -> list[beside.Request]:
    """Requests of every signature, of one text and of several, which are two graphs; they were answered here."""
    texts, specs = _probes(model), served["ids"].structured_input_signature[1]
    requests: list[beside.Request] = []
    for count in (1, 4):
        some = _given(model, texts[:count])
        sizes = {
            name: [count, *(WARM if size is None else size for size in spec.shape[1:])] for name, spec in specs.items()
        }
        ids = {name: tf.fill(size, tf.constant(0, specs[name].dtype)) for name, size in sizes.items()}
        requests += [("serving_default", some), ("ids", ids | {"lengths": tf.fill([count], WARM)})]
        if "prompted" in served:
            requests.append(("prompted", some | {"prompt_name": tf.fill([len(texts[:count])], "")}))
    for signature, inputs in requests:
        served[signature](**inputs)
    return requests


class _Graph:
    """What the signatures of a SavedModel compute: functions of dicts of their inputs.

    Args:
        model: a kerasbert model, or an OwnModel. longest: int, most tokens of a row.
    """

    def __init__(self, model: Any, longest: int) -> None:
        self.model, self.longest, self.kind = model, longest, kind_of(model)
        self.names, self.tokenizer = text_names(model), graph_tokenizer(model.tokenizer)
        self.reads = used(predict.declared(model), predict.settings_of(model))
        self.taken = signatures.counted(self.reads)
        settings = (each for each in self.reads if each.filled_by == "setting")
        self.choices = [signatures.Choices(each, model.tokenizer) for each in settings]
        self.prompts = [signatures.Prompts(known)] if (known := _prompts(self.kind)) else []
        self.one_row = type(self.kind).served is TaskKind.served
        if self.one_row:
            _check_filled(self.kind, self.reads)

    def answers(self, packed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The outputs of packed rows."""
        return answers(self.model, with_makers(self.reads, packed, self.model.tokenizer))

    def run(self, given: Mapping[str, tf.Tensor], packed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The same with the settings of the call, on a limited number of rows at once; also of no row."""
        owners = packed.pop("owners", None)
        for table in self.choices:
            setting = given[table.setting]
            setting = setting if owners is None else tf.gather(setting, owners)
            packed[table.declared] = table(setting, packed["padding_mask"])
        count = tf.shape(packed["token_ids"])[0]
        packed = signatures.trimmed(packed)
        numbers = tf.range(tf.shape(packed["token_ids"])[0])
        packed = {
            each.name: numbers for each in self.reads if each.axes == "B"
        } | packed  # which text of the call it is
        every = signatures.one_or_more if self.one_row else signatures.in_chunks
        return {name: value[:count] for name, value in every(self.answers, packed).items()}

    def serving_default(self, given: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Of texts."""
        return self.served(signatures.checked(given), self.kind)

    def served(self, given: dict[str, tf.Tensor], kind: TaskKind) -> dict[str, tf.Tensor]:
        """What the kind answers of texts that were checked."""
        texts = {name: given[name] for name in (*self.names, *kind.numbers(()))}
        labels = tuple(getattr(self.model, "labels", None) or ())
        return kind.served(lambda packed: self.run(given, packed), self.tokenizer, texts, self.longest, labels)

    def prompted(self, given: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Of texts, each with the prompt of its name before it."""
        given, first = signatures.checked(given), self.names[0]
        text = self.prompts[0](given.pop("prompt_name"), given[first])
        bare = self.kind.configured({**self.kind.options, "prompt_name": ""})
        return self.served({**given, first: text}, bare)

    def ids(self, given: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Of tokens."""
        return self.answers(signatures.masked(self.taken, signatures.checked(given), self.model.tokenizer.pad_id))

    def traced(self) -> dict[str, Any]:
        """The concrete function of each signature."""
        texts = _specs(self.model, [table.setting for table in self.choices])
        ids = {each.name: tf.TensorSpec(each.open_shape, each.dtype) for each in self.taken}
        ids["lengths"] = tf.TensorSpec([None], tf.int32)
        found = {
            "serving_default": signatures.traced(self.serving_default, texts),
            "ids": signatures.traced(self.ids, ids),
        }
        if self.prompts:
            named = {**texts, "prompt_name": tf.TensorSpec([None], tf.string)}
            found["prompted"] = signatures.traced(self.prompted, named)
        return found


def _prompts(kind: TaskKind) -> Mapping[str, str]:
    """The prompts of which a call may choose; none where they are left out of the pooling, each with another length."""
    return kind.options.get("prompts", {}) if kind.options.get("include_prompt", True) else {}


def _write(model: Any, folder: Path, longest: int) -> None:
    """Save the signatures with their weights and tables, in an order that is the same in every process.

    Keras' ExportArchive has that of the variables' addresses.
    """
    graph = _Graph(model, longest)
    functions = graph.traced()
    read = {id(each) for function in functions.values() for each in function.graph.variables}
    saved = tf.Module()
    saved.weights = [each.value for each in model.weights if id(each.value) in read]
    saved.tables = [graph.tokenizer, *graph.choices, *graph.prompts]
    tf.saved_model.save(saved, str(folder), functions)


def _check_filled(kind: TaskKind, reads: Sequence[Input]) -> None:
    """Refuse inputs that a kind fills in Python alone; the number of a text in its call is counted."""
    bare = [each.name for each in reads if each.filled_by == "kind" and each.graph is None and each.axes != "B"]
    if bare:
        raise InputError(
            f"nothing fills {', '.join(bare)} in a graph, which a {kind.name} reads: give its Input a graph, or the kind a served"
        )


def _expected(model: Any, texts: Sequence[Any], served: Mapping[str, Any], longest: int) -> tuple[str, Any]:
    """The output that is compared, and what it is to be of each text."""
    if isinstance(model, OwnModel):
        name = next(name for name in served if name != "truncated")
        return name, predict.forward(model, texts, "own", lambda model, inputs: model(inputs)[name], length=longest)
    if getattr(model, "task", None) is None:
        return "vector", predict.encode(model, texts, length=longest)
    kind, encoded = kind_of(model).answers, predict.encoded_for(model, texts, longest)
    return kind.output, [kind.probabilities(row) for row in predict.outputs_of(model, encoded, longest)]


def _compare(model: Any, signed: Any, longest: int) -> None:
    """Refuse a SavedModel that answers differently from the model it was made of; `signed`: its signatures."""
    serve, kind, texts = signed["serving_default"], kind_of(model), _probes(model)
    strings = _given(model, texts)
    served = serve(**strings)
    answered = kind.unserved(
        {name: value.numpy() for name, value in served.items()}, list(getattr(model, "labels", None) or ())
    )
    if answered is not None:
        wanted = [answer.to_json() for answer in predict.predict(model, texts, length=longest)]
        if found := difference(wanted, answered):
            raise InputError(
                f"the SavedModel answers differently from the model ({found}): nothing was written; please report it"
            )
        return
    name, expected = _expected(model, texts, served, longest)
    alone = serve(**{name: value[:1] for name, value in strings.items()})  # a graph of its own, see `_of_one_row`
    received, expected = [*served[name].numpy(), *alone[name].numpy()], [*expected, expected[0]]
    if kind.per_token:
        received = [row[: len(wanted)] for row, wanted in zip(received, expected)]
    for prompt in _prompts(kind):
        said = {"prompt_name": tf.fill([len(texts)], prompt)}
        received += [*signed["prompted"](**strings, **said)[name].numpy()]
        expected += [*predict.encode(model, texts, length=longest, prompt_name=prompt)]
    largest = max(float(np.abs(row - wanted).max(initial=0.0)) for row, wanted in zip(received, expected))
    task = getattr(model, "task", None)
    tolerance = TOLERANCE if task is None else task.rounding(TOLERANCE)
    if not largest <= tolerance:
        raise InputError(
            f"the SavedModel answers differently from the model (largest difference {largest:.2g}, allowed "
            f"{tolerance:g}): nothing was written; please report it"
        )


def difference(wanted: Any, received: Any, where: str = "answers") -> str:
    """Where two json values differ, numbers by more than TOLERANCE; empty where they do not.

    Of objects the fields that were received count: a graph may leave some out.
    """
    if isinstance(wanted, dict) and isinstance(received, dict) and wanted.keys() >= received.keys():
        found = (difference(wanted[name], value, f"{where}.{name}") for name, value in received.items())
    elif isinstance(wanted, list) and isinstance(received, list) and len(wanted) == len(received):
        found = (difference(*pair, f"{where}[{i}]") for i, pair in enumerate(zip(wanted, received)))
    elif isinstance(wanted, float) and isinstance(received, float):
        return (
            "" if abs(wanted - received) <= TOLERANCE * max(1.0, abs(wanted)) else f"{where}: {received} for {wanted}"
        )
    else:
        return "" if wanted == received else f"{where}: {received!r:.60} for {wanted!r:.60}"
    return next((each for each in found if each), "")

"""SavedModels that take text, for TF Serving: the tokenizer is in the graph, the process needs tensorflow_text alone."""

import inspect
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.export.model_card import card
from kerasbert.inputs import NAMES as INPUT_NAMES
from kerasbert.inputs import Input, Tensor, used, with_makers
from kerasbert.layers.backend import serving
from kerasbert.storage import files
from kerasbert.tasks import predict
from kerasbert.tasks.adapted_models import merged
from kerasbert.tasks.base import TaskKind, kind_of
from kerasbert.tasks.prompts import tell_prompt
from kerasbert.text.base import Tokenizer
from kerasbert.text.graph import graph_tokenizer

TOLERANCE = 1e-4
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
STRINGS = tf.TensorSpec([None], tf.string)
ROWS = 64  # that the graph runs at once, where an input is several
MOST_ROWS = 1 << 14  # of one call


def export(model: Any, out: str | os.PathLike, *, length: int | None = None, overwrite: bool = False) -> Path:
    """Write a SavedModel.

    Signature `serving_default` takes `text` (string [B]), or `text_a` and `text_b` for a task on pairs, or the parts that
    another kind names, such as `question` and `context` (a list of texts is [B, C]), and the settings that the model was
    trained with, such as `language` (string [B]); signature `ids` takes what the network reads: token_ids, padding_mask,
    segment_ids (int32 [B, S]). A classification returns `probabilities` [B, L] float32, `label_ids` [B] int32 and
    `labels` [B] string, a regression `value` [B], an encoder `vector` [B, H] (as `kb.encode` gives it); other kinds what the
    README.md beside it says. Loads with `tf.saved_model.load` after `import tensorflow_text`; for TF Serving put it at
    NAME/1.

    Args:
        model: a model or run directory, a loaded model, or a functional Keras model of one's own that holds a loaded
            encoder and has inputs named as the encoder's; its outputs are exported as they are.
        out: the directory to make.
        length: int, longest text in tokens; by default that of the task's training, else all the model's positions.
        overwrite: replace what `out` holds.

    Raises:
        InputError: `out` is taken, the model has no tokenizer, or the written file answers differently.
    """
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
        _compare(model, folder, longest)
        names = (
            ", ".join(f"`{name}`" for name in _load(folder).structured_outputs) if isinstance(model, OwnModel) else None
        )
        (folder / "README.md").write_text(card(model, longest, text_names(model), names), "utf-8")
    return out


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


def _shapes(strings: Sequence[str], lists: Collection[str]) -> list[tf.TensorSpec]:
    """Of each input of strings; [B, (texts)] for those that are lists."""
    return [tf.TensorSpec([None, None], tf.string) if name in lists else STRINGS for name in strings]


def _write(model: Any, folder: Path, longest: int) -> None:
    tokenizer = graph_tokenizer(model.tokenizer)
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.track(tokenizer)
    numbers = predict.settings_of(model)
    reads = used(predict.declared(model), numbers)
    choices = [_Choices(each, model.tokenizer) for each in reads if each.filled_by == "setting"]
    for table in choices:
        archive.track(table)
    names, kind = text_names(model), kind_of(model)
    one_row = type(kind).served is TaskKind.served
    if one_row:
        _check_filled(kind, reads)

    def from_text(strings: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        def some(packed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return answers(model, with_makers(reads, packed, model.tokenizer))

        def run(packed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            owners = packed.pop("owners", None)
            for table in choices:
                setting = strings[table.setting]
                setting = setting if owners is None else tf.gather(setting, owners)
                packed[table.declared] = table(setting, packed["padding_mask"])
            count = tf.shape(packed["token_ids"])[0]
            packed = trimmed(packed)
            numbers = tf.range(tf.shape(packed["token_ids"])[0])
            packed |= {each.name: numbers for each in reads if each.axes == "B"}  # which text of the call it is
            outputs = _one_or_more(some, packed) if one_row else _in_chunks(some, packed)
            return {name: value[:count] for name, value in outputs.items()}

        texts = {name: strings[name] for name in names}
        return kind.served(run, tokenizer, texts, longest, tuple(getattr(model, "labels", None) or ()))

    strings = [*names, *(table.setting for table in choices)]
    shapes = _shapes(strings, {names[i] for i in kind.answers.lists if len(names) > 1})
    specs = {each.name: tf.TensorSpec(each.open_shape, each.dtype) for each in reads}
    archive.add_endpoint("serving_default", _named(from_text, strings), shapes)
    archive.add_endpoint("ids", _named(lambda inputs: answers(model, inputs), list(specs)), list(specs.values()))
    archive.write_out(str(folder), verbose=False)


def _check_filled(kind: TaskKind, reads: Sequence[Input]) -> None:
    """Refuse inputs that a kind fills in Python alone; the number of a text in its call is counted."""
    bare = [each.name for each in reads if each.filled_by == "kind" and each.graph is None and each.axes != "B"]
    if bare:
        raise InputError(
            f"nothing fills {', '.join(bare)} in a graph, which a {kind.name} reads: give its Input a graph, or the kind a served"
        )


def trimmed(packed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Packed rows [R, W] as long as the longest of them, not as the longest there may be; a row of one token for none."""
    count = tf.shape(packed["padding_mask"])[0]
    added = [[0, tf.maximum(0, 1 - count)], [0, tf.maximum(0, 1 - tf.shape(packed["padding_mask"])[1])]]
    width = tf.reduce_max(tf.concat([[1], tf.reduce_sum(packed["padding_mask"], axis=1)], axis=0))
    filling = {"padding_mask": 1}  # a row that sees nothing has no softmax
    return {
        name: tf.pad(each, added + [[0, 0]] * (len(each.shape) - 2), constant_values=filling.get(name, 0))[:, :width]
        for name, each in packed.items()
    }


def _of_one_row(packed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The same with shapes that say B = 1: with the length alone unknown, no operator computes the shapes of reshapes."""
    return {name: tf.ensure_shape(each, (1, *each.shape[1:])) for name, each in packed.items()}


def _one_or_more(some: Callable, packed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """What `some` gives of rows; a single one is read by a branch of its own."""
    one = tf.equal(tf.shape(packed["token_ids"])[0], 1)
    return tf.cond(one, lambda: some(_of_one_row(packed)), lambda: some(packed))


def _in_chunks(run: Callable[[dict], dict], packed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """`run` on at most ROWS rows at once: memory does not grow with the length of a document.

    Args:
        packed: [R, W], R at least 1.
    """
    count = tf.shape(packed["token_ids"])[0]
    message = f"at most {MOST_ROWS} rows in a call: send fewer or shorter texts"
    with tf.control_dependencies([tf.debugging.assert_less_equal(count, MOST_ROWS, message)]):
        chunks = (count + ROWS - 1) // ROWS

    def chunk(number: tf.Tensor) -> dict[str, tf.Tensor]:
        return run({name: value[number * ROWS : (number + 1) * ROWS] for name, value in packed.items()})

    first = chunk(0)
    names = sorted(first)

    def body(number: tf.Tensor, *done: tf.Tensor) -> list[tf.Tensor]:
        outputs = chunk(number)
        return [number + 1, *(tf.concat([each, outputs[name]], axis=0) for name, each in zip(names, done))]

    shapes = [tf.TensorShape([]), *(tf.TensorShape([None, *first[name].shape[1:]]) for name in names)]
    state = [tf.constant(1), *(first[name] for name in names)]
    _, *whole = tf.while_loop(lambda number, *_: number < chunks, body, state, shapes)
    return dict(zip(names, whole))


def _named(function: Callable[[dict], dict], names: list[str]) -> Callable:
    """A function of a dict as one of arguments with these names, after which a signature names its inputs."""

    def called(*values: tf.Tensor) -> dict[str, tf.Tensor]:
        return function(dict(zip(names, values)))

    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    called.__signature__ = inspect.Signature([inspect.Parameter(name, positional) for name in names])
    return called


class _Choices(tf.Module):
    """Names of a setting [B] -> its numbers at the real tokens [B, S] int32; a name that is not known is an error."""

    def __init__(self, declared: Input, tokenizer: Tokenizer) -> None:
        super().__init__(name=declared.name)
        self.setting = declared.setting
        self.declared = declared.name
        self.known = dict(declared.choices(tokenizer)) if declared.choices else {}
        keys, values = list(self.known), [int(value) for value in self.known.values()]
        initializer = tf.lookup.KeyValueTensorInitializer(keys, values, tf.string, tf.int32)
        self.table = tf.lookup.StaticHashTable(initializer, -1)

    def __call__(self, names: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        numbers = self.table.lookup(names)
        message = f"{self.setting}: expected one of {', '.join(self.known)}"
        with tf.control_dependencies([tf.debugging.assert_non_negative(numbers, message)]):
            return mask * tf.expand_dims(numbers, 1)


def _load(folder: Path) -> Any:
    return tf.saved_model.load(str(folder)).signatures["serving_default"]


def _compare(model: Any, folder: Path, longest: int) -> None:
    """Refuse a SavedModel that answers differently from the model it was made of."""
    serve, names, kind = _load(folder), text_names(model), kind_of(model)
    texts = kind.probes(PROBES, len(names))
    columns = list(zip(*texts)) if len(names) > 1 else [texts]
    strings = {name: tf.constant(list(column)) for name, column in zip(names, columns)}
    trained = getattr(getattr(model, "task", None), "settings", {})
    strings |= {name: tf.fill([len(texts)], value) for name, value in trained.items()}
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
    if isinstance(model, OwnModel):
        name = next(iter(served))
        expected = predict.forward(model, texts, "own", lambda model, inputs: model(inputs)[name], length=longest)
    elif getattr(model, "task", None) is None:
        name, expected = "vector", predict.encode(model, texts, length=longest)
    else:
        name = kind.answers.output
        encoded = predict.encoded_for(model, texts, longest)
        expected = predict.outputs_of(model, encoded, longest)
        expected = [kind.answers.probabilities(row) for row in expected]
    alone = serve(**{name: value[:1] for name, value in strings.items()})  # a graph of its own, see `_of_one_row`
    received, expected = [*served[name].numpy(), *alone[name].numpy()], [*expected, expected[0]]
    if kind.per_token:
        received = [row[: len(wanted)] for row, wanted in zip(received, expected)]
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

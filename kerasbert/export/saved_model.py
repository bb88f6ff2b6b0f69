"""SavedModels that take text, for TF Serving: the tokenizer is in the graph, the process needs tensorflow_text alone."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from kerasbert import progress
from kerasbert.answers.base import Outputs
from kerasbert.errors import InputError
from kerasbert.export import beside, card_requests, graphs, model_card, rounded, signatures
from kerasbert.export.server import folders
from kerasbert.options import checked
from kerasbert.storage import files
from kerasbert.tasks import early_checks, predict
from kerasbert.tasks.adapted_models import in_bfloat16, merged
from kerasbert.tasks.base import kind_of
from kerasbert.tasks.graph_values import run
from kerasbert.tasks.prompts import tell_prompt

if TYPE_CHECKING:
    import keras

    from kerasbert.tasks.ensemble import Ensemble


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


@checked
def export(
    model: "str | os.PathLike | keras.Model | Ensemble",
    out: str | os.PathLike,
    *,
    length: int | None = None,
    overwrite: bool = False,
    next_version: bool = False,
    precision: str = "float32",
) -> Path:
    """Write a SavedModel.

    Signature `serving_default` takes `text` (string [B]), or `text_a` and `text_b` for a task on pairs, or the parts that
    another kind names, such as `question` and `context` (a list of texts is [B, C]), and the settings that the model was
    trained with, such as `language` (string [B]); signature `ids` takes what the network reads: token_ids, padding_mask,
    segment_ids (int32 [B, S]). A model of vectors that has prompts has the signature `prompted` too, of `text` and
    `prompt_name` (string [B], "" for none). A classification returns `probabilities` [B, L] float32, `label_ids` [B] int32 and
    `labels` [B] string, a regression `value` [B], an encoder `vector` [B, H] (as `kb.encode` gives it); other kinds what the
    MODEL_CARD.md beside it says. Loads with `tf.saved_model.load` after `import tensorflow_text`; for TF Serving put it at
    NAME/1.

    Args:
        model: a model or run directory, a loaded model, or a functional Keras model of one's own that holds a loaded
            encoder and has inputs named as the encoder's; its outputs are exported as they are.
        out: the directory to make.
        length: int, longest text in tokens; by default that of the task's training, else all the model's positions.
        overwrite: replace what `out` holds.
        precision: "bfloat16" stores the weights in half the bytes and multiplies in bfloat16, which processors with AVX512-BF16
            or AMX do faster; of labels, numbers and vectors. How far the answers are from float32 is said, and in the card.
        next_version: `out` is what TF Serving calls a model's base path: write the folder of the next number within it.

    Returns:
        The directory.

    Raises:
        InputError: `out` is taken, the model has no tokenizer or no such precision, or the written file answers differently.
    """
    if next_version:
        folders.check_base(out)
    free = files.next_version(out) if next_version else out
    read = [model] if isinstance(model, str | os.PathLike) else []
    files.check_free(free, overwrite, read, claim=not next_version)
    model = merged(predict.as_model(model))
    if not hasattr(model, "spec"):
        model = graphs.OwnModel(model)
    if model.tokenizer is None:
        raise InputError("the model has no tokenizer, and a SavedModel takes text: import it with one")
    if precision != "float32" and isinstance(model, graphs.OwnModel):
        raise InputError("precision is for models of kerasbert: one of your own is exported as it computes")
    early_checks.check_rounded(precision, kind_of(model))
    longest, whole = predict.longest(model, length), model
    model = in_bfloat16(whole) if precision == "bfloat16" else whole
    tell_prompt(model)
    if next_version:
        with files.new_version(out) as version:
            _fill(version.new, model, whole, longest, precision)
        return Path(out, version.path.name)
    with files.new_directory(out, replace=overwrite) as folder:
        _fill(folder, model, whole, longest, precision)
    return Path(out)


def _fill(folder: Path, model: "keras.Model", whole: "keras.Model", longest: int, precision: str) -> None:
    """Write a SavedModel and what stands beside it, compared with the `whole` model in float32."""
    _write(model, folder, longest)
    served = tf.saved_model.load(str(folder)).signatures
    remark = _compare(whole, served, longest, precision)
    if remark:
        progress.say(remark)
    beside.write(folder, _warm_up(model, served))
    given = sorted(served["serving_default"].structured_outputs) if isinstance(model, graphs.OwnModel) else ()
    names = ", ".join(f"`{name}`" for name in given)
    asked = card_requests.run(folder, served["serving_default"], _given(model, _probes(model)[:1]))
    (folder / model_card.FILE).write_text(model_card.card(model, longest, asked, list(served), names, remark), "utf-8")
    beside.sums(folder)


def _probes(model: "keras.Model") -> Sequence[object]:
    """Inputs that a SavedModel is compared on and warmed up with."""
    return kind_of(model).probes(PROBES, len(graphs.text_names(model)))


def _given(model: "keras.Model", texts: Sequence[object]) -> dict[str, tf.Tensor]:
    """What `serving_default` takes of inputs as `kb.predict` takes them, with the settings that the model was trained with."""
    trained = getattr(getattr(model, "task", None), "settings", {})
    settings = {name: tf.fill([len(texts)], value) for name, value in trained.items()}
    return signatures.given(kind_of(model), graphs.text_names(model), texts) | settings


def _warm_up(model: "keras.Model", served: signatures.Signatures) -> list[beside.Request]:
    """Requests of every signature, of one text and of several, which are two graphs; they were answered here."""
    texts, kind = _probes(model), kind_of(model)
    requests: list[tuple[str, dict[str, tf.Tensor]]] = []
    for count in (1, 4):
        some = _given(model, texts[:count])
        rows = len(texts[:count])
        own = {"serving_default": some, "options": some | signatures.own_options(kind, tf.constant(rows))}
        if kind.examples:
            own[kind.examples] = {"inputs": signatures.examples(some)}
        own["prompted"] = some | {"prompt_name": tf.fill([rows], "")}
        for name, signature in sorted(served.items()):
            requests.append((name, own[name] if name in own else _filled(model, signature, count)))
    return [(name, inputs, served[name](**inputs)) for name, inputs in requests]


def _filled(model: "keras.Model", signature: signatures.ConcreteFunction, count: int) -> dict[str, tf.Tensor]:
    """Inputs of a signature: rows of WARM tokens or words."""
    trained = getattr(getattr(model, "task", None), "settings", {})
    found = {}
    for name, spec in signature.structured_input_signature[1].items():
        size = [count, *(WARM if each is None else each for each in spec.shape[1:])]
        value = trained.get(name, "a") if spec.dtype == tf.string else WARM if name == "lengths" else 0
        found[name] = tf.fill(size, tf.constant(value, spec.dtype))
    return found


def _write(model: "keras.Model", folder: Path, longest: int) -> None:
    """Save the signatures with their weights and tables, in an order that is the same in every process.

    Keras' ExportArchive has that of the variables' addresses.
    """
    graph = graphs.Graph(model, longest)
    functions = graph.traced()
    read = {id(each) for function in functions.values() for each in function.graph.variables}
    saved = tf.Module()
    saved.weights = [each.value for each in model.weights if id(each.value) in read]
    saved.tables = [graph.tokenizer, *graph.choices, *graph.prompts]
    tf.saved_model.save(saved, str(folder), functions)
    beside.name_methods(folder, functions)


def _expected(
    model: "keras.Model", texts: Sequence[object], served: Mapping[str, tf.Tensor], longest: int
) -> tuple[str, Outputs]:
    """The output that is compared, and what it is to be of each text."""
    if not isinstance(model, graphs.OwnModel) and getattr(model, "task", None) is None:
        return "vector", predict.encode(model, texts, length=longest)
    encoded = predict.encoded_for(model, texts, longest)
    if isinstance(model, graphs.OwnModel):
        name = next(name for name in served if name != "truncated")
        function = predict.graph(model, "own", lambda model, inputs: model(inputs)[name], encoded.settings)
        return name, run(function, encoded, predict.longest(model, longest))
    kind = kind_of(model).answers
    return kind.output, [kind.probabilities(row) for row in predict.outputs_of(model, encoded, longest)]


def _compare(model: "keras.Model", signed: signatures.Signatures, longest: int, precision: str) -> str:
    """Refuse a SavedModel that answers differently from the model in float32, and say how far one in bfloat16 is from it.

    Args:
        signed: its signatures.
    """
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
        return ""
    name, expected = _expected(model, texts, served, longest)
    alone = serve(**{name: value[:1] for name, value in strings.items()})  # a graph of its own, see `_of_one_row`
    received, expected = [*served[name].numpy(), *alone[name].numpy()], [*expected, expected[0]]
    if kind.per_token:
        received = [row[: len(wanted)] for row, wanted in zip(received, expected)]
    for prompt in graphs.prompts_of(kind):
        said = {"prompt_name": tf.fill([len(texts)], prompt)}
        received += [*signed["prompted"](**strings, **said)[name].numpy()]
        expected += [*predict.encode(model, texts, length=longest, prompt_name=prompt)]
    if precision == "bfloat16":
        return rounded.agreement(expected, received, kind.examples == "classify")
    largest = max(float(np.abs(row - wanted).max(initial=0.0)) for row, wanted in zip(received, expected))
    task = getattr(model, "task", None)
    tolerance = TOLERANCE if task is None else task.rounding(TOLERANCE)
    if not largest <= tolerance:
        raise InputError(
            f"the SavedModel answers differently from the model (largest difference {largest:.2g}, allowed "
            f"{tolerance:g}): nothing was written; please report it"
        )
    return ""


def difference(wanted: object, received: object, where: str = "answers") -> str:
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

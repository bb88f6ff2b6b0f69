"""`compress`: a model directory -> a .tflite that was run and compared with the Keras model before it is put in place."""

import hashlib
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert import __version__, files
from kerasbert.errors import InputError, unknown
from kerasbert.export.bundle import Bundle
from kerasbert.layers.naming import names as weight_names
from kerasbert.mobile import buckets, convert, metadata
from kerasbert.mobile.quantize import aware_training, budget, forms, product, ranges
from kerasbert.mobile.runtime import load as load_runtime
from kerasbert.mobile.samples import generated
from kerasbert.training.runs import data_of
from kerasbert.training.splits import measured, training_texts

TARGETS = ("kerasbert", "mediapipe")
ANY_LENGTH = "any_length"
INPUTS = ("token_ids", "padding_mask", "segment_ids")
OUTPUTS = {"classification": "probabilities", "regression": "value", "embedding": "vector"}
FLOAT_TOLERANCE = {"float32": 1e-4, "fp16": 5e-3}
# Labels that stay the same. Static ranges cost more than per-token ones; full_int8 is refused where it ruins the model.
MIN_AGREEMENT = {"static_int8": 0.95, "full_int8": 0.95}
GENERATED = 200

Texts = Sequence[str] | Sequence[tuple[str, str]]


def compress(
    run: Any,
    quantize: str = "dynamic_int8",
    out: str | os.PathLike = "model.tflite",
    *,
    target: str | None = None,
    length: int | None = None,
    lengths: Sequence[int] | str | None = None,
    min_agreement: float | None = None,
    texts: Texts | None = None,
    data: str | os.PathLike | None = None,
    calibration: Texts | str | os.PathLike | None = None,
    calibration_size: int | None = None,
    embedding_codes: int | None = None,
    max_drop: float | None = None,
    recipe: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a .tflite with everything in it that turns text into answers.

    Args:
        run: model directory (of a fine-tuned model, or of an encoder: then the file gives mean-pooled vectors) or a
            loaded model.
        quantize: str, "dynamic_int8" (a quarter of the size, the fastest on CPU), "fp16" or "float32"; "int8_embeddings"
            (the tables alone); "static_int8" (int8 activations, norms in float) and "full_int8" (nothing in float), for
            chips that want them. A directory that was trained for static_int8 (`mobile.quantize.aware`, per="tensor")
            needs no calibration.
        out: path of the file.
        target: "kerasbert" (default: buckets of several lengths for `kerasbert.mobile.runtime`) or "mediapipe" (one
            length, for MediaPipe's TextClassifier and TextEmbedder; our runtime reads it too).
        length: int, tokens of the longest text, [CLS] and [SEP] included; longer texts lose their end.
        lengths: the buckets; by default those of `buckets.LENGTHS` up to `length`. "any": one signature that takes every length
            up to `length`, for the least memory.
        min_agreement: float, the share of texts that must get the same label from the int8 file as from the Keras
            model (for regression: the correlation; for vectors: the mean cosine). By default 0.985, and 0.95 for static_int8
            and full_int8.
        texts: what the two are compared on, list of str or of pairs; by default texts made of the vocabulary, which is
            a weaker test.
        data: in the place of `texts` a file in the task's format, whose labels give the accuracies too.
        calibration: real texts that static_int8 and full_int8 take the ranges of activations from: a list, a file with
            one text a line (a tab within a pair) or a .tsv, .csv or .jsonl of the task; by default what the run was trained
            on, if it still lies there. calibration_size: int, how many of them; by default 200, or all if there are fewer.
        embedding_codes: int, bytes that a row of a large embedding table takes, by product quantization (`quantize.product`):
            a quarter of its width makes it a quarter of int8's size. With dynamic_int8 and int8_embeddings. The pieces of
            `calibration`, here all of it, come out best; without it all count alike.
        max_drop: float, points (hundredths) of the task's metric that the file may lose on `data` (by default the run's dev
            rows): the weights that cost most stay float until it loses no more.
        recipe: how the model was made, json without paths; travels in the file.
        overwrite: bool, replace an existing file.

    Returns:
        report: dict of out, bytes, quantize, target, lengths, any_length (whether all below too), texts, cut (how many of
            them are longer than the longest length and lose their end, here and on the phone), agreement, max_difference,
            mean_difference, seconds, and accuracy of both where the data has labels. For static_int8 and full_int8
            float_operators and dynamic (`quantize.forms`), with max_drop budget (`quantize.budget`).

    Raises:
        InputError: the file exists, the model cannot be converted, or the file disagrees with the model; in each case
            nothing is written.
    """
    started = time.perf_counter()
    out, quantize, target = Path(out), convert.quantization(quantize), target or "kerasbert"
    if target not in TARGETS:
        raise unknown("target", target, TARGETS, ", ".join(TARGETS))
    if out.is_dir() or (out.exists() and not overwrite):
        raise InputError(f"{out} exists already. Choose another --out or pass --overwrite")
    model, name = _open(run)
    kind, pair = _kind(model)
    any_length = lengths == buckets.ANY
    sizes = buckets.choose(model.spec.longest, target, length, lengths)
    _check_target(model, target, kind, pair)

    def known() -> list | None:
        """The training texts of the run; its files are hashed, so asked for only where they are needed."""
        return training_texts(run, getattr(model, "task", None)) if isinstance(run, str | os.PathLike) else None

    if max_drop is not None and texts is None and data is None:
        data = data_of(run) if isinstance(run, str | os.PathLike) else None
    cases, targets, source = _cases(model, pair, texts, data or None)
    learned = None  # ranges of activations, where the model was trained with them
    if quantize == "static_int8" and calibration is None and isinstance(run, str | os.PathLike):
        learned = aware_training.read_ranges(run)
    if quantize in forms.CALIBRATED and calibration is None and not learned:
        calibration = known()
    frequencies = None
    if embedding_codes is not None:
        if quantize not in forms.KINDS or max_drop is not None:
            other = quantize if max_drop is None else "max_drop"
            raise InputError(f"embedding_codes is given with {other}, expected with {' or '.join(forms.KINDS)} alone")
        given = known() if calibration is None else calibration
        frequencies = _frequencies(model, pair, given, calibration_size)
    counts_alone = embedding_codes is not None  # then calibration is for the pieces, not for ranges
    drawn = [] if learned or counts_alone else _calibration(model, pair, quantize, calibration, calibration_size)
    if max_drop is not None:
        budget.check(quantize, max_drop, targets)
        if learned:
            raise InputError(f"max_drop and ranges that were learned ({aware_training.FILE}): give --calibration")

    names = dict(metadata.INPUTS) if target == "mediapipe" else {part: part for part in INPUTS}
    only = ANY_LENGTH if any_length else "serving_default" if target == "mediapipe" else None
    signatures = {size: only or f"length_{size}" for size in sizes}
    output = OUTPUTS[kind]
    program = _program(model, kind, names, output)
    converted = {None: ANY_LENGTH} if any_length else signatures
    labels = tuple(model.labels or ()) if kind == "classification" else ()
    expected = reference(model, kind, cases, sizes[-1])
    tokenizer = _tokenizer_files(model.tokenizer)

    def finish(blob: bytes) -> bytes:
        if target == "mediapipe":
            about = (name or "kerasbert", "A BERT model, exported by kerasbert.")
            blob = metadata.attach(blob, output, bool(labels), *about)
        bundle = Bundle(
            kind=kind,
            tokenizer=tokenizer,
            signatures=signatures,
            inputs=names,
            output=output,
            any_length=any_length,
            labels=labels,
            pair=pair,
            model=name,
            target=target,
            quantization=quantize,
            digest=hashlib.sha256(blob).hexdigest(),
            versions=_versions(),
            recipe=dict(recipe or {}),
        )
        return blob + bundle.to_zip()

    record: dict[str, Any] = {}
    if learned:
        with aware_training.static(
            model, learned
        ):  # which rounds its activations itself; the converter takes that over
            blob = convert.convert(model, program, converted, tuple(names.values()), "dynamic_int8")
        record, blob = forms.record(blob, quantize, list(weight_names(model))), finish(blob)
    elif quantize in convert.FROM_FLOAT or max_drop is not None or embedding_codes is not None:
        floats = convert.named(model, program, converted, tuple(names.values()), "float32")
        feeds = forms.feeds(model.tokenizer, drawn, signatures, names, any_length)
        if max_drop is None:
            coding = embedding_codes, frequencies
            blob, record = forms.quantized(floats, quantize, list(weight_names(model)), feeds, *coding)
            blob = finish(blob)
        else:
            judge = budget.Judge(finish, getattr(model, "task", None), cases, expected, targets)
            blob, record = budget.meet(floats, quantize, list(weight_names(model)), feeds, max_drop, judge)
    else:
        blob = finish(convert.convert(model, program, converted, tuple(names.values()), quantize))
    report = {
        "out": str(out),
        "bytes": len(blob),
        "quantize": quantize,
        "target": target,
        "lengths": list(sizes),
        "any_length": any_length,
        "texts": len(cases),
        "texts_from": source,
        "cut": _cut(model.tokenizer, cases, sizes[-1]),
        **compare(blob, expected, kind, cases, targets),
        **record,
    }
    if min_agreement is None:
        min_agreement = MIN_AGREEMENT.get(quantize, 0.985)
    _judge(report, quantize, kind, min_agreement, getattr(model, "task", None))
    files.write_atomic(out, blob)
    return report | {"seconds": round(time.perf_counter() - started, 1)}


def _open(run: Any) -> tuple[Any, str]:
    """The model of a directory, or the model itself, and its name such as `bert/base`."""
    if not isinstance(run, str | os.PathLike):
        name = ""
    else:
        from kerasbert.checkpoints import read_model_json, source
        from kerasbert.tasks.load import load

        run = source.directory(run)
        name, run = read_model_json(run).name, load(run)
    if run.tokenizer is None:
        raise InputError(
            "the model has no tokenizer, and a phone gets text: put one into the model directory's tokenizer/"
        )
    return run, name


def _kind(model: Any) -> tuple[str, bool]:
    """What the numbers are, and whether an input is a pair."""
    task = getattr(model, "task", None) if hasattr(model, "encoder") else None
    return (task.kind, bool(task.text_b)) if task else ("embedding", False)


def _check_target(model: Any, target: str, kind: str, pair: bool) -> None:
    """Refuse what MediaPipe would open and compute wrongly."""
    if target != "mediapipe":
        return
    if kind == "regression" or pair:
        what = "a regression" if kind == "regression" else "pairs of texts"
        raise InputError(
            f"the model is for {what}, expected a classification or vectors of one text: MediaPipe has no other"
        )
    if getattr(model.tokenizer, "kind", "") != "wordpiece" or not model.tokenizer.lowercase:
        raise InputError(
            "the model's tokenizer is not an uncased WordPiece, which is what MediaPipe applies to every BERT: it would "
            "see other ids. Compress without --target, for kerasbert.mobile.runtime"
        )


def _program(model: Any, kind: str, names: dict[str, str], output: str) -> Any:
    """The function that is converted: the model's own `call`, the last layer for [CLS] only, and probabilities."""
    from keras import ops

    def program(batch: dict) -> dict:
        inputs = {ours: batch[theirs] for ours, theirs in names.items()}
        if kind == "embedding":
            encoder = getattr(model, "encoder", model)
            mask = ops.expand_dims(ops.cast(inputs["padding_mask"], "float32"), -1)
            values = ops.sum(encoder(inputs)["sequence"] * mask, axis=1) / ops.sum(mask, axis=1)
        elif kind == "regression":
            values = ops.expand_dims(model(inputs, read="first")["value"], -1)
        else:
            values = ops.softmax(model(inputs, read="first")["logits"])
        return {output: values}

    return program


def reference(model: Any, kind: str, texts: Texts, length: int) -> np.ndarray:
    """What the Keras model says: float32 [texts, outputs], in the meaning of the file's output."""
    from kerasbert.tasks import predict
    from kerasbert.tasks.label import softmax

    if kind == "embedding":
        return predict.encode(model, texts, pooling="mean", length=length)
    values = predict.outputs(model, texts, length)
    return softmax(values) if kind == "classification" else values.reshape(-1, 1)


def compare(blob: bytes, expected: np.ndarray, kind: str, texts: Texts, targets: np.ndarray | None) -> dict[str, Any]:
    """Run a finished file by the phone's own runtime on texts of which the Keras model said `expected`.

    Returns:
        agreement (share of equal labels, correlation or mean cosine), max_difference and mean_difference of the
        outputs, and accuracy {"keras", "tflite"} where `targets` of a classification are given.
    """
    received = run(blob, texts)
    difference = np.abs(received - expected)
    result = {"agreement": float(_agreement(kind, expected, received))}
    result |= {"max_difference": float(difference.max()), "mean_difference": float(difference.mean())}
    if targets is not None and kind == "classification":
        accuracy = {"keras": expected, "tflite": received}
        result["accuracy"] = {who: float((rows.argmax(-1) == targets).mean()) for who, rows in accuracy.items()}
    return result


def _cut(tokenizer: Any, texts: Texts, length: int) -> int:
    """How many texts have more tokens than a file takes."""
    parts = (text if isinstance(text, tuple) else (text,) for text in texts)
    return sum(len(tokenizer.pack(*some)[0]) > length for some in parts)


def run(blob: bytes, texts: Texts) -> np.ndarray:
    """Answers of a finished file: float32 [texts, outputs]."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "model.tflite"
        path.write_bytes(blob)
        return load_runtime(path, cache=False).outputs(texts)


def _agreement(kind: str, expected: np.ndarray, received: np.ndarray) -> float:
    if not np.isfinite(received).all():
        return 0.0
    if kind == "classification":
        return (expected.argmax(-1) == received.argmax(-1)).mean()
    if kind == "regression":
        if expected.std() == 0 or received.std() == 0:
            return float(np.allclose(expected, received, atol=1e-2))
        return np.corrcoef(expected[:, 0], received[:, 0])[0, 1]
    norms = np.linalg.norm(expected, axis=-1) * np.linalg.norm(received, axis=-1)
    return ((expected * received).sum(-1) / np.maximum(norms, 1e-12)).mean()


def _judge(report: dict[str, Any], quantize: str, kind: str, min_agreement: float, task: Any) -> None:
    """Raise unless the file says what the model says."""
    limit = FLOAT_TOLERANCE.get(quantize)
    if limit is not None and task is not None:
        limit = task.rounding(limit)
    if limit is not None and not report["max_difference"] <= limit:
        raise InputError(
            f"the {quantize} file differs from the Keras model by {report['max_difference']:.2g} on {report['texts']} "
            f"texts, expected at most {limit:g}. Nothing was written; please report the model"
        )
    if limit is None and not report["agreement"] >= min_agreement:
        what = {"classification": "labels", "regression": "correlation", "embedding": "cosine"}[kind]
        raise InputError(
            f"the {quantize} file agrees with the Keras model on {report['agreement']:.4f} ({what}, {report['texts']} texts), "
            f"expected at least {min_agreement:g}. Nothing was written: give texts like the real ones (--data), use "
            "--quantize fp16, or lower --min-agreement"
        )


def _cases(
    model: Any, pair: bool, texts: Texts | None, data: str | os.PathLike | None
) -> tuple[list, np.ndarray | None, str]:
    """The texts to compare on, their targets or None, and where they come from."""
    if texts is not None and data is not None:
        raise InputError("texts and data are both given, expected one of them")
    if data is not None:
        task = getattr(model, "task", None)
        if task is None:
            raise InputError(f"the model has no task to read {data} with: give texts instead")
        rows, told = measured(task, data, run=getattr(model, "directory", None))
        return list(rows.texts), rows.targets, told
    if texts is not None:
        if isinstance(texts, str | bytes) or not len(texts):
            raise InputError("texts is empty or one string, expected a list of texts")
        return list(texts), None, "texts"
    return generated(model.tokenizer, GENERATED, pair), None, "generated from the vocabulary"


def _calibration(model: Any, pair: bool, quantize: str, given: Any, size: int | None) -> list:
    """The texts that ranges are taken from; none where nothing is calibrated."""
    if quantize not in forms.CALIBRATED:
        if given is not None or size is not None:
            names = " and ".join(forms.CALIBRATED)
            raise InputError(f"calibration is given with {quantize}, expected with {names}: leave it out")
        return []
    if given is None:
        raise InputError(
            f"{quantize} needs calibration: real texts, a file with one a line (a tab within a pair) or the task's data"
        )
    return ranges.choose(ranges.read(given, getattr(model, "task", None), pair), size)


def _frequencies(model: Any, pair: bool, given: Any, size: int | None) -> np.ndarray | None:
    """How often the pieces occur in real texts: float [V], None without texts."""
    if given is None:
        if size is not None:
            raise InputError("calibration_size is given without calibration, expected both: which texts?")
        return None
    counted = ranges.choose(ranges.read(given, getattr(model, "task", None), pair), size, most=None)
    return product.frequencies(model.tokenizer, counted)


def _tokenizer_files(tokenizer: Any) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as directory:
        tokenizer.save(directory)
        return {path.name: path.read_bytes() for path in sorted(Path(directory).iterdir())}


def _versions() -> dict[str, str]:
    import keras
    import tensorflow as tf

    return {"kerasbert": __version__, "tensorflow": tf.__version__, "keras": keras.__version__}

"""`compress`: a model directory -> a .tflite that was run and compared with the Keras model before it is put in place."""

import dataclasses
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert import __version__, inputs, registry
from kerasbert.errors import InputError, unknown
from kerasbert.export.bundle import Bundle, Reads, Signature
from kerasbert.layers.naming import names as weight_names
from kerasbert.mobile import samples
from kerasbert.mobile.pipeline import comparison
from kerasbert.mobile.pipeline.comparison import Texts, reference
from kerasbert.mobile.quantize import aware_training, budget, forms, ranges
from kerasbert.mobile.quantize.schemes import LITERT, SCHEMES
from kerasbert.mobile.tflite import buckets, convert, metadata, product
from kerasbert.storage import files
from kerasbert.tasks import predict
from kerasbert.tasks.base import kind_of
from kerasbert.training.runs import data_of
from kerasbert.training.splits import measured, training_texts

TARGETS = ("kerasbert", "mediapipe")
ANY_LENGTH = "any_length"
GENERATED = 200


def compress(
    run: Any,
    quantize: str = "dynamic_int8",
    out: str | os.PathLike = "model.tflite",
    *,
    target: str | None = None,
    length: int | None = None,
    lengths: Sequence[int] | str | None = None,
    min_agreement: float | None = None,
    texts: Texts | os.PathLike | None = None,
    data: str | os.PathLike | None = None,
    calibration: Texts | str | os.PathLike | None = None,
    calibration_size: int | None = None,
    embedding_codes: int | None = None,
    max_drop: float | None = None,
    recipe: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a .tflite with everything in it that turns text into answers.

    It is compared with the model at the model's own length, as the reader of `target` will feed it: texts that lose their
    end count, and for MediaPipe what its tokenizer makes of accents and of capitals.

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
        length: int, tokens of the longest text, [CLS] and [SEP] included; longer texts lose their end. By default what the
            task was trained with, else 128 at most.
        lengths: the buckets; by default those of `buckets.LENGTHS` up to `length`. "any": one signature that takes every length
            up to `length`, for the least memory.
        min_agreement: float, the share of texts that must get the same label from the int8 file as from the Keras
            model (for regression: the correlation; for vectors: the mean cosine). By default 0.985, and 0.95 for static_int8
            and full_int8.
        texts: what the two are compared on, list of str or of pairs, or a Path of a file with one a line (a tab within a
            pair); by default texts made of the vocabulary, which is a weaker test.
        data: in the place of `texts` rows in the task's format, as `evaluate` takes them, whose labels give the accuracies
            too.
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
        report: dict of out, bytes, quantize, target, lengths, any_length (whether all below too), model_length (what the
            model reads), texts, cut (how many of them are longer than the longest length and lose their end), agreement,
            max_difference, mean_difference, seconds, and accuracy of both where the data has labels. For mediapipe
            other_ids (how many texts get other ids from it). For static_int8 and full_int8 float_operators and dynamic
            (`quantize.forms`), with max_drop budget (`quantize.budget`).

    Raises:
        InputError: the file exists, the model cannot be converted, or the file disagrees with the model; in each case
            nothing is written.
    """
    started = time.perf_counter()
    out, quantize, target = Path(out), convert.quantization(quantize), target or "kerasbert"
    scheme = SCHEMES[quantize]
    if target not in TARGETS:
        raise unknown("target", target, TARGETS, ", ".join(TARGETS))
    if out.is_dir() or (out.exists() and not overwrite):
        raise InputError(f"{out} exists already. Choose another --out or pass --overwrite")
    model, name = _open(run)
    kind, pair = kind_of(model), _pair(model)
    any_length = lengths == buckets.ANY
    trained = getattr(getattr(model, "task", None), "length", None)
    sizes = buckets.choose(predict.positions(model), target, length, lengths, trained)
    _check_target(model, target)

    def known() -> list | None:
        """The training texts of the run; its files are hashed, so asked for only where they are needed."""
        return training_texts(run, getattr(model, "task", None)) if isinstance(run, str | os.PathLike) else None

    if max_drop is not None and texts is None and data is None:
        data = data_of(run) if isinstance(run, str | os.PathLike) else None
    cases, targets, source = _cases(model, pair, texts, data or None, sizes[-1])
    learned = None  # ranges of activations, where the model was trained with them
    if scheme.activations == "static" and calibration is None and isinstance(run, str | os.PathLike):
        learned = aware_training.read_ranges(run)
    if scheme.calibrated and calibration is None and not learned:
        calibration = known()
    frequencies = None
    if embedding_codes is not None:
        if "table" not in scheme.kinds or max_drop is not None:
            other = quantize if max_drop is None else "max_drop"
            known = " or ".join(name for name, scheme in SCHEMES.items() if "table" in scheme.kinds)
            raise InputError(f"embedding_codes is given with {other}, expected with {known} alone")
        given = known() if calibration is None else calibration
        frequencies = _frequencies(model, pair, given, calibration_size)
    counts_alone = embedding_codes is not None  # then calibration is for the pieces, not for ranges
    drawn = [] if learned or counts_alone else _calibration(model, pair, quantize, calibration, calibration_size)
    if max_drop is not None:
        budget.check(quantize, max_drop, targets)
        if learned:
            raise InputError(f"max_drop and ranges that were learned ({aware_training.FILE}): give --calibration")

    only = ANY_LENGTH if any_length else "serving_default" if target == "mediapipe" else None
    signatures = {size: only or f"length_{size}" for size in sizes}
    begun = about(
        model,
        signatures,
        any_length,
        target,
        model=name,
        quantization=quantize,
        litert=scheme.runtimes.get(LITERT, ""),
        recipe=dict(recipe or {}),
    )
    reads, function = inputs_of(begun), program(model, begun)
    converted = {None: ANY_LENGTH} if any_length else signatures
    own, reader = predict.longest(model), metadata.tokenizer(model.tokenizer) if target == "mediapipe" else None
    lost = comparison.reading(model.tokenizer, reader, cases, sizes[-1])
    expected = said = reference(model, cases, own)
    if any(lost.values()) or sizes[-1] > own:
        said = reference(model, cases, sizes[-1], reader)  # of what the file's reader makes of the texts
    compared = own
    if len(expected) != len(said):  # of long texts other rows are made
        expected, compared = said, sizes[-1]

    def finish(blob: bytes) -> bytes:
        if target == "mediapipe":
            described = (name or "kerasbert", "A BERT model, exported by kerasbert.")
            blob = metadata.attach(blob, begun.output(kind.answers.output), bool(begun.labels), *described)
        return blob + dataclasses.replace(begun, digest=hashlib.sha256(blob).hexdigest()).to_zip()

    def read(texts: Texts) -> tuple[Any, Any]:
        """Their rows, as the model and as the file's reader read them."""
        return comparison.encoded(model, texts, compared), comparison.encoded(model, texts, sizes[-1], reader)

    report: dict[str, Any] = {"out": str(out), "bytes": 0, "quantize": quantize, "target": target}
    report |= {"lengths": list(sizes), "any_length": any_length, "model_length": own}
    report |= {"texts": len(cases), "texts_from": source, **lost}
    judge = None
    if max_drop is not None:
        judging = finish, getattr(model, "task", None), cases, expected, targets, comparison.run, reader, read
        judge = budget.Judge(*judging)
        judge.check_reading(said, max_drop, comparison.losses(report))
    record: dict[str, Any] = {}
    if learned:
        with aware_training.static(
            model, learned
        ):  # which rounds its activations itself; the converter takes that over
            blob = convert.convert(model, function, converted, reads, "dynamic_int8")
        record, blob = forms.record(blob, quantize, list(weight_names(model))), finish(blob)
    elif not scheme.converter or max_drop is not None or embedding_codes is not None:
        floats = convert.named(model, function, converted, reads, "float32")
        feeds = forms.feeds(reader or model.tokenizer, drawn, begun)
        if judge is None:
            coding = embedding_codes, frequencies
            blob, record = forms.quantized(floats, quantize, list(weight_names(model)), feeds, *coding)
            blob = finish(blob)
        else:
            blob, record = budget.meet(floats, quantize, list(weight_names(model)), feeds, max_drop, judge)
    else:
        blob = finish(convert.convert(model, function, converted, reads, quantize))
    received = comparison.run(blob, cases, reader)
    task = getattr(model, "task", None)
    comparison.check_converted(quantize, received, said, kind.name, task)
    packed = read(cases) if targets is not None else (None, None)
    report |= {"bytes": len(blob)} | comparison.compare(expected, received, kind.name, targets, task, packed) | record
    if said is not expected or scheme.tolerance is None:
        comparison.check_agreement(report, kind.name, min_agreement)
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


def _pair(model: Any) -> bool:
    """Whether an input is a pair."""
    task = getattr(model, "task", None)
    return bool(task and task.pair)


def _check_target(model: Any, target: str) -> None:
    """Refuse what MediaPipe would open and compute wrongly."""
    if target != "mediapipe":
        return
    kind_of(model).check_target(target)
    if _pair(model):
        raise InputError(
            "the model is for pairs of texts, expected a classification or vectors of one text: MediaPipe has no other"
        )
    reads = [each.name for each in inputs.used(predict.declared(model), predict.settings_of(model))]
    if more := [name for name in reads if name not in metadata.INPUTS]:
        raise InputError(
            f"the model reads {', '.join(more)}, expected {', '.join(metadata.INPUTS)} alone: MediaPipe gives no other. "
            "Compress without --target, for kerasbert.mobile.runtime"
        )
    wrong = next(
        (label for label in getattr(model, "labels", None) or () if not label or set("\n\r\0") & set(label)), None
    )
    if wrong is not None:
        raise InputError(
            f"label {wrong!r} is empty or holds a line break or a null character, expected a line of text: MediaPipe reads "
            "labels from a file, one a line. Name the label otherwise"
        )
    if getattr(model.tokenizer, "kind", "") != "wordpiece" or not model.tokenizer.lowercase:
        raise InputError(
            "the model's tokenizer is not an uncased WordPiece, which comes nearest to what MediaPipe applies to every BERT: "
            "it would see other ids. Compress without --target, for kerasbert.mobile.runtime"
        )


def about(
    built: Any, signatures: Mapping[int, str], any_length: bool = False, target: str = TARGETS[0], **said: Any
) -> Bundle:
    """The bundle of a file to be, all but its digest.

    Args:
        built: the model.
        signatures: length -> name. said: further fields of the Bundle.
    Raises:
        InputError: an input that a phone cannot fill, or a maker that is not registered.
    """
    kind, task = kind_of(built).answers, getattr(built, "task", None)
    numbers, reads = predict.settings_of(built), []
    for each in inputs.used(predict.declared(built), numbers):
        theirs = metadata.INPUTS[each.name] if target == "mediapipe" else each.name
        choices = dict(each.choices(built.tokenizer) or {}) if each.choices else {}
        default = task.settings[each.setting] if each.filled_by == "setting" else ""
        # what is padded is masked: 0 as ever, and so the same files
        pad = 0 if each.pad == inputs.PAD else int(each.pad)
        filled = (each.filled_by, each.setting, choices, default)
        reads.append(Reads(each.name, theirs, each.axes, each.dtype, pad, *filled))
        reads[-1].declared()
    makers = [each.make for each in inputs.used(predict.declared(built), numbers) if each.filled_by == "maker"]
    plugins = (registry.plugin_of(brought) for brought in (kind, *makers))
    answering = (
        Signature("answer", name, {"S": length}, {kind.output: kind.output}) for length, name in signatures.items()
    )
    return Bundle(
        kind=kind.name,
        tokenizer=_tokenizer_files(built.tokenizer),
        signatures=tuple(answering),
        inputs=tuple(reads),
        any_length=any_length,
        labels=tuple(built.labels or ()) if kind.labelled else (),
        pair=_pair(built),
        target=target,
        versions=_versions(),
        plugin=next((plugin for plugin in plugins if plugin), {}),
        **said,
    )


def inputs_of(bundle: Bundle) -> list[inputs.Input]:
    """What a file's signatures read, by their names."""
    return [dataclasses.replace(each.declared(), name=each.signature) for each in bundle.inputs]


def program(model: Any, bundle: Bundle) -> Callable[[dict], dict]:
    """The function that is converted: the model's own `call`, with what its kind answers from it."""
    kind = kind_of(model)
    answering = model if getattr(model, "task", None) is not None else getattr(model, "encoder", model)
    names, output = {each.name: each.signature for each in bundle.inputs}, bundle.output(kind.answers.output)

    def call(batch: dict) -> dict:
        read = {ours: batch[theirs] for ours, theirs in names.items()}
        return {output: kind.device(answering(read), read)}

    return call


def _cases(
    model: Any, pair: bool, texts: Texts | os.PathLike | None, data: str | os.PathLike | None, length: int
) -> tuple[list, np.ndarray | None, str]:
    """The texts to compare on, their targets or None, and where they come from; texts that nobody gave fit in `length`."""
    if texts is not None and data is not None:
        raise InputError("texts and data are both given, expected one of them")
    if data is not None:
        task = getattr(model, "task", None)
        if task is None:
            raise InputError(f"the model has no task to read {data} with: give texts instead")
        rows, told = measured(task, data, run=getattr(model, "directory", None))
        return list(rows.texts), rows.targets, told
    if isinstance(texts, os.PathLike):
        return samples.read(texts, pair), None, Path(texts).name
    if texts is not None:
        if isinstance(texts, str | bytes) or not len(texts):
            raise InputError("texts is empty or one string, expected a list of texts")
        return list(texts), None, "texts"
    return samples.generated(model.tokenizer, GENERATED, pair, longest=length), None, comparison.MADE


def _calibration(model: Any, pair: bool, quantize: str, given: Any, size: int | None) -> list:
    """The texts that ranges are taken from; none where nothing is calibrated."""
    if not SCHEMES[quantize].calibrated:
        if given is not None or size is not None:
            names = " and ".join(name for name, scheme in SCHEMES.items() if scheme.calibrated)
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

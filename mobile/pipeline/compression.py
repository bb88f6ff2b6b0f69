"""`compress`: a model directory -> a .tflite that was run and compared with the Keras model before it is put in place."""

import dataclasses
import functools
import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert import inputs
from kerasbert.errors import InputError, unknown
from kerasbert.export.bundle import Bundle
from kerasbert.layers.naming import names as weight_names
from kerasbert.layers.recurrent import Recurrent
from kerasbert.mobile import mediapipe, targets
from kerasbert.mobile.generation.compression import compress as compress_writer
from kerasbert.mobile.golden import written
from kerasbert.mobile.pipeline import comparison
from kerasbert.mobile.pipeline.comparison import reference
from kerasbert.mobile.quantize import aware_training, budget, forms
from kerasbert.mobile.quantize.calibration import real_texts
from kerasbert.mobile.quantize.schemes import LITERT, SCHEMES
from kerasbert.mobile.subject import Texts, about, cases_of, is_pair, opened, token_lengths
from kerasbert.mobile.tflite import buckets, convert
from kerasbert.tasks import predict
from kerasbert.tasks.base import kind_of
from kerasbert.training.runs import data_of

ANY_LENGTH = "any_length"


def compress(
    run: Any,
    quantize: str = "dynamic_int8",
    out: str | os.PathLike = "model.tflite",
    *,
    task: str | None = None,
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
    golden: str | os.PathLike | None = None,
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
        task: what a pretrained model answers without fine-tuning: "fill-mask".
        target: "kerasbert" (default: buckets of several lengths for `kerasbert.mobile.runtime`) or "mediapipe" (one
            length, for MediaPipe's TextClassifier and TextEmbedder) or "task_library" (likewise, for the Task Library's
            BertNLClassifier, TextEmbedder and BertQuestionAnswerer, which reads 384 tokens); our runtime reads these too.
        length: int, tokens of the longest text, [CLS] and [SEP] included; longer texts are truncated. By default what the
            task was trained with, else 128 at most.
        lengths: the buckets; by default those that suit the rows that it was trained with, or 100 `texts` or more, and where
            nothing is known of them those of `buckets.LENGTHS`. "any": one signature that takes every length
            up to `length`, for the least memory.
        min_agreement: float, the share of texts that must get the same label from the int8 file as from the Keras
            model (for regression: the correlation; for vectors: the mean cosine; of a model that writes the share of equal
            next tokens along its own greedy answers). By default 0.985, and 0.95 for static_int8
            and full_int8.
        texts: what the two are compared on, list of str or of pairs, or a Path of a file with one a line (a tab within a
            pair); by default texts made of the vocabulary, which is a weaker test.
        data: in the place of `texts` rows in the task's format, as `evaluate` takes them, whose labels give the accuracies
            too.
        calibration: real texts that static_int8 and full_int8 take the ranges of activations from: a list, a file with
            one text a line (a tab within a pair) or a .tsv, .csv or .jsonl of the task; by default what the run was
            trained on, if it still lies there.
        calibration_size: int, how many of them; by default 200, or all if there are fewer.
        embedding_codes: int, bytes that a row of a large embedding table takes, by product quantization (`quantize.product`):
            a quarter of its width makes it a quarter of int8's size. With dynamic_int8 and int8_embeddings. The pieces of
            `calibration`, here all of it, come out best; without it all count alike.
        max_drop: float, points (hundredths) of the task's metric that the file may lose on `data` (by default the run's dev
            rows): the weights that cost most stay float until it loses no more.
        recipe: how the model was made, json without paths; travels in the file.
        golden: path of a second file, with texts, ids, outputs and answers by which an app checks itself (`mobile.golden`).
        overwrite: bool, replace existing files.

    A model that writes becomes a file of several programs (`mobile.generation`); of a decoder alone `length` is of the prompt
    and what is written together.

    Returns:
        report: dict of out, bytes, quantize, target, lengths, any_length (whether all below too), model_length (what the
            model reads), texts, cut (how many of them are longer than the longest length and are truncated), agreement,
            max_difference, mean_difference, seconds, accuracy and metrics of both where the data has labels. For other readers
            other_ids (how many texts get other ids from them) and windows (how many take more rows than the one they read). For
            static_int8 and full_int8 float_operators and dynamic (`quantize.forms`), with max_drop budget (`quantize.budget`).

    Raises:
        InputError: the file exists, the model cannot be converted, or the file disagrees with the model; in each case
            nothing is written.
    """
    started = time.perf_counter()
    out, quantize, target = Path(out), convert.quantization(quantize), target or "kerasbert"
    scheme = SCHEMES[quantize]
    if target not in targets.TARGETS:
        raise unknown("target", target, targets.TARGETS, ", ".join(targets.TARGETS))
    for option, path in (("out", out), ("golden", Path(golden) if golden is not None else None)):
        if path is not None and (path.is_dir() or (path.exists() and not overwrite)):
            raise InputError(f"{path} exists already. Choose another --{option} or pass --overwrite")
    model, name = opened(run, task)
    kind, pair = kind_of(model), is_pair(model)
    if kind.answers.reader != "answer":
        targets.check(model, target)
        refused = {"calibration": calibration, "calibration_size": calibration_size}
        refused |= {"embedding_codes": embedding_codes, "max_drop": max_drop}
        settings = {"length": length, "lengths": lengths, "min_agreement": min_agreement, "texts": texts, "data": data}
        settings["golden"] = golden
        return compress_writer(model, name, quantize, out, recipe=dict(recipe or {}), refused=refused, **settings)
    any_length = lengths == buckets.ANY
    if any_length and any(isinstance(layer, Recurrent) for layer in model._flatten_layers()):
        raise InputError(
            "lengths is 'any' and the model has recurrent layers, whose loop in a .tflite has as many places as it was converted "
            "with. Leave lengths out, or give numbers"
        )
    trained = getattr(getattr(model, "task", None), "length", None)
    targets.check(model, target)
    ours, length = target == targets.OURS, targets.length_of(model, target, length)

    rows: Any = data
    if max_drop is not None and texts is None and data is None:
        rows = data_of(run) if isinstance(run, str | os.PathLike) else None
    bounds = predict.positions(model), target, length, lengths, trained
    longest = buckets.choose(*bounds)[-1]
    cases, golds, source = cases_of(model, pair, texts, rows or None, longest)
    seen, told = token_lengths(run, model, cases, source, longest)
    sizes = buckets.choose(*bounds, seen)
    wanted = calibration, calibration_size, embedding_codes, max_drop
    learned, drawn, frequencies = real_texts(run, model, pair, quantize, *wanted)
    if max_drop is not None:
        budget.check(quantize, max_drop, golds)
        if learned:
            raise InputError(f"max_drop and ranges that were learned ({aware_training.FILE}): give --calibration")

    only = ANY_LENGTH if any_length else None if ours else "serving_default"
    signatures = {size: only or f"length_{size}" for size in sizes}
    begun = about(
        model,
        signatures,
        any_length,
        target,
        kind.reader_outputs(target),
        model=name,
        quantization=quantize,
        litert=scheme.runtimes.get(LITERT, ""),
        recipe=dict(recipe or {}),
    )
    converted: dict[int | None, str] = {None: ANY_LENGTH} if any_length else {**signatures}
    own, reader = predict.longest(model), None if ours else mediapipe.tokenizer(model.tokenizer)
    lost, expected, said, compared = _references(model, cases, own, sizes[-1], reader)

    def finish(blob: bytes) -> bytes:
        if not ours:
            described = (name or "kerasbert", "A text model, exported by kerasbert.")
            called = {begun.output(kind.answers.output): mediapipe.PROBABILITY} if begun.labels else {}
            words = mediapipe.reads_words(model.tokenizer)
            blob = mediapipe.attach(blob, called, bool(begun.labels), *described, words)
        return blob + dataclasses.replace(begun, digest=hashlib.sha256(blob).hexdigest()).to_zip()

    def read(texts: Texts) -> tuple[Any, Any]:
        """Their rows, as the model and as the file's reader read them."""
        return comparison.encoded(model, texts, compared), comparison.encoded(model, texts, sizes[-1], reader)

    report: dict[str, Any] = {"out": str(out), "bytes": 0, "quantize": quantize, "target": target}
    report |= {"lengths": list(sizes), "any_length": any_length, "model_length": own}
    report["lengths_from"] = told if buckets.depend_on_texts(target, lengths) else ""
    report |= {"texts": len(cases), "texts_from": source, **lost}
    judge, declared = None, getattr(model, "task", None)
    if max_drop is not None:
        judge = budget.Judge(finish, declared, cases, expected, golds, comparison.run, reader, read)
        judge.check_reading(said, max_drop, comparison.losses(report))
    feeds = functools.partial(forms.feeds, reader or model.tokenizer, drawn, begun)
    coding = embedding_codes, frequencies
    blob, record = _file(model, begun, converted, quantize, finish, learned, feeds, coding, judge, max_drop)
    received = comparison.run(blob, cases, reader)
    comparison.check_converted(quantize, received, said, kind.name, declared)
    compared_as = comparison.compare(expected, received, kind, golds, declared, read(cases))
    report |= {"bytes": len(blob)} | compared_as | record
    if said is not expected or scheme.tolerance is None:
        comparison.check_agreement(report, kind.name, min_agreement)
    report |= written(out, blob, golden, cases)
    return report | {"seconds": round(time.perf_counter() - started, 1)}


def _references(model: Any, cases: Texts, own: int, longest: int, reader: Any) -> tuple[dict[str, int], Any, Any, int]:
    """What the file's reader loses of the texts; what the model says of them, at its own length and as that reader reads them.

    Args:
        own, longest: int, tokens that the model and the file read.

    Returns:
        lost, expected, said, and the length that `expected` is of.
    """
    lost = comparison.reading(kind_of(model).answers, model.tokenizer, reader, cases, longest)
    expected = said = reference(model, cases, own)
    if any(lost.values()) or longest > own:
        said = reference(model, cases, longest, reader)
    if len(comparison.encoded(model, cases, longest, reader).rows) != len(
        cases
    ):  # windows: other rows at another length
        said = reference(model, cases, longest, reader)
        return lost, said, said, longest
    if len(expected) != len(said):
        return lost, said, said, longest
    return lost, expected, said, own


def _file(
    model: Any,
    begun: Bundle,
    signatures: dict[int | None, str],
    quantize: str,
    finish: Callable[[bytes], bytes],
    learned: Any,
    feeds: Callable[[], Any],
    coding: tuple[int | None, np.ndarray | None],
    judge: budget.Judge | None,
    max_drop: float | None,
) -> tuple[bytes, dict[str, Any]]:
    """The whole .tflite, and what the report says of how it was made."""
    reads, function, names = inputs_of(begun), program(model, begun), list(weight_names(model))
    if learned:
        with aware_training.static(model, learned):  # it rounds its activations itself; the converter takes that over
            blob = convert.convert(model, function, signatures, reads, "dynamic_int8")
        record = forms.record(blob, quantize, names)
        return finish(blob), record
    if SCHEMES[quantize].converter and max_drop is None and coding[0] is None:
        return finish(convert.convert(model, function, signatures, reads, quantize)), {}
    floats = convert.named(model, function, signatures, reads, "float32")
    if judge is not None and max_drop is not None:
        return budget.meet(floats, quantize, names, feeds(), max_drop, judge)
    blob, record = forms.quantized(floats, quantize, names, feeds(), *coding)
    return finish(blob), record


def inputs_of(bundle: Bundle) -> list[inputs.Input]:
    """What a file's signatures read, by their names."""
    return [dataclasses.replace(each.declared(), name=each.signature) for each in bundle.inputs]


def program(model: Any, bundle: Bundle) -> Callable[[dict], dict]:
    """The function that is converted: the model's own `call`, with what its kind answers from it."""
    kind = kind_of(model)
    answering = model if getattr(model, "task", None) is not None else getattr(model, "encoder", model)
    names, output = {each.name: each.signature for each in bundle.inputs}, bundle.output(kind.answers.output)
    columns = kind.reader_outputs(bundle.target)
    wanted = [each.name for each in inputs.used(predict.declared(model), predict.settings_of(model))]

    def call(batch: dict) -> dict:
        read = {ours: batch[theirs] for ours, theirs in names.items()}
        read |= mediapipe.completed(read, wanted, model.tokenizer)
        values = kind.device(answering(read), read)
        return {output: values} | {theirs: values[..., i] for i, theirs in enumerate(columns)}

    return call

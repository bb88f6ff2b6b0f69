"""A model that writes -> a .tflite whose steps were compared with the Keras model's before it is put in place."""

import dataclasses
import hashlib
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kerasbert.errors import InputError
from kerasbert.layers.naming import names as weight_names
from kerasbert.mobile.generation import agreement, programs, tables
from kerasbert.mobile.golden import written
from kerasbert.mobile.quantize import forms
from kerasbert.mobile.quantize.schemes import LITERT, SCHEMES
from kerasbert.mobile.runtime import load
from kerasbert.mobile.subject import Texts, about, cases_of, read_of_texts
from kerasbert.mobile.tflite import buckets, repack, weights
from kerasbert.tasks import predict
from kerasbert.tasks.base import kind_of

COMPARED = 50  # texts that are made where nobody gave any
SHORTEST = 3  # tokens of a source


def compress(
    model: Any,
    name: str,
    quantize: str,
    out: Path,
    *,
    length: int | None,
    lengths: Sequence[int] | str | None,
    min_agreement: float | None,
    texts: Texts | os.PathLike | None,
    data: str | os.PathLike | None,
    recipe: dict[str, Any],
    refused: Mapping[str, Any],
    golden: str | os.PathLike | None = None,
) -> dict[str, Any]:
    """What `pipeline.compression.compress` does for a model that writes.

    Args:
        model: TaskModel. name: str, such as "t5/small".
        length: int, tokens of the longest source; of a decoder alone of the longest row. lengths: the buckets of the source.
        golden: as of `compress`.
        refused: arguments that such a file has no use for.

    Returns:
        report: agreement is the share of equal next tokens along the Keras model's own greedy answers, the differences are of
        the next token's probabilities.
    """
    started, scheme = time.perf_counter(), SCHEMES[quantize]
    for argument, value in refused.items():
        if value is not None:
            raise InputError(f"{argument} is given and the model writes texts, whose files take none: leave it out")
    if scheme.calibrated or scheme.make:
        raise InputError(
            f"quantize is {quantize!r} and the model writes texts, expected float32, fp16, dynamic_int8 or int8_embeddings"
        )
    if isinstance(lengths, str):
        raise InputError(f"lengths is {lengths!r} and the model writes texts, expected numbers of tokens of the source")
    kind: Any = kind_of(model).answers
    if kind.decoding.coverage_penalty:
        raise InputError(
            f"coverage_penalty is {kind.decoding.coverage_penalty}, expected 0: the steps of a .tflite do not say what they "
            "attend to"
        )
    row = buckets.choose(predict.positions(model), "mediapipe", length, None, model.task.length)[0]
    if length is None and lengths:
        row = max(lengths)
    sources, places = _sizes(kind, row, lengths)
    found = programs.programs(model.body, kind.reader, read_of_texts(model), sources, places)
    cases, _, source = cases_of(model, False, texts, data, sources[-1], COMPARED)
    begun = about(
        model,
        [each.signature for each in found],
        model=name,
        quantization=quantize,
        litert=scheme.runtimes.get(LITERT, ""),
        recipe=recipe,
    )
    blob = made(model, found, quantize)
    blob += dataclasses.replace(begun, digest=hashlib.sha256(blob).hexdigest()).to_zip()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "model.tflite"
        path.write_bytes(blob)
        compared = agreement.compare(model, load(path, cache=False), cases)
    agreement.check(quantize, compared, len(cases), min_agreement)
    about_golden = written(out, blob, golden, cases)
    longest = predict.longest(model) - (0 if kind.reader == "encode" else kind.target_length)
    report = {"out": str(out), "bytes": len(blob), "quantize": quantize, "target": "kerasbert", "any_length": False}
    report |= {"lengths": list(sources), "lengths_from": "", "places": list(places), "model_length": longest}
    report |= {"texts": len(cases), "texts_from": source, **compared, **about_golden}
    return report | {"seconds": round(time.perf_counter() - started, 1)}


def _sizes(kind: Any, row: int, lengths: Sequence[int] | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The buckets of what reads and of the steps."""
    places = kind.target_length if kind.reader == "encode" else row
    longest = row if kind.reader == "encode" else row - kind.target_length
    if longest < SHORTEST:
        raise InputError(
            f"length is {row}, of which what is written takes {kind.target_length}: expected at least {SHORTEST} more (--length)"
        )
    read = tuple(sorted({size for size in lengths or () if size < longest} | {longest}))
    return read if lengths else programs.doubling(longest), programs.doubling(places)


def made(model: Any, found: Sequence[programs.Program], quantize: str) -> bytes:
    """The flatbuffer of these programs in a form of `--quantize`, each matrix once."""
    whole = tables.shared(repack.read(programs.converted(model, found)))
    if SCHEMES[quantize].weights == "float16":
        whole = tables.half(whole)
    elif SCHEMES[quantize].kinds:
        names = list(weight_names(model))
        whole = weights.lower(whole, forms.plan(quantize, weights.find(whole, names)))
    return repack.slim(repack.write(whole))

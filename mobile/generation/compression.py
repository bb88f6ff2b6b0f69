"""A model that writes -> a .tflite whose steps were compared with the Keras model's before it is put in place."""

import dataclasses
import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kerasbert.errors import InputError
from kerasbert.layers.naming import names as weight_names
from kerasbert.storage import scratch
from kerasbert.storage.json_view import Json
from kerasbert.tasks import predict
from kerasbert.tasks.base import kind_of
from ..golden import written
from ..model_and_texts import MADE, about, cases_of, made_up, missing, read_of_texts
from ..options import CompressConfig
from ..quantize import forms
from ..quantize.schemes import LITERT, SCHEMES
from ..runtime import load
from ..tflite import buckets, repack, weights
from . import agreement, programs, tables

if TYPE_CHECKING:
    import keras

    from kerasbert.answers.base import Text
    from kerasbert.answers.generation import GenerationKind


COMPARED = 50  # texts that are made where nobody gave any
SHORTEST = 3  # tokens of a source
UNUSED = ("calibration", "calibration_size", "embedding_codes", "max_drop")  # options


def compress(model: "keras.Model", name: str, quantize: str, out: Path, config: CompressConfig) -> Json:
    """What `pipeline.compression.compress` does for a model that writes.

    Args:
        model: TaskModel. name: str, such as "t5/small".
        config: its `length` is of the longest source, of a decoder alone of the longest row; `lengths` are of the source.

    Returns:
        report: agreement is the share of equal next tokens along the Keras model's own greedy answers, the differences are of
        the next token's probabilities.
    """
    started = time.perf_counter()
    kind = cast("GenerationKind", kind_of(model).answers)
    _check(kind, quantize, config)
    lengths = None if isinstance(config.lengths, str) else config.lengths  # `_check` refuses a word
    sources, places = _sizes(kind, _row(model, config.length, lengths), lengths)
    found = programs.programs(model.network, kind.reader, read_of_texts(model), sources, places)
    run = getattr(model, "directory", None)
    cases, _, source = cases_of(model, False, config.texts, config.data, sources[-1], COMPARED, run)
    blob = _file(model, name, quantize, found, config)
    compared, took = _compared(model, blob, cases, ties=SCHEMES[quantize].tolerance is None)
    longest = predict.longest(model) - (0 if kind.reader == "encode" else kind.target_length)
    report: Json = {"out": str(out), "kind": kind.name, "bytes": len(blob), "quantize": quantize}
    report |= {"target": "kerasbert", "any_length": False}
    report |= {"lengths": list(sources), "lengths_from": "", "places": list(places), "model_length": longest}
    report |= {"texts": len(cases), "texts_from": source, **compared, "judged_seconds": took}
    report |= {"unlabelled": missing(run) if source == MADE else ""}
    agreement.check(report, config.min_agreement)
    given = config.texts is not None or config.data is not None
    known = cases if given else made_up(model, False, sources[-1], COMPARED)
    report |= written(out, blob, config.golden, known, config.overwrite)
    return report | {"seconds": round(time.perf_counter() - started, 1)}


def _check(kind: "GenerationKind", quantize: str, config: CompressConfig) -> None:
    """Refuse what files of models that write have no use for."""
    for argument in UNUSED:
        if getattr(config, argument) is not None:
            raise InputError(f"{argument} is given and the model writes texts, whose files take none: leave it out")
    if SCHEMES[quantize].calibrated or SCHEMES[quantize].make:
        raise InputError(
            f"quantize is {quantize!r} and the model writes texts, expected float32, fp16, dynamic_int8 or int8_embeddings"
        )
    if isinstance(config.lengths, str):
        raise InputError(
            f"lengths is {config.lengths!r} and the model writes texts, expected numbers of tokens of the source"
        )
    if kind.decoding.coverage_penalty:
        raise InputError(
            f"coverage_penalty is {kind.decoding.coverage_penalty}, expected 0: the steps of a .tflite do not say what they "
            "attend to"
        )


def _row(model: "keras.Model", length: int | None, lengths: Sequence[int] | None) -> int:
    """Tokens of the longest source; of a decoder alone of the longest row."""
    row = buckets.choose(predict.positions(model), "mediapipe", length, None, model.task.length)[0]
    return max(lengths) if length is None and lengths else row


def _file(
    model: "keras.Model", name: str, quantize: str, found: Sequence[programs.Program], config: CompressConfig
) -> bytes:
    """The whole .tflite of these programs."""
    said = {"model": name, "quantization": quantize, "recipe": dict(config.recipe or {})}
    said["litert"] = SCHEMES[quantize].runtimes.get(LITERT, "")
    bundle = about(model, [each.signature for each in found], **said)
    blob = made(model, found, quantize)
    return blob + dataclasses.replace(bundle, digest=hashlib.sha256(blob).hexdigest()).to_zip()


def _compared(model: "keras.Model", blob: bytes, cases: Sequence["Text"], ties: bool) -> tuple[Json, float]:
    """What the file says beside its model (`agreement.compare`), and the seconds that it took to say it."""
    with scratch.folder() as directory:
        path = Path(directory) / "model.tflite"
        path.write_bytes(blob)
        started = time.perf_counter()
        compared = agreement.compare(model, load(path, cache=False), cases, ties=ties)
    return compared, round(time.perf_counter() - started, 1)


def _sizes(kind: "GenerationKind", row: int, lengths: Sequence[int] | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The buckets of what reads and of the steps."""
    places = kind.target_length if kind.reader == "encode" else row
    longest = row if kind.reader == "encode" else row - kind.target_length
    if longest < SHORTEST:
        raise InputError(
            f"length is {row}, of which what is written takes {kind.target_length}: expected at least {SHORTEST} more (--length)"
        )
    read = tuple(sorted({size for size in lengths or () if size < longest} | {longest}))
    return read if lengths else programs.doubling(longest), programs.doubling(places)


def made(model: "keras.Model", found: Sequence[programs.Program], quantize: str) -> bytes:
    """The flatbuffer of these programs in a form of `--quantize`, each matrix once."""
    whole = tables.shared(repack.read(programs.converted(model, found)))
    if SCHEMES[quantize].weights == "float16":
        whole = tables.half(whole)
    elif SCHEMES[quantize].kinds:
        names = list(weight_names(model))
        whole = weights.lower(whole, forms.plan(quantize, weights.find(whole, names)))
    return repack.slim(repack.write(whole))

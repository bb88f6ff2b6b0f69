"""`compress`: a model directory -> a .tflite that was run and compared with the Keras model before it is put in place."""

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import keras
import numpy as np

from kerasbert.errors import InputError, unknown
from kerasbert.layers.recurrent import Recurrent
from kerasbert.options import configured
from kerasbert.storage import places
from kerasbert.storage.json_view import Json
from kerasbert.tasks import predict
from kerasbert.tasks.base import kind_of
from kerasbert.tasks.batches import Encoded
from kerasbert.tasks.prompts import tell_prompt
from .. import targets
from ..generation.compression import compress as compress_writer
from ..golden import written
from ..judging import comparison, verdict
from ..model_and_texts import MADE, Targets, cases_of, check_places, is_pair, made_up, missing, opened, token_lengths
from ..options import CompressConfig
from ..quantize import aware_training, budget
from ..quantize.calibration import real_texts
from ..quantize.schemes import SCHEMES
from ..tflite import buckets, convert
from .conversion import Design, design, made

if TYPE_CHECKING:
    import keras


@configured(CompressConfig)
def compress(
    run: str | os.PathLike | keras.Model,
    quantize: str = "dynamic_int8",
    out: str | os.PathLike = "model.tflite",
    *,
    config: CompressConfig,
) -> Json:
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
        {options}

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
    out, quantize = Path(out), convert.quantization(quantize)
    _check_places(run, out, config)
    model, name = _opened(run, config)
    if kind_of(model).answers.reader != "answer":
        targets.check(model, config.target or targets.OURS)
        return compress_writer(model, name, quantize, out, config)
    config = _settled(model, config)
    cases = _cases(run, model, config)
    wanted = config.calibration, config.calibration_size, config.embedding_codes, config.max_drop
    real = real_texts(run, model, is_pair(model), quantize, *wanted)
    _check_budget(quantize, config, cases, learned=real[0])

    file = design(model, name, quantize, cases.sizes, config)
    references = _references(file, cases)
    report = _first_lines(out, file, cases) | references.lost
    allowed = _allowed(file, cases, references, config, comparison.losses(report))
    blob, record = made(file, *real, config.embedding_codes, allowed)
    judging = time.perf_counter()
    compared = _compared(blob, file, cases, references)
    report |= {"bytes": len(blob)} | compared | record
    report["judged_seconds"] = round(references.seconds + time.perf_counter() - judging, 1)
    report["unlabelled"] = missing(_directory(run)) if cases.source == MADE else ""
    if references.differ or SCHEMES[quantize].tolerance is None:
        verdict.check(report, getattr(model, "task", None), config.min_agreement, config.max_drop)
    given = config.texts is not None or config.data is not None
    known = cases.texts if given else made_up(model, is_pair(model), cases.sizes[-1])  # no row leaves unasked
    report |= written(out, blob, config.golden, known, config.overwrite)
    return report | {"seconds": round(time.perf_counter() - started, 1)}


def _check_places(run: "str | os.PathLike | keras.Model", out: Path, config: CompressConfig) -> None:
    """Refuse a target that there is not, and places where something lies already."""
    if config.target and config.target not in targets.TARGETS:
        raise unknown("target", config.target, targets.TARGETS, ", ".join(targets.TARGETS))
    read = [
        each for each in (run, config.texts, config.data, config.calibration) if isinstance(each, str | os.PathLike)
    ]
    places.check_file(out, config.overwrite, "tflite", read)
    if config.golden is not None:
        if os.path.realpath(config.golden) == os.path.realpath(out):
            raise InputError(f"out and golden are both {out}, expected a place for each")
        places.check_file(Path(config.golden), config.overwrite, "golden", read)


def _opened(run: "str | os.PathLike | keras.Model", config: CompressConfig) -> tuple["keras.Model", str]:
    """The model, with the options of its task, and its name."""
    model, name = opened(run, config.task)
    if config.options:
        predict.check_task(model)
        model.task = model.task.answering(config.options)
    tell_prompt(model)
    return model, name


def _settled(model: "keras.Model", config: CompressConfig) -> CompressConfig:
    """The options with what the model and the reader of its file say of target and length.

    Raises:
        InputError: the model has no such file.
    """
    target, fixed = config.target or targets.OURS, getattr(model, "fixed", None)
    if config.lengths == buckets.ANY:
        # of Keras' layers those of a model of one's own: a family of a plug-in says itself what it does
        kinds = Recurrent | keras.layers.RNN if hasattr(model, "taken") else Recurrent
        loops = any(isinstance(layer, kinds) for layer in model._flatten_layers())
        if loops or fixed:
            places = "recurrent layers, whose loop in a .tflite has as many places as it was converted with"
            reason = f"inputs of {fixed} tokens alone" if fixed else places
            raise InputError(f"lengths is 'any' and the model has {reason}. Leave lengths out, or give numbers")
    targets.check(model, target)
    if fixed and not config.lengths and target == targets.OURS:  # a shorter bucket would compute as much
        config = dataclasses.replace(config, lengths=(fixed,))
    return dataclasses.replace(config, target=target, length=targets.length_of(model, target, config.length))


def _directory(run: "str | os.PathLike | keras.Model") -> str | os.PathLike | None:
    """The directory whose run.json may tell of rows; None of a model that has none."""
    return run if isinstance(run, str | os.PathLike) else getattr(run, "directory", None)


@dataclasses.dataclass(frozen=True)
class Cases:
    """The texts that a file is compared on, and the lengths that suit them.

    Args:
        texts, targets, source: of `subject.cases_of`.
        sizes: tokens, of the file's buckets, ascending.
        told: what says how long texts are; "" where the buckets do not depend on that.
    """

    texts: list
    targets: Targets | None
    source: str
    sizes: tuple[int, ...]
    told: str


def _cases(run: "str | os.PathLike | keras.Model", model: "keras.Model", config: CompressConfig) -> Cases:
    target, trained = config.target or targets.OURS, getattr(getattr(model, "task", None), "length", None)
    bounds = predict.positions(model), target, config.length, config.lengths, trained
    longest, pair = buckets.choose(*bounds)[-1], is_pair(model)
    texts, golds, source = cases_of(model, pair, config.texts, config.data, longest, run=_directory(run))
    seen, told = token_lengths(run, model, texts, source, longest)
    told = told if buckets.depend_on_texts(target, config.lengths) else ""
    return Cases(texts, golds, source, buckets.choose(*bounds, seen), told)


def _check_budget(quantize: str, config: CompressConfig, cases: Cases, learned: dict[str, np.ndarray] | None) -> None:
    """Refuse a budget that cannot be measured, or that ranges leave no choice for."""
    if config.max_drop is None:
        return
    budget.check(quantize, cases.targets)
    if learned:
        raise InputError(f"max_drop and ranges that were learned ({aware_training.FILE}): give --calibration")


@dataclasses.dataclass(frozen=True)
class References:
    """What the Keras model says of the texts: at its own length, and as the file's reader reads them.

    Args:
        lost: what the reader loses of the texts, of `comparison.reading`.
        expected: at the model's length. said: as the reader reads them; the same object where that is no other.
        encode: texts -> their rows as either reads them.
        seconds: that it took.
    """

    lost: dict[str, int]
    expected: comparison.Outputs
    said: comparison.Outputs
    encode: Callable[[Sequence], tuple[Encoded, Encoded]]
    seconds: float

    @property
    def differ(self) -> bool:
        """Whether the file's reader reads the texts otherwise."""
        return self.said is not self.expected


def _references(file: Design, cases: Cases) -> References:
    started, (model, reader, texts) = time.perf_counter(), (file.model, file.reader, cases.texts)
    own, longest = predict.longest(model), cases.sizes[-1]
    lost = comparison.reading(kind_of(model).answers, model.tokenizer, reader, texts, longest)
    expected = said = comparison.reference(model, texts, own)
    rows = comparison.encoded(model, texts, longest, reader).rows
    check_places(kind_of(model).answers.inputs, rows)
    windows = len(rows) != len(texts)
    padded = _padded(file, cases)
    if any(lost.values()) or longest > own or windows or padded:
        said = comparison.reference(model, texts, longest, reader, padded)
    if windows or padded or len(expected) != len(said):  # other rows at another length
        expected, own = said, longest

    def encode(texts: Sequence) -> tuple[Encoded, Encoded]:
        return comparison.encoded(model, texts, own), comparison.encoded(model, texts, longest, reader)

    return References(lost, expected, said, encode, time.perf_counter() - started)


def _padded(file: Design, cases: Cases) -> Sequence[int]:
    """What the file pads rows to, where their numbers depend on it; else nothing."""
    if not getattr(getattr(file.model, "encoder", file.model), "padding_counts", False):
        return ()
    return range(1, cases.sizes[-1] + 1) if file.bundle.any_length else cases.sizes


def _first_lines(out: Path, file: Design, cases: Cases) -> Json:
    """The report's first lines: what the file is, and what it is compared on."""
    report: Json = {"out": str(out), "bytes": 0, "quantize": file.quantize, "target": file.bundle.target}
    report |= {"kind": kind_of(file.model).name, "lengths": list(cases.sizes), "any_length": file.bundle.any_length}
    report |= {"model_length": predict.longest(file.model), "lengths_from": cases.told}
    report["task"] = getattr(getattr(file.model, "task", None), "name", None)
    return report | {"texts": len(cases.texts), "texts_from": cases.source}


def _allowed(
    file: Design, cases: Cases, references: References, config: CompressConfig, losses: list[str]
) -> tuple[float, budget.Judge] | None:
    """The points that the file may lose, and who says what it loses; None where nobody asks."""
    if config.max_drop is None:
        return None
    task = file.model.task
    assert cases.targets is not None  # `budget.check` asked for them, and they are a task's
    rows = cases.texts, references.expected, cases.targets
    judge = budget.Judge(file.finished, task, *rows, comparison.run, file.reader, references.encode)
    judge.check_reading(references.said, config.max_drop, losses)
    return config.max_drop, judge


def _compared(blob: bytes, file: Design, cases: Cases, references: References) -> Json:
    """What the finished file says beside its model.

    Raises:
        InputError: a float file that computes something else.
    """
    kind, task, said = kind_of(file.model), getattr(file.model, "task", None), references.said
    received = comparison.run(blob, cases.texts, file.reader)
    comparison.check_converted(file.quantize, received, said, kind.name, task)
    read, fed = references.encode(cases.texts), said if references.differ else None
    rounded = SCHEMES[file.quantize].tolerance is None
    return verdict.compare(references.expected, received, kind, cases.targets, task, read, fed, ties=rounded)

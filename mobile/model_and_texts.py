"""What is compressed: the model of a directory, the texts that its file is compared on, what the file says of it."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert import __version__, inputs, registry
from kerasbert.data.texts import TEXT
from kerasbert.errors import InputError
from kerasbert.export.bundle import Bundle, Reads, Signature
from kerasbert.storage import scratch
from kerasbert.tasks import predict
from kerasbert.tasks.adapted_models import encoder_of, merged
from kerasbert.tasks.base import kind_of
from kerasbert.tasks.own_model import answering
from kerasbert.tasks.tables import Data
from kerasbert.tasks.task import Rows, answerable
from kerasbert.text import knowledge
from kerasbert.text.base import Tokenizer
from kerasbert.training.runs import TOKEN_LENGTHS, data_of, description_of
from kerasbert.training.splits import measured
from . import mediapipe, samples
from .options import Texts
from .samples import Sample

if TYPE_CHECKING:
    import keras

    from kerasbert.tasks.base import Task

Targets = np.ndarray | Sequence[object]  # of labelled texts, one for each
GENERATED = 200
ENOUGH = 100  # texts that tell how long others are
ROWS = 1000  # of a run's own, most that its file is judged by
TOKENS = 100_000  # of them together: a minute of a 6-layer model on one core, six of BERT-base
VOUCHING = 100  # labelled rows from which on their metric alone may say that a file is worth its model
MADE = "generated from the vocabulary"  # where texts come from that nobody gave


def opened(run: "str | os.PathLike | keras.Model", task: str | None = None) -> tuple["keras.Model", str]:
    """The model of a directory, or the model itself, and its name such as `bert/base`."""
    name = ""
    if isinstance(run, str | os.PathLike):
        from kerasbert.checkpoints import read_model_json, source
        from kerasbert.tasks.load import load

        if source.check(run) == "keras":
            run = load(run)
        else:
            run = source.directory(run)
            name, run = read_model_json(run).name, load(run, task)
    encoder_of(run)  # an ensemble has none
    run = answering(merged(run))
    predict.check_ours(run)
    if run.tokenizer is None:
        raise InputError(
            "the model has no tokenizer, and a phone gets text: put one into the model directory's tokenizer/"
        )
    return run, name


def is_pair(model: "keras.Model") -> bool:
    """Whether an input is a pair."""
    task = getattr(model, "task", None)
    return bool(task and task.pair)


def read_of_texts(built: "keras.Model") -> list[inputs.Input]:
    """What a model's programs on a phone read of texts; the number of a text in its call (axes "B") the runtime counts itself."""
    return [each for each in inputs.used(predict.declared(built), predict.settings_of(built)) if each.axes != "B"]


def check_places(declared: Sequence[inputs.Input], rows: Sequence[inputs.Row]) -> None:
    """Refuse rows with more places than the Input of their kind has room for in a file.

    Raises:
        InputError: what to declare.
    """
    for each in declared:
        most = max((len(row.values[each.name]) for row in rows), default=0) if each.axes == "BP" else 0
        if most > each.places:
            raise InputError(
                f"the kind fills {each.name} with {most} places a row, and its Input has room for {each.places}: declare it "
                f"with places={most}"
            )


def _reads(built: "keras.Model", declared: Iterable[inputs.Input], target: str, words: bool) -> tuple[Reads, ...]:
    """What a file says of its inputs; `words`: whether MediaPipe pads them by the tokenizer's own piece."""
    task, reads = getattr(built, "task", None), []
    for each in declared:
        theirs = each.name if target == "kerasbert" else mediapipe.INPUTS[each.name]
        choices = dict(each.choices(built.tokenizer) or {}) if each.choices else {}
        default = task.settings[each.setting] if task is not None and each.filled_by == "setting" else ""
        # what is padded is masked: 0 as ever, and so the same files
        pad = (built.tokenizer.pad_id if words else 0) if each.pad == inputs.PAD else int(each.pad)
        filled = (each.filled_by, each.setting, choices, default)
        reads.append(Reads(each.name, theirs, each.axes, each.dtype, pad, *filled, each.places))
        reads[-1].declared()
    return tuple(reads)


def about(
    built: "keras.Model",
    signatures: Mapping[int, str] | Sequence[Signature],
    any_length: bool = False,
    target: str = "kerasbert",
    columns: Sequence[str] = (),
    **said: Any,
) -> Bundle:
    """The bundle of a file to be, all but its digest.

    Args:
        built: the model.
        signatures: length -> name of those that answer; or all of them.
        columns: names of outputs beside the kind's own, in files of lengths.
        said: further fields of the Bundle.
    Raises:
        InputError: an input that a phone cannot fill, or a maker that is not registered.
    """
    kind, task = kind_of(built).answers, getattr(built, "task", None)
    declared = read_of_texts(built)
    if words := target == "mediapipe" and mediapipe.reads_words(built.tokenizer):
        declared = [each for each in declared if each.name == "token_ids"]
    reads = _reads(built, declared, target, words)
    makers = [each.make for each in declared if each.filled_by == "maker"]
    plugins = (registry.plugin_of(brought) for brought in (kind, *makers))
    if isinstance(signatures, Mapping):
        outputs = {each: each for each in (kind.output, *columns)}
        signatures = [Signature("answer", name, {"S": length}, outputs) for length, name in signatures.items()]
    return Bundle(
        kind=kind.name,
        tokenizer=tokenizer_files(built.tokenizer),
        signatures=tuple(signatures),
        inputs=reads,
        any_length=any_length,
        labels=tuple(built.labels or ()) if kind.labelled else (),
        pair=is_pair(built),
        parts=task.asked if task is not None and kind.named else (),
        columns=columns_of(task) if task is not None and not kind.named else (),
        options=dict(task.options if kind.named else kind.carried) if task is not None else {},
        target=target,
        versions=versions(),
        plugin=next((plugin for plugin in plugins if plugin), {}),
        **said,
    )


def columns_of(task: "Task") -> tuple[str, ...]:
    """Names of the columns that a task reads of a table, where they are not the usual ones."""
    return () if tuple(task.asked) == TEXT else tuple(task.asked)


def sources(task: "Task", texts: Sequence[Sample]) -> list[Sample]:
    """What a file is asked of rows (`Rows.texts`): where it writes texts the first part of each, which is not the target."""
    if task.how.answers.reader == "answer":
        return answerable(task, texts)
    return [text[0] if isinstance(text, tuple) else text for text in texts]


def cases_of(
    model: "keras.Model",
    pair: bool,
    texts: Texts | os.PathLike | None,
    data: Data | None,
    length: int,
    count: int = GENERATED,
    run: "str | os.PathLike | keras.Model | None" = None,
) -> tuple[list, Targets | None, str]:
    """The texts to compare on, their targets or None, and where they come from.

    Args:
        run: directory whose run.json may name dev rows (`own_rows`), where no texts are given. Without any texts are made of the
            vocabulary, which fit in `length`.
    """
    if texts is not None and data is not None:
        raise InputError("texts and data are both given, expected one of them")
    if data is not None:
        task = getattr(model, "task", None)
        if task is None:
            raise InputError(f"the model has no task to read {data} with: give texts instead")
        return _asked(task, *measured(task, data, run=getattr(model, "directory", None)))
    task = getattr(model, "task", None)
    if isinstance(texts, os.PathLike):
        return samples.read(texts, task, pair), None, Path(texts).name
    if texts is not None:
        if isinstance(texts, str | bytes) or not len(texts):
            raise InputError("texts is empty or one string, expected a list of texts")
        return list(texts), None, "texts"
    if run is not None and task is not None and not missing(run):
        return _asked(task, *own_rows(run, model, ROWS if count == GENERATED else count))
    return made_up(model, pair, length, count), None, MADE


def made_up(model: "keras.Model", pair: bool, length: int, count: int = GENERATED) -> list:
    """Inputs of the model's kind, of texts made of its vocabulary."""
    return list(map(kind_of(model).answers.example, samples.generated(model.tokenizer, count, pair, longest=length)))


def _asked(task: "Task", rows: Rows, told: str) -> tuple[list, Targets | None, str]:
    """What a file is asked of rows, and their targets; rows of pairs that train vectors have no target a text."""
    cases = sources(task, rows.texts)
    return cases, rows.targets if len(cases) == len(rows.texts) else None, told


def missing(run: "str | os.PathLike | keras.Model | None") -> str:
    """Why the rows that choose a run's best weights are not there to judge its file by, in words; empty where they are."""
    described = description_of(run) if isinstance(run, str | os.PathLike) else None
    if not described or not described["settings"].get("data"):
        return "no run.json names rows of the task"
    if "data" not in described:
        return "the rows of the fine-tuning were in memory"
    return "" if data_of(run) else "the rows that run.json names are not there any more, or have changed"


def own_rows(run: "str | os.PathLike | keras.Model", model: "keras.Model", most: int) -> tuple[Rows, str]:
    """The rows that chose a run's best weights, evenly taken: at most so many, and of long texts so few that they are TOKENS."""
    rows, told = measured(model.task, None, run=run)
    count = len(rows.texts)
    few = rows.take([i * count // most for i in range(most)]) if count > most else rows
    tokens = sum(row.length for row in predict.encoded_rows(model, few.texts, None).rows)
    wanted = min(len(few.texts), max(VOUCHING, len(few.texts) * TOKENS // max(1, tokens)))
    if wanted < count:
        return rows.take([i * count // wanted for i in range(wanted)]), f"{wanted} of {told}, evenly taken"
    return rows, told


def token_lengths(
    run: "str | os.PathLike | keras.Model", model: "keras.Model", cases: Sequence[object], source: str, longest: int
) -> tuple[list[int], str]:
    """How many tokens texts of the task have, and what says so; none and "" where nothing does.

    Args:
        run: what is compressed. cases, source: of `cases_of`. longest: int, tokens that the file reads.
    """
    described = description_of(run) if isinstance(run, str | os.PathLike) else None
    if known := (described or {}).get(TOKEN_LENGTHS):
        return known, "the rows that it was trained with"
    if source == MADE or len(cases) < ENOUGH:
        return [], ""
    return [row.length for row in predict.encoded_rows(model, cases, longest).rows], source


def tokenizer_files(tokenizer: Tokenizer) -> dict[str, bytes]:
    with scratch.folder() as directory:
        knowledge.save(tokenizer, directory)
        return {path.name: path.read_bytes() for path in sorted(Path(directory).iterdir())}


def versions() -> dict[str, str]:
    import keras
    import tensorflow as tf

    return {"kerasbert": __version__, "tensorflow": tf.__version__, "keras": keras.__version__}

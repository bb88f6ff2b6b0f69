"""Task-adaptive pretraining: going on with the texts of a task's own training rows (Gururangan et al., 2020, section 4)."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasbert import text
from kerasbert.checkpoints import source
from kerasbert.data.records import Records
from kerasbert.errors import InputError
from kerasbert.lazy import later
from kerasbert.storage import scratch
from kerasbert.table import shipped
from kerasbert.tasks.task import Task, find_task, read_rows, split_files
from kerasbert.text.base import Tokenizer
from kerasbert.training.pretrain_config import PretrainConfig
from kerasbert.training.runs import check_place

if TYPE_CHECKING:
    import keras

    from kerasbert.tasks.tables import Data

EPOCHS = 100  # of the rows, in table 14 of the paper
LENGTH = 128
write_records = later("kerasbert.data", "write_records")


def texts(task: str | Task, data: "Data") -> Iterator[list[str]]:
    """The texts of each training row, which need no labels: one, or the parts of a pair.

    Raises:
        InputError: no such task, no train file, a row that cannot be read.
    """
    known = find_task(task)
    found = split_files(data, task=known)
    if "train" not in found:
        raise InputError(f"{data} has no train file, whose texts are pretrained on")
    for row in read_rows(known, found["train"], targets=False).texts:
        parts = [row] if isinstance(row, str) else [text for part in row for text in _parts(part, known.how.per_token)]
        yield list(dict.fromkeys(" ".join(part.split()) for part in parts))  # simcse's two are one text


def check_model(model: "str | os.PathLike | keras.Model") -> None:
    """Refuse a name of a model that is new: there is nothing to go on with."""
    if isinstance(model, str) and not os.path.exists(model) and model in [row["name"] for row in shipped()["models"]]:
        raise InputError(
            f"on_task goes on with a trained model, received {model}, a new one: give the directory of one"
        )


def _parts(part: str | Sequence[str], words: bool) -> list[str]:
    """The texts of a part of a row: one, that of its words, or those of its choices."""
    return [part] if isinstance(part, str) else [" ".join(part)] if words else [*part]


@contextlib.contextmanager
def opened(
    model: "str | os.PathLike | keras.Model", data: "Data", config: PretrainConfig
) -> Iterator[tuple[Any, PretrainConfig]]:
    """Records and options of a pretraining: of one on a task the records of its texts, each row a document of its own.

    They lie in a temporary folder and are made again where a run goes on: the same rows give the same bytes.

    Raises:
        InputError: a model that is new or has no tokenizer, rows that cannot be read.
    """
    if config.on_task is None:
        yield data, config
        return
    check_place(config.out, config.overwrite, inputs=[model, data, config.init])
    with scratch.folder() as folder:
        found = records(config.on_task, data, _tokenizer(model, config), config.length, Path(folder))
        steps = config.steps or -(-EPOCHS * found.examples // config.batch)
        yield found.directory, dataclasses.replace(config, steps=steps)


def _tokenizer(model: "str | os.PathLike | keras.Model", config: PretrainConfig) -> Tokenizer | None:
    """That of the model that is pretrained further; None of one without."""
    given = model if config.init is None else config.init
    check_model(given)
    return text.held_tokenizer(source.directory(given)) if isinstance(given, str | os.PathLike) else given.tokenizer


def records(task: str | Task, data: "Data", tokenizer: Tokenizer | None, length: int | None, folder: Path) -> Records:
    """The records of a task's texts, written into a folder.

    Args:
        length: tokens of a row of records; `LENGTH` by default.
    """
    if tokenizer is None:
        raise InputError("on_task reads texts, and the model has no tokenizer: import or save it with one")
    corpus = folder / "texts.txt"
    with corpus.open("w", encoding="utf-8") as file:
        for parts in texts(task, data):
            file.write("\n".join(part for part in parts if part) + "\n\n")
    packing = None if tokenizer.cls_id is None else "doc"
    return write_records([corpus], tokenizer, folder / "records", length=length or LENGTH, packing=packing, processes=1)

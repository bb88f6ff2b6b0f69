"""Texts to distil on: with labels and without, what the teacher says of them, and their batches."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.data.sources import file_format, read_documents
from kerasbert.errors import InputError
from kerasbert.storage import files
from kerasbert.tasks import predict
from kerasbert.tasks.batches import Encoded, epoch_order, training_batches
from kerasbert.tasks.task import Rows, Task, read_rows
from kerasbert.training.config import TrainConfig
from kerasbert.training.feed import Feed, Part
from kerasbert.training.step import distribute

KEPT = 2**28  # bytes of answers that are worked out beforehand and kept; beyond, the teacher runs at every step


def read_unlabelled(task: Task, paths: Sequence[str | os.PathLike]) -> list[Any]:
    """Texts or pairs of files: a table's columns, or the lines of a text file.

    Raises:
        InputError: no text in them, or lines where the task reads pairs.
    """
    texts: list[Any] = []
    for path in paths:
        if file_format(path) != "text":
            texts += read_rows(task, Path(path), targets=False).texts
        elif task.pair:
            raise InputError(f"{path} is plain text, the task {task.name} reads pairs: give a tsv, csv or jsonl file")
        else:
            texts += [line for document in read_documents([path]) for line in document]
    return texts


def joined(task: Task, train: Rows | None, unlabelled: Sequence[Any]) -> tuple[Rows, np.ndarray]:
    """All rows, and float32 [n]: 1 where a row has a label."""
    rows = train or Rows([], task.how.targets(task, None, [], [], []))
    texts = [*rows.texts, *unlabelled]
    if not texts:
        raise InputError("empty corpus: neither train rows nor unlabelled texts, expected at least one text")
    targets = np.concatenate([rows.targets, np.zeros(len(unlabelled), rows.targets.dtype)])
    return Rows(texts, targets), (np.arange(len(texts)) < len(rows.texts)).astype("float32")


def teachers_answers(teacher: Any, encoded: Encoded, longest: int, folder: Path, digest: str) -> np.ndarray | None:
    """What the teacher's head says of every text: float32 [n, L]; None where they are over KEPT bytes.

    Args:
        teacher: TaskModel, which reads `longest` tokens.
        folder: where they are kept, by teacher and texts, so that a run that goes on, or another student, finds them.
        digest: str, of the teacher's weights and how it computes.
    """
    width = max(1, len(teacher.task.labels))
    if 4 * width * len(encoded.rows) > KEPT:
        return None
    key = hashlib.sha256(f"{digest} {longest} {encoded.pad_id}".encode())
    if encoded.settings:
        key.update(repr(sorted(encoded.settings.items())).encode())
    for row in encoded.rows:
        key.update(np.array([row.length, *row.token_ids, *row.values["segment_ids"]], "<i4").tobytes())
    path, shape = folder / f"teacher-{key.hexdigest()[:32]}.safetensors", (len(encoded.rows), width)
    if path.is_file():
        kept = Safetensors(path)
        if kept.names() == ["answers"] and kept.shape("answers") == shape:
            return kept.read("answers")
    answers = predict.run(predict.graph(teacher, "logits", predict.task_logits, encoded.settings), encoded, longest)
    folder.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    write_safetensors(part, {"answers": shape}, lambda _: answers)
    files.sync(part)
    os.replace(part, path)
    return answers


class TextsFeed(Feed):
    """Batches of texts with what is known of each.

    Args:
        labelled: float32 [n], 1 where the target is one.
        answers: the teacher's, float32 [n, L], or None where it runs beside the student.
    """

    def __init__(
        self,
        encoded: Encoded,
        rows: Rows,
        labelled: np.ndarray,
        answers: np.ndarray | None,
        settings: TrainConfig,
        longest: int,
        devices: tf.distribute.Strategy,
    ):
        self.encoded, self.targets, self.labelled, self.answers = encoded, rows.targets, labelled, answers
        self.arguments: dict[str, Any] = {"batch": settings.batch, "longest": longest, "seed": settings.seed}
        self.devices, mean = devices, float(np.mean([row.length for row in encoded.rows]))
        self.parts = [Part(settings.updates, settings.batch, settings.accumulate, tokens=settings.batch * mean)]

    def made(self, step: int) -> Iterator[dict[str, np.ndarray]]:
        """Global batches from update `step` on."""
        index = np.arange(len(self.targets), dtype="int32")
        for arrays in training_batches(self.encoded, index, start=step, **self.arguments):
            row, weight = arrays.pop("label"), arrays.pop("label_weight")
            arrays |= {"label": self.targets[row], "label_weight": weight * self.labelled[row], "weight": weight}
            yield arrays if self.answers is None else arrays | {"teacher": self.answers[row]}

    def batches(self, step):
        return (distribute(arrays, self.devices) for arrays in self.made(step))

    def batch(self, step):
        size, seed = self.arguments["batch"], self.arguments["seed"]
        epoch, place = divmod(step, -(-len(self.targets) // size))
        order = epoch_order(self.encoded, size, seed, epoch)[place]
        origins = [("labelled" if self.labelled[i] else "unlabelled", int(i)) for i in order]
        return next(self.made(step)), origins + [("none", -1)] * (size - len(origins))

"""Texts to distil on: with labels and without, what the teacher says of them, and their batches."""

import functools
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.inputs import Tensor
from kerasbert.storage import files
from kerasbert.tasks import predict
from kerasbert.tasks.batches import Encoded, training_batches
from kerasbert.tasks.graph_values import run
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import Rows, Task
from kerasbert.training.config import TrainConfig
from kerasbert.training.feed import Feed, Part
from kerasbert.training.step import distribute

KEPT = 2**28  # bytes of answers that are worked out beforehand and kept; beyond, the teacher runs at every step


def teachers_answers(teacher: TaskModel, encoded: Encoded, longest: int, place: Path, digest: str) -> np.ndarray | None:
    """What the teacher's head says of every text: float32 [n, L]; None of tokens or choices, or where it is over KEPT bytes.

    Args:
        teacher: TaskModel, which reads `longest` tokens.
        place: where they are kept, by teacher and texts, so that a run that goes on, or another student, finds them.
        digest: str, of the teacher's weights and how it computes.
    """
    width = max(1, len(teacher.task.labels))
    if 4 * width * len(encoded.rows) > KEPT or teacher.kind.per_token or teacher.kind.together:
        return None
    key = hashlib.sha256(f"{digest} {longest} {encoded.pad_id}".encode())
    if encoded.settings:
        key.update(repr(sorted(encoded.settings.items())).encode())
    for row in encoded.rows:
        key.update(np.array([row.length, *row.token_ids, *row.values["segment_ids"]], "<i4").tobytes())
    path, shape = place / f"teacher-{key.hexdigest()[:32]}.safetensors", (len(encoded.rows), width)
    if path.is_file():
        kept = Safetensors(path)
        if kept.names() == ["answers"] and kept.shape("answers") == shape:
            return kept.read("answers")
    answers = run(predict.graph(teacher, "logits", predict.task_logits, encoded.settings), encoded, longest)
    with files.new_file(path) as part:
        write_safetensors(part, {"answers": shape}, lambda _: answers)
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
        task: Task,
    ) -> None:
        self.encoded, self.labelled, self.answers = encoded, labelled, answers
        drawn = functools.partial(training_batches, encoded, rows.targets, longest=longest, task=task)
        self.drawn = functools.partial(drawn, batch=settings.batch, seed=settings.seed)
        units, self.rows_each = encoded.units(task.how.together).shape
        self.shapes, self.epoch = encoded.shapes(), -(-units // settings.batch)
        self.devices, mean = devices, sum(row.length for row in encoded.rows) / units
        self.parts = [Part(settings.updates, settings.batch, settings.accumulate, tokens=settings.batch * mean)]

    def owners(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """The text of each row of a batch, int [rows]; -1 of what fills it up."""
        return np.where(arrays["example"] < 0, -1, self.encoded.owners[arrays["example"]])

    def made(self, step: int) -> Iterator[dict[str, np.ndarray]]:
        """Global batches from update `step` on."""
        for arrays in self.drawn(start=step):
            owner, weight = self.owners(arrays), arrays["label_weight"]
            labelled = (self.labelled[owner] * (owner >= 0))[:: self.rows_each].reshape(-1, *[1] * (weight.ndim - 1))
            arrays["label_weight"] = (weight * labelled).astype("float32")
            arrays |= {"weight": (owner >= 0).astype("float32"), "compared": (weight > 0).astype("float32")}
            yield arrays if self.answers is None else arrays | {"teacher": self.answers[owner]}

    def batches(self, step: int) -> Iterator[Mapping[str, Tensor]]:
        return (distribute(arrays, self.devices) for arrays in self.made(step))

    def batch(self, step: int) -> tuple[dict[str, np.ndarray], list[tuple[str, int]]]:
        arrays = next(self.made(step))
        owners = self.owners(arrays)[:: self.rows_each].tolist()
        return arrays, [("none" if i < 0 else "labelled" if self.labelled[i] else "unlabelled", i) for i in owners]

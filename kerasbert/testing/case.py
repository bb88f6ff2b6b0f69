"""A kind of task on a tiny model, with rows: what `check_kind` looks at."""

import contextlib
import functools
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert import spec as specs
from kerasbert.answers.base import Outputs, Parts, Text
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json
from kerasbert.tasks import predict
from kerasbert.tasks.base import Task, TaskKind
from kerasbert.tasks.batches import Encoded
from kerasbert.tasks.model import TaskObjective
from kerasbert.tasks.task import answerable, find_labels, read_rows, split_files, table
from kerasbert.testing import world
from kerasbert.testing.battery import Subject, shallow
from kerasbert.testing.halves import Halves

if TYPE_CHECKING:
    from kerasbert.tasks.given import Texts
    from kerasbert.tasks.tables import Data


LENGTH = 32  # tokens of a row
NEAR = 1e-4  # of numbers that are computed in two ways
UNKNOWN = "no such label"


def made_rows(task: Task, count: int = 24) -> list[Json]:
    """Rows of a task, by the columns' names: example inputs of the kind, and labels in turn."""
    kind, texts = task.answer_kind, world.sentences(2 * count, seed=5)
    labels = [*task.labels] or ["0", "1", "2"]
    rows = []
    for i in range(count):
        made = (texts[2 * i], texts[2 * i + 1]) if len(task.parts) > 1 else texts[2 * i]
        example = kind.example(made)
        parts = example if isinstance(example, tuple) else (example,)
        row = {name: list(part) if isinstance(part, tuple) else part for name, part in zip(task.parts, parts)}
        rows.append(row | ({task.label: labels[i % len(labels)]} if task.label else {}))
    return rows


class Case:
    """A kind on a tiny model, with its rows.

    Attributes:
        rows: `Rows`, with targets where the kind learns. texts: inputs to answer.
        model: TaskModel. program: its TaskObjective.
    """

    def __init__(self, halves: Halves, task: Task, data: "Data | None", subject: Subject) -> None:
        self.halves, self.blamed = halves, halves.blamed
        self.training, self.phone = halves.names
        self.learns = type(task.how).targets is not TaskKind.targets
        with self.blamed("making rows of example inputs"):
            rows = made_rows(task) if data is None else data
        with self.blamed("reading the data"):
            self.source = split_files({"train": rows} if isinstance(rows, list) else rows, task=task)["train"]
        subject.spec = specs.derive(subject.spec, shallow(subject.spec))
        encoder = subject.encoder()
        task = self.with_labels(task)
        made_up = data is None
        with self.blamed("reading made-up rows (data= takes rows of the task)" if made_up else "reading the rows"):
            task = task.how.of_family(task, subject.family)
            self.rows = read_rows(task, self.source, targets=self.learns)
        if self.learns:
            task = self.with_targets(task)
        self.texts = answerable(task, self.rows.texts) if task.answer_kind.reader == "answer" else self.sources()
        with self.blamed("building the heads"):
            self.program = TaskObjective(encoder, task)
        self.model = self.program.model
        generator = np.random.default_rng(3)
        for head in self.model.heads.values():
            for weight in head.weights:
                weight.assign(generator.normal(0, 1, weight.shape))
        self.task = task

    @property
    def kind(self) -> TaskKind:
        """The training half, with the options of the task as its weights settle them."""
        return self.model.task.how

    def sources(self) -> list[Text | Parts]:
        """What is read of rows whose last part is the target."""
        return [text[0] if isinstance(text, tuple) else text for text in self.rows.texts]

    @functools.cached_property
    def said(self) -> list[Any]:
        """What `kb.predict` answers to the texts."""
        with self.blamed("answering"):
            return predict.predict(self.model, self.texts, length=LENGTH)

    @functools.cached_property
    def answered(self) -> tuple[Encoded, Outputs, list[np.ndarray]]:
        """`outputs` of the texts."""
        return self.outputs(self.texts)

    def outputs(self, texts: "Texts") -> tuple[Encoded, Outputs, list[np.ndarray]]:
        """Rows of texts, what the model gives for them, and what an exported file would."""
        kind = self.kind.answers
        with self.blamed("running the model"):
            packed = predict.encoded_rows(self.model, texts, LENGTH)
            outputs = predict.outputs_of(self.model, packed, LENGTH)
            return packed, outputs, [np.asarray(kind.probabilities(row)) for row in outputs]

    def with_labels(self, task: Task) -> Task:
        """The task with the labels of its rows; refused where the training half finds labels that nobody asks for."""
        how = task.how
        with self.blamed("finding the labels of the rows"):
            found = find_labels(task, self.source)
        assert found.labels or not how.answers.labelled, (
            f"{self.phone}.labelled is true, and the task has no labels: {self.training}.with_labels finds none in the rows"
        )
        if found.labels or type(how).with_labels is TaskKind.with_labels:
            return found
        with self.blamed("finding the labels of the rows"):
            rows = table(task, self.source, [task.label])
            named = how.with_labels(task, self.source, [line for line, _ in rows], [row[task.label] for _, row in rows])
        assert not named.labels, (
            f"{self.training}.with_labels finds the labels {', '.join(named.labels)}, and is never asked: labels are looked for "
            f"in the rows where {self.phone}.labelled is true. Write labelled = True (then the outputs are logits of the labels; "
            "where they are not, label_scores = False), or name the labels in the Task"
        )
        return found

    def with_targets(self, task: Task) -> Task:
        """The task fitted to its targets."""
        how, count = task.how, len(self.rows.texts)
        with self.blamed("checking the metric"):
            how.check_metric(task)
        targets = self.rows.targets
        assert len(targets) == count, f"{self.training}.targets gives {len(targets)} targets of {count} rows"
        with self.blamed("taking what training needs of the targets"):
            task = how.fitted(task, self.source, targets)
            json.dumps(task.to_json())
        return task

    def check_labels(self) -> None:
        """A label that is not known is refused, or taken as any other: nothing else is raised."""
        row = self.source, [7], [UNKNOWN], [self.rows.texts[0]]
        told = f"reading the label {UNKNOWN!r}, which expects an InputError with file and line"
        with self.blamed(told), contextlib.suppress(InputError):
            self.kind.targets(self.task, *row)

"""How answers of a kind are judged: metrics, what a constant answer would reach, what the report of a run shows of them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert import registry
from kerasbert.answers.base import Answered
from kerasbert.errors import InputError, near, nearest
from kerasbert.inputs import Tensor
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.tasks.exported_kind import Exported
from kerasbert.tasks.rows import Targets

if TYPE_CHECKING:
    from kerasbert.tasks.base import Task
    from kerasbert.tasks.batches import Encoded

Numbers = Sequence[int] | np.ndarray  # of inputs, from 0
POINTS = 500  # of a scatter, drawn from all by a fixed seed


@dataclasses.dataclass(frozen=True)
class Judged:
    """The answers to some inputs beside their targets, for the report of a run. It is small and holds no input.

    Args:
        sampled: numbers of inputs, some several times -> the metrics of these: intervals are made of such samples.
        answer: number of an input -> its answer as json: a label, a number, places in the text; what `shown` reads.
        errors: float [n], 0 for a right answer, larger for a worse one; None where the kind cannot tell.
        graded: bool, whether errors are distances, which are seldom 0.
        picture: the kind's own picture as json: {"title", "bars": {name: share or count}} or {"title", "points":
            [[target, answer]]}; empty for none.
    """

    sampled: Callable[[Numbers], Mapping[str, float]]
    answer: Callable[[int], Any]
    errors: np.ndarray | None = None
    graded: bool = False
    picture: JsonMap = dataclasses.field(default_factory=dict)


class Judging(Exported):
    """The part of a kind that evaluation and reports ask.

    Attributes:
        metrics_known: names of its metrics.
    """

    metrics_known: tuple[str, ...] = ("accuracy",)

    def metrics(self, task: "Task", outputs: Tensor, targets: Targets, encoded: Any = None) -> dict[str, float]:
        """Metrics by name.

        Args:
            outputs: of the model for each row: [n, ...], or a list of [S, L] for tokens.
            targets: of each text, as `targets` gives them.
            encoded: Encoded, the rows and which text each belongs to; a kind of one row a text does without.
        """
        raise NotImplementedError

    def details(self, task: "Task", outputs: Tensor, targets: Targets, encoded: Any = None) -> Json:
        """What is told beside the metrics, as json: `labels`, numbers of each, and `confusion`, [target][answer].

        Args:
            outputs, targets, encoded: as of `metrics`.
        """
        return {}

    def better(self, metric: str, new: float, old: float | None) -> bool:
        """Whether a metric improved; larger is better, except for an error or a loss."""
        if old is None or not np.isfinite(old):
            return True
        return new < old if metric in ("loss", "mean_squared_error") else new > old

    def remarks(self, task: "Task", outputs: Tensor, targets: Targets) -> list[str]:
        """What makes the metrics of these answers say little, a line each."""
        return [line] if (line := self.collapsed(task, outputs, targets)) else []

    def collapsed(self, task: "Task", outputs: Tensor, targets: Targets) -> str:
        """What is told of answers that are all, or nearly all, the same though their targets are not; empty of others."""
        return ""

    def tuned(self, task: "Task", outputs: Tensor, targets: Targets, encoded: "Encoded") -> "Task":
        """The task with the options that the dev rows choose, such as a threshold; asked for the best weights so far.

        Args:
            outputs, targets, encoded: as of `metrics`.
        """
        return task

    # What the report of a run shows

    def judged(self, task: "Task", outputs: Tensor, targets: Targets, encoded: "Encoded") -> Judged:
        """The answers beside their targets. By default they are shown as the command line prints them, none is called wrong.

        Args:
            outputs, targets, encoded: as of `metrics`.
        """

        def sampled(numbers: Numbers) -> dict[str, float]:
            return self.metrics(task, *_some(outputs, targets, encoded, np.asarray(numbers).tolist()))

        return Judged(sampled, lambda number: self.answers.text(self.decoded(task, outputs, encoded, number).to_json()))

    def decoded(self, task: "Task", outputs: Tensor, encoded: "Encoded", number: int) -> Answered:
        """The answer object of an input, of its rows' outputs."""
        at = encoded.of()[number]
        values = [self.answers.probabilities(outputs[i]) for i in range(at.start, at.stop)]
        return self.answers.decode(encoded.parts[number], encoded.rows[at], values, list(task.labels.values()))

    def baseline(self, task: "Task", targets: Targets, encoded: "Encoded") -> dict[str, float]:
        """Metrics that the best constant answer would reach on these targets, by name; empty where the kind knows none.

        A run none of whose metrics is above them beyond noise is told to have learnt too little.
        """
        return {}

    def shown(self, task: "Task", text: Any, target: Any, label: Any, answer: Any) -> tuple[str, str]:
        """What a report prints as expected and as answered.

        Args:
            text: of the input, as `Rows` hold it. target: as `targets` gives it. label: as it stands in the file.
            answer: of `Judged.answer`, through json.
        """
        return str(label), str(answer)

    # Checks and exported files

    def check_metric(self, task: "Task") -> None:
        """Refuse a metric that the kind does not have."""
        if task.metric in self.metrics_known and task.metric in registry.METRICS:
            raise InputError(f"{task.metric!r} is a metric of a {self.name} already: give yours another name")
        if task.metric not in self.metrics_known and task.metric not in registry.METRICS:
            known = [*self.metrics_known, *registry.METRICS]
            own = "One of your own: register_metric in a --plugin"
            meant = f"{near(task.metric, known)}. " if nearest(task.metric, known) else ""
            raise InputError(f"no metric {task.metric!r} for a {self.name}. {meant}All: {', '.join(known)}. {own}")


def sample(values: Sequence[object] | np.ndarray, numbers: Sequence[int]) -> Any:
    """Some of an array or a list."""
    return values[np.asarray(numbers)] if isinstance(values, np.ndarray) else [values[i] for i in numbers]


def _some(
    outputs: Tensor, targets: Targets, encoded: "Encoded", numbers: Sequence[int]
) -> "tuple[Tensor, Targets, Encoded]":
    """Outputs, targets and rows of some inputs, as `metrics` takes them."""
    at = encoded.of()
    rows = [i for number in numbers for i in range(at[number].start, at[number].stop)]
    return sample(outputs, rows), sample(targets, numbers), encoded.take(numbers)


def scatter(title: str, expected: np.ndarray, answered: np.ndarray) -> Json:
    """The picture of numbers beside those that were expected, of at most POINTS of them."""
    numbers = np.arange(len(expected))
    if len(numbers) > POINTS:
        numbers = np.sort(np.random.default_rng(0).choice(len(numbers), POINTS, replace=False))
    points = [[float(f"{value:.6g}") for value in (expected[i], answered[i])] for i in numbers]
    return {"title": title, "points": points, "of": len(expected)}

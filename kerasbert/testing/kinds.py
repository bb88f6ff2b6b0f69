"""What every kind of task must pass, ours and a third party's: its two halves agree, from the rows of a file to the graph.

registry.load_plugin("mine.py")
check_kind("mine", tmp_path)  # seconds; `mine` is a Task over the kind
# kerasbert.mobile.testing.check_kind_journey goes on: fine-tuning, a SavedModel, a .tflite
"""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasbert import registry
from kerasbert.errors import InputError
from kerasbert.tasks.base import Task
from kerasbert.testing.battery import Subject, eagerly
from kerasbert.testing.case import Case
from kerasbert.testing.halves import Halves
from kerasbert.testing.kind_answers import check_answers, check_device, check_rows, check_served
from kerasbert.testing.kind_learning import check_losses, check_metrics

if TYPE_CHECKING:
    from kerasbert.tasks.tables import Data


def check_kind(
    task: str, folder: Path, data: "Data | None" = None, *, family: str = "bert", exported: bool = True, **fields: Any
) -> None:
    """Both halves of a kind of task, `tasks.base.TaskKind` and `answers.Kind`, on a tiny model with random weights.

    The options that one half reads the other declares; methods take what they are given. Rows become targets, batches and sums of
    losses; outputs become metrics, answers and json. What is exported computes the same: `device` and `probabilities`, `served`
    and `predict`.

    Args:
        task: str, name of a registered Task over the kind.
        folder: Path, where the model is saved.
        data: labelled rows of the task: a file, or rows in memory as `kb.finetune` takes them. By default made up: inputs of
            `answers.Kind.example`, with the task's labels, or 0, 1 and 2.
        family: str, of the model.
        exported: bool; False for a kind that answers in Python alone.
        fields: of the Task, in the place of its own, such as options={"stride": 4}.

    Raises:
        AssertionError: what is wrong, a line for each mistake; it names the method or the option.
    """
    declared = registry.task(task)
    assert isinstance(declared, Task), f"{task!r} is a {type(declared).__name__}, expected a Task over the kind"
    declared = dataclasses.replace(declared, **fields)
    try:
        halves = Halves(declared)
    except InputError as error:
        raise AssertionError(f"the Task {task!r}: {error}") from error
    problems = halves.problems()
    assert not problems, "\n".join(problems)
    with eagerly(), halves.noted():
        case = Case(halves, declared, data, Subject(family, folder))
        if case.learns:
            case.check_labels()
            check_losses(case)
        check_rows(case)
        if case.learns:
            check_metrics(case)
        check_answers(case, folder / f"kind-{declared.kind}")
        if exported:
            check_device(case)
            check_served(case)

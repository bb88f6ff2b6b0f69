"""Several tasks over one encoder: a program whose batches hold rows of one task each."""

from collections.abc import Mapping
from typing import Any

from keras import ops

from kerasbert import registry
from kerasbert.checkpoints.directory import built
from kerasbert.errors import InputError
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.heads import HeadedModel
from kerasbert.layers.naming import names, sharing
from kerasbert.objectives.base import Objective
from kerasbert.tasks.model import TaskObjective

MARK = "task:"  # before a task's name among the names of its batches


class TasksModel(HeadedModel):
    """An encoder, and beside it what each task has of its own, as `heads/TASK/...`.

    Args:
        encoder: Encoder, which all tasks share.
        own: task -> weight name -> variable.
    """

    def __init__(self, encoder: Encoder, own: Mapping[str, Mapping[str, object]]) -> None:
        heads: Any = {task: dict(variables) for task, variables in own.items()}
        super().__init__(encoder, heads, {}, name="tasks")

    def build(self, shape: Shape | None = None) -> None:
        self.built = True


class TasksObjective(Objective):
    """The losses of several tasks, each called as its task (Liu et al., 2019, section 3, algorithm 1).

    A batch holds rows of one task and computes this task's network alone; the others count 0. Which task it is stands in
    the names of the batch (`marked`), so that every task has graphs of its own. The weights that are another task's get a
    gradient of 0: their moments and their decay go on.

    Args:
        encoder: Encoder, which the tasks share.
        programs: task -> its objective, whose encoder is that one or has its weights and others of its own.
    """

    def __init__(self, encoder: Encoder, programs: Mapping[str, TaskObjective]) -> None:
        shared = set(names(encoder))
        if weighed := [task for task, program in programs.items() if set(program.scales) - {"label"}]:
            raise InputError(
                f"auxiliary_lm is for one task by itself, received it with {', '.join(weighed)}: leave it out"
            )
        self.programs = dict(programs)
        own = {
            task: {
                name.removeprefix("heads/"): variable
                for name, variable in names(program.model).items()
                if name not in shared
            }
            for task, program in programs.items()
        }
        self.model = TasksModel(encoder, own)
        self.model.build()
        self.scales = dict.fromkeys(programs, 1.0)

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        task = task_of(batch)
        counts = self.programs[task].counts(batch)
        return {name: counts["label"] if name == task else ops.zeros(()) for name in self.programs}

    def gathered(self, batch: Mapping[str, Tensor]) -> tuple[str, ...]:
        task = task_of(batch)
        names = self.programs[task].gathered(batch)
        return (*names, MARK + task) if names else ()

    def vectors(self, batch: Mapping[str, Tensor], training: bool = True) -> Tensor:
        return self.programs[task_of(batch)].vectors(batch, training)

    def losses_of(self, vectors: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self._named(batch, self.programs[task_of(batch)].losses_of(vectors, batch))

    def losses(self, batch: Mapping[str, Tensor], training: bool = True) -> dict[str, Tensor]:
        return self._named(batch, self.programs[task_of(batch)].losses(batch, training))

    def _named(self, batch: Mapping[str, Tensor], sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
        task = task_of(batch)
        others = {name: ops.zeros(()) for name in self.programs if name != task}
        return others | {task + name.removeprefix("label"): value for name, value in sums.items()}


def marked(batch: Mapping[str, Tensor], task: str, rows: Tensor) -> dict[str, Tensor]:
    """A batch as one of that task; `rows` has as many elements as the batch has inputs."""
    return {**batch, MARK + task: rows}


def task_of(batch: Mapping[str, Tensor]) -> str:
    """The task of a batch."""
    return next(name.removeprefix(MARK) for name in batch if name.startswith(MARK))


def beside(encoder: Encoder, changes: Mapping[str, object]) -> Encoder:
    """An encoder of the Spec with these changes: the weights that both have are the other's own variables."""
    family, spec = registry.family_of(encoder), encoder.spec.derive(changes)
    view = sharing(lambda: built(family, spec, encoder.model_name), encoder, ())
    view.tokenizer, view.labels = encoder.tokenizer, encoder.labels
    return view

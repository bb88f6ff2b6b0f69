"""Evaluation on dev rows that keeps the best weights beside the checkpoints."""

import functools
import math
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from kerasbert import progress
from kerasbert.checkpoints.run_checkpoints import FOLDER
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.inputs import Tensor
from kerasbert.layers.heads import HeadedModel
from kerasbert.layers.naming import names, values
from kerasbert.storage import files
from kerasbert.storage.json_view import Json
from kerasbert.tasks import predict
from kerasbert.tasks.batches import Encoded
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import Rows, Task
from kerasbert.training import judgement
from kerasbert.training.constraints import Constraint
from kerasbert.training.runs import Run
from kerasbert.training.trainer import assign

MOST = 50  # labels, of which every checkpoint holds a confusion table
PREFIX = "constraint/"  # of the tensors that a constraint keeps with the best weights


class Best:
    """Keeps the best weights so far beside a run's checkpoints, and decides when to stop.

    Called with the number of updates made, it gives metrics of the weights to log, and whether to stop.

    Args:
        model: the model that is trained.
        run: Run, whose weights are kept.
        patience: int, evaluations without better weights before it stops; None for no stop.
        constraint: whose tensors are kept with the weights.
    Attributes:
        state: json, which the run's checkpoints hold: the best metric, its step, what was chosen by it, and how many evaluations
            were worse since.
        weights: gives copies of the weights by name; a Trainer's own while it trains.
    """

    def __init__(
        self, model: HeadedModel, run: Run, patience: int | None = None, constraint: Constraint | None = None
    ) -> None:
        self.model, self.run, self.patience, self.constraint = model, run, patience, constraint
        self.state: Json = {"best": None, "step": 0, "worse": 0}
        self.weights: Callable[[], dict[str, np.ndarray]] = functools.partial(values, model)

    def token_ids(self) -> np.ndarray | None:
        """All token ids that it reads, each once, ascending: int [r]; None where nobody knows them beforehand."""
        return None

    def __call__(self, step: int) -> tuple[dict[str, float], bool]:
        raise NotImplementedError

    @property
    def best(self) -> Path:
        """The file of the best weights."""
        return Path(self.run.directory) / FOLDER / "best.safetensors"

    @property
    def stopped(self) -> bool:
        """Whether there were as many evaluations without better weights as patience allows."""
        return self.patience is not None and self.state["worse"] >= self.patience

    def keep(self, state: Json) -> None:
        """These weights are the best so far."""
        self.state = state | {"worse": 0}
        weights = self.weights()
        if self.constraint is not None:
            weights |= {PREFIX + name: value for name, value in self.constraint.tensors().items()}
        with files.new_file(self.best) as part:
            write_safetensors(part, {name: value.shape for name, value in weights.items()}, weights.__getitem__)

    def take(self, directory: Path) -> None:
        """Give the model its best weights; what is told of them goes into the run's directory."""
        assign(Safetensors(self.best), names(self.model))


class BestWeights(Best):
    """Metrics on the dev rows of a task after an epoch; the best weights are those of its own metric.

    Args:
        model: the model that is trained.
        task: says which metric chooses.
        encoded: the dev texts.
        rows: the dev rows with their targets.
        longest: int, tokens of the longest text.
        run: Run, whose weights are kept beside its checkpoints.
        patience: int, evaluations without better weights (a better metric, or an equal one with a lower loss) before it
            stops; None for no stop.
        constraint: says which weights count; its tensors are kept with them.
    """

    model: TaskModel

    def __init__(
        self,
        model: TaskModel,
        task: Task,
        encoded: Encoded,
        rows: Rows,
        longest: int,
        run: Run,
        patience: int | None = None,
        constraint: Constraint | None = None,
    ) -> None:
        super().__init__(model, run, patience, constraint)
        self.task, self.encoded, self.rows, self.longest = task, encoded, rows, longest
        self.outputs: Tensor | None = None  # of the best weights, where this process found them

    def token_ids(self) -> np.ndarray:
        return self.encoded.token_ids()

    def __call__(self, step: int) -> tuple[dict[str, float], bool]:
        outputs, metrics = self.measured()
        if self.constraint is not None and not self.constraint.complete(step):
            pass
        elif self._better(metrics):
            best, loss = metrics[self.task.metric], metrics.get("loss")
            self.keep({"best": best, "loss": loss, "step": step, **self.chosen(outputs, dict(metrics))})
            self.outputs = outputs
        else:
            self.state = self.state | {"worse": self.state["worse"] + 1}
        return {f"dev/{name}": number for name, number in metrics.items()}, self.stopped

    def _better(self, metrics: Mapping[str, float]) -> bool:
        """Whether these are the best so far: by the task's metric, and among equal ones by the loss."""
        value, best = metrics[self.task.metric], self.state["best"]
        if value == best:
            return metrics.get("loss", math.inf) < (self.state.get("loss") or -math.inf)
        return self.task.how.better(self.task.metric, value, best)

    def measured(self) -> tuple[Tensor, dict[str, float]]:
        """The outputs of the dev rows, and their metrics."""
        with progress.named(None):  # the training shows its own
            outputs = predict.outputs_of(self.model, self.encoded, self.longest)
        return outputs, self._settled().measured(outputs, self.rows.targets, self.encoded)

    def _settled(self) -> Task:
        """The task with what its answers need of the head as it is now."""
        return self.task.how.settled(self.task, self.model.heads)

    def chosen(self, outputs: Tensor, metrics: dict[str, float]) -> Json:
        """What the state holds of the best weights: remarks, the options that they choose, what `dev.json` holds."""
        task, known = self._settled(), (outputs, self.rows.targets)
        remarks, tuned = task.how.remarks(task, *known), task.how.tuned(task, *known, self.encoded)
        options = {name: each for name, each in tuned.options.items() if task.options.get(name) != each}
        dev = self._told(tuned, outputs, {} if options else metrics)
        return {"remarks": remarks, "options": options, "dev": dev}

    def _told(self, task: Task, outputs: Tensor, metrics: dict[str, float]) -> Json:
        """What `dev.json` holds: the metrics of the best weights, by label too, of at most MOST labels.

        Args:
            metrics: of these outputs; empty where the task's options were chosen since.
        """
        known = outputs, self.rows.targets, self.encoded
        details = task.how.details(task, *known)
        few = len(details.get("labels", ())) <= MOST
        return {"metrics": metrics or task.measured(*known), **(details if few else {}), **self.model.told()}

    def told(self) -> Json:
        """What `dev.json` holds of the best weights, which the model has: their metrics, and what a report shows of them."""
        outputs = predict.outputs_of(self.model, self.encoded, self.longest) if self.outputs is None else self.outputs
        task = self._settled().optioned(self.state["options"])
        found, why = judgement.safely(task, outputs, self.rows.targets, self.encoded, self.longest)
        if why:
            progress.say(why)
        dev = self.state["dev"] | found
        little = judgement.too_little(task, dev, self.run.description["settings"])
        others = [line for line in self.state["remarks"] if not little or line != dev.get("collapsed")]
        self.state["remarks"] = [*others, *little]
        return dev | {"remarks": self.state["remarks"]}

    def take(self, directory: Path) -> None:
        """Give the model its best weights; what their constraint writes goes into the run's directory."""
        best = Safetensors(self.best)
        assign(best, names(self.model))
        files.write_json(directory / "dev.json", self.told())
        if self.constraint is not None:
            kept = [name for name in best.names() if name.startswith(PREFIX)]
            self.constraint.finish(directory, {name.removeprefix(PREFIX): best.read(name) for name in kept})


class BestOfTasks(Best):
    """Metrics on the dev rows of several tasks after an epoch; the best weights are those of the largest mean of the tasks' own
    metrics, an error counted negative.

    Args:
        model: the model that is trained.
        tasks: task -> its dev rows and its metric.
        run, patience: as of BestWeights.
    """

    def __init__(
        self, model: HeadedModel, tasks: Mapping[str, BestWeights], run: Run, patience: int | None = None
    ) -> None:
        super().__init__(model, run, patience)
        self.tasks = dict(tasks)

    def __call__(self, step: int) -> tuple[dict[str, float], bool]:
        measured = {name: each.measured() for name, each in self.tasks.items()}
        mean = statistics.fmean(self._value(name, metrics) for name, (_, metrics) in measured.items())
        best = self.state["best"]
        if best is None or not math.isfinite(best) or mean > best:
            chosen = {name: each.chosen(*measured[name]) for name, each in self.tasks.items()}
            self.keep({"best": mean, "step": step, "tasks": chosen})
        else:
            self.state = self.state | {"worse": self.state["worse"] + 1}
        logs = {f"dev/{name}/{metric}": x for name, (_, found) in measured.items() for metric, x in found.items()}
        return logs | {"dev/mean": mean}, self.stopped

    def _value(self, name: str, metrics: Mapping[str, float]) -> float:
        task = self.tasks[name].task
        return metrics[task.metric] * (-1 if task.how.better(task.metric, 0.0, 1.0) else 1)

    def of(self, task: str) -> BestWeights:
        """The evaluation of one task, with what was chosen for it by the best weights."""
        each = self.tasks[task]
        each.state = self.state["tasks"][task]
        return each

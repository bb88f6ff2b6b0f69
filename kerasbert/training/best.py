"""Evaluation on dev rows that keeps the best weights beside the checkpoints."""

from pathlib import Path
from typing import Any

from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.layers.naming import names, values
from kerasbert.storage import files
from kerasbert.tasks import predict
from kerasbert.tasks.batches import Encoded
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import Rows, Task
from kerasbert.training.constraints import Constraint
from kerasbert.training.trainer import assign

MOST = 50  # labels, of which every checkpoint holds a confusion table
PREFIX = "projection/"  # of the tensors that a constraint keeps with the best weights


class BestWeights:
    """Metrics on the dev rows after an epoch; keeps the best weights and decides when to stop.

    Args:
        model: the model that is trained.
        task: says which metric chooses.
        encoded: the dev texts.
        rows: the dev rows with their targets.
        longest: int, tokens of the longest text.
        folder: the run's directory.
        patience: int, evaluations without a better metric before it stops; None for no stop.
        constraint: says which weights count; its tensors are kept with them.
    """

    def __init__(
        self,
        model: TaskModel,
        task: Task,
        encoded: Encoded,
        rows: Rows,
        longest: int,
        folder: Path,
        patience: int | None = None,
        constraint: Constraint | None = None,
    ):
        self.model, self.task, self.rows, self.longest = model, task, rows, longest
        self.encoded, self.patience, self.constraint = encoded, patience, constraint
        self.best = folder / "checkpoints" / "best.safetensors"
        self.state: dict[str, Any] = {"best": None, "step": 0, "worse": 0}

    def __call__(self, step: int) -> tuple[dict[str, float], bool]:
        outputs = predict.outputs_of(self.model, self.encoded, self.longest)
        task = self.task.how.settled(self.task, self.model.heads)
        kind, metrics = task.how, task.measured(outputs, self.rows.targets, self.encoded)
        value = metrics[self.task.metric]
        if self.constraint is not None and not self.constraint.complete(step):
            pass
        elif kind.better(self.task.metric, value, self.state["best"]):
            known = outputs, self.rows.targets
            remarks, tuned = kind.remarks(task, *known), kind.tuned(task, *known, self.encoded)
            chosen = {name: each for name, each in tuned.options.items() if task.options.get(name) != each}
            self.state = {"best": value, "step": step, "worse": 0, "remarks": remarks, "options": chosen}
            self.state["dev"] = self._told(tuned, outputs, {} if chosen else metrics)
            self._keep()
        else:
            self.state = self.state | {"worse": self.state["worse"] + 1}
        stop = self.patience is not None and self.state["worse"] >= self.patience
        return {f"dev/{name}": number for name, number in metrics.items()}, stop

    def _told(self, task: Task, outputs: Any, metrics: dict[str, float]) -> dict[str, Any]:
        """What `dev.json` holds: the metrics of the best weights, by label too, of at most MOST labels.

        Args:
            metrics: of these outputs; empty where the task's options were chosen since.
        """
        known = outputs, self.rows.targets, self.encoded
        details = task.how.details(task, *known)
        few = len(details.get("labels", ())) <= MOST
        return {"metrics": metrics or task.measured(*known), **(details if few else {}), **self.model.told()}

    def _keep(self) -> None:
        weights = values(self.model)
        if self.constraint is not None:
            weights |= {PREFIX + name: value for name, value in self.constraint.tensors().items()}
        with files.new_file(self.best) as part:
            write_safetensors(part, {name: value.shape for name, value in weights.items()}, weights.__getitem__)

    def take(self, directory: Path) -> None:
        """Give the model its best weights; what their constraint writes goes into the run's directory."""
        best = Safetensors(self.best)
        assign(best, names(self.model))
        if "dev" in self.state:  # a run of an older version went on
            files.write_json(directory / "dev.json", self.state["dev"])
        if self.constraint is not None:
            kept = [name for name in best.names() if name.startswith(PREFIX)]
            self.constraint.finish(directory, {name.removeprefix(PREFIX): best.read(name) for name in kept})

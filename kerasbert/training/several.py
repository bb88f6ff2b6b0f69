"""Fine-tuning on several tasks in one run: MT-DNN (Liu et al., 2019), and PALs (Stickland and Murray, 2019)."""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from kerasbert import checkpoints, registry
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.encoder import Encoder
from kerasbert.objectives.base import Objective
from kerasbert.options import configured
from kerasbert.storage import files
from kerasbert.storage.json_view import Json
from kerasbert.tasks.load import load
from kerasbert.tasks.several import TasksObjective, beside, marked
from kerasbert.tasks.tables import Data
from kerasbert.tasks.task import Task, find_task
from kerasbert.training import runs, sampling
from kerasbert.training.best_weights import BestOfTasks
from kerasbert.training.config import TasksConfig
from kerasbert.training.early import check_together
from kerasbert.training.feed import Feed
from kerasbert.training.finetune import FineTuning
from kerasbert.training.job import Job, run
from kerasbert.training.precision import precision, resolved
from kerasbert.training.runs import Run
from kerasbert.training.sampling import earlier, task_order
from kerasbert.training.step import WHOLE, distribute
from kerasbert.training.text_feed import Texts

Mixture = Mapping[str, Data] | Sequence[tuple[str | Task, Data]]  # tasks and the rows of each
FOLDER = "tasks"  # of a run: a model directory for each task
OWN = "pals."  # before the fields of the Spec that are of each task


@configured(TasksConfig)
def finetune_tasks(
    model: str | os.PathLike | keras.Model,
    tasks: Mixture,
    config: TasksConfig,
) -> dict[str, keras.Model]:
    """Train one encoder and a head for each task together; a batch holds rows of one task (Liu et al., 2019, section 3).

    Evaluated once an epoch; the weights with the best mean of the tasks' own metrics are kept, an error counts negative.
    The run leaves a model directory for each task in `out`/tasks, which every command and `kb.load` take, and in `out` the
    shared encoder. They share nothing on the disk, so that one of them can be copied alone.

    With `changes={"pals.width": 204}` each task has projected attention layers beside every block (`layers.pals`), and the
    encoder is shared but for them; sampling="annealed" is that paper's. The model of a task then has its own PALs alone.

    Differs: a task of pairs has the head of the others, a linear map, in the place of MT-DNN's stochastic answer network
    (section 3, "Pairwise Text Classification Output"), and QNLI is a classification, not a ranking.

    Args:
        model: a model or run directory, or an encoder with `.tokenizer`.
        tasks: name of a task -> its data, or a list of (name or Task, data); data as of `finetune`.
        {options}

    Returns:
        task -> its model with the best weights. `glue/sst2` is called `sst2` here, in the logs and in `out`.

    Raises:
        InputError: before anything is written: as of `finetune`, two tasks of one name, fewer updates than tasks.
    """
    return run(SeveralTasks(model, tasks, config))


class SeveralTasks(Job):
    """The rows of each task, as `FineTuning` has them, and the encoder that learns them all."""

    kind = "finetune_tasks"
    config: TasksConfig

    def __init__(
        self,
        model: str | os.PathLike | keras.Model,
        tasks: Mixture,
        config: TasksConfig,
    ) -> None:
        sampling.check(config.sampling)
        check_together(config)
        self.config = config
        changes = dict(config.changes or {})
        self.own = {path: value for path, value in changes.items() if path.startswith(OWN)}
        others = dataclasses.replace(config, changes={path: changes[path] for path in changes if path not in self.own})
        self.parts = {name: OneOfSeveral(name, model, task, data, others) for name, task, data in named(tasks)}
        self.first = next(iter(self.parts.values()))
        self.strategy, self.devices = self.first.strategy, self.first.devices
        self.config = resolved(config, self.strategy, model)

    def build(self) -> Objective:
        config, parts = self.config, self.parts.values()
        self.first = next((part for part in parts if part.task.how.pooler), self.first)  # it may need a new pooler
        self.first.load()
        self.shared = self.first.encoder
        for part in parts:
            part.encoder, part.new_pooler = self.shared, part is self.first and part.new_pooler
            part.name, part.digest = self.first.name, self.first.digest
        batches = [part.encode() for part in parts]
        self.config = config = config.settled(sum(batches))
        if config.updates < len(parts):
            raise InputError(
                f"{config.updates} updates are too few for {len(parts)} tasks, expected one for each: --steps"
            )
        rows = [len(part.train.units(part.task.how.together)) for part in parts]
        self.order = task_order(rows, batches, config.updates, config.sampling, config.seed, **config.mixture)
        keras.utils.set_random_seed(config.seed)
        for number, part in enumerate(parts):
            part.config, part.updates = config, int((self.order == number).sum())
            if self.own:
                part.encoder = self._beside()
        self.programs = {name: part.program() for name, part in self.parts.items()}
        self.whole = TasksObjective(self.shared, self.programs)
        return self.whole

    def _beside(self) -> Encoder:
        """The encoder of a task: the shared one, and PALs of its own."""
        if self.shared.spec.pals.width:
            raise InputError(
                f"{self.first.name} has PALs already, of one task: start from the model that it was made of"
            )
        with precision(self.config.precision):
            return beside(self.shared, self.own)

    def frozen(self) -> Sequence[str]:
        return self.first.frozen()

    def description(self) -> Json:
        about: Json = self.first.description()
        shared = {name: about[name] for name in ("model", "init", "length", "patience")}
        shared |= {name: about[name] for name in ("pooler", "graph") if name in about}
        shared["changes"] = {**about["changes"], **self.own}
        tasks = {name: part.told() for name, part in self.parts.items()}
        mixture = {"mixture": self.config.mixture} if self.config.mixture else {}
        return shared | {"tasks": tasks, "sampling": self.config.sampling, **mixture}

    def rows(self) -> runs.DataPlaces:
        sources = {name: part.split.sources.items() for name, part in self.parts.items()}
        return runs.DataPlaces({f"{name}/{split}": each for name, of in sources.items() for split, each in of})

    def model(self) -> checkpoints.ModelParts:
        about = {"tokenizer": self.shared.tokenizer, "plugin": registry.plugin_of(self.shared)}
        return checkpoints.ModelParts(self.shared, self.first.name, self.whole.model.heads, **about)

    def lines(self) -> Iterable[str]:
        for number, (name, part) in enumerate(self.parts.items()):
            yield from (f"{name}: {line}" for line in part.lines())
            updates = int((self.order == number).sum())
            yield f"{name}: {len(part.train.rows)} training rows, {updates} of {len(self.order)} updates"

    def feed(self, program: Objective, run: Run) -> Feed:
        return TasksFeed({name: part.feed(program, run) for name, part in self.parts.items()}, self.order, self.devices)

    def evaluation(self, program: Objective, run: Run) -> "BestOfTasks":
        judges = {name: part.evaluation(self.programs[name], run) for name, part in self.parts.items()}
        return BestOfTasks(program.model, judges, run, self.config.patience)

    def trained(self, evaluation: "BestOfTasks") -> None:
        self.told = {name: evaluation.of(name).told() for name in self.parts}
        for name, part in self.parts.items():
            part.trained(evaluation.of(name))

    def finish(self, run: Run) -> None:
        for name, part in self.parts.items():
            with files.new_directory(self._folder(name), replace=True, inside=True) as folder:
                checkpoints.write_model(folder, part.model())
                made = {name: run.description[name] for name in ("made", "strategy") if name in run.description}
                files.write_json(folder / "run.json", part.described() | made)
                files.write_json(folder / "dev.json", self.told[name])

    def left(self, run: Run) -> dict[str, keras.Model]:
        return {name: load(self._folder(name)) for name in self.parts}

    def _folder(self, name: str) -> Path:
        return Path(self.config.out) / FOLDER / name


class OneOfSeveral(FineTuning):
    """The rows of one task of several, and its head.

    Args:
        called: name of the task in the run. The others are FineTuning's.
    """

    def __init__(
        self, called: str, model: str | os.PathLike | keras.Model, task: str | Task, data: Data, config: TasksConfig
    ) -> None:
        self.called, self.judged = called, f"{called}, dev"
        try:
            super().__init__(model, task, data, config)
        except InputError as error:
            raise InputError(f"{called}: {error}") from error

    def begun(self, task: Task) -> Json | None:
        whole = super().begun(task)
        settings = whole["settings"] if whole else {}
        told = settings.get("tasks", {}).get(self.called)
        if told is None:
            return None
        shared = {name: settings[name] for name in ("length", "pooler", "seed") if name in settings}
        own = {name: told[name] for name in ("task", "data", "lengths", "first_lengths") if name in told}
        return {"settings": {**shared, **own}, "held_out": told["held_out"]}

    def told(self) -> Json:
        """What run.json of the run holds of the task."""
        about = self.description()
        told = {name: about[name] for name in ("task", "data", "lengths", "first_lengths") if name in about}
        return told | {"held_out": self.split.held_out}

    def described(self) -> Json:
        """run.json of the task's own directory: which rows it has learnt from, as `runs.rows_of` takes them."""
        settings = {"steps": self.config.updates, "data": self.split.digests, "seed": self.config.seed}
        about = {"format": runs.FORMAT, "kind": "rewritten", "settings": settings}
        return about | runs.DataPlaces(self.split.sources, self.split.held_out).to_json()


class TasksFeed(Feed):
    """Batches of several tasks, each of rows of one.

    Args:
        feeds: task -> its batches.
        order: int [steps], number of the task of each update.
        devices: tf.distribute.Strategy.
    """

    def __init__(self, feeds: Mapping[str, Texts], order: np.ndarray, devices: tf.distribute.Strategy) -> None:
        self.feeds, self.devices = dict(feeds), devices
        self.shapes = sum(feed.shapes for feed in feeds.values())
        self.epoch = sum(feed.epoch for feed in feeds.values())
        self.tasks = [list(feeds)[number] for number in order]
        self.places = earlier(order)
        parts, shares = (
            [feed.parts[0] for feed in feeds.values()],
            np.bincount(order, minlength=len(feeds)) / len(order),
        )
        tokens = float(sum(share * part.tokens for share, part in zip(shares, parts, strict=True)))
        self.parts = [dataclasses.replace(parts[0], tokens=tokens)]

    def batches(self, step: int) -> Iterator[Mapping[str, Tensor]]:
        reading: dict[str, Iterator[dict[str, np.ndarray]]] = {}
        for task, place in zip(self.tasks[step:], self.places[step:], strict=True):
            if task not in reading:
                reading[task] = self.feeds[task].arrays(int(place))
            yield distribute(self._marked(next(reading[task]), task), self.devices)

    def batch(self, step: int) -> tuple[dict[str, np.ndarray], list[tuple[str, int]]]:
        task = self.tasks[step]
        arrays, origins = self.feeds[task].batch(int(self.places[step]))
        return self._marked(arrays, task), origins

    def open_shapes(self) -> list[Mapping[str, tuple[int | None, ...]]]:
        rows = (self.parts[0].batch,)
        return [marked(each, task, rows) for task, feed in self.feeds.items() for each in feed.open_shapes()]

    def _marked(self, arrays: dict[str, np.ndarray], task: str) -> dict[str, np.ndarray]:
        return marked(arrays, task, np.zeros(self.parts[0].batch, "int32"))


def named(tasks: Mixture) -> list[tuple[str, Task, Data]]:
    """(name in the run, task, data) of each task.

    Raises:
        InputError: no tasks, an unknown one, two of one name.
    """
    if not isinstance(tasks, Iterable):
        raise InputError(f"tasks is a {type(tasks).__name__}, expected each with its data: {{'glue/sst2': 'SST-2'}}")
    pairs = list(tasks.items() if isinstance(tasks, Mapping) else tasks)
    if not pairs or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        what = "no tasks" if not pairs else f"tasks hold {next(iter(pairs))!r:.60}"
        raise InputError(f"{what}, expected each with its data: {{'glue/sst2': 'SST-2', 'ner': 'wnut17'}}")
    found: list[tuple[str, Task, Data]] = []
    for task, data in pairs:
        known = find_task(task)
        name = known.name.rpartition("/")[2]
        if name in [other for other, _, _ in found] or name in WHOLE:
            what = "two tasks are" if name not in WHOLE else "a task is"
            raise InputError(
                f"{what} called {name!r}, expected names of their own: give another by Task(name=...), or by register_task "
                "in a --plugin"
            )
        found.append((name, known, data))
    return found

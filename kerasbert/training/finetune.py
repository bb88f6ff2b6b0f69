"""Fine-tuning and evaluation of a text task."""

import dataclasses
import functools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from kerasbert import checkpoints, progress, registry, report
from kerasbert import spec as specs
from kerasbert.checkpoints import adapters, source
from kerasbert.checkpoints.adapters import merged_directory
from kerasbert.data.dialects import current, default_reading
from kerasbert.errors import InputError
from kerasbert.inputs import numbers
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.naming import names
from kerasbert.lazy import Module
from kerasbert.objectives.base import Objective
from kerasbert.options import configured
from kerasbert.storage import files, places, steady
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.tasks import predict
from kerasbert.tasks.batches import Lengths, encode_texts
from kerasbert.tasks.load import held_task, task_of
from kerasbert.tasks.model import TaskObjective
from kerasbert.tasks.tables import Data
from kerasbert.tasks.task import Task
from kerasbert.tasks.token_cache import TokenCache
from kerasbert.text import knowledge
from kerasbert.training import callbacks, freezing, initial_encoder, perturbed
from kerasbert.training.best_weights import BestWeights
from kerasbert.training.config import FinetuneConfig, LabelledConfig, check_rows
from kerasbert.training.constraints import Constraint
from kerasbert.training.early import check_head, check_labels, check_train, declared, kept_labels
from kerasbert.training.job import Job, check_local, run
from kerasbert.training.precision import precision, resolved
from kerasbert.training.runs import DataPlaces, Run, check_place, run_in
from kerasbert.training.splits import split
from kerasbert.training.strategy import on_one_machine
from kerasbert.training.strategy import strategy as find_strategy
from kerasbert.training.text_feed import Texts, lengths_for

few_shot = Module("kerasbert.training.few_shot")  # which calls `finetune`
NO_HEAD = "the model has no head {}, which pretraining learns: a new one starts at random"


@configured(FinetuneConfig)
def finetune(
    model: str | os.PathLike | keras.Model, task: str | Task, data: Data, config: FinetuneConfig
) -> keras.Model:
    """Train an encoder and a head on a task; evaluated once an epoch, the best weights are kept.

    Args:
        model: a model or run directory, or an encoder with `.tokenizer`.
        task: name of a task or a Task.
        data: a folder with train and dev files, (train, dev), {"train", "dev"}, or one file, of which a tenth is held
            out. In the place of a file rows in memory: a DataFrame, a dict of columns, a list of dicts or of tuples
            (text, label).
        {options}

    Returns:
        the task's model with the best weights, `.task`, `.labels`, `.tokenizer`.

    Raises:
        InputError: before anything is written: files, columns, labels, settings, another run at out.
    """
    return (
        few_shot.few_shot(model, task, data, config) if config.few_shot else run(FineTuning(model, task, data, config))
    )


class FineTuning(Job):
    """A task's rows and the encoder that learns it."""

    kind = "finetune"
    config: FinetuneConfig
    judged = "dev"  # before what is said of the best weights
    made: tuple[str, ...] = ()  # what is told of another network that was made of the encoder
    texts: type[Texts] = Texts

    def __init__(
        self, model: str | os.PathLike | keras.Model, task: str | Task, data: Data, config: FinetuneConfig
    ) -> None:
        check_local("finetune", config.out)
        if not isinstance(model, str | os.PathLike):
            predict.check_one(model)
        check_place(config.out, config.overwrite, inputs=[model, data, config.graph])
        callbacks.check(config.callbacks)
        self.config, self.cache = config, token_cache(config)
        task, self.changes = declared(task, config)
        self.strategy, self.constraint = on_one_machine("finetune", config.strategy), config.constraint
        self.config = config = resolved(config, self.strategy, model)
        self.given, self.start = model, initial_encoder.named(model) if isinstance(model, str | os.PathLike) else ""
        self.source = source.directory(model) if isinstance(model, str | os.PathLike) else model
        self.begins = steady.Files([self.source])  # it is read in parts, the texts are tokenized between them
        self.before, family = held_task(self.source, task.how)
        self.graph = None if config.graph is None else knowledge.graph_of(config.graph)
        family = family if self.graph is None else registry.with_tree(family)
        task = task.how.of_family(task.how.started(task, self.before), family)
        # before the first operation of TensorFlow, after which a CPU can no longer be divided
        self.devices = find_strategy(self.strategy)
        self.old = self.begun(task)
        self._read(task, data, model)
        assert self.split.train is not None  # `check_train` refuses data without it
        assert self.split.dev is not None  # `split` holds rows out
        self.train_rows, self.dev_rows = self.split.train, self.split.dev
        if config.keep_head:
            self.task = _with_head_of(self.source, self.split.task)
        else:
            self.task = self.split.task.how.fitted(
                self.split.task, self.split.sources["train"], self.train_rows.targets
            )

    def _read(self, task: Task, data: Data, model: str | os.PathLike | keras.Model) -> None:
        """The rows, and how their tables were read."""
        config = self.config
        with default_reading(config.reading):
            kept = kept_labels(self.source) if config.keep_head else ()
            self.split, self.reading = split(task, data, begun=self.old, start=model, order=kept), current().to_json()
        if (config.delimiter or config.columns) and not any(isinstance(s, Path) for s in self.split.sources.values()):
            raise InputError("delimiter and columns are of files, received rows in memory: leave them out")
        check_train(self.split, data)

    def begun(self, task: Task) -> Json | None:
        """What run.json holds of the run that goes on with these rows, or None."""
        return None if self.config.overwrite else run_in(self.config.out)

    def build(self) -> Objective:
        self.load()
        self.config = self.config.settled(self.encode())
        self.updates = self.config.updates
        keras.utils.set_random_seed(self.config.seed)
        return self.program()

    def load(self) -> None:
        """The encoder to begin from."""
        config, old = self.config, self.old
        self.encoder, self.name, self.digest = initial_encoder.encoder(self.source, self.changes, config)
        self._made()
        asked = registry.family_of(self.encoder).settings_for(self.encoder.spec, self.task.how.answers)
        if asked != self.encoder.spec:
            self.encoder = initial_encoder.changed(
                self.encoder, specs.differing(asked, self.encoder.spec), self.name, config
            )
        begun_with = "new" if old is None else old["settings"].get("pooler")
        self.new_pooler = (
            not config.keep_head
            and self.task.how.pooler
            and initial_encoder.lacks_pooler(self.encoder, self.name)
            and begun_with == "new"
        )
        if self.new_pooler:
            self.encoder = initial_encoder.changed(self.encoder, {"pooler": True}, self.name, config)
        if config.reinit:
            self.encoder = initial_encoder.renewed(self.encoder, config.reinit, self.name, config)
        reads_tree, tokenizer = registry.family_of(self.encoder).reads_tree, self.encoder.tokenizer
        if self.graph is None and reads_tree and tokenizer is not None and tokenizer.knowledge is None:
            self.graph = knowledge.KnowledgeGraph()
        if self.graph is not None:
            self.encoder, self.name = initial_encoder.with_graph(self.encoder, self.graph, self.name, config)

    def _made(self) -> None:
        """Train what the kind makes of the encoder, where it is another network."""
        held = functools.partial(initial_encoder.head, self.source)
        keras.utils.set_random_seed(self.config.seed)
        with precision(self.config.precision):
            made = self.task.how.begun(self.task, self.encoder, held)
        if made is self.encoder:
            return
        self.made = (f"a {made.model_name} is made of {self.name}", *(() if held("mlm") else (NO_HEAD.format("mlm"),)))
        if self.config.keep_head:
            raise InputError(f"keep_head is given and {self.made[0]}, another network: leave it out")
        self.encoder, self.name = made, made.model_name

    def encode(self) -> int:
        """Make rows of the texts; returns the updates of an epoch."""
        config, old = self.config, self.old
        self.longest = _longest(self.encoder, config.length, old, self.task.length if config.keep_head else None)
        known = None if self.encoder.tokenizer is None else self.encoder.tokenizer.knowledge
        if self.graph is not None and known is not None:
            known.check(self.longest, where=str(config.graph))
        declared = (*predict.declared(self.encoder, self.task.how), *self.task.how.targets_read)
        settings = numbers(declared, self.encoder.tokenizer, self.task.settings)
        reads = {"kind": self.task.how, "declared": declared, "settings": settings}
        reads |= {"longest": self.longest, "cache": self.cache}
        self.train, self.dev = (
            encode_texts(self.encoder.tokenizer, rows.texts, what=None if config.quiet else name, **reads)
            for name, rows in (("train", self.train_rows), ("dev", self.dev_rows))
        )
        # an epoch is of rows: a text may be several, which stay together for some kinds
        epoch = len(self.train.units(self.task.how.together))
        check_rows(config, epoch)
        return -(-epoch // config.batch)

    @functools.cached_property
    def lengths(self) -> Lengths:
        """The lengths that batches are padded to.

        They are kept with the run: a weight's dropout depends on the length of its row.
        """
        if self.old is not None:
            kept = self.old["settings"]
            return Lengths(kept["lengths"] and tuple(kept["lengths"]), tuple(kept.get("first_lengths", ())))
        return lengths_for(self.train, self.task, self.config, self.encoder, self.longest, self.strategy)

    def program(self) -> TaskObjective:
        """The task's losses, with a new head or the one that is kept."""
        with precision(self.config.precision):
            program = perturbed.objective(self.encoder, self.task, self.config.way)
        self.heads = program.model.heads
        self.brought = set(self.heads) if self.config.keep_head else self.wanted & self.held
        for head in sorted(self.brought):
            if isinstance(self.source, Path):
                checkpoints.load_weights(self.source, self.heads[head], f"heads/{head}/")
                continue
            given, own = getattr(self.given, "heads")[head], names(program.model)  # noqa: B009 (of a model)
            if not isinstance(given, Mapping):  # of an imported encoder arrays by name
                given = {weight.path.partition(f"{head}/")[2]: weight for weight in given.weights}
            for name, value in given.items():
                own[f"heads/{head}/{name}"].assign(value)
        self.begins.check()
        return program

    @property
    def wanted(self) -> set[str]:
        """Names of the heads that the kind goes on with."""
        return set(self.task.how.goes_on(self.before)) & set(self.heads)

    @functools.cached_property
    def held(self) -> set[str]:
        """Names of the heads that the model has that it begins from, of pretraining or of a task."""
        if not isinstance(self.source, Path):
            return set(getattr(self.given, "heads", ()))
        names = checkpoints.read_tensors(self.source).names()
        return {name.split("/")[1] for name in names if name.startswith("heads/")}

    def frozen(self) -> Sequence[str]:
        about = {"freeze": self.config.freeze, "constraint": self.constraint}
        about |= {"pooler": "new"} if self.new_pooler else {}
        return freezing.patterns_of(self.encoder.spec, about)

    def description(self) -> Json:
        config = self.config
        about = {
            "model": self.name,
            "init": self.digest,
            "task": dataclasses.replace(self.task, length=None).to_json(),
            "data": self.split.digests,
            "length": self.longest,
            "lengths": self.lengths.every,
            "patience": config.patience,
            "changes": self.changes,
        }
        about |= {"first_lengths": self.lengths.first} if self.lengths.first else {}
        about |= {"reading": self.reading} if self.reading else {}
        about |= {"pooler": "new"} if self.new_pooler else {}
        if origin := self.origin:
            about["source"] = dict(origin)
        about |= {} if self.graph is None else {"graph": self.graph.digest}
        about |= {"reinit": config.reinit} if config.reinit else {}
        if config.way is not None:
            about["adversarial"] = {"name": config.adversarial, **specs.to_dict(config.way)}
        return about | ({"keep_head": True} if config.keep_head else {})

    @property
    def origin(self) -> Mapping[str, str] | None:
        """The name and the commit on the Hugging Face hub that the encoder comes from; None of another."""
        return checkpoints.read_model_json(self.source).source if isinstance(self.source, Path) else None

    def rows(self) -> DataPlaces:
        return DataPlaces(self.split.sources, self.split.held_out, self.train.length_quantiles())

    def model(self) -> checkpoints.ModelParts:
        return checkpoints.ModelParts(
            self.encoder,
            self.name,
            self.heads,
            self.encoder.tokenizer,
            task=self.task.to_json() | {"length": self.longest},
            labels=[*self.task.labels.values()],
            plugin=registry.plugin_of(self.encoder),
        )

    def lines(self) -> Iterable[str]:
        lines = [*self.split.lines, *self.train.told("train: ", self.longest), *self.dev.told("dev: ", self.longest)]
        new = "the model has no pooler (a masked LM has none): a new one starts at random, as in transformers"
        lines = [*self.made, *([new] if self.new_pooler else []), *lines]
        lines = lines if self.graph is None else [*lines, *self.graph.told()]
        if self.graph is not None and not len(self.graph):
            lines.append("graph: without a triple a K-BERT is a BERT (--graph FILE gives it triples)")
        if missing := sorted(self.wanted - self.brought):
            lines = [NO_HEAD.format(", ".join(missing)), *lines]
        if self.before.get("kind") and self.held and not (self.brought or self.config.keep_head):
            name = self.before.get("name", self.before["kind"])
            fits = self.before["kind"] == self.task.kind and {*self.task.labels.values()} <= {*kept_labels(self.source)}
            told = " (its labels fit: --keep-head, keep_head=True, goes on with it)" if fits else ""
            lines = [f"starts from the encoder of {self.given}; its head, of {name}, is left out{told}", *lines]
        return lines

    def feed(self, program: Objective, run: Run) -> Texts:
        self.cache.write()
        source = self.split.sources["train"]
        about = self.train, self.task, self.train_rows.targets, self.config, self.longest, self.devices, source
        return self.texts(*about, lengths=self.lengths)

    def begin(self, run: Run) -> None:
        run.description["start"] = self.start  # kept when the run ends; no setting, for a folder may be moved
        super().begin(run)

    def evaluation(self, program: Objective, run: Run) -> BestWeights:
        held = self.dev, self.dev_rows, self.longest, run, self.config.patience, self.constraint
        return BestWeights(program.model, self.task, *held)

    def finish(self, run: Run) -> None:
        spec = self.encoder.spec
        if not hasattr(spec, "base") or spec == spec.base:
            return
        with files.new_directory(Path(run.directory) / "adapter", replace=True, inside=True) as folder:
            adapters.write_adapter(folder, self.model(), pooler=self.new_pooler)

    def trained(self, evaluation: BestWeights) -> None:
        for line in evaluation.state.get("remarks", ()):
            progress.say(f"{self.judged}, best weights: {line}", quiet=self.config.quiet)
        options = evaluation.state.get("options", {})
        self.task = self.task.optioned(options)
        for name, value in options.items():
            progress.say(f"{self.judged}, best weights: {name} is {value}", quiet=self.config.quiet)
        mix = {name: value for name, value in evaluation.state.get("dev", {}).items() if name == "layers"}
        for title, header, cells in report.label_tables(mix):
            progress.say(
                f"{self.judged}, best weights: {title}\n{report.table(header, cells)}", quiet=self.config.quiet
            )


def go_on(
    run: str | os.PathLike, data: Data, constraint: Constraint, task: str | Task | None, purpose: str, **settings: Any
) -> keras.Model:
    """Fine-tune a fine-tuned model further under a constraint, keeping its task and its head; with `task` also an encoder.

    Raises:
        InputError: an encoder without a task; `purpose` says what the task is wanted for.
    """
    if task is None:
        run = merged_directory(run)
        task = task_of(checkpoints.read_model_json(run))
        if task is None:
            raise InputError(f"{run} is not fine-tuned: give the task to {purpose} it for, or fine-tune it first")
        settings |= {"keep_head": True}
    return finetune(run, task, data, constraint=constraint, **settings)


def token_cache(config: LabelledConfig) -> TokenCache:
    """Where the tokens of a run's texts are kept: in the folder that was asked for, else in the run's directory."""
    folder = Path(config.out) / "cache" if config.cache is None else places.check_within(config.cache)
    return TokenCache(folder, always=config.cache is not None, quiet=config.quiet)


def _longest(encoder: Encoder, length: int | None, old: JsonMap | None, before: int | None) -> int:
    """Tokens of the longest text of a run.

    Args:
        length: as asked for, or None.
        old: run.json of the run that goes on.
        before: of the head that is kept.
    """
    most, own = predict.positions(encoder), old["settings"]["length"] if old else None
    if length is None:
        length = min(own or before or 128, most or math.inf)
    return predict.longest(encoder, length)


def _with_head_of(model: str | os.PathLike | keras.Model, task: Task) -> Task:
    """The task in the unit of a head that is kept; refuse one that was trained for something else."""
    info = checkpoints.read_model_json(model) if isinstance(model, str | os.PathLike) else None
    if info is None or info.task is None:
        raise InputError("keep_head needs the directory of a fine-tuned model, received another model")
    check_head(model, info.task, task)
    check_labels(model, task, info.labels or ())
    kept = task_of(info)
    assert kept is not None  # there is one in `info`
    if task.layers not in ("last", kept.layers):
        raise InputError(
            f"the head of {model} reads layers {kept.layers!r}, received {task.layers!r}: leave layers out"
        )
    same = {name: getattr(kept, name) for name in ("mean", "std", "length", "hidden_layer", "layers")}
    same |= {name: {**getattr(kept, name), **getattr(task, name)} for name in ("settings", "options")}
    return dataclasses.replace(task, **same)

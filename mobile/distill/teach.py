"""`distill`: a teacher's directory, a student, texts or records -> a run directory as fine-tuning or pretraining leaves it."""

import dataclasses
import math
import os
from collections.abc import Iterable
from typing import Any

import keras

from kerasbert import inputs, registry
from kerasbert import spec as specs
from kerasbert.checkpoints import ModelInfo, ModelParts
from kerasbert.data.records import MANIFEST, Records
from kerasbert.errors import InputError
from kerasbert.layers.heads import HeadedModel
from kerasbert.objectives.base import Objective
from kerasbert.options import configured
from kerasbert.storage import files
from kerasbert.storage.json_view import Json
from kerasbert.tasks.answer_tables import inputs_of
from kerasbert.tasks.batches import encode_texts
from kerasbert.tasks.load import task_of
from kerasbert.tasks.tables import Data
from kerasbert.tasks.task import Task, joined
from kerasbert.training import finetune
from kerasbert.training.best_weights import BestWeights
from kerasbert.training.config import check_rows
from kerasbert.training.constraints import Constraint
from kerasbert.training.feed import Feed, RecordsFeed, verify
from kerasbert.training.held_out import HeldOut
from kerasbert.training.job import Job, check_local, run
from kerasbert.training.phases import make_phases
from kerasbert.training.precision import precision, resolved
from kerasbert.training.runs import DataPlaces, Run, check_place, run_in
from kerasbert.training.splits import split
from kerasbert.training.strategy import strategy as find_strategy
from . import models
from .program import Imitation, LabelImitation, TokenImitation
from .recipes import DistillConfig, check_taught, find_recipe
from .student_start import copy_encoder
from .texts import TextsFeed, teachers_answers


@configured(DistillConfig)
def distill(
    teacher: str | os.PathLike, student: str | int | os.PathLike, data: Data, config: DistillConfig
) -> keras.Model:
    """Train a student to imitate a teacher; the same call goes on where a killed one stopped.

    Left out: the augmentation of TinyBERT (words replaced by a masked LM or GloVe neighbours) - give the texts as
    `unlabelled` - and the progressive transfer of MobileBERT, layer by layer: all layers learn at once.

    Args:
        teacher: the directory of a fine-tuned model where data are texts, of an encoder with its masked-LM head where
            they are records.
        student: `family/size`, a model directory (of the teacher's tokenizer), a number of the teacher's layers or "half"
            of them (DistilBERT: every second layer is copied). Copied embeddings may be narrower than the teacher's:
            `changes={"embeddings.width": 64}` (a truncated SVD).
        data: the task's train and dev files, as `kb.finetune` takes them; or records made by `kerasbert data`.
        {options}

    Returns:
        the student, loaded from `out`: the task's model with the best weights on dev; an encoder where no loss reads a
        head, whose last weights it has.

    Raises:
        InputError: before anything is written: recipe, vocabularies, layers, heads, files, settings, another run at out.
    """
    records = isinstance(data, str | os.PathLike) and os.path.isfile(os.path.join(data, MANIFEST))
    return run((OnRecords if records else OnTexts)(teacher, student, data, config))


def go_on(
    run: str | os.PathLike,
    data: Data,
    constraint: Constraint,
    task: str | Task | None,
    purpose: str,
    teacher: str | os.PathLike | None = None,
    **settings: Any,
) -> keras.Model:
    """Train a fine-tuned model further under a constraint: by the labels, or with a teacher by what that answers.

    Args:
        run, data, constraint, task, purpose: as of `training.finetune.go_on`.
        teacher: directory of a model of the task, such as `run` itself.
        settings: of `finetune`, with a teacher of `distill`.

    Raises:
        InputError: task and teacher; else as those two.
    """
    if teacher is None:
        return finetune.go_on(run, data, constraint, task, purpose, **settings)
    if task is not None:
        raise InputError("task and teacher are both given, expected one: the task is the teacher's")
    return distill(teacher, run, data, constraint=constraint, **settings)


class Distilling(Job):
    """A teacher and a student; what they read is a subclass's."""

    kind = "distill"
    config: DistillConfig
    task: Task | None = None

    def __init__(
        self, teacher: str | os.PathLike, student: str | int | os.PathLike, data: Data, config: DistillConfig
    ) -> None:
        check_place(config.out, config.overwrite, inputs=[teacher, student, data, config.unlabelled])
        self.constraint = config.constraint
        self.recipe = find_recipe(config.recipe, config.losses, config.temperature, config.layers)
        self.teacher, self.info, self.tokenizer = models.find_teacher(teacher)
        own = {"changes": config.changes, "copy_layers": config.copy_layers}
        self.student = models.find_student(student, self.teacher, self.tokenizer, **own)
        both = self.student, self.teacher
        self.longest = min(registry.family(each.family).longest(each.spec) or math.inf for each in both)
        self.strategy = finetune.on_one_machine("distill", config.strategy)
        # before the data: rows are held out by TensorFlow, which fixes the devices
        self.devices = find_strategy(self.strategy)
        self.config = self.read(data, teacher, resolved(config, self.strategy, student))

    def read(self, data: Data, teacher: str | os.PathLike, config: DistillConfig) -> DistillConfig:
        """Read and check the data -> the options with the steps settled."""
        raise NotImplementedError

    def program(self, student: HeadedModel, teacher: HeadedModel) -> Objective:
        """The program of two built models."""
        raise NotImplementedError

    def build(self) -> Objective:
        recipe, seed = self.recipe, self.config.seed
        with precision(self.config.precision):
            teacher = models.build_encoder(self.teacher, self.tokenizer)
            teacher = models.with_head(teacher, self.task, recipe.answers, self.tokenizer)
            models.load_heads(self.teacher, teacher)
            keras.utils.set_random_seed(seed)
            encoder = models.build_encoder(self.student, self.tokenizer)
            if self.student.layers is not None:
                copy_encoder(encoder, teacher.encoder, self.student.layers)
            self.pupil = models.with_head(encoder, self.task, recipe.answers, self.tokenizer)
            models.start_heads(self.student, self.pupil, teacher, self.config.quiet)
            return self.program(self.pupil, teacher)

    def description(self) -> Json:
        return {
            "teacher": self.teacher.digest,
            "model": self.student.name,
            "spec": specs.to_dict(self.student.spec),
            "init": self.student.digest,
            "copied": list(self.student.layers) if self.student.layers else None,
            "recipe": self.recipe.to_json(),
        }

    def begin(self, run: Run) -> None:
        """Nothing: a distillation's checkpoints are not opened as models."""

    def model(self) -> ModelParts:
        return ModelParts(self.pupil.encoder, self.student.name, self.pupil.heads, self.tokenizer)


class OnTexts(Distilling):
    """A task's texts, with labels and without."""

    task: Task

    def read(self, data: Data, teacher: str | os.PathLike, config: DistillConfig) -> DistillConfig:
        check_local("distill", config.out)
        task = _task(self.info, registry.metric_name(config.metric))
        begun = None if config.overwrite else run_in(config.out)
        if (length := config.length) is None:
            length = (begun["settings"]["length"] if begun else None) or task.length or 128
        elif not 3 <= length <= self.longest:
            raise InputError(f"length must be 3 to {self.longest}, the positions of both models. Received: {length}")
        self.longest, self.cache = min(length, self.longest), finetune.token_cache(config)
        self.split = split(task, data, begun=begun, start=teacher, dev=self.recipe.answers)
        # the unit of the teacher's head, which its student's may be copied from
        self.task = dataclasses.replace(self.split.task, length=None)
        self._check()
        self.unlabelled = list(inputs.listed(config.unlabelled))
        unlabelled = [text for path in self.unlabelled for text in inputs_of(self.task, path)]
        self.texts, self.labelled = joined(self.task, self.split.train, unlabelled)
        families = (registry.family(model.family) for model in (self.teacher, self.student))
        declared = tuple({each.name: each for family in families for each in family.inputs}.values())
        numbers = inputs.numbers(declared, self.tokenizer, self.task.settings)
        reads = {"longest": self.longest, "kind": self.task.how, "declared": declared, "settings": numbers}
        reads |= {"cache": self.cache, "what": None if config.quiet else ""}
        self.train = encode_texts(self.tokenizer, self.texts.texts, **reads)
        self.dev = encode_texts(self.tokenizer, self.split.dev.texts, **reads) if self.split.dev else None
        rows = len(self.train.units(self.task.how.together))
        check_rows(config, rows)
        if self.dev is None:
            config = dataclasses.replace(config, evaluate_every=0)
        return config.settled(-(-rows // config.batch))

    def _check(self) -> None:
        """Refuse losses that the rows and the task do not go with."""
        check_taught(self.task.kind, self.task.how.taught, self.recipe.losses)
        if self.split.train is None and "labels" in self.recipe.losses:
            raise InputError("the loss labels needs a train file with labels, none was given: leave the loss out")
        if self.recipe.answers and self.split.dev is None:
            raise InputError(
                "no dev file and no train file to hold rows out of: name one, the best weights are chosen on it"
            )

    def description(self) -> Json:
        return super().description() | {
            "task": self.task.to_json(),
            "data": self.split.digests,
            "unlabelled": [files.sha256(path) for path in self.unlabelled],
            "length": self.longest,
        }

    def rows(self) -> DataPlaces:
        return DataPlaces(self.split.sources, self.split.held_out)

    def lines(self) -> Iterable[str]:
        told = [("train", self.train), ("dev", self.dev)]
        return self.split.lines + [line for name, part in told if part for line in part.told(f"{name}: ", self.longest)]

    def program(self, student: HeadedModel, teacher: HeadedModel) -> Objective:
        return LabelImitation(student, teacher, self.recipe)

    def model(self) -> ModelParts:
        if self.dev is None:  # nothing of the task is trained
            return super().model()
        task = self.task.to_json() | {"length": self.longest}
        return dataclasses.replace(super().model(), task=task, labels=self.pupil.labels)

    def feed(self, program: Imitation, run: Run) -> Feed:
        self.cache.write()
        answers = None
        if not program.recipe.compared and not program.recipe.inner:
            program.teacher = None  # labels alone
        elif not program.recipe.inner:
            digest = f"{run.description['settings']['teacher']} {self.config.precision}"
            answers = teachers_answers(program.teacher, self.train, self.longest, self.cache.folder, digest)
            if answers is not None:
                program.teacher = None
        rows = dataclasses.replace(self.texts, targets=self.task.how.scaled(self.task, self.texts.targets))
        return TextsFeed(self.train, rows, self.labelled, answers, self.config, self.longest, self.devices, self.task)

    def evaluation(self, program: Imitation, run: Run) -> BestWeights | HeldOut | None:
        if self.dev is None or self.split.dev is None:
            return None
        held = self.dev, self.split.dev, self.longest, run
        return BestWeights(program.student, self.task, *held, constraint=self.constraint)


class OnRecords(Distilling):
    """Records, by masked LM."""

    def read(self, data: str | os.PathLike, teacher: str | os.PathLike, config: DistillConfig) -> DistillConfig:
        if config.unlabelled:
            raise InputError("unlabelled texts and records: records are unlabelled text already, leave one out")
        self.records = Records(data)
        verify([self.records])
        self.objective = registry.objective(models.OBJECTIVE)
        masking = specs.to_dict(config.masking) if dataclasses.is_dataclass(config.masking) else config.masking or {}
        self.masking = self.objective.settings_for(self.student.spec, masking)
        self.records.check(self.tokenizer, self.teacher.spec.embeddings.vocabulary)
        if self.records.length > self.longest:
            raise InputError(
                f"records have {self.records.length} tokens, the models {self.longest} positions: set embeddings.positions"
            )
        sizes = [model.spec.embeddings.vocabulary for model in (self.student, self.teacher)]
        if sizes[0] != sizes[1] and {"soft", "logits"} & set(self.recipe.losses):
            raise InputError(
                f"the student has {sizes[0]} token embeddings, the teacher {sizes[1]}, expected as many where token logits "
                "are compared: set embeddings.vocabulary"
            )
        if config.steps is None:
            raise InputError("steps is missing: on records a distillation is counted in updates")
        check_rows(config, self.records.examples)
        return config.settled(epoch=0)

    def description(self) -> Json:
        settings = {"objective_settings": specs.to_dict(self.masking)}
        return super().description() | settings | {"data": self.records.digest}

    def program(self, student: HeadedModel, teacher: HeadedModel) -> Objective:
        seed = self.config.seed
        batches = self.objective.without_model(self.tokenizer, self.masking, seed)
        return TokenImitation(student, teacher, self.recipe, batches=batches)

    def feed(self, program: Objective, run: Run) -> Feed:
        config, data = self.config, str(self.records.directory)
        phases = make_phases([{}], data=data, batch=config.batch, accumulate=config.accumulate)
        settings = {"steps": config.updates, "seed": config.seed, "devices": self.devices}
        return RecordsFeed(phases, [self.records], program, **settings)


def _task(info: ModelInfo, metric: str | None) -> Task:
    """The teacher's task, with another metric where given."""
    task = task_of(info)
    if task is None:
        raise InputError("the teacher has no task and data are no records: fine-tune it first, or give records")
    task = dataclasses.replace(task, metric=metric or task.metric)
    task.how.check_metric(task)
    return task

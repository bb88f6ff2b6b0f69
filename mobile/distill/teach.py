"""`distill`: a teacher's directory, a student, texts or records -> a run directory as fine-tuning or pretraining leaves it."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from kerasbert import files, inputs, registry
from kerasbert import spec as specs
from kerasbert.data.records import MANIFEST, Records
from kerasbert.data.remote import is_remote
from kerasbert.errors import InputError
from kerasbert.inputs import Input
from kerasbert.mobile.distill import models
from kerasbert.mobile.distill.program import LabelImitation, TokenImitation
from kerasbert.mobile.distill.recipes import Distillation, find_recipe
from kerasbert.mobile.distill.start import copy_encoder
from kerasbert.mobile.distill.texts import TextsFeed, joined, read_unlabelled, teachers_answers
from kerasbert.objectives.masked_lm import MaskedLM
from kerasbert.tasks.batches import encode_texts
from kerasbert.tasks.load import load, task_of
from kerasbert.tasks.task import Task
from kerasbert.training import finetune, results
from kerasbert.training.feed import RecordsFeed, verify
from kerasbert.training.optimizers import take_average
from kerasbert.training.phases import make_phases
from kerasbert.training.projection import Projection
from kerasbert.training.runs import open_run, run_in
from kerasbert.training.splits import Split, split
from kerasbert.training.step import check_batch
from kerasbert.training.strategy import described, parse, resolve
from kerasbert.training.strategy import strategy as find_strategy
from kerasbert.training.trainer import Habits, Settings, Trainer, precision


def distill(
    teacher: str | os.PathLike,
    student: str | int | os.PathLike,
    data: Any,
    *,
    out: str | os.PathLike,
    recipe: str | Distillation = "soft",
    losses: Mapping[str, float] | None = None,
    temperature: float | None = None,
    layers: Sequence[int] | None = None,
    unlabelled: Sequence[str | os.PathLike] = (),
    changes: Mapping[str, Any] | None = None,
    copy_layers: bool = False,
    masking: MaskedLM | Mapping[str, Any] | None = None,
    epochs: int = 3,
    steps: int | None = None,
    batch: int = 32,
    length: int | None = None,
    metric: str | None = None,
    strategy: str = "auto",
    cache: str | os.PathLike | None = None,
    projection: Projection | None = None,
    save_every: int | None = None,
    log_every: int = 10,
    overwrite: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Any:
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
        out: the run directory.
        recipe: a name in RECIPES or a Distillation; losses, temperature, layers: over its own.
        unlabelled: files of text for the teacher to label: lines, or tables with the task's columns.
        changes: Spec fields over a named student's. copy_layers: start it from the teacher's layers.
        masking: settings of the masked LM, on records. epochs: int, over texts; steps: int, updates in their place.
        length: int, longest text in tokens; by default that of the teacher's task, or 128.
        metric: what the best weights are chosen by; the task's own by default, of
            which the first of equal ones are kept: with "loss" a student of a perfect score goes on learning.
        cache: folder of the teacher's answers, `out`/cache by default; they are float32, worked out before the first
            update where no layers are compared and they are at most 2^28 bytes.
        projection: what the student's weights must satisfy, such as `prune.Magnitude`; the best weights are among those that do.
        settings: of `training.trainer.Settings`: learning_rate (1e-4), warmup (a tenth), precision, seed and so on.

    Returns:
        the student, loaded from `out`: the task's model with the best weights on dev; an encoder where no loss reads a
        head, whose last weights it has.

    Raises:
        InputError: before anything is written: recipe, vocabularies, layers, heads, files, settings, another run at out.
    """
    chosen = find_recipe(recipe, losses, temperature, layers)
    source, info, tokenizer = models.find_teacher(teacher)
    target = models.find_student(student, source, tokenizer, changes=changes, copy_layers=copy_layers)
    longest = min(target.spec.longest, source.spec.longest)
    strategy = resolve(strategy)
    if parse(strategy).kind == "multiworker":
        raise InputError("distill runs on one machine: choose another --strategy than 'multiworker'")
    devices = find_strategy(strategy)  # before the data: rows are held out by TensorFlow, which fixes the devices
    if isinstance(data, str | os.PathLike) and os.path.isfile(os.path.join(data, MANIFEST)):
        job = _OnRecords(data, unlabelled, masking, chosen, source, target, tokenizer, longest)
    else:
        if is_remote(out):
            raise InputError(f"distill writes to a local folder, received {out}: copy the finished run to the address")
        task = _task(info, metric)
        begun = None if overwrite else run_in(out)
        if length is None:
            length = (begun["settings"].get("length") if begun else None) or task.length or 128
        rows = split(task, data, begun=begun, start=teacher, seed=settings.get("seed", 0), dev=chosen.answers)
        declared = {each.name: each for model in (source, target) for each in registry.family(model.family).inputs}
        job = _OnTexts(rows, unlabelled, chosen, tokenizer, min(length, longest), cache, tuple(declared.values()))
    total = job.steps(epochs, batch) if steps is None else steps
    warmup = settings.pop("warmup", None)
    made = Settings(
        **{"learning_rate": 1e-4, "warmup": total // 10 if warmup is None else warmup} | settings,
        steps=total,
        batch=batch,
    )
    description = made.to_json() | {
        "warmup": warmup,
        "teacher": source.digest,
        "model": target.name,
        "spec": specs.to_dict(target.spec),
        "init": target.digest,
        "copied": list(target.layers) if target.layers else None,
        "recipe": chosen.to_json(),
        **job.description(),
    }
    if projection is not None:
        description["projection"] = projection.describe(models.build_encoder(target, tokenizer), total)
    with devices.scope():
        check_batch(made.batch, made.accumulate, devices.num_replicas_in_sync)
        with precision(made.precision):
            master, pupil = _models(job, chosen, source, target, tokenizer, made.seed, quiet)
            program = job.program(pupil, master, chosen, made.seed)
        rows = {"data": job.sources, "held_out": job.held_out}
        run = open_run(out, "distill", description, **rows, overwrite=overwrite, strategy=strategy, quiet=quiet)
        if run.finished:
            results.say(f"{run.directory} is finished: {total} steps were made", quiet)
            with run.local() as folder:
                return load(folder)
    results.say(described(strategy), quiet)
    for line in job.lines:
        results.say(line, quiet)
    feed = job.feed(program, made, devices, run)
    evaluation = job.evaluation(program, run)
    per_epoch = job.steps(1, batch) if evaluation else 0
    habits = Habits(save_every or 1000, log_every, min(per_epoch, total), quiet=quiet)
    if evaluation is not None:
        evaluation.projection = projection
    trainer = Trainer(program, made, devices, run, feed, evaluate=evaluation, habits=habits, projection=projection)
    trainer.train()
    if evaluation is not None:
        return finetune.finish(pupil, evaluation, run, target.name, job.longest)
    take_average(trainer.core.optimizer)
    results.write(run, encoder=pupil.encoder, heads=pupil.heads, name=target.name, tokenizer=tokenizer)
    with run.local() as folder:
        return load(folder)


def go_on(
    run: str | os.PathLike,
    data: Any,
    projection: Projection,
    task: Any,
    purpose: str,
    teacher: str | os.PathLike | None = None,
    **settings: Any,
) -> Any:
    """Train a fine-tuned model further under a projection: by the labels, or with a teacher by what that answers.

    Args:
        run, data, projection, task, purpose: as of `training.finetune.go_on`.
        teacher: directory of a model of the task, such as `run` itself. settings: of `finetune`, with a teacher of `distill`.

    Raises:
        InputError: task and teacher; else as those two.
    """
    if teacher is None:
        return finetune.go_on(run, data, projection, task, purpose, **settings)
    if task is not None:
        raise InputError("task and teacher are both given, expected one: the task is the teacher's")
    return distill(teacher, run, data, projection=projection, **settings)


def _task(info: Any, metric: str | None) -> Task:
    """The teacher's task, with another metric where given."""
    task = task_of(info)
    if task is None:
        raise InputError("the teacher has no task and data are no records: fine-tune it first, or give records")
    task = dataclasses.replace(task, metric=metric or task.metric)
    task.how.check_metric(task)
    return task


def _models(job: Any, recipe: Distillation, source: Any, target: Any, tokenizer: Any, seed: int, quiet: bool) -> tuple:
    """Teacher and student with their heads."""
    master = models.with_head(models.build_encoder(source, tokenizer), job.task, recipe.answers, tokenizer)
    models.load_heads(source, master)
    keras.utils.set_random_seed(seed)
    encoder = models.build_encoder(target, tokenizer)
    if target.layers is not None:
        copy_encoder(encoder, master.encoder, target.layers)
    pupil = models.with_head(encoder, job.task, recipe.answers, tokenizer)
    models.start_heads(target, pupil, master, quiet)
    return master, pupil


class _OnTexts:
    """A task's texts, with labels and without."""

    def __init__(
        self,
        rows: Split,
        unlabelled: Any,
        recipe: Distillation,
        tokenizer: Any,
        longest: int,
        cache: Any,
        declared: tuple[Input, ...],
    ):
        # the unit of the teacher's head, which its student's may be copied from
        self.task = task = dataclasses.replace(rows.task, length=None)
        if not task.how.answers.labelled and "soft" in recipe.losses:
            raise InputError(
                f"the loss soft compares classes, the teacher's task is a {task.how.name}: take logits (--loss logits=1)"
            )
        self.longest, self.cache, self.dev = longest, cache, rows.dev
        self.sources, self.digests, self.held_out = rows.sources, rows.digests, rows.held_out
        if rows.train is None and "labels" in recipe.losses:
            raise InputError("the loss labels needs a train file with labels, none was given: leave the loss out")
        if recipe.answers and rows.dev is None:
            raise InputError(
                "no dev file and no train file to hold rows out of: name one, the best weights are chosen on it"
            )
        self.unlabelled = [unlabelled] if isinstance(unlabelled, str | os.PathLike) else list(unlabelled)
        self.rows, self.labelled = joined(self.task, rows.train, read_unlabelled(self.task, self.unlabelled))
        numbers = inputs.numbers(declared, tokenizer, task.settings)
        reads = {"kind": self.task.how, "declared": declared, "settings": numbers}
        self.encoded = encode_texts(tokenizer, self.rows.texts, longest, **reads)
        self.encoded_dev = encode_texts(tokenizer, self.dev.texts, longest, **reads) if self.dev else None
        told = [("train", self.encoded), ("dev", self.encoded_dev)]
        self.lines = rows.lines + [line for name, part in told if part for line in part.told(f"{name}: ", longest)]

    def steps(self, epochs: int, batch: int) -> int:
        return epochs * (-(-len(self.rows.texts) // batch) if isinstance(batch, int) and batch > 0 else 1)

    def description(self) -> dict[str, Any]:
        return {
            "task": self.task.to_json(),
            "data": self.digests,
            "unlabelled": [files.sha256(path) for path in self.unlabelled],
            "length": self.longest,
        }

    def program(self, pupil: Any, master: Any, recipe: Distillation, seed: int) -> LabelImitation:
        return LabelImitation(pupil, master, recipe)

    def feed(self, program: Any, settings: Settings, devices: Any, run: Any) -> TextsFeed:
        answers = None
        if not program.recipe.compared and not program.recipe.inner:
            program.teacher = None  # labels alone
        elif not program.recipe.inner:
            folder = Path(self.cache) if self.cache else run.directory / "cache"
            digest = f"{run.description['settings']['teacher']} {settings.precision}"
            answers = teachers_answers(program.teacher, self.encoded, self.longest, folder, digest)
            if answers is not None:
                program.teacher = None
        rows = dataclasses.replace(self.rows, targets=self.task.how.scaled(self.task, self.rows.targets))
        return TextsFeed(self.encoded, rows, self.labelled, answers, settings, self.longest, devices)

    def evaluation(self, program: Any, run: Any) -> finetune.Evaluation | None:
        if self.dev is None:
            return None
        return finetune.Evaluation(
            program.student, self.task, self.encoded_dev, self.dev, self.longest, run.directory, None
        )


class _OnRecords:
    """Records, by masked LM."""

    task = sources = held_out = None
    lines = ()

    def __init__(
        self,
        data: str | os.PathLike,
        unlabelled: Any,
        masking: Any,
        recipe: Distillation,
        source: models.Source,
        target: models.Source,
        tokenizer: Any,
        longest: int,
    ):
        if unlabelled:
            raise InputError("unlabelled texts and records: records are unlabelled text already, leave one out")
        self.records, self.tokenizer = Records(data), tokenizer
        verify([self.records])
        self.masking = masking if isinstance(masking, MaskedLM) else MaskedLM(**dict(masking or {}))
        self.records.check(tokenizer, source.spec.embeddings.vocabulary)
        if self.records.length > longest:
            raise InputError(
                f"records have {self.records.length} tokens, the models {longest} positions: set embeddings.positions"
            )
        sizes = [model.spec.embeddings.vocabulary for model in (target, source)]
        if sizes[0] != sizes[1] and {"soft", "logits"} & set(recipe.losses):
            raise InputError(
                f"the student has {sizes[0]} token embeddings, the teacher {sizes[1]}, expected as many where token logits "
                "are compared: set embeddings.vocabulary"
            )

    def steps(self, epochs: int, batch: int) -> int:
        raise InputError("steps is missing: on records a distillation is counted in updates")

    def description(self) -> dict[str, Any]:
        masking = {name: getattr(self.masking, name) for name in self.masking.__dataclass_fields__}
        return {"masking": masking, "data": self.records.digest}

    def program(self, pupil: Any, master: Any, recipe: Distillation, seed: int) -> TokenImitation:
        return TokenImitation(pupil, master, recipe, tokenizer=self.tokenizer, masking=self.masking, seed=seed)

    def feed(self, program: Any, settings: Settings, devices: Any, run: Any) -> RecordsFeed:
        phases = make_phases(
            [{}], data=str(self.records.directory), batch=settings.batch, accumulate=settings.accumulate
        )
        return RecordsFeed(phases, [self.records], program, steps=settings.steps, seed=settings.seed, devices=devices)

    def evaluation(self, program: Any, run: Any) -> None:
        return None

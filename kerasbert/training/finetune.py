"""Fine-tuning and evaluation of a text task."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from kerasbert import checkpoints, files, registry
from kerasbert.checkpoints import source
from kerasbert.checkpoints.directory import built
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.data.remote import is_remote
from kerasbert.errors import InputError
from kerasbert.inputs import numbers
from kerasbert.layers.naming import names, values
from kerasbert.tasks import predict
from kerasbert.tasks.batches import Encoded, encode_texts, epoch_order, training_batches
from kerasbert.tasks.load import load, task_of
from kerasbert.tasks.model import TaskProgram
from kerasbert.tasks.task import Rows, Task, find_task
from kerasbert.training import results
from kerasbert.training.feed import Feed, Part
from kerasbert.training.projection import Projection
from kerasbert.training.runs import Run, open_run, run_in
from kerasbert.training.splits import split
from kerasbert.training.step import check_batch, distribute
from kerasbert.training.strategy import described, parse, resolve
from kerasbert.training.strategy import strategy as find_strategy
from kerasbert.training.trainer import Habits, Settings, Trainer, assign, precision


def finetune(
    model: Any,
    task: str | Task,
    data: Any,
    *,
    out: str | os.PathLike,
    epochs: int = 3,
    steps: int | None = None,
    batch: int = 32,
    learning_rate: float = 5e-5,
    warmup: int | None = None,
    accumulate: int = 1,
    length: int | None = None,
    patience: int | None = None,
    precision: str = "float32",
    strategy: str = "auto",
    seed: int = 0,
    weight_decay: float = 0.01,
    clip: float = 1.0,
    optimizer: str = "adamw",
    optimizer_options: Mapping[str, Any] | None = None,
    schedule: str = "linear",
    schedule_options: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
    text_column: str | None = None,
    text_b_column: str | None = None,
    label_column: str | None = None,
    metric: str | None = None,
    language: str | None = None,
    save_every: int | None = None,
    log_every: int = 10,
    keep_every: int = 0,
    keep_head: bool = False,
    projection: Projection | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Any:
    """Train an encoder and a head on a task; evaluated once an epoch, the best weights are kept.

    Args:
        model: a model or run directory, or an encoder with `.tokenizer`.
        task: name of a task or a Task.
        data: a folder with train and dev files, (train, dev), {"train", "dev"}, or one file, of which a tenth is held
            out. In the place of a file rows in memory: a DataFrame, a dict of columns, a list of dicts or of tuples
            (text, label).
        out: the run directory.
        epochs: int; or steps: int, updates. batch: int, texts.
        length: int, longest text in tokens; it holds for every answer of the model. By default 128, with `keep_head` that
            of the task, and never more than the model's positions.
        warmup: int, updates; a tenth by default. patience: int, evaluations without a better metric before it stops.
        changes: dropout rates at dotted paths. text_column, text_b_column, label_column: names in the user's files.
        metric: what the best weights are chosen by. save_every: int, updates; once an epoch by default.
        keep_every: int, updates; the checkpoints of these are kept for good beside the newest two.
        language: of the texts, for a model that reads it (XLM); every answer of the model then takes it by default.
        keep_head: bool, go on with the head of a fine-tuned model directory instead of a new one.
        projection: what the weights must satisfy, such as pruning; the best weights are then among those that do.

    Returns:
        the task's model with the best weights, `.task`, `.labels`, `.tokenizer`.

    Raises:
        InputError: before anything is written: files, columns, labels, settings, another run at out.
    """
    if is_remote(out):
        raise InputError(f"finetune writes to a local folder, received {out}: copy the finished run to the address")
    chosen = find_task(task, text=text_column, text_b=text_b_column, label=label_column, metric=metric)
    chosen = chosen.called_with(language=language)
    chosen.how.check_metric(chosen)
    strategy = resolve(strategy)
    if parse(strategy).kind == "multiworker":
        raise InputError("finetune runs on one machine: choose another --strategy than 'multiworker'")
    start = model
    if isinstance(model, str | os.PathLike):
        model = source.directory(model)
    # before the first operation of TensorFlow, after which a CPU can no longer be divided
    devices = find_strategy(strategy)
    old = None if overwrite else run_in(out)
    rows = split(chosen, data, begun=old, start=start, seed=seed)
    if rows.train is None:
        place = data if isinstance(data, str | os.PathLike) else "data"
        raise InputError(f"{place} has no train file, expected train.tsv, train.csv or train.jsonl")
    chosen, train, dev = rows.task, rows.train, rows.dev
    if keep_head:
        chosen = _with_head_of(model, chosen)
    elif old is None or "held_out" in old:  # older runs go on with their numbers as they are
        chosen = chosen.how.fitted(chosen, rows.sources["train"], train.targets)
    per_epoch = -(-len(train.texts) // batch) if isinstance(batch, int) and batch > 0 else 1
    total = steps or epochs * per_epoch
    settings = Settings(
        steps=total,
        batch=batch,
        learning_rate=learning_rate,
        accumulate=accumulate,
        warmup=total // 10 if warmup is None else warmup,
        weight_decay=weight_decay,
        clip=clip,
        precision=precision,
        seed=seed,
        optimizer=optimizer,
        optimizer_options=dict(optimizer_options or {}),
        schedule=schedule,
        schedule_options=dict(schedule_options or {}),
    )
    with devices.scope():
        encoder, name, digest = _encoder(model, changes, settings.precision)
        begun_with = "new" if old is None else old["settings"].get("pooler")
        new_pooler = not keep_head and _lacks_pooler(encoder, name) and begun_with == "new"
        if new_pooler:
            encoder = _with_pooler(encoder, name, settings)
        longest = _longest(encoder, length, old, chosen.length if keep_head else None)
        # the warm-up that was asked for: a tenth of the steps grows with them
        description = settings.to_json() | {
            "warmup": warmup,
            "model": name,
            "init": digest,
            "task": dataclasses.replace(chosen, length=None).to_json(),
            "data": rows.digests,
            "length": longest,
            "patience": patience,
            "changes": dict(changes or {}),
        }
        if new_pooler:
            description["pooler"] = "new"
        if projection is not None:
            description["projection"] = projection.describe(encoder, total)
        if keep_head:
            description["keep_head"] = True
        check_batch(settings.batch, settings.accumulate, devices.num_replicas_in_sync)
        reads = {"kind": chosen.how, "declared": predict.declared(encoder)}
        reads["settings"] = numbers(reads["declared"], encoder.tokenizer, chosen.settings)
        encoded = [encode_texts(encoder.tokenizer, rows.texts, longest, **reads) for rows in (train, dev)]
        sources = {"data": rows.sources, "held_out": rows.held_out}
        run = open_run(out, "finetune", description, **sources, overwrite=overwrite, strategy=strategy, quiet=quiet)
        if run.finished:
            results.say(f"{run.directory} is finished: {total} steps were made", quiet)
            return load(run.directory)
        results.say(described(strategy), quiet)
        if new_pooler:
            results.say(
                "the model has no pooler (a masked LM has none): a new one starts at random, as in transformers", quiet
            )
        results.begin(
            run, encoder.spec, name, encoder.tokenizer, task=_task(chosen, longest), labels=[*chosen.labels.values()]
        )
        for line in [*rows.lines, *encoded[0].told("train: ", longest), *encoded[1].told("dev: ", longest)]:
            results.say(line, quiet)
        keras.utils.set_random_seed(settings.seed)
        with _precision(settings.precision):
            program = TaskProgram(encoder, chosen)
        if keep_head:
            for head, layer in program.model.heads.items():
                checkpoints.load_weights(model, layer, f"heads/{head}/")
    evaluation = Evaluation(program.model, chosen, encoded[1], dev, longest, run.directory, patience)
    evaluation.projection = projection
    feed = _Texts(encoded[0], chosen, train.targets, settings, longest, devices, rows.sources["train"])
    habits = Habits(
        save_every or min(1000, per_epoch), log_every, min(per_epoch, total), quiet=quiet, keep_every=keep_every
    )
    Trainer(program, settings, devices, run, feed, evaluate=evaluation, habits=habits, projection=projection).train()
    for line in evaluation.state.get("remarks", ()):
        results.say(f"dev, best weights: {line}", quiet)
    return finish(program.model, evaluation, run, name, longest)


def go_on(run: str | os.PathLike, data: Any, projection: Projection, task: Any, purpose: str, **settings: Any) -> Any:
    """Fine-tune a fine-tuned model further under a projection, with its task and its head; with `task` an encoder too.

    Raises:
        InputError: an encoder without a task; `purpose` says what the task is wanted for.
    """
    if task is None:
        run = source.directory(run)
        task = task_of(checkpoints.read_model_json(run))
        if task is None:
            raise InputError(f"{run} is not fine-tuned: give the task to {purpose} it for, or fine-tune it first")
        settings |= {"keep_head": True}
    return finetune(run, task, data, projection=projection, **settings)


def _task(task: Task, longest: int) -> dict[str, Any]:
    """What model.json says about the task."""
    return task.to_json() | {"length": longest}


_precision = precision
PROJECTION = "projection/"  # what a projection keeps with the best weights


def _encoder(model: Any, changes: Mapping[str, Any] | None, policy: str) -> tuple[Any, str, str]:
    """The encoder to train, its name, and the hash of its weights."""
    if set(changes or {}) - {"dropout", "attention.dropout"}:
        raise InputError(f"cannot change {', '.join(changes)} of trained weights: only dropout may change")
    if not isinstance(model, str | os.PathLike):
        encoder = getattr(model, "encoder", model)
        if changes or policy != "float32":
            raise InputError(
                "changes and precision apply to a model directory: save the encoder, or build it with them"
            )
        return encoder, encoder.model_name or registry.family_of(encoder).name, results.digest_of(encoder)
    info = checkpoints.read_model_json(model)
    with _precision(policy):
        encoder = registry.family(info.family).encoder(info.spec.derive(changes or {}))
        encoder.build()
        encoder.model_name = info.name
    checkpoints.load_weights(model, encoder)
    from kerasbert import text

    if (tokenizer := text.held_tokenizer(model)) is not None:
        encoder.tokenizer = tokenizer
    return encoder, info.name, results.digest(model)


def _lacks_pooler(encoder: Any, name: str) -> bool:
    """Whether the family has a pooler and this encoder, a masked LM's, has none."""
    return registry.family(name.partition("/")[0]).spec.pooler and not encoder.spec.pooler


def _with_pooler(encoder: Any, name: str, settings: Settings) -> Any:
    """The same encoder with a pooler that starts at random: others' classifiers have one, without it none is exported."""
    keras.utils.set_random_seed(settings.seed)
    with _precision(settings.precision):
        made = built(registry.family(name.partition("/")[0]), encoder.spec.derive({"pooler": True}), name)
    had = names(encoder)
    for weight, variable in names(made).items():
        if weight in had:
            variable.assign(had[weight])
    made.tokenizer, made.labels = encoder.tokenizer, encoder.labels
    return made


def _longest(encoder: Any, length: int | None, old: Mapping[str, Any] | None, before: int | None) -> int:
    """Tokens of the longest text of a run.

    Args:
        length: as asked for, or None. old: run.json of the run that goes on. before: of the head that is kept.
    """
    most, own = encoder.spec.longest, old["settings"].get("length") if old else None
    if length is None:
        length = min(own or before or 128, most)
    elif own == most < length:
        length = most  # older runs took a larger number for that
    return predict.longest(encoder, length)


def _with_head_of(model: Any, task: Task) -> Task:
    """The task in the unit of a head that is kept; refuse one that was trained for something else."""
    info = checkpoints.read_model_json(model) if isinstance(model, str | os.PathLike) else None
    if info is None or info.task is None:
        raise InputError("keep_head needs the directory of a fine-tuned model, received another model")
    had, wanted = list(info.labels or ()), list(task.labels.values())
    if (info.task.get("kind"), had) != (task.kind, wanted):
        raise InputError(
            f"the head of {model} is for {info.task.get('kind')} with labels {', '.join(had) or 'none'}, expected "
            f"{task.kind} with {', '.join(wanted) or 'none'}: leave keep_head out to train a new one"
        )
    kept = task_of(info)
    same = {name: getattr(kept, name) for name in ("mean", "std", "length", "hidden_layer")}
    same["settings"] = {**kept.settings, **task.settings}
    return dataclasses.replace(task, **same)


class _Texts(Feed):
    """Batches of encoded texts."""

    def __init__(
        self,
        encoded: Encoded,
        task: Task,
        targets: Any,
        settings: Settings,
        longest: int,
        devices: Any,
        path: Path,
    ):
        self.encoded, self.devices, self.path = encoded, devices, path
        self.targets = task.how.scaled(task, targets)
        self.arguments = {"batch": settings.batch, "longest": longest, "seed": settings.seed, "task": task}
        mean = float(np.mean([row.length for row in encoded.rows]))
        self.parts = [Part(settings.steps, settings.batch, settings.accumulate, tokens=settings.batch * mean)]

    def batches(self, step):
        made = training_batches(self.encoded, self.targets, start=step, **self.arguments)
        return (distribute(arrays, self.devices) for arrays in made)

    def batch(self, step):
        arrays = next(training_batches(self.encoded, self.targets, start=step, **self.arguments))
        epoch, place = divmod(step, -(-len(self.encoded.rows) // self.arguments["batch"]))
        order = epoch_order(self.encoded, self.arguments["batch"], self.arguments["seed"], epoch)
        # rows that fill up the batch come from nowhere and weigh nothing
        origins = [(str(self.path), int(self.encoded.owners[index])) for index in order[place]]
        return arrays, origins + [(str(self.path), -1)] * (self.arguments["batch"] - len(origins))


class Evaluation:
    """Metrics on the dev rows after an epoch; keeps the best weights beside the checkpoints and decides when to stop."""

    def __init__(
        self,
        model: Any,
        task: Task,
        encoded: Encoded,
        rows: Rows,
        longest: int,
        folder: Path,
        patience: int | None,
    ):
        self.projection: Projection | None = None  # says which weights count; its tensors are kept with them
        self.model, self.task, self.rows, self.longest = model, task, rows, longest
        self.encoded, self.best, self.patience = encoded, folder / "checkpoints" / "best.safetensors", patience
        self.state: dict[str, Any] = {"best": None, "step": 0, "worse": 0}

    def __call__(self, step: int) -> tuple[dict[str, float], bool]:
        outputs, kind = predict.outputs_of(self.model, self.encoded, self.longest), self.task.how
        found = kind.metrics(self.task, outputs, self.rows.targets, self.encoded)
        value = found[self.task.metric]
        if self.projection is not None and not self.projection.complete(step):
            pass
        elif kind.better(self.task.metric, value, self.state["best"]):
            remarks = kind.remarks(self.task, outputs, self.rows.targets)
            self.state = {"best": value, "step": step, "worse": 0, "remarks": remarks}
            self._keep()
        else:
            self.state = self.state | {"worse": self.state["worse"] + 1}
        stop = self.patience is not None and self.state["worse"] >= self.patience
        return {f"dev/{name}": number for name, number in found.items()}, stop

    def _keep(self) -> None:
        weights = values(self.model)
        if self.projection is not None:
            weights |= {PROJECTION + name: value for name, value in self.projection.tensors().items()}
        with files.new_file(self.best) as part:
            write_safetensors(part, {name: value.shape for name, value in weights.items()}, weights.__getitem__)


def finish(model: Any, evaluation: Evaluation, run: Run, name: str, longest: int) -> Any:
    """Write the model directory with the best weights -> the model, loaded from it."""
    best, task = Safetensors(evaluation.best), model.task
    assign(best, names(model))
    if evaluation.projection is not None:
        kept = [tensor for tensor in best.names() if tensor.startswith(PROJECTION)]
        tensors = {tensor.removeprefix(PROJECTION): best.read(tensor) for tensor in kept}
        evaluation.projection.finish(run.directory, tensors)
    results.write(
        run,
        encoder=model.encoder,
        heads=model.heads,
        name=name,
        tokenizer=model.tokenizer,
        task=_task(task, longest),
        labels=model.labels,
    )
    return load(run.directory)

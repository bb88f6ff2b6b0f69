"""Pretraining: records + an encoder + an objective -> a run directory."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from kerasbert import checkpoints, registry, text
from kerasbert import spec as specs
from kerasbert.data.records import Records
from kerasbert.errors import InputError
from kerasbert.objectives.masked_lm import MaskedLM, unigram_baseline
from kerasbert.tasks.load import load
from kerasbert.training import multiworker, results
from kerasbert.training.optimizers import check_rules, take_average
from kerasbert.training.preflight import preflight, warn_of_memory
from kerasbert.training.runs import open_run
from kerasbert.training.step import check_batch
from kerasbert.training.strategy import strategy as find_strategy
from kerasbert.training.trainer import Settings, Trainer, precision

TPU_LOOP = 100


def pretrain(
    model: Any,
    data: str | os.PathLike,
    *,
    steps: int,
    out: str | os.PathLike,
    batch: int = 256,
    strategy: str = "cpu",
    learning_rate: float = 1e-4,
    warmup: int | None = None,
    accumulate: int = 1,
    precision: str = "float32",
    seed: int = 0,
    weight_decay: float = 0.01,
    clip: float = 1.0,
    optimizer: str = "adamw",
    optimizer_options: Mapping[str, Any] | None = None,
    schedule: str = "linear",
    schedule_options: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
    masking: MaskedLM | Mapping[str, Any] | None = None,
    init: str | os.PathLike | None = None,
    save_every: int = 1000,
    log_every: int = 10,
    overwrite: bool = False,
    quiet: bool = False,
    plugin: Mapping[str, str] | None = None,
) -> Any:
    """Pretrain an encoder with its family's objective; the same call goes on where a killed one stopped.

    Args:
        model: `family/size`, a model directory (continued pretraining) or an encoder.
        data: records made by `kerasbert data`; their tokenizer is the model's.
        steps: int, updates. batch: int, sequences in a global batch. accumulate: int, micro-batches per update.
        out: the run directory. strategy: see `training.strategy`.
        learning_rate: float, peak of the schedule. warmup: int, updates; a tenth of the steps by default.
        optimizer, schedule: names, with options (`training.optimizers`, `training.schedules`). With `{"ema": 0.999}` the
            run leaves the moving average of the weights.
        precision: "float32", "mixed_bfloat16" or "mixed_float16".
        changes: Spec fields at dotted paths, over the named model's. A named model takes its vocabulary's size from the
            tokenizer unless `embeddings.vocabulary` is among them.
        masking: settings of the masked LM. init: a model directory to start from (the same as `model`=directory).
        save_every, log_every: int, updates.
        overwrite: start afresh where `out` holds another run.

    Returns:
        the trained encoder, with `.tokenizer`.

    Raises:
        InputError: before anything is written: records and model that disagree, settings out of range, another run at out.
    """
    settings = Settings(
        steps=steps,
        batch=batch,
        learning_rate=learning_rate,
        accumulate=accumulate,
        warmup=steps // 10 if warmup is None else warmup,
        weight_decay=weight_decay,
        clip=clip,
        precision=precision,
        seed=seed,
        optimizer=optimizer,
        optimizer_options=dict(optimizer_options or {}),
        schedule=schedule,
        schedule_options=dict(schedule_options or {}),
    )
    place = preflight(strategy, data=[data], out=out, batches=[(settings.batch, settings.accumulate)])
    masking = masking if isinstance(masking, MaskedLM) else MaskedLM(**(masking or {}))
    records = Records(data)
    tokenizer = text.load_tokenizer(os.path.join(records.directory, "tokenizer"))
    source = _Source(model, init, changes, tokenizer)
    for known in (tokenizer, source.tokenizer):
        records.check(known or tokenizer, source.spec.embeddings.vocabulary)
    positions = source.spec.embeddings.positions
    if positions and records.length > positions:
        raise InputError(
            f"records have {records.length} tokens, the model {positions} positions: set embeddings.positions"
        )

    devices = find_strategy(strategy)
    # the warm-up that was asked for: a tenth of the steps grows with them
    description = settings.to_json() | {
        "warmup": warmup,
        "model": source.name,
        "spec": specs.to_dict(source.spec),
        "init": source.digest,
        "objective": source.family.objective,
        "masking": {name: getattr(masking, name) for name in masking.__dataclass_fields__},
        "data": records.digest,
        "plugin": dict(plugin) if plugin else None,
    }
    with devices.scope():
        program = source.program(records, tokenizer, masking, settings)
        check_batch(settings.batch, settings.accumulate, devices)
        check_rules(settings.optimizer_options, program.model.trainable_variables)
        rows = settings.batch // (devices.num_replicas_in_sync * settings.accumulate)
        half = settings.precision != "float32"
        warn_of_memory(place, source.spec, program.model.count_params(), rows, records.length, half)
        chief = multiworker.is_chief(devices)
        if chief:
            run = open_run(out, "pretrain", description, overwrite=overwrite)
        multiworker.barrier(devices)
        if not chief:
            run = open_run(out, "pretrain", description)
    if run.finished:
        results.say(f"{run.directory} is finished: {steps} steps were made", quiet)
        return load(run.directory)
    if not quiet:
        base = unigram_baseline(records)
        results.say(
            f"unigram baseline of the masked tokens: loss {base['entropy']:.3f}, accuracy {base['accuracy']:.3f}", quiet
        )
    trainer = Trainer(
        program,
        settings,
        devices,
        run,
        lambda start: stream(records, program, settings, devices, start),
        save_every=save_every,
        log_every=log_every,
        loop=TPU_LOOP if strategy.startswith("tpu") else 1,
        quiet=quiet,
    )
    if not chief:
        multiworker.follow(trainer)
    trainer.train()
    take_average(trainer.core.optimizer)
    heads = program.model.heads
    if chief:
        results.write(run, encoder=source.encoder, heads=heads, name=source.name, tokenizer=tokenizer, plugin=plugin)
    multiworker.barrier(devices)
    source.encoder.tokenizer = tokenizer
    return source.encoder


def stream(
    records: Records, program: Any, settings: Settings, devices: tf.distribute.Strategy, start: int
) -> Iterator[Any]:
    """Batches from update `start` on, as the strategy takes them; each replica's batch has a static shape."""
    batches = records.dataset(settings.batch, seed=settings.seed, start_step=start).map(program.prepare)
    replicas = devices.num_replicas_in_sync
    if replicas == 1:
        return iter(batches.prefetch(2))

    def of_host(context: tf.distribute.InputContext) -> tf.data.Dataset:
        """The parts of this host's replicas, in their order."""
        count = replicas // context.num_input_pipelines
        here = slice(context.input_pipeline_id * count, (context.input_pipeline_id + 1) * count)
        parts = batches.map(lambda batch: {name: _split(value, replicas)[here] for name, value in batch.items()})
        return parts.unbatch().prefetch(2 * count)

    return iter(devices.distribute_datasets_from_function(of_host))


def _split(x: tf.Tensor, replicas: int) -> tf.Tensor:
    return tf.reshape(x, (replicas, x.shape[0] // replicas, *x.shape[1:]))


class _Source:
    """Where the encoder comes from: a name, a directory or an object."""

    def __init__(self, model: Any, init: Any, changes: Mapping[str, Any] | None, tokenizer: Any):
        self.directory, self.encoder, self.digest, self.tokenizer = init, None, None, None
        changes = dict(changes or {})
        if isinstance(model, str | os.PathLike) and os.path.isdir(model):
            if init is not None:
                raise InputError("both model and init are directories: give one")
            self.directory = model
        if self.directory is not None:
            info = checkpoints.read_model_json(self.directory)
            if isinstance(model, str) and model != str(self.directory) and registry.find(model)[0].name != info.family:
                raise InputError(f"{self.directory} holds a {info.family}, expected {model}: name its own model")
            shape = set(changes) - {"dropout", "attention.dropout"}
            if shape:
                raise InputError(
                    f"cannot change {', '.join(sorted(shape))} of trained weights: only dropout may change"
                )
            self.family, self.name = registry.family(info.family), info.name
            self.spec = info.spec.derive(changes)
            self.digest = results.digest(self.directory)
            if os.path.isdir(os.path.join(self.directory, "tokenizer")):
                self.tokenizer = text.load_tokenizer(os.path.join(self.directory, "tokenizer"))
        elif isinstance(model, str | os.PathLike):
            self.family, spec = registry.find(str(model))
            self.name = str(model)
            self.spec = spec.derive({"embeddings.vocabulary": tokenizer.size} | changes)
        else:
            if changes:
                raise InputError("changes apply to a named model; build the encoder with them instead")
            self.encoder, self.spec, self.tokenizer = model, model.spec, model.tokenizer
            self.family = next((f for f in registry.families().values() if type(model) is f.encoder), None)
            if self.family is None:
                raise InputError(f"no family has the encoder {type(model).__name__}: register one")
            self.name, self.digest = self.family.name, results.digest_of(model)

    def program(self, records: Records, tokenizer: Any, masking: MaskedLM, settings: Settings) -> Any:
        """The training program, built under the strategy's scope that is open."""
        keras.utils.set_random_seed(settings.seed)
        with precision(settings.precision):
            if self.encoder is None:
                self.encoder = self.family.encoder(self.spec)
                self.encoder.build()
            objective = registry.objective(self.family.objective)
            program = objective(
                self.encoder, tokenizer, pairs="next_label" in records.features, masking=masking, seed=settings.seed
            )
        if self.directory is not None:
            checkpoints.load_weights(self.directory, self.encoder)
            results.load_heads(self.directory, program.model.heads)
        return program

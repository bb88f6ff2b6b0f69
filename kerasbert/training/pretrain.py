"""Pretraining: records + an encoder + an objective -> a run directory."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from kerasbert import checkpoints, registry, text
from kerasbert import spec as specs
from kerasbert.checkpoints import source as sources
from kerasbert.data.records import Records
from kerasbert.errors import InputError
from kerasbert.objectives.masked_lm import MaskedLM, unigram_baseline
from kerasbert.tasks.load import load
from kerasbert.training import flops, multiworker, results
from kerasbert.training.feed import RecordsFeed, verify
from kerasbert.training.held_out import HeldOut, hold_out
from kerasbert.training.optimizers import check_rules, take_average
from kerasbert.training.phases import Phase, check_phases, make_phases
from kerasbert.training.preflight import preflight, warn_of_memory
from kerasbert.training.runs import open_run, run_in
from kerasbert.training.step import check_batch
from kerasbert.training.strategy import described, resolve
from kerasbert.training.strategy import strategy as find_strategy
from kerasbert.training.trainer import Habits, Settings, Trainer, precision

TPU_LOOP = 100


def pretrain(
    model: Any,
    data: str | os.PathLike,
    *,
    steps: int,
    out: str | os.PathLike,
    batch: int = 256,
    strategy: str = "auto",
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
    phases: Sequence[Phase | Mapping[str, Any]] | None = None,
    held_out: str | os.PathLike | None = None,
    evaluate_every: int = 0,
    save_every: int = 1000,
    log_every: int = 10,
    keep_every: int = 0,
    skip_bad_steps: int = 0,
    profile: tuple[int, int] | None = None,
    peak: float | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    plugin: Mapping[str, str] | None = None,
) -> Any:
    """Pretrain an encoder with its family's objective; the same call goes on where a killed one stopped.

    Args:
        model: `family/size`, a model directory (continued pretraining) or an encoder.
        data: records made by `kerasbert data`; their tokenizer is the model's.
        steps: int, updates. batch: int, sequences in a global batch. accumulate: int, micro-batches per update.
        out: the run directory.
        strategy: see `training.strategy`; by default the GPUs that are there, else the CPU.
        learning_rate: float, peak of the schedule. warmup: int, updates; a tenth of the steps by default.
        optimizer, schedule: names, with options (`training.optimizers`, `training.schedules`). With `{"ema": 0.999}` the
            run leaves the moving average of the weights.
        precision: "float32", "mixed_bfloat16" or "mixed_float16".
        changes: Spec fields at dotted paths, over the named model's. A named model takes its vocabulary's size from the
            tokenizer unless `embeddings.vocabulary` is among them.
        masking: settings of the masked LM, over the objective's own.
        init: a model directory to start from (the same as `model`=directory).
        phases: stretches of the run with their own records, batch, accumulate and masking (training.phases), such as 90% of
            the steps on records of 128 tokens and the rest on 512; what a phase leaves out is this call's.
        held_out: records for evaluation; evaluate_every: int, updates. With evaluate_every alone the last shard of the
            records is held out, or the last twentieth of the rows of a single shard.
        save_every, log_every: int, updates.
        keep_every: int, updates; the checkpoints of these are kept for good beside the newest two.
        skip_bad_steps, profile, peak: see `training.trainer.Habits`.
        overwrite: start afresh where `out` holds another run.

    Returns:
        the trained encoder, with `.tokenizer`.

    Raises:
        InputError: before anything is written: records and model that disagree, settings out of range, another run at out.
        NonFinite: loss or gradient is not finite.
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
    habits = Habits(save_every, log_every, evaluate_every, skip_bad_steps, profile, peak, quiet, keep_every)
    strategy = resolve(strategy)
    if not phases and batch % accumulate:
        raise InputError(
            f"batch {batch} is not a multiple of {accumulate} micro-batches: change --batch or --accumulate"
        )
    rows = [phase.to_json() if isinstance(phase, Phase) else phase for phase in phases or [{}]]
    stretches = make_phases(rows, data=os.fspath(data), batch=batch, accumulate=accumulate)
    check_phases(stretches, steps)
    sources = dict.fromkeys(phase.data for phase in stretches)
    place = preflight(strategy, data=sources, out=out, batches=[(phase.batch, phase.accumulate) for phase in stretches])
    opened = {path: Records(path) for path in sources}
    records = opened[stretches[0].data]
    tokenizer = text.load_tokenizer(os.path.join(records.directory, "tokenizer"))
    source = _Source(model, init, changes, tokenizer)
    if not isinstance(masking, MaskedLM):
        defaults = dict(source.objective.masking_of(source.spec))
        # a run that was begun keeps its own where nobody asks for another
        old = None if overwrite else run_in(out)
        begun = {} if old is None else old["settings"].get("masking", {})
        masking = MaskedLM(**(defaults | begun | dict(masking or {})))
    evaluated = _held_out(stretches, opened, held_out, evaluate_every)
    for held in {id(held): held for held in [*opened.values(), *(evaluated or [])]}.values():
        _check(held, tokenizer, source, records)
    languages = max((held.languages for held in opened.values()), key=len)
    if len(languages) > len(tokenizer.languages or ()):  # the run keeps the table of all its records
        tokenizer.languages = {name: number for number, name in enumerate(languages)}
    for phase in stretches:
        _check_units(phase.masked(masking), opened[phase.data])
    verify([*opened.values(), *(evaluated or [])], quiet)
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
        "phases": [phase.to_json() | {"data": opened[phase.data].digest} for phase in stretches] if phases else None,
        "held_out": _said(evaluated, held_out),
        "plugin": dict(plugin) if plugin else None,
    }
    with devices.scope():
        program = source.program(records, tokenizer, masking, settings)
        for phase in stretches:
            check_batch(phase.batch, phase.accumulate, devices.num_replicas_in_sync)
        check_rules(settings.optimizer_options, program.model.trainable_variables)
        for phase in stretches:
            rows = phase.batch // (devices.num_replicas_in_sync * phase.accumulate)
            size = program.model.count_params(), rows, opened[phase.data].length
            warn_of_memory(place, source.spec, *size, settings.precision != "float32")
        evaluate = HeldOut(stretches, evaluated, program, seed=seed, devices=devices) if evaluated else None
        chief = multiworker.is_chief(devices)
        if chief:
            run = open_run(out, "pretrain", description, overwrite=overwrite, strategy=strategy, quiet=quiet)
            if not run.finished:
                results.begin(run, source.spec, source.name, tokenizer, plugin=plugin)
        multiworker.barrier(devices)
        if not chief:
            run = open_run(out, "pretrain", description, strategy=strategy, quiet=True)
    if run.finished:
        results.say(f"{run.directory} is finished: {steps} steps were made", quiet)
        with run.local() as directory:
            return load(directory)
    if not quiet:
        results.say(described(strategy))
        base = unigram_baseline(records)
        results.say(
            f"unigram baseline of the masked tokens: loss {base['entropy']:.3f}, accuracy {base['accuracy']:.3f}", quiet
        )
    read = [opened[phase.data] for phase in stretches]
    feed = RecordsFeed(
        stretches,
        read,
        program,
        steps=steps,
        seed=settings.seed,
        devices=devices,
        flops=[_flops(source, phase, held, masking) for phase, held in zip(stretches, read)],
    )
    loop = TPU_LOOP if strategy.startswith("tpu") else 1
    trainer = Trainer(program, settings, devices, run, feed, evaluate=evaluate, habits=habits, loop=loop)
    trainer.train()
    take_average(trainer.core.optimizer)
    heads = program.model.heads
    if chief:
        results.write(run, encoder=source.encoder, heads=heads, name=source.name, tokenizer=tokenizer, plugin=plugin)
    multiworker.barrier(devices)
    source.encoder.tokenizer = tokenizer
    return source.encoder


def _held_out(
    phases: Sequence[Phase], opened: dict[str, Records], held_out: Any, evaluate_every: int
) -> list[Records] | None:
    """The records that each phase is evaluated on; `opened` loses what is held out of it."""
    if held_out is not None:
        return [Records(held_out)] * len(phases)
    if not evaluate_every:
        return None
    parts = {path: hold_out(records) for path, records in opened.items()}
    opened |= {path: kept for path, (kept, _) in parts.items()}
    return [parts[phase.data][1] for phase in phases]


def _said(evaluated: list[Records] | None, held_out: Any) -> str | None:
    """What run.json tells of the rows that are held out."""
    if not evaluated or held_out:
        return evaluated[0].digest if evaluated else None
    return "last rows" if any(held.first for held in evaluated) else "last shard"


def _check(records: Records, tokenizer: Any, source: "_Source", first: Records) -> None:
    """Refuse records that do not go with the model, or with the run's first ones."""
    for known in (tokenizer, source.tokenizer):
        records.check(known or tokenizer, source.spec.embeddings.vocabulary)
    positions = source.spec.longest
    if records.length > positions:
        raise InputError(
            f"records have {records.length} tokens, the model {positions} positions: set embeddings.positions"
        )
    known, held = getattr(source.spec.embeddings, "languages", 1), records.languages
    if 1 < known < len(held):
        raise InputError(
            f"records have {len(held)} languages ({', '.join(held)}), the model {known}: set embeddings.languages"
        )
    for place, other in (("", source.tokenizer and source.tokenizer.languages), (first.directory, first.languages)):
        differ = [pair for pair in zip(held, other or []) if pair[0] != pair[1]]
        if differ:
            raise InputError(
                f"records {records.directory} number {', '.join(f'{name} {number}' for number, name in enumerate(held))}; "
                f"{place or 'the model'} has {differ[0][1]} where they have {differ[0][0]}. Make all of a run's records "
                "with one --tokenizer, whose languages.json numbers them"
            )
    if records.features.keys() != first.features.keys():
        raise InputError(
            f"records {records.directory} have {', '.join(records.features)}, {first.directory} has "
            f"{', '.join(first.features)}: make all of a run's records with one --packing"
        )


def _check_units(masking: MaskedLM, records: Records) -> None:
    if masking.select == "entities" and "entities" not in records.manifest["settings"]:
        raise InputError(
            f"records {records.directory} bring no entities along, and the masking selects them: make them again with "
            "kerasbert data --entities SOURCE, or select words"
        )


def _flops(source: "_Source", phase: Phase, records: Records, masking: MaskedLM) -> float:
    """Arithmetic of an update of a phase, on average."""
    mean, masking = records.tokens / records.examples, phase.masked(masking)
    predicted = phase.batch * min(masking.width(records.length), masking.rate * mean)
    networks = source.objective.networks(source.spec, predicted)
    return sum(flops.update_flops(spec, phase.batch * mean, phase.batch, count) for spec, count in networks)


class _Source:
    """Where the encoder comes from: a name, a directory or an object."""

    def __init__(self, model: Any, init: Any, changes: Mapping[str, Any] | None, tokenizer: Any):
        self.directory, self.encoder, self.digest, self.tokenizer = None, None, None, None
        changes = dict(changes or {})
        if init is not None:
            self.directory = sources.directory(init)
        if isinstance(model, str | os.PathLike) and (os.path.isdir(model) or "@" in os.fspath(model)):
            if init is not None:
                raise InputError("both model and init are directories: give one")
            self.directory = model = sources.directory(model)
        if self.directory is not None:
            info = checkpoints.read_model_json(self.directory)
            if isinstance(model, str) and registry.find(model)[0].name != info.family:
                raise InputError(f"{self.directory} holds a {info.family}, expected {model}: name its own model")
            shape = set(changes) - {"dropout", "attention.dropout"}
            if shape:
                raise InputError(
                    f"cannot change {', '.join(sorted(shape))} of trained weights: only dropout may change"
                )
            self.family, self.name = registry.family(info.family), info.name
            self.spec = info.spec.derive(changes)
            self.digest = results.digest(self.directory)
            if (held := text.held_tokenizer(self.directory)) is not None:
                self.tokenizer = held
        elif isinstance(model, str | os.PathLike):
            self.family, spec = registry.find(str(model))
            self.name = str(model)
            self.spec = spec.derive({"embeddings.vocabulary": tokenizer.size} | changes)
        else:
            if changes:
                raise InputError("changes apply to a named model; build the encoder with them instead")
            self.encoder, self.spec, self.tokenizer = model, model.spec, model.tokenizer
            self.family = registry.family_of(model)
            self.name, self.digest = model.model_name or self.family.name, results.digest_of(model)

    @property
    def objective(self) -> Any:
        """The class of the family's pretraining program."""
        return registry.objective(self.family.objective)

    def program(self, records: Records, tokenizer: Any, masking: MaskedLM, settings: Settings) -> Any:
        """The training program, built under the strategy's scope that is open."""
        keras.utils.set_random_seed(settings.seed)
        with precision(settings.precision):
            if self.encoder is None:
                self.encoder = self.family.encoder(self.spec)
                self.encoder.build()
                self.encoder.model_name = self.name
            program = self.objective(
                self.encoder, tokenizer, features=records.features, masking=masking, seed=settings.seed
            )
        if self.directory is not None:
            checkpoints.load_weights(self.directory, self.encoder)
            results.load_heads(self.directory, program.model.heads)
        return program

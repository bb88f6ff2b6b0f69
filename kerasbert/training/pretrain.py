"""Pretraining: records + an encoder + an objective -> a run directory."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from kerasbert import checkpoints, registry, text
from kerasbert import spec as specs
from kerasbert.checkpoints import source as sources
from kerasbert.data.records import Records
from kerasbert.errors import InputError
from kerasbert.objectives.base import Objective
from kerasbert.options import configured
from kerasbert.storage.json_view import Json
from kerasbert.tasks.task import find_task
from kerasbert.text.base import Tokenizer
from kerasbert.training import flops, model_files, on_task
from kerasbert.training.config import check_rows
from kerasbert.training.feed import Feed, RecordsFeed, verify
from kerasbert.training.held_out import HeldOut, hold_out
from kerasbert.training.job import Job, run
from kerasbert.training.phases import Phase, check_phases, make_phases
from kerasbert.training.precision import precision, resolved
from kerasbert.training.preflight import kept_by, preflight, warn_of_memory
from kerasbert.training.pretrain_config import PretrainConfig
from kerasbert.training.runs import Run, check_place, run_in
from kerasbert.training.strategy import resolve
from kerasbert.training.strategy import strategy as find_strategy
from kerasbert.value_types import check_type

if TYPE_CHECKING:
    from kerasbert.tasks.ensemble import Ensemble
    from kerasbert.tasks.tables import Data


TPU_LOOP = 100


@configured(PretrainConfig)
def pretrain(model: str | os.PathLike | keras.Model, data: "Data", config: PretrainConfig) -> keras.Model:
    """Pretrain an encoder with its family's objective; the same call goes on where a killed one stopped.

    Args:
        model: `family/size`, a model directory (continued pretraining) or an encoder.
        data: records made by `kerasbert data`; their tokenizer is the model's. With `on_task` the rows of that task.
        {options}

    Returns:
        the trained encoder, with `.tokenizer`.

    Raises:
        InputError: before anything is written: records and model that disagree, settings out of range, another run at out.
        NonFinite: loss or gradient is not finite.
    """
    with on_task.opened(model, data, config) as (records, settled):
        return run(Pretraining(model, records, settled))


class Pretraining(Job):
    """Records, phases, held-out records and the source of the encoder."""

    kind = "pretrain"
    config: PretrainConfig

    def __init__(self, model: str | os.PathLike | keras.Model, data: str | os.PathLike, config: PretrainConfig) -> None:
        own = [each.get("data") if isinstance(each, Mapping) else each.data for each in config.phases or ()]
        check_place(config.out, config.overwrite, inputs=[model, data, config.init, config.held_out, *own])
        self.strategy = resolve(config.strategy)
        self.config = config = resolved(config, self.strategy, model)
        self.loop = TPU_LOOP if self.strategy.startswith("tpu") else 1
        self.phases = _phases(config, data)
        paths = dict.fromkeys(phase.data for phase in self.phases)
        self.place = preflight(self.strategy, data=paths, out=config.out, batches=self.batches())
        opened = {path: Records(path) for path in paths}
        first = opened[self.phases[0].data]
        self.tokenizer = text.load_tokenizer(os.path.join(first.directory, "tokenizer"))
        self.source = _Source(model, config.init, config.changes, self.tokenizer)
        if hasattr(self.source.spec, "base") and self.source.spec != self.source.spec.base:
            raise InputError(
                "lora and adapters adapt a trained model: fine-tune with them, and pretrain without (kb.merged)"
            )
        self.settings = _settings(config, self.source)
        self.held_out = _held_out(self.phases, opened, config.held_out, config.evaluate_every)
        for held in {id(held): held for held in [*opened.values(), *(self.held_out or [])]}.values():
            _check(held, self.tokenizer, self.source, first, self.settings)
        languages = max((held.languages for held in opened.values()), key=len)
        if len(languages) > len(self.tokenizer.languages or ()):  # the run keeps the table of all its records
            self.tokenizer.languages = {name: number for number, name in enumerate(languages)}
        for phase in self.phases:
            self.source.objective.check(phase.settings(self.settings), opened[phase.data])
        verify([*opened.values(), *(self.held_out or [])], config.quiet)
        for phase in self.phases:
            check_rows(config, opened[phase.data].examples, phase.batch)
        self.first, self.records = first, [opened[phase.data] for phase in self.phases]
        self.devices = find_strategy(self.strategy)

    def batches(self) -> list[tuple[int, int]]:
        return [(phase.batch, phase.accumulate) for phase in self.phases]

    def description(self) -> Json:
        config, source = self.config, self.source
        phases = [phase.to_json() | {"data": held.digest} for phase, held in zip(self.phases, self.records)]
        return {
            "model": source.name,
            "spec": specs.to_dict(source.spec),
            "init": source.digest,
            "objective": source.objective_name,
            "objective_settings": specs.to_dict(self.settings),
            "data": self.first.digest,
            "phases": phases if config.phases else None,
            "held_out": _said(self.held_out, config.held_out),
            "plugin": dict(config.plugin) if config.plugin else None,
            **({} if config.on_task is None else {"on_task": find_task(config.on_task).name}),
        }

    def build(self) -> Objective:
        config, spec = self.config, self.source.spec
        self.program = program = self.source.program(self.first, self.tokenizer, self.settings, config)
        for phase, held in zip(self.phases, self.records):
            rows = phase.batch // (self.devices.num_replicas_in_sync * phase.accumulate)
            settings = phase.settings(self.settings)
            read = program.lengths(settings, held.length)[0]
            size = program.model.count_params(), rows * program.sequences(settings), read
            predicted = program.predictions(settings, held.length) / held.length
            half, kept = config.precision != "float32", kept_by(self.source.family)
            warn_of_memory(self.place, spec, *size, half, predicted, kept)
        return program

    def model(self) -> checkpoints.ModelParts:
        encoder, heads = self.source.encoder, self.program.model.heads
        return checkpoints.ModelParts(encoder, self.source.name, heads, self.tokenizer, plugin=self.config.plugin)

    def lines(self) -> Iterable[str]:
        lines, base = [self.source.remark] if self.source.remark else [], self.program.baseline(self.first)
        if base is not None:
            about = f"loss {base['entropy']:.3f}, accuracy {base['accuracy']:.3f}"
            lines.append(f"unigram baseline of the {self.program.targets}: {about}")
        return lines + self.program.remarks(self.first.length)

    def feed(self, program: Objective, run: Run) -> Feed:
        parts = zip(self.phases, self.records)
        work = [_flops(self.source, phase, held, phase.settings(self.settings)) for phase, held in parts]
        steps, seed = self.config.updates, self.config.seed
        return RecordsFeed(self.phases, self.records, program, steps=steps, seed=seed, devices=self.devices, flops=work)

    def evaluation(self, program: Objective, run: Run) -> HeldOut | None:
        if not self.held_out:
            return None
        return HeldOut(self.phases, self.held_out, program, seed=self.config.seed, devices=self.devices)

    def result(self, run: Run) -> keras.Model:
        self.source.encoder.tokenizer = self.tokenizer
        return self.source.encoder


def _phases(config: PretrainConfig, data: str | os.PathLike) -> tuple[Phase, ...]:
    """The run's phases; one where none are asked for."""
    batch, accumulate = config.batch, config.accumulate
    if not config.phases and batch % accumulate:
        raise InputError(
            f"batch {batch} is not a multiple of {accumulate} micro-batches: change --batch or --accumulate"
        )
    check_type("data", str | os.PathLike, data)
    rows = [phase.to_json() if isinstance(phase, Phase) else phase for phase in config.phases or [{}]]
    phases = make_phases(rows, data=os.fspath(data), batch=batch, accumulate=accumulate)
    check_phases(phases, config.updates)
    return phases


def _settings(config: PretrainConfig, source: "_Source") -> Any:
    """The settings of the objective, which is chosen: its own, over them a begun run's, over them what is asked for."""
    name, asked = registry.name_and_settings(config.objective)
    source.choose(name)
    old, kind = None if config.overwrite else run_in(config.out), source.objective
    begun = {} if old is None else old["settings"]
    kept = begun["objective_settings"] if begun.get("objective") == source.objective_name else {}
    return kind.settings_for(source.spec, *map(specs.leaves, (kept, asked)))


def _held_out(
    phases: Sequence[Phase], opened: dict[str, Records], held_out: str | os.PathLike | None, evaluate_every: int
) -> list[Records] | None:
    """The records that each phase is evaluated on; `opened` loses what is held out of it."""
    if held_out is not None:
        return [Records(held_out)] * len(phases)
    if not evaluate_every:
        return None
    parts = {path: hold_out(records) for path, records in opened.items()}
    opened |= {path: kept for path, (kept, _) in parts.items()}
    return [parts[phase.data][1] for phase in phases]


def _said(evaluated: list[Records] | None, held_out: str | os.PathLike | None) -> str | None:
    """What run.json tells of the rows that are held out."""
    if not evaluated or held_out:
        return evaluated[0].digest if evaluated else None
    return "last rows" if any(held.first for held in evaluated) else "last shard"


def _check(records: Records, tokenizer: Tokenizer, source: "_Source", first: Records, settings: Any) -> None:
    """Refuse records that do not go with the model, or with the run's first ones."""
    for known in (tokenizer, source.tokenizer):
        records.check(known or tokenizer, specs.maybe(source.spec, "embeddings.vocabulary", math.inf))
    positions = source.family.longest(source.spec)
    lengths = source.objective.lengths(settings, records.length)
    if positions and max(lengths) > positions:
        longest = source.objective.record_length(settings, positions)
        read = "" if lengths == (records.length,) else f", of which the model reads {' and '.join(map(str, lengths))}"
        raise InputError(
            f"records have {records.length} tokens{read}, the model {positions} positions: set embeddings.positions, or make "
            f"records with --length {longest}"
        )
    known, held = specs.maybe(source.spec, "embeddings.languages", 1), records.languages
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


def _flops(source: "_Source", phase: Phase, records: Records, settings: Any) -> float:
    """Arithmetic of an update of a phase, on average."""
    mean = records.tokens / records.examples
    predicted = phase.batch * source.objective.predictions(settings, records.length, mean)
    networks = source.objective.networks(source.spec, predicted)
    rows = phase.batch * source.objective.sequences(settings)
    size = phase.batch * source.objective.tokens_read(settings, records.length, mean), rows
    return sum(flops.family_flops(source.family, spec, *size, count) for spec, count in networks)


def _accepted(model: str, directory: str | os.PathLike, info: checkpoints.ModelInfo) -> registry.Family:
    """The family of a named model, where it can start from the weights of a directory.

    Raises:
        InputError: encoder or Spec are not of its kind.
    """
    named, own = registry.find(model)[0], registry.family(info.family)
    if (named.encoder, type(named.spec)) != (own.encoder, type(own.spec)):
        raise InputError(f"{directory} holds a {info.family}, expected {model}: name its own model")
    sized = {"embeddings.vocabulary", *(path for kind in (named, own) for size in kind.sizes.values() for path in size)}
    for path in [path for path in specs.differences(named.spec, own.spec) if path not in sized]:
        there, here = specs.get(info.spec, path), specs.get(named.spec, path)
        if there != here:
            raise InputError(
                f"{directory} holds a {info.family} with {path} {there!r}, expected {here!r} of {model}: name its own model"
            )
    return named


class _Source:
    """Where the encoder comes from: a name, a directory or an object."""

    def __init__(
        self,
        model: str | os.PathLike | keras.Model,
        init: str | os.PathLike | None,
        changes: Mapping[str, object] | None,
        tokenizer: Tokenizer,
    ) -> None:
        self.directory: Path | None = None
        self.encoder: Any = None
        self.digest: str | None = None
        self.tokenizer: Tokenizer | None = None
        self.remark: str | None = None
        changes = dict(changes or {})
        if init is not None:
            self.directory = sources.directory(init)
        if isinstance(model, str | os.PathLike) and (os.path.isdir(model) or "@" in os.fspath(model)):
            if init is not None:
                raise InputError("both model and init are directories: give one")
            self.directory = model = sources.directory(model)
        if self.directory is not None:
            self._take_directory(self.directory, model, changes)
        elif isinstance(model, str | os.PathLike):
            self.family, spec = registry.find(str(model))
            self.name = str(model)
            sized = specs.maybe(spec, "embeddings.vocabulary") is not None
            self.spec = specs.derive(spec, ({"embeddings.vocabulary": tokenizer.size} if sized else {}) | changes)
        else:
            if not hasattr(model, "spec"):
                raise InputError(
                    f"model is a {type(model).__name__}, expected a name, a directory or an encoder: kb.build(NAME)"
                )
            if changes:
                raise InputError("changes apply to a named model; build the encoder with them instead")
            self.encoder, self.spec, self.tokenizer = model, model.spec, model.tokenizer
            self.family = registry.family_of(model)
            self.name, self.digest = model.model_name or self.family.name, model_files.digest_of(model)

    def _take_directory(
        self, directory: Path, model: "str | os.PathLike | keras.Model | Ensemble", changes: Mapping[str, object]
    ) -> None:
        """Start from the weights of a directory; `model` is a family of its kind perhaps."""
        info = checkpoints.read_model_json(directory)
        shape = set(changes) - {"dropout", "attention.dropout"}
        if shape:
            raise InputError(f"cannot change {', '.join(sorted(shape))} of trained weights: only dropout may change")
        self.family, self.name = registry.family(info.family), info.name
        if isinstance(model, str) and _accepted(model, directory, info) is not self.family:
            self.family, self.name = registry.find(model)[0], model
            self.remark = f"{model} starts from the {info.family} in {directory}: their encoders are of one kind"
        self.spec = specs.derive(info.spec, changes)
        self.digest = model_files.digest(directory)
        if (held := text.held_tokenizer(directory)) is not None:
            self.tokenizer = held

    def choose(self, name: str | None) -> None:
        """The objective of that name, or the family's own."""
        self.objective_name = registry.OBJECTIVES.name(self.family.objective_or(name))
        self.objective: type[Objective] = registry.objective(self.objective_name)
        if not (isinstance(self.objective, type) and issubclass(self.objective, Objective)):
            raise InputError(
                f"the objective {self.objective_name} is no subclass of kerasbert.objectives.base.Objective: derive it from that"
            )

    def program(self, records: Records, tokenizer: Tokenizer, settings: Any, config: PretrainConfig) -> Objective:
        """The objective with these settings on the model, built under the strategy's scope that is open."""
        keras.utils.set_random_seed(config.seed)
        with precision(config.precision):
            if self.encoder is None:
                self.encoder = self.family.encoder(self.spec)
                self.encoder.build()
                self.encoder.model_name = self.name
            program = self.objective(
                self.encoder, tokenizer, features=records.features, settings=settings, seed=config.seed
            )
        if self.directory is not None:
            checkpoints.load_weights(self.directory, self.encoder)
            model_files.load_heads(self.directory, program.model.heads)
        return program

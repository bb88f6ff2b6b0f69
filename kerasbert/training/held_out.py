"""Evaluation while pretraining: the objective's losses on records that are not trained on, dropout off."""

import copy
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from kerasbert.data.records import Records
from kerasbert.data.stream import PLACES, split_columns
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers import random
from kerasbert.objectives.base import Objective
from kerasbert.training.feed import distributed
from kerasbert.training.phases import Phase, phase_at

EXAMPLES = 4096  # at most; the standard error of a mean over their 80,000 predictions is below 0.01 nats
STREAMS = 16  # stretches that an objective with state reads, however many rows a batch has
ROUNDING = 1e-6  # of a count that is 0: what filling rows added is subtracted
BEGINS = "begins"  # in a batch of an objective with state: bool [B], whether nothing stands before a row
SHARE = 20  # of the rows of a single shard, one in so many is held out


class HeldOut:
    """Losses, accuracies and perplexities on held-out records: every row once, up to EXAMPLES, with the same masks.

    An objective with state reads STREAMS stretches of neighbouring rows, each from an empty state on, and carries its
    state from row to row. The numbers do not depend on batch, micro-batches and replicas.

    Args:
        phases: the run's phases.
        records: the held-out ones of each phase.
        program: Objective.
        seed: int, of the masks.
        devices: tf.distribute.Strategy.
    """

    def __init__(
        self,
        phases: Sequence[Phase],
        records: Sequence[Records],
        program: Objective,
        *,
        seed: int,
        devices: tf.distribute.Strategy,
    ) -> None:
        self.phases, self.records, self.program = phases, records, program
        self.seed, self.devices = seed, devices
        self.state: dict[str, float] | None = None  # the newest metrics, for the checkpoint
        self.functions: dict[int, Callable] = {}

    def token_ids(self) -> np.ndarray | None:
        """All token ids that it reads, each once, ascending: int [r]; None, for nobody knows them beforehand."""
        return None

    def __call__(self, step: int) -> tuple[dict[str, float], bool]:
        """Metrics after `step` updates, named held_out/..., and False: pretraining never stops early."""
        index = phase_at(self.phases, max(0, step - 1))[0]
        batches, weights, rows = self._batches(self.phases[index], self.records[index])
        function = self.functions.setdefault(index, tf.function(self._sums, autograph=False))
        carried = self.devices.run(self.program.empty_state, args=(rows,))
        total: dict[str, float] = {}
        for weight in weights:
            sums, carried = function(next(batches), carried)
            for name, value in sums.items():
                total[name] = total.get(name, 0.0) + weight * float(value)
        self.state = self._means(total)
        return self.state, False

    def _means(self, total: Mapping[str, float]) -> dict[str, float]:
        """Metrics of the sums over all rows; a loss without a single target is left out."""
        counts = {name.removeprefix("count "): value for name, value in total.items() if name.startswith("count ")}
        found = {
            f"held_out/{name}": value / counts[name.partition("/")[0]]
            for name, value in total.items()
            if not name.startswith("count ") and counts[name.partition("/")[0]] > ROUNDING
        }
        scales = self.program.scales.items()
        found["held_out/loss"] = sum(scale * found.get(f"held_out/{name}", 0.0) for name, scale in scales)
        for number, name in enumerate(self.program.token_losses):
            if f"held_out/{name}" in found:
                of = f"{name}/" if number else ""
                found[f"held_out/{of}perplexity"] = math.exp(min(700.0, found[f"held_out/{name}"]))
        return found

    def _batches(self, phase: Phase, records: Records) -> tuple[Iterator[Mapping[str, Tensor]], list[float], int]:
        """(Distributed) batches of every row, what the sums of each are multiplied by, and rows of a replica's batch."""
        replicas, stateful = self.devices.num_replicas_in_sync, bool(self.program.empty_state(1))
        rows = min(records.examples, EXAMPLES)
        # of a micro-batch of every replica, or what there is
        most = min(rows, STREAMS) if stateful else rows
        batch = min(phase.batch // phase.accumulate, -(-most // replicas) * replicas)
        order, begins = streams(rows, batch) if stateful else (np.arange(rows), np.ones(rows, bool))
        # copies of one row fill up the last batches, and a batch after them holds nothing else: their share of that is what
        # the copies added, for sums are sums over rows whatever the objective
        copies = -(-len(order) // batch) * batch - rows
        weights = [1.0] * -(-len(order) // batch) + [-copies / batch] * bool(copies)
        filling = len(weights) * batch - len(order)
        order, begins = np.append(order, np.zeros(filling, order.dtype)), np.append(begins, np.ones(filling, bool))
        prepare, features = phase.prepare(self.program), first_rows(records, rows)
        at_once = max(1, PLACES // records.length // batch) * batch

        @tf.autograph.experimental.do_not_convert
        def chosen(index: tf.Tensor, begins: tf.Tensor) -> dict[str, tf.Tensor]:
            found = prepare({name: tf.gather(value, index) for name, value in features.items()})
            return {**found, BEGINS: begins} if stateful else found

        with tf.device("/CPU:0"):
            data = tf.data.Dataset.from_tensor_slices((order, begins)).batch(at_once).map(chosen)
            data = data.rebatch(batch, drop_remainder=True)
        return distributed(data, self.devices), weights, batch // replicas

    def _sums(
        self, batch: Mapping[str, Tensor], carried: Mapping[str, Tensor]
    ) -> tuple[dict[str, tf.Tensor], Mapping[str, Tensor]]:
        """Counts and sums of a global batch, and what its rows carry on."""

        def local(
            part: Mapping[str, Tensor], state: Mapping[str, Tensor]
        ) -> tuple[dict[str, Tensor], Mapping[str, Tensor]]:
            counts = {f"count {name}": value for name, value in self.program.counts(part).items()}
            # dropout is off, but an objective may draw (a generator's samples)
            with random.scope(random.key(self.seed, "held_out"), part["row"]):
                if not state:
                    return counts | self.program.losses(part, training=False), state
                begins = part[BEGINS]
                empty = self.program.empty_state(begins.shape[0])
                at = {name: tf.reshape(begins, [-1] + [1] * (len(x.shape) - 1)) for name, x in state.items()}
                state = {name: tf.where(at[name], empty[name], x) for name, x in state.items()}
                sums, state = self.program.losses_from(part, state)
                return counts | sums, state

        found, carried = self.devices.run(local, args=(batch, carried))
        return {name: self.devices.reduce("SUM", value, axis=None) for name, value in found.items()}, carried


def streams(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """The order in which batches of so many columns read STREAMS stretches of neighbouring rows, one row of each at a time.

    Returns:
        numbers of rows, batch after batch, 0 where a column has ended: int [N]; whether a row begins a stretch (what a
        column that has ended holds does too): bool [N].

    >>> order, begins = streams(35, 8)
    >>> order.reshape(-1, 8)[:4, 0].tolist(), begins.reshape(-1, 8)[:4, 0].tolist()
    ([0, 1, 2, 19], [True, False, False, True])
    """
    stretches = np.array_split(np.arange(rows), min(STREAMS, rows))
    none = np.zeros(0, np.int64)
    read = [np.concatenate([none, *stretches[column::columns]]) for column in range(columns)]
    order = np.zeros((max(map(len, read)), columns), np.int64)
    begins = np.ones(order.shape, bool)
    firsts = [stretch[0] for stretch in stretches]
    for column, numbers in enumerate(read):
        order[: len(numbers), column] = numbers
        begins[: len(numbers), column] = np.isin(numbers, firsts)
    return order.ravel(), begins.ravel()


def first_rows(records: Records, count: int) -> dict[str, tf.Tensor]:
    """The first rows of records as features, in their own order, with the masks of an example its own (`row`)."""
    left, parts, first = count, [], records.first
    for shard in records.shards:
        parts.append(records.rows(shard, first, min(left, shard.examples - first)))
        left, first = left - len(parts[-1]), 0
        if not left:
            break
    with tf.device("/CPU:0"):
        number, zero = tf.range(count), tf.zeros([count], tf.int32)
        features = split_columns(tf.constant(np.concatenate(parts).astype("int32")), records)
        return features | {"example": number, "row": number, "epoch": zero, "step": zero}


def hold_out(records: Records) -> tuple[Records, Records]:
    """Records without what is held out, and that: the last shard, or the last rows of a single one.

    Documents lie in shards by their hash, so a shard is a random share of the documents and no document is in two. The
    last rows of a single shard are its last documents in the order of their hash, a twentieth and at most EXAMPLES; the
    document at the border may have rows on both sides, and a random next sentence may be of a document that is held out.

    Raises:
        InputError: nothing can be held out.
    """
    if len(records.shards) == 1:
        return _last_rows(records)
    found = []
    for shards in (records.shards[:-1], records.shards[-1:]):
        part = copy.copy(records)
        part.shards = shards
        part.examples, part.tokens = (sum(getattr(s, name) for s in shards) for name in ("examples", "tokens"))
        if not part.examples:
            raise InputError(f"records {records.directory} have an empty shard: make them with fewer --shards")
        found.append(part)
    return found[0], found[1]


def _last_rows(records: Records) -> tuple[Records, Records]:
    shard = records.shards[0]
    count = min(EXAMPLES, -(-shard.examples // SHARE))
    if records.manifest["settings"].get("dupe_factor", 1) != 1:
        raise InputError(
            f"records {records.directory} have one shard with every document several times, so its last rows cannot be "
            "held out: make them with --shards 2 or more, or give --held-out"
        )
    if shard.examples < 2:
        raise InputError(f"records {records.directory} have {shard.examples} example(s): none can be held out")
    kept, held = copy.copy(records), copy.copy(records)
    kept.examples, held.examples = shard.examples - count, count
    kept.shards, held.first = [dataclasses.replace(shard, examples=kept.examples)], kept.examples
    for part in (kept, held):
        part.tokens = round(records.tokens * part.examples / records.examples)
    return kept, held

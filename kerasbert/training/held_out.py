"""Evaluation while pretraining: the objective's losses on records that are not trained on, dropout off."""

import copy
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from kerasbert.data.records import Records
from kerasbert.data.stream import PLACES, split_columns
from kerasbert.errors import InputError
from kerasbert.layers import random
from kerasbert.training.feed import distributed
from kerasbert.training.phases import Phase, phase_at

EXAMPLES = 4096  # at most; the standard error of a mean over their 80,000 predictions is below 0.01 nats
SHARE = 20  # of the rows of a single shard, one in so many is held out


class HeldOut:
    """Losses, accuracies and masked perplexity on held-out records: every row once, up to EXAMPLES, with the same masks.

    The numbers do not depend on batch, micro-batches and replicas.

    Args:
        phases: the run's phases. records: the held-out ones of each phase. program: Program with `prepare`.
        seed: int, of the masks. devices: tf.distribute.Strategy.
    """

    def __init__(self, phases: Sequence[Phase], records: Sequence[Records], program: Any, *, seed: int, devices: Any):
        self.phases, self.records, self.program = phases, records, program
        self.seed, self.devices = seed, devices
        self.state: dict[str, float] | None = None  # the newest metrics, for the checkpoint
        self.functions: dict[int, Any] = {}

    def __call__(self, step: int) -> tuple[dict[str, float], bool]:
        """Metrics after `step` updates, named held_out/..., and False: pretraining never stops early."""
        index = phase_at(self.phases, max(0, step - 1))[0]
        batches, full, share = self._batches(self.phases[index], self.records[index])
        function = self.functions.setdefault(index, tf.function(self._sums, autograph=False))
        total: dict[str, float] = {}
        # the last batch is filled up with copies of one row, and the one after it holds nothing else: their share of that
        # is what the copies added, for sums are sums over rows whatever the objective
        for weight in [1.0] * full + ([1.0, -share] if share else []):
            for name, value in function(next(batches)).items():
                total[name] = total.get(name, 0.0) + weight * float(value)
        counts = {name.removeprefix("count "): value for name, value in total.items() if name.startswith("count ")}
        found = {
            f"held_out/{name}": value / max(counts[name.partition("/")[0]], 1.0)
            for name, value in total.items()
            if not name.startswith("count ")
        }
        scales = self.program.scales.items()
        found["held_out/loss"] = sum(scale * found[f"held_out/{name}"] for name, scale in scales)
        if "held_out/mlm" in found:
            found["held_out/perplexity"] = math.exp(min(700.0, found["held_out/mlm"]))
        self.state = found
        return found, False

    def _batches(self, phase: Phase, records: Records) -> tuple[Iterator[Any], int, float]:
        """(Distributed) batches of every row, the number of full ones, and the share of copies in the one after them."""
        replicas = self.devices.num_replicas_in_sync
        rows = min(records.examples, EXAMPLES)
        # of a micro-batch of every replica, or what there is
        batch = min(phase.batch // phase.accumulate, -(-rows // replicas) * replicas)
        full, rest = divmod(rows, batch)
        order = np.arange(rows)
        if rest:
            order = np.append(order, np.zeros(2 * batch - rest, order.dtype))
        prepare, features = phase.prepare(self.program), first_rows(records, rows)
        at_once = max(1, PLACES // records.length // batch) * batch

        @tf.autograph.experimental.do_not_convert
        def chosen(index: tf.Tensor) -> dict[str, tf.Tensor]:
            return prepare({name: tf.gather(value, index) for name, value in features.items()})

        with tf.device("/CPU:0"):
            data = tf.data.Dataset.from_tensor_slices(order).batch(at_once).map(chosen)
            data = data.rebatch(batch, drop_remainder=True)
        return distributed(data, self.devices), full, (batch - rest) / batch if rest else 0.0

    def _sums(self, batch: Any) -> dict[str, tf.Tensor]:
        def local(part):
            counts = {f"count {name}": value for name, value in self.program.weights(part).items()}
            # dropout is off, but an objective may draw (a generator's samples)
            with random.scope(random.key(self.seed, "held_out"), part["row"]):
                return counts | self.program.losses(part, training=False)

        found = self.devices.run(local, args=(batch,))
        return {name: self.devices.reduce("SUM", value, axis=None) for name, value in found.items()}


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

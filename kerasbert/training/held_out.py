"""Evaluation while pretraining: the objective's losses on records that are not trained on, dropout off."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from kerasbert.data.records import Records
from kerasbert.errors import InputError
from kerasbert.layers import random
from kerasbert.training.feed import distributed
from kerasbert.training.phases import Phase, phase_at

EXAMPLES = 4096  # at most; the standard error of a mean over their 80,000 predictions is below 0.01 nats


class HeldOut:
    """Losses, accuracies and masked perplexity on held-out records; the same rows and masks every time.

    Args:
        phases: the run's phases. records: the held-out ones of each phase. program: Program with `prepare`.
        seed: int, of the masks. devices: tf.distribute.Strategy.
    """

    def __init__(self, phases: Sequence[Phase], records: Sequence[Records], program: Any, *, seed: int, devices: Any):
        self.phases, self.records, self.program = phases, records, program
        self.seed, self.devices = seed, devices
        self.state: dict[str, float] | None = None  # the newest metrics, for the checkpoint
        self.functions: dict[int, Any] = {}
        for phase, held in zip(phases, records):
            self._batch(phase, held)

    def __call__(self, step: int) -> tuple[dict[str, float], bool]:
        """Metrics after `step` updates, named held_out/..., and False: pretraining never stops early."""
        index = phase_at(self.phases, max(0, step - 1))[0]
        records = self.records[index]
        batch = self._batch(self.phases[index], records)
        prepare = self.phases[index].prepare(self.program)
        data = records.dataset(
            batch, seed=self.seed, shuffle=False, prepare=lambda features: prepare(_by_example(features))
        )
        batches = distributed(data, self.devices)
        function = self.functions.setdefault(index, tf.function(self._sums, autograph=False))
        total: dict[str, float] = {}
        for _ in range(max(1, min(records.examples, EXAMPLES) // batch)):
            for name, value in function(next(batches)).items():
                total[name] = total.get(name, 0.0) + float(value)
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

    def _batch(self, phase: Phase, records: Records) -> int:
        """Rows of a batch: a micro-batch of every replica, or what there is."""
        replicas = self.devices.num_replicas_in_sync
        batch = min(phase.batch // phase.accumulate, records.examples // replicas * replicas)
        if not batch:
            raise InputError(
                f"{records.directory} holds out {records.examples} example(s), expected at least {replicas}, "
                "one for every replica: hold out more"
            )
        return batch

    def _sums(self, batch: Any) -> dict[str, tf.Tensor]:
        def local(part):
            counts = {f"count {name}": value for name, value in self.program.weights(part).items()}
            # dropout is off, but an objective may draw (a generator's samples)
            with random.scope(random.key(self.seed, "held_out"), part["row"]):
                return counts | self.program.losses(part, training=False)

        found = self.devices.run(local, args=(batch,))
        return {name: self.devices.reduce("SUM", value, axis=None) for name, value in found.items()}


@tf.autograph.experimental.do_not_convert
def _by_example(features: Mapping[str, Any]) -> dict[str, Any]:
    """Masks of an example are its own, however many lie in a batch."""
    return {**features, "row": features["example"], "step": tf.zeros_like(features["step"])}

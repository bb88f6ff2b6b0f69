"""Rows of k consecutive segments, read one after the other with a memory (Dai et al., 2019, Transformer-XL, section 3.2).

Memory lives inside an update: it is empty where a row begins, and its gradient is stopped, so that the gradients of a row are
the sums over its segments. Differs: the released code carries it from update to update through the corpus; then a batch would
depend on more than (records, seed, step), and replicas, accumulation, shuffling, resuming and checkpoints would all need it.
Held-out evaluation carries it through the whole text.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import keras
import tensorflow as tf
from keras import ops

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.memory import Memory
from kerasbert.objectives.base import Objective
from kerasbert.objectives.causal import LanguageModeling
from kerasbert.objectives.lm_loss import token_sums
from kerasbert.registry import register_objective

if TYPE_CHECKING:
    from kerasbert.data.records import Records


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """How held-out text is read; None: as in training (Dai et al., 2019, section 4.1 and the released scripts).

    Args:
        memory: int, tokens that each layer remembers: more than in training lower the perplexity.
        clamp: int, from which distance on all distances are one.
        same_length: bool, whether each token sees as many as the memory holds, itself among them.
    """

    memory: int | None = None
    clamp: int | None = None
    same_length: bool | None = None


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of objectives that read segments.

    Args:
        segments: int k, of a row: records of k * S tokens are read S tokens at a time.
        memory: int M, tokens that each layer remembers; None for the model's (memory.length), 0 for none.
        evaluation: of held-out text.
    """

    segments: int = 4
    memory: int | None = None
    evaluation: Evaluation = Evaluation()

    def __post_init__(self) -> None:
        if self.segments < 1:
            raise InputError(f"segments {self.segments}, expected at least 1 in a row")
        for name, value in (("memory", self.memory), ("evaluation.memory", self.evaluation.memory)):
            if value is not None and value < 0:
                raise InputError(f"{name} {value}, expected at least 0 tokens")
        clamp = self.evaluation.clamp
        if clamp is not None and clamp < 1:
            raise InputError(f"evaluation.clamp {clamp}, expected a distance of at least 1")


def segments(batch: Mapping[str, Tensor], count: int, names: tuple[str, ...]) -> list[dict[str, Tensor]]:
    """The segments of a batch, in order: of each the part [B, S, ...] of the named arrays [B, k * S, ...]."""
    parts = {name: ops.split(batch[name], count, axis=1) for name in names}
    return [{name: part[i] for name, part in parts.items()} for i in range(count)]


class Segmented(Objective):
    """An objective that reads the segments of its rows one after the other.

    A subclass says in `segment` what one costs; the names of the arrays that are cut are `cut`. Its settings have the fields of
    `Settings`.
    """

    packing = "stream"
    settings_class = Settings
    cut: tuple[str, ...] = ("token_ids",)

    @classmethod
    def check(cls, settings: Settings, records: "Records") -> None:
        super().check(settings, records)
        cls.lengths(settings, records.length)
        if records.tokens < records.length:
            raise InputError(
                f"records {records.directory} hold {records.tokens} tokens, expected at least one row of {records.length}: "
                "make them of more text, or with a smaller --length"
            )

    @classmethod
    def lengths(cls, settings: Settings, length: int) -> tuple[int, ...]:
        count = settings.segments
        if length % count:
            raise InputError(
                f"rows of {length} tokens are no {count} segments of one length: make records with --length "
                f"{max(1, length // count) * count}, or set objective.segments to a divisor of {length}"
            )
        return (length // count,)

    @classmethod
    def record_length(cls, settings: Settings, length: int) -> int:
        return length * settings.segments

    @classmethod
    def sequences(cls, settings: Settings) -> int:
        return settings.segments

    def segment(self, part: Mapping[str, Tensor], memory: Tensor, training: bool) -> tuple[dict[str, Tensor], Tensor]:
        """Loss or metric name -> sum over one segment, and the memory behind it.

        Args:
            part: the arrays of `cut`, [B, S, ...].
            memory: of what stands before it in its rows, a `Memory` unless a subclass says otherwise; None for nothing.
            training: bool.
        """
        raise NotImplementedError

    def losses(self, batch: Mapping[str, Tensor], training: bool = True) -> dict[str, Tensor]:
        return self._read(batch, None, training)[0]

    def losses_from(
        self, batch: Mapping[str, Tensor], state: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        sums, memory = self._read(batch, self.memory_of(state) if state else None, False)
        return sums, self.state_of(memory) if state and memory is not None else dict(state)

    def memory_of(self, state: Mapping[str, Tensor]) -> Tensor:
        """What `segment` takes, of arrays by name (`empty_state`)."""
        return Memory.of_state(state)

    def state_of(self, memory: Tensor) -> dict[str, Tensor]:
        """The inverse of `memory_of`."""
        return memory.state

    def _read(self, batch: Mapping[str, Tensor], memory: Tensor, training: bool) -> tuple[dict[str, Tensor], Tensor]:
        total: dict[str, Tensor] = {}
        for part in segments(batch, self.settings.segments, self.cut):
            sums, memory = self.segment(part, memory, training)
            total = {name: total[name] + value if name in total else value for name, value in sums.items()}
        return total, memory


class TextSegments(Segmented, LanguageModeling):
    """Each token of a row from those before it; the first one of a row excepted."""

    opened, unigram = False, "written_unigram"
    cut = ("token_ids", "padding_mask", "labels", "weights")

    def prepare(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """token_ids, padding_mask, labels, weights [B, k * S]; row [B]. The last place of a row predicts nothing."""
        ids, total = features["token_ids"], tf.reduce_sum(features["segment_lengths"], axis=1, keepdims=True)
        place = tf.range(ids.shape[1])[None]
        return {
            "token_ids": ids,
            "padding_mask": tf.cast(place < total, tf.int32),
            "labels": tf.concat([ids[:, 1:], ids[:, -1:]], axis=1),
            "weights": tf.cast(place + 1 < total, tf.float32),
            "row": features["row"],
        }


class SegmentLM(TextSegments):
    """Each token from those before it in its segment and in the memory."""

    def heads(self, encoder: keras.Model) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        if not hasattr(encoder, "read"):
            raise InputError(
                f"{type(encoder).__name__} has no memory, which segments are read with: choose another objective "
                "(--objective), such as causal_lm"
            )
        return super().heads(encoder)

    def about(self, training: bool) -> Tensor:
        """The model's memory, with what the settings say otherwise."""
        settings, about = self.settings, self.model.body.spec.memory
        changes = {"length": settings.memory}
        if not training:
            asked = settings.evaluation
            length = settings.memory if asked.memory is None else asked.memory
            changes = {"length": length, "clamp": asked.clamp, "same_length": asked.same_length}
        return dataclasses.replace(
            about, **{name: value for name, value in changes.items() if value is not None}
        ).check()

    def segment(self, part: Mapping[str, Tensor], memory: Tensor, training: bool) -> tuple[dict[str, Tensor], Tensor]:
        body = self.model.body
        # nothing real sees the padding, which is at the end; but a memory that is carried on must not hold it as text
        masked = {"remember": part["padding_mask"]} if memory is not None and memory.mask is not None else {}
        inputs = {"token_ids": part["token_ids"]}
        outputs, memory = body.read(inputs, memory, self.about(training), training=training, **masked)
        nats, right = token_sums(body, outputs["sequence"], part["labels"], part["weights"])
        return {"lm": nats, "lm/accuracy": right}, memory

    def empty_state(self, rows: int) -> dict[str, Tensor]:
        body, places = self.model.body, self.about(False).length
        if not places:
            return {}
        spec = body.spec
        return Memory.empty(rows, places, spec.blocks.layers, spec.hidden, body.compute_dtype).state


register_objective("segment_lm", SegmentLM)

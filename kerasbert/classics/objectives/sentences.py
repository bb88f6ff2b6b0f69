"""Objectives over the neighbouring sentences of a row, which records of `--packing doc --sentence-borders` hold.

A row of S tokens gives N sentences, each [CLS] its tokens [SEP] in a place of T = 2 S / N tokens, twice what an even share is:
a longer one is truncated, and what stands behind the N-th is not used. What a batch is about lies in its rows, so that an update
is the same for any replicas and micro-batches.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import keras
import tensorflow as tf
from keras import ops

from kerasbert.data.joins import BORDERS
from kerasbert.data.packing import PACKINGS
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.objectives import units
from kerasbert.objectives.base import Objective

if TYPE_CHECKING:
    from kerasbert.data.records import Records


LEAST = 4  # tokens of a place: [CLS], two of a sentence, [SEP]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of objectives over sentences.

    Args:
        sentences: int N, of a row.
    """

    sentences: int = 8

    def __post_init__(self) -> None:
        if self.sentences < 2:
            raise InputError(f"sentences {self.sentences}, expected at least 2 in a row: one is told by another")


class Sentences(Objective):
    """What objectives over the sentences of a row share: their batches."""

    packing = "doc"
    records: Mapping[str, object] = MappingProxyType({BORDERS: True})
    settings_class = Settings

    @classmethod
    def check(cls, settings: Settings, records: "Records") -> None:
        super().check(settings, records)
        cls.lengths(settings, records.length)
        name = records.manifest["settings"]["packing"]
        packed = PACKINGS[name]
        if BORDERS not in records.features or packed.pairs or packed.feature or packed.crosses:
            raise InputError(
                f"records {records.directory} ({name!r}) do not tell where the sentences of one text begin: make them again "
                "with kerasbert data --packing doc --sentence-borders"
            )

    @classmethod
    def lengths(cls, settings: Settings, length: int) -> tuple[int, ...]:
        place = 2 * length // settings.sentences
        if place < LEAST:
            raise InputError(
                f"rows of {length} tokens have {place} for each of {settings.sentences} sentences, expected at least {LEAST}: "
                f"make records with --length {LEAST * settings.sentences // 2} or more, or lower objective.sentences"
            )
        return (place,)

    @classmethod
    def record_length(cls, settings: Settings, length: int) -> int:
        return length * settings.sentences // 2

    @classmethod
    def sequences(cls, settings: Settings) -> int:
        return settings.sentences

    @classmethod
    def tokens_read(cls, settings: Settings, length: int, tokens: float) -> float:
        return tokens  # places are twice as long as what stands in them

    def heads(self, encoder: keras.Model) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        if not hasattr(encoder, "sentences"):
            raise InputError(
                f"{type(encoder).__name__} gives no vectors of sentences while it learns: choose another objective "
                "(--objective)"
            )
        return {}, {}

    def remarks(self, length: int) -> list[str]:
        (place,), count = self.lengths(self.settings, length), self.settings.sentences
        return [f"sentences: the first {count} of a row, {place} tokens of each; dropped: tokens that were left out"]

    def prepare(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """token_ids, padding_mask int32 [B, N, T]; dropped float32 [B], tokens that are in no place; row [B]."""
        ids, count = features["token_ids"], self.settings.sentences
        (place,), length = self.lengths(self.settings, ids.shape[1]), ids.shape[1]
        total = tf.reduce_sum(features["segment_lengths"], axis=1, keepdims=True)
        begins, ends = bounds(units.sentences(features), total, count)
        sizes = tf.minimum(ends - begins, place - 2)[:, :, None]
        at = tf.range(place)[None, None]
        found = tf.gather(ids, tf.clip_by_value(begins[:, :, None] + at - 1, 0, length - 1), batch_dims=1)
        tokenizer, there = self.tokenizer, sizes > 0
        found = tf.where(at == 0, tokenizer.cls_id, tf.where(at == sizes + 1, tokenizer.sep_id, found))
        mask = there & (at < sizes + 2)
        used = tf.reduce_sum(sizes, axis=[1, 2])
        return {
            "token_ids": tf.where(mask, found, tokenizer.pad_id),
            "padding_mask": tf.cast(mask, tf.int32),
            "dropped": tf.cast(tf.maximum(total[:, 0] - 2, 0) - used, tf.float32),
            "row": features["row"],
        }


def bounds(starts: Tensor, total: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Where the first sentences of a row begin and end; empty ones where there are fewer.

    Args:
        starts: bool [B, S], True where a sentence begins.
        total: int32 [B, 1], tokens of a row, [CLS] and [SEP] among them.
        count: int N.

    Returns:
        int32 [B, N] each.
    """
    place = tf.range(starts.shape[1])[None]
    inner = (place > 0) & (place < total - 1)
    starts = (starts | (place == 1)) & inner  # a row may begin with the rest of a long one
    number = tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1  # -1 of [CLS]
    number = tf.where(place < total - 1, number, starts.shape[1])
    rows = tf.shape(starts)[0]
    wanted = tf.tile(tf.range(count + 1)[None], [rows, 1])
    edges = tf.minimum(tf.searchsorted(number, wanted), tf.maximum(total - 1, 0))
    return edges[:, :-1], edges[:, 1:]


def flat(x: Tensor) -> Tensor:
    """The sentences of all rows: [B, N, ...] -> [B N, ...]."""
    return ops.reshape(x, (-1, *x.shape[2:]))

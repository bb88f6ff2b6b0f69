"""BART's noises (Lewis et al., 2020, section 2.2): the encoder reads a damaged text, the decoder writes the whole one.

- Text infilling: spans whose lengths are of Poisson(3), 30% of the tokens in all, become one [MASK] each; a span of length 0
  is a [MASK] that is put in.
- Sentence permutation: the sentences of a row in random order.
- Token masking, token deletion, document rotation: off unless asked for.

BART is trained with the first two (section 5.1). They act in this order: permutation, rotation, deletion, masking, infilling.
[CLS] and the last [SEP] stay where they are.
"""

import dataclasses
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from kerasbert.data.joins import BORDERS
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers import random
from kerasbert.objectives import render, seq2seq, units
from kerasbert.objectives.select import divide, shuffled, tokens
from kerasbert.registry import register_objective
from kerasbert.text.base import Tokenizer

if TYPE_CHECKING:
    from kerasbert.data.records import Records


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of BART's objective.

    Args:
        rate: share of a row's tokens that stand in spans, which become one [MASK] each.
        mean: of the Poisson law of the spans' lengths.
        permutation: share of the rows whose sentences change places.
        rotation: share of the rows that begin at a random token and go on from their end with their beginning.
        deletion: share of the tokens that are left out, with nothing in their place.
        masking: share of the tokens that become [MASK] one by one.
    """

    rate: float = 0.3
    mean: float = 3.0
    permutation: float = 1.0
    rotation: float = 0.0
    deletion: float = 0.0
    masking: float = 0.0

    def __post_init__(self) -> None:
        for name in ("rate", "permutation", "rotation", "deletion", "masking"):
            value = getattr(self, name)
            if not 0 <= value <= 1 or (value == 1 and name in ("rate", "deletion")):
                raise InputError(
                    f"{name} {value}, expected a share of at least 0 and at most 1 (rate, deletion: below)"
                )
        if not 0.5 <= self.mean <= 20:
            raise InputError(f"mean {self.mean}, expected a mean length of spans of 0.5 to 20, such as 3.0")

    def spans(self, length: int) -> int:
        """How many lengths are drawn for a row of so many tokens: their sum falls short of what is wanted by 6 sigma."""
        wanted = round(self.rate * length)
        return math.ceil((wanted + 6 * math.sqrt(wanted) + 12) / self.mean)


class Infilling(seq2seq.TextToText):
    """BART's objective: all of the row is written, [CLS] and [SEP] too.

    Differs: the released code begins spans at whole words, draws their places one by one so that they may run into each
    other, and replaces a tenth of the masks by random tokens; here every way to place the spans is as likely.
    """

    settings_class = Settings
    packing = "doc"
    records: Mapping[str, object] = MappingProxyType({BORDERS: True})
    start = "sep"
    opened = True

    @classmethod
    def check(cls, settings: Any, records: "Records") -> None:
        super().check(settings, records)
        if settings.permutation:
            units.check_sentences(records, "which are to change places", ", or --set objective.permutation=0")

    @classmethod
    def lengths(cls, settings: object, length: int) -> tuple[int, ...]:
        return length, length

    def heads(self, encoder: keras.Model) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        mask_of(self.tokenizer)
        return super().heads(encoder)

    def prepare(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """token_ids, padding_mask [B, S]; decoder_token_ids, labels, weights [B, S]; row, dropped [B].

        `dropped` counts the spans of length 0 that the row had no place for.
        """
        ids, row, settings, tokenizer = features["token_ids"], features["row"], self.settings, self.tokenizer
        length = ids.shape[1]
        total = written = tf.reduce_sum(features["segment_lengths"], axis=1, keepdims=True)
        keys = random.key(self.seed, "infilling", features["step"], row)

        def key(name: str) -> Tensor:
            return random.key(keys[:, 0], keys[:, 1], name)

        source = ids
        if settings.permutation:
            starts = units.sentences(features)
            moved = permuted(key("permutation"), total, starts)
            source = render.take(source, of_some(key("permuted"), settings.permutation, moved))
        if settings.rotation:
            moved = rotated(key("rotation"), total, length)
            source = render.take(source, of_some(key("rotated"), settings.rotation, moved))
        if settings.deletion:
            begins, ends = chosen(key("deletion"), total, length, settings.deletion)
            rows, none = seq2seq.extended(source, [tokenizer.pad_id]), tf.zeros_like(begins)
            source, total = seq2seq.left_out(rows, begins, ends, total, none, none, length)
        if settings.masking:
            begins, ends = chosen(key("masking"), total, length, settings.masking)
            places = tf.minimum(begins, length - 1)
            change = (ends - begins) * (mask_of(tokenizer) - render.take(source, places))
            source = render.add(source, places, change)
        source, total, dropped = infilled(
            key("infilling"), source, total, settings, mask_of(tokenizer), tokenizer.pad_id
        )
        mask = tf.cast(tf.range(length)[None] < total, tf.int32)
        batch = {"token_ids": source, "padding_mask": mask, "row": row, "dropped": tf.cast(dropped, tf.float32)}
        return batch | self.decoded(ids, written)

    def losses(self, batch: Mapping[str, Tensor], training: bool = True) -> dict[str, Tensor]:
        return super().losses(batch, training) | {"lm/dropped": ops.sum(batch["dropped"])}


def mask_of(tokenizer: Tokenizer) -> int:
    """Id of [MASK].

    Raises:
        InputError: the tokenizer has none.
    """
    if tokenizer.mask_id is None:
        raise InputError("the tokenizer has no mask token, expected one: T5's and GPT-2's have none")
    return tokenizer.mask_id


def counts(share: float, length: int) -> np.ndarray:
    """round(share * n) of the n tokens between [CLS] and [SEP], for rows of 0 .. S tokens: int32 [S + 1]."""
    return np.array([round(share * max(0, total - 2)) for total in range(length + 1)], "int32")


def between(total: Tensor, length: int) -> Tensor:
    """Which tokens stand between [CLS] and the last [SEP]: [B, 1] -> bool [B, S]."""
    place = tf.range(length)[None]
    return (place > 0) & (place < total - 1)


def chosen(key: Tensor, total: Tensor, length: int, share: float) -> tuple[Tensor, Tensor]:
    """Single tokens, a share of a row's, as spans that begin and end: int32 [B, K] each; unused ones are empty, at S."""
    count = counts(share, length)
    places, taken, _ = tokens(key, between(total, length), tf.gather(count, total[:, 0]), max(1, int(count[-1])))
    begins = tf.sort(tf.where(taken, places, length), axis=1)
    begins = tf.where(begins < length, begins, total)
    return begins, tf.minimum(begins + 1, total)


def of_some(key: Tensor, share: float, moved: Tensor) -> Tensor:
    """Columns [B, S] of a share of the rows; the others' stay as they are."""
    here = random.uniform(key, (1,)) < share
    return moved if share == 1 else tf.where(here, moved, tf.range(moved.shape[1])[None])


def permuted(key: Tensor, total: Tensor, starts: Tensor) -> Tensor:
    """The columns of a row, its sentences in random order: total [B, 1], starts bool [B, S] -> int32 [B, S]."""
    place, inner = tf.range(starts.shape[1])[None], between(total, starts.shape[1])
    columns = shuffled(key, inner, divide(inner, starts))[0]  # what is not eligible comes last: [CLS] first of it
    return tf.where(place == 0, 0, tf.where(inner, tf.roll(columns, 1, axis=1), place))


def rotated(key: Tensor, total: Tensor, length: int) -> Tensor:
    """The columns of a row that begins at a random token: [B, 1] -> int32 [B, S]."""
    place, inner = tf.range(length)[None], between(total, length)
    size = tf.maximum(total - 2, 1)
    draws = tf.bitcast(tf.bitwise.right_shift(random.bits(key, (1,)), tf.constant(1, tf.uint32)), tf.int32)
    return tf.where(inner, 1 + (place - 1 + draws % size) % size, place)


def infilled(
    key: Tensor, ids: Tensor, total: Tensor, settings: Settings, mask_id: int, pad_id: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows with spans that became one [MASK] each.

    Args:
        key: uint32 [B, 2].
        ids: int32 [B, S], rows of [CLS] ... [SEP].
        total: int32 [B, 1].

    Returns:
        rows int32 [B, S], their tokens [B, 1], spans of length 0 that a row had no place for int32 [B].
    """
    length, most = ids.shape[1], settings.spans(ids.shape[1])
    wanted = tf.gather(counts(settings.rate, length), total)
    sizes = poisson(random.key(key[:, 0], key[:, 1], "lengths"), settings.mean, most)
    before = tf.cumsum(sizes, axis=1, exclusive=True)
    used = before < wanted  # up to the span with which there are enough
    sizes = tf.where(used, tf.minimum(sizes, wanted - before), 0)
    # where they stand among the tokens that stay: every way with the same probability
    stay, number = tf.maximum(total - 2, 0) - wanted, tf.reduce_sum(tf.cast(used, tf.int32), axis=1, keepdims=True)
    slots = tf.range(length + most)[None] < stay + number
    places, taken, _ = tokens(random.key(key[:, 0], key[:, 1], "places"), slots, number[:, 0], most)
    places = tf.sort(tf.where(taken, places, length + 2 * most), axis=1) - tf.range(most)[None]
    begins = tf.where(used, 1 + places + before, total)
    ends = begins + sizes
    empty = tf.cast(used & (sizes == 0), tf.int32)
    room = length - (total - wanted) - (number - tf.reduce_sum(empty, axis=1, keepdims=True))
    dropped = empty * tf.cast(tf.cumsum(empty, axis=1) > room, tf.int32)
    opens = tf.cast(used, tf.int32) - dropped
    rows = seq2seq.extended(ids, [mask_id, pad_id])
    found, taken = seq2seq.left_out(rows, begins, ends, total, tf.fill(tf.shape(begins), length), opens, length)
    return found, taken, tf.reduce_sum(dropped, axis=1)


def poisson(key: Tensor, mean: float, count: int) -> Tensor:
    """Draws of Poisson(mean): uint32 [B, 2] -> int32 [B, K]; what is beyond 12 sigma counts as that."""
    law = [math.exp(-mean)]
    while len(law) < mean + 12 * math.sqrt(mean):
        law.append(law[-1] * mean / len(law))
    bounds = np.round(np.cumsum(law) * 2**31).clip(max=2**31 - 1).astype(np.int32)
    draws = tf.bitcast(tf.bitwise.right_shift(random.bits(key, (count,)), tf.constant(1, tf.uint32)), tf.int32)
    found = tf.searchsorted(bounds[None], tf.reshape(draws, [1, -1]), side="right")
    return tf.reshape(found, tf.shape(draws))


register_objective("infilling", Infilling)

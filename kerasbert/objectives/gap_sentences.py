"""PEGASUS' gap sentences (Zhang et al., 2020, section 3.1): sentences are taken out of a text, the decoder writes them.

The ones that say most of the rest: a sentence's importance is its ROUGE1-F1 with the other sentences of the row. In the source
each becomes one mask, [MASK1]; what is written are the sentences one after the other.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from kerasbert.data.joins import BORDERS
from kerasbert.errors import InputError, unknown
from kerasbert.inputs import Tensor
from kerasbert.layers import random
from kerasbert.objectives import seq2seq, units
from kerasbert.objectives.infilling import between, mask_of
from kerasbert.objectives.select import divide
from kerasbert.registry import register_objective
from kerasbert.text.base import Tokenizer

if TYPE_CHECKING:
    from kerasbert.data.records import Records

SELECT = ("principal", "random", "lead")  # section 3.1
GAP = "<mask_1>"  # Pegasus' [MASK1] in its vocabulary


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of gap sentences: those of the released `pegasus_large`, whose README calls it "Mixed & Stochastic".

    Args:
        select: "principal" (the most important sentences, each scored by itself: "Ind"), "random" or "lead" (the first ones).
        least, rate: share of a row's sentences that are taken, one at the least; a row's own is drawn between the two.
        noise: share of its importance by which a sentence's is changed at random at most, in either direction.
        unique: count a word of a sentence once ("Uniq"), not as often as it stands there ("Orig").
        kept: share of the taken sentences that the source shows as they are.
        target: tokens that are written at most, as a share of the row's; what is beyond is cut off, and logged as `lm/cut`.
    """

    select: str = "principal"
    least: float = 0.15
    rate: float = 0.45
    noise: float = 0.2
    unique: bool = False
    kept: float = 0.1
    target: float = 0.5

    def __post_init__(self) -> None:
        if self.select not in SELECT:
            raise unknown("way to select sentences", self.select, SELECT, ", ".join(SELECT))
        if not 0 < self.least <= self.rate <= 1:
            raise InputError(
                f"least {self.least} and rate {self.rate}, expected shares above 0 and at most 1, the first not the larger"
            )
        for name in ("noise", "kept"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} {getattr(self, name)}, expected a share of at least 0 and at most 1")
        if not 0 < self.target <= 1:
            raise InputError(f"target {self.target}, expected a share above 0 and at most 1, such as 0.5")


class GapSentences(seq2seq.TextToText):
    """PEGASUS' objective.

    Differs: importance counts pieces, where the released code counts words that are no stop words; its noise is normal.
    There are no masked tokens beside the gaps ([MASK2], section 3.2), which the paper left out of the large model (6.2).
    """

    settings_class = Settings
    packing = "doc"
    records: Mapping[str, object] = MappingProxyType({BORDERS: True})
    opened = True

    @classmethod
    def check(cls, settings: object, records: "Records") -> None:
        super().check(settings, records)
        units.check_sentences(records, "some of which are to be written")

    @classmethod
    def lengths(cls, settings: Settings, length: int) -> tuple[int, ...]:
        return length, max(2, round(settings.target * length))

    @classmethod
    def predictions(cls, settings: Settings, length: int, tokens: float | None = None) -> float:
        return 0 if tokens is None else min((settings.least + settings.rate) / 2, settings.target) * tokens

    def remarks(self, length: int) -> list[str]:
        most = self.lengths(self.settings, length)[1]
        return [
            f"of a row's {length} tokens at most {most} are written, the rest of its longest sentences is cut off: lm/cut of "
            "metrics.jsonl, as a share of what is written (--set objective.target=1 for all)"
        ]

    def heads(self, encoder: keras.Model) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        gap_of(self.tokenizer)
        return super().heads(encoder)

    def prepare(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """token_ids, padding_mask [B, S]; decoder_token_ids, labels, weights [B, T]; row, cut [B].

        `cut` counts the tokens of taken sentences that the target had no room for.
        """
        ids, row, settings, tokenizer = features["token_ids"], features["row"], self.settings, self.tokenizer
        length, width = self.lengths(settings, ids.shape[1])
        total = tf.reduce_sum(features["segment_lengths"], axis=1, keepdims=True)
        key = random.key(self.seed, "gap sentences", features["step"], row)
        sentence = numbered(units.sentences(features), between(total, length))
        begins, ends = (tf.minimum(places, total) for places in self._taken(key, ids, sentence))
        shown = random.uniform(random.key(key[:, 0], key[:, 1], "kept"), (begins.shape[1],)) < settings.kept
        opens = tf.cast((begins < ends) & ~shown, tf.int32)
        rows = seq2seq.extended(ids, [gap_of(tokenizer), tokenizer.sep_id, tokenizer.pad_id])
        symbols = tf.fill(tf.shape(begins), length)
        hidden = tf.where(opens > 0, ends, begins)
        source, taken = seq2seq.left_out(rows, begins, hidden, total, symbols, opens, length)
        sizes = ends - begins
        room = tf.clip_by_value(width - 1 - tf.cumsum(sizes, axis=1, exclusive=True), 0, sizes)
        cut = tf.reduce_sum(sizes - room, axis=1)
        end = tf.ones_like(total)
        starts, sizes = tf.concat([begins, (length + 1) * end], axis=1), tf.concat([room, end], axis=1)
        written, count = seq2seq.put_together(rows, starts, sizes, width)
        mask = tf.cast(tf.range(length)[None] < taken, tf.int32)
        batch = {"token_ids": source, "padding_mask": mask, "row": row, "cut": tf.cast(cut, tf.float32)}
        return batch | self.decoded(written, count)

    def _taken(self, key: Tensor, ids: Tensor, sentence: Tensor) -> tuple[Tensor, Tensor]:
        """Where the taken sentences begin and end, in their order: int32 [B, K] each; unused ones are empty, behind all."""
        settings, length = self.settings, ids.shape[1]
        most, found = max(1, int(settings.rate * length)), tf.reduce_max(sentence, axis=1)
        draw = random.uniform(random.key(key[:, 0], key[:, 1], "share"), ())
        share = settings.least + (settings.rate - settings.least) * draw
        # 1e-4: .3 of 10 sentences are 3, whatever float32 makes of .3
        wanted = tf.cast(tf.floor(share * tf.cast(found, tf.float32) + 1e-4), tf.int32)
        wanted = tf.minimum(tf.maximum(wanted, 1), found)[:, None]
        numbers = tf.range(1, length + 1)[None]
        if settings.select == "lead":
            scores = -tf.cast(tf.tile(numbers, [tf.shape(ids)[0], 1]), tf.float32)
        else:
            drawn = random.uniform(random.key(key[:, 0], key[:, 1], "scores"), (length,))
            noise = 1 + settings.noise * (2 * drawn - 1)
            scores = drawn if settings.select == "random" else importance(ids, sentence, settings.unique) * noise
        scores = tf.where(numbers <= found[:, None], scores, -np.inf)
        chosen = 1 + tf.math.top_k(scores, most).indices
        chosen = tf.sort(tf.where(tf.range(most)[None] < wanted, chosen, length + 1), axis=1)
        return tuple(tf.searchsorted(_ascending(sentence), chosen, side=side) for side in ("left", "right"))

    def losses(self, batch: Mapping[str, Tensor], training: bool = True) -> dict[str, Tensor]:
        return super().losses(batch, training) | {"lm/cut": ops.sum(batch["cut"])}


def gap_of(tokenizer: Tokenizer) -> int:
    """Id of what stands in place of a sentence: Pegasus' <mask_1>, [MASK] of a vocabulary without it.

    Raises:
        InputError: the tokenizer has neither.
    """
    return tokenizer.vocabulary.index(GAP) if GAP in tokenizer.vocabulary else mask_of(tokenizer)


def numbered(starts: Tensor, inner: Tensor) -> Tensor:
    """The number of each token's sentence in its row, from 1 on, 0 outside: bool [B, S] twice -> int32 [B, S].

    What stands before the first start is the end of a sentence, which counts as one.
    """
    return tf.where(inner, tf.cumsum(tf.cast(divide(inner, starts), tf.int32), axis=1), 0)


def importance(ids: Tensor, sentence: Tensor, unique: bool = False) -> Tensor:
    """ROUGE1-F1 of each sentence with the other sentences of its row: int32 [B, S] twice -> float32 [B, S].

    Args:
        sentence: as of `numbered`; number n stands at n - 1 of the result.
        unique: count a token of a sentence, and of the others, once.

    >>> ids, sentence = tf.constant([[5, 6, 7, 8, 5, 9, 9, 5]]), tf.constant([[1, 1, 1, 1, 2, 2, 3, 3]])
    >>> importance(ids, sentence)[0, :3].numpy().tolist()
    [0.25, 0.5, 0.5]
    """
    length = ids.shape[1]
    step = length + 1
    # sorted, tokens that are alike stand side by side, and among them those of a sentence
    keys = tf.where(sentence > 0, tf.cast(ids, tf.int64), 2**31) * step + tf.cast(sentence, tf.int64)
    keys = tf.sort(keys, axis=1)
    token, number = keys // step, tf.cast(keys % step, tf.int32)

    def places(key: Tensor) -> Tensor:
        return tf.searchsorted(keys, key)

    begin = places(keys)
    own, every = places(keys + 1) - begin, places((token + 1) * step) - places(token * step)
    real, rank = number > 0, tf.range(length)[None] - begin  # how many like it stand before it in its sentence

    def sums(counted: Tensor) -> Tensor:
        flat = tf.reshape(number + step * tf.range(tf.shape(ids)[0])[:, None], [-1])
        found = tf.math.unsorted_segment_sum(
            tf.cast(tf.reshape(counted & real, [-1]), tf.float32), flat, tf.shape(ids)[0] * step
        )
        return tf.reshape(found, [-1, step])[:, 1:]

    if unique:
        first = rank == 0
        shared, size = sums(first & (every > own)), sums(first)
        kinds = tf.reduce_sum(tf.cast(real & (tf.range(length)[None] == places(token * step)), tf.float32), axis=1)
        others = kinds[:, None] - sums(first & (every == own))
        return 2 * shared / tf.maximum(size + others, 1)
    shared = sums(rank < every - own)
    return 2 * shared / tf.maximum(tf.reduce_sum(tf.cast(real, tf.float32), axis=1, keepdims=True), 1)


def _ascending(sentence: Tensor) -> Tensor:
    """Numbers of sentences that ascend to a row's end, where what stands behind the last one follows it."""
    behind = tf.cumsum(tf.cast(sentence > 0, tf.int32), axis=1) > 0
    return tf.where((sentence == 0) & behind, tf.reduce_max(sentence, axis=1, keepdims=True) + 1, sentence)


register_objective("gap_sentences", GapSentences)

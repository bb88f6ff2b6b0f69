"""Span corruption (Raffel et al., 2020, sections 3.1.4 and 3.3.4): spans of a text are left out, and written by the decoder.

A sentinel stands for each span in the source. The target is each span behind its sentinel, then </s>:

    Thank you <extra_id_0> me to your party <extra_id_1> week </s>
    <extra_id_0> for inviting <extra_id_1> last </s>

The arithmetic is that of the released code (t5/data/preprocessors.py, random_spans_noise_mask, random_spans_helper): of n tokens
round(0.15 n) are left out, in round(that / 3) spans. Lengths of the spans, and of what lies between them, are random
segmentations; a row begins with what is kept. So the source has n - noise + spans + 1 tokens and the target noise + spans + 1,
whatever is drawn: rows of 568 tokens give 512 and 114, of 284 give 256 and 58, of 141 give 128 and 29, without padding.
"""

import dataclasses
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from kerasbert.errors import InputError, unknown
from kerasbert.inputs import Tensor
from kerasbert.layers import random
from kerasbert.objectives import seq2seq
from kerasbert.objectives.select import tokens
from kerasbert.registry import register_objective

SELECT = ("spans", "tokens", "prefix")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of span corruption.

    Args:
        rate: share of a row's tokens that is left out.
        mean: mean length of the spans.
        select: "spans", or "tokens": i.i.d. denoising, each token with the same probability whatever its neighbours, where
            those that touch share a sentinel (section 3.1.4). Then rows have some padding, for the number of spans varies.
            "prefix": prefix language modeling (section 3.1.4): the source is the beginning of the row, the target the rest,
            without sentinels; the border is uniform (random_prefix_noise_mask), rate and mean say nothing. Both stacks are as
            long as the records and half padding.
    """

    rate: float = 0.15
    mean: float = 3.0
    select: str = "spans"

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise InputError(f"rate {self.rate}, expected a share between 0 and 1, such as 0.15")
        if self.mean < 1:
            raise InputError(f"mean {self.mean}, expected a mean length of spans of at least 1, such as 3.0")
        if self.select not in SELECT:
            raise unknown("way to select", self.select, SELECT, ", ".join(SELECT))

    def noise(self, count: int) -> int:
        """How many of so many tokens are left out."""
        return min(max(round(count * self.rate), 1), count - 1) if count > 1 else 0

    def spans(self, count: int) -> int:
        """Of how many spans they are, at most."""
        if self.select == "prefix":
            return 0
        noise = self.noise(count)
        if self.select == "spans":
            return min(max(round(noise / self.mean), 1), count - noise) if noise else 0
        return min(noise, count - noise + 1)


class SpanCorruption(seq2seq.TextToText):
    """T5's objective.

    Differs: documents follow one another with a </s> between them, which t5's pipeline leaves out.
    """

    settings_class = Settings
    start = "pad"
    opened = False

    @classmethod
    def lengths(cls, settings: Settings, length: int) -> tuple[int, ...]:
        if settings.select == "prefix":
            return length, length  # the longest of each leaves the other one token; both end in </s>
        noise, spans = settings.noise(length), settings.spans(length)
        return length - noise + spans + 1, noise + spans + 1

    @classmethod
    def predictions(cls, settings: Settings, length: int, tokens: float | None = None) -> float:
        return 0 if tokens is None else cls.lengths(settings, round(tokens))[1]

    def heads(self, encoder: keras.Model) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        if self.settings.select != "prefix" and not self.tokenizer.sentinel_ids:
            raise InputError(
                "the tokenizer has no sentinels (<extra_id_0>, <extra_id_1>, ...), which stand for what is left out: take "
                "T5's, or learn one with kerasbert vocab --kind unigram --sentinels 100"
            )
        return super().heads(encoder)

    def prepare(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """token_ids, padding_mask [B, S]; decoder_token_ids, labels, weights [B, T]; row [B]: (S, T) as `lengths` says."""
        ids, row, settings, tokenizer = features["token_ids"], features["row"], self.settings, self.tokenizer
        length = ids.shape[1]
        source, target = self.lengths(settings, length)
        sentinels = tokenizer.sentinel_ids[: settings.spans(length)]
        if len(sentinels) < settings.spans(length):
            raise InputError(
                f"rows of {length} tokens lose up to {settings.spans(length)} spans, and the tokenizer has "
                f"{len(sentinels)} sentinels: make records with a shorter --length, or a tokenizer with more --sentinels"
            )
        total = tf.reduce_sum(features["segment_lengths"], axis=1, keepdims=True)
        key = random.key(self.seed, "span_corruption", features["step"], row)
        begins, ends = CHOICES[settings.select](key, total[:, 0], length, settings)
        before = tf.pad(ends[:, :-1], [[0, 0], [1, 0]])  # where the span before ends
        first = tf.cast(tf.range(begins.shape[1])[None] == 0, tf.int32)
        opens = tf.cast((ends > begins) & (begins + first > before), tf.int32)  # spans that touch have one sentinel
        opens = opens if sentinels else 0 * opens
        sentinel = length + tf.cumsum(opens, axis=1) - 1
        rows = seq2seq.extended(ids, sentinels, [tokenizer.sep_id, tokenizer.pad_id])
        end = tf.fill([tf.shape(ids)[0], 1], length + len(sentinels))
        # </s> stands behind the rest of the row: a span of nothing that has it as its symbol
        spread = (
            tf.concat(pair, axis=1) for pair in ((begins, total), (ends, total), (sentinel, end), (opens, end // end))
        )
        begins, ends, symbols, opens = spread
        token_ids, taken = seq2seq.left_out(rows, begins, ends, total, symbols, opens, source)
        starts, sizes = seq2seq.beside(symbols, begins), seq2seq.beside(opens, ends - begins)
        written, said = seq2seq.put_together(rows, starts, sizes, target)
        mask = tf.cast(tf.range(source)[None] < taken, tf.int32)
        return {"token_ids": token_ids, "padding_mask": mask, "row": row, **self.decoded(written, said)}


def spans(key: Tensor, total: Tensor, length: int, settings: Settings) -> tuple[Tensor, Tensor]:
    """Where the spans that are left out begin and end: int32 [B, K] each; those beyond a row's number are empty.

    Args:
        key: uint32 [B, 2].
        total: int32 [B], tokens of the rows.
        length: int S, the most of them.
        settings: Settings.
    """
    noise, most = (np.array([f(n) for n in range(length + 1)], "int32") for f in (settings.noise, settings.spans))
    left_out, count = tf.gather(noise, total), tf.gather(most, total)
    lost = segmentation(random.key(key[:, 0], key[:, 1], "lost"), left_out, count, noise[-1], most[-1])
    kept = segmentation(random.key(key[:, 0], key[:, 1], "kept"), total - left_out, count, length - noise[-1], most[-1])
    return kept + tf.pad(lost[:, :-1], [[0, 0], [1, 0]]), kept + lost


def segmentation(key: Tensor, items: Tensor, segments: Tensor, width: int, most: int) -> Tensor:
    """So many items in so many segments, every way with the same probability: where the segments end, int32 [B, K].

    Args:
        key: uint32 [B, 2].
        items, segments: int32 [B], segments at most items.
        width, most: int, the largest of each; K = most.
    """
    if most < 2 or width < 2:
        return tf.tile(items[:, None], [1, max(1, most)])
    inner = tf.range(width - 1)[None] < items[:, None] - 1
    places, chosen, _ = tokens(key, inner, segments - 1, most - 1)
    ends = tf.where(chosen, places + 1, items[:, None])
    return tf.concat([tf.sort(ends, axis=1), items[:, None]], axis=1)


def spans_of_tokens(key: Tensor, total: Tensor, length: int, settings: Settings) -> tuple[Tensor, Tensor]:
    """As `spans`, of single tokens: any set of the row's number of them with the same probability."""
    noise = np.array([settings.noise(n) for n in range(length + 1)], "int32")
    places, chosen, _ = tokens(key, tf.range(length)[None] < total[:, None], tf.gather(noise, total), int(noise[-1]))
    begins = tf.sort(tf.where(chosen, places, total[:, None]), axis=1)
    return begins, tf.minimum(begins + 1, total[:, None])


def prefix(key: Tensor, total: Tensor, length: int, settings: Settings) -> tuple[Tensor, Tensor]:
    """As `spans`: what is behind a border, which leaves at least a token on either side of a row of two or more."""
    # 24 bits: a product with 2^-24 rounds down, so that 1 never occurs
    share = tf.cast(tf.bitcast(random.bits(key, (1,)), tf.int32) & 0xFFFFFF, tf.float32) * 2.0**-24
    most = tf.maximum(total[:, None] - 1, 0)
    border = tf.minimum(most, 1 + tf.cast(share * tf.cast(most, tf.float32), tf.int32))
    return border, total[:, None]


CHOICES = {"spans": spans, "tokens": spans_of_tokens, "prefix": prefix}

register_objective("span_corruption", SpanCorruption)

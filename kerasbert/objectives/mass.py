"""MASS: Masked Sequence to Sequence Pre-training for Language Generation (Song et al., 2019).

Section 3.1: a fragment of half of the text is masked in the source, and the decoder writes it. It reads what it has written so
far of the fragment alone: what the encoder sees is masked there, so [MASK] comes first. Section 3.2: the decoder reads the
fragment only, at the positions that it has in the text; a masked token is [MASK] in 80% of the cases, a random one in 10% and
itself in 10%.
"""

import dataclasses
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers import random
from kerasbert.objectives import render, seq2seq
from kerasbert.objectives.infilling import counts, mask_of
from kerasbert.registry import register_objective


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of MASS.

    Args:
        rate: share of a row's tokens that the fragment has.
        mask, random: shares of it that the encoder sees as [MASK] and as random tokens; the rest it sees as they are.
    """

    rate: float = 0.5
    mask: float = 0.8
    random: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InputError(f"rate {self.rate}, expected a share above 0 and at most 1, such as 0.5")
        if min(self.mask, self.random) < 0 or self.mask + self.random > 1 + 1e-9:
            raise InputError(f"mask {self.mask} and random {self.random}, expected shares whose sum is at most 1")


class Mass(seq2seq.TextToText):
    """MASS' objective.

    Differs: the fragment begins at any place with the same probability, as section 3.2 says; in the released code it begins
    at either end of the text in two fifths of the cases.
    """

    settings_class = Settings
    packing = "doc"
    start = "mask"
    opened = True

    @classmethod
    def lengths(cls, settings: Settings, length: int) -> tuple[int, ...]:
        return length, max(1, int(counts(settings.rate, length)[-1]))

    @classmethod
    def predictions(cls, settings: Settings, length: int, tokens: float | None = None) -> float:
        return 0 if tokens is None else settings.rate * tokens

    def heads(self, encoder: keras.Model) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        mask_of(self.tokenizer)
        return super().heads(encoder)

    def prepare(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """token_ids, padding_mask [B, S]; decoder_token_ids, decoder_position_ids, labels, weights [B, T]; row [B]."""
        ids, row, settings, tokenizer = features["token_ids"], features["row"], self.settings, self.tokenizer
        length, width = self.lengths(settings, ids.shape[1])
        total = tf.reduce_sum(features["segment_lengths"], axis=1, keepdims=True)
        size = tf.gather(counts(settings.rate, length), total)
        key = random.key(self.seed, "mass", features["step"], row)
        # between [CLS] and [SEP]; the remainder favours a place by at most S / 2^31 of its share
        draws = random.bits(random.key(key[:, 0], key[:, 1], "place"), (1,))
        draws = tf.bitcast(tf.bitwise.right_shift(draws, tf.constant(1, tf.uint32)), tf.int32)
        begin = 1 + draws % tf.maximum(total - 2 - size + 1, 1)
        places = tf.minimum(begin + tf.range(width)[None], length - 1)
        inside = tf.range(width)[None] < size
        token_ids, labels = render.in_place(
            random.key(key[:, 0], key[:, 1], "render"),
            ids,
            places,
            inside,
            mask_id=mask_of(tokenizer),
            ordinary_ids=np.setdiff1d(np.arange(tokenizer.size, dtype=np.int32), tokenizer.special_ids),
            shares=(settings.mask, settings.random),
        )
        written = tf.where(inside, labels, tokenizer.pad_id)
        mask = tf.cast(tf.range(length)[None] < total, tf.int32)
        batch = {"token_ids": token_ids, "padding_mask": mask, "row": row, "decoder_position_ids": places}
        return batch | self.decoded(written, size)


register_objective("mass", Mass)

"""Tokens in a wrong order, for the word structural objective (Wang et al., 2020, StructBERT, section 2.2)."""

import itertools

import numpy as np
import tensorflow as tf

from kerasbert.inputs import Tensor
from kerasbert.layers import random
from kerasbert.objectives import render
from kerasbert.objectives.select import runs, tile, whole

SIZE = 3  # K, tokens in a subsequence
ORDERS = np.array(list(itertools.permutations(range(SIZE))), np.int32)


def shuffle(
    key: Tensor, token_ids: Tensor, eligible: Tensor, count: Tensor, most: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Shuffle trigrams that do not overlap.

    Args:
        key: uint32 [B, 2].
        token_ids: int32 [B, S].
        eligible: bool [B, S], what may be shuffled; a trigram holds nothing else.
        count: int32 [B], trigrams.
        most: T, the largest of it.

    Returns:
        token_ids [B, S] shuffled; positions and labels int32 [B, 3 T], the original tokens there; chosen bool [B, 3 T].
    """
    starts = tile(key, eligible, tf.ones_like(eligible), (0.0, 0.0, 1.0))
    begin, end = runs(starts | ~eligible)
    eligible &= end - begin == SIZE
    positions, chosen, _ = whole(key, eligible, starts & eligible, SIZE * count, SIZE * most)
    labels = render.take(token_ids, positions)
    draws = random.bits(random.key(key[:, 0], key[:, 1], "orders"), (most,)) % np.uint32(len(ORDERS))
    # the units are whole and side by side, so that three neighbours of P are a trigram
    orders = tf.gather(ORDERS, tf.bitcast(draws, tf.int32))
    new = tf.gather(tf.reshape(labels, [-1, most, SIZE]), orders, batch_dims=2)
    differences = tf.where(chosen, tf.reshape(new, tf.shape(labels)) - labels, 0)
    return render.add(token_ids, positions, differences), positions, labels, chosen

"""Which positions an objective asks for: the first half of select x render (the axes of Raffel et al., 2020, 3.1.4).

A select function takes (key uint32 [B, 2], eligible bool [B, S], count int32 [B], P) and returns (positions int32
[B, P], chosen bool [B, P]). `count` of the eligible positions of each row are chosen, fewer where there are fewer; the
other places hold positions that are not chosen. The positions of a row are all different and ascend. A row's result
depends on its key alone, not on the rest of the batch.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from kerasbert.errors import unknown
from kerasbert.layers import random


def tokens(key: Any, eligible: Any, count: Any, predictions: int) -> tuple[Any, Any]:
    """Single tokens, every set of `count` eligible ones with the same probability (Devlin et al., 2019, 3.1)."""
    length = eligible.shape[1]
    column = tf.range(length)
    low = (1 << (length - 1).bit_length()) - 1
    # One random number >= 0 per position with the position in its lowest bits, so that no two are equal.
    draws = tf.bitcast(tf.bitwise.right_shift(random.bits(key, (length,)), tf.constant(1, tf.uint32)), tf.int32)
    draws = tf.where(eligible, tf.bitwise.bitwise_or(tf.bitwise.bitwise_and(draws, ~low), column), -1 - column)
    # The P largest of each row. Finding the P-th and comparing takes half of top_k's time, which was half of all.
    least = tf.raw_ops.NthElement(input=draws, n=predictions - 1, reverse=True)
    places = tf.where(tf.reshape(draws >= least[:, None], [-1]))[:, 0]
    draws = tf.reshape(tf.gather(tf.reshape(draws, [-1]), places), [-1, predictions])
    positions = tf.reshape(tf.cast(places, tf.int32), [-1, predictions]) % length
    # Of these the `count` largest.
    largest = tf.math.top_k(draws, predictions).values
    least = tf.gather(largest, tf.maximum(count, 1)[:, None] - 1, batch_dims=1)
    return positions, (draws >= least) & (draws >= 0) & (count > 0)[:, None]


SELECT: dict[str, Callable] = {"tokens": tokens}


def select(name: str) -> Callable:
    """The select function of that name, or an error that gives the nearest."""
    if name not in SELECT:
        raise unknown("select function", name, SELECT, "kerasbert list objectives")
    return SELECT[name]

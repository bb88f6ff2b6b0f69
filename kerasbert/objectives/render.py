"""What the model sees at the selected positions: the second half of select x render."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from kerasbert.inputs import Tensor
from kerasbert.layers import random


def in_place(
    key: Tensor,
    token_ids: Tensor,
    positions: Tensor,
    chosen: Tensor,
    *,
    mask_id: int,
    ordinary_ids: np.ndarray,
    shares: Sequence[float] = (0.8, 0.1),
    first: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """[MASK], a random token or the token itself, drawn for each chosen position (Devlin et al., 2019, 3.1).

    Args:
        key: uint32 [B, 2].
        token_ids: int32 [B, S].
        positions: int32 [B, P], all different within a row.
        chosen: bool [B, P]; positions that are not chosen keep their token.
        mask_id: id of [MASK].
        ordinary_ids: int32 [n], what a random token is drawn from (no special token).
        shares: of [MASK] and of random tokens, 80% and 10% in the paper; the rest stays as it is.
        first: int32 [B, P]: one draw for all positions that have the same number, a place in P; None draws for each.

    Returns:
        token_ids [B, S] as the model sees them, labels [B, P]: the tokens that stood at the positions.
    """
    width = positions.shape[1]
    labels = take(token_ids, positions)
    draws = random.bits(key, (2 * width,))
    kind = tf.cast(tf.bitwise.right_shift(draws[:, :width], tf.constant(8, tf.uint32)), tf.int32)
    if first is not None:
        kind = tf.gather(kind, first, batch_dims=1)
    # The remainder favours an id by at most n / 2^32 of its share.
    other = tf.gather(ordinary_ids, tf.bitcast(draws[:, width:] % np.uint32(len(ordinary_ids)), tf.int32))
    masked, replaced = (round(share * 2**24) for share in (shares[0], shares[0] + shares[1]))
    new = tf.where(kind < masked, mask_id, tf.where(kind < replaced, other, labels))
    return add(token_ids, positions, tf.where(chosen, new - labels, 0)), labels


def _places(positions: Tensor, length: int) -> Tensor:
    """Positions [B, P] of rows of `length` -> places in the flattened rows."""
    return positions + tf.range(tf.shape(positions)[0])[:, None] * length


def take(token_ids: Tensor, positions: Tensor) -> Tensor:
    """The tokens [B, P] at positions [B, P] of token_ids [B, S]."""
    return tf.gather(tf.reshape(token_ids, [-1]), _places(positions, token_ids.shape[1]))


def add(token_ids: Tensor, positions: Tensor, differences: Tensor) -> Tensor:
    """Add differences [B, P] at positions [B, P] (different within a row) of token_ids [B, S].

    Four times as fast as writing the new ids with a scatter, and exact: they are integers.
    """
    places = tf.reshape(_places(positions, token_ids.shape[1]), [-1])
    change = tf.math.unsorted_segment_sum(tf.reshape(differences, [-1]), places, tf.size(token_ids))
    return token_ids + tf.reshape(change, tf.shape(token_ids))

"""Who may look at whom: boolean masks [B, Q, K], True = may look, and-ed together and turned into one bias, once."""

import functools

from keras import ops

from kerasbert.inputs import Tensor

# Bounded, for -1e9 ruins int8 calibration. Added to a score that is 80 above all visible ones it still leaves 2e-9 of it; at -60
# 9e-27 is as good beside scores of one size, but checkpoints have tokens whose scores tower over the others. static_int8 and
# full_int8 files agree with float as often at either.
HIDDEN = -100.0


def padding(mask: Tensor) -> Tensor:
    """Everybody sees the real tokens: [B, K] bool or 0/1 -> [B, 1, K] bool."""
    return ops.expand_dims(ops.cast(mask, "bool"), 1)


def packed(packed_ids: Tensor) -> Tensor:
    """The pieces of a row see themselves alone (Krell et al., 2021, section 3.2): int [B, S] -> [B, S, S] bool.

    A piece is told by its number. Padding has the number 0 and sees padding, so that no row is empty.
    """
    return ops.equal(ops.expand_dims(packed_ids, 2), ops.expand_dims(packed_ids, 1))


def tree(branch_ids: Tensor, entity_ids: Tensor) -> Tensor:
    """The visible matrix of a sentence tree (Liu et al., 2019, section 4.3, equation 3): int [B, S] twice -> [B, S, S] bool.

    Tokens of one branch see each other, those of the trunk (branch 0) among them; a branch and its own entity see each other.
    Two branches of one entity do not.

    Args:
        branch_ids: the branch of a token, 0 for the trunk.
        entity_ids: of the trunk the entity that a token belongs to, of a branch the one it hangs on; 0 for none.
    """
    row, column = (lambda ids: ops.expand_dims(ids, 2)), (lambda ids: ops.expand_dims(ids, 1))
    branch, trunk = ops.equal(row(branch_ids), column(branch_ids)), ops.equal(branch_ids, 0)
    entity = ops.equal(row(entity_ids), column(entity_ids)) & ops.not_equal(row(entity_ids), 0)
    return branch | (entity & ops.not_equal(row(trunk), column(trunk)))


def causal(length: Tensor, memory: int = 0) -> Tensor:
    """A token sees itself, those before it and all of the memory: -> [1, S, M + S] bool.

    Args:
        length: int S, or a scalar tensor.
        memory: int M, keys in front of the row's own.
    """
    row, column = ops.arange(length), ops.arange(-memory, length) if memory else ops.arange(length)
    return ops.expand_dims(ops.less_equal(ops.expand_dims(column, 0), ops.expand_dims(row, 1)), 0)


def within(first: Tensor, last: Tensor) -> Tensor:
    """A token sees those between two places, both among them: int [B, S] twice -> [B, S, S] bool.

    >>> within([[0, 0, 0]], [[1, 1, 2]]).numpy().astype(int).tolist()
    [[[1, 1, 0], [1, 1, 0], [1, 1, 1]]]
    """
    column = ops.arange(ops.shape(first)[1], dtype="int32")
    return ops.logical_and(column >= ops.expand_dims(first, 2), column <= ops.expand_dims(last, 2))


def last_seen(place: Tensor, begin: Tensor) -> Tensor:
    """The last place that each token sees where a source is read and a target written (Dong et al., 2019, section 2.3).

    Of the source the source's last, of the target its own.

    Args:
        place: int [1, S]. begin: int [B, 1], where the target begins.
    """
    return ops.maximum(place, begin - 1)


def earlier(order: Tensor, keys: Tensor) -> Tensor:
    """Who comes before whom in an order of factorisation (Yang et al., 2019, section 2.2): -> bool [B, Q, K].

    A token sees those before it in the order, not itself. What has the number 0 is the context of all, its own too.

    Args:
        order: int [B, Q], of the queries.
        keys: int [B, K], of the keys.

    >>> earlier([[0, 2, 1]], [[0, 2, 1]]).numpy().astype(int).tolist()
    [[[1, 0, 0], [1, 0, 1], [1, 0, 0]]]
    """
    order, keys = ops.expand_dims(order, 2), ops.expand_dims(keys, 1)
    return ops.logical_or(ops.equal(keys, 0), ops.less(keys, order))


def with_memory(visible: Tensor, past: Tensor, size: Tensor, places: Tensor) -> Tensor:
    """Everybody sees the memory too: -> bool [B or 1, Q or 1, M + S], or None for everything.

    Args:
        visible: bool [B or 1, Q or 1, S], or None.
        past: bool or 0/1 [B, M], True = a token; None where all are.
        size, places: S and M.
    """
    if (visible is None and past is None) or (isinstance(places, int) and places == 0):
        return visible
    visible = ops.ones((1, 1, size), "bool") if visible is None else visible
    past = ops.ones((1, 1, places), "bool") if past is None else ops.expand_dims(ops.cast(past, "bool"), 1)
    queries, rows = ops.shape(visible)[1], ops.shape(past if visible.shape[0] == 1 else visible)[0]
    parts = (ops.broadcast_to(each, (rows, queries, ops.shape(each)[2])) for each in (past, visible))
    return ops.concatenate(list(parts), axis=2)


def both(*visible: Tensor | None) -> Tensor:
    """What all of them allow: bool [B or 1, Q or 1, K] each -> the and of them; None allows everything.

    >>> both(None, None) is None
    True
    """
    masks = [ops.cast(mask, "bool") for mask in visible if mask is not None]
    return functools.reduce(ops.logical_and, masks) if masks else None


def bias(visible: Tensor, dtype: str = "float32") -> Tensor:
    """One additive bias for all layers: bool [B, Q or 1, K] -> [B, 1, Q or 1, K], 0 or HIDDEN."""
    hidden = 1.0 - ops.cast(visible, "float32")
    return ops.cast(ops.expand_dims(hidden, 1) * HIDDEN, dtype)

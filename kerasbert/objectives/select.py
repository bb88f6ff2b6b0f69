"""Which positions an objective asks for: the first half of select x render (the axes of Raffel et al., 2020, 3.1.4).

A select function takes (key uint32 [B, 2], eligible bool [B, S], count int32 [B], P, begins), where `begins()` gives bool
[B, S], True where a word begins, and returns

    positions int32 [B, P], all different within a row;
    chosen bool [B, P]: the other positions are not chosen. Those chosen ascend;
    first int32 [B, P]: where in P the first token of each chosen one's unit stands.

At most `count` of the eligible positions of each row are chosen. A row's result depends on its key alone, not on the rest
of the batch.

Units: a row is divided into words, or into groups of words whose lengths are drawn from a law. A unit never holds or
crosses a token that is not eligible. Then units are taken in random order until `count` tokens are used.
"""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from kerasbert.inputs import Tensor
from kerasbert.layers import random
from kerasbert.registry import SELECTIONS

Selection = tuple[Tensor, Tensor, Tensor]
NGRAMS = tuple(np.array([1, 1 / 2, 1 / 3]) / (1 + 1 / 2 + 1 / 3))  # p(n) ~ 1/n, n <= 3 (Lan et al., 2020, 4.1)
FOURGRAMS = (0.4, 0.3, 0.2, 0.1)  # Cui et al., 2020, section 3.2
SPANS = tuple(0.8 ** np.arange(10) / (0.8 ** np.arange(10)).sum())  # Geo(0.2), at most 10 (Joshi et al., 2020, 3.1)
PHASES = 12  # words in front of a row where a division may begin


def tokens(
    key: Tensor, eligible: Tensor, count: Tensor, predictions: int, begins: Callable[[], Tensor] | None = None
) -> Selection:
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
    chosen = (draws >= least) & (draws >= 0) & (count > 0)[:, None]
    return positions, chosen, tf.broadcast_to(tf.range(predictions), tf.shape(positions))


def words(key: Tensor, eligible: Tensor, count: Tensor, predictions: int, begins: Callable[[], Tensor]) -> Selection:
    """Whole words: all pieces of a word or none (google-research/bert, the whole word masking models of 2019).

    A word of more pieces than the budget has left is passed over and a shorter one may follow, as in the released code.
    """
    return whole(key, eligible, divide(eligible, begins()), count, predictions)


def entities(key: Tensor, eligible: Tensor, count: Tensor, predictions: int, begins: Callable[[], Tensor]) -> Selection:
    """Whole entities and, beside them, whole words or phrases (Sun et al., 2019, section 3.2.3): `begins` tells them."""
    return words(key, eligible, count, predictions, begins)


def ngrams(key: Tensor, eligible: Tensor, count: Tensor, predictions: int, begins: Callable[[], Tensor]) -> Selection:
    """Groups of n <= 3 whole words, p(n) ~ 1/n (Lan et al., 2020, section 4.1).

    Differs: the released code draws places, then n, and passes over what touches earlier choices, so that long n-grams
    are lost more often; here the row is divided into n-grams first and each of them is taken with the same probability.
    Where an n-gram exceeds the budget their code tries a shorter one from the same word, here another one follows. Short
    n-grams fit more often: of rows of 128 with words of 1 to 4 pieces and 19 of 126 tokens selected, 61, 25 and 14% of the
    n-grams are of 1, 2 and 3 words (the law says 55, 27 and 18%). The ends of a row cut n-grams short, so that its first
    and last token are 20 and 16% likelier to be selected than those in the middle.
    """
    return whole(key, eligible, tile(key, eligible, begins(), NGRAMS), count, predictions)


def fourgrams(
    key: Tensor, eligible: Tensor, count: Tensor, predictions: int, begins: Callable[[], Tensor]
) -> Selection:
    """Groups of 1 to 4 whole words, 40, 30, 20 and 10% of them (Cui et al., 2020, section 3.2); otherwise as `ngrams`."""
    return whole(key, eligible, tile(key, eligible, begins(), FOURGRAMS), count, predictions)


def spans(key: Tensor, eligible: Tensor, count: Tensor, predictions: int, begins: Callable[[], Tensor]) -> Selection:
    """Spans of whole words, their lengths of Geo(0.2) up to 10, 3.8 words on average (Joshi et al., 2020, section 3.1).

    The last span is cut where the budget ends, perhaps within a word, and spans that touch are one unit: both as in the
    released code.

    Differs: there, spans are drawn until the budget is used and run into those drawn before; here the row is divided into
    spans first, so that they have the law's lengths. In rows of 128 the first word is a tenth more likely than the others,
    there it is less likely. The budget is that of BERT: there it is rounded up.
    """
    starts = tile(key, eligible, begins(), SPANS)
    columns, chosen = shuffled(key, eligible, starts)
    # no choice is farther back than the budget
    columns, chosen = columns[:, :predictions], chosen[:, :predictions] & (tf.range(predictions) < count[:, None])
    positions, chosen = _ascending(columns, chosen, eligible.shape[1], predictions)
    apart = positions != 1 + tf.pad(positions[:, :-1], [[0, 0], [1, 0]], constant_values=-2)
    return positions, chosen, runs(apart | ~chosen)[0]


def divide(eligible: Tensor, begins: Tensor) -> Tensor:
    """Where a unit begins: where `begins` says so, and behind a token that is not eligible. All bool [B, S]."""
    return eligible & (begins | ~_before(eligible, False))


def tile(key: Tensor, eligible: Tensor, begins: Tensor, law: Sequence[float]) -> Tensor:
    """A row's words in groups, their numbers of words drawn from a law: where a group begins, bool [B, S].

    Args:
        key: uint32 [B, 2].
        eligible, begins: bool [B, S].
        law: probabilities of 1, 2, ... words.

    The groups begin up to 11 words in front of the row, so that none of its words is more likely to begin one. A group
    ends before its time where a token is not eligible; what is left of it is a group too.
    """
    starts = divide(eligible, begins)
    draws = random.bits(random.key(key[:, 0], key[:, 1], "lengths"), (1 + PHASES + eligible.shape[1],))
    draws = tf.bitcast(tf.bitwise.right_shift(draws, tf.constant(2, tf.uint32)), tf.int32)
    phase, draws = draws[:, :1] % PHASES, draws[:, 1:]
    bounds = np.round(np.cumsum(law)[:-1] * 2**30).astype(np.int32)[None]
    lengths = 1 + tf.searchsorted(bounds, tf.reshape(draws, [1, -1]), side="right")
    ends = tf.cumsum(tf.reshape(lengths, tf.shape(draws)), axis=1) - phase
    group = tf.searchsorted(ends, tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, side="right")
    return starts & ((group != _before(group, -1)) | ~_before(eligible, False))


def whole(key: Tensor, eligible: Tensor, starts: Tensor, count: Tensor, predictions: int) -> Selection:
    """Whole units, in random order; one that does not fit into what is left of `count` is passed over.

    Args:
        key: uint32 [B, 2].
        eligible: bool [B, S].
        starts: bool [B, S], where units begin.
        count: int32 [B].
    """
    length = eligible.shape[1]
    columns, usable = shuffled(key, eligible, starts)
    begin, end = runs(tf.gather(starts, columns, batch_dims=1) | ~usable)
    size, rest = end - begin, end - 1 - tf.range(length)
    budget = count[:, None]

    # Everything up to the first unit that does not fit is taken. Then all that are longer than what is left go, and so on.
    def step(_: Tensor, taken: Tensor) -> tuple[Tensor, Tensor]:
        fits = tf.cumsum(tf.cast(taken, tf.int32), axis=1) + rest <= budget
        used = tf.reduce_sum(tf.cast(taken & fits, tf.int32), axis=1, keepdims=True)
        return tf.reduce_any(taken & ~fits), taken & (fits | (size <= budget - used))

    _, taken = tf.while_loop(lambda more, _: more, step, (tf.constant(True), usable))
    positions, chosen = _ascending(columns, taken, length, predictions)
    return positions, chosen, runs(tf.gather(starts, positions, batch_dims=1) | ~chosen | _at_first(chosen))[0]


def runs(first: Tensor) -> tuple[Tensor, Tensor]:
    """Rows divided into runs, `first` [B, S] True where one begins (at column 0 too) -> begin and end of each one's run.

    Returns:
        int32 [B, S] columns, the end exclusive.
    """
    flat = tf.reshape(first | _at_first(first), [-1])
    begins = tf.cast(tf.where(flat)[:, 0], tf.int32)
    ends = tf.concat([begins[1:], tf.size(flat, out_type=tf.int32)[None]], 0)
    number = tf.cumsum(tf.cast(flat, tf.int32)) - 1
    offset = tf.range(tf.shape(first)[0])[:, None] * first.shape[1]
    return tuple(tf.reshape(tf.gather(places, number), tf.shape(first)) - offset for places in (begins, ends))


def _at_first(x: Tensor) -> Tensor:
    return (tf.range(x.shape[1]) == 0)[None, :]


def _before(x: Tensor, edge: Tensor) -> Tensor:
    """What stands one column to the left, [B, S]."""
    return tf.pad(x[:, :-1], [[0, 0], [1, 0]], constant_values=edge)


def shuffled(key: Tensor, eligible: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """Columns [B, S] with the units in random order, tokens of a unit side by side and ascending; which are eligible.

    What is not eligible comes last.
    """
    length = eligible.shape[1]
    column = tf.range(length)
    low = (1 << (length - 1).bit_length()) - 1
    draws = tf.bitcast(tf.bitwise.right_shift(random.bits(key, (length,)), tf.constant(1, tf.uint32)), tf.int32)
    unit = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, 0)
    # The unit's random bits above, the column below. Where two units have the same bits their columns keep them apart.
    bits = tf.bitwise.bitwise_and(tf.gather(draws, unit, batch_dims=1), ~low)
    order = tf.where(eligible, tf.bitwise.bitwise_or(bits, low - column), -1 - column)
    order = tf.math.top_k(order, length).values
    usable = order >= 0
    return tf.where(usable, low - tf.bitwise.bitwise_and(order, low), -1 - order), usable


def _ascending(columns: Tensor, taken: Tensor, length: int, predictions: int) -> tuple[Tensor, Tensor]:
    """Different columns [B, M], which of them are taken (at most P) -> positions [B, P], chosen [B, P]; those first."""
    order = -tf.math.top_k(-tf.where(taken, columns, length + columns), predictions).values
    return order % length, order < length


for _name, _function in {
    "tokens": tokens,
    "words": words,
    "entities": entities,
    "ngrams": ngrams,
    "fourgrams": fourgrams,
    "spans": spans,
}.items():
    SELECTIONS.add(_name, _function)
select = SELECTIONS.find

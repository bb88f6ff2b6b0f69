"""The windows over a context and the choice of a span as TensorFlow operations, for SavedModels: those of `answers.span`."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf

from kerasbert.answers.span import BLANKS, SpanKind, null_item, text_item
from kerasbert.tasks.exported_kind import MOST_ROWS
from kerasbert.text.graph import first_of
from kerasbert.text.words_graph import cut, decode

if TYPE_CHECKING:
    from kerasbert.text.graph import GraphTokenizer

_MOST = 1 << 20  # a number above it


class Windows(NamedTuple):
    """The windows [R] of all inputs, one input after the other.

    Args:
        packed: the network's inputs [R, W].
        owner: int32 [R], the input of each. begin, size: int32 [R], tokens of its context.
        place, null: int32 [R], of the first of these tokens and of no answer in its row.
        chosen: int32 [T], the window in which each token of the contexts has most context.
    """

    packed: dict[str, tf.Tensor]
    owner: tf.Tensor
    begin: tf.Tensor
    size: tf.Tensor
    place: tf.Tensor
    null: tf.Tensor
    chosen: tf.Tensor


def served(
    kind: SpanKind, run: Callable[[dict], Mapping], tokenizer: "GraphTokenizer", parts: Sequence[tf.Tensor], length: int
) -> dict[str, tf.Tensor]:
    """What `SpanKind.rows` and `decode` give, for questions and contexts.

    Args:
        run: as of `TaskKind.served` -> {"logits": [R, W, 2]}. tokenizer: GraphTokenizer.
        parts: questions [B] and contexts [B], strings.

    Returns:
        text [B] string, start and end [B] int32 in characters of the context, score [B] float32; `truncated` bool [B]: the
        question lost its end, or the context what stands behind its first MOST_ROWS.
    """
    question, context = parts
    asked, room, truncated = _asked(kind, tokenizer, question, length)
    carried, most = tokenizer.carried(context), room + (MOST_ROWS - 1) * _step(kind, room)
    truncated |= _int(carried[0].row_lengths()) > most
    ids, starts, ends = (first_of(each, most) for each in carried)
    counts = _int(ids.row_lengths())
    windows = _windows(kind, tokenizer, asked, ids, counts, room)
    logits = run({**windows.packed, "owners": windows.owner})[kind.output]
    owner = _int(ids.value_rowids())  # of each token
    codes, filled = _characters(context)
    offsets = _int(codes.row_starts())
    firsts = tf.gather(filled, tf.searchsorted(filled, starts.flat_values + tf.gather(offsets, owner)))
    lasts = tf.gather(filled, tf.searchsorted(filled, ends.flat_values + tf.gather(offsets, owner)) - 1) + 1
    scores = _scores(kind, windows, logits, _int(tf.ragged.range(counts).flat_values), firsts, lasts)
    there = tf.reduce_any(~_blank(decode(question)), axis=1)
    scores = tf.where(tf.gather(there, owner)[:, None], scores, -float("inf"))

    inputs = tf.shape(context)[0]
    of_token = tf.reduce_max(scores, axis=1)
    best = tf.math.unsorted_segment_max(of_token, owner, inputs)
    found = best > scores.dtype.min
    null = tf.reduce_sum(tf.gather(logits, windows.null, axis=1, batch_dims=1), axis=-1)
    null = tf.math.unsorted_segment_min(null, windows.owner, inputs)
    best = tf.where(found, best, 0.0)  # an infinite one would make numbers that are none
    score, wins = _weighed(kind, scores, owner, (best, found), null)
    # a token more, of no characters, is that of an empty answer
    tokens = tf.shape(owner)[0]
    numbers = tf.where(of_token == tf.gather(best, owner), tf.range(tokens), tokens)
    chosen = found & ~wins
    first = tf.where(chosen, tf.math.unsorted_segment_min(numbers, owner, inputs), tokens)
    padded = tf.pad(scores, [[0, 1], [0, 0]])
    more = tf.argmax(tf.gather(padded, first), axis=1, output_type=tf.int32)
    low = tf.where(chosen, tf.gather(tf.pad(firsts, [[0, 1]]), first) - offsets, 0)
    high = tf.where(chosen, tf.gather(tf.pad(lasts, [[0, 1]]), first + more * _int(chosen)) - offsets, 0)
    text = cut(codes, offsets + low, offsets + high)
    return {"text": text, "start": low, "end": high, "score": score, "truncated": truncated}


def _weighed(
    kind: SpanKind, scores: tf.Tensor, owner: tf.Tensor, top: tuple[tf.Tensor, tf.Tensor], null: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The probability of each input's answer, float32 [B], and whether no answer is it, bool [B].

    Args:
        scores: [T, A], of spans. owner: int32 [T]. top: the best of an input, [B], and whether it has one. null: [B].
    """
    (best, found), inputs = top, tf.shape(null)[0]
    # in float64: a long context has a million spans
    share = tf.reduce_sum(tf.exp(tf.cast(scores - tf.gather(best, owner)[:, None], tf.float64)), axis=1)
    total = tf.cast(tf.math.unsorted_segment_sum(share, owner, inputs), scores.dtype)
    wins, most = tf.zeros_like(found), best
    if kind.options["unanswerable"]:
        wins, most = null - best > kind.options["null_threshold"], tf.maximum(best, null)
        total = total * tf.exp(best - most) + tf.exp(null - most)
    score = tf.where(found, tf.exp(tf.where(wins, null, best) - most) / total, 0.0)
    return score, wins


def _asked(
    kind: SpanKind, tokenizer: "GraphTokenizer", question: tf.Tensor, length: int
) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
    """The tokens of questions [B] that are read, the tokens of a window beside each, and whether a question lost some."""
    whole, room = tokenizer.carried(question, offsets=False)[0], kind.room(tokenizer, length)
    asked = whole[:, : min(kind.options["question"], room // 2)]
    return asked, room - _int(asked.row_lengths()), whole.row_lengths() > asked.row_lengths()


def _step(kind: SpanKind, room: tf.Tensor) -> tf.Tensor:
    """`SpanKind.step` of rooms [B]."""
    return tf.minimum(kind.options["stride"], tf.maximum(room - 2 * kind.options["max_answer"], (room + 1) // 2))


def _windows(
    kind: SpanKind,
    tokenizer: "GraphTokenizer",
    asked: tf.RaggedTensor,
    ids: tf.RaggedTensor,
    counts: tf.Tensor,
    room: tf.Tensor,
) -> Windows:
    """The windows of contexts of `counts` [B] tokens, each of `room` [B] at most, beside their questions."""
    items, step = tokenizer.pair, _step(kind, room)
    number = 1 + tf.maximum(0, (counts - room + step - 1) // step)
    nth = _int(tf.ragged.range(number).flat_values)
    owner = tf.repeat(tf.range(tf.shape(number)[0]), number)
    begin = nth * tf.gather(step, owner)
    size = tf.minimum(tf.gather(room, owner), tf.gather(counts, owner) - begin)
    first = tf.gather(_int(ids.row_starts()), owner) + begin
    tokens = tf.ragged.range(first, first + size)  # numbers of tokens, over all contexts
    context = tokens.with_values(tf.gather(ids.flat_values, tokens.flat_values))
    packed, places = tokenizer.join(tf.gather(asked, owner), context)
    null = places[null_item(items, tokenizer.cls_id)]
    row, local = _int(tokens.value_rowids()), _int(tf.ragged.range(size).flat_values)
    # the first of the windows with most context, as in `answers.span.owned`
    beside = tf.minimum(local, tf.gather(size, row) - 1 - local)
    key = tf.cast(100 * beside + tf.gather(size, row), tf.int64) * _MOST + tf.cast(
        _MOST - 1 - tf.gather(nth, row), tf.int64
    )
    key = tf.math.unsorted_segment_max(key, tokens.flat_values, tf.reduce_sum(counts))
    rows_before = tf.gather(tf.cumsum(number, exclusive=True), _int(ids.value_rowids()))
    chosen = rows_before + tf.cast(_MOST - 1 - key % _MOST, tf.int32)
    return Windows(packed, owner, begin, size, places[text_item(items, "B")], null, chosen)


def _scores(
    kind: SpanKind, windows: Windows, logits: tf.Tensor, number: tf.Tensor, firsts: tf.Tensor, lasts: tf.Tensor
) -> tf.Tensor:
    """[T, A] as of `SpanKind.scores`, of the tokens of all contexts.

    Args:
        number: int32 [T], of a token in its context. firsts, lasts: int32 [T], its characters among those of all contexts.
    """
    more = tf.range(kind.options["max_answer"])
    local = number - tf.gather(windows.begin, windows.chosen)
    inside = local[:, None] + more < tf.gather(windows.size, windows.chosen)[:, None]
    place = local + tf.gather(windows.place, windows.chosen)
    starts = tf.gather_nd(logits[..., 0], tf.stack([windows.chosen, place], 1))
    places = tf.minimum(place[:, None] + more, tf.shape(logits)[1] - 1)
    rows = tf.broadcast_to(windows.chosen[:, None], tf.shape(places))
    ends = tf.gather_nd(logits[..., 1], tf.stack([rows, places], 2))
    tokens = tf.shape(number)[0]
    after = tf.gather(lasts, tf.minimum(tf.range(tokens)[:, None] + more, tokens - 1))
    return tf.where(inside & (after > firsts[:, None]), starts[:, None] + ends, -float("inf"))


def _characters(strings: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Code points [B, (n)], and the places of those that are no blanks, over all texts, between -1 and their number."""
    codes = decode(strings)
    filled = tf.where(~_blank(codes).flat_values)[:, 0]
    return codes, tf.concat([[-1], _int(filled), [tf.size(codes.flat_values)]], 0)


def _blank(codes: tf.RaggedTensor) -> tf.RaggedTensor:
    return codes.with_flat_values(tf.reduce_any(codes.flat_values[:, None] == tf.constant(BLANKS), axis=1))


def _int(values: tf.Tensor) -> tf.Tensor:
    return tf.cast(values, tf.int32)

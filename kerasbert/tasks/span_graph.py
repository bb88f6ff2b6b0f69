"""The windows over a context and the choice of a span as TensorFlow operations, for SavedModels: those of `answers.span`."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf

from kerasbert.answers.span import BLANKS, IMPOSSIBLE, SpanKind, null_item, text_item
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


class Asked(NamedTuple):
    """What a call asks of each input: answers at most, int32 [B], and by how much the empty one wins, float32 [B]."""

    n_best: tf.Tensor
    null_threshold: tf.Tensor


class Spans(NamedTuple):
    """The spans of all contexts [T, A], those that begin at token t and have a + 1 tokens.

    Args:
        scores: float32 [T, A], -inf of what is no answer. owner: int32 [T], the input of each token.
        firsts: int32 [T], where a token's characters begin among those of all contexts. after: int32 [T, A], where a span ends.
        offsets: int32 [B], where the characters of each context begin there.
    """

    scores: tf.Tensor
    owner: tf.Tensor
    firsts: tf.Tensor
    after: tf.Tensor
    offsets: tf.Tensor


class Best(NamedTuple):
    """The best spans of each input, best first, [B, N]: float32, characters of the context int32, and which there are, bool."""

    scores: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    found: tf.Tensor


def served(
    kind: SpanKind,
    run: Callable[[dict], Mapping],
    tokenizer: "GraphTokenizer",
    parts: Sequence[tf.Tensor],
    length: int,
    asked: Asked | None = None,
) -> dict[str, tf.Tensor]:
    """What `SpanKind.rows` and `decode` give, for questions and contexts.

    Args:
        run: as of `TaskKind.served` -> {"logits": [R, W, 2K]}. tokenizer: GraphTokenizer.
        parts: questions [B] and contexts [B], strings.
        asked: in the place of the kind's options.

    Returns:
        text [B] string, start and end [B] int32 in characters of the context, score [B] float32; texts, starts, ends, scores
        [B, N], the answer and its alternatives, the first `answer_counts` [B] int32 of each; where no answer may be one also
        null_odds [B] float32, how many logits it is above the best span; `truncated` bool [B]: the question lost its end, or
        the context what stands behind its first MOST_ROWS.
    """
    question, context = parts
    if asked is None:
        shape = [tf.shape(context)[0]]
        asked = Asked(tf.fill(shape, kind.options["n_best"]), tf.fill(shape, float(kind.options["null_threshold"])))
    read, room, truncated = _asked(kind, tokenizer, question, length)
    carried, most = tokenizer.carried(context), room + (MOST_ROWS - 1) * _step(kind, room)
    truncated |= _int(carried[0].row_lengths()) > most
    ids, starts, ends = (first_of(each, most) for each in carried)
    counts = _int(ids.row_lengths())
    windows = _windows(kind, tokenizer, read, ids, counts, room)
    logits = run({**windows.packed, "owners": windows.owner})[kind.output]
    owner = _int(ids.value_rowids())  # of each token
    codes, filled = _characters(context)
    offsets = _int(codes.row_starts())
    firsts = tf.gather(filled, tf.searchsorted(filled, starts.flat_values + tf.gather(offsets, owner)))
    lasts = tf.gather(filled, tf.searchsorted(filled, ends.flat_values + tf.gather(offsets, owner)) - 1) + 1
    scores, after = _scores(kind, windows, logits, _int(tf.ragged.range(counts).flat_values), firsts, lasts)
    there = tf.reduce_any(~_blank(decode(question)), axis=1)
    scores = tf.where(tf.gather(there, owner)[:, None], scores, -float("inf"))
    null = tf.reduce_sum(tf.gather(logits, windows.null, axis=1, batch_dims=1), axis=-1)
    null = tf.math.unsorted_segment_min(null, windows.owner, tf.shape(context)[0])
    answers = _ranked(kind, Spans(scores, owner, firsts, after, offsets), null, asked)
    low, high = answers["starts"], answers["ends"]
    flat = [tf.reshape(offsets[:, None] + each, [-1]) for each in (low, high)]
    answers["texts"] = tf.reshape(cut(codes, *flat), tf.shape(low))
    names = {"text": "texts", "start": "starts", "end": "ends", "score": "scores"}
    return {name: answers[of][:, 0] for name, of in names.items()} | answers | {"truncated": truncated}


def _ranked(kind: SpanKind, spans: Spans, null: tf.Tensor, asked: Asked) -> dict[str, tf.Tensor]:
    """starts, ends, scores [B, N], answer_counts and null_odds [B] of `served`; null: float32 [B], of no answer."""
    best = _best(spans, asked.n_best)
    there = best.found[:, 0]
    top = tf.where(there, best.scores[:, 0], 0.0)  # an infinite one would make numbers that are none
    # in float64: a long context has a million spans
    share = tf.reduce_sum(tf.exp(tf.cast(spans.scores - tf.gather(top, spans.owner)[:, None], tf.float64)), axis=1)
    total = tf.cast(tf.math.unsorted_segment_sum(share, spans.owner, tf.shape(null)[0]), null.dtype)
    rank, count = tf.range(tf.shape(best.scores)[1])[None], tf.reduce_sum(_int(best.found), axis=1)
    order, odds = rank + tf.zeros_like(count)[:, None], {}
    if kind.options["unanswerable"]:
        # the empty answer stands behind the spans that score as much, and is chosen by the threshold
        place = tf.reduce_sum(_int(best.found & (best.scores >= null[:, None])), axis=1)
        chosen = tf.where(null - top > asked.null_threshold, place, _int(place == 0))[:, None]
        at, empty = tf.where(rank == 0, chosen, tf.where(rank <= chosen, rank - 1, rank)), place[:, None]
        order = tf.where(at == empty, tf.shape(rank)[1], tf.where(at < empty, at, at - 1))
        odds = {"null_odds": tf.where(there, null - top, 0.0)}
        total = total * tf.exp(top - tf.maximum(top, null)) + tf.exp(null - tf.maximum(top, null))
        count, top = tf.minimum(count + 1, asked.n_best), tf.maximum(top, null)
    count = tf.where(there, count, 0)
    kept = rank < count[:, None]
    with_empty = [(best.scores, null[:, None]), (best.starts, 0), (best.ends, 0)]
    extended = (tf.concat([each, tf.broadcast_to(more, [tf.shape(null)[0], 1])], 1) for each, more in with_empty)
    scores, starts, ends = (tf.gather(each, order, batch_dims=1) for each in extended)
    scores = tf.exp(scores - top[:, None]) / total[:, None]
    return {
        "starts": tf.where(kept, starts, 0),
        "ends": tf.where(kept, ends, 0),
        "scores": tf.where(kept, scores, 0.0),
        "answer_counts": tf.maximum(count, 1),
        **odds,
    }


def _best(spans: Spans, n_best: tf.Tensor) -> Best:
    """The `n_best` [B] best spans of different characters of each input, of equal scores the first in the text.

    One after the other: each is taken out before the next is looked for, so that no array has a row for an input of all its
    spans.
    """
    inputs, tokens = tf.shape(n_best)[0], tf.shape(spans.owner)[0]
    most = tf.reduce_max(tf.concat([n_best, [1]], 0))
    begins = spans.firsts - tf.gather(spans.offsets, spans.owner)
    ends = spans.after - tf.gather(spans.offsets, spans.owner)[:, None]

    def next_best(rank: tf.Tensor, scores: tf.Tensor, *arrays: tf.TensorArray) -> tuple:
        of_token = tf.reduce_max(scores, axis=1)
        best = tf.math.unsorted_segment_max(of_token, spans.owner, inputs)
        found = (best > scores.dtype.min) & (rank < n_best)
        # a token more, of no characters, is that of no span
        numbers = tf.where(of_token == tf.gather(best, spans.owner), tf.range(tokens), tokens)
        first = tf.where(found, tf.math.unsorted_segment_min(numbers, spans.owner, inputs), tokens)
        more = tf.argmax(tf.gather(tf.pad(scores, [[0, 1], [0, 0]]), first), axis=1, output_type=tf.int32)
        low = tf.gather(tf.pad(begins, [[0, 1]]), first)
        high = tf.gather(tf.gather(tf.pad(ends, [[0, 1], [0, 0]]), first), more, batch_dims=1)
        same = (begins == tf.gather(low, spans.owner))[:, None] & (ends == tf.gather(high, spans.owner)[:, None])
        columns = (tf.where(found, best, 0.0), low, high, found)
        written = [array.write(rank, each) for array, each in zip(arrays, columns)]
        return rank + 1, tf.where(same, -float("inf"), scores), *written

    kinds = (spans.scores.dtype, tf.int32, tf.int32, tf.bool)
    arrays = [tf.TensorArray(each, most, element_shape=[None]) for each in kinds]
    _, _, *found = tf.while_loop(lambda rank, *_: rank < most, next_best, (0, spans.scores, *arrays))
    return Best(*(tf.transpose(each.stack()) for each in found))


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
    packed, places = tokenizer.join(*kind.ordered(tf.gather(asked, owner), context))
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
    return Windows(packed, owner, begin, size, places[text_item(items, kind.letter)], null, chosen)


def _scores(
    kind: SpanKind, windows: Windows, logits: tf.Tensor, number: tf.Tensor, firsts: tf.Tensor, lasts: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """[T, A] as of `SpanKind.scores`, of the tokens of all contexts, and the character behind each span, int32 [T, A].

    Args:
        number: int32 [T], of a token in its context. firsts, lasts: int32 [T], its characters among those of all contexts.
    """
    more = tf.range(kind.options["max_answer"])
    local = number - tf.gather(windows.begin, windows.chosen)
    inside = local[:, None] + more < tf.gather(windows.size, windows.chosen)[:, None]
    place = local + tf.gather(windows.place, windows.chosen)
    places = tf.minimum(place[:, None] + more, tf.shape(logits)[1] - 1)
    rows = tf.broadcast_to(windows.chosen[:, None], tf.shape(places))
    scores = tf.fill(tf.shape(places), -float("inf"))
    for pair in range(0, kind.width(()) or 2, 2):
        starts = tf.gather_nd(logits[..., pair], tf.stack([windows.chosen, place], 1))
        ends = tf.gather_nd(logits[..., pair + 1], tf.stack([rows, places], 2))
        scores = tf.maximum(scores, starts[:, None] + ends)
    tokens = tf.shape(number)[0]
    after = tf.gather(lasts, tf.minimum(tf.range(tokens)[:, None] + more, tokens - 1))
    there = inside & (after > firsts[:, None]) & (scores >= IMPOSSIBLE / 2)
    return tf.where(there, scores, -float("inf")), after


def _characters(strings: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Code points [B, (n)], and the places of those that are no blanks, over all texts, between -1 and their number."""
    codes = decode(strings)
    filled = tf.where(~_blank(codes).flat_values)[:, 0]
    return codes, tf.concat([[-1], _int(filled), [tf.size(codes.flat_values)]], 0)


def _blank(codes: tf.RaggedTensor) -> tf.RaggedTensor:
    return codes.with_flat_values(tf.reduce_any(codes.flat_values[:, None] == tf.constant(BLANKS), axis=1))


def _int(values: tf.Tensor) -> tf.Tensor:
    return tf.cast(values, tf.int32)

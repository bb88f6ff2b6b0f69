"""Words, windows, labels and entities as TensorFlow operations, for SavedModels: those of `answers.tags`."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf

from kerasbert.answers.schemes import OUTSIDE, begins_span, ends_span, has_spans, split_tag
from kerasbert.answers.tags import TagsKind, room_of, step_of
from kerasbert.inputs import Tensor
from kerasbert.storage.json_view import Json
from kerasbert.tasks.exported_kind import MOST_ROWS
from kerasbert.text.graph import counted, first_of
from kerasbert.text.tree_graph import Belongs
from kerasbert.text.words_graph import Words, cut, decode

if TYPE_CHECKING:
    from kerasbert.text.graph import GraphTokenizer

_NONE = np.iinfo(np.int64).max
SPACES = [code for code in range(0x110000) if chr(code).isspace()]  # that str.strip takes off


class Windows(NamedTuple):
    """The windows [R] of all texts, one text after the other.

    Args:
        packed: the network's inputs [R, S], and `owners`. row, place: int64 [W], for each word of all texts the window in which
            its first token has most context, and the token there, counted in the row. answered: bool [W], whether the word has
            a token.
    """

    packed: dict[str, tf.Tensor]
    row: tf.Tensor
    place: tf.Tensor
    answered: tf.Tensor


class Sentences(NamedTuple):
    """The words of all inputs, as they are answered and as they are tokenized.

    Args:
        words: Words. codes: code points [B, (characters)] of the text in which they have their characters.
        joined: strings [B], the words with a blank between two. firsts, lasts: int64 [W], the characters of each word without
            white space around it, among those of all these strings with a blank behind each.
    """

    words: Words
    codes: tf.RaggedTensor
    joined: tf.Tensor
    firsts: tf.Tensor
    lasts: tf.Tensor


def sentences_of(words: Words, codes: tf.RaggedTensor | None = None, edges: Sequence[Tensor] = (0, 0)) -> Sentences:
    """The words of some texts.

    Args:
        codes: of the texts; those of the joined words by default. edges: white space before and behind each word.
    """
    lengths = tf.cast(words.ends.flat_values - words.starts.flat_values, tf.int64)
    begins = tf.cumsum(lengths + 1, exclusive=True)
    before, after = (tf.cast(each, tf.int64) for each in edges)
    # a blank behind each, and the last taken off: joining by a separator leaves that behind a first, empty word out
    joined = tf.strings.reduce_join(words.strings.with_flat_values(words.strings.flat_values + " "), axis=-1)
    sizes = tf.maximum(0, tf.strings.length(joined) - 1)
    joined = tf.strings.substr(joined, tf.zeros_like(sizes), sizes)
    return Sentences(
        words, decode(joined) if codes is None else codes, joined, begins + before, begins + lengths - after
    )


def listed(words: tf.Tensor, lengths: tf.Tensor) -> Sentences:
    """The first `lengths` [B] words of lists [B, W], as `answers.tags.sentence_of` reads a list; others behind them."""
    there = counted("lengths", lengths, tf.shape(words)[1], "words")
    strings = tf.ragged.boolean_mask(words, there)
    flat = decode(strings.flat_values)
    strings = strings.with_flat_values(tf.strings.unicode_encode(flat, "UTF-8"))
    sizes = flat.row_lengths()
    blank = tf.reduce_any(flat.flat_values[:, None] == tf.constant(SPACES), axis=1)
    place = tf.ragged.range(sizes).flat_values
    begins = tf.where(blank, tf.gather(sizes, flat.value_rowids()), place)  # of what stands there, the least
    before = tf.minimum(tf.reduce_min(flat.with_flat_values(begins), axis=1), sizes)
    last = tf.reduce_max(flat.with_flat_values(tf.where(blank, tf.zeros_like(place), place + 1)), axis=1)
    last = tf.maximum(last, before)
    ends = strings.with_flat_values(tf.cast(sizes, tf.int32))
    starts = strings.with_flat_values(tf.cumsum(ends.flat_values + 1, exclusive=True))
    firsts = tf.gather(tf.concat([starts.flat_values, [0]], 0), strings.row_starts())
    starts = strings.with_flat_values(starts.flat_values - tf.gather(firsts, strings.value_rowids()))
    return sentences_of(Words(strings, starts, starts + ends), edges=(before, sizes - last))


def served(
    run: Callable[[dict], Mapping],
    tokenizer: "GraphTokenizer",
    texts: tf.Tensor | Sentences,
    length: int,
    labels: Sequence[str],
    kind: TagsKind,
) -> dict[str, tf.Tensor]:
    """What `TagsKind.rows` and `decode` give, for raw texts [B], or lists of words.

    Args:
        run: packed rows -> {the kind's output: [R, S, C]}. tokenizer: GraphTokenizer.

    Returns:
        words, labels string, starts, ends int32, scores float32 [B, words of the longest text], lengths int32 [B]; where the
        labels are of spans also entities, entity_labels string, entity_starts, entity_ends int32 [B, most], entity_counts [B];
        truncated bool [B]: words behind the first MOST_ROWS windows have no label.
    """
    sentences = texts if isinstance(texts, Sentences) else sentences_of(tokenizer.words(texts), decode(texts))
    words, carried = sentences.words, tokenizer.carried(sentences.joined)
    room = room_of(tokenizer.single, length, trees=tokenizer.trees is not None)[1]
    most = room + (MOST_ROWS - 1) * step_of(room, kind.options["stride"])
    truncated = carried[0].row_lengths() > most
    ids, starts, ends = (first_of(each, most) for each in carried)
    belongs = None
    if tokenizer.trees is not None:
        belongs = tokenizer.trees.belongs(sentences.codes, _raw_starts(words, starts))
    first = _first_tokens(sentences, ids, starts, ends)
    windows = _windows(tokenizer, ids, first, words, length, kind.options["stride"], belongs)
    values = tf.gather_nd(run(windows.packed)[kind.output], tf.stack([windows.row, windows.place], 1))
    outside = tf.constant(len(labels), tf.int32)
    if (table := kind.table(len(labels))) is None:
        best, highest = tf.argmax(values, axis=-1, output_type=tf.int32), tf.reduce_max(values, axis=-1)
    else:
        best, highest = best_paths(values, windows.answered, words.starts.value_rowids(), words.starts.nrows(), table)
    numbers, scores = tf.where(windows.answered, best, outside), tf.where(windows.answered, highest, 0.0)

    def padded(flat: tf.Tensor, default: str | float) -> tf.Tensor:
        return words.starts.with_flat_values(flat).to_tensor(default)

    answers = {
        "words": words.strings.to_tensor(""),
        "labels": padded(tf.gather(tf.constant([*labels, OUTSIDE]), numbers), ""),
        "starts": words.starts.to_tensor(0),
        "ends": words.ends.to_tensor(0),
        "scores": padded(scores, 0.0),
        "lengths": tf.cast(words.starts.row_lengths(), tf.int32),
        "truncated": truncated,
    }
    return answers | (_entities(sentences.codes, words, numbers, labels) if has_spans(labels) else {})


def _first_tokens(
    sentences: Sentences, ids: tf.RaggedTensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
) -> tf.Tensor:
    """The first token of each word, int64 [W], counted in its text; _NONE where it has none. See `answers.tags.first_tokens`."""
    words = sentences.words.starts
    lengths = tf.cast(sentences.words.ends.flat_values - words.flat_values, tf.int64)
    begins = tf.concat([[0], tf.cumsum(lengths + 1)], 0)  # of words, all texts one after the other
    there = tf.where(sentences.lasts > sentences.firsts)[:, 0]  # no token is that of a word of nothing
    word_starts, word_ends = tf.gather(sentences.firsts, there), tf.gather(sentences.lasts, there)
    rows = ids.value_rowids()
    shift = tf.gather(tf.gather(begins, words.row_splits), rows)
    first, last = (tf.cast(each.flat_values, tf.int64) + shift for each in (starts, ends))
    word = tf.searchsorted(word_ends, first, side="right", out_type=tf.int64)
    known = tf.gather(tf.concat([word_starts, [_NONE]], 0), word)
    belongs = tf.maximum(known, first) < last
    number = tf.range(tf.size(rows, tf.int64)) - tf.gather(ids.row_splits, rows)
    owner = tf.gather(there, tf.boolean_mask(word, belongs))
    return tf.math.unsorted_segment_min(tf.boolean_mask(number, belongs), owner, tf.size(lengths, tf.int64))


def _raw_starts(words: Words, starts: tf.RaggedTensor) -> tf.RaggedTensor:
    """Where each token begins in its raw text, as `text.tree.starts_in` counts it."""
    lengths = tf.cast(words.ends.flat_values - words.starts.flat_values, tf.int64)
    begins = tf.cumsum(lengths + 1, exclusive=True)  # of words, all texts one after the other
    shift = tf.gather(tf.concat([begins, [0]], 0), tf.gather(words.starts.row_splits, starts.value_rowids()))
    at = tf.cast(starts.flat_values, tf.int64) + shift
    word = tf.searchsorted(begins, at, side="right", out_type=tf.int64) - 1
    raw = tf.cast(tf.gather(words.starts.flat_values, word), tf.int64) + at - tf.gather(begins, word)
    return starts.with_flat_values(raw)


def _windows(
    tokenizer: "GraphTokenizer",
    ids: tf.RaggedTensor,
    first: tf.Tensor,
    words: Words,
    length: int,
    stride: int,
    belongs: Belongs | None = None,
) -> Windows:
    lead, room = room_of(tokenizer.single, length, trees=belongs is not None)
    step = step_of(room, stride)
    tokens = ids.row_lengths()
    count = 1 + tf.maximum(tf.constant(0, tf.int64), (tokens - room + step - 1) // step)
    owners = tf.repeat(tf.range(ids.nrows()), count)
    before = tf.cumsum(count, exclusive=True)
    begin = (tf.range(tf.size(owners, tf.int64)) - tf.gather(before, owners)) * step
    end = tf.minimum(begin + room, tf.gather(tokens, owners))
    shift = tf.gather(ids.row_splits, owners)
    part = tf.ragged.range(shift + begin, shift + end)
    window = part.with_flat_values(tf.gather(ids.flat_values, part.flat_values))

    answered = first != _NONE
    first = tf.where(answered, first, 0)
    text = words.starts.value_rowids()
    nth = _most_context(first, tf.gather(tokens, text), tf.gather(count, text), room, step)
    row = tf.gather(before, text) + nth
    place = lead + first - nth * step
    if belongs is None:
        packed = tokenizer.join(window)[0]
    else:
        own = part.with_flat_values(tf.gather(belongs.entities.flat_values, part.flat_values))
        packed, places = tokenizer.grown([window], Belongs(own, belongs.numbers), length=length)
        place = tf.cast(tf.gather(places.flat_values, tf.gather(places.row_splits, row) + place), tf.int64)
    return Windows(packed | {"owners": tf.cast(owners, tf.int32)}, row, place, answered)


def _most_context(first: tf.Tensor, tokens: tf.Tensor, count: tf.Tensor, room: int, step: int) -> tf.Tensor:
    """The number [n] of the window in which a token has most context on its poorer side, as `answers.tags.window_of` has it.

    Args:
        first: int64 [n], places of tokens. tokens, count: int64 [n], how many tokens and windows the text of each has.
    """
    several = -(-room // step)
    number = tf.maximum(tf.constant(0, tf.int64), (first - room + step) // step)[:, None] + tf.range(
        several, dtype=tf.int64
    )
    left = first[:, None] - number * step
    right = tf.minimum(number * step + room, tokens[:, None]) - 1 - first[:, None]
    held = (number < count[:, None]) & (left >= 0)
    order = tf.minimum(left, right) * several - tf.range(several, dtype=tf.int64)
    best = tf.argmax(tf.where(held, order, -_NONE), axis=1)
    return tf.gather(number, best, axis=1, batch_dims=1)


def best_paths(
    values: tf.Tensor, answered: tf.Tensor, texts: tf.Tensor, count: tf.Tensor, table: np.ndarray
) -> tuple[tf.Tensor, tf.Tensor]:
    """`answers.crf.best_path` and the marginals of its labels, for the words of all texts.

    Args:
        values: emissions [W, C]. answered: bool [W]. texts: int64 [W], the text of each word, ascending. count: of texts.

    Returns:
        int32 [W], float32 [W]; 0 where a word is not answered.
    """
    number, places = table.shape[1], tf.where(answered)
    texts = tf.boolean_mask(texts, answered)
    emissions = tf.RaggedTensor.from_value_rowids(tf.boolean_mask(tf.cast(values, tf.float64), answered), texts, count)
    lengths = emissions.row_lengths()
    dense = tf.transpose(emissions.to_tensor(0.0, shape=[None, None, number]), [1, 0, 2])
    dense = tf.pad(
        dense, [[0, tf.maximum(0, 2 - tf.shape(dense)[0])], [0, 0], [0, 0]]
    )  # [W, B, C]; no scan goes over none
    transitions, start, end = (tf.constant(each) for each in (table[:-2], table[-2], table[-1]))

    def back(x: tf.Tensor) -> tf.Tensor:
        return tf.reverse_sequence(x, lengths, seq_axis=0, batch_axis=1)

    def flat(x: tf.Tensor) -> tf.Tensor:
        values = tf.RaggedTensor.from_tensor(tf.transpose(x), lengths=lengths).flat_values
        return tf.scatter_nd(places, values, tf.shape(answered, places.dtype))

    states = back(_along(dense, transitions, start, tf.reduce_max))
    last = tf.argmax(states[0] + end, axis=-1, output_type=tf.int32)
    by_next = tf.transpose(transitions)
    rest = tf.scan(
        lambda label, state: tf.argmax(state + tf.gather(by_next, label), axis=-1, output_type=tf.int32),
        states[1:],
        last,
    )
    labels = back(tf.concat([last[None], rest], 0))
    ahead = _along(dense, transitions, start, tf.reduce_logsumexp)
    marginals = tf.nn.softmax(ahead + back(_along(back(dense), by_next, end, tf.reduce_logsumexp)) - dense)
    return flat(labels), flat(tf.cast(tf.gather(marginals, labels, batch_dims=2), tf.float32))


def _along(emissions: tf.Tensor, transitions: tf.Tensor, start: tf.Tensor, total: Callable) -> tf.Tensor:
    """As that of `answers.crf`: [W, B, C] -> [W, B, C]."""
    first = start + emissions[0]
    rest = tf.scan(lambda state, now: now + total(state[:, :, None] + transitions, axis=1), emissions[1:], first)
    return tf.concat([first[None], rest], 0)


def _entities(codes: tf.RaggedTensor, words: Words, numbers: tf.Tensor, labels: Sequence[str]) -> dict[str, tf.Tensor]:
    """The spans of labels; see `answers.schemes.entities_of`."""
    tags = [split_tag(label) for label in (*labels, OUTSIDE)]
    pairs = [[(one[0], two[0], one[1] == two[1]) for two in tags] for one in tags]
    begins, ends = (tf.constant([[rule(*pair) for pair in row] for row in pairs]) for rule in (begins_span, ends_span))
    outside = tf.constant([len(labels)], tf.int32)
    splits, rows = words.starts.row_splits, words.starts.value_rowids()
    places = tf.range(tf.size(numbers, tf.int64))
    count = tf.size(numbers)
    before = tf.where(places == tf.gather(splits, rows), outside, tf.concat([outside, numbers], 0)[:count])
    after = tf.where(places + 1 == tf.gather(splits, rows + 1), outside, tf.concat([numbers, outside], 0)[1:])
    first = tf.where(tf.gather_nd(begins, tf.stack([before, numbers], 1)))[:, 0]
    last = tf.where(tf.gather_nd(ends, tf.stack([numbers, after], 1)))[:, 0]
    spans = tf.searchsorted(first, splits, out_type=tf.int64)
    starts, stops = tf.gather(words.starts.flat_values, first), tf.gather(words.ends.flat_values, last)
    shift = tf.gather(codes.row_splits, tf.gather(rows, first))
    texts = cut(codes, shift + tf.cast(starts, tf.int64), shift + tf.cast(stops, tf.int64))
    kinds = tf.gather(tf.constant([kind for _, kind in tags]), tf.gather(numbers, last))

    def padded(flat: tf.Tensor, default: str | float) -> tf.Tensor:
        return tf.RaggedTensor.from_row_splits(flat, spans, validate=False).to_tensor(default)

    return {
        "entities": padded(texts, ""),
        "entity_labels": padded(kinds, ""),
        "entity_starts": padded(starts, 0),
        "entity_ends": padded(stops, 0),
        "entity_counts": tf.cast(spans[1:] - spans[:-1], tf.int32),
    }


def unserved(served: Mapping[str, np.ndarray]) -> list[Json]:
    """The json of `Tags` of what a SavedModel gave."""
    answers = []
    for i, count in enumerate(served["lengths"].tolist()):
        lists = {name: served[name][i][:count].tolist() for name in ("words", "labels", "starts", "ends", "scores")}
        lists |= {name: [each.decode() for each in lists[name]] for name in ("words", "labels")}
        many = int(served["entity_counts"][i]) if "entity_counts" in served else 0
        columns = [served[f"entity_{name}"][i][:many].tolist() for name in ("labels", "starts", "ends")] if many else []
        texts = served["entities"][i][:many].tolist() if many else []
        found = zip(*columns, texts) if many else ()
        entities = [
            {"label": label.decode(), "start": a, "end": b, "text": text.decode(), "score": _least(lists, a, b)}
            for label, a, b, text in found
        ]
        answers.append(lists | {"entities": entities} | ({"truncated": True} if served["truncated"][i] else {}))
    return answers


def _least(answer: Mapping[str, list], start: int, end: int) -> float:
    """The score of the least sure word between two characters."""
    words = zip(answer["starts"], answer["ends"], answer["scores"])
    return min(score for first, last, score in words if first >= start and last <= end)

"""Added tokens in the graph: `added.Matcher` over code points, and the tokens of pieces put together again.

Matches come from one regular expression (RE2, tensorflow-text's regex_split_with_offsets); their flags are comparisons of
neighbours. A row below is a text or a piece of one; places are counted over the whole batch.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf

from kerasbert.text.added import Matcher
from kerasbert.text.normalize import TABLES

if TYPE_CHECKING:
    from kerasbert.text.graph import GraphTokenizer


CODE = (1 << 21) - 1  # a code point without flags
Tokens = tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]  # ids, starts, ends [B, (tokens)] int32


class Segments(NamedTuple):
    """Tokens, and the pieces between them.

    Attributes:
        ids: [S] int32, -1 for a piece.
        starts, ends: [S] int64, places.
        rows: [S] int64.
        splits: [B + 1] int64.
    """

    ids: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    rows: tf.Tensor
    splits: tf.Tensor

    def texts(self, codes: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Code points [n] -> those of the pieces [T, (characters)], and the place [T] at which each begins."""
        text = self.ids < 0
        starts, ends = tf.boolean_mask(self.starts, text), tf.boolean_mask(self.ends, text)
        places = tf.ragged.range(starts, ends)
        return places.with_flat_values(tf.gather(codes, places.flat_values)), starts

    def joined(self, pieces: Tokens, spans: tuple[tf.Tensor, tf.Tensor]) -> Tokens:
        """Tokens of the pieces [T, (tokens)], with offsets in the row, and `spans` [S] of all segments -> [B, (tokens)]."""
        token = self.ids >= 0
        index = tf.cast(token, tf.int64)
        count = pieces[0].nrows(out_type=tf.int64)
        order = tf.where(token, count + tf.cumsum(index) - 1, tf.cumsum(1 - index) - 1)

        def join(some: tf.RaggedTensor, own: tf.Tensor) -> tf.RaggedTensor:
            own = tf.cast(tf.boolean_mask(own, token), tf.int32)
            whole = tf.concat([some, tf.RaggedTensor.from_tensor(own[:, None], row_splits_dtype=tf.int64)], 0)
            segments = tf.gather(whole, order)
            return tf.RaggedTensor.from_row_splits(segments, self.splits, validate=False).merge_dims(1, 2)

        return join(pieces[0], self.ids), join(pieces[1], spans[0]), join(pieces[2], spans[1])


class Matches(NamedTuple):
    """Where forms of added tokens are found, in order.

    Attributes:
        forms: [M] int32, numbers of the forms.
        rows: [M] int64.
        starts, ends: [M] int64, places.
        first, last: [M] int64, places at which the row of each begins and ends.
    """

    forms: tf.Tensor
    rows: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    first: tf.Tensor
    last: tf.Tensor


class GraphMatcher(tf.Module):
    """`added.Matcher` as TensorFlow operations.

    Args:
        matcher: the Python one.
    """

    def __init__(self, matcher: Matcher) -> None:
        super().__init__(name="matcher")
        forms = matcher.forms
        tokens = [matcher.tokens[form] for form in forms]
        self._pattern = "|".join(_literal(form) for form in forms)
        with tf.init_scope():
            keys, values = tf.constant(forms), tf.range(len(forms), dtype=tf.int32)
            self._forms = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1)
            self._ids = tf.constant([number for number, _ in tokens], tf.int32)
            flags = [[token.single_word, token.lstrip, token.rstrip] for _, token in tokens]
            self._single, self._left, self._right = (tf.constant(column) for column in np.array(flags).T)
            self._blanks = tf.constant(TABLES.blanks, tf.int32)
            self._words = [tf.constant(getattr(TABLES, n), tf.int32) for n in ("letters", "numbers", "marks", "words")]

    def split(self, codes: tf.RaggedTensor) -> Segments:
        """Code points [B, (characters)] int32 -> tokens and what lies between them."""
        matches = self._standing(codes.flat_values, self._matches(codes))
        return self._segments(codes, *self._with_blanks(codes.flat_values, matches))

    def _matches(self, codes: tf.RaggedTensor) -> Matches:
        """Where the expression finds a form."""
        import tensorflow_text

        splits = codes.row_splits
        # tensorflow-text takes U+0000 for the end of a text: another control character of one byte in its place
        texts = codes.with_flat_values(tf.maximum(codes.flat_values, 1))
        found = tensorflow_text.regex_split_with_offsets(
            tf.strings.unicode_encode(texts, "UTF-8"), self._pattern, self._pattern
        )
        forms = self._forms.lookup(found[0].flat_values)
        matches = tf.where(forms >= 0)[:, 0]
        forms, rows = tf.gather(forms, matches), tf.gather(found[0].value_rowids(), matches)
        widths = sum(tf.cast(codes.flat_values >= bound, tf.int64) for bound in (0x0, 0x80, 0x800, 0x10000))
        before = tf.concat([[0], tf.cumsum(widths)], 0)

        def place(row_bytes: tf.RaggedTensor) -> tf.Tensor:
            at = tf.cast(tf.gather(row_bytes.flat_values, matches), tf.int64)
            return tf.searchsorted(before, at + tf.gather(before, tf.gather(splits, rows)), out_type=tf.int64)

        first, last = tf.gather(splits, rows), tf.gather(splits, rows + 1)
        return Matches(forms, rows, place(found[1]), place(found[2]), first, last)

    def _standing(self, flat: tf.Tensor, matches: Matches) -> Matches:
        """Matches without those that stand beside a letter and whose token must not."""
        word = tf.concat([inside_bounds(flat, self._words[0]), [False]], 0)
        for bounds in self._words[1:3]:
            word |= tf.concat([inside_bounds(flat, bounds), [False]], 0)
        word ^= tf.concat([inside_bounds(flat, self._words[3]), [False]], 0)
        starts, ends = matches.starts, matches.ends
        beside = (starts > matches.first) & tf.gather(word, tf.maximum(starts - 1, 0))
        beside |= (ends < matches.last) & tf.gather(word, ends)
        kept = ~(tf.gather(self._single, matches.forms) & beside)
        return Matches(*(tf.boolean_mask(some, kept) for some in matches))

    def _with_blanks(self, flat: tf.Tensor, matches: Matches) -> tuple[Matches, tf.Tensor]:
        """Matches with the blanks that their tokens take in, and where what comes before each begins."""
        forms, rows, starts, ends, first, last = matches
        ends = tf.where(tf.gather(self._right, forms), self._after_blanks(flat, ends, last), ends)
        # a token takes in no blank that the one before it has taken in
        same_row = tf.concat([[False], rows[1:] == rows[:-1]], 0)[: tf.size(rows)]
        done = tf.where(same_row, tf.concat([[0], ends[:-1]], 0)[: tf.size(rows)], first)
        starts = tf.where(
            tf.gather(self._left, forms), tf.maximum(self._before_blanks(flat, starts, first), done), starts
        )
        return matches._replace(starts=starts, ends=ends), done

    def _segments(self, codes: tf.RaggedTensor, matches: Matches, done: tf.Tensor) -> Segments:
        """What comes before each token, from `done` on, the tokens, and what comes after a row's last one."""
        splits, rows, ends = codes.row_splits, matches.rows, matches.ends
        count = tf.size(rows, tf.int64)
        number = tf.range(count)
        row_matches = tf.searchsorted(rows, tf.range(codes.nrows(tf.int64)), side="right", out_type=tf.int64)
        has = row_matches > tf.concat([[0], row_matches[:-1]], 0)[: tf.size(row_matches)]
        final = tf.where(has, tf.gather(tf.concat([ends, [0]], 0), tf.maximum(row_matches - 1, 0)), splits[:-1])
        texts = tf.fill([tf.size(rows)], -1), tf.fill([tf.size(has)], -1)
        columns = [
            tf.concat([texts[0], tf.gather(self._ids, matches.forms), texts[1]], 0),
            tf.concat([done, matches.starts, final], 0),
            tf.concat([matches.starts, ends, splits[1:]], 0),
            tf.concat([rows, rows, tf.range(tf.size(has, tf.int64))], 0),
        ]
        keys = tf.concat([3 * number + 1, 3 * number + 2, 3 * row_matches], 0)
        order = tf.argsort(columns[3] * (3 * count + 3) + keys)
        ids, starts, ends, rows = (tf.gather(column, order) for column in columns)
        kept = (ids >= 0) | (starts < ends)
        ids, starts, ends, rows = (tf.boolean_mask(some, kept) for some in (ids, starts, ends, rows))
        new = tf.searchsorted(rows, tf.range(codes.nrows(tf.int64) + 1), out_type=tf.int64)
        return Segments(ids, starts, ends, rows, new)

    def trimmed(self, flat: tf.Tensor, segments: Segments) -> tuple[tf.Tensor, tf.Tensor]:
        """Where segments begin and end without their blanks."""
        starts = self._after_blanks(flat, segments.starts, segments.ends)
        return starts, self._before_blanks(flat, segments.ends, starts)

    def _after_blanks(self, flat: tf.Tensor, places: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
        """The first place from each on that holds no blank, at most `last`."""
        others = tf.where(~inside_bounds(flat, self._blanks))[:, 0]
        others = tf.concat([others, [tf.size(flat, tf.int64)]], 0)
        return tf.minimum(tf.gather(others, tf.searchsorted(others, places)), last)

    def _before_blanks(self, flat: tf.Tensor, places: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
        """The place after the last one before each that holds no blank, at least `first`."""
        others = tf.concat([[0], tf.where(~inside_bounds(flat, self._blanks))[:, 0] + 1], 0)
        return tf.maximum(tf.gather(others, tf.searchsorted(others, places, side="right") - 1), first)


def inside_bounds(codes: tf.Tensor, bounds: tf.Tensor) -> tf.Tensor:
    """`normalize.inside`."""
    return tf.searchsorted(bounds, codes, side="right") % 2 == 1


def _literal(text: str) -> str:
    """A string as an RE2 expression."""
    return "".join(c if c.isalnum() or ord(c) >= 128 else f"\\x{{{ord(c):x}}}" for c in text)


def around(graph: "GraphTokenizer", codes: tf.RaggedTensor) -> Tokens:
    """Tokens of code points [B, (characters)] with added tokens among them.

    Args:
        graph: GraphTokenizer: its matchers, and how it reads what lies between.
    """
    if graph.raw is None:
        return _normalized(graph, codes, tf.zeros([codes.nrows()], tf.int64))
    flat, splits = codes.flat_values, codes.row_splits
    segments = graph.raw.split(codes)
    pieces, places = segments.texts(flat)
    begins = places - tf.gather(splits, tf.boolean_mask(segments.rows, segments.ids < 0))
    found = _normalized(graph, pieces, begins)
    shift = tf.cast(tf.gather(begins, found[0].value_rowids()), tf.int32)
    found = found[0], *(part.with_flat_values(part.flat_values + shift) for part in found[1:])
    return segments.joined(found, graph.spans(graph.raw, flat, segments, tf.gather(splits, segments.rows)))


def _normalized(graph: "GraphTokenizer", pieces: tf.RaggedTensor, begins: tf.Tensor) -> Tokens:
    """Tokens of the pieces [T, (characters)] that begin at these characters [T] of their texts; offsets in the piece."""
    if graph.normal is None:
        return graph.tokenize_plain(tf.strings.unicode_encode(pieces, "UTF-8"), begins == 0)
    form, firsts, lasts = graph.form(pieces)
    splits = form.row_splits
    segments = graph.normal.split(graph.readable(form))
    texts, places = segments.texts(form.flat_values)
    firsts, lasts = tf.concat([firsts, [0]], 0), tf.concat([[0], lasts], 0)  # by the place, by the place after
    row_begins = tf.gather(begins, tf.boolean_mask(segments.rows, segments.ids < 0))
    ids, starts, ends = graph.tokenize_form(texts, row_begins + tf.gather(firsts, places) == 0)
    at = tf.gather(places, ids.value_rowids())
    low, high = (tf.cast(part.flat_values, tf.int64) + at for part in (starts, ends))
    row_ends = tf.gather(splits[1:], tf.gather(tf.boolean_mask(segments.rows, segments.ids < 0), ids.value_rowids()))
    first = tf.where(low < row_ends, tf.gather(firsts, low), tf.gather(lasts, low))
    last = tf.where(high > low, tf.gather(lasts, high), first)
    inner = ids, *(ids.with_flat_values(tf.cast(part, tf.int32)) for part in (first, last))
    if graph.form_is_text:
        shift = tf.gather(begins, segments.rows)
        spans = graph.spans(graph.normal, form.flat_values, segments, tf.gather(splits, segments.rows) - shift)
        spans = tuple(part - shift for part in spans)
    else:
        low, high = graph.form_spans(graph.normal, form.flat_values, segments)
        end = tf.gather(lasts, high)
        spans = tf.where(low < high, tf.gather(firsts, low), end), end
    return segments.joined(inner, spans)

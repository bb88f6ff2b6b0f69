"""Byte-level BPE in the graph, ids and character offsets equal to `bpe.BytePairEncoding`.

Code points -> classes (one gather) -> words (`bpe_words_graph`) -> each different word of
the batch once -> merges, one rank per word and round, for all words together. A word that is a piece needs no merging.
"""

import numpy as np
import tensorflow as tf

from kerasbert.text.added_graph import GraphMatcher, Segments
from kerasbert.text.bpe import BLANK, BYTES, BytePairEncoding, MergeTokenizer
from kerasbert.text.bpe_words import SPLITS
from kerasbert.text.bpe_words_graph import class_table, word_starts
from kerasbert.text.graph import GraphTokenizer, lookup
from kerasbert.text.nfc_graph import Composer
from kerasbert.text.words_graph import decode

NEVER = np.iinfo(np.int32).max  # rank of a pair that is not merged


class MergeGraph(GraphTokenizer):
    """What the kinds of BPE share: the merges of all words together."""

    def __init__(self, tokenizer: MergeTokenizer) -> None:
        super().__init__(tokenizer)
        self._size = tokenizer.size
        pairs = np.fromiter(tokenizer._ranks or [-2], np.int64)
        ranks = np.fromiter(tokenizer._ranks.values() or [NEVER], np.int32)
        words, word_ids = _whole_words(tokenizer)
        with tf.init_scope():
            self._merged = tf.constant(tokenizer._merged or [0], tf.int32)
            self._ranks = lookup(pairs, ranks, NEVER)
            self._together = tf.constant(_together(tokenizer) or [True])
            self._whole = lookup(words, word_ids, -1)

    def symbols(self, words: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Code points of words [W, (n)] -> `MergeTokenizer.symbols` of all [m] int32, and the word of each [m] int64."""
        raise NotImplementedError

    def _encode_words(self, words: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Words [W] -> ids [D, (tokens)] of the different ones, and which [W] int64 each is."""
        different, index = tf.unique(words, out_idx=tf.int64)
        return self._merge(different), index

    def _of_words(self, words: tf.RaggedTensor, begins: tf.Tensor, splits: tf.Tensor) -> tf.RaggedTensor:
        """Words [W, (n)], which begin at some code points [n] of rows -> ids [B, (tokens)] of the rows."""
        # the number of words before each row
        before = tf.concat([[0], tf.cumsum(tf.cast(begins, tf.int64))], 0)
        tokens, index = self._encode_words(tf.strings.unicode_encode(words, "UTF-8"))
        tokens = tf.gather(tokens, index)
        splits = tf.gather(tokens.row_splits, tf.gather(before, splits))
        return tf.RaggedTensor.from_row_splits(tokens.flat_values, splits, validate=False)

    def _merge(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Words [W] -> ids [W, (tokens)] int32."""
        whole = self._whole.lookup(words)
        found = tf.where(whole >= 0)[:, 0]
        others = tf.where(whole < 0)[:, 0]
        ids, rows = self.symbols(tf.strings.unicode_decode(tf.gather(words, others), "UTF-8"))
        word = tf.gather(others, rows)
        done_ids, done_words = tf.gather(whole, found), found

        flat = (tf.TensorShape([None]),) * 4
        loop = (ids, word, done_ids, done_words)
        loop = tf.while_loop(lambda ids, *_: tf.size(ids) > 0, self._merge_lowest, loop, shape_invariants=flat)
        order = tf.argsort(loop[3], stable=True)
        return tf.RaggedTensor.from_value_rowids(
            tf.gather(loop[2], order), tf.gather(loop[3], order), tf.size(words, tf.int64), validate=False
        )

    def _merge_lowest(self, ids: tf.Tensor, word: tf.Tensor, done_ids: tf.Tensor, done_words: tf.Tensor) -> tuple:
        """Merge the pairs of the lowest rank in each word; a word without one is done."""
        joined = word[:-1] == word[1:]
        left, right = tf.cast(ids[:-1], tf.int64), tf.cast(ids[1:], tf.int64)
        pairs = tf.where(joined, left * self._size + right, -1)
        ranks = tf.concat([self._ranks.lookup(pairs), tf.fill([tf.minimum(tf.size(ids), 1)], NEVER)], 0)
        # a segment for each word that is left
        segment = tf.cumsum(tf.cast(tf.concat([[False], ~joined], 0), tf.int32))[: tf.size(ids)]
        lowest = tf.gather(tf.math.segment_min(ranks, segment), segment)
        going = lowest < NEVER
        merge = self._apart((ranks == lowest) & going, lowest, segment)
        merged = tf.where(merge, tf.gather(self._merged, tf.where(merge, lowest, 0)), ids)
        kept = ~tf.concat([[False], merge[:-1]], 0)[: tf.size(ids)]
        finished = ~going
        stays = kept & going
        return (
            tf.boolean_mask(merged, stays),
            tf.boolean_mask(word, stays),
            tf.concat([done_ids, tf.boolean_mask(ids, finished)], 0),
            tf.concat([done_words, tf.boolean_mask(word, finished)], 0),
        )

    def _apart(self, merge: tf.Tensor, lowest: tf.Tensor, segment: tf.Tensor) -> tf.Tensor:
        """Which of the pairs of the lowest rank of their word, bool [n], are merged in this round: no two that overlap."""
        position = tf.range(tf.size(merge))
        leftmost = tf.gather(tf.math.segment_min(tf.where(merge, position, NEVER), segment), segment)
        # of overlapping pairs (a a a) the first, third, ... are merged
        run_begins = merge & ~tf.concat([[False], merge[:-1]], 0)[: tf.size(merge)]
        run = tf.cumsum(tf.cast(run_begins, tf.int32)) - 1
        run_first = tf.gather(tf.concat([tf.where(run_begins)[:, 0], [0]], 0), tf.maximum(run, 0))
        together = tf.gather(self._together, tf.where(merge, lowest, 0))
        alternate = (position - tf.cast(run_first, tf.int32)) % 2 == 0
        return merge & tf.where(together, alternate, position == leftmost)


class BytePairGraph(MergeGraph):
    """A byte-level BPE tokenizer as TensorFlow operations; see `GraphTokenizer`."""

    def __init__(self, tokenizer: BytePairEncoding) -> None:
        super().__init__(tokenizer)
        self._prefix = tokenizer.add_prefix_space
        self._digits = SPLITS[tokenizer.split].digits
        self._composer = Composer() if tokenizer.nfc else None
        self.form_is_text = not tokenizer.nfc
        pieces = [piece if all(c in BYTES for c in piece) else "" for piece in tokenizer.vocabulary]
        blocks, entries = class_table()
        with tf.init_scope():
            self._blocks, self._entries = tf.constant(blocks), tf.constant(entries)
            self._bytes = tf.constant(tokenizer._bytes, tf.int32)
            self._widths = tf.constant([len(piece) for piece in pieces], tf.int64)
            self._leading = tf.constant([len(piece) - len(piece.lstrip(BLANK)) for piece in pieces], tf.int64)
            self._trailing = tf.constant([len(piece) - len(piece.rstrip(BLANK)) for piece in pieces], tf.int64)

    @tf.autograph.experimental.do_not_convert
    def encode_plain(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """`encode` of texts without added tokens."""
        if self._composer is not None:
            strings = tf.strings.unicode_encode(self._composer(decode(strings))[0], "UTF-8")
        codes, _ = self._decode(strings)
        return self._ids(codes)

    @tf.autograph.experimental.do_not_convert
    def tokenize_plain(
        self, strings: tf.Tensor, first: tf.Tensor | None = None
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """`tokenize` of texts without added tokens."""
        if self._composer is None:
            return self._tokenize(strings, first)
        codes = decode(strings)
        form, firsts, lasts = self._composer(codes)
        ids, starts, ends = self._tokenize(tf.strings.unicode_encode(form, "UTF-8"), first)
        # one more place behind the last
        firsts, lasts = tf.concat([firsts, [0]], 0), tf.concat([[0], lasts], 0)
        row = ids.value_rowids()
        begin, end = tf.gather(form.row_splits, row), tf.gather(form.row_splits, row + 1)
        low, high = (tf.cast(part.flat_values, tf.int64) + begin for part in (starts, ends))
        first_places = tf.where(low < end, tf.gather(firsts, low), tf.gather(codes.row_lengths(), row))
        last_places = tf.where(high > low, tf.gather(lasts, high), first_places)
        return ids, *(ids.with_flat_values(tf.cast(part, tf.int32)) for part in (first_places, last_places))

    def _tokenize(
        self, strings: tf.Tensor, first: tf.Tensor | None
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        codes, prefixed = self._decode(strings)
        ids = self._ids(codes)
        # the pieces tile the batch's bytes: byte -> character of the row
        character = tf.repeat(tf.range(tf.size(codes.flat_values, tf.int64)), utf8_widths(codes.flat_values))
        rows = ids.value_rowids()
        begins = tf.gather(codes.row_splits, rows)
        end_bytes = tf.cumsum(tf.gather(self._widths, ids.flat_values))
        start_bytes = end_bytes - tf.gather(self._widths, ids.flat_values)
        starts = tf.gather(character, start_bytes) - begins
        ends = tf.gather(character, end_bytes - 1) + 1 - begins
        # a blank that was put before the text has the offsets of its first character
        shift = tf.gather(prefixed, rows)
        starts, ends = tf.maximum(starts - shift, 0), tf.maximum(ends - shift, 1)
        # blanks are trimmed, but for a single one before the first token, which may have been put there
        leading = tf.gather(self._leading, ids.flat_values)
        if self._prefix:
            at_first = starts == 0 if first is None else (starts == 0) & tf.gather(first, rows)
            leading = tf.where(at_first & (leading == 1), tf.zeros_like(leading), leading)
        starts = tf.minimum(starts + leading, ends)
        ends = tf.maximum(ends - tf.gather(self._trailing, ids.flat_values), starts)
        return ids, *(ids.with_flat_values(tf.cast(values, tf.int32)) for values in (starts, ends))

    def form(self, pieces: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """The text as it is, or composed."""
        if self._composer is not None:
            return self._composer(pieces)
        places = tf.range(tf.size(pieces.flat_values, tf.int64)) - tf.gather(pieces.row_splits, pieces.value_rowids())
        return pieces, places, places + 1

    def tokenize_form(
        self, texts: tf.RaggedTensor, first: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Tokens of code points [T, (n)]."""
        return self._tokenize(tf.strings.unicode_encode(texts, "UTF-8"), first)

    def spans(
        self, matcher: GraphMatcher, flat: tf.Tensor, segments: Segments, origins: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Offsets of added tokens without the blanks that they have taken in."""
        starts, ends = matcher.trimmed(flat, segments)
        if self._prefix:
            starts = tf.where((segments.starts == origins) & (starts == origins + 1), origins, starts)
            ends = tf.maximum(ends, starts)
        return starts - origins, ends - origins

    def form_spans(self, matcher: GraphMatcher, flat: tf.Tensor, segments: Segments) -> tuple[tf.Tensor, tf.Tensor]:
        return matcher.trimmed(flat, segments)

    def _decode(self, strings: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Strings [B] -> code points [B, (characters)] int32, and whether [B] int64 a blank was put before each."""
        strings = tf.convert_to_tensor(strings, tf.string)
        if not self._prefix:
            none = tf.zeros([tf.size(strings)], tf.int64)
            return tf.strings.unicode_decode(strings, "UTF-8", errors="replace", replacement_char=0xFFFD), none
        bare = (tf.strings.substr(strings, 0, 1) != " ") & (tf.strings.length(strings) > 0)
        strings = tf.where(bare, tf.strings.join([" ", strings]), strings)
        codes = tf.strings.unicode_decode(strings, "UTF-8", errors="replace", replacement_char=0xFFFD)
        return codes, tf.cast(bare, tf.int64)

    def symbols(self, words: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        codes = words.flat_values
        flat = tf.reshape(byte_columns(codes), [-1])
        return tf.gather(self._bytes, tf.boolean_mask(flat, flat >= 0)), tf.repeat(
            words.value_rowids(), utf8_widths(codes)
        )

    def _ids(self, codes: tf.RaggedTensor) -> tf.RaggedTensor:
        flat = codes.flat_values
        kinds = tf.gather(self._entries, tf.gather(self._blocks, tf.bitwise.right_shift(flat, 8)) + (flat & 255))
        begins = word_starts(self._digits, flat, kinds, codes.row_splits)
        words = tf.RaggedTensor.from_row_starts(flat, tf.where(begins)[:, 0], validate=False)
        return self._of_words(words, begins, codes.row_splits)


def utf8_widths(codes: tf.Tensor) -> tf.Tensor:
    """Bytes of each code point, int64."""
    return sum(tf.cast(codes >= bound, tf.int64) for bound in (0x0, 0x80, 0x800, 0x10000))


def byte_columns(codes: tf.Tensor) -> tf.Tensor:
    """Code points [n] -> the bytes of each [n, 4] int32, -1 where there is none."""
    tail = [0x80 | tf.bitwise.right_shift(codes, shift) & 0x3F for shift in (0, 6, 12)]
    none = tf.fill(tf.shape(codes), -1)
    two, three, four = codes >= 0x80, codes >= 0x800, codes >= 0x10000
    lead = tf.where(two, 0xC0 | tf.bitwise.right_shift(codes, 6), codes)
    lead = tf.where(three, 0xE0 | tf.bitwise.right_shift(codes, 12), lead)
    lead = tf.where(four, 0xF0 | tf.bitwise.right_shift(codes, 18), lead)
    columns = [lead, tf.where(four, tail[2], none), tf.where(three, tail[1], none), tf.where(two, tail[0], none)]
    return tf.stack(columns, 1)


def _whole_words(tokenizer: MergeTokenizer) -> tuple[list[str], list[int]]:
    """Words that are one piece after all merges, and their ids."""
    words, ids = [], []
    for i, piece in enumerate(tokenizer.vocabulary):
        word = None if i in tokenizer.special_ids else tokenizer.whole(piece)
        if word and tokenizer._word_ids(word) == [i]:
            words.append(word)
            ids.append(i)
    return words or [""], ids or [-1]


def _together(tokenizer: MergeTokenizer) -> list[bool]:
    """Of each rank, whether all its pairs merge at once: what they become has no pair of a lower rank."""
    first: dict[int, int] = {}  # id -> the lowest rank of a pair that it is in
    for key, rank in tokenizer._ranks.items():
        for i in divmod(key, tokenizer.size):
            first[i] = min(rank, first.get(i, rank))
    return [first.get(merged, NEVER) > rank for rank, merged in enumerate(tokenizer._merged)]

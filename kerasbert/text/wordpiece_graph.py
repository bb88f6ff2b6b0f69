"""WordPiece in the graph, ids and character offsets equal to `wordpiece.WordPiece`, for tf.data and for SavedModels.

Strings -> code points -> one table gather per code point (the same normaliser as in pure Python, as a table) -> text whose
words tensorflow-text's FastWordpieceTokenizer splits as we do. A row of plain ASCII, common punctuation and ideographs
needs nothing of this but lower-casing. A SavedModel holds tables as constants and loads with `import tensorflow_text` alone.
"""

import functools

import numpy as np
import tensorflow as tf

from kerasbert.text.added_graph import CODE, inside_bounds
from kerasbert.text.bert_words import BertWords
from kerasbert.text.graph import GraphTokenizer
from kerasbert.text.normalize import HANGUL, TABLES, Normalizer, hangul, inside, parse_ranges
from kerasbert.text.wordpiece import WordPiece

LIMIT = 0x110000
BREAK = 1 << 21  # flag of a code point that is a blank or a word of its own
MOVABLE = 1 << 22  # flag of a code point that NFD may move
DROPPED, MARK = -(1 << 24), -(1 << 25)  # first column of the table: nothing is left of the code point
LONG = 0xE000  # stands for each character of a too long word: private use, so in no text and in no piece
STAND_INS = 0xF0000  # from here on: private use too

# Characters that tensorflow-text 2.20 takes for punctuation or ideographs and Hugging Face's older tables for letters ...
CONTESTED_LETTERS = """
61d 9fd a76 c77 c84 1b4e-1b4f 1b7d-1b7f 2e43-2e4f 2e52-2e5d 10d6e 10ead 10f55-10f59 10f86-10f89 113d4-113d5 113d7-113d8
1144b-1144f 1145a-1145b 1145d 11660-1166c 116b9 1183b 11944-11946 119e2 11a3f-11a46 11a9a-11a9c 11a9e-11aa2 11b00-11b09
11be1 11c41-11c45 11c70-11c71 11ef7-11ef8 11f43-11f4f 11fff 12ff1-12ff2 16d6d-16d6f 16e97-16e9a 16fe2 1e5ff 1e95e-1e95f
2b820-2b91f
"""
# ... and the other way round; the contested letters' own code points are free to stand for these
CONTESTED_PUNCTUATION = {0x166D: 0x2E43, 0x111C9: 0x2E44}

# Characters that keep their form (but for ASCII capitals) and that tensorflow-text splits as we do
BLANKS = r"\t\n\r "
ALONE = r"!-/:-@\[-`{-~\x{2010}-\x{2027}\x{3001}-\x{3003}\x{3008}-\x{3011}\x{ff01}\x{ff0c}\x{ff1a}\x{ff1b}\x{ff1f}"
IDEOGRAPHS = r"\x{4e00}-\x{9fff}"


def _members(bounds: list[int]) -> list[int]:
    """Code points of a range table."""
    return [code for first, last in zip(bounds[::2], bounds[1::2]) for code in range(first, last)]


def stand_ins(split_cjk: bool) -> dict[int, int]:
    """Contested code points -> what stands for them, in texts and in pieces, before tensorflow-text."""
    letters = _members(parse_ranges(CONTESTED_LETTERS))
    if not split_cjk:
        letters = sorted({*letters, *_members(TABLES.cjk)})
    return {code: STAND_INS + i for i, code in enumerate(letters)} | CONTESTED_PUNCTUATION


@functools.cache
def character_table(lowercase: bool, strip_accents: bool, split_cjk: bool) -> tuple[np.ndarray, np.ndarray]:
    """The `Normalizer` of these settings as a table of two levels.

    Returns:
        blocks: [LIMIT / 256] int32, the row in `entries` of each block of 256 code points.
        entries: [rows, W] int32; column 0 is relative to the code point (so that most blocks are equal) and holds
            the flags, or is DROPPED or MARK; the others are further code points, 0 for none.
    """
    normalizer = Normalizer(lowercase, strip_accents, split_cjk)
    others = stand_ins(split_cjk)
    width = 3 if strip_accents else 2
    table = np.zeros([LIMIT, width], np.int32)
    for first, last in zip(TABLES.drop[::2], TABLES.drop[1::2]):
        table[first:last, 0] = DROPPED
    if split_cjk:
        for first, last in zip(TABLES.cjk[::2], TABLES.cjk[1::2]):
            table[first:last, 0] = BREAK
    if strip_accents:
        syllables = np.arange(HANGUL[1] - HANGUL[0])
        letters = np.stack(hangul(syllables), axis=1)
        letters[:, 0] -= syllables + HANGUL[0]
        table[slice(*HANGUL)] = letters
    codes = np.array(list(others))
    table[codes, 0] = np.array(list(others.values())) - codes
    changed = {*TABLES.lower, *TABLES.strip, 0x130}
    for bounds in (TABLES.space, TABLES.punctuation, TABLES.marks):
        changed.update(_members(bounds))
    for code in sorted(changed):
        if inside(code, TABLES.drop):
            continue
        normal = normalizer[chr(code)]
        if not normal:
            table[code, 0] = MARK
            continue
        alone = normal[0] == " "
        codes = [others.get(ord(c), ord(c)) for c in normal.strip(" ") or " "]
        table[code, : len(codes)] = codes
        table[code, 0] += alone * BREAK + (chr(code) in normalizer.movable) * MOVABLE - code
    numbers: dict[bytes, int] = {}
    blocks = [numbers.setdefault(block.tobytes(), len(numbers)) for block in table.reshape(LIMIT // 256, 256, width)]
    entries = np.frombuffer(b"".join(numbers), np.int32).reshape(-1, width)
    return np.array(blocks, np.int32) * 256, entries


class BertWordsGraph(GraphTokenizer):
    """What the graphs of tokenizers over BERT's words share: the normaliser. A subclass has `_words`."""

    def __init__(self, tokenizer: BertWords) -> None:
        super().__init__(tokenizer)
        self._lowercase, self._strip = tokenizer.lowercase, tokenizer.strip_accents
        self._split_cjk = tokenizer.split_cjk
        with tf.init_scope():
            blocks, entries = character_table(self._lowercase, self._strip, self._split_cjk)
            self._blocks, self._entries = tf.constant(blocks), tf.constant(entries)
            codes, classes = _class_steps()
            self._class_codes, self._classes = tf.constant(codes), tf.constant(classes)
            self._cjk = tf.constant(TABLES.cjk, tf.int32)
            back = sorted((stand_in, code) for code, stand_in in stand_ins(self._split_cjk).items())
            self._stand_ins, self._stood_for = (tf.constant(column, tf.int32) for column in zip(*back))

    def _words(self, items: tf.Tensor, splits: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Normalised items -> ids [B, (tokens)], and the first and the last item [n] int64 of each token."""
        raise NotImplementedError

    @tf.autograph.experimental.do_not_convert
    def tokenize_plain(
        self, strings: tf.Tensor, first: tf.Tensor | None = None
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """`tokenize` of texts without added tokens."""
        strings = tf.convert_to_tensor(strings, tf.string)
        items, splits, sources, first_sources = self._normalize(_decoded(strings))
        ids, starts, last = self._words(items, splits)
        row_first = tf.gather(first_sources, ids.value_rowids())
        starts, last = (tf.cast(tf.gather(sources, item) - row_first, tf.int32) for item in (starts, last))
        return ids, ids.with_flat_values(starts), ids.with_flat_values(last + 1)

    def form(self, pieces: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Items [T, (n)] of the pieces as BertNormalizer leaves them: with blanks around ideographs; and where they are."""
        items, splits, sources, first = self._normalize(pieces)
        count = tf.size(items, tf.int64)
        if self._split_cjk:
            ideograph = (items & BREAK > 0) & inside_bounds(items & CODE, self._cjk)
            repeats = tf.where(ideograph, tf.constant(3, tf.int64), 1)
            ends = tf.concat([[0], tf.cumsum(repeats)], 0)
            index = tf.repeat(tf.range(count), repeats)
            middle = tf.range(tf.size(index, tf.int64)) - tf.gather(ends, index) == 1
            padding = tf.gather(ideograph, index) & ~middle
            items, sources = tf.where(padding, BREAK | 0x20, tf.gather(items, index)), tf.gather(sources, index)
            splits = tf.gather(ends, splits)
        form = tf.RaggedTensor.from_row_splits(items, splits, validate=False)
        places = sources - tf.gather(first, form.value_rowids())
        return form, places, places + 1

    def readable(self, form: tf.RaggedTensor) -> tf.RaggedTensor:
        """Items as the code points that BertNormalizer has there."""
        codes = form.flat_values & CODE
        place = tf.minimum(tf.searchsorted(self._stand_ins, codes), tf.size(self._stand_ins) - 1)
        stands = tf.gather(self._stand_ins, place) == codes
        return form.with_flat_values(tf.where(stands, tf.gather(self._stood_for, place), codes))

    def tokenize_form(
        self, texts: tf.RaggedTensor, first: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Tokens of normalised items [T, (n)]."""
        ids, starts, last = self._words(texts.flat_values, texts.row_splits)
        begins = tf.gather(texts.row_splits, ids.value_rowids())
        return ids, ids.with_flat_values(starts - begins), ids.with_flat_values(last + 1 - begins)

    def _normalize(self, decoded: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Code points [B, (characters)] -> normalised ones, their rows, where they come from.

        Returns:
            items: [n] int32 code points and flags. splits: [B + 1] int64, where rows begin in `items`.
            sources: [n] int64, the character (counted over the whole batch) that an item came from.
            first: [B + 1] int64, the number of a row's first character.
        """
        codes, first = decoded.flat_values, decoded.row_splits
        entries = tf.gather(self._entries, tf.gather(self._blocks, tf.bitwise.right_shift(codes, 8)) + (codes & 255))
        entries = tf.concat([entries[:, :1] + codes[:, None], entries[:, 1:]], 1)

        def plain() -> tuple[tf.Tensor, tf.Tensor]:
            places = tf.where(entries > 0)
            return tf.gather_nd(entries, places), places[:, 0]

        if self._strip:
            movable = (entries[:, 0] > 0) & (entries[:, 0] & MOVABLE > 0)
            items, sources = tf.cond(tf.reduce_any(movable), lambda: self._sort(codes, entries, first), plain)
        else:
            items, sources = plain()
        return items, tf.searchsorted(sources, first, out_type=tf.int64), sources, first

    def _sort(self, codes: tf.Tensor, entries: tf.Tensor, first: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """NFD's sorting of combining characters: see `Normalizer._sorted`."""
        mark = entries < MARK // 2
        places = tf.where((entries > 0) | mark)
        sources, takes = places[:, 0], tf.cast(places[:, 1] == 0, tf.int64)
        items = tf.gather_nd(entries, places)
        item_codes = tf.where(items < 0, tf.gather(codes, sources), items & CODE)
        classes = tf.gather(self._classes, tf.searchsorted(self._class_codes, item_codes, side="right") - 1)
        # a run begins with each class 0 and with each row
        row = tf.searchsorted(first, sources, side="right", out_type=tf.int64)
        run = tf.cumsum(tf.cast(classes == 0, tf.int64)) + row
        order = tf.argsort(run * 256 + classes, stable=True)
        taken = tf.boolean_mask(sources, takes > 0)
        items = tf.gather(items, order)
        sources = tf.gather(taken, tf.cumsum(tf.gather(takes, order)) - 1)
        kept = items > 0
        return tf.boolean_mask(items, kept), tf.boolean_mask(sources, kept)


class WordPieceGraph(BertWordsGraph):
    """A WordPiece tokenizer as TensorFlow operations.

    Args:
        tokenizer: the pure-Python tokenizer; ids and offsets are the same.
    Call: strings [B] of UTF-8; what is invalid there counts as U+FFFD, as many as Python's "replace" gives.

    >>> tok = WordPieceGraph(WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able"]))
    >>> tok.encode(["Unaffable", ""]).to_list()
    [[5, 6, 7], []]
    """

    def __init__(self, tokenizer: WordPiece) -> None:
        import tensorflow_text

        others = stand_ins(tokenizer.split_cjk)
        super().__init__(tokenizer)
        self._limit = tokenizer.max_word_chars
        self._wordpiece = tensorflow_text.FastWordpieceTokenizer(
            _pieces(tokenizer, others),
            max_bytes_per_word=4 * self._limit,  # the limit is in characters: `_long_words`
            token_out_type=tf.int32,
        )
        alone = ALONE + IDEOGRAPHS * tokenizer.split_cjk
        word = f"[0-9A-Za-z]{{0,{min(self._limit, 100)}}}"  # RE2 keeps a state per count
        self._simple = f"(?:{word}[{BLANKS}{alone}])*{word}"

    def text_of(self, parts: tf.RaggedTensor) -> tf.Tensor:
        """The spellings of tokens [B, (tokens)] -> strings [B]."""
        return tf.strings.regex_replace(tf.strings.reduce_join(parts, axis=1, separator=" "), " ##", "")

    @tf.autograph.experimental.do_not_convert
    def encode_plain(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """`encode` of texts without added tokens."""
        strings = tf.convert_to_tensor(strings, tf.string)
        simple = tf.strings.regex_full_match(strings, self._simple)
        text = tf.strings.lower(strings) if self._lowercase else strings  # ASCII only; other rows are replaced

        def replace() -> tf.Tensor:
            rows = tf.where(~simple)
            items, splits, _, _ = self._normalize(_decoded(tf.gather_nd(strings, rows)))
            return tf.tensor_scatter_nd_update(text, rows, _to_strings(self._long_words(items, splits), splits))

        text = tf.cond(tf.reduce_all(simple), lambda: text, replace)
        return self._wordpiece.tokenize(text)

    def _words(self, items: tf.Tensor, splits: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Normalised items -> ids [B, (tokens)], and the first and the last item [n] int64 of each token."""
        items = self._long_words(items, splits)
        ids, starts, ends = self._wordpiece.tokenize_with_offsets(_to_strings(items, splits))
        # byte in the normalised row -> item
        widths = sum(tf.cast(items >= bound, tf.int64) for bound in (0x0, 0x80, 0x800, 0x10000))
        bytes_before = tf.concat([[0], tf.cumsum(widths)], 0)
        row_bytes = tf.gather(tf.gather(bytes_before, splits), ids.value_rowids())

        def item(row_byte: tf.Tensor) -> tf.Tensor:
            at = row_bytes + tf.cast(row_byte, tf.int64)
            return tf.searchsorted(bytes_before, at, side="right", out_type=tf.int64) - 1

        return ids, item(starts.flat_values), item(ends.flat_values - 1)

    def _long_words(self, items: tf.Tensor, splits: tf.Tensor) -> tf.Tensor:
        """Code points without flags; words of more than the allowed number of characters become ones that no piece has."""

        def replace() -> tf.Tensor:
            letter = tf.cast(items & BREAK == 0, tf.int64)
            row = tf.cast(tf.ragged.row_splits_to_segment_ids(splits), tf.int64)
            word = tf.cumsum(1 - letter) + row  # a new number at each break and at each row
            lengths = tf.math.unsorted_segment_sum(letter, word, tf.reduce_max(word) + 1)
            return tf.where((tf.gather(lengths, word) > self._limit) & (letter > 0), LONG, items)

        # a word ends at a break at the latest; one that goes on in the next row is told apart by `replace`
        breaks = tf.where(items & BREAK > 0)[:, 0]
        borders = tf.concat([[-1], breaks, [tf.size(items, tf.int64)]], 0)
        longest = tf.reduce_max(borders[1:] - borders[:-1]) - 1
        return tf.cond(longest > self._limit, replace, lambda: items) & CODE


def _decoded(strings: tf.Tensor) -> tf.RaggedTensor:
    """Strings [B] -> code points [B, (characters)]."""
    return tf.strings.unicode_decode(strings, "UTF-8", errors="replace", replacement_char=0xFFFD)


def _to_strings(items: tf.Tensor, splits: tf.Tensor) -> tf.Tensor:
    """Code points and row splits -> strings [B]."""
    rows = tf.RaggedTensor.from_row_splits(items, splits, validate=False)
    return tf.strings.unicode_encode(rows, "UTF-8")


def _pieces(tokenizer: WordPiece, others: dict[int, int]) -> list[str]:
    """The vocabulary for tensorflow-text; a piece that no text can hold must not match a stand-in."""
    characters = set[str]().union(*tokenizer.vocabulary)  # once each: a vocabulary has 200,000 of a few thousand
    unreachable = {c for c in characters if inside(ord(c), TABLES.drop) or inside(ord(c), TABLES.space)}
    translated = {c for c in characters if ord(c) in others}
    pieces = []
    for i, piece in enumerate(tokenizer.vocabulary):
        if piece not in tokenizer._known or not unreachable.isdisjoint(piece):
            piece = ""
        elif not translated.isdisjoint(piece):
            piece = piece.translate(others)
        pieces.append(f"[unreachable {i}]" if piece in ("", "##") else piece)
    return pieces


def _class_steps() -> tuple[np.ndarray, np.ndarray]:
    """Combining classes as a step function: codes [n] int32 where it changes, classes [n] int64 from there on."""
    classes = TABLES.classes
    edges = sorted({0, *classes, *(code + 1 for code in classes)})
    return np.array(edges, np.int32), np.array([classes.get(code, 0) for code in edges], np.int64)

"""Tokenizers as TensorFlow operations, for tf.data and for SavedModels: packing, and the choice by kind.

A SavedModel holds the tables and loads with `import tensorflow_text` alone.
"""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from kerasbert.errors import unknown
from kerasbert.inputs import NAMES, Tensor
from kerasbert.registry import TOKENIZERS
from kerasbert.text import added_graph
from kerasbert.text.added_graph import GraphMatcher, Segments
from kerasbert.text.base import Tokenizer
from kerasbert.text.template import Item, room
from kerasbert.text.tree import NONE
from kerasbert.text.tree_graph import Belongs, Grown, TreeGraph
from kerasbert.text.words_graph import Words, decode, split_words


def lookup(keys: Tensor, values: Tensor, default: int) -> tf.lookup.StaticHashTable:
    """A lookup table; a module that holds it takes it into a SavedModel."""
    content = tf.lookup.KeyValueTensorInitializer(tf.constant(keys), tf.constant(values, tf.int32))
    return tf.lookup.StaticHashTable(content, default)


class GraphTokenizer(tf.Module):
    """Base of the graph's tokenizers; ids and character offsets are the pure-Python tokenizer's.

    A subclass has `encode_plain(strings)` -> ids [B, (tokens)] and `tokenize_plain(strings, first)` -> (ids, starts, ends),
    ragged int32, of texts without added tokens, and, where those may be found in normalised text, `form` and `tokenize_form`.
    `strings` [B] are UTF-8; what is invalid there counts as U+FFFD, as many as Python's "replace" gives.

    Args:
        tokenizer: the pure-Python tokenizer, then known as `source`.
    """

    form_is_text = False

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(name="tokenizer")
        self.source = tokenizer
        self._single, self._pair, self._pad = tokenizer.single, tokenizer.pair, tokenizer.pad_id
        self.cls_id, self.pad_id = tokenizer.cls_id, tokenizer.pad_id
        self.trees = None if tokenizer.knowledge is None else TreeGraph(tokenizer.knowledge)
        self.raw = self.normal = None
        if tokenizer.added:
            raw, normal = tokenizer.matchers
            self.raw = GraphMatcher(raw) if raw.forms else None
            self.normal = GraphMatcher(normal) if normal.forms else None

    @property
    def pair(self) -> tuple[Item, ...]:
        """The template of two texts."""
        return tuple([Item(*item) for item in self._pair])

    @tf.autograph.experimental.do_not_convert
    def encode(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Strings [B] -> ids [B, (tokens)] int32, without special tokens."""
        if self.raw is None and self.normal is None:
            return self.encode_plain(strings)
        return self.tokenize(strings)[0]

    @tf.autograph.experimental.do_not_convert
    def tokenize(self, strings: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Strings [B] -> ids, starts, ends [B, (tokens)] int32; offsets are characters of the original text."""
        if self.raw is None and self.normal is None:
            return self.tokenize_plain(strings)
        return added_graph.around(self, decode(strings))

    def carried(self, strings: Tensor, offsets: bool = True) -> tuple[tf.RaggedTensor, Tensor, Tensor]:
        """`tokenize` with tokens as `join` takes them, here ids; the offsets are None where they are not asked for."""
        return self.tokenize(strings) if offsets else (self.encode(strings), None, None)

    @property
    def single(self) -> tuple[Item, ...]:
        """The template of one text."""
        return tuple([Item(*item) for item in self._single])

    def words(self, strings: tf.Tensor) -> Words:
        """The words of raw texts [B], as `Tokenizer.words` splits them."""
        return split_words(decode(strings))

    def encode_plain(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """`encode` of texts without added tokens."""
        raise NotImplementedError

    def tokenize_plain(
        self, strings: tf.Tensor, first: tf.Tensor | None = None
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """`tokenize` of texts without added tokens; `first` [B] bool: nothing stands before the text."""
        raise NotImplementedError

    def form(self, pieces: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Code points [T, (characters)] -> normalised [T, (n)], and the characters in which each begins and ends."""
        raise NotImplementedError

    def readable(self, form: tf.RaggedTensor) -> tf.RaggedTensor:
        """`form` as plain code points."""
        return form

    def tokenize_form(
        self, texts: tf.RaggedTensor, first: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """`tokenize_plain` of normalised code points [T, (n)]."""
        raise NotImplementedError

    def spans(
        self, matcher: GraphMatcher, flat: tf.Tensor, segments: Segments, origins: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Offsets [S] of added tokens in texts that begin at these places [S]."""
        return segments.starts - origins, segments.ends - origins

    def form_spans(self, matcher: GraphMatcher, flat: tf.Tensor, segments: Segments) -> tuple[tf.Tensor, tf.Tensor]:
        """Where added tokens [S] begin and end in normalised texts, whose offsets are then those of the texts."""
        return segments.starts, segments.ends

    @tf.autograph.experimental.do_not_convert
    def detokenize(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """`Tokenizer.decode` of ids [B, (tokens)]: strings [B]."""
        spellings = [self.source.spelling(i) for i in range(self.source.size)]
        left_out = tf.gather([spelling is None for spelling in spellings], ids)
        parts = tf.gather([spelling or b"" for spelling in spellings], tf.ragged.boolean_mask(ids, ~left_out))
        return self.text_of(parts)

    def text_of(self, parts: tf.RaggedTensor) -> tf.Tensor:
        """The spellings of tokens [B, (tokens)] -> strings [B]; here their bytes one after the other."""
        joined = tf.strings.reduce_join(parts, axis=1)
        return tf.strings.unicode_transcode(joined, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD)

    def pack(self, text_a: Tensor, text_b: Tensor | None = None, length: int = 128) -> dict[str, tf.Tensor]:
        """One or two texts [B] with special tokens as token_ids, padding_mask, segment_ids [B, length] int32.

        The template and the truncation are those of `Tokenizer.pack`; of a tokenizer with a graph rows are trees (`text.tree`).
        """
        return self.cut_to(text_a, text_b, length)[0]

    def cut_to(
        self, text_a: Tensor, text_b: Tensor | None = None, length: int = 128
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """`pack`, and whether tokens of the texts are missing there: bool [B]."""
        items = self._single if text_b is None else self._pair
        budget = room(items, length)
        if self.trees is not None:
            return self._trees([text_a] if text_b is None else [text_a, text_b], budget, length)
        ids = [self.carried(text, offsets=False)[0] for text in ([text_a] if text_b is None else [text_a, text_b])]
        lengths = [each.row_lengths() for each in ids]
        counts = [budget] if text_b is None else _kept(budget, *lengths)
        return self.join(*map(first_of, ids, counts), length=length)[0], tf.add_n(lengths) > budget

    def _trees(self, texts: list[tf.Tensor], budget: int, length: int) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        ids, found, counts = self._cut(texts, budget)
        entities, numbers = [], []
        for each in found:
            count = tf.add_n([tf.size(each, tf.int64) for each in numbers]) if numbers else tf.constant(0, tf.int64)
            own = each.entities.flat_values
            entities.append(each.entities.with_flat_values(tf.where(own == NONE, own, own + count)))
            numbers.append(each.numbers)
        lost = tf.add_n(
            [tf.cast(each.row_lengths(), tf.int64) - tf.cast(kept, tf.int64) for each, kept in zip(ids, counts)]
        )
        ids, entities = (list(map(first_of, of, counts)) for of in (ids, entities))
        belongs = Belongs(entities[0], tf.concat(numbers, 0))
        return self.grown(ids, belongs, entities[1:], length, width=length).packed, lost > 0

    def _cut(self, texts: list[tf.Tensor], budget: int) -> tuple[list, list[Belongs], list[tf.Tensor]]:
        """Tokens of one or two texts [B], their entities, and how many tokens of each are left beside its branches, [B]."""
        assert self.trees is not None
        tokens = [self.tokenize(text) for text in texts]
        found = [self.trees.belongs(decode(text), starts) for text, (_, starts, _) in zip(texts, tokens)]
        rooms = [tf.fill([tokens[0][0].nrows()], budget)]
        if len(texts) > 1:
            rooms = _kept(budget, *map(self.trees.sizes, found))
        return [ids for ids, *_ in tokens], found, list(map(self.trees.trunks, found, rooms))

    def grown(
        self,
        ids: list[tf.RaggedTensor],
        belongs: Belongs,
        others: "Sequence[tf.RaggedTensor]" = (),
        length: int = 128,
        width: int | None = None,
    ) -> Grown:
        """Rows of trees of one or two texts' ids [R, (tokens)], as `join` gives rows of texts.

        Args:
            belongs: of the first text, and the numbers of all entities. others: of the second, its entities.
            length: most tokens of a row. width: of the arrays; None for that of the longest row.
        """
        assert self.trees is not None
        items = self.single if len(ids) == 1 else self.pair
        rows, trunk, segments, members = ids[0].nrows(), [], [], []
        entities = [belongs.entities, *others]
        for item in items:
            number = "AB".index(item.text) if item.text else None
            special = tf.RaggedTensor.from_tensor(tf.fill([rows, 1], tf.constant(item.id, tf.int32)))
            trunk.append((special if number is None else ids[number]).with_row_splits_dtype(tf.int64))
            segments.append(tf.zeros_like(trunk[-1]) + item.segment)
            none = tf.cast(tf.zeros_like(trunk[-1]), tf.int64) + NONE
            members.append(none if number is None else entities[number].with_row_splits_dtype(tf.int64))
        tokens, of, own = (tf.concat(each, 1) for each in (trunk, segments, members))
        if (filling := self._filling(tokens, items)) is not None:
            parts = filling, tf.zeros_like(filling), tf.cast(tf.zeros_like(filling), tf.int64) + NONE
            tokens, of, own = (tf.concat(pair, 1) for pair in zip((tokens, of, own), parts))
        return self.trees.grow(tokens, of, own, belongs.numbers, length, self.pad_id, width)

    def _filling(self, packed: tf.RaggedTensor, items: Sequence[Item]) -> tf.RaggedTensor | None:
        """A padding token for each row of nothing, as `Tokenizer.join` has it; None where the template has special tokens."""
        if not all(item.text for item in items):
            return None
        none = tf.cast(packed.row_lengths() == 0, tf.int64)
        return tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(none)], self._pad), none, validate=False)

    def join(
        self, ids_a: tf.RaggedTensor, ids_b: tf.RaggedTensor | None = None, length: int | None = None
    ) -> tuple[dict[str, tf.Tensor], list[tf.Tensor]]:
        """One or two texts' ids [B, (tokens)] with the special tokens, padded to `length` or to the longest row.

        Returns:
            token_ids, padding_mask, segment_ids [B, W] int32, and where each item of the template begins, [B] int32.
        """
        rows, place = ids_a.nrows(), tf.zeros([ids_a.nrows()], tf.int32)
        token_ids, segment_ids, places = [], [], []
        for text, special, segment in self._single if ids_b is None else self._pair:
            if text:
                ids = ids_b if text == "B" and ids_b is not None else ids_a
            else:
                ids = tf.RaggedTensor.from_tensor(tf.fill([rows, 1], tf.constant(special, tf.int32)))
            token_ids.append(ids.with_row_splits_dtype(tf.int64))
            segment_ids.append(tf.zeros_like(token_ids[-1]) + segment)
            places.append(place)
            place += tf.cast(ids.row_lengths(), tf.int32)
        packed, segments = tf.concat(token_ids, 1), tf.concat(segment_ids, 1)
        filling = self._filling(packed, self._single if ids_b is None else self._pair)
        if filling is not None:
            packed, segments = tf.concat([packed, filling], 1), tf.concat([segments, tf.zeros_like(filling)], 1)
        shape = None if length is None else [None, length]
        seen = tf.ones_like(packed)
        padded = packed.to_tensor(self._pad, shape=shape), *(x.to_tensor(0, shape=shape) for x in (seen, segments))
        return dict(zip(NAMES, padded, strict=True)), places


def graph_tokenizer(tokenizer: Tokenizer) -> GraphTokenizer:
    """The graph's form of a tokenizer, by its kind.

    Raises:
        InputError: a kind that has none.
    """
    graphs = {name: kind.graph for name, kind in TOKENIZERS.items() if kind.graph}
    if tokenizer.kind not in graphs:
        raise unknown("graph tokenizer", tokenizer.kind, graphs, "kerasbert list tokenizers")
    return graphs[tokenizer.kind](tokenizer)


def of_lists(tokenizer: Tokenizer, offsets: bool = False) -> Callable[[list[str]], tuple[np.ndarray, ...]]:
    """Texts -> the ids of all [T] int32 and how many each has [n] int64; with offsets also where they begin and end, [T] int32.

    The texts are what UTF-8 can hold (`base.to_text`).
    """
    graph = graph_tokenizer(tokenizer)

    def both(texts: Tensor) -> tuple[Tensor, ...]:
        if not offsets:
            return (graph.encode(texts),)
        ids, starts, ends = graph.tokenize(texts)
        return ids, starts.flat_values, ends.flat_values

    run = tf.function(both, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)

    def tokenize(texts: list[str]) -> tuple[np.ndarray, ...]:
        ragged, *places = run(tf.constant(texts, tf.string))
        return ragged.flat_values.numpy(), np.diff(ragged.row_splits.numpy()), *(each.numpy() for each in places)

    return tokenize


def characters_before(strings: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Valid strings [B] -> code points [B, (characters)], and bytes [characters + 1] int64 before each in the whole batch."""
    codes = decode(strings)
    widths = sum(tf.cast(codes.flat_values >= bound, tf.int64) for bound in (0x0, 0x80, 0x800, 0x10000))
    return codes, tf.concat([[0], tf.cumsum(widths)], 0)


def _kept(budget: int, a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """`template.kept_tokens` of two texts' tokens [B], [B] each, but for texts that are shorter."""
    a, b = (tf.cast(each, tf.int32) for each in (a, b))
    return tf.maximum(budget - budget // 2, budget - b), tf.maximum(budget // 2, budget - a)


def first_of(tokens: tf.RaggedTensor, counts: Tensor) -> tf.RaggedTensor:
    """The first `counts` (a number, or one per row [B]) tokens of each row."""
    position = tf.ragged.range(tokens.row_lengths())
    counts = tf.cast(tf.broadcast_to(counts, [tokens.nrows()]), position.dtype)
    return tf.ragged.boolean_mask(tokens, position < counts[:, None])


def counted(name: str, counts: tf.Tensor, width: tf.Tensor, of: str, least: int = 0) -> tf.Tensor:
    """Which elements of rows count, bool [B, width]: the first `counts` [B] of each, whatever a batcher fills them up with.

    Args:
        name: str, of the counts. width: an int32 number. of: str, name of the rows.

    Raises:
        tf.errors.InvalidArgumentError: in the graph, where a count is below `least` or above the width.
    """
    message = f"the input {name} says how many of each row of {of} count: {least} to all of them. Received"
    fits = tf.reduce_all((counts >= least) & (counts <= width))
    with tf.control_dependencies([tf.debugging.Assert(fits, [message, counts, f"for {of} of", width])]):
        return tf.sequence_mask(counts, width)

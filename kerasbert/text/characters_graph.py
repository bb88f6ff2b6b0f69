"""`characters.CharacterWords` in the graph: the words' rule, one look-up a word, and their bytes."""

import numpy as np
import tensorflow as tf

from kerasbert.inputs import WORD, Tensor
from kerasbert.text.characters import FILLING, MOST, WORD_BEGIN, WORD_END, CharacterWords
from kerasbert.text.whole_words_graph import WholeWordsGraph
from kerasbert.text.words_graph import decode, split_words


class CharacterGraph(WholeWordsGraph):
    """A tokenizer of kind word_characters as TensorFlow operations; see `GraphTokenizer`.

    What `carried` gives and `join` takes are rows of 1 + WORD numbers: a token's id and its word's characters.

    >>> from kerasbert.text.characters import ORDER
    >>> tokenizer = CharacterGraph(CharacterWords([*ORDER, "a", "film"]))
    >>> tokenizer.encode(["a new film", ""]).to_list()
    [[4, 3, 5], []]
    >>> tokenizer.pack(["new"], length=4)["char_ids"][0, :, :4].numpy().tolist()
    [[259, 257, 260, 261], [259, 111, 102, 120], [259, 258, 260, 261], [0, 0, 0, 0]]
    """

    def __init__(self, tokenizer: CharacterWords) -> None:
        super().__init__(tokenizer)
        ids = list(tokenizer.special_ids)
        self._special = np.concatenate([np.array(ids)[:, None], tokenizer.table[ids]], axis=1).astype("int32")

    @tf.autograph.experimental.do_not_convert
    def tokenize_plain(
        self, strings: tf.Tensor, first: tf.Tensor | None = None
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Ids and character offsets of texts [B], ragged int32."""
        words = split_words(decode(strings))
        return words.strings.with_flat_values(self._words.lookup(words.strings.flat_values)), words.starts, words.ends

    @tf.autograph.experimental.do_not_convert
    def carried(self, strings: Tensor, offsets: bool = True) -> tuple[tf.RaggedTensor, Tensor, Tensor]:
        """As that of `GraphTokenizer`; tokens are [B, (tokens), 1 + WORD] int32."""
        words = split_words(decode(strings))
        flat = words.strings.flat_values
        rows = tf.concat([tf.cast(self._words.lookup(flat), tf.int32)[:, None], spelled(flat)], axis=1)
        return words.strings.with_flat_values(rows), words.starts, words.ends

    def join(
        self, ids_a: tf.RaggedTensor, ids_b: tf.RaggedTensor | None = None, length: int | None = None
    ) -> tuple[dict[str, tf.Tensor], list[tf.Tensor]]:
        """As that of `GraphTokenizer`, of what `carried` gives; with char_ids [B, W, WORD] int32."""
        count, numbered, table = self.source.size, [], [tf.constant(self._special)]
        for ids in (ids_a, ids_b):  # each token by its number among all, which no id is
            if ids is None:
                numbered.append(None)
                continue
            rows = ids.flat_values
            numbered.append(ids.with_flat_values(count + tf.range(tf.shape(rows)[0])))
            table.append(rows)
            count += tf.shape(rows)[0]
        joined, places = super().join(*numbered, length=length)
        number = joined["token_ids"]
        special = number[..., None] == tf.constant(self._special[:, 0])
        of_special = tf.reduce_sum(tf.cast(special, tf.int32) * tf.range(len(self._special)), axis=-1)
        at = tf.where(number < self.source.size, of_special, number - self.source.size + len(self._special))
        rows = tf.gather(tf.concat(table, 0), at)
        return joined | {"token_ids": rows[..., 0], "char_ids": rows[..., 1:]}, places


def spelled(words: tf.Tensor) -> tf.Tensor:
    """`characters.characters_of` of words [N] of UTF-8: int32 [N, WORD]."""
    raw = tf.cast(tf.io.decode_raw(words, tf.uint8, fixed_length=MOST), tf.int32) + 1
    bytes_ = tf.pad(tf.reshape(raw, [-1, MOST]), [[0, 0], [1, 1]])
    place = tf.range(WORD)[None]
    end = tf.minimum(tf.strings.length(words), MOST)[:, None] + 1
    inside = tf.where(place < end, bytes_, tf.where(place == end, WORD_END, FILLING))
    return tf.where(place == 0, WORD_BEGIN, inside)

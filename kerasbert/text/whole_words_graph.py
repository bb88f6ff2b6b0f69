"""`whole_words.WholeWords` in the graph: one look-up a word."""

import tensorflow as tf

from kerasbert.text.graph import GraphTokenizer, lookup
from kerasbert.text.whole_words import WholeWords


class WholeWordsGraph(GraphTokenizer):
    """A tokenizer of whole words as TensorFlow operations; see `GraphTokenizer`. A paper overrides `tokenize_plain`."""

    def __init__(self, tokenizer: WholeWords) -> None:
        super().__init__(tokenizer)
        with tf.init_scope():
            words = list(tokenizer.vocabulary)
            self._words = lookup(words, list(range(len(words))), tokenizer.unk_id)

    @tf.autograph.experimental.do_not_convert
    def encode_plain(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """`encode` of texts."""
        return self.tokenize_plain(strings)[0]

    def text_of(self, parts: tf.RaggedTensor) -> tf.Tensor:
        """The words [B, (words)] -> strings [B]."""
        return tf.strings.reduce_join(parts, axis=1, separator=" ")

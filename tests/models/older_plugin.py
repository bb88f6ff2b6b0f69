"""Blocks and an encoder from before there was a Context: their `call` takes `bias` and `read`.

One class overrides `call` altogether, the other calls its parent's. A whole plug-in of that time, its run too, is in
tests/golden/before_seams.
"""

import keras

from kerasbert.layers.block import Block
from kerasbert.models.bert import BERT, Encoder
from kerasbert.registry import register


class Scaled(Block):
    """Block whose sublayers are scaled."""

    def build(self, shape):
        super().build(shape)
        self.alpha = self.add_weight(shape=(2,), initializer=keras.initializers.Constant(0.5), name="alpha")

    def call(self, x, bias=None, read=None, training=False):
        source = x
        if read == "first":
            x = x[:, :1]
        y, probabilities = self.attention(x, bias, source, training=training)
        x = self.attention_norm(x, y * self.alpha[0], dropout=self.attention_dropout, training=training)
        y = self.feedforward(x) * self.alpha[1]
        return self.feedforward_norm(x, y, dropout=self.feedforward_dropout, training=training), probabilities


class Doubled(Scaled):
    """Its result counts twice."""

    def call(self, x, bias=None, read=None, training=False):
        y, probabilities = super().call(x, bias, read=read, training=training)
        return y * 2.0, probabilities


class Older(Encoder):
    """BERT's encoder with these blocks."""

    block_class = Doubled

    def call(self, inputs, training=False, read=None, attention=False):
        return super().call(inputs, training=training, read=read, attention=attention)


changes = {"pooler": False, "embeddings.segments": 0}
about = {"encoder": Older, "objective": "masked_lm", "tokenizer": "unigram"}
register(BERT.derive("older", spec=changes, sizes={"base": {}}, aliases={}, names={}, **about))

"""A third party's family in one file: a gated recurrent unit (Cho et al., 2014) over token vectors. No blocks, no positions.

Section 2.3, with the reset gate after the product, as Keras has it. A padded place keeps the state before it.

kerasbert finetune DIR --plugin gru.py --task classification --data FILE --out RUN
"""

import dataclasses

import keras

from kerasbert.layers.backend import gather
from kerasbert.registry import Family, register


@dataclasses.dataclass(frozen=True)
class Tokens:
    """Args: vocabulary: int V, rows of the token table. width: int E."""

    vocabulary: int = 30522
    width: int = 128


@dataclasses.dataclass(frozen=True)
class Settings:
    """Args: hidden: int H. dropout: float, in the head of a task. initializer: float, standard deviation of the tables."""

    hidden: int = 256
    dropout: float = 0.1
    initializer: float = 0.02
    embeddings: Tokens = Tokens()


class GRU(keras.Model):
    """Call: dict of token_ids [B, S] int, padding_mask [B, S] -> dict of sequence [B, S, H]. Weights: VE + 3H(E + H + 2)."""

    def __init__(self, spec, name="encoder", **kwargs):
        super().__init__(name=name, **kwargs)
        self.spec, self.tokenizer, self.labels, self.model_name = spec, None, None, None

    def build(self, shape=None):
        spec = self.spec
        normal = keras.initializers.TruncatedNormal(stddev=spec.initializer)
        self.table = self.add_weight(
            shape=(spec.embeddings.vocabulary, spec.embeddings.width), initializer=normal, name="table"
        )
        self.gru = keras.layers.GRU(
            spec.hidden, return_sequences=True, use_cudnn=False, name="gru", dtype=self.dtype_policy
        )
        self.gru.build((None, None, spec.embeddings.width))
        self.built = True

    def call(self, inputs, training=False, queries=None):
        mask = keras.ops.cast(inputs["padding_mask"], "bool")
        return {"sequence": self.gru(gather(self.table, inputs["token_ids"]), mask=mask, training=training)}


register(
    Family(
        name="gru",
        spec=Settings(),
        sizes={"base": {}, "small": {"hidden": 64, "embeddings.width": 64}},
        encoder=GRU,
        readout="last",
        paper="Cho et al., 2014, Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation",
    )
)

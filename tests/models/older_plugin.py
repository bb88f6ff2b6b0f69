"""plugin.py as it was before blocks were told a Context: their `call` takes (x, bias, read, training).

One class overrides `call` altogether, the other calls its parent's.
"""

import dataclasses
import functools
from types import MappingProxyType

import keras

from kerasbert.layers.block import Block
from kerasbert.models.bert import BERT, HF, Encoder
from kerasbert.objectives.bert import MaskedLMPretraining
from kerasbert.registry import Family, register, register_objective
from kerasbert.spec import Spec


@dataclasses.dataclass(frozen=True)
class Residual:
    """Args: start: float, what a sublayer's result is multiplied by at first."""

    start: float = 0.5


@dataclasses.dataclass(frozen=True)
class ReZeroSpec(Spec):
    """A Spec with its own part."""

    rezero: Residual = Residual()


class ReZeroBlock(Block):
    """Block whose sublayers are scaled. Args: start: float; the others are Block's."""

    def __init__(self, *, start, **kwargs):
        super().__init__(**kwargs)
        self.start = start

    def build(self, shape):
        super().build(shape)
        self.alpha = self.add_weight(shape=(2,), initializer=keras.initializers.Constant(self.start), name="alpha")

    def call(self, x, bias=None, read=None, training=False):
        source = x
        if read == "first":
            x = x[:, :1]
        y, probabilities = self.attention(x, bias, source, training=training)
        x = self.attention_norm(x, y * self.alpha[0], dropout=self.attention_dropout, training=training)
        y = self.feedforward(x) * self.alpha[1]
        return self.feedforward_norm(x, y, dropout=self.feedforward_dropout, training=training), probabilities


class Doubled(ReZeroBlock):
    """Its result counts twice."""

    def call(self, x, bias=None, read=None, training=False):
        y, probabilities = super().call(x, bias, read=read, training=training)
        return y * 2.0, probabilities


class ReZero(Encoder):
    """BERT's encoder with blocks of another kind; the head of a task has a hidden layer."""

    label_activation = "tanh"

    def call(self, inputs, training=False, read=None, attention=False):
        return super().call(inputs, training=training, read=read, attention=attention)

    @property
    def block_class(self):
        """Blocks with the Spec's start."""
        return functools.partial(Doubled, start=self.spec.rezero.start)


class RarelyMasked(MaskedLMPretraining):
    """Masked LM on one document at a time, a fifth of its tokens."""

    packing = "doc"
    masking_defaults = MappingProxyType({"rate": 0.2})


register_objective("seldom_masked", RarelyMasked)
register(
    Family(
        name="older",
        spec=ReZeroSpec(pooler=False).derive({"embeddings.segments": 0}),
        sizes={"base": {}, "small": {"hidden": 512, "attention.heads": 8, "feedforward.width": 2048}},
        encoder=ReZero,
        names={"hf": HF.derive(("bert.", "rezero."), rows=(("block_{i}/alpha", "rezero.encoder.layer.{i}.alpha"),))},
        objective="seldom_masked",
        tokenizer="unigram",
        paper=f"Bachlechner et al., 2021, ReZero is All You Need; {BERT.paper}",
    )
)

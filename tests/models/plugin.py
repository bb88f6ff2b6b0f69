"""A third party's model in one file: ReZero is All You Need (Bachlechner et al., 2021), as if by somebody else.

Section 3, equation 5: each sublayer's result is multiplied by a learned number before it is added. Differs: the paper
starts it at 0 and has no norms; here it starts at `rezero.start` and BERT's norms stay.
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

    def call(self, x, context, training=False):
        told, source, x = x, context.keys(x), context.rows(x)
        y, probabilities = self.attention(x, context.bias, source, training=training)
        y = self.adapted("attention", y, told, context, training)
        x = self.attention_norm(x, y * self.alpha[0], dropout=self.attention_dropout, training=training)
        y = self.adapted("feedforward", self.feedforward(x), told, context, training) * self.alpha[1]
        return self.feedforward_norm(x, y, dropout=self.feedforward_dropout, training=training), probabilities


class ReZero(Encoder):
    """BERT's encoder with blocks of another kind; the head of a task has a hidden layer."""

    label_activation = "tanh"

    @property
    def block_class(self):
        """Blocks with the Spec's start."""
        return functools.partial(ReZeroBlock, start=self.spec.rezero.start)


class RarelyMasked(MaskedLMPretraining):
    """Masked LM on one document at a time, a fifth of its tokens."""

    packing = "doc"
    defaults = MappingProxyType({"rate": 0.2})


register_objective("rarely_masked", RarelyMasked)
register(
    Family(
        name="rezero",
        spec=ReZeroSpec(pooler=False).derive({"embeddings.segments": 0}),
        sizes={"base": {}, "small": {"hidden": 512, "attention.heads": 8, "feedforward.width": 2048}},
        encoder=ReZero,
        names={"hf": HF.derive(("bert.", "rezero."), rows=(("block_{i}/alpha", "rezero.encoder.layer.{i}.alpha"),))},
        objective="rarely_masked",
        tokenizer="unigram",
        paper=f"Bachlechner et al., 2021, ReZero is All You Need; {BERT.paper}",
    )
)

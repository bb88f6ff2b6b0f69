"""Funnel-Transformer pretrained as ELECTRA's discriminator (Dai et al., 2020, section 3.1): `--objective funnel_electra`.

Generator and discriminator are Funnel-Transformers with a decoder, for every token is told of. As in ELECTRA (Clark et al., 2020,
section 3.2 and table 6) both read the same embeddings, and the generator has as many layers, a quarter of the width, of the heads
and of the feed-forward width, a third where the discriminator is 768 wide; 15% of the tokens are selected, 25% from 1,024 on.
The detection's head is transformers' FunnelDiscriminatorPredictions: a run goes out as FunnelForPreTraining.
"""

from collections.abc import Mapping
from typing import Any

import keras

from kerasbert.errors import InputError
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers import heads
from kerasbert.layers.backend import pick
from kerasbert.layers.feedforward import Linear
from kerasbert.models.electra import ElectraModel, ElectraPretraining, share_of, smaller
from kerasbert.models.funnel import FunnelSpec, FunnelTransformer
from kerasbert.registry import register_objective
from kerasbert.spec import Spec


def of_generator(spec: FunnelSpec) -> FunnelSpec:
    """The Spec of the generator; its heads are as wide as the discriminator's."""
    return smaller(spec, share_of(spec), multiple=2)  # a funnel's width is even


class Layers(FunnelTransformer):
    """A Funnel-Transformer that reads what others embed."""

    def _build(self) -> None:
        self.embeddings = self.norm = self.pooler = None
        self._build_layers()


class Generator(keras.layers.Layer):
    """The masked language model whose samples replace tokens.

    Args:
        spec: FunnelSpec, the generator's own.
    Call: x [B, S, E], the embeddings; batch; positions [B, P]; table [V, E] -> logits [B, P, V] float32.
    """

    def __init__(self, spec: FunnelSpec, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec = spec

    def build(self, shape: Shape) -> None:
        spec, kwargs = self.spec, {"dtype": self.dtype_policy}
        self.projection = Linear(spec.hidden, spec.initializer, name="projection", **kwargs)
        self.projection.build(shape)
        self.layers = Layers(spec, name="layers", **kwargs)
        self.layers.build()
        self.mlm = heads.token_head(heads.MaskedLM, spec, **kwargs)
        self.mlm.build((None, None, spec.hidden))

    def call(
        self, x: Tensor, batch: Mapping[str, Tensor], positions: Tensor, table: Tensor = None, training: bool = False
    ) -> Tensor:
        found = self.layers({**batch, "embedded": self.projection(x)}, training=training)
        return self.mlm(pick(found["sequence"], positions), table)


class FunnelElectraModel(ElectraModel):
    """ELECTRA's, of Funnel-Transformers."""

    def generated(self, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        embeddings = self.body.embeddings
        return self.heads["generator"](
            self.body.embed(inputs, training),
            batch=inputs,
            positions=inputs["mlm_positions"],
            table=embeddings.tokens.table,
            training=training,
        )


class FunnelElectraPretraining(ElectraPretraining):
    """ELECTRA's objective of Funnel-Transformers."""

    model_class = FunnelElectraModel

    def generator(self, encoder: FunnelTransformer) -> Generator:
        spec = encoder.spec
        if not isinstance(spec, FunnelSpec) or not spec.funnel.decoder:
            raise InputError(
                "the objective funnel_electra needs a Funnel-Transformer with a decoder, which tells of every token: pretrain a "
                "funnel with funnel.decoder of at least 1"
            )
        return Generator(of_generator(spec), name="generator", dtype=encoder.dtype_policy)

    @classmethod
    def networks(cls, spec: FunnelSpec, predictions: float) -> list[tuple[Spec, float]]:
        return [(of_generator(spec), predictions), (spec, 0.0)]


register_objective("funnel_electra", FunnelElectraPretraining)

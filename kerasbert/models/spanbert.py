"""SpanBERT: Improving Pre-training by Representing and Predicting Spans (Joshi et al., 2020).

Differences from BERT: contiguous spans of whole words are masked, all tokens of a span alike (section 3.1); the tokens of a
span are also predicted from the two tokens next to it (3.2, the span boundary objective); single sequences, without a
question about pairs (3.3). The encoder is BERT's, cased.
"""

from collections.abc import Mapping
from typing import ClassVar

import keras
from keras import ops

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.backend import pick
from kerasbert.layers.embeddings import Table
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.heads import MaskedLM, token_head
from kerasbert.layers.norms import LayerNorm
from kerasbert.models.bert import BERT, HF, TF1
from kerasbert.objectives.bert import BertPretraining, PretrainingModel
from kerasbert.objectives.boundary import boundaries
from kerasbert.registry import register, register_objective

PLACES = 20  # tokens of a span that are predicted from its boundary, as in the released code (max_pair_targets)
WIDTH = 200  # of the vector of a place (appendix B)


class SpanBoundary(MaskedLM):
    """Predict a token of a span from its boundary: y = f(x[s-1], x[e+1], p[i-s+1]) (section 3.2).

    h = LayerNorm(GeLU(W1 [left; right; place])), y = LayerNorm(GeLU(W2 h)), and the token table as in masked LM.

    Args: those of MaskedLM; width E is that of the token table.
    Call: left, right [B, P, H], places int [B, P], table [V, E] -> logits [B, P, V] float32.
    Trainable weights: 20*200 + (2*H + 200)*H + 3*H, and MaskedLM's.
    """

    def build(self, shape: Shape) -> None:
        *rows, hidden = shape
        kwargs = {"dtype": self.dtype_policy}
        self.places = Table(PLACES, WIDTH, self.initializer, name="places", **kwargs)
        self.places.build()
        self.inner = Linear(hidden, self.initializer, name="inner", **kwargs)
        self.inner.build((*rows, 2 * hidden + WIDTH))
        self.inner_norm = LayerNorm(self.epsilon, name="inner_norm", **kwargs)
        self.inner_norm.build(shape)
        super().build(shape)

    def call(self, left: Tensor, right: Tensor, places: Tensor, table: Tensor) -> Tensor:
        x = ops.concatenate([left, right, self.places(places)], axis=-1)
        return super().call(self.inner_norm(self.inner(x, activation=self.activation)), table)


class SpanBertModel(PretrainingModel):
    """PretrainingModel and the span boundary head.

    Call: also sbo_left, sbo_right, sbo_places [B, P] -> also sbo_logits [B, P, V] float32.
    """

    def call(self, inputs: Tensor, training: bool = False) -> dict[str, Tensor]:
        outputs = super().call(inputs, training=training)
        left, right = (pick(outputs["sequence"], inputs[name]) for name in ("sbo_left", "sbo_right"))
        table = self.encoder.embeddings.tokens.table
        outputs["sbo_logits"] = self.heads["sbo"](left, right, inputs["sbo_places"], table)
        return outputs


class SpanBertPretraining(BertPretraining):
    """Masked LM over spans + the span boundary objective, with equal weights (section 3.2).

    Differs: spans that touch are one span, and only its first 20 tokens are predicted from the boundary: both as in the
    released code.
    """

    packing = "full"
    defaults: Mapping[str, object] = {"select": "spans", "render": "span"}
    model_class = SpanBertModel
    predicted: ClassVar = {**BertPretraining.predicted, "sbo": ("mlm_labels", "sbo_weights")}

    def heads(self, encoder: Encoder) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        heads, shapes = super().heads(encoder)
        heads["sbo"] = token_head(SpanBoundary, encoder.spec, "sbo", dtype=encoder.dtype_policy)
        return heads, shapes | {"sbo": (None, None, encoder.spec.hidden)}

    def prepare(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        batch = super().prepare(features)
        return batch | boundaries(batch, PLACES)


register_objective("spanbert", SpanBertPretraining)
SPANBERT = register(
    BERT.derive(
        "spanbert",
        spec={"embeddings.vocabulary": 28996},
        sizes={"base": {}, "large": BERT.sizes["large"]},
        aliases={"base-cased": "base", "large-cased": "large"},
        objective="spanbert",
        # they have BERT's names, and no place for the span boundary head
        names={"hf": HF.derive(heads={**HF.heads, "sbo": None}), "tf1": TF1.derive(heads={**TF1.heads, "sbo": None})},
        paper="Joshi et al., 2020, SpanBERT: Improving Pre-training by Representing and Predicting Spans",
    )
)

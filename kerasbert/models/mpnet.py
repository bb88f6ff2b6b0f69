"""MPNet: Masked and Permuted Pre-training for Language Understanding (Song et al., 2020).

Of section 2, beside BERT:

- 15% of the tokens, whole words, are predicted one after another in a random order, each from all that are not predicted, from
  those before it in that order, and from a mask symbol in the place of itself and of those after it (2.3, position compensation):
  each prediction sees what XLNet's sees, and like BERT's how long the text is. The symbols are BERT's: of those predicted 80% are
  <mask>, 10% a random token, 10% the token itself (3.1).
- Two streams (2.2, figure 2), as XLNet's: here a query begins as the symbol in its place.
- Relative positions are T5's (3.1): learned numbers by distance, one table for all layers; learned positions beside them.
- No segments, no next sentence. Of the released code: positions count from 2, texts stand as <s> A </s> </s> B </s>.

`objectives/permuted.py` draws the order. Who sees what is one rule: a row of rank r sees the tokens whose order is at most r, and
the symbols of those whose order is above r, of each place exactly one of the two. Tokens have their order for a rank (0 where
they are not predicted), symbols 0, queries their order less 1. Differs: the paper writes the row in the order of prediction; here
it stays as the text has it, for positions enter by numbers alone.
"""

import dataclasses
from collections.abc import Mapping

from keras import ops

from kerasbert.checkpoints import buffers
from kerasbert.errors import InputError
from kerasbert.inputs import TEXT, Input, Tensor
from kerasbert.layers import visibility
from kerasbert.layers.attention import Attention
from kerasbert.layers.backend import choose
from kerasbert.layers.block import Block
from kerasbert.layers.buckets import Buckets, DistanceTable, with_distances
from kerasbert.layers.context import Context
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.heads import GeluMaskedLM
from kerasbert.layers.readout import Queries
from kerasbert.layers.two_streams import TwoStreams
from kerasbert.models.roberta import HF as ROBERTA_HF
from kerasbert.registry import Family, register
from kerasbert.spec import Embeddings, Spec


@dataclasses.dataclass(frozen=True)
class MPNetSpec(Spec):
    """A Spec with learned numbers of distances."""

    relative: Buckets = Buckets()

    def validate(self) -> "MPNetSpec":
        """Check what no single field can tell; returns self."""
        super().validate()
        heads = self.attention.heads
        if isinstance(heads, tuple) and len(set(heads)) > 1:
            raise InputError(
                f"all layers share the numbers of their heads' distances: one number of heads. Received: {heads}"
            )
        return self


class MPNetAttention(Attention):
    """Attention with a learned number of the distance on each score. `scoring`: float32 [B or 1, N, S, K]."""

    def scores(
        self, query: Tensor, key: Tensor, *, scoring: Tensor | None = None, queries: Queries = None, **at: object
    ) -> Tensor:
        return with_distances(super().scores(query, key, **at), scoring, queries)


class MPNetBlock(Block):
    """BERT's layer."""

    attention_class = MPNetAttention


class MPNet(Encoder):
    """MPNet's stack; weights beside BERT's: `relative/table` [buckets, N].

    Args:
        spec: MPNetSpec.
    Call: as Encoder, and, to predict, target_positions int32 [B, P], target_ids int32 [B, P] (the symbols that stand in their
        places) and order int32 [B, S] (0 for what is not predicted; a target that has 0 is nothing): then `sequence`
        [B, P, H] is the query stream's.
    """

    open_lengths = True

    block_class, token_head = MPNetBlock, GeluMaskedLM
    spec: MPNetSpec

    def _build(self) -> None:
        super()._build()
        spec = self.spec
        heads = spec.per_layer(spec.attention.heads, 0)
        self.relative = DistanceTable(spec.relative, heads, spec.initializer, name="relative", dtype=self.dtype_policy)
        self.relative.build()

    def places(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Where the tokens stand: int32 [B or 1, S]."""
        context = Context(position_ids=inputs.get("position_ids"))
        return context.places(ops.shape(inputs["token_ids"])[1])[0]

    def of_targets(self, values: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
        """Numbers of tokens [B or 1, S] at the places that are predicted: [B, P]."""
        values, rows = ops.cast(values, "int32"), ops.shape(inputs["token_ids"])[0]
        return choose(ops.broadcast_to(values, (rows, ops.shape(values)[1])), inputs["target_positions"])

    def embed(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        if "target_positions" not in inputs:
            return super().embed(inputs, training)
        tokens = self.embeddings.sum(inputs["token_ids"], None, inputs.get("position_ids"))
        symbols = self.embeddings.sum(inputs["target_ids"], None, self.of_targets(self.places(inputs), inputs))
        return self.embeddings.finish(ops.concatenate([tokens, symbols, symbols], axis=1), training)

    def context(self, inputs: Mapping[str, Tensor]) -> Context:
        places = self.places(inputs)
        if "target_positions" not in inputs:
            return dataclasses.replace(super().context(inputs), scoring=self.relative(places, places))
        targets = self.of_targets(places, inputs)
        tokens = ops.broadcast_to(places, ops.shape(inputs["token_ids"]))
        keys = ops.concatenate([tokens, targets], axis=1)  # [B, S + P]
        distances = self.relative(ops.concatenate([keys, targets], axis=1), keys)
        bias = visibility.bias(self.compensated(inputs))
        return TwoStreams(bias, scoring=distances, length=keys.shape[1] or ops.shape(keys)[1])

    def compensated(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Who sees whom in both streams (section 2.3): tokens, symbols, queries -> tokens, symbols: bool [B, S + 2P, S + P]."""
        order = ops.cast(inputs["order"], "int32")
        of_targets = self.of_targets(order, inputs)
        rank = ops.concatenate([order, ops.zeros_like(of_targets), ops.maximum(of_targets - 1, 0)], axis=1)
        rank = ops.expand_dims(rank, 2)
        tokens, symbols = ops.expand_dims(order, 1) <= rank, ops.expand_dims(of_targets, 1) > rank
        visible = ops.concatenate([tokens, symbols], axis=2)
        if "packed_ids" in inputs:
            pieces = self.of_targets(inputs["packed_ids"], inputs)
            keys = ops.concatenate([ops.cast(inputs["packed_ids"], "int32"), pieces], axis=1)
            rows = ops.concatenate([keys, pieces], axis=1)
            return visibility.both(visible, ops.equal(ops.expand_dims(rows, 2), ops.expand_dims(keys, 1)))
        if "padding_mask" not in inputs:
            return visible
        real = ops.cast(inputs["padding_mask"], "bool")
        return visibility.both(
            visible, visibility.padding(ops.concatenate([real, ops.ones_like(of_targets, "bool")], axis=1))
        )

    def check(self, inputs: Mapping[str, Tensor]) -> None:
        super().check(inputs)
        if "target_positions" in inputs and "visible_matrix" in inputs:
            raise ValueError(
                "visible_matrix and target_positions were given, expected one of them: order says who sees whom"
            )


def flops(spec: Spec, tokens: float, sequences: float, predictions: float) -> float:
    """FLOPs of an update, as `training.flops.update_flops`: of tokens, symbols and queries."""
    hidden, total = spec.hidden, 0.0
    keys = tokens + predictions
    for layer in range(spec.blocks.layers):
        inner = spec.per_layer(spec.attention.heads, layer) * spec.head_size
        last = bool(predictions) and layer + 1 == spec.blocks.layers  # computed for the queries alone
        of_query = 2 * 2 * hidden * inner + 2 * 2 * inner * keys / sequences
        of_query += 2 * 2 * hidden * spec.per_layer(spec.feedforward.width, layer)
        total += of_query * (predictions if last else keys + predictions) + 2 * 2 * hidden * inner * keys
    return 3.0 * (total + predictions * (2 * hidden * hidden + 2 * hidden * spec.embeddings.vocabulary))


def kept(spec: Spec, rows: int, length: int, predictions: float) -> float:
    """Numbers that the backward pass keeps, as `training.preflight.kept_numbers`: of tokens, symbols and queries."""
    layers = sum(
        8 * spec.hidden
        + 2 * spec.per_layer(spec.feedforward.width, i)
        + spec.per_layer(spec.attention.heads, i) * length * (1 + predictions)
        for i in range(spec.blocks.layers)
    )
    return rows * length * ((1 + 2 * predictions) * layers + predictions * spec.embeddings.vocabulary)


_LAYER = "mpnet.encoder.layer.{i}.attention"
HF = ROBERTA_HF.derive(
    ("roberta.", "mpnet."),
    rows=(
        *(
            (f"block_{{i}}/attention/{ours}", f"{_LAYER}.attn.{ours[0]}")
            for ours in ("query", "key", "value", "output")
        ),
        ("block_{i}/attention_norm", f"{_LAYER}.LayerNorm"),
        ("relative/table", "mpnet.encoder.relative_attention_bias.weight"),
    ),
    config=tuple(row for row in ROBERTA_HF.config if row[0] != "embeddings.segments"),
    # their code has 32 numbers and 128 tokens, whatever a configuration says
    fixed={"model_type": "mpnet", "relative_attention_num_buckets": 32, "pad_token_id": 1},
    classes={name.replace("Roberta", "MPNet"): each for name, each in ROBERTA_HF.classes.items()},
    model_types=(),
    renames=(),
    special={"bos_token_id": "cls", "eos_token_id": "sep"},
    ignored={"*embeddings.position_ids": buffers.counted},
)

MPNET = register(
    Family(
        name="mpnet",
        spec=MPNetSpec(epsilon=1e-5, embeddings=Embeddings(vocabulary=30527, positions=514, offset=2, segments=0)),
        sizes={"base": {}},
        encoder=MPNet,
        objective="mpnet",
        names={"hf": HF},
        inputs=(
            *TEXT,
            Input("order", filled_by="objective", optional=True),
            Input("target_positions", axes="BP", filled_by="objective", optional=True),
            Input("target_ids", axes="BP", filled_by="objective", optional=True),
        ),
        flops=flops,
        memory=kept,
        paper="Song et al., 2020, MPNet: Masked and Permuted Pre-training for Language Understanding",
    )
)

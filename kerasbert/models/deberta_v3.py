"""DeBERTaV3: Improving DeBERTa using ELECTRA-Style Pre-Training with Gradient-Disentangled Embedding Sharing (He et al., 2023).

Differences from DeBERTaV2: no convolution, and another pretraining.

- Section 3.1: replaced token detection (ELECTRA's) in the place of masked LM alone; the loss is mlm + 50 rtd. The generator, as
  wide and half as deep (section 4), predicts by the enhanced mask decoder.
- Section 3.3, gradient-disentangled embedding sharing (GDES): the generator reads the table of tokens E_G, the discriminator
  E_D = sg(E_G) + E_delta, where sg stops gradients: the discriminator's loss moves E_delta alone, the generator's E_G alone.

mDeBERTa (section 5.4) has a vocabulary of 250K pieces for 100 languages: `base-multilingual`.

The encoder's own table is E_D, so that a model of a run is whole at every step. E_G is it without the sum of what moved E_delta
(`heads/gdes/total`). An update moves E_D by both: what moves E_delta in it (`heads/gdes/delta`) is added to both tables, and
begins anew at zero. With Adam that is the paper's update of its two tables.

Differs: weight decay is of E_D. Differs: the released code shares the positions of the two decoders likewise, of which the
discriminator's are not read; its head of replaced tokens adds the first token's vector to each and normalises the sum, here it is
ELECTRA's. Of the released code: all selected tokens are masked.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from kerasbert.checkpoints import keras_hub
from kerasbert.checkpoints.keras_hub_tasks import INNER, with_tasks
from kerasbert.errors import InputError
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers import heads, random
from kerasbert.layers.backend import gather
from kerasbert.layers.block import stack
from kerasbert.layers.context import Context
from kerasbert.layers.embeddings import Table
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.heads import HeadedModel, LabelHead
from kerasbert.layers.norms import LayerNorm
from kerasbert.layers.random import Dropout
from kerasbert.models.deberta import check_places, decoded
from kerasbert.models.deberta_v2 import DEBERTA_V2, DebertaV2Block, DebertaV2Spec, size_of
from kerasbert.models.electra import ElectraPretraining, substitute
from kerasbert.registry import register, register_objective
from kerasbert.storage.json_view import Json


def of_generator(spec: DebertaV2Spec) -> DebertaV2Spec:
    """The Spec of the generator's layers: half as many (section 4)."""
    return spec.base.derive({"blocks.layers": max(1, spec.blocks.layers // 2)})


class Generator(keras.layers.Layer):
    """The masked language model whose samples replace tokens: a DeBERTaV2 without a table of tokens.

    Args:
        spec: DebertaV2Spec, its own. token_head: class of its head.
    Call: x [B, S, H], the vectors of the tokens; batch and context, as the encoder has them; table [V, H]
        -> logits [B, P, V] float32.
    """

    def __init__(self, spec: DebertaV2Spec, token_head: type, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec, self.token_head = spec, token_head

    def build(self, shape: Shape) -> None:
        spec, kwargs = self.spec, {"dtype": self.dtype_policy}
        self.norm = LayerNorm(spec.epsilon, name="norm", **kwargs)
        self.dropout = Dropout(spec.dropout, name="dropout", **kwargs)
        self.relative = Table(2 * spec.relative.span, spec.hidden, spec.initializer, name="relative", **kwargs)
        self.relative_norm = LayerNorm(spec.epsilon, name="relative_norm", **kwargs)
        self.positions = Table(spec.embeddings.positions, spec.hidden, spec.initializer, name="positions", **kwargs)
        for layer in (self.norm, self.dropout, self.relative, self.relative_norm, self.positions):
            layer.build(shape)
        self.blocks = stack(spec, functools.partial(DebertaV2Block, spec=spec), **kwargs)
        self.mlm = heads.token_head(self.token_head, spec, **kwargs)
        self.mlm.build(shape)

    def call(
        self, x: Tensor, batch: Mapping[str, Tensor], context: Context, table: Tensor = None, training: bool = False
    ) -> Tensor:
        scoring = dataclasses.replace(context.scoring, table=self.relative_norm(self.relative.table))
        context = dataclasses.replace(context, scoring=scoring)
        x = self.norm(x, dropout=self.dropout, training=training)
        for layer, block in enumerate(self.blocks[:-1]):
            x, _ = block(x, context=context.of_layer(layer), training=training)
        return self.mlm(decoded(self.blocks[-1], self.positions, x, batch, context, training), table)


class SharedTable(keras.layers.Layer):
    """Gradient-disentangled sharing (section 3.3): `total` [V, H], E_D - E_G; `delta`, zero between updates."""

    def build(self, shape: Shape) -> None:
        rows = {"shape": shape, "initializer": "zeros"}
        self.delta = self.add_weight(name="delta", **rows)
        self.total = self.add_weight(name="total", trainable=False, aggregation="only_first_replica", **rows)

    def of_generator(self, table: Tensor) -> Tensor:
        """E_G, whose gradient is that of the encoder's table: [V, H]."""
        return ops.convert_to_tensor(table) - ops.stop_gradient(ops.convert_to_tensor(self.total))

    def of_discriminator(self, table: Tensor) -> Tensor:
        """E_D, whose gradient is that of `delta`: [V, H]."""
        return ops.stop_gradient(ops.convert_to_tensor(table)) + ops.convert_to_tensor(self.delta)

    def folded(self, table: Tensor) -> Tensor:
        """The encoder's table after an update, with what `delta` was moved by in it: what Keras calls a constraint."""
        delta = ops.convert_to_tensor(self.delta)
        found = table + delta
        self.total.assign(self.total + delta)
        self.delta.assign(ops.zeros_like(delta))
        return found


class DebertaV3Model(HeadedModel):
    """Generator, samples, discriminator.

    Call: as `electra.ElectraModel`.
    """

    def build(self, shape: Shape | None = None) -> None:
        super().build(shape)
        self.body.embeddings.tokens.table.constraint = self.heads["gdes"].folded

    def call(self, inputs: Tensor, training: bool = False) -> dict[str, Tensor]:
        encoder, shared = self.body, self.heads["gdes"]
        encoder.check(inputs)
        check_places(inputs, encoder.spec)
        own = encoder.embeddings.tokens.table
        context, table = encoder.context(inputs), ops.cast(shared.of_generator(own), encoder.compute_dtype)
        x = gather(table, inputs["token_ids"])
        logits = self.heads["generator"](x, batch=inputs, context=context, table=table, training=training)
        sampled = random.sample(logits, random.rows_key("replaced tokens", ops.shape(logits)[0]))
        corrupted, replaced = substitute(inputs, sampled)
        x = gather(ops.cast(shared.of_discriminator(own), encoder.compute_dtype), corrupted)
        embedded = encoder.embeddings.finish(x, training)
        outputs = encoder.run({**inputs, "embedded": embedded}, context, training)
        return outputs | {
            "mlm_logits": logits,
            "sampled": sampled,
            "corrupted_ids": corrupted,
            "replaced": replaced,
            "rtd_logits": self.heads["rtd"](outputs["sequence"])[..., 0],
        }


class DebertaV3Pretraining(ElectraPretraining):
    """The generator's masked LM and the discriminator's replaced token detection, with GDES."""

    defaults: Mapping[str, object] = {"mask": 1.0, "random": 0.0}
    of_large: Mapping[str, object] = {}
    model_class = DebertaV3Model

    def heads(self, encoder: Encoder) -> tuple[Json, dict[str, tuple]]:
        spec, kwargs = encoder.spec, {"dtype": encoder.dtype_policy}
        if not isinstance(spec, DebertaV2Spec):
            raise InputError("the objective deberta_v3 needs a generator of DeBERTaV2's layers: pretrain a deberta-v3")
        embeddings, relative = spec.embeddings, spec.relative
        if (
            embeddings.kind != "none"
            or embeddings.segments
            or embeddings.width
            or not (relative.norm and relative.terms)
        ):
            raise InputError(
                "the objective deberta_v3 shares the table of tokens alone: leave embeddings.kind, segments and width, "
                "relative.terms and relative.norm as deberta-v3 has them"
            )
        activation = spec.feedforward.activation
        parts = {
            "gdes": SharedTable(name="gdes", **kwargs),
            "generator": Generator(of_generator(spec), encoder.token_head, name="generator", **kwargs),
            "rtd": LabelHead(1, spec.initializer, activation=activation, name="rtd", **kwargs),
        }
        states = (None, None, spec.hidden)
        return parts, {"gdes": (embeddings.vocabulary, spec.hidden), "generator": states, "rtd": states}

    @classmethod
    def networks(cls, spec: DebertaV2Spec, predictions: float) -> list[tuple[DebertaV2Spec, float]]:
        return [(of_generator(spec), predictions), (spec, 0.0)]


register_objective("deberta_v3", DebertaV3Pretraining)

# KerasHub's; what it computes nothing of is a bucket_size of 0
KERAS_HUB = with_tasks(
    keras_hub.dialect(
        "DebertaV3Backbone",
        *keras_hub.block("disentangled_attention_encoder", leaf="_{}_dense"),
        ("relative/table", "layers/relative_embedding/vars/0"),
        ("relative_norm", "layers/relative_embedding/layer_norm"),
        config=(
            ("embeddings.positions", "max_sequence_length"),
            ("relative.distance", "max_sequence_length"),
            ("relative.buckets", "bucket_size"),
        ),
    ),
    INNER,
).derive(fixed={"class_name": "DebertaV3Backbone", "bucket_size": lambda config: config.get("bucket_size") or 256})

DEBERTA_V3 = register(
    DEBERTA_V2.derive(
        "deberta-v3",
        spec=size_of(12, 768, 12) | {"conv.kernel": 0, "conv.activation": "tanh"},
        sizes={
            "xsmall": size_of(12, 384, 6),
            "small": {"blocks.layers": 6},
            "base": {},
            "large": size_of(24, 1024, 16),
            "base-multilingual": {"embeddings.vocabulary": 251000},
        },
        objective="deberta_v3",
        names={**DEBERTA_V2.names, "keras_hub": KERAS_HUB},
        paper="He et al., 2023, DeBERTaV3: Improving DeBERTa using ELECTRA-Style Pre-Training with "
        "Gradient-Disentangled Embedding Sharing",
    )
)

"""umT5, UniMax: Fairer and More Effective Language Sampling for Large-Scale Multilingual Pretraining (Chung et al., 2023).

mT5 of 107 languages, whose texts are sampled as evenly as possible with none read more than a few times (section 3); the
vocabulary has 256,000 pieces, 256,384 rows of the tables. Of the released code: every layer has learned numbers of its own for
the distances, which T5's layers share.

Sizes are those of the released models, of which none is large. `umt5-encoder` is the encoder alone, as `t5-encoder` is T5's.
Differs: texts are sampled by a power of their number (`kerasbert data --smoothing`), not by UniMax.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.buckets import bucketed, by_head
from kerasbert.layers.context import Context, Queries
from kerasbert.models import t5_encoder
from kerasbert.models.mt5 import MT5, MT5_ENCODER, encoder_alone, multilingual
from kerasbert.models.t5 import HF, T5, T5Attention, T5Block, T5DecoderBlock, T5Stack, distance_table
from kerasbert.registry import register
from kerasbert.storage.json_view import Json


class UmT5Attention(T5Attention):
    """T5's attention with a table of distances of its own, `relative/table` [buckets, N].

    Args: as T5Attention; distances: makes the table.
    Call: as its parent's; `scoring` int32 [1 or B, S, K], the distances' buckets.
    """

    def __init__(self, *args: Any, distances: Callable, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.distances = distances

    def build(self, shape: Shape) -> None:
        super().build(shape)
        self.relative = self.distances(name="relative", dtype=self.dtype_policy)
        self.relative.build()

    def scores(
        self, query: Tensor, key: Tensor, *, scoring: Tensor | None = None, queries: Queries = None, **at: object
    ) -> Tensor:
        found = None if scoring is None else by_head(self.relative.table, scoring)
        return super().scores(query, key, scoring=found, queries=queries, **at)


class OwnDistances:
    """A block whose attention has a table of its own. Args: as the block's; distances: makes the table."""

    def __init__(self, *, distances: Callable, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.distances = distances

    def attention_class(self, *args: Any, **kwargs: Any) -> UmT5Attention:
        return UmT5Attention(*args, distances=self.distances, **kwargs)


class UmT5Block(OwnDistances, T5Block):
    """One layer of the encoder."""


class UmT5DecoderBlock(OwnDistances, T5DecoderBlock):
    """One layer of the decoder; distances count in its self-attention alone."""


class UmT5Stack(T5Stack):
    """A stack whose layers are told the buckets of the distances."""

    def table_of_distances(self) -> None:
        return None

    def context(self, context: Context, length: int | Tensor) -> Context:
        return dataclasses.replace(context, scoring=self.bucketed(*context.places(length)))


class UmT5(T5):
    """umT5. Weights are T5's, but for `block_0/attention/relative/table` in the place of a stack's `relative/table`."""

    @property
    def encoder_block(self) -> Callable:
        return functools.partial(UmT5Block, distances=functools.partial(distance_table, self.spec))

    @property
    def decoder_block(self) -> Callable:
        return functools.partial(UmT5DecoderBlock, distances=functools.partial(distance_table, self.spec))

    def stack_class(self, *args: Any, name: str, **kwargs: Any) -> UmT5Stack:
        return UmT5Stack(*args, name=name, both_sides=name == "encoder", **kwargs)


class UmT5Encoder(t5_encoder.T5Encoder):
    """The encoder alone. Weights are T5Encoder's, but for `block_0/attention/relative/table` in the place of `relative/table`."""

    @property
    def block_class(self) -> Callable:
        return functools.partial(UmT5Block, distances=functools.partial(distance_table, self.spec))

    def table_of_distances(self) -> None:
        return None

    def distances(self, places: Tensor) -> Tensor:
        """The buckets of each pair, int32 [B or 1, S, S]."""
        return bucketed(self.spec.relative, True, places, places)


_RELATIVE = tuple(
    (
        f"{stack}/block_{{i}}/attention/relative",
        f"{stack}.block.{{i}}.layer.0.SelfAttention.relative_attention_bias",
    )
    for stack in ("encoder", "decoder")
)
_SPEC: Json = {"embeddings.vocabulary": 256384}
_SIZES = {name: size for name, size in MT5.sizes.items() if name != "large"}
UMT5 = register(
    dataclasses.replace(
        MT5.derive(
            "umt5",
            spec=_SPEC,
            sizes=_SIZES,
            names={"hf": multilingual("umt5", "UMT5", rows=(*_RELATIVE, *HF.rows))},
            paper="Chung et al., 2023, UniMax: Fairer and More Effective Language Sampling for Large-Scale Multilingual "
            "Pretraining",
        ),
        encoder=UmT5,
    )
)

_OWN = ("block_{i}/attention/relative", f"transformer.{_RELATIVE[0][1]}")
UMT5_ENCODER = register(
    dataclasses.replace(
        MT5_ENCODER.derive(
            "umt5-encoder",
            spec=_SPEC,
            sizes=_SIZES,
            names={"hf": encoder_alone("umt5", "UMT5", rows=(_OWN, *t5_encoder.HF.rows))},
            paper=UMT5.paper,
        ),
        encoder=UmT5Encoder,
    )
)

"""What a block is told beside its input."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from keras import ops

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.backend import gather, pick
from kerasbert.layers.readout import Queries, first

if TYPE_CHECKING:
    from kerasbert.layers.cache import Cache, LayerCache, Made


@dataclasses.dataclass(frozen=True)
class Context:
    """What a block reads beside x [B, S, H]; None where a model has no such thing.

    No NamedTuple: Keras looks into those and refuses a string among a call's tensors.

    Args:
        bias: float [B or 1, 1, Q or 1, K], added to the scores: 0 where visible, `visibility.HIDDEN` elsewhere. It is the
            same for all layers and never learned; learned numbers enter through `Attention.scores`.
            Attention within windows reads a `window.Pattern` (`scoring`) in its place, hashed attention
            `reversible_block.Told.visible`: neither has all scores.
        queries: which rows of x are computed: None for all, "first" or int [B, P]; the bias has these rows (`of`).
        memory: float [B, M, H], what an earlier segment left for this layer: keys and values in front of those of x. Of a
            stack a tuple, one per layer (`of_layer`).
        scoring: what `Attention.scores` reads beside queries and keys: distances, places, who is near; None for nothing.
        source: float [B, S, H], what a decoder's second attention reads.
        source_bias: float [B or 1, 1, 1, S], as `bias` over the source.
        cache: keys and values of earlier tokens: a `cache.Cache` of the stack, of which a block is told its own part.
        position_ids: int32 [B or 1, S], where the tokens of x stand; None for 0, 1, ...
    """

    bias: Tensor | None = None
    queries: Queries = None
    memory: Tensor | tuple[Tensor, ...] | None = None
    scoring: Any = None
    source: Tensor | None = None
    source_bias: Tensor | None = None
    cache: "Cache | LayerCache | None" = None
    position_ids: Tensor | None = None

    def of(self, queries: Queries) -> "Context":
        """The context of these queries alone: their rows of the bias.

        Args:
            queries: None for all, "first", int [B, P] (P positions a row) or int [B] (one a row).

        Raises:
            InputError: anything else.
        """
        if queries is None:
            return self
        if not isinstance(queries, str):
            places: Tensor = ops.cast(queries, "int32")
            queries = ops.expand_dims(places, 1) if len(places.shape) == 1 else places
        elif queries != "first":
            raise InputError(f"queries must be 'first', int positions [B, P] or [B], or None. Received: {queries!r}")
        bias = self.bias
        if bias is not None and bias.shape[2] != 1:
            bias = ops.expand_dims(select(ops.squeeze(bias, 1), queries), 1)
        return dataclasses.replace(self, bias=bias, queries=queries)

    def rows(self, x: Tensor) -> Tensor:
        """The queries' rows: [B, S, H] -> [B, Q, H]."""
        return x if self.queries is None else select(x, self.queries)

    def keys(self, x: Tensor) -> Tensor:
        """What keys and values are read from: [B, S, H] -> [B, M + S, H]."""
        return x if self.memory is None else ops.concatenate([ops.cast(self.memory, x.dtype), x], axis=1)

    def places(self, length: Tensor) -> tuple[Tensor, Tensor]:
        """Where the tokens of x [B, S, H] stand, int32 [B or 1, S], and the number of keys K.

        Args:
            length: int S, or a scalar tensor.
        """
        of_stack = cast("Cache | None", self.cache)
        keys = length if of_stack is None or of_stack.column is None else of_stack.places
        if self.position_ids is not None:
            return ops.cast(self.position_ids, "int32"), keys
        return ops.expand_dims(ops.arange(length, dtype="int32"), 0), keys

    def of_layer(self, layer: int) -> "Context":
        """The context of one layer: its part of the cache and of the memory."""
        own: dict[str, object] = {} if self.cache is None else {"cache": cast("Cache", self.cache).layers[layer]}
        own |= {"memory": self.memory[layer]} if isinstance(self.memory, tuple) else {}
        return dataclasses.replace(self, **own) if own else self

    @property
    def at(self) -> Mapping[str, object]:
        """Further arguments of a block's (self-)attention: for `Attention.scores`, and where keys and values are kept."""
        cache = {} if self.cache is None else {"cache": cast("LayerCache", self.cache).own}
        return cache if self.scoring is None else {"scoring": self.scoring, "queries": self.queries, **cache}

    @property
    def source_at(self) -> Mapping[str, "Made | None"]:
        """Further arguments of a block's attention to the source."""
        return {} if self.cache is None else {"cache": cast("LayerCache", self.cache).source}


def select(x: Tensor, queries: Queries) -> Tensor:
    """Rows of x at the queries: [B, S, H], "first" or int [B, P] -> [B, P, H]; x may be [1, S, H], alike for all rows."""
    if isinstance(queries, str):
        return first(x, keepdims=True)
    return gather(x[0], queries) if x.shape[0] == 1 else pick(x, queries)

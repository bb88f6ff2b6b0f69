"""Multi-head attention = projections x scores x visibility."""

import math
from typing import Any

import keras
from keras import ops

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.backend import fused, reshape, softmax
from kerasbert.layers.backend_blocks import block_rows, by_rows
from kerasbert.layers.backend_fused import ByHand, row_max, row_sums
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.random import Dropout, drop
from kerasbert.layers.readout import Queries
from kerasbert.storage.json_view import Json


def _weights_forward(scores: Tensor, bias: Tensor, key: Tensor, *, rate: float, dtype: str | None = None) -> tuple:
    dtype = dtype or keras.backend.standardize_dtype(scores.dtype)
    biased = ops.cast(scores, "float32")
    biased = biased if bias is None else biased + ops.cast(bias, "float32")
    powers = ops.exp(biased - row_max(biased))
    p = ops.cast(powers / row_sums(powers), dtype)
    weights = drop(p, key, rate)
    return weights, (bias, p, weights)


def _weights_backward(
    upstream: Tensor, bias: Tensor, p: Tensor, weights: Tensor, *, rate: float, dtype: str | None = None
) -> tuple:
    """The softmax's, p * (g - sum(p * g)) with g = upstream * mask / (1 - rate): p * g is weights * upstream."""
    p, upstream = ops.cast(p, "float32"), ops.cast(upstream, "float32")
    weighted = upstream * ops.cast(weights, "float32")
    found = weighted - p * row_sums(weighted)
    return found, None if bias is None else _of_shape(found, bias), None


def _of_shape(x: Tensor, other: Tensor) -> Tensor:
    """The sum of x over the axes along which `other` is one long."""
    axes = tuple(i for i, size in enumerate(other.shape) if size == 1)
    return ops.sum(x, axis=axes, keepdims=True)


@fused(constant=(1,), by_hand=ByHand(_weights_forward, _weights_backward))
def attention_weights(scores: Tensor, bias: Tensor, key: Tensor, *, rate: float, dtype: str | None = None) -> Tensor:
    """Scores [B, N, Q, K], bias [B, 1, Q or 1, K] -> probabilities after dropout, the softmax in float32.

    Args:
        dtype: of the result; by default that of the scores.
    """
    dtype, scores = dtype or keras.backend.standardize_dtype(scores.dtype), ops.cast(scores, "float32")
    return drop(softmax(scores if bias is None else scores + ops.cast(bias, "float32"), dtype), key, rate)


class Attention(keras.layers.Layer):
    """Multi-head scaled dot-product attention (Vaswani et al., 2017, section 3.2).

    A paper that scores otherwise overrides `scores`, one that sums otherwise `weighted`, one that only changes what is scored
    `placed`; one that reads keys and values from elsewhere calls `read` and `attend` itself. `layers.cache` keeps what `read`
    gives.

    Args:
        heads: int N.
        head_size: int D.
        dropout: float, on the probabilities.
        initializer: float.
        output_initializer: float, of the output's kernel; by default as the others.
        use_bias: bool, whether the four maps add a bias.
    `value_size` is how many numbers a head gives, by default D: a paper whose values are of another size sets it.
    A `query`, `key`, `value` or `output_projection` that is set before `build` is used as it is: another layer's, shared, or one
    with another bias (Dai et al., 2020).

    Call: x [B, Q, H], bias [B, 1, Q or 1, K] (0 where visible), source [B, K, H] of keys and values (x itself by
        default), value [B, K, H] where values have another source, cache (what keeps keys and values, `layers.cache`),
        further arguments of `scores`
        -> (y [B, Q, H], probabilities [B, N, Q, K] float32).
    Trainable weights: 4*H*N*D + 3*N*D + H.
    """

    def __init__(
        self,
        heads: int,
        head_size: int,
        dropout: float = 0.0,
        initializer: float = 0.02,
        output_initializer: float | None = None,
        use_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.heads = heads
        self.head_size = self.value_size = head_size
        self.rate = dropout
        self.initializer = initializer
        self.output_initializer = output_initializer or initializer
        self.use_bias = use_bias

    def build(self, shape: Shape) -> None:
        kwargs = {"dtype": self.dtype_policy}
        *deviations, last = self.deviations(shape)
        for name, size, width, deviation in zip(("query", "key", "value"), self.sizes, self.widths(shape), deviations):
            setattr(self, name, Linear(size, deviation, self.has_bias(name), name=name, **kwargs))
            getattr(self, name).build((*shape[:-1], width))
        if not hasattr(self, "output_projection"):
            self.output_projection = Linear(shape[-1], last, self.has_bias("output"), name="output", **kwargs)
            self.output_projection.build((*shape[:-1], self.heads * self.value_size))
        self.dropout = Dropout(self.rate, name="dropout", dtype=self.dtype_policy)
        self.dropout.build()

    def has_bias(self, name: str) -> bool:
        """Whether a map (query, key, value or output) adds a bias."""
        return self.use_bias

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many numbers queries, keys and values of a token have."""
        return (self.heads * self.head_size, self.heads * self.head_size, self.heads * self.value_size)

    def widths(self, shape: Shape) -> tuple[int, ...]:
        """Widths of what queries, keys and values are read from."""
        return (shape[-1],) * 3

    def deviations(self, shape: Shape) -> tuple[float, float, float, float]:
        """Standard deviations that the kernels of query, key, value and output start with."""
        return (self.initializer, self.initializer, self.initializer, self.output_initializer)

    def split(self, x: Tensor, size: int | None = None) -> Tensor:
        """[B, S, N*D] -> [B, N, S, D]; `size` is D where it is not that of queries and keys."""
        x = reshape(x, (*ops.shape(x)[:2], self.heads, size or self.head_size))
        return ops.transpose(x, (0, 2, 1, 3))

    def call(
        self,
        x: Tensor,
        bias: Tensor = None,
        source: Tensor = None,
        value: Tensor = None,
        training: bool = False,
        scoring: Any = None,
        queries: Queries | bool = False,
        cache: Any = None,
        **at: Any,
    ) -> tuple[Tensor, Tensor]:
        # by their names: Keras refuses tensors and texts in one dict; False: a caller that knows no queries
        at |= {} if scoring is None else {"scoring": scoring}
        at |= {} if scoring is None or queries is False else {"queries": queries}
        source = x if source is None else source
        value = source if value is None else value
        key, value = self.read(source, value) if cache is None else cache.read(self, source, value)
        return self.attend(x, key, value, bias, training, **at)

    def read(self, source: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values: [B, K, H] twice -> [B, N, K, D] twice."""
        value = self.split(self.value(value), self.value_size)
        return self.split(self.key(source)), value

    def placed(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, **at: object) -> tuple:
        """What plain products score and sum, by where the tokens stand: as given.

        Args:
            query, key, value: [B, N, Q, D], [B, N, K, D] twice.
            bias: [B, 1, Q or 1, K], not learned.
            at: what the context brings (`Context.at`).

        Returns:
            (query, key, value, bias, what of `at` the `scores` still read): without any, a TPU attends in blocks of rows.
        """
        return query, key, value, bias, at

    def scores(self, query: Tensor, key: Tensor, **at: object) -> Tensor:
        """Scaled dot products: [B, N, Q, D], [B, N, K, D] -> [B, N, Q, K].

        What a paper adds here it adds in float32 (the result may be float32): learned numbers too, which get their
        gradient here alone. `at` is what the context brings (`Context.at`).
        """
        # 1/sqrt(D) on the queries: Q*D products instead of Q*K
        query = query * ops.cast(1 / math.sqrt(self.head_size), query.dtype)
        return ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))

    def weighted(self, weights: Tensor, value: Tensor, **at: object) -> Tensor:
        """What heads give: weights [B, N, Q, K] after dropout, values [B, N, K, D] -> [B, N, Q, D]; `at` as in `scores`."""
        return ops.matmul(weights, value)

    def attend(
        self, x: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None, training: bool = False, **at: object
    ) -> tuple:
        """What the queries of x [B, Q, H] get from keys and values [B, N, K, D]: as `call`."""
        query, key, value, bias, at = self.placed(self.split(self.query(x)), key, value, bias, **at)
        scores = self.scores(query, key, **at)
        rows, expected = None if bias is None else bias.shape[2], scores.shape[2]
        if None not in (rows, expected) and rows not in (1, expected):
            raise ValueError(
                f"bias has {rows} rows, expected 1 or {expected}, one a query: Context.of(queries) cuts it"
            )
        drawn, dtype = self.dropout.key(x, training), keras.backend.standardize_dtype(value.dtype)
        if rows := 0 if at else self.rows_at_once(query, key):
            y, plain = self.by_rows(query, key, value, bias, drawn, rows), None
        else:
            weights = attention_weights(scores, bias, drawn, rate=self.rate, dtype=dtype)
            y, plain = self.joined(self.weighted(weights, value, **at)), weights if drawn is None else None
        # without dropout; in a graph nothing computes it where nobody asks
        plain = attention_weights(scores, bias, None, rate=0.0, dtype=dtype) if plain is None else plain
        return self.output_projection(y), ops.cast(plain, "float32")

    def joined(self, x: Tensor) -> Tensor:
        """[B, N, S, D] -> [B, S, N*D]."""
        x = ops.transpose(x, (0, 2, 1, 3))
        return reshape(x, (*ops.shape(x)[:2], self.heads * x.shape[3]))

    def rows_at_once(self, query: Tensor, key: Tensor) -> int:
        """How many rows a TPU attends to at once, 0 for all: where scores are those of this class, which read no weights."""
        if type(self).scores is not Attention.scores or type(self).weighted is not Attention.weighted:
            return 0
        sizes = (self.heads, query.shape[2], key.shape[2])
        width = 4 if keras.backend.standardize_dtype(query.dtype) == "float32" else 2
        return block_rows(query.shape[0], None if None in sizes else width * math.prod(sizes))

    def by_rows(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, drawn: Tensor | None, rows: int
    ) -> Tensor:
        """What heads give, some rows after the other: [B, N, Q, D], [B, N, K, D] twice -> [B, Q, N*D]."""
        dtype = keras.backend.standardize_dtype(value.dtype)

        def attended(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, drawn: Tensor) -> Tensor:
            scores = self.scores(self.split(query), self.split(key))
            weights = attention_weights(scores, bias, drawn, rate=self.rate, dtype=dtype)
            return self.joined(self.weighted(weights, self.split(value, self.value_size)))

        arrays = [self.joined(x) for x in (query, key, value)]
        return by_rows(attended, arrays, [bias, drawn], (query.shape[2], self.heads * self.value_size), rows)

    def get_config(self) -> Json:
        config = {"heads": self.heads, "head_size": self.head_size, "dropout": self.rate, "use_bias": self.use_bias}
        config |= {"initializer": self.initializer, "output_initializer": self.output_initializer}
        return {**super().get_config(), **config}

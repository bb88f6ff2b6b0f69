"""Multi-head attention = projections x scores x visibility."""

import math
from typing import Any

import keras
from keras import ops

from kerasbert.layers.backend import island, reshape, softmax
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.random import Dropout, drop


@island(constant=(1,))
def look(scores: Any, bias: Any, key: Any, *, rate: float) -> Any:
    """Scores [B, N, Q, K], bias [B, 1, Q or 1, K] -> probabilities after dropout, the softmax in float32."""
    dtype, scores = keras.backend.standardize_dtype(scores.dtype), ops.cast(scores, "float32")
    return drop(softmax(scores if bias is None else scores + ops.cast(bias, "float32"), dtype), key, rate)


class Attention(keras.layers.Layer):
    """Multi-head scaled dot-product attention (Vaswani et al., 2017, section 3.2).

    Args:
        heads: int N. head_size: int D. dropout: float, on the probabilities. initializer: float.
        output_initializer: float, of the output's kernel; by default as the others.
    Call: x [B, Q, H], bias [B, 1, Q or 1, K] (0 where visible), source [B, K, H] of keys and values (x itself by
        default), value [B, K, H] where values have another source -> (y [B, Q, H], probabilities [B, N, Q, K] float32).
    Trainable weights: 4*H*N*D + 3*N*D + H.
    """

    def __init__(
        self,
        heads: int,
        head_size: int,
        dropout: float = 0.0,
        initializer: float = 0.02,
        output_initializer: float | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.heads = heads
        self.head_size = head_size
        self.rate = dropout
        self.initializer = initializer
        self.output_initializer = output_initializer or initializer

    def build(self, shape):
        flat = self.heads * self.head_size
        for name, width in zip(("query", "key", "value"), self.widths(shape)):
            setattr(self, name, Linear(flat, self.initializer, name=name, dtype=self.dtype_policy))
            getattr(self, name).build((*shape[:-1], width))
        self.output_projection = Linear(shape[-1], self.output_initializer, name="output", dtype=self.dtype_policy)
        self.output_projection.build((*shape[:-1], flat))
        self.dropout = Dropout(self.rate, name="dropout", dtype=self.dtype_policy)
        self.dropout.build()

    def widths(self, shape):
        """Widths of what queries, keys and values are read from."""
        return (shape[-1],) * 3

    def split(self, x):
        """[B, S, N*D] -> [B, N, S, D]."""
        x = reshape(x, (*ops.shape(x)[:2], self.heads, self.head_size))
        return ops.transpose(x, (0, 2, 1, 3))

    def call(self, x, bias=None, source=None, value=None, training=False):
        source = x if source is None else source
        value = self.split(self.value(source if value is None else value))
        query, key = self.split(self.query(x)), self.split(self.key(source))
        # 1/sqrt(D) on the queries: Q*D products instead of Q*K
        query = query * ops.cast(1 / math.sqrt(self.head_size), query.dtype)
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # [B, N, Q, K]
        drawn = self.dropout.key(x, training)
        seen = look(scores, bias, drawn, rate=self.rate)
        # without dropout; in a graph nothing computes it where nobody asks
        probabilities = seen if drawn is None else look(scores, bias, None, rate=0.0)
        y = ops.transpose(ops.matmul(seen, value), (0, 2, 1, 3))  # [B, Q, N, D]
        y = reshape(y, (*ops.shape(y)[:2], self.heads * self.head_size))
        return self.output_projection(y), ops.cast(probabilities, "float32")

    def get_config(self):
        config = {"heads": self.heads, "head_size": self.head_size, "dropout": self.rate}
        config |= {"initializer": self.initializer, "output_initializer": self.output_initializer}
        return {**super().get_config(), **config}

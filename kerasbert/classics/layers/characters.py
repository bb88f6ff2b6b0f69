"""A vector of a word made of its characters: convolutions, their maxima, highways, a projection."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.backend import look_up, project, reshape
from kerasbert.layers.feedforward import ACTIVATIONS, Linear


class CharacterCNN(keras.layers.Layer):
    """Words of characters (Kim et al., 2016, sections 2.2 and 2.3, as in Peters et al., 2018, and AllenNLP).

    A filter of width k reads the vectors of k characters side by side; of each the largest value over all places of the word
    counts, the padding behind the word among them. Then highways (Srivastava et al., 2015) and a projection.

    Args:
        rows: int, characters; their ids are 1, 2, ..., and 0 is a vector of zeros.
        width: int C, numbers of a character.
        filters: int for each width from 1 on, how many filters have it; 0 for none.
        highways: int.
        units: int P; None for no projection, so that P is F.
        activation: "relu" or "tanh", of the maxima.
    Call: int [B, S, W] -> [B, S, P].
    Trainable weights: rows C, k C n + n of each width, 2 (F F + F) of a highway, F P + P; F is the sum of the filters.
    """

    def __init__(
        self,
        rows: int,
        width: int,
        filters: Sequence[int],
        highways: int,
        units: int | None,
        activation: str = "relu",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.sizes = (rows, width)
        self.filters, self.activation, total = tuple(filters), activation, sum(filters)
        self.units = total if units is None else units
        policy = {"dtype": self.dtype_policy}
        self.convolutions = [
            Linear(count, (size * width) ** -0.5, name=f"convolution_{size}", **policy)
            for size, count in enumerate(self.filters, 1)
            if count
        ]
        self.spans = [size for size, count in enumerate(self.filters, 1) if count]
        self.highways = [Highway(total, name=f"highway_{i}", **policy) for i in range(highways)]
        self.projection = None if units is None else Linear(units, total**-0.5, name="projection", **policy)

    def build(self, shape: Shape | None = None) -> None:
        uniform = keras.initializers.RandomUniform(-1.0, 1.0)
        self.table = self.add_weight(shape=self.sizes, initializer=uniform, name="table")
        for size, layer in zip(self.spans, self.convolutions, strict=True):
            layer.build((None, None, size * self.sizes[1]))
        for layer in (*self.highways, *([] if self.projection is None else [self.projection])):
            layer.build((None, sum(self.filters)))

    def call(self, ids: Tensor) -> Tensor:
        shape = ops.shape(ids)
        nothing = ops.zeros((1, self.sizes[1]), self.compute_dtype)
        table = ops.concatenate([nothing, ops.cast(self.table, self.compute_dtype)], axis=0)
        x = look_up(table, reshape(ids, (-1, ids.shape[2])))
        pairs = zip(self.spans, self.convolutions, strict=True)
        x = ops.concatenate([self._largest(x, size, layer) for size, layer in pairs], axis=-1)
        x = ACTIVATIONS[self.activation](x)
        for layer in self.highways:
            x = layer(x)
        x = x if self.projection is None else self.projection(x)
        return reshape(x, (*shape[:2], self.units))

    def _largest(self, x: Tensor, size: int, layer: Linear) -> Tensor:
        """What the filters of a width give at the place where each gives most: [N, W, C] -> [N, n]."""
        places = x.shape[1] - size + 1
        beside = ops.concatenate([x[:, first : first + places] for first in range(size)], axis=-1)
        # the bias is the same at all places
        found = ops.max(project(beside, ops.cast(layer.kernel, x.dtype)), axis=1)
        return found + ops.cast(layer.bias, x.dtype)


class Highway(keras.layers.Layer):
    """g f(x) + (1 - g) x, with g = sigmoid(carry(x)) and f = relu(transform(x)).

    The gate is called after the weights of AllenNLP's files: what it lets through is the transformed part. It begins small, with
    a bias of -2.

    Args: width: int F.
    Call: [N, F] -> [N, F]. Trainable weights: 2 (F F + F).
    """

    def __init__(self, width: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        policy = {"dtype": self.dtype_policy}
        self.carry = Linear(width, width**-0.5, name="carry", **policy)
        self.transform = Linear(width, width**-0.5, name="transform", **policy)

    def build(self, shape: Shape) -> None:
        self.carry.build(shape)
        self.transform.build(shape)
        bias = self.carry.bias
        assert bias is not None
        bias.assign(ops.full(bias.shape, -2.0))
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        gate = ops.sigmoid(self.carry(x))
        return gate * self.transform(x, activation="relu") + (1 - gate) * x

"""Recurrent layers: LSTM and GRU, over the loop of `recurrence`.

- The input's product of all times is one matrix product; in the loop there is the recurrent one alone.
- The state is an argument and a result. Padding leaves it alone: a padded place gives the state that stands before it.
- Gates and states are float32 under bfloat16.

Not keras.layers.LSTM: its dropout is Keras' (the same mask on every replica), and its `use_cudnn` and `unroll` are two graphs.
"""

import functools
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.backend import project, reverse_rows
from kerasbert.layers.random import Dropout
from kerasbert.layers.recurrence import State, recur
from kerasbert.storage.json_view import Json


class Recurrent(keras.layers.Layer):
    """One recurrent layer in one direction.

    Args:
        units: int U.
        reverse: bool, from the last place to the first.
        weight_drop: float, dropout of the recurrent matrix in training, one mask for a call and all rows (Merity et al.,
            2017, section 2, DropConnect).
    Call: x [B, S, E]; padding_mask bool or 0/1 [B, S], True = a token, None where all are; state, what the call before gave,
        None for zeros; begins bool or 0/1 [B, S], True = nothing before the place is seen, None for nowhere; added float
        [B, G], what the input's product has besides at every place (a decoder's condition), None for nothing
        -> (y [B, S, H], the state behind the last token of each row).
        A state is a tuple of float32 arrays [B, width], `widths`; its first is what y is made of.
    """

    gates: int

    def __init__(self, units: int, reverse: bool = False, weight_drop: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units, self.reverse, self.weight_drop = units, reverse, weight_drop
        self.dropout = Dropout(weight_drop, shared=True, name="weight_drop", dtype=self.dtype_policy)

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the arrays of a state; the first is H."""
        raise NotImplementedError

    def build(self, shape: Shape) -> None:
        limit, size = self.widths[0] ** -0.5, self.gates * self.units
        # one for each: an initializer gives the same numbers again
        uniform = functools.partial(keras.initializers.RandomUniform, -limit, limit)
        self.kernel = self.add_weight(shape=(shape[-1], size), initializer=uniform(), name="kernel")
        self.recurrent_kernel = self.add_weight(
            shape=(self.widths[0], size), initializer=uniform(), name="recurrent_kernel"
        )
        self.bias = self.add_weight(shape=(size,), initializer="zeros", name="bias", autocast=False)
        self.dropout.build()

    def cell(self, x: Tensor, product: Tensor, state: Sequence[object], *weights: Tensor) -> State:
        """The state after one time: x, product float32 [B, G], the input's and the state's; states [B, width]."""
        raise NotImplementedError

    def cell_weights(self) -> tuple[Tensor, ...]:
        """What `cell` reads besides, in the compute type."""
        return ()

    def matrix(self, training: bool = False) -> Tensor:
        """The recurrent matrix [H, G] of this call."""
        matrix = ops.convert_to_tensor(self.recurrent_kernel)
        return self.dropout(ops.expand_dims(matrix, 0), training=training)[0] if self.weight_drop else matrix

    def loop_weights(self, training: bool = False) -> tuple[Tensor, tuple[Tensor, ...]]:
        """What h is multiplied with before `cell`, and what `cell` reads besides."""
        return ops.cast(self.matrix(training), self.compute_dtype), self.cell_weights()

    def empty(self, rows: int | Tensor) -> State:
        """The state where nothing stands before: zeros [rows, width]."""
        return tuple(ops.zeros((rows, width), "float32") for width in self.widths)

    def call(
        self,
        x: Tensor,
        padding_mask: Tensor = None,
        state: State | None = None,
        begins: Tensor = None,
        added: Tensor = None,
        training: bool = False,
    ) -> tuple[Tensor, State]:
        state = self.empty(ops.shape(x)[0]) if state is None else tuple(ops.cast(each, "float32") for each in state)
        x = ops.transpose(x, (1, 0, 2))  # [S, B, E]: a place's rows lie together
        product = ops.cast(project(x, ops.cast(self.kernel, x.dtype)), "float32") + ops.cast(self.bias, "float32")
        product = product if added is None else product + ops.cast(added, "float32")
        matrix, weights = self.loop_weights(training)
        y, state = recur(
            self.cell,
            product,
            matrix,
            state,
            weights,
            real=None if padding_mask is None else _by_time(padding_mask),
            kept=None if begins is None else 1.0 - _by_time(begins),
            reverse=self.reverse,
        )
        return ops.cast(ops.transpose(y, (1, 0, 2)), x.dtype), state

    def get_config(self) -> Json:
        config = {"units": self.units, "reverse": self.reverse, "weight_drop": self.weight_drop}
        return {**super().get_config(), **config}


class LSTM(Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997; Gers et al., 2000), without peepholes.

    i, f, o = sigmoid, g = tanh of x @ kernel + h @ recurrent_kernel + bias, in the order i, f, g, o;
    c' = f c + i g; h' = o tanh(c'), or h' = o tanh(c') @ projection (Sak et al., 2014, section 2).
    The bias of f begins at 1 (Jozefowicz et al., 2015, section 5).

    Args:
        units: int U.
        projection: int P, units of h; None for U, without a matrix.
        cell_clip: float, c' is clipped to [-x, x] (ELMo's 3).
        projection_clip: float, h' after the projection likewise.
    Call: as Recurrent; a state is (h [B, P], c [B, U]). Trainable weights: 4U(E + P + 1), and UP of a projection.
    """

    gates = 4

    def __init__(
        self,
        units: int,
        projection: int | None = None,
        cell_clip: float | None = None,
        projection_clip: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(units, **kwargs)
        self.projection, self.cell_clip, self.projection_clip = projection, cell_clip, projection_clip

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.projection or self.units, self.units)

    def build(self, shape: Shape) -> None:
        super().build(shape)
        self.bias.assign(ops.concatenate([ops.zeros(self.units), ops.ones(self.units), ops.zeros(2 * self.units)]))
        self.projection_kernel = None
        if self.projection:
            limit = self.units**-0.5
            uniform = keras.initializers.RandomUniform(-limit, limit)
            self.projection_kernel = self.add_weight(
                shape=(self.units, self.projection), initializer=uniform, name="projection_kernel"
            )

    def cell_weights(self) -> tuple[Tensor, ...]:
        if self.projection_kernel is None:
            return ()
        return (ops.cast(ops.convert_to_tensor(self.projection_kernel), self.compute_dtype),)

    def cell(self, x: Tensor, product: Tensor, state: Sequence[object], *weights: Tensor) -> State:
        i, f, g, o = ops.split(x + product, 4, axis=-1)
        c = ops.sigmoid(f) * state[1] + ops.sigmoid(i) * ops.tanh(g)
        c = _clipped(c, self.cell_clip)
        h = ops.sigmoid(o) * ops.tanh(c)
        if weights:
            h = ops.cast(ops.matmul(ops.cast(h, weights[0].dtype), weights[0]), "float32")
            h = _clipped(h, self.projection_clip)
        return h, c

    def get_config(self) -> Json:
        config = {"projection": self.projection, "cell_clip": self.cell_clip, "projection_clip": self.projection_clip}
        return {**super().get_config(), **config}


class GRU(Recurrent):
    """Gated recurrent unit (Cho et al., 2014, section 2.3) with the reset gate after the product, as cuDNN and torch have it.

    r, z = sigmoid of x @ kernel + h @ recurrent_kernel + bias, in the order r, z, n;
    n = tanh(x @ kernel + bias + r (h @ recurrent_kernel + recurrent_bias)); h' = (1 - z) n + z h.

    Differs: the paper resets h before the product, and has no biases.

    Args:
        units: int U.
    Call: as Recurrent; a state is (h [B, U],). Trainable weights: 3U(E + U + 1) + U.
    """

    gates = 3

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.units,)

    def build(self, shape: Shape) -> None:
        super().build(shape)
        self.recurrent_bias = self.add_weight(
            shape=(self.units,), initializer="zeros", name="recurrent_bias", autocast=False
        )

    def cell_weights(self) -> tuple[Tensor, ...]:
        return (ops.cast(ops.convert_to_tensor(self.recurrent_bias), "float32"),)

    def cell(self, x: Tensor, product: Tensor, state: Sequence[object], *weights: Tensor) -> State:
        own, told = ops.split(x, 3, axis=-1), ops.split(product, 3, axis=-1)
        r, z = ops.sigmoid(own[0] + told[0]), ops.sigmoid(own[1] + told[1])
        n = ops.tanh(own[2] + r * (told[2] + weights[0]))
        return ((1 - z) * n + z * state[0],)


class ResetBeforeGRU(Recurrent):
    """Gated recurrent unit with the reset gate before the product (Cho et al., 2014, equations 5 to 8; Kiros et al., 2015, 2.1).

    r, z = sigmoid of x @ kernel + h @ recurrent_kernel + bias, in the order r, z, n;
    n = tanh(x @ kernel + bias + (r h) @ recurrent_kernel); h' = (1 - z) h + z n.

    It begins as Kiros et al. say (section 3): recurrent matrices orthogonal, the others uniform in 0.1. z is that of Chung et
    al. (2014) and Kiros et al.; that of `GRU` is 1 - z. Differs: the papers have no biases, their released code has.

    Args:
        units: int U.
    Call: as Recurrent; a state is (h [B, U],). Trainable weights: 3U(E + U + 1).
    """

    gates = 3

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.units,)

    def build(self, shape: Shape) -> None:
        self.kernel = self.add_weight(
            shape=(shape[-1], 3 * self.units), initializer=keras.initializers.RandomUniform(-0.1, 0.1), name="kernel"
        )
        self.recurrent_kernel = self.add_weight(
            shape=(self.units, 3 * self.units), initializer=_orthogonal_blocks, name="recurrent_kernel"
        )
        self.bias = self.add_weight(shape=(3 * self.units,), initializer="zeros", name="bias", autocast=False)
        self.dropout.build()

    def loop_weights(self, training: bool = False) -> tuple[Tensor, tuple[Tensor, ...]]:
        matrix = ops.cast(self.matrix(training), self.compute_dtype)
        return matrix[:, : 2 * self.units], (matrix[:, 2 * self.units :],)

    def cell(self, x: Tensor, product: Tensor, state: Sequence[object], *weights: Tensor) -> State:
        r, z = ops.split(ops.sigmoid(x[:, : 2 * self.units] + product), 2, axis=-1)
        told = ops.matmul(ops.cast(r * state[0], weights[0].dtype), weights[0])
        n = ops.tanh(x[:, 2 * self.units :] + ops.cast(told, "float32"))
        return ((1 - z) * state[0] + z * n,)


def _orthogonal_blocks(shape: tuple[int, int], dtype: str | None = None) -> Tensor:
    """Square orthogonal matrices side by side: [U, kU]."""
    units = shape[0]
    blocks = [keras.initializers.Orthogonal()((units, units), dtype=dtype) for _ in range(shape[1] // units)]
    return ops.concatenate(blocks, axis=1)


def reversed_rows(x: Tensor, mask: Tensor = None) -> Tensor:
    """The tokens of each row the other way round, padding where it was: [B, S, ...] -> [B, S, ...].

    Args:
        mask: bool or 0/1 [B, S], True = a token, each row's tokens at its left; None where all are.

    >>> reversed_rows(ops.array([[1, 2, 3, 0]]), ops.array([[1, 1, 1, 0]])).numpy().tolist()
    [[3, 2, 1, 0]]
    """
    if mask is None:
        return ops.flip(x, axis=1)
    return reverse_rows(x, ops.sum(ops.cast(mask, "int32"), axis=1))


def _by_time(mask: Tensor) -> Tensor:
    """bool or 0/1 [B, S] -> float32 [S, B, 1]."""
    return ops.expand_dims(ops.transpose(ops.cast(mask, "float32")), -1)


def _clipped(x: Tensor, most: float | None) -> Tensor:
    return x if most is None else ops.clip(x, -most, most)


CELLS = {"lstm": LSTM, "gru": GRU, "reset_before_gru": ResetBeforeGRU}

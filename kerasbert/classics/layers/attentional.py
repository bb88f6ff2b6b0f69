"""A recurrent decoder that attends to a source at every place and reads what it attended to at the next one."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers import visibility
from kerasbert.layers.backend import pick, project
from kerasbert.layers.cache import COVERAGE, FIXED, columns
from kerasbert.layers.random import Dropout
from kerasbert.layers.recurrence import State, recur

ATTENDED = "attended"
STATE = "state_"


class AttentionalDecoder(keras.layers.Layer):
    """LSTMs with global attention and input feeding (Luong et al., 2015, sections 3.1 and 3.3; McCann et al., 2017, section 3).

    h_t of the top layer, of z_t and a_t-1 in the first; alpha = softmax(source (W1 h_t + b1));
    a_t = tanh(W2 [sum of alpha source; h_t] + b2), the result. Gates are those of `LSTM`. Before the first place a is zeros.

    Args:
        units: int U, of every layer and of the result.
        layers: int L.
        dropout: float, between the layers, one mask of each row for all places.
    Call: x [B, T, E], source [B, S, C], mask [B, S] bool or 0/1 or None, states of the layers before the first place ((h, c)
        of each, float32 [B, U]) -> [B, T, U].
    Trainable weights: kernel [E, 4U], feed_kernel, recurrent_kernel_i, kernel_i of layers from the second on [U, 4U], bias_i
        [4U]; attention_kernel [U, C], attention_bias [C], output_kernel [C + U, U], output_bias [U].
    """

    def __init__(self, units: int, layers: int, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units, self.count = units, layers
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def build(self, shape: Shape) -> None:
        """Args: shape: (E, C)."""
        units, limit = self.units, self.units**-0.5

        def add(name: str, *sizes: int) -> keras.Variable:
            # one for each: an initializer gives the same numbers again
            begin = keras.initializers.RandomUniform(-limit, limit) if len(sizes) > 1 else "zeros"
            return self.add_weight(shape=sizes, initializer=begin, name=name)

        self.kernel = add("kernel", shape[0], 4 * units)
        self.feed_kernel = add("feed_kernel", units, 4 * units)
        self.inner = []
        for i in range(self.count):
            below = [add(f"kernel_{i}", units, 4 * units)] if i else []
            self.inner.append([*below, add(f"recurrent_kernel_{i}", units, 4 * units), add(f"bias_{i}", 4 * units)])
            # forgetting begins low, as in `LSTM`
            bias = [ops.zeros(units), ops.ones(units), ops.zeros(2 * units)]
            self.inner[-1][-1].assign(ops.concatenate(bias))
        self.attention = [add("attention_kernel", units, shape[1]), add("attention_bias", shape[1])]
        self.output_weights = [add("output_kernel", shape[1] + units, units), add("output_bias", units)]
        self.dropout.build()
        self.built = True

    def cell(self, x: Tensor, product: Tensor, state: Sequence[Tensor], *weights: Tensor) -> State:
        """The state after one place: (a, h and c of each layer); see `recur`."""
        *matrices, source, bias, kept = weights
        left, told, after = iter(matrices), x + product, []
        for i in range(self.count):
            h, c = state[1 + 2 * i], state[2 + 2 * i]
            if i:
                told = _product(after[-2] * kept[:, self.units * (i - 1) : self.units * i], next(left))
            gates = told + _product(h, next(left)) + ops.cast(next(left), "float32")
            i_, f, g, o = ops.split(gates, 4, axis=-1)
            c = ops.sigmoid(f) * c + ops.sigmoid(i_) * ops.tanh(g)
            after += [ops.sigmoid(o) * ops.tanh(c), c]
        shares = ops.cast(self._shares(after[-2], next(left), next(left), source, bias), source.dtype)
        seen = ops.cast(ops.matmul(shares[:, None], source)[:, 0], "float32")
        attended = _product(ops.concatenate([seen, after[-2]], axis=-1), next(left))
        return (ops.tanh(attended + ops.cast(next(left), "float32")), *after)

    def _shares(self, h: Tensor, matrix: Tensor, own: Tensor, source: Tensor, bias: Tensor) -> Tensor:
        """How much each token of the source counts: float32 [B, S]."""
        query = _product(h, matrix) + ops.cast(own, "float32")
        scores = ops.matmul(source, ops.cast(query, source.dtype)[:, :, None])[:, :, 0]
        return ops.softmax(ops.cast(scores, "float32") + bias)

    def cell_weights(self, source: Tensor, bias: Tensor, training: bool = False) -> tuple[Tensor, ...]:
        """What `cell` reads besides: matrices, the source [B, S, C], 0 or -60 [B, S], and what dropout keeps [B, (L - 1) U]."""
        each = [*(weight for layer in self.inner for weight in layer), *self.attention, *self.output_weights]
        matrices = [ops.cast(ops.convert_to_tensor(weight), self.compute_dtype) for weight in each]
        ones = ops.ones((ops.shape(source)[0], 1, max(1, self.count - 1) * self.units), "float32")
        kept = ops.cast(self.dropout(ops.cast(ones, self.compute_dtype), training=training), "float32")[:, 0]
        return (*matrices, source, bias, kept)

    def begin(self, states: Sequence[State]) -> State:
        """The state before the first place."""
        given = [ops.cast(each, "float32") for pair in states for each in pair]  # a call's arrays come in its type
        return (ops.zeros_like(given[0]), *given)

    def call(self, x: Tensor, source: Tensor, mask: Tensor, states: Tensor, training: bool = False) -> Tensor:
        x = ops.transpose(x, (1, 0, 2))
        product = ops.cast(project(x, ops.cast(self.kernel, x.dtype)), "float32")
        matrix = ops.cast(ops.convert_to_tensor(self.feed_kernel), x.dtype)
        weights = self.cell_weights(source, source_bias(source, mask), training)
        y, _ = recur(self.cell, product, matrix, self.begin(states), weights)
        return ops.cast(ops.transpose(y, (1, 0, 2)), x.dtype)

    def start(self, source: Tensor, mask: Tensor, states: Sequence[State], places: int) -> dict[str, Tensor]:
        """What `step` carries: the source, and the state before each place, float32 [B, places, U] each (`layers.cache`)."""
        begin = self.begin(states)
        state = {f"{FIXED}sequence": source, f"{FIXED}mask": _real(source, mask)}
        for name, each in zip(self.names, begin, strict=True):
            rest = ops.zeros((ops.shape(each)[0], places - 1, self.units), "float32")
            state[name] = ops.concatenate([each[:, None], rest], axis=1)
        return state

    @property
    def names(self) -> list[str]:
        """Of the arrays of a state."""
        return [ATTENDED, *(f"{STATE}{i}_{part}" for i in range(self.count) for part in range(2))]

    def step(self, x: Tensor, column: Tensor, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """One place: x [B, E], the place of each row int32 [B] -> (the result [B, U], the state with that behind the place)."""
        column = columns(column, state[ATTENDED][:, 0, 0])
        before = [pick(state[name], column[:, None])[:, 0] for name in self.names]
        product = ops.cast(project(x, ops.cast(self.kernel, x.dtype)), "float32")
        source = state[f"{FIXED}sequence"]
        weights = self.cell_weights(source, source_bias(source, state[f"{FIXED}mask"]))
        fed = _product(before[0], ops.cast(ops.convert_to_tensor(self.feed_kernel), x.dtype))
        after = self.cell(product, fed, before, *weights)
        number = ops.arange(ops.shape(state[ATTENDED])[1], dtype="int32")[None, :, None]
        here = ops.equal(number, column[:, None, None] + 1)
        written = {
            name: ops.where(here, each[:, None], state[name]) for name, each in zip(self.names, after, strict=True)
        }
        if COVERAGE in state:
            matrix, own, *rest = weights[-7:-1]
            written[COVERAGE] = state[COVERAGE] + self._shares(after[-2], matrix, own, *rest[2:])
        return ops.cast(after[0], x.dtype), {**state, **written}


def _product(x: Tensor, matrix: Tensor) -> Tensor:
    """A product in the matrix' type, as float32."""
    return ops.cast(ops.matmul(ops.cast(x, matrix.dtype), matrix), "float32")


def _real(source: Tensor, mask: Tensor) -> Tensor:
    return ops.ones(ops.shape(source)[:2], "float32") if mask is None else ops.cast(mask, "float32")


def source_bias(source: Tensor, mask: Tensor) -> Tensor:
    """What is added to the scores of a source's tokens: float32 [B, S], 0 or a large negative number at padding."""
    return (1 - _real(source, mask)) * visibility.HIDDEN

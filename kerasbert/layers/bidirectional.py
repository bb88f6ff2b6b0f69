"""Recurrent layers that read a text in both directions, and label scores on top of a stack of them."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.heads import LabelHead
from kerasbert.layers.random import Dropout
from kerasbert.layers.recurrence import State
from kerasbert.layers.recurrent import CELLS

WAYS = ("forward", "backward")


class Bidirectional(keras.layers.Layer):
    """Two recurrent layers, `forward` and `backward`, and their states side by side (Graves et al., 2013, section 3.1).

    Args:
        units: int U, of each direction.
        cell: "lstm" or "gru".
    Call: x [B, S, E], padding_mask bool or 0/1 [B, S], True = a token, None where all are; begins: of each direction bool or
        0/1 [B, S], as of `Recurrent` -> [B, S, 2U]. A padded place has what stands before it in each direction.
    Trainable weights: those of two layers.
    """

    def __init__(self, units: int, cell: str = "lstm", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        policy = {"dtype": self.dtype_policy}
        self.ways = [CELLS[cell](units, reverse=name == "backward", name=name, **policy) for name in WAYS]

    def build(self, shape: Shape) -> None:
        for layer in self.ways:
            layer.build(shape)
        self.built = True

    def read(
        self, x: Tensor, padding_mask: Tensor | None = None, begins: Tensor = (None, None)
    ) -> tuple[Tensor, list[State]]:
        """As a call, with the state of each direction behind the last token that it reads."""
        found = [layer(x, padding_mask, begins=begin) for layer, begin in zip(self.ways, begins, strict=True)]
        return ops.concatenate([y for y, _ in found], axis=-1), [state for _, state in found]

    def call(self, x: Tensor, padding_mask: Tensor = None, begins: Tensor = (None, None)) -> Tensor:
        return self.read(x, padding_mask, begins)[0]


def borders(inputs: Mapping[str, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """What the recurrent layers of an encoder are told of the rows that it reads.

    Args:
        inputs: of an encoder: padding_mask [B, S], or packed_ids [B, S], whose pieces of one number see each other alone and
            whose padding is 0.

    Returns:
        (which places are tokens [B, S], or None, and of each direction where nothing before the place is seen, or None).
    """
    if "packed_ids" not in inputs:
        return inputs.get("padding_mask"), (None, None)
    pieces = inputs["packed_ids"]
    changes, ends = ops.not_equal(pieces[:, 1:], pieces[:, :-1]), ops.ones_like(pieces[:, :1], "bool")
    return pieces > 0, (ops.concatenate([ends, changes], axis=1), ops.concatenate([changes, ends], axis=1))


class BiLSTMHead(LabelHead):
    """Scores of labels, read by bidirectional LSTMs of the vectors of a row (Devlin et al., 2019, section 5.3, table 7).

    Dropout stands before each layer and before the scores.

    Args:
        labels: int L.
        units: int U, of each direction.
        layers: int.
        initializer: float, of the map to labels.
        dropout: float.
    Call: x [B, S, H], padding_mask [B, S] or None -> float32 [B, S, L].
        Trainable weights: `lstm_i/forward/...` and `lstm_i/backward/...` of layer i, kernel [2U, L], bias [L].
    """

    def __init__(
        self, labels: int, units: int, layers: int = 1, initializer: float = 0.02, dropout: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(labels, initializer, dropout, **kwargs)
        self.units, policy = units, {"dtype": self.dtype_policy}
        self.recurrent = [Bidirectional(units, name=f"lstm_{i}", **policy) for i in range(layers)]
        self.dropouts = [Dropout(dropout, name=f"dropout_{i}", **policy) for i in range(layers)]

    def build(self, shape: Shape) -> None:
        for layer, dropout in zip(self.recurrent, self.dropouts, strict=True):
            layer.build(shape)
            dropout.build()
            shape = (*shape[:-1], 2 * self.units)
        super().build(shape)

    def call(self, x: Tensor, padding_mask: Tensor = None, training: bool = False) -> Tensor:
        for layer, dropout in zip(self.recurrent, self.dropouts, strict=True):
            x = layer(dropout(x, training=training), padding_mask)
        return super().call(x, training=training)

"""What a head reads of the layers below it: the last one, or several as one vector ("feature-based", BERT's table 7)."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from kerasbert.family import check_layers
from kerasbert.inputs import Shape, Tensor

check = check_layers


class ScalarMix(keras.layers.Layer):
    """gamma * sum of softmax(scalars)_j * h_j over the layers j (Peters et al., 2018, equation 1).

    All layers weigh alike at first, and gamma is 1. Differs: no layer norm of the h_j, and the L2 term of the paper is the
    optimizer's decay of the scalars.

    Args:
        layers: int L + 1, with the embeddings.
    Call: sequence of L + 1 tensors [..., H] -> [..., H]. Trainable weights: L + 2.

    >>> mix = ScalarMix(2)
    >>> mix.build()
    >>> mix([ops.array([1.0]), ops.array([3.0])]).numpy().tolist()
    [2.0]
    """

    def __init__(self, layers: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layers = layers

    def build(self, shape: Shape | None = None) -> None:
        self.scalars = self.add_weight((self.layers,), "zeros", autocast=False, name="scalars")
        self.gamma = self.add_weight((1,), "ones", autocast=False, name="gamma")

    def call(self, vectors: Tensor) -> Tensor:
        shares = ops.softmax(self.scalars) * self.gamma
        total = ops.cast(vectors[0], "float32") * shares[0]
        for layer in range(1, self.layers):
            total = total + ops.cast(vectors[layer], "float32") * shares[layer]
        return ops.cast(total, self.compute_dtype)

    def told(self) -> dict[str, Tensor]:
        """gamma, and each layer's share, the embeddings first."""
        shares = ops.softmax(ops.convert_to_tensor(self.scalars)).numpy().tolist()
        return {"gamma": float(ops.convert_to_tensor(self.gamma).numpy()[0]), "shares": shares}


def joined(vectors: Sequence[Tensor], kind: str, mix: ScalarMix | None = None) -> Tensor:
    """The layers of `LAYERS[kind]`, each [..., H], as one: [..., H], or [..., 4 * H] of "concat4".

    Args:
        mix: of "mix".

    >>> joined([ops.array([1.0]), ops.array([2.0]), ops.array([3.0]), ops.array([4.0])], "sum4").numpy().tolist()
    [10.0]
    """
    if mix is not None:
        return mix(vectors)
    if kind == "concat4":
        return ops.concatenate(list(vectors), axis=-1)
    total = vectors[0]
    for each in vectors[1:]:
        total = total + each
    return total

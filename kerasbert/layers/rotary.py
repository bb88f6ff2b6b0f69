"""Rotary positions: RoFormer (Su et al., 2021, section 3.2)."""

from typing import Any

import numpy as np
from keras import ops

from kerasbert.inputs import Tensor
from kerasbert.layers.attention import Attention
from kerasbert.layers.context import select
from kerasbert.layers.readout import Queries


def rotate(x: Tensor, places: Tensor, theta: float) -> Tensor:
    """Turn pairs of numbers by angles that grow with the place, in float32 (equation 34).

    Number i of a head is paired with number i + D/2, as in GPT-NeoX and in Hugging Face's models. Differs: the paper pairs
    2i with 2i + 1, which is the same with the columns of queries and keys in another order.

    Args:
        x: [B, N, S, D], D even.
        places: int [B or 1, S].
        theta: the base: pair i turns by theta^(-2i/D) a place.

    Returns:
        [B, N, S, D], in the type of x.
    """
    half = x.shape[-1] // 2
    speeds = (theta ** (-np.arange(half) / half)).astype("float32")
    angles = ops.expand_dims(ops.expand_dims(ops.cast(places, "float32"), -1) * speeds, 1)  # [B or 1, 1, S, D/2]
    cosine, sine, wide = ops.cos(angles), ops.sin(angles), ops.cast(x, "float32")
    one, other = wide[..., :half], wide[..., half:]
    turned = ops.concatenate([one * cosine - other * sine, other * cosine + one * sine], axis=-1)
    return ops.cast(turned, x.dtype)


class RotaryAttention(Attention):
    """Attention whose queries and keys are rotated by their places, so that a score depends on the distance.

    Args: as Attention; theta: float, the base of the rotation.
    Call: as its parent's, with `scoring` int32 [B or 1, S], the places of the tokens (`Context.places`).
    """

    def __init__(self, *args, theta: float = 10000.0, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.theta = theta

    def scores(self, query: Tensor, key: Tensor, *, scoring: Any = None, queries: Queries = None, **at: Any) -> Tensor:
        assert scoring is not None, "a rotary attention needs scoring, the places of the tokens"
        of_query = scoring if queries is None else select(ops.expand_dims(scoring, -1), queries)[..., 0]
        return super().scores(rotate(query, of_query, self.theta), rotate(key, scoring, self.theta), **at)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "theta": self.theta}

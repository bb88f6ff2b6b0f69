"""Rotary positions: RoFormer (Su et al., 2021, section 3.2)."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from keras import ops

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.attention import Attention
from kerasbert.layers.context import Context, select
from kerasbert.layers.readout import Queries
from kerasbert.storage.json_view import Json


def rotate(x: Tensor, places: Tensor, theta: float, interleaved: bool = False) -> Tensor:
    """Turn pairs of numbers by angles that grow with the place, in float32 (equation 34).

    Number i of a head is paired with number i + D/2, as in GPT-NeoX and in most of Hugging Face's models; `interleaved`, number
    2i with 2i + 1, as in the paper: the same with the columns of queries and keys in another order.

    Args:
        x: [B, N, S, D], D even.
        places: int [B or 1, S].
        theta: the base: pair i turns by theta^(-2i/D) a place.
        interleaved: which numbers are pairs.

    Returns:
        [B, N, S, D], in the type of x.
    """
    half = x.shape[-1] // 2
    speeds = (theta ** (-np.arange(half) / half)).astype("float32")
    speeds = np.repeat(speeds, 2) if interleaved else speeds
    angles = ops.expand_dims(ops.expand_dims(ops.cast(places, "float32"), -1) * speeds, 1)  # [B or 1, 1, S, D or D/2]
    cosine, sine, wide = ops.cos(angles), ops.sin(angles), ops.cast(x, "float32")
    if interleaved:  # a product with a small matrix: on a phone half the time of strides of 2
        return ops.cast(wide * cosine + ops.matmul(wide, _partners(half)) * sine, x.dtype)
    one, other = wide[..., :half], wide[..., half:]
    return ops.cast(ops.concatenate([one * cosine - other * sine, other * cosine + one * sine], axis=-1), x.dtype)


def _partners(pairs: int) -> np.ndarray:
    """float32 [D, D]: x @ it has -x[2i + 1] at 2i and x[2i] at 2i + 1."""
    return np.kron(np.eye(pairs, dtype="float32"), np.array([[0, 1], [-1, 0]], "float32"))


def check_head_size(size: int) -> None:
    """Refuse heads that have no pairs."""
    if size % 2:
        raise InputError(f"heads must have an even width, of which pairs are rotated. Received: {size}")


def with_places(context: Context, inputs: Mapping[str, Tensor]) -> Context:
    """The context with the places of the tokens for rotary attentions to read."""
    places, _ = dataclasses.replace(context, position_ids=inputs.get("position_ids")).places(
        ops.shape(inputs["token_ids"])[1]
    )
    return dataclasses.replace(context, scoring=places)


class RotaryAttention(Attention):
    """Attention whose queries and keys are rotated by their places, so that a score depends on the distance.

    Args: as Attention; theta: float, the base of the rotation; interleaved: bool, as of `rotate`.
    Call: as its parent's, with `scoring` int32 [B or 1, S], the places of the tokens (`Context.places`).
    """

    def __init__(self, *args: Any, theta: float = 10000.0, interleaved: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.theta, self.interleaved = theta, interleaved

    def placed(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        *,
        scoring: Tensor | None = None,
        queries: Queries = None,
        **at: object,
    ) -> tuple:
        assert scoring is not None, "a rotary attention needs scoring, the places of the tokens"
        of_query = scoring if queries is None else select(ops.expand_dims(scoring, -1), queries)[..., 0]
        return self.turned(query, of_query), self.turned(key, scoring), value, bias, at

    def turned(self, x: Tensor, places: Tensor) -> Tensor:
        """x [B, N, S, D] rotated by places [B or 1, S]."""
        return rotate(x, places, self.theta, self.interleaved)

    def get_config(self) -> Json:
        return {**super().get_config(), "theta": self.theta, "interleaved": self.interleaved}

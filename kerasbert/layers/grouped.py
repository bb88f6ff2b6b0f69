"""Grouped-query attention (Ainslie et al., 2023, section 2.2)."""

from typing import Any

from keras import ops

from kerasbert.inputs import Tensor
from kerasbert.layers.attention import Attention
from kerasbert.layers.backend import reshape
from kerasbert.storage.json_view import Json


class GroupedAttention(Attention):
    """Attention whose keys and values have fewer heads than its queries: so many heads in a row share one.

    The queries of a group are scored together, [B, G, N/G*Q, D] by [B, G, K, D], so that no key is copied.

    Args: as Attention; groups: int G, which divides N.
    Trainable weights: 2*H*N*D + 2*H*G*D and the biases.
    """

    def __init__(self, *args: Any, groups: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.groups = groups

    @property
    def sizes(self) -> tuple[int, int, int]:
        return (self.heads * self.head_size, self.groups * self.head_size, self.groups * self.value_size)

    def read(self, source: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values: [B, K, H] twice -> [B, G, K, D] twice."""
        maps = (self.key(source), self.head_size), (self.value(value), self.value_size)
        split = [reshape(x, (*ops.shape(x)[:2], self.groups, size)) for x, size in maps]
        key, values = (ops.transpose(x, (0, 2, 1, 3)) for x in split)
        return key, values

    def scores(self, query: Tensor, key: Tensor, **at: object) -> Tensor:
        return self._of_heads(super().scores(self._of_groups(query), key, **at), query)

    def weighted(self, weights: Tensor, value: Tensor, **at: object) -> Tensor:
        return self._of_heads(super().weighted(self._of_groups(weights), value, **at), weights)

    def _of_groups(self, x: Tensor) -> Tensor:
        """[B, N, Q, ...] -> [B, G, N/G*Q, ...]."""
        batch, heads, rows, last = ops.shape(x)
        return reshape(x, (batch, self.groups, heads // self.groups * rows, last))

    def _of_heads(self, x: Tensor, other: Tensor) -> Tensor:
        """[B, G, N/G*Q, ...] -> [B, N, Q, ...], with the heads and rows of `other`."""
        return reshape(x, (*ops.shape(other)[:3], ops.shape(x)[-1]))

    def get_config(self) -> Json:
        return {**super().get_config(), "groups": self.groups}

"""Two streams of attention (Yang et al., 2019, section 2.3): what a token holds, and its place alone, where it is predicted.

XLNet and MPNet read it: the query stream stands behind the content stream, in the same products.
"""

import dataclasses

from kerasbert.inputs import Tensor
from kerasbert.layers.context import Context, Queries


@dataclasses.dataclass(frozen=True)
class TwoStreams(Context):
    """Of x [B, S + P, H], h and behind it g: keys and values are read from h. The last layer is computed for g alone.

    Args: as Context; bias and scoring are of all S + P rows. length: int S, or a scalar tensor.
    """

    length: int | Tensor = None
    last: bool = False

    def of(self, queries: Queries) -> "TwoStreams":
        if queries is not None:
            raise ValueError(f"target_positions and queries were given, expected one of them. Received: {queries!r}")
        bias = None if self.bias is None else self.bias[:, :, self.length :]
        return dataclasses.replace(self, bias=bias, scoring=self.scoring_of_last(), last=True)

    def scoring_of_last(self) -> Tensor:
        """`scoring` of g alone: by default of numbers [B or 1, N, S + P, K]."""
        return self.scoring[:, :, self.length :]

    def rows(self, x: Tensor) -> Tensor:
        return x[:, self.length :] if self.last else x

    def keys(self, x: Tensor) -> Tensor:
        return super().keys(x[:, : self.length])

"""Tensors that others store in another form than ours: several side by side in one, with an axis of one more, or by heads."""

import dataclasses
from collections.abc import Sequence

import numpy as np

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Form:
    """What a tensor of theirs holds: `count` of ours, each of which has `shape`. The base class is our own form."""

    @property
    def count(self) -> int:
        """How many of ours it holds."""
        return 1

    def shape(self, theirs: Shape, heads: int | None) -> Shape | None:
        """The shape of each of ours; None where a tensor of that shape has not this form.

        Args:
            heads: N, where the configuration says it.
        """
        return theirs

    def split(self, array: np.ndarray, heads: int | None) -> list[np.ndarray]:
        """Theirs -> ours."""
        return [array]

    def join(self, arrays: Sequence[np.ndarray], head_size: int) -> np.ndarray:
        """Ours -> theirs; `head_size` is D."""
        return arrays[0]


@dataclasses.dataclass(frozen=True)
class Joined(Form):
    """Several of ours on one axis, one whole after the other or, `by_head`, those of one head after those of another.

    Args:
        parts: how many. axis: 0 or -1. by_head: [N * parts * D], as GPT-NeoX and DeBERTa keep queries, keys and values.
    """

    parts: int
    axis: int = -1
    by_head: bool = False

    @property
    def count(self) -> int:
        """How many of ours it holds."""
        return self.parts

    def shape(self, theirs: Shape, heads: int | None) -> Shape | None:
        """The shape of each of ours."""
        if not theirs or theirs[self.axis] % (self.parts * ((heads or 1) if self.by_head else 1)):
            return None
        shape = list(theirs)
        shape[self.axis] //= self.parts
        return tuple(shape)

    def split(self, array: np.ndarray, heads: int | None) -> list[np.ndarray]:
        """Theirs -> ours."""
        if not self.by_head:
            return np.split(array, self.parts, axis=self.axis)
        moved = np.moveaxis(array, self.axis, 0)
        byhead = moved.reshape(heads or 1, self.parts, -1, *moved.shape[1:])
        each = (byhead[:, i].reshape(-1, *moved.shape[1:]) for i in range(self.parts))
        return [np.moveaxis(part, 0, self.axis) for part in each]

    def join(self, arrays: Sequence[np.ndarray], head_size: int) -> np.ndarray:
        """Ours -> theirs."""
        if not self.by_head:
            return np.concatenate(arrays, axis=self.axis)
        moved = [np.moveaxis(array, self.axis, 0) for array in arrays]
        byhead = np.stack([part.reshape(-1, head_size, *part.shape[1:]) for part in moved], axis=1)
        return np.moveaxis(byhead.reshape(-1, *moved[0].shape[1:]), 0, self.axis)


@dataclasses.dataclass(frozen=True)
class Leading(Form):
    """One axis of 1 more than ours, the first."""

    def shape(self, theirs: Shape, heads: int | None) -> Shape | None:
        """The shape of ours."""
        return theirs[1:] if theirs[:1] == (1,) else None

    def split(self, array: np.ndarray, heads: int | None) -> list[np.ndarray]:
        """Theirs -> ours."""
        return [array[0]]

    def join(self, arrays: Sequence[np.ndarray], head_size: int) -> np.ndarray:
        """Ours -> theirs."""
        return arrays[0][None]


@dataclasses.dataclass(frozen=True)
class ByHead(Form):
    """Heads on two axes of theirs, one of ours: [H, N, D] -> [H, N*D].

    Args:
        axis: the first of the two.
    """

    axis: int = 1

    def shape(self, theirs: Shape, heads: int | None) -> Shape | None:
        """The shape of ours."""
        before, axes, behind = theirs[: self.axis], theirs[self.axis : self.axis + 2], theirs[self.axis + 2 :]
        return (*before, axes[0] * axes[1], *behind) if len(axes) == 2 else None

    def split(self, array: np.ndarray, heads: int | None) -> list[np.ndarray]:
        """Theirs -> ours."""
        shape = array.shape
        return [array.reshape(*shape[: self.axis], -1, *shape[self.axis + 2 :])]

    def join(self, arrays: Sequence[np.ndarray], head_size: int) -> np.ndarray:
        """Ours -> theirs."""
        shape = arrays[0].shape
        return arrays[0].reshape(*shape[: self.axis], -1, head_size, *shape[self.axis + 1 :])

"""A reversible stack: its activations do not grow with the number of layers (Gomez et al., 2017; Kitaev et al., 2020, section 3).

Two streams, of which each sublayer adds to one what it makes of the other, so that its input follows from its output. What a
sublayer draws at random (dropout's keys, the buckets of its tokens) is noted in the forward pass and handed to the gradient:
that runs outside of `random.scope`, where a second call would have another key, and the input that it works out differs in
the last bit, which can be another bucket.
"""

import dataclasses
from collections.abc import Callable, Sequence

import keras
from keras import ops

from kerasbert.inputs import Tensor
from kerasbert.layers.backend_reversible import loop_of_pieces, reversible
from kerasbert.layers.random import recorded, replayed

KINDS = ("local", "lsh")


@dataclasses.dataclass(frozen=True)
class Reversible:
    """How a reversible stack is made (Kitaev et al., 2020).

    Args:
        kinds: "local" or "lsh" for each layer, from the first again where there are more layers.
        chunk: int, tokens that a feed-forward layer computes at once; 0 for all.
    """

    kinds: tuple[str, ...] = KINDS
    chunk: int = 0


OfTokens = Callable[[Tensor, Tensor], Tensor]  # (x [B, P, H], the number of its first token) -> [B, P, H]


def in_pieces(fn: OfTokens, x: Tensor, size: int) -> Tensor:
    """A function of single tokens, of `size` tokens at once (section 3, "Chunking"): [B, S, H] -> [B, S, H].

    Args:
        fn: (x [B, P, H], the number of its first token) -> [B, P, H] of the type of x.
        size: int, or 0 for all at once, as where S is not known before.
    """
    if not size or x.shape[1] is None or x.shape[1] <= size:
        return fn(x, 0)
    with recorded() as drawn:  # outside of the loop: all pieces draw as one
        begin = fn(x[:, :size], 0)

    def step(first: int, total: Tensor, piece: Tensor) -> tuple[Tensor, list[Tensor]]:
        with replayed(drawn):
            return total, [ops.cast(fn(piece, first + size), x.dtype)]

    (rest,), _ = loop_of_pieces(step, [x[:, size:]], size)
    return ops.concatenate([ops.cast(begin, x.dtype), rest], axis=1)


class Half:
    """One sublayer of a reversible stack, as `backend.reversible` asks for it.

    Args:
        fn: (x [B, P, H], the number of its first token) -> [B, P, H].
        layers: Keras layers that it reads, whose weights get a gradient.
        size: int, tokens that are computed together; 0 for all.
    """

    def __init__(self, fn: OfTokens, layers: Sequence[keras.layers.Layer], size: int = 0) -> None:
        self.fn, self.size = fn, size
        known = {id(weight): weight for layer in layers for weight in layer.weights}
        self.weights = list(known.values())

    def forward(self, x: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """What it gives with these weights, and what it has drawn."""
        with self._with(weights), recorded() as drawn:
            y = in_pieces(self.fn, x, self.size)
        return y, drawn

    def again(self, x: Tensor, weights: Sequence[Tensor], drawn: list[Tensor], first: Tensor) -> Tensor:
        """What it gives of the tokens from `first` on, by the same draws."""
        with self._with(weights), replayed(drawn):
            return self.fn(x, first)

    def _with(self, weights: Sequence[Tensor]) -> keras.StatelessScope:
        """Within it, the layers read these tensors."""
        return keras.StatelessScope(state_mapping=list(zip(self.weights, weights, strict=True)))


def run(halves: Sequence[Half], a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """(a, b) -> (b, a + half(b)), sublayer after sublayer: float32 [B, S, H] twice -> the same."""
    return reversible(halves, a, b)

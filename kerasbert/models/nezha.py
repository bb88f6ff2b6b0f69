"""NEZHA: Neural Contextualized Representation for Chinese Language Understanding (Wei et al., 2019).

Differences from BERT:

- Functional relative positions (2.2) in the place of learned ones: in every layer and head a vector a of the distance is added to
  a key where it is scored, and to a value where it is summed (2.1):

      score(i, j) = q_i (k_j + a_(j-i)) / sqrt(D)        y_i = sum over j of weight(i, j) (v_j + a_(j-i))

  Sines and cosines by turns, with the Transformer's wavelengths, of the head's size; nothing is learned.
- Whole word masking (2.3), beside the next sentence; 11 languages or Chinese, whose words the records bring along (`--words`).

Of the released code: distances are at most 64 either way, and are counted from there: the angle of the distance d is d + 64.
Differs: the paper's is d, which scores otherwise.

The products with a are made by distance, and shifted (`layers/relative.py`): no [S, S, D] is kept.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
from keras import ops

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.attention import Attention
from kerasbert.layers.backend import gather
from kerasbert.layers.block import Block
from kerasbert.layers.context import Context
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.readout import Queries
from kerasbert.layers.relative import in_order
from kerasbert.models.bert import BERT
from kerasbert.models.bert import TF1 as BERT_TF1
from kerasbert.registry import Family, register
from kerasbert.spec import Embeddings, Spec


@dataclasses.dataclass(frozen=True)
class Distances:
    """How far apart tokens may stand.

    Args:
        clamp: int, farther ones count as that far (max_relative_position).
    """

    clamp: int = 64


@dataclasses.dataclass(frozen=True)
class NezhaSpec(Spec):
    """A Spec with functional relative positions."""

    distances: Distances = Distances()

    def validate(self) -> "NezhaSpec":
        """Check what no single field can tell; returns self."""
        super().validate()
        if self.distances.clamp < 1:
            raise InputError(f"distances.clamp must be at least 1. Received: {self.distances.clamp}")
        if self.embeddings.kind != "none":
            raise InputError(f"NEZHA has embeddings.kind none. Received: {self.embeddings.kind}")
        return self

    def seen(self, layer: int, length: float) -> float:
        """Keys, and 2 S distances, for the count of FLOPs."""
        return 3 * length


def table(clamp: int, size: int) -> np.ndarray:
    """The vectors of the distances -clamp to clamp: float32 [2 * clamp + 1, D]; where D is odd the last number is 0.

    >>> table(1, 3).round(2).tolist()
    [[0.0, 1.0, 0.0], [0.8399999737739563, 0.5400000214576721, 0.0], [0.9100000262260437, -0.41999998688697815, 0.0]]
    """
    angles = np.arange(2 * clamp + 1)[:, None] / 10000 ** (2 * np.arange(size // 2) / size)
    found = np.zeros((2 * clamp + 1, size), "float32")
    found[:, : 2 * (size // 2)] = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(len(angles), -1)
    return found


def by_distance(x: Tensor) -> Tensor:
    """What stands at a key -> at its distance: [B, N, S, S] -> [B, N, S, 2 S], column c of the distance c - S, zeros elsewhere.

    The inverse of `relative.in_order`.

    >>> by_distance(ops.reshape(ops.arange(1, 5), (1, 1, 2, 2))).numpy().tolist()
    [[[[0, 0, 1, 2], [0, 3, 4, 0]]]]
    """
    rows, heads, size, _ = ops.shape(x)
    x = ops.pad(x, [[0, 0]] * 3 + [[0, size - 1]])
    x = ops.reshape(x, (rows, heads, size * (2 * size - 1)))
    return ops.reshape(ops.pad(x, [[0, 0]] * 2 + [[size, 0]]), (rows, heads, size, 2 * size))


class FunctionalAttention(Attention):
    """Attention whose keys and values have a vector of the distance added (section 2.1).

    Args: as Attention.
    Call: as its parent's, with `scoring` float32 [2 S, D], the vector of the distance c - S in row c.
    """

    def scores(
        self, query: Tensor, key: Tensor, *, scoring: Tensor | None = None, queries: Queries = None, **at: object
    ) -> Tensor:
        assert scoring is not None, "a functional attention needs scoring, the vectors of the distances"
        query = query * ops.cast(self.head_size**-0.5, query.dtype)
        content, vectors = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))), ops.cast(scoring, query.dtype)
        if queries is None:
            moved = in_order(_product(query, ops.transpose(vectors)), ops.shape(key)[2])
        elif isinstance(queries, str):
            moved = _product(query, ops.transpose(_of_first(vectors)))
        else:
            moved = _by_row(ops.matmul(_by_row(query), ops.transpose(_of_some(vectors, queries), (0, 1, 3, 2))))
        return ops.cast(content, "float32") + ops.cast(moved, "float32")

    def weighted(
        self, weights: Tensor, value: Tensor, *, scoring: Tensor | None = None, queries: Queries = None, **at: object
    ) -> Tensor:
        vectors = ops.cast(scoring, weights.dtype)
        if queries is None:
            moved = _product(by_distance(weights), vectors)
        elif isinstance(queries, str):
            moved = _product(weights, _of_first(vectors))
        else:
            moved = _by_row(ops.matmul(_by_row(weights), _of_some(vectors, queries)))
        return super().weighted(weights, value, **at) + moved


def _of_first(vectors: Tensor) -> Tensor:
    """The vectors of the first token and all keys: [2 S, D] -> [S, D]."""
    return vectors[ops.shape(vectors)[0] // 2 :]


def _of_some(vectors: Tensor, queries: Tensor) -> Tensor:
    """The vectors of some queries and all keys: [2 S, D], int [B, P] -> [B, P, S, D]."""
    size = ops.shape(vectors)[0] // 2
    return gather(vectors, size - ops.expand_dims(ops.cast(queries, "int32"), -1) + ops.arange(size, dtype="int32"))


def _product(x: Tensor, vectors: Tensor) -> Tensor:
    """[B, N, Q, K] x [K, D] -> [B, N, Q, D] as one flat product: sizes may be unknown, as of no kernel.

    Not as a batched one: with one side broadcast, TensorFlow 2.20's wrote over its heap on CPU.
    """
    flat = ops.matmul(ops.reshape(x, (-1, ops.shape(vectors)[0])), vectors)
    return ops.reshape(flat, (*ops.shape(x)[:-1], ops.shape(vectors)[1]))


def _by_row(x: Tensor) -> Tensor:
    """[B, N, P, D] <-> [B, P, N, D]."""
    return ops.transpose(x, (0, 2, 1, 3))


class NezhaBlock(Block):
    """BERT's layer with functional attention."""

    attention_class = FunctionalAttention


class Nezha(Encoder):
    """BERT's stack. position_ids are not read: distances are those of the row's places."""

    open_lengths = True

    block_class = NezhaBlock
    spec: NezhaSpec

    def context(self, inputs: Mapping[str, Tensor]) -> Context:
        size, clamp = ops.shape(inputs["token_ids"])[1], self.spec.distances.clamp
        apart = ops.clip(ops.arange(2 * size, dtype="int32") - size, -clamp, clamp)
        vectors = gather(ops.convert_to_tensor(table(clamp, self.spec.head_size)), apart + clamp)
        return dataclasses.replace(super().context(inputs), scoring=vectors)


TF1 = dataclasses.replace(BERT_TF1, fixed={"use_relative_position": True})

NEZHA = register(
    Family(
        name="nezha",
        spec=NezhaSpec(embeddings=Embeddings(vocabulary=21128, kind="none")),
        sizes={
            "base": {},
            "large": BERT.sizes["large"],
            "base-multilingual-11-cased": {"embeddings.vocabulary": 100503},
        },
        encoder=Nezha,
        objective="wwm",
        names={"tf1": TF1},
        paper="Wei et al., 2019, NEZHA: Neural Contextualized Representation for Chinese Language Understanding",
    )
)

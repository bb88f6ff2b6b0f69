"""Adaptive input and softmax (Grave et al., 2017, Efficient softmax approximation for GPUs; Baevski and Auli, 2019).

The vocabulary, most frequent tokens first, is cut into clusters. The softmax of the first cluster, the head, has one more
number for each of the others, the tails: p(token) = p(its tail) p(token | its tail). Tails have narrower vectors.
"""

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from kerasbert.errors import InputError
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.backend import project
from kerasbert.layers.embeddings import Table
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.heads import tied_logits
from kerasbert.layers.initial import Normal
from kerasbert.layers.random import Dropout

if TYPE_CHECKING:
    from kerasbert.models.transformer_xl import TransformerXLSpec

WT103 = (20000, 40000, 200000)  # of the 267,735 words of WikiText-103 (kimiyoung/transformer-xl, train.py)


@dataclasses.dataclass(frozen=True)
class Adaptive:
    """How a vocabulary is cut into clusters.

    Args:
        cutoffs: the numbers of the first token of each tail, ascending; () for one softmax over all. None takes those of
            WT103 that are below the vocabulary.
        div_val: int, the vectors of each tail are narrower than those of the cluster before it by this factor.
    """

    cutoffs: tuple[int, ...] | None = None
    div_val: int = 1

    def borders(self, vocabulary: int) -> list[tuple[int, int]]:
        """The first token of each cluster, and the one behind its last.

        >>> Adaptive((20, 40)).borders(60), Adaptive().borders(30522)
        ([(0, 20), (20, 40), (40, 60)], [(0, 20000), (20000, 30522)])
        """
        cutoffs = self.cutoffs
        if cutoffs is None:
            cutoffs = tuple(cutoff for cutoff in WT103 if cutoff < vocabulary)
        return list(itertools.pairwise((0, *cutoffs, vocabulary)))

    def check(self, vocabulary: int, width: int) -> None:
        """Refuse clusters of a vocabulary whose head has vectors of `width` numbers where one has no token or no number."""
        borders = self.borders(vocabulary)
        if any(end <= begin for begin, end in borders):
            raise InputError(
                f"adaptive.cutoffs must ascend between 0 and embeddings.vocabulary {vocabulary}. "
                f"Received: {', '.join(map(str, self.cutoffs or ()))}"
            )
        if self.div_val < 1 or width // self.div_val ** (len(borders) - 1) < 1:
            raise InputError(
                f"adaptive.div_val must be at least 1 and leave the last of {len(borders)} clusters a number of "
                f"{width} (embeddings.width). Received: {self.div_val}"
            )


@dataclasses.dataclass(frozen=True)
class Clusters:
    """The clusters of a Spec.

    Args:
        borders: of each the first token and the one behind its last.
        width: int E, of the head's vectors.
        narrower: bool, whether each cluster has a table of its own (div_val > 1).
        projected: bool, whether vectors are projected to H.
    """

    borders: tuple[tuple[int, int], ...]
    width: int
    narrower: bool
    projected: bool

    @classmethod
    def of(cls, spec: "TransformerXLSpec") -> "Clusters":
        """Those of a Spec with `adaptive`."""
        width, narrower = spec.embeddings.width or spec.hidden, spec.adaptive.div_val > 1
        borders = tuple(spec.adaptive.borders(spec.embeddings.vocabulary))
        return cls(borders, width, narrower, narrower or width != spec.hidden)

    @property
    def tails(self) -> int:
        """How many there are beside the head."""
        return len(self.borders) - 1

    @property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """The borders of the tables."""
        return self.borders if self.narrower else ((0, self.borders[-1][1]),)

    def name(self, stem: str, part: int) -> str:
        """Of what belongs to a table: numbered where there are tails."""
        return f"{stem}_{part}" if self.tails else stem


class AdaptiveEmbeddings(keras.layers.Layer):
    """Adaptive input: vectors that are wider for frequent tokens, projected to H, times sqrt(H).

    Where `div_val` is 1 there is one table. Projections have no bias, and there is none where one table is H wide.

    Args:
        spec: Spec with `adaptive`.
    Call: token_ids [B, S] -> [B, S, H]; segments and positions are not read.
    Trainable weights: the sum of n*E over clusters of n tokens and width E = width / div_val^i, and of E*H.
    """

    def __init__(self, spec: "TransformerXLSpec", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec, self.clusters = spec, Clusters.of(spec)

    def build(self, shape: Shape | None = None) -> None:
        spec, clusters, kwargs = self.spec, self.clusters, {"dtype": self.dtype_policy}
        self.tables, self.projections = [], []
        for i, (begin, end) in enumerate(clusters.parts):
            width = clusters.width // spec.adaptive.div_val**i
            table = Table(end - begin, width, spec.initializer, name=clusters.name("tokens", i), **kwargs)
            table.build()
            self.tables.append(table)
            if clusters.projected:  # they start at half of the others' deviation (proj_init_std)
                names = {"name": clusters.name("projection", i), "use_bias": False}
                projection = Linear(spec.hidden, spec.initializer / 2, **names, **kwargs)
                projection.build((None, None, width))
                self.projections.append(projection)
        self.dropout = Dropout(spec.dropout, name="dropout", **kwargs)
        self.dropout.build()

    @property
    def tokens(self) -> Table:
        """The table of all tokens, where there is one."""
        if len(self.tables) > 1:
            raise InputError(
                f"{len(self.tables)} clusters of tokens have a table each, expected one table: set adaptive.div_val=1"
            )
        return self.tables[0]

    def cluster(self, i: int) -> tuple[Tensor, Tensor]:
        """The table [n, E] and the kernel [E, H] (None where E = H) of a cluster."""
        (begin, end), part = self.clusters.borders[i], i if self.clusters.narrower else 0
        table = self.tables[part].table
        kernel = self.projections[part].kernel if self.projections else None
        return (table if self.clusters.narrower or not self.clusters.tails else table[begin:end]), kernel

    def call(
        self, token_ids: Tensor, segment_ids: Tensor = None, position_ids: Tensor = None, training: bool = False
    ) -> Tensor:
        if len(self.tables) == 1:
            x = self._vectors(0, token_ids)
        else:
            found = []
            for i, (begin, end) in enumerate(self.clusters.borders):
                inside = ops.logical_and(token_ids >= begin, token_ids < end)
                of_part = self._vectors(i, ops.clip(token_ids - begin, 0, end - begin - 1))
                found.append(of_part * ops.cast(ops.expand_dims(inside, -1), of_part.dtype))
            x = sum(found[1:], found[0])
        return self.dropout(x * ops.cast(self.spec.hidden**0.5, x.dtype), training=training)

    def _vectors(self, part: int, ids: Tensor) -> Tensor:
        x = self.tables[part](ids)
        return self.projections[part](x) if self.projections else x


class AdaptiveSoftmax(keras.layers.Layer):
    """Adaptive softmax whose tables are those of the adaptive input (Press and Wolf, 2017), as in the released code.

    The projections of the tails are those of the input, transposed; the head has one of its own (tie_projs).

    Args:
        spec: Spec with `adaptive`.
    Call: x [..., H], embeddings: AdaptiveEmbeddings -> float32 [..., V], log probabilities; logits where there are no tails.
    Trainable weights: V, H*E of the head's projection where the input has any, and E + 1 for each tail.
    """

    def __init__(self, spec: "TransformerXLSpec", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec, self.clusters = spec, Clusters.of(spec)

    def build(self, shape: Shape | None = None) -> None:
        spec, clusters, self.projection = self.spec, self.clusters, None
        normal = Normal(stddev=spec.initializer)
        if clusters.tails:
            shape = clusters.tails, clusters.width
            self.tail_kernel = self.add_weight(shape=shape, initializer=normal, name="tail_kernel")
            self.tail_bias = self.add_weight(shape=shape[:1], initializer="zeros", name="tail_bias")
        self.biases = [
            self.add_weight(shape=(end - begin,), initializer="zeros", name=clusters.name("bias", i))
            for i, (begin, end) in enumerate(clusters.parts)
        ]
        if clusters.projected:
            names = {"use_bias": False, "name": "projection", "dtype": self.dtype_policy}
            self.projection = Linear(clusters.width, spec.initializer / 2, **names)
            self.projection.build((None, None, spec.hidden))

    def parts(self, x: Tensor, embeddings: AdaptiveEmbeddings) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Of head and tails what logits are made of: x [..., E], table [n, E], bias [n]; the head's last rows are the tails."""
        found = []
        for i, (begin, end) in enumerate(self.clusters.borders):
            table, kernel = embeddings.cluster(i)
            bias = self.biases[i] if self.clusters.narrower else self.biases[0][begin:end]
            if i:
                y = x if kernel is None else project(x, ops.cast(ops.transpose(kernel), x.dtype))
            else:
                y = x if self.projection is None else self.projection(x)
                if self.clusters.tails:
                    table = ops.concatenate([table, self.tail_kernel])
                    bias = ops.concatenate([bias, self.tail_bias])
            found.append((y, table, bias))
        return found

    def columns(self, x: Tensor, embeddings: AdaptiveEmbeddings) -> list[tuple[Tensor, Tensor]]:
        """`parts` with the bias as one column more: (x [..., E + 1], table [n, E + 1])."""
        return [
            (
                ops.concatenate([y, ops.ones_like(y[..., :1])], axis=-1),
                ops.concatenate([table, ops.expand_dims(bias, 1)], axis=1),
            )
            for y, table, bias in self.parts(x, embeddings)
        ]

    def call(self, x: Tensor, embeddings: Tensor) -> Tensor:
        head, *tails = [
            tied_logits(y, table) + ops.cast(bias, "float32") for y, table, bias in self.parts(x, embeddings)
        ]
        if not tails:
            return head
        head, shortlist = ops.log_softmax(head, axis=-1), head.shape[-1] - len(tails)
        found = [head[..., :shortlist]]
        for i, tail in enumerate(tails):
            found.append(head[..., shortlist + i : shortlist + i + 1] + ops.log_softmax(tail, axis=-1))
        return ops.concatenate(found, axis=-1)

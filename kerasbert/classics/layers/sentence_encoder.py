"""An encoder of sentences: GRUs side by side, each with words of its own, whose last states are the sentence's vector."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import keras
from keras import ops

from kerasbert.classics.layers.recurrent_encoder import Recurrence, RecurrentSpec, picked
from kerasbert.errors import InputError, unknown
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.backend import pick
from kerasbert.layers.embeddings import Table
from kerasbert.layers.encoder import SpecModel, serializable
from kerasbert.layers.readout import Queries, readout
from kerasbert.layers.recurrent import ResetBeforeGRU, reversed_rows

DIRECTIONS = {"uni": 1, "bi": 2}  # GRUs of a reader
ONE_GRU = Recurrence(cell="reset_before_gru")


@dataclasses.dataclass(frozen=True)
class SentenceSpec(RecurrentSpec):
    """The settings of an encoder of sentences: those of a recurrent encoder of one layer.

    A *reader* is a table of words and a GRU, or one GRU for each direction. There is one for each of `directions` and each of
    the paper's ROLES; all give H / (number of readers) of the H numbers.

    Args:
        hidden: int H, of a sentence's vector.
        directions: "uni" (from left to right), "bi" (half of the reader's numbers of each direction), or both side by side.
    """

    hidden: int = 2400
    initializer: float = 0.058  # as wide as uniform in 0.1
    recurrence: Recurrence = ONE_GRU
    directions: tuple[str, ...] = ("uni",)

    ROLES: ClassVar[tuple[str, ...]] = ("",)  # readers that see the same text, by what they learn

    @property
    def head_deviation(self) -> float:
        """Of a head's kernels: `initializer` is of tables, and of 2,400 numbers it would make answers of size 3."""
        return self.hidden**-0.5

    def validate(self) -> "SentenceSpec":
        """Check what no single field can tell; returns self."""
        super().validate()
        about = self.recurrence
        if (about.cell, about.layers) != ("reset_before_gru", 1):
            raise InputError(
                f"recurrence must be one layer of reset_before_gru: a sentence's vector is its last state. Received: "
                f"{about.layers} of {about.cell}"
            )
        if not self.directions or len(set(self.directions)) < len(self.directions):
            raise InputError(f"directions must be uni, bi or both, each once. Received: {self.directions}")
        for each in self.directions:
            if each not in DIRECTIONS:
                raise unknown("directions", each, list(DIRECTIONS), ", ".join(DIRECTIONS))
        parts = len(self.readers) * max(DIRECTIONS[each] for each in self.directions)
        if self.hidden % parts:
            raise InputError(f"hidden must be a multiple of {parts}, its parts. Received: {self.hidden}")
        return self

    @property
    def readers(self) -> dict[str, str]:
        """Name of a reader -> its direction, in the order of their numbers in a vector."""
        return {f"{each}_{role}".strip("_"): each for each in self.directions for role in self.ROLES}

    @property
    def reader_width(self) -> int:
        """Numbers that a reader gives."""
        return self.hidden // len(self.readers)


class Tables(keras.layers.Layer):
    """The words of all readers: int [...] -> [..., R E], the readers' side by side. Trainable weights: R V E."""

    def __init__(self, spec: SentenceSpec, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        sizes = spec.embeddings.vocabulary, spec.width, spec.initializer
        self.tables = [Table(*sizes, name=name, dtype=self.dtype_policy) for name in spec.readers]

    def build(self, shape: Shape | None = None) -> None:
        for table in self.tables:
            table.build()
        self.built = True

    def call(self, ids: Tensor) -> Tensor:
        return ops.concatenate([table(ids) for table in self.tables], axis=-1)


class Readers(keras.layers.Layer):
    """The GRUs of all readers, which see nothing of each other.

    Args: spec: SentenceSpec.
    Call: x [B, S, R E]; padding_mask, begins as `Recurrent`; turned int [B, S], the place that a backward GRU reads at each
        place, None where `reversed_rows` tells it -> (y [B, S, H], the last states [B, H]).
        A place of y has what each GRU knows after so many tokens of its own order, so the last one has the sentence's vector.
    Trainable weights: of each GRU 3U(E + U + 1).
    """

    def __init__(self, spec: SentenceSpec, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.width, self.cells = spec.width, []
        for name, direction in spec.readers.items():
            for way in ("forward", "backward")[: DIRECTIONS[direction]]:
                units = spec.reader_width // DIRECTIONS[direction]
                self.cells.append(ResetBeforeGRU(units, name=f"{name}_{way}", dtype=self.dtype_policy))
        self.of = [i for i, direction in enumerate(spec.readers.values()) for _ in range(DIRECTIONS[direction])]

    def build(self, shape: Shape | None = None) -> None:
        for cell in self.cells:
            cell.build((None, None, self.width))
        self.built = True

    def call(
        self,
        x: Tensor,
        padding_mask: Tensor = None,
        begins: Tensor = None,
        turned: Tensor = None,
        training: bool = False,
    ) -> tuple[Tensor, Tensor]:
        found, last = [], []
        for cell, reader in zip(self.cells, self.of, strict=True):
            words = x[:, :, reader * self.width : (reader + 1) * self.width]
            if cell.name.endswith("backward"):
                words = reversed_rows(words, padding_mask) if turned is None else pick(words, turned)
            y, (state,) = cell(words, padding_mask, None, begins, training=training)
            found.append(y)
            last.append(state)
        return ops.concatenate(found, axis=-1), ops.concatenate(last, axis=-1)


class SentenceEncoder(SpecModel):
    """Readers of a sentence side by side.

    Args:
        spec: SentenceSpec.
    Call: dict of token_ids [B, S] int, padding_mask [B, S] (all real by default), packed_ids [B, S] (pieces of one number see
        each other alone; instead of padding_mask, padding is 0), embedded [B, S, R E] (instead of what `embed` makes of the
        ids) -> dict of sequence [B, S, H] and, but of packed_ids, text_vector [B, H], the sentence's: its last token's row. A row
        before it is what each direction knows after as many tokens of its own. `queries` are rows of sequence, as of `Encoder`.
    Weights: `embeddings/READER/table`, `block_0/READER_forward/...` and, where it reads both ways, `READER_backward`.
    """

    learned_vector = True

    spec: SentenceSpec

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        serializable(cls)

    def build(self, shape: Shape | None = None) -> None:
        spec = self.spec
        self.tables = Tables(spec, name="embeddings", dtype=self.dtype_policy)
        self.readers = Readers(spec, name="block_0", dtype=self.dtype_policy)
        self.tables.build()
        self.readers.build()
        self.built = True

    def embed(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        """What the readers read: [B, S, R E]."""
        return self.tables(inputs["token_ids"])

    def sentences(self, embedded: Tensor, padding_mask: Tensor, training: bool = False) -> Tensor:
        """Vectors of sentences: what `embed` gives [B, S, R E], 0/1 [B, S] -> [B, H]."""
        _, last = self.readers(ops.cast(embedded, self.compute_dtype), padding_mask, training=training)
        return ops.cast(last, self.compute_dtype)

    def call(self, inputs: Tensor, training: bool = False, queries: Queries = None) -> dict[str, Tensor]:
        inputs["token_ids"]  # Keras' export tries a call without a dict, and expects a TypeError
        real, begins, turned = inputs.get("padding_mask"), None, None
        if "packed_ids" in inputs:
            real, begins, turned = _pieces(inputs["packed_ids"])
        x = inputs["embedded"] if "embedded" in inputs else self.embed(inputs, training)
        y, _ = self.readers(ops.cast(x, self.compute_dtype), real, begins, turned, training=training)
        found = {"sequence": picked(y, queries)}
        return found if turned is not None else found | {"text_vector": readout(y, real, "last")}


def _pieces(pieces: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of packed_ids [B, S]: real tokens, begins of pieces, and the place that mirrors each in its piece.

    >>> [np.asarray(each).tolist() for each in _pieces(ops.array([[1, 1, 1, 2, 2, 0]]))][2]
    [[2, 1, 0, 4, 3, 5]]
    """
    same = ops.cast(ops.equal(ops.expand_dims(pieces, 1), ops.expand_dims(pieces, 2)), "int32")  # [B, S, S]
    place = ops.arange(ops.shape(pieces)[1], dtype="int32")
    # pieces are runs of one number: how many are before a place, and how many behind it
    before = ops.sum(same * ops.cast(ops.expand_dims(place, 0) < ops.expand_dims(place, 1), "int32"), axis=2)
    behind = ops.sum(same, axis=2) - before - 1
    real = pieces > 0
    return real, ops.equal(before, 0), ops.where(real, place - before + behind, place)


def flops(spec: SentenceSpec, tokens: float) -> float:
    """Multiplications and additions of reading so many tokens, forward."""
    per_token = 0
    for direction in spec.readers.values():
        units = spec.reader_width // DIRECTIONS[direction]
        per_token += DIRECTIONS[direction] * 2 * 3 * units * (spec.width + units)
    return tokens * per_token


def kept(spec: SentenceSpec, rows: int, length: int) -> float:
    """Numbers that the backward pass of reading keeps: words, states and, of the widest GRU, gates and their gradients."""
    readers = len(spec.readers)
    return rows * length * (readers * spec.width + 2 * spec.hidden + 3 * 3 * spec.reader_width)

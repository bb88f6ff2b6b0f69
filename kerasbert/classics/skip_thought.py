"""Skip-Thought Vectors (Kiros et al., 2015): the vector of a sentence writes the sentences around it.

- Section 2.1, encoder: a GRU reads a sentence, its last state is the vector (`layers.recurrent.ResetBeforeGRU`, equations 1
  to 4).
- Section 2.1, decoders: one GRU writes the next sentence, another one the previous; each gate and the candidate get a product
  with the vector besides (C_r, C_z, C: equations 5 to 10). Words and their softmax (V) are those of both. The loss is the sum of
  the log-probabilities of both.
- Section 2.2: vocabulary expansion (`expanded`), a linear map from word2vec's vectors to the encoder's.
- Section 3: uni-skip (a GRU of 2,400), bi-skip (one of 1,200 for each direction), combine-skip (both side by side); words of
  620 numbers, 20,000 of them; orthogonal recurrent matrices, the others uniform in 0.1.

A sentence is [CLS] tokens [SEP], as a text is that a task reads; a decoder begins with [CLS] and a state of zeros.

Differs: tokens are pieces; a sentence whose neighbour stands in another row, or behind the row's N sentences, writes the other
one alone; combine-skip's two models learn in one run, where only the clipped norm of the gradients is shared; a softmax has a
bias, as in the released code, whose decoders begin with the vector as their state in place of equations 5 to 10.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import keras
import numpy as np
from keras import ops

from kerasbert import spec as specs
from kerasbert.checkpoints.vectors import WordVectors
from kerasbert.classics.layers import sentence_encoder
from kerasbert.classics.layers.recurrent_encoder import Softmax, Words
from kerasbert.classics.layers.sentence_encoder import SentenceEncoder, SentenceSpec
from kerasbert.classics.objectives.sentences import Sentences, flat
from kerasbert.errors import InputError
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.backend import project
from kerasbert.layers.naming import names, values
from kerasbert.layers.recurrent import ResetBeforeGRU
from kerasbert.objectives.lm_loss import token_sums
from kerasbert.registry import Family, register, register_objective
from kerasbert.text.split import WORD
from kerasbert.text.wordpiece import WordPiece

WAYS = ("next", "previous")


class SkipThought(SentenceEncoder):
    """A sentence's vector.

    Args and call: as SentenceEncoder. Trainable weights: V E + 3H(E + H + 1) of uni-skip.
    """


class Decoder(ResetBeforeGRU):
    """A GRU that is told the vector of another sentence at every place (equations 5 to 8).

    Args: units: int U. told: int, numbers of the vector.
    Call: x [B, T, E], vector [B, told] -> y [B, T, U]. Trainable weights: 3U(E + U + 1) + 3U told.
    """

    def __init__(self, units: int, told: int, **kwargs: Any) -> None:
        super().__init__(units, **kwargs)
        self.told = told

    def build(self, shape: Shape) -> None:
        super().build(shape)
        uniform = keras.initializers.RandomUniform(-0.1, 0.1)
        self.context_kernel = self.add_weight(
            shape=(self.told, 3 * self.units), initializer=uniform, name="context_kernel"
        )

    def call(self, x: Tensor, vector: Tensor, training: bool = False) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]  # it begins with nothing
        added = project(ops.cast(vector, x.dtype), ops.cast(self.context_kernel, x.dtype))
        return super().call(x, added=added, training=training)[0]


class SkipThoughts(Sentences):
    """The previous and the next sentence, written from a sentence's vector (section 2.1, objective).

    Of each reader there are two decoders, `heads/READER_next` and `heads/READER_previous`, and a softmax, `heads/READER_words`.
    Losses: `next` and `previous`, each the mean over its tokens and the readers.
    """

    scales: Mapping[str, float] = MappingProxyType(dict.fromkeys(WAYS, 1.0))
    token_losses = WAYS
    targets = "tokens of neighbouring sentences"

    @classmethod
    def predictions(cls, settings: object, length: int, tokens: float | None = None) -> float:
        return 0 if tokens is None else 2 * tokens  # no logits are kept

    def heads(self, encoder: keras.Model) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        heads, shapes = super().heads(encoder)
        spec: SentenceSpec = encoder.spec  # pyright: ignore[reportAssignmentType]  # `heads` above has refused others
        width, policy = spec.reader_width, {"dtype": encoder.dtype_policy}
        for reader in spec.readers:
            for way in WAYS:
                heads[f"{reader}_{way}"] = Decoder(width, width, name=f"{reader}_{way}", **policy)
                shapes[f"{reader}_{way}"] = (None, None, spec.width)
            sizes = spec.embeddings.vocabulary, width, spec.initializer
            heads[f"{reader}_words"] = Softmax(*sizes, name=f"{reader}_words", **policy)
            shapes[f"{reader}_words"] = (None, None, width)
        return heads, shapes

    def weights_of(self, mask: Tensor) -> dict[str, Tensor]:
        """Which tokens of the sentences that are written count, the first of each excepted: [B, N, T] -> [B, N - 1, T - 1]."""
        real = ops.cast(mask, "float32")
        both = real[:, 1:, :1] * real[:, :-1, :1]  # neither is an empty place
        return {"next": both * real[:, 1:, 1:], "previous": both * real[:, :-1, 1:]}

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        readers = cast(SentenceSpec, self.model.body.spec)
        weights = self.weights_of(batch["padding_mask"])
        return {way: len(readers.readers) * ops.sum(each) for way, each in weights.items()}

    def losses(self, batch: Mapping[str, Tensor], training: bool = True) -> dict[str, Tensor]:
        body, ids, mask = self.model.body, batch["token_ids"], batch["padding_mask"]
        spec, weights, sums = body.spec, self.weights_of(mask), {}
        words = body.embed({"token_ids": flat(ids)}, training)
        vectors = body.sentences(words, flat(mask), training)
        shape = (-1, ids.shape[1], *words.shape[1:])
        words, vectors = ops.reshape(words, shape), ops.reshape(vectors, (-1, ids.shape[1], vectors.shape[-1]))
        for way in WAYS:
            # who is written, and by whom
            written, told = (slice(1, None), slice(None, -1))[:: 1 if way == "next" else -1]
            labels, nats, right = ids[:, written, 1:], 0.0, 0.0
            for i, reader in enumerate(spec.readers):
                own = flat(words[:, written, :-1, i * spec.width : (i + 1) * spec.width])
                vector = flat(vectors[:, told, i * spec.reader_width : (i + 1) * spec.reader_width])
                y = self.model.heads[f"{reader}_{way}"](own, vector, training=training)
                found = token_sums(self.model.heads[f"{reader}_words"], y, flat(labels), flat(weights[way]))
                nats, right = nats + found[0], right + found[1]
            sums |= {way: nats, f"{way}/accuracy": right}
        return sums | {"next/dropped": len(spec.readers) * ops.sum(batch["dropped"])}


def expansion(table: np.ndarray, vectors: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Rows for words that the encoder has not seen, by a linear map that is fitted to those it has (section 2.2).

    W minimises |vectors W - table|^2, without a regulariser; a word's row is its vector times W.

    Args:
        table: float [n, E], the encoder's rows of n words.
        vectors: float [n, D], the word vectors of the same words.
        wanted: float [m, D], those of m other words.

    Returns:
        float32 [m, E].

    Raises:
        InputError: fewer words than numbers of a vector, which do not tell the map; other widths.

    >>> expansion(np.array([[2.0], [4.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.5, 0.5]])).tolist()
    [[3.0]]
    """
    if len(table) != len(vectors) or vectors.shape[1:] != wanted.shape[1:]:
        raise InputError(
            f"expansion has rows of {len(table)} words and vectors {vectors.shape} of them, and {wanted.shape} of others: "
            "expected as many words, and vectors of one width"
        )
    if len(vectors) < vectors.shape[1]:
        raise InputError(
            f"expansion has {len(vectors)} words for a map of vectors of {vectors.shape[1]} numbers, expected at least as "
            "many: take a larger vocabulary or narrower vectors"
        )
    fitted = np.linalg.lstsq(vectors.astype("float64"), table.astype("float64"), rcond=None)[0]
    return (wanted.astype("float64") @ fitted).astype("float32")


def expanded(encoder: SentenceEncoder, vectors: WordVectors) -> SentenceEncoder:
    """An encoder that knows the words of word vectors too (section 2.2); what it knew is as it was.

    The map of each reader is fitted to the words that both have. The tokenizer gets the others, each as one piece.

    Args:
        encoder: with its tokenizer, WordPiece; `kb.load` gives one.
        vectors: `checkpoints.vectors.read_vectors` reads them.

    Raises:
        InputError: another tokenizer, or too few words that both have.
    """
    tokenizer = encoder.tokenizer
    if not isinstance(tokenizer, WordPiece):
        raise InputError(
            f"expanded has a tokenizer {getattr(tokenizer, 'kind', None)!r}, expected wordpiece: its pieces must be words"
        )
    ids = {piece: row for row, piece in enumerate(tokenizer.vocabulary)}
    both = [word for word in vectors.words if word in ids]
    new = [word for word in vectors.words if word not in ids and tokenizer.tokenize(word) and WORD.fullmatch(word)]
    wanted = vectors.table[[vectors.index[word] for word in new]]
    known, rows = vectors.table[[vectors.index[word] for word in both]], [ids[word] for word in both]
    size = specs.get(encoder.spec, "embeddings.vocabulary")
    words = [*tokenizer.vocabulary, *(f"[unused{size - i}]" for i in range(size - tokenizer.size)), *new]
    made = type(encoder)(specs.derive(encoder.spec, {"embeddings.vocabulary": len(words)}), dtype=encoder.dtype_policy)
    made.build()
    had = values(encoder)
    for name, weight in names(made).items():
        value = had[name]
        if name.endswith("/table"):
            value = np.concatenate([value, expansion(value[rows], known, wanted)])
        weight.assign(value)
    made.tokenizer, made.model_name = type(tokenizer)(words, **tokenizer.settings()), encoder.model_name
    return made


def flops(spec: SentenceSpec, tokens: float, sequences: float, predictions: float) -> float:
    """FLOPs of an update, as `training.flops.update_flops`: reading, both decoders, their softmax."""
    width = spec.reader_width
    written = 2 * 3 * width * (spec.width + width) + 2 * width * spec.embeddings.vocabulary
    told = 2 * 2 * 3 * width * width  # a sentence's vector to both decoders
    return 3.0 * (sentence_encoder.flops(spec, tokens) + len(spec.readers) * (predictions * written + sequences * told))


def kept(spec: SentenceSpec, rows: int, length: int, predictions: float) -> float:
    """Numbers that the backward pass keeps, as `training.preflight.kept_numbers`."""
    width = spec.reader_width
    decoders = len(spec.readers) * 2 * (spec.width + (3 + 2) * width) + 3 * 3 * width
    return sentence_encoder.kept(spec, rows, length) + rows * length * decoders


register_objective("skip_thoughts", SkipThoughts)

SKIP_THOUGHT = register(
    Family(
        name="skip-thought",
        spec=SentenceSpec(embeddings=Words(vocabulary=20000, width=620)),  # pyright: ignore[reportArgumentType]  # no Spec
        sizes={
            "uni": {},
            "bi": {"directions": ("bi",)},
            "combine": {"hidden": 4800, "directions": ("uni", "bi")},
        },
        encoder=SkipThought,
        readout="last",
        objective="skip_thoughts",
        longest=lambda spec: None,
        flops=flops,  # pyright: ignore[reportArgumentType]  # of its own settings
        memory=kept,  # pyright: ignore[reportArgumentType]
        paper="Kiros et al., 2015, Skip-Thought Vectors",
    )
)

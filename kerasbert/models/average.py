"""Averaged word vectors (Iyyer et al., 2015, section 2; Joulin et al., 2016, section 2): embeddings, their mean, a head.

- The vector of a text is the mean of its tokens' vectors (Iyyer et al., equation 1); a linear map of it answers (Joulin et
  al., section 2). There are no blocks and no positions: the order of the words is not seen.
- A model begins with word vectors as they are (`of_vectors`): `kerasbert finetune VECTORS --task ...`. Words without a
  vector share one row. Their tokenizer is a WordPiece of whole words, or MediaPipe's `regex` where the vectors were learned
  with `--words regex`; that reads capitals as they are, so a lower-cased word gets its capitalised forms too.
- Static embeddings (sentence-transformers' StaticEmbedding; model2vec) are the same over the pieces of an encoder's tokenizer,
  without special tokens: `tasks/static_embedding.py` distils one of an encoder, `checkpoints/static_embeddings.py` reads and
  writes them. Some leave unknown pieces out of the mean (`left_out`).

Differs: fastText's classifier adds rows of word bigrams (Joulin et al., section 2.2), and the deep averaging network hidden
layers and word dropout (Iyyer et al., sections 3 and 4); here `dropout` is in the head.
"""

import dataclasses

import numpy as np
from keras import ops

from kerasbert.checkpoints.vectors import WordVectors
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.embeddings import Table
from kerasbert.layers.encoder import SpecModel, serializable
from kerasbert.layers.readout import Queries
from kerasbert.registry import Family, register
from kerasbert.storage.json_view import JsonMap
from kerasbert.text.base import Tokenizer
from kerasbert.text.regex import PAD, START, UNKNOWN, RegexWords
from kerasbert.text.split import WORD
from kerasbert.text.wordpiece import SPECIALS, WordPiece


@dataclasses.dataclass(frozen=True)
class Words:
    """The table.

    Args:
        vocabulary: int V, rows of the token table.
        left_out: ids of tokens that have no part in the mean: a text of nothing else is a vector of zeros.
    """

    vocabulary: int = 30522
    left_out: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class AverageSpec:
    """The settings of averaged vectors.

    Args:
        hidden: int H, numbers of a vector.
        dropout: float, in the head of a task.
        initializer: float, standard deviation of the table.
        embeddings: Words.
    """

    hidden: int = 100
    dropout: float = 0.1
    initializer: float = 0.02
    embeddings: Words = Words()


@serializable
class Average(SpecModel):
    """Word vectors, whose mean a task reads.

    Call: dict of token_ids, padding_mask [B, S] int -> dict of sequence [B, S, H]; `queries` are rows of it, as of `Encoder`.
    With `left_out` the vectors of those tokens are 0, and the others are multiplied by n / m, of the n tokens of the text and
    the m that are not left out: their mean over all tokens is then that over the m.
    Trainable weights: VH.
    """

    spec: AverageSpec

    def build(self, shape: Shape | None = None) -> None:
        spec = self.spec
        self.table = Table(
            spec.embeddings.vocabulary, spec.hidden, spec.initializer, name="embeddings", dtype=self.dtype_policy
        )
        self.table.build()
        self.built = True

    def call(self, inputs: Tensor, training: bool = False, queries: Queries = None) -> dict[str, Tensor]:
        ids, weight = inputs["token_ids"], self._weight(inputs)
        read = [ids] if weight is None else [ids, weight]
        if isinstance(queries, str):
            read = [each[:, :1] for each in read]
        elif queries is not None:
            rows = queries if len(queries.shape) == 2 else ops.expand_dims(queries, 1)
            read = [ops.take_along_axis(each, rows, axis=1) for each in read]
        sequence = self.table(read[0])
        return {"sequence": sequence if weight is None else sequence * ops.expand_dims(read[1], -1)}

    def _weight(self, inputs: Tensor) -> Tensor:
        """What each token counts: float32 [B, S]; None where all count the same."""
        spec = self.spec
        if not spec.embeddings.left_out:
            return None
        ids, real = inputs["token_ids"], ops.cast(inputs["padding_mask"], "float32")
        kept = real
        for each in spec.embeddings.left_out:
            kept = kept * ops.cast(ops.not_equal(ids, each), "float32")
        count, left = (ops.sum(each, axis=1, keepdims=True) for each in (real, kept))
        return kept * count / ops.maximum(left, 1.0)


def of_vectors(vectors: WordVectors, about: JsonMap) -> tuple[AverageSpec, dict[str, np.ndarray], Tokenizer]:
    """What a model of these vectors is made of.

    Args:
        vectors: WordVectors.
        about: settings that they were learned with (`words`, `lowercase`); {} of others' files.

    Returns:
        Spec, weights by name, tokenizer.
    """
    lowercase = about.get("lowercase")
    if lowercase is None:
        lowercase = all(word == word.lower() for word in vectors.words)
    rows: dict[str, int] = {}
    if about.get("words") == "regex":
        specials: tuple[str, ...] = (PAD, START, UNKNOWN)
        for form in (str, str.capitalize, str.upper)[: 3 if lowercase else 1]:
            for row, word in enumerate(vectors.words):
                if WORD.fullmatch(word):
                    rows.setdefault(form(word), row)
        tokenizer: Tokenizer = RegexWords([*specials, *rows])
    else:
        specials = SPECIALS
        rows = {word: row for row, word in enumerate(vectors.words) if word not in SPECIALS}
        tokenizer = WordPiece([*specials, *rows], lowercase=lowercase)
    table = np.concatenate([np.zeros((len(specials), vectors.width), np.float32), vectors.table[list(rows.values())]])
    spec = AverageSpec(hidden=vectors.width, embeddings=Words(len(table)))
    return spec, {"embeddings/table": table}, tokenizer


register(
    Family(
        name="average",
        spec=AverageSpec(),  # pyright: ignore[reportArgumentType]  # settings of its own, no Spec
        sizes={"base": {}, "large": {"hidden": 300}},
        encoder=Average,
        readout="mean",
        objective="",
        flops=lambda spec, tokens, sequences, predictions: 3.0 * tokens * spec.hidden,
        memory=lambda spec, rows, length, predictions: float(rows * length * spec.hidden),
        of_vectors=of_vectors,
        paper="Iyyer et al., 2015, Deep Unordered Composition Rivals Syntactic Methods for Text Classification",
    )
)

"""The token table of a model: what lies near a word, how long the vectors of frequent tokens are, how narrow the cone is."""

from typing import TYPE_CHECKING

import numpy as np

from kerasbert.layers import naming
from kerasbert.look import numbers
from kerasbert.storage.json_view import Json

if TYPE_CHECKING:
    from kerasbert.layers.encoder import SpecModel


TABLE = "embeddings/tokens/table"
NEAR, PARTS = 8, 10


def table(encoder: "SpecModel", ids: list[int]) -> Json | None:
    """Numbers of the token table; None of a family without one.

    Args:
        ids: the tokens of the word.

    Returns:
        `near`: the tokens with the largest cosine to the mean of the word's rows, but its own; `norms`: the mean length of the
        vectors of each tenth of the vocabulary in its order, in which the tokens that training found first stand first;
        `anisotropy`: the mean cosine between two rows (Ethayarajh, 2019, section 3.3) as they are, and `whitened`, after mean
        and covariance were taken out (Su et al., 2021, algorithm 1); None where there are no more rows than numbers in one.
    """
    rows = naming.values(encoder).get(TABLE)
    if rows is None:
        return None
    tokenizer = encoder.tokenizer
    assert tokenizer is not None  # the ids are its
    rows = rows[: tokenizer.size]
    cosine = numbers.cosines_to(rows[ids].mean(0), rows)
    cosine[ids] = -np.inf
    near = [(tokenizer.vocabulary[int(i)], float(cosine[i])) for i in np.argsort(-cosine, kind="stable")[:NEAR]]
    lengths = np.linalg.norm(rows, axis=1)
    return {
        "near": [{"piece": piece, "cosine": value} for piece, value in near],
        "norms": [float(part.mean()) for part in np.array_split(lengths, min(PARTS, len(lengths)))],
        "anisotropy": numbers.mean_cosine(rows),
        "whitened": numbers.mean_cosine(numbers.whitened(rows)) if len(rows) > rows.shape[1] + 1 else None,
    }

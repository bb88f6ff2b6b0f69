"""Similar words from word vectors: what masked LM as correction shows in the place of a word (Cui et al., 2020, section 3.2)."""

import functools
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from kerasbert.checkpoints.vectors import WordVectors, read_vectors
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers import random
from kerasbert.objectives import render
from kerasbert.objectives.select import runs
from kerasbert.text.base import Tokenizer

PIECES = 8  # tokens of a word at most; what is longer has no similar word
ROWS = 2048  # words whose cosines are computed at once
PRIME = 0x100000001B3  # of FNV


class SimilarWords:
    """Words as tokens, and for each the nearest ones by cosine that have as many tokens.

    Args:
        vectors: WordVectors, the most frequent word first.
        tokenizer: what a word's tokens are; a word with a special token among them is left out, and so is one of more than
            PIECES tokens or with the tokens of an earlier one.
        nearest: int K, similar words of a word at most.
        most: int, words that are taken, the first of the vectors.
    Attributes:
        tokens: int32 [N, W], padded by -1, ordered by `keys` int64 [N].
        similar: int32 [N, K], rows of `tokens`; the first `counts` [N] of each.
        by_size: int32 [N], rows of `tokens` with the shorter words first; those of n tokens are `sizes[n]` ones from
            `firsts[n]` on, both int32 [W + 1].
    """

    def __init__(self, vectors: WordVectors, tokenizer: Tokenizer, nearest: int = 10, most: int = 50_000) -> None:
        left_out, rows = set(tokenizer.special_ids), {}
        for row, word in enumerate(vectors.words[:most]):
            ids = tuple(tokenizer.encode(f" {word}"))  # a blank in front, as of a word within a text
            if 0 < len(ids) <= PIECES and not left_out & set(ids):
                rows.setdefault(ids, row)
        if not rows:
            raise InputError(
                "no word of the vectors is made of this tokenizer's tokens: learn them from the same language"
            )
        self.width = max(map(len, rows))
        tokens = np.array([(*ids, *[-1] * (self.width - len(ids))) for ids in rows], np.int32)
        keys = hashed([*np.moveaxis(tokens, 1, 0).astype(np.int64)])
        order = np.argsort(keys, kind="stable")
        self.tokens, self.keys = tokens[order], keys[order]
        lengths = (self.tokens >= 0).sum(1)
        self.similar, self.counts = neighbours(vectors.table[list(rows.values())][order], lengths, nearest)
        self.by_size = np.argsort(lengths, kind="stable").astype(np.int32)
        self.sizes = np.bincount(lengths, minlength=self.width + 1).astype(np.int32)
        self.firsts = (np.cumsum(self.sizes) - self.sizes).astype(np.int32)

    def find(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of words as tokens [..., W] padded by -1 -> int32 [...], and whether they are known, bool [...]."""
        keys = hashed(tf.unstack(tf.cast(words, tf.int64), axis=-1))
        row = tf.reshape(tf.searchsorted(self.keys, tf.reshape(keys, [-1])), tf.shape(keys))
        row = tf.minimum(row, len(self.keys) - 1)
        return row, tf.reduce_all(tf.gather(self.tokens, row) == words, axis=-1)


def hashed(columns: Sequence) -> Tensor:
    """Columns of int64 numbers -> one number for each row; overflow wraps around, in numpy and in TensorFlow."""
    with np.errstate(over="ignore"):
        return functools.reduce(lambda key, column: (key + column + 1) * np.int64(PRIME), columns, np.int64(0))


def neighbours(table: np.ndarray, lengths: np.ndarray, nearest: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors [N, D] and their words' numbers of tokens [N] -> the nearest of as many tokens, int32 [N, K], counts [N]."""
    norms = np.linalg.norm(table, axis=1, keepdims=True)
    table = table / np.maximum(norms, 1e-12)
    similar, counts = np.zeros((len(table), nearest), np.int32), np.zeros(len(table), np.int32)
    for length in np.unique(lengths):
        rows = np.flatnonzero((lengths == length) & (norms[:, 0] > 0))
        kept = min(nearest, len(rows) - 1)
        if kept < 1:
            continue
        for first in range(0, len(rows), ROWS):
            of = rows[first : first + ROWS]
            cosines = table[of] @ table[rows].T
            cosines[np.arange(len(of)), first + np.arange(len(of))] = -2  # no word is similar to itself
            best = np.argpartition(-cosines, kept - 1, axis=1)[:, :kept]
            similar[of, :kept], counts[of] = rows[best], kept
    return similar, counts


@functools.lru_cache(maxsize=4)
def of_file(path: str | os.PathLike, tokenizer: Tokenizer, nearest: int, most: int) -> SimilarWords:
    """The similar words of a file or directory of vectors."""
    return SimilarWords(read_vectors(path), tokenizer, nearest, most)


def corrupt(
    key: Tensor,
    token_ids: Tensor,
    selection: tuple[Tensor, Tensor],
    starts: Tensor,
    *,
    words: SimilarWords | None,
    ordinary_ids: np.ndarray,
    shares: Sequence[float],
) -> Tensor:
    """A similar word, a random word or the word itself, drawn for each word (Cui et al., 2020, section 3.2).

    A word has the place of another with as many tokens. A random word is one of the vectors', or random tokens where none
    has that many; a word without a similar one gets a random one.

    Args:
        key: uint32 [B, 2].
        token_ids: int32 [B, S].
        selection: positions int32 [B, P], all different within a row; chosen bool [B, P].
        starts: bool [B, S], where a word begins, or a token that is in none.
        words: SimilarWords, or None: random tokens in their place.
        ordinary_ids: int32 [n], what a random token is drawn from.
        shares: of similar and of random words.

    Returns:
        token_ids [B, S] as the model sees them.
    """
    (positions, chosen), length = selection, token_ids.shape[1]
    begin, end = (render.take(each, positions) for each in runs(starts))
    draws = [random.bits(random.key(key[:, 0], key[:, 1], name), (length,)) for name in ("kind", "word")]
    kind, which = (render.take(each, begin) for each in draws)  # one draw for all tokens of a word
    kind = tf.bitcast(tf.bitwise.right_shift(kind, tf.constant(8, tf.uint32)), tf.int32)
    similar, replaced = (round(share * 2**24) for share in (shares[0], shares[0] + shares[1]))
    other = random.bits(random.key(key[:, 0], key[:, 1], "token"), (positions.shape[1],))
    new = tf.gather(ordinary_ids, tf.bitcast(other % np.uint32(len(ordinary_ids)), tf.int32))
    if words is not None:
        of_word, found = _from_vectors(words, token_ids, begin, end, (which, kind < similar))
        place = tf.minimum(positions - begin, words.width - 1)
        new = tf.where(found, tf.gather(of_word, place, batch_dims=2), new)
    old = render.take(token_ids, positions)
    return render.add(token_ids, positions, tf.where(chosen & (kind < replaced), new - old, 0))


def _from_vectors(
    words: SimilarWords, token_ids: Tensor, begin: Tensor, end: Tensor, draws: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Another word for each: its tokens [B, P, W], and whether there is one [B, P].

    Args:
        begin, end: int32 [B, P], columns of the words.
        draws: uint32 [B, P], which of them; bool [B, P], a similar one, if there is one, or any.
    """
    which, alike = draws
    columns = begin[..., None] + tf.range(words.width)
    tokens = tf.gather(token_ids, tf.minimum(columns, token_ids.shape[1] - 1), batch_dims=1)
    row, known = words.find(tf.where(columns < end[..., None], tokens, -1))
    short = end - begin <= words.width
    near = tf.where(known & short, tf.gather(words.counts, row), 0)
    size = tf.where(short, end - begin, 0)
    many = tf.gather(words.sizes, size)
    similar = tf.gather(tf.gather(words.similar, row), _drawn(which, near), batch_dims=2)
    drawn = tf.gather(words.by_size, tf.gather(words.firsts, size) + _drawn(which, many))
    return tf.gather(words.tokens, tf.where(alike & (near > 0), similar, drawn)), short & (many > 0)


def _drawn(bits: Tensor, count: Tensor) -> Tensor:
    """Random bits -> numbers below `count`, 0 where there are none."""
    return tf.bitcast(bits % tf.cast(tf.maximum(count, 1), tf.uint32), tf.int32)

"""What a model computes of the sentences: hidden states and attention weights of each, without padding."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kerasbert import registry
from kerasbert.data.dialects import say
from kerasbert.errors import InputError
from kerasbert.look.early import LEAST, place
from kerasbert.tasks import predict
from kerasbert.tasks.explain import attention_of

if TYPE_CHECKING:
    import keras

    from kerasbert.layers.encoder import SpecModel
    from kerasbert.text.base import Tokenizer


@dataclasses.dataclass(frozen=True)
class Read:
    """A sentence as a model reads it.

    Args:
        pieces: S of them. ids: theirs. hidden: float32 [L + 1, S, H].
        attention: float32 [L, N, S, S], None of a family without it.
        word: numbers of the tokens of the word. separators: bool [S]. sentence: str.
    """

    pieces: tuple[str, ...]
    ids: tuple[int, ...]
    hidden: np.ndarray
    attention: np.ndarray | None
    word: tuple[int, ...]
    separators: np.ndarray
    sentence: str


def read(model: "keras.Model", word: str, sentences: tuple[str, ...]) -> list[Read]:
    """Each sentence by itself; of those in which the word's tokens are not found it is said that they are left out.

    Args:
        model: an encoder, or a task's model, whose encoder is taken.

    Raises:
        InputError: two stacks, layers that are not of one shape, too few sentences in which the word's tokens are found.
    """
    encoder = model.encoder if hasattr(model, "encoder") else model
    family = registry.family_of(encoder)
    if not family.one_stack:
        raise InputError(f"{family.name} has two stacks: kerasbert look reads encoders and decoders")
    encoded = predict.encoded_for(encoder, list(sentences), None)
    most, found, left = predict.longest(encoder, None), [], []
    for sentence, at in zip(sentences, encoded.of()):
        row, batch = encoded.rows[at][0], encoded.arrays([at.start], most)
        length, hidden = row.length, _hidden(encoder, family.name, batch)
        if len({layer.shape for layer in hidden}) != 1:
            raise InputError(f"{family.name} has layers of several lengths or widths: its layers cannot be compared")
        ids = [int(token) for token in row.token_ids]
        tokens = _tokens(encoder.tokenizer, word, sentence, ids)
        if not tokens:
            left.append(sentence)
            continue
        pieces = tuple(encoder.tokenizer.vocabulary[token] for token in ids)
        separators = np.isin(ids, [token for token in (encoder.tokenizer.sep_id,) if token is not None])
        states = np.stack(hidden)[:, :length]
        weights = attention_of(encoder, batch, length)
        if weights is not None and (weights.ndim != 4 or weights.shape[2:] != (length, length)):
            weights = None  # a family that reads by windows or buckets need not have one of each token to each
        found.append(Read(pieces, tuple(ids), states, weights, tokens, separators, sentence))
    _tell(left, len(found), word, most)
    return found


def _tell(left: list[str], found: int, word: str, most: int) -> None:
    """Say which sentences are left out; refuse where too few are found.

    Raises:
        InputError: too few.
    """
    if not left:
        return
    told = f"{left[0]!r:.60}, which is truncated to {most} tokens, or whose letters are changed"
    of = f"{len(left)} of {len(left) + found} sentences"
    if found < LEAST:
        raise InputError(f"the tokens of {word!r} are not found in {of}: {told}")
    say(f"{of} are left out: the tokens of {word!r} are not found in {told}")


def _hidden(encoder: "SpecModel", name: str, batch: dict[str, np.ndarray]) -> list[np.ndarray]:
    import tensorflow as tf

    outputs = encoder({key: tf.convert_to_tensor(value) for key, value in batch.items()})
    if not isinstance(outputs, dict) or len(outputs.get("hidden", ())) < 2:
        raise InputError(f"{name} has no layers whose states could be looked at")
    return [tf.cast(layer, "float32").numpy()[0] for layer in outputs["hidden"]]


def begin_of(tokens: Sequence[int], ids: Sequence[int]) -> int | None:
    """Where a sentence's own tokens begin in its row; None where it is truncated."""
    return next((i for i in range(len(ids)) if list(ids[i : i + len(tokens)]) == list(tokens)), None)


def _tokens(tokenizer: "Tokenizer", word: str, sentence: str, ids: list[int]) -> tuple[int, ...]:
    """Places in the row of the tokens that lie in the word's characters."""
    tokens, at = tokenizer.tokenize(sentence), place(word, sentence)
    begin = begin_of(tokens.ids, ids)
    if at is None or begin is None:
        return ()
    inside = [i for i, (start, end) in enumerate(zip(tokens.starts, tokens.ends)) if start < at[1] and end > at[0]]
    return tuple(begin + i for i in inside)

"""What belongs together in a text: where a unit of tokens begins. `select` chooses whole units.

A function of UNITS takes (the records' features, tokenizer) and gives bool [B, S], True where a unit begins; what it says
of special tokens and padding does not count.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from kerasbert.data.joins import BORDER_GROUP, BORDERS, GROUP, LEVELS
from kerasbert.errors import InputError, unknown
from kerasbert.inputs import Tensor
from kerasbert.text.base import Tokenizer

if TYPE_CHECKING:
    from kerasbert.data.records import Records


def words(features: Mapping[str, Tensor], tokenizer: Tokenizer) -> Tensor:
    """Words, told by their pieces: "##" of WordPiece, the blank in front of byte-level BPE and unigram pieces.

    Where the records bring words or phrases along (`kerasbert data --words`), those; the others as their pieces say.
    """
    table = np.array([not tokenizer.continues(token) for token in range(tokenizer.size)])
    found = tf.gather(table, features["token_ids"])
    return found & ~joined(features, "words") if "joins" in features else found


def entities(features: Mapping[str, Tensor], tokenizer: Tokenizer) -> Tensor:
    """Named entities that the records bring along (`kerasbert data --entities`); where there is none, words."""
    if "joins" not in features:
        raise InputError("the records bring no entities along: make them again with kerasbert data --entities SOURCE")
    return words(features, tokenizer) & ~joined(features, "entities")


def joined(features: Mapping[str, Tensor], level: str) -> Tensor:
    """Tokens that go on with the unit of the one before them, bool [B, S]; level is one of data.joins.LEVELS."""
    return _bits(features, "joins", LEVELS.index(level) + len(LEVELS) * tf.range(GROUP))


def sentences(features: Mapping[str, Tensor]) -> Tensor:
    """Tokens with which a sentence begins, bool [B, S]: of records made with sentence_borders."""
    return _bits(features, BORDERS, tf.range(BORDER_GROUP))


def check_sentences(records: "Records", use: str, otherwise: str = "") -> None:
    """Refuse records that do not tell what `sentences` reads; `use` says what for, `otherwise` what else can be done."""
    if BORDERS not in records.features:
        raise InputError(
            f"records {records.directory} do not tell where sentences begin, {use}: make them again with kerasbert data "
            f"--sentence-borders{otherwise}"
        )


def _bits(features: Mapping[str, Tensor], name: str, shifts: Tensor) -> Tensor:
    """The bits at these places of each number of a feature, bool [B, S]."""
    bits = tf.bitwise.right_shift(features[name][..., None], shifts) & 1  # [B, ceil(S/G), G]
    length = features["token_ids"].shape[1]
    return tf.reshape(bits, [-1, bits.shape[1] * bits.shape[2]])[:, :length] == 1


UNITS: dict[str, Callable] = {"words": words, "entities": entities}


def begins(name: str, features: Mapping[str, Tensor], tokenizer: Tokenizer) -> Tensor:
    """Where units of that kind begin, bool [B, S]; an unknown kind is an error that gives the nearest."""
    if name not in UNITS:
        raise unknown("kind of unit", name, UNITS, ", ".join(UNITS))
    return UNITS[name](features, tokenizer)

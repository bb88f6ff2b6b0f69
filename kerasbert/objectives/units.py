"""What belongs together in a text: where a unit of tokens begins. `select` chooses whole units.

A function of UNITS takes (the records' features, tokenizer) and gives bool [B, S], True where a unit begins; what it says
of special tokens and padding does not count.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from kerasbert.errors import unknown


def words(features: Mapping[str, Any], tokenizer: Any) -> Any:
    """Words, told by their pieces: "##" of WordPiece, the blank in front of byte-level BPE and unigram pieces."""
    table = np.array([not tokenizer.continues(token) for token in range(tokenizer.size)])
    return tf.gather(table, features["token_ids"])


UNITS: dict[str, Callable] = {"words": words}


def begins(name: str, features: Mapping[str, Any], tokenizer: Any) -> Any:
    """Where units of that kind begin, bool [B, S]; an unknown kind is an error that gives the nearest."""
    if name not in UNITS:
        raise unknown("kind of unit", name, UNITS, ", ".join(UNITS))
    return UNITS[name](features, tokenizer)

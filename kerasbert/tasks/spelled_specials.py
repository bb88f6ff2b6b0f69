"""Texts that hold the spelling of a special token such as [SEP], which is read as other text: told once."""

import itertools
import weakref
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from kerasbert import progress
from kerasbert.answers.base import Kind, Parts
from kerasbert.answers.tokens import POSITIONS
from kerasbert.text import Tokenizer
from kerasbert.text.base import to_text

_TOLD: "weakref.WeakSet[Tokenizer]" = weakref.WeakSet()


def tell(tokenizer: Tokenizer, parts: Sequence[Parts], kind: Kind) -> None:
    """Say on stderr, once for each tokenizer, how many of the texts hold a special token that it does not find in texts.

    Args:
        kind: of the task; one that fills masks finds them itself.
    """
    if tokenizer in _TOLD:
        return
    masks = (tokenizer.specials.get("mask"),) if POSITIONS in kind.inputs else ()
    known = {*masks, *(token.content for token in tokenizer.added)}
    pieces = [piece for piece in dict.fromkeys(tokenizer.specials.values()) if piece not in known]
    found = [piece for each in parts if (piece := _first(each, pieces))]
    if found:
        _TOLD.add(tokenizer)
        several = f"{len(found)} of {len(parts)} texts hold" if len(parts) > 1 else "the text holds"
        progress.say(
            f"{several} {found[0]}, which is read as other text, not as the special token: a pair goes in as two texts; "
            "kerasbert import --special-tokens-in-texts makes a model that finds it, as transformers does"
        )


def _first(part: Any, pieces: Collection[str]) -> str:
    """The first of the pieces that a text, or a tuple of texts, holds; "" where it holds none."""
    return next((piece for text in _texts(part) for piece in pieces if piece in text), "")


def _texts(part: Any) -> Iterator[str]:
    if isinstance(part, str | bytes):
        yield part if isinstance(part, str) else to_text(part)
    elif isinstance(part, list | tuple):
        yield from itertools.chain.from_iterable(map(_texts, part))

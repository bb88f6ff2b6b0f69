"""Texts that hold the spelling of a special token such as [SEP], which is read as other text: told once."""

import itertools
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
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
    find = finder(tokenizer, kind)
    if say([piece for each in parts if (piece := find(each))], len(parts)):
        _TOLD.add(tokenizer)


def finder(tokenizer: Tokenizer, kind: Kind) -> Callable[[Any], str]:
    """What tells the first special token in a text, or in its parts, that the tokenizer does not find there; "" of none."""
    masks = (tokenizer.specials.get("mask"),) if POSITIONS in kind.inputs else ()
    known = {*masks, *(token.content for token in tokenizer.added)}
    pieces = [piece for piece in dict.fromkeys(tokenizer.specials.values()) if piece not in known]
    return lambda part: _first(part, pieces)


def say(found: Sequence[str], count: int) -> bool:
    """Say how many of so many texts hold one, and which the first holds; whether any does."""
    if found:
        several = f"{len(found)} of {count} texts hold" if count > 1 else "the text holds"
        progress.say(
            f"{several} {found[0]}, which is read as other text, not as the special token: a pair goes in as two texts; "
            "kerasbert import --special-tokens-in-texts makes a model that finds it, as transformers does"
        )
    return bool(found)


def _first(part: Any, pieces: Collection[str]) -> str:
    """The first of the pieces that a text, or a tuple of texts, holds; "" where it holds none."""
    return next((piece for text in _texts(part) for piece in pieces if piece in text), "")


def _texts(part: Any) -> Iterator[str]:
    if isinstance(part, str | bytes):
        yield part if isinstance(part, str) else to_text(part)
    elif isinstance(part, list | tuple):
        yield from itertools.chain.from_iterable(map(_texts, part))

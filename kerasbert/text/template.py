"""What stands around the texts of a row: a template of special tokens, and how many tokens it leaves. Standard library only."""

from collections.abc import Mapping
from typing import NamedTuple

from kerasbert.errors import InputError


class Item(NamedTuple):
    """One item of a template: a text (`text` is "A" or "B") or a special token (`text` is "")."""

    text: str
    id: int
    segment: int


def parse_template(template: str, ids: Mapping[str, int]) -> tuple[Item, ...]:
    """Hugging Face's notation for what stands around the texts: special tokens, $A and $B, each with `:segment` (0).

    >>> parse_template("[CLS] $A [SEP] $B:1 [SEP]:1", {"[CLS]": 2, "[SEP]": 3})[3:]
    (Item(text='B', id=-1, segment=1), Item(text='', id=3, segment=1))
    """
    items = []
    for word in template.split():
        name, colon, segment = word.rpartition(":")
        if not colon or not (segment.isascii() and segment.isdecimal() and len(segment) < 3):
            name, segment = word, "0"
        if name in ("$A", "$B"):
            items.append(Item(name[1], -1, int(segment)))
        elif name in ids:
            items.append(Item("", ids[name], int(segment)))
        else:
            raise InputError(
                f"template {template[:60]!r} has {name[:60]!r}, expected $A, $B or a piece of the vocabulary"
            )
    return tuple(items)


def kept_tokens(budget: int, a: int, b: int) -> tuple[int, int]:
    """How many of a and b tokens stay: the longer text loses its end first, as BERT's `_truncate_seq_pair` does.

    >>> kept_tokens(7, 9, 2), kept_tokens(7, 9, 9)
    ((5, 2), (4, 3))
    """
    return min(a, max(budget - budget // 2, budget - b)), min(b, max(budget // 2, budget - a))


def room(items: tuple[Item, ...], length: int) -> int:
    """Tokens that a template leaves for the texts."""
    specials = sum(not item.text for item in items)
    if length < specials:
        raise InputError(f"length is {length}, expected at least {specials}: room for the special tokens")
    return length - specials

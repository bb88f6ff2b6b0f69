"""Languages of a corpus: how often each is taken, and the numbers that rows hold of them."""

import os
from collections.abc import Mapping, Sequence

from kerasbert.data.packing import packing as packing_of
from kerasbert.errors import InputError

Files = Sequence[str | os.PathLike] | Mapping[str, Sequence[str | os.PathLike]]


def language_repeats(tokens: Mapping[int, int], smoothing: float) -> dict[int, float]:
    """How often to take a document of each language so that its share p becomes p^smoothing / (sum of those).

    "Exponentially smoothed weighting" of multilingual BERT's README. Six decimals: the same on every machine.

    >>> language_repeats({0: 900, 1: 100}, 0.5)
    {0: 0.833333, 1: 2.5}
    """
    total = sum(tokens.values())
    shares = {language: count / total for language, count in tokens.items() if count}
    norm = sum(share**smoothing for share in shares.values())
    return {language: round(share ** (smoothing - 1) / norm, 6) for language, share in shares.items()}


def translated(files: Files, text_field: str) -> dict[str | None, tuple[str, str]]:
    """The two languages of each pair of translations, which are the columns of its files too.

    >>> translated({"en-fr": ["a.tsv"], "de-en": ["b.tsv"]}, "text")
    {'de-en': ('de', 'en'), 'en-fr': ('en', 'fr')}
    """
    if not isinstance(files, Mapping):
        names = text_field.split(",")
        if len(names) != 2 or len(set(names)) != 2:
            raise InputError(f"text_field {text_field!r}, expected two columns with translations, such as en,fr")
        return {None: (names[0], names[1])}
    found: dict[str | None, tuple[str, str]] = {}
    for name in sorted(files):
        names = name.split("," if "," in name else "-")
        if len(names) != 2 or len(set(names)) != 2 or not all(names):
            raise InputError(f"--language {name!r}, expected a pair of columns with translations, such as en-fr")
        found[name] = (names[0], names[1])
    return found


def check_language_ids(files: Files, packing: str) -> None:
    """Refuse numbers of languages where there are none, or several in a row."""
    if not isinstance(files, Mapping):
        raise InputError("language_ids without languages: give each language's files (--language NAME FILE)")
    if packing_of(packing, 512).crosses:
        raise InputError(f"packing {packing!r} puts several languages into a row, expected doc or one of pairs")

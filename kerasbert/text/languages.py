"""The numbers of languages, `languages.json` beside a tokenizer: {"ar": 0, "de": 1}. One table for all records of a run.

A model with language embeddings (XLM) learns a vector for each number, so that a language must have the same one in every
set of records, and in the checkpoint that a run goes on from.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from kerasbert.errors import InputError

NAME = "languages.json"


def read_languages(directory: str | os.PathLike) -> dict[str, int] | None:
    """The table of a tokenizer's directory, by number; None where it has none.

    Raises:
        InputError: it is no table of names and different numbers from 0.
    """
    path = Path(directory) / NAME
    if not path.is_file():
        return None
    try:
        table = json.loads(path.read_bytes())
        good = isinstance(table, dict) and sorted(table.values()) == list(range(len(table)))
    except (ValueError, TypeError, RecursionError):
        good = False
    if not good:
        raise InputError(f'{path} is no table of languages, expected names and numbers from 0 such as {{"en": 0}}')
    return dict(sorted(table.items(), key=lambda item: item[1]))


def write_languages(directory: str | os.PathLike, table: Mapping[str, int]) -> None:
    """Write the table into a tokenizer's directory."""
    from kerasbert.storage.files import write_json  # here: a phone does without

    write_json(Path(directory) / NAME, dict(table))


def number_languages(names: Iterable[str], known: Mapping[str, int] | None = None) -> dict[str, int]:
    """A table that holds the names: those of `known` keep their numbers, new ones follow in alphabetical order.

    >>> number_languages(["fr", "en"], {"ar": 0, "en": 1})
    {'ar': 0, 'en': 1, 'fr': 2}
    """
    table = dict(known or {})
    for name in sorted(set(names) - table.keys()):
        table[name] = len(table)
    return table

"""One object of json that holds the rows of a table in a field: {"version": 1, "data": [{...}, {...}]}."""

import json
import os
import re
from collections.abc import Iterator, Sequence

from kerasbert.data.dialects import say
from kerasbert.data.reading import numbered_lines, plain_name, whole
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json, RepeatedKey, unrepeated

BETWEEN = re.compile(r"[\s,]*")  # two elements of an array


def rows_within(path: str | os.PathLike, columns: Sequence[str], encoding: str | None) -> list[tuple[int, Json]] | None:
    """(line, row) of the rows within the one object of a .json; None of another file, and of an object that is a row itself.

    Args:
        columns: that every row must have.

    Raises:
        InputError: several fields hold rows.
    """
    if plain_name(path).suffix.lower() != ".json" or _of_lines(path, encoding):
        return None
    content = whole(path, encoding)
    try:
        found = json.loads(content, object_pairs_hook=unrepeated)
    except (RepeatedKey, ValueError, RecursionError):
        return None
    name = field_of(path, found, columns)
    return None if name is None else list(_numbered(content, name, found[name]))


def field_of(path: str | os.PathLike, found: object, columns: Sequence[str]) -> str | None:
    """The field of an object of json that holds the rows, which is told; None of what holds none, or is a row itself.

    Raises:
        InputError: there are several.
    """
    if not isinstance(found, dict) or set(columns) & set(found):
        return None
    fields = [name for name, value in found.items() if isinstance(value, list) and value and isinstance(value[0], dict)]
    if len(fields) > 1:
        raise InputError(f"{path} holds rows in {' and in '.join(map(repr, fields))}: write those that are meant alone")
    if not fields:
        return None
    say(f"{path}: the rows are those of {fields[0]!r}")
    return fields[0]


def _of_lines(path: str | os.PathLike, encoding: str | None) -> bool:
    """Whether the first line is whole json and more lines follow: a large file is not read at once to see it."""
    lines = (line for _, line in numbered_lines(path, encoding) if line.strip())
    try:
        json.loads(next(lines, ""))
    except (ValueError, RecursionError):
        return False
    return next(lines, None) is not None


def _numbered(content: str, name: str, rows: list[Json]) -> Iterator[tuple[int, Json]]:
    """Each row with the line where it begins."""
    decode = json.JSONDecoder().raw_decode
    for begin in re.finditer(re.escape(json.dumps(name, ensure_ascii=False)) + r"\s*:\s*(?=\[)", content):
        if decode(content, begin.end())[0] == rows:
            break
    else:  # the name is spelled with escapes
        yield from ((1, row) for row in rows)
        return
    place = begin.end() + 1
    line = 1 + content.count("\n", 0, place)
    for row in rows:
        start = BETWEEN.match(content, place).end()  # pyright: ignore[reportOptionalMemberAccess]  # the empty text matches
        line += content.count("\n", place, start)
        yield line, row
        place = decode(content, start)[1]
        line += content.count("\n", start, place)

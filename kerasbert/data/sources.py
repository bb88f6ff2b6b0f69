"""Files of text: documents for pretraining, lines for a vocabulary, tables for tasks.

One reader serves all: `data.reading` unpacks and decodes. Local files need the standard library only; zst needs
`zstandard` and parquet `pyarrow` (extra `formats`). A line ends at a line feed (a carriage return before it is dropped).
"""

import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kerasbert.data import dialects, hints, nested, plain, reading
from kerasbert.data.reading import numbered_lines, plain_name, text_chunks
from kerasbert.errors import InputError, no_file
from kerasbert.inputs import listed
from kerasbert.storage.json_view import Json, RepeatedKey, unrepeated
from kerasbert.storage.remote import is_remote, seekable, size

FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".tsv": "tsv", ".csv": "csv", ".spacy": "spacy"}
TABLES = ("tsv", "csv", "jsonl", "json", "parquet")
ROWS = 1024  # of a parquet file, read at once
SURROGATES = re.compile("[\ud800-\udfff]")  # json may hold "\ud800", which no encoder accepts
BINARY = (".pkl", ".pickle", ".feather", ".arrow", ".orc", ".hdf", ".sav", ".dta", ".npy", ".npz", ".sqlite", ".db")
OBJECT = re.compile(r'\s*(\{\s*"(?:[^"\\\n]|\\.)*"\s*:)')  # how a line of jsonl begins, and no text does
ARRAY = re.compile(r"\s*\[\s*\{")
BETWEEN = re.compile(r"[\s,]*")  # two elements of an array
NumberedRow = tuple[int, Json]  # the line of a table's row, and column -> value


def file_format(path: str | os.PathLike, encoding: str | None = None) -> str:
    """How a file is read: text, jsonl, json (an array of objects), tsv, csv or parquet.

    tsv and csv are told by the end of the name (.gz, .bz2, .xz and .zst left out); json lines by their content too, json arrays
    and parquet where the name says neither. Everything else is text.
    """
    said = dialects.current()
    found = _format(path, encoding)
    if said.delimiter and found in ("text", "tsv", "csv"):
        return "csv"
    if (said.delimiter or said.columns) and found not in ("tsv", "csv"):
        option = "--delimiter" if said.delimiter else "--columns"
        instead = "name its --delimiter too" if found == "text" else "leave it out"
        raise InputError(f"{option} is of a csv or tsv, {path} is {found}: {instead}")
    return found


def _format(path: str | os.PathLike, encoding: str | None) -> str:
    name = plain_name(path).suffix.lower()
    found = FORMATS.get(name, "text")
    if found in ("tsv", "csv"):
        return "jsonl" if _is_object(next(text_chunks(path, encoding), "")) else found
    if found == "spacy":
        return found
    if reading.is_parquet(path):
        return "parquet"
    if name in (".parquet", *BINARY):
        what = "no parquet file, or is damaged" if name == ".parquet" else "a table of another library"
        raise InputError(
            f"{path} is {what}: save it as csv, jsonl or parquet, or in Python hand over the DataFrame that it is read into"
        )
    head = next(text_chunks(path, encoding), "")
    if ARRAY.match(head) or (name == ".json" and head.lstrip().startswith("[")):
        return "json"
    return "jsonl" if found == "text" and _is_object(head) else found


def _is_object(head: str) -> bool:
    """Whether a text begins with a json object on a line of its own, as far as can be seen."""
    if not OBJECT.match(head):
        return False
    line, feed, _ = head.lstrip().partition("\n")
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return not feed  # the line is longer than the head


def read_documents(
    files: str | os.PathLike | Sequence[str | os.PathLike], *, text_field: str = "text", encoding: str | None = None
) -> Iterator[list[str]]:
    """Documents one by one, each a list of segments (lines that are not blank).

    In a text file a blank line ends a document (BERT's own input format). In jsonl, json, tsv, csv and parquet each row
    is a document and the lines of its `text_field` are the segments; of several fields ("en,fr") each is one segment.

    Args:
        files: a path or several, read in this order, never more than a document in memory; gz, bz2, xz and zst are unpacked.
        text_field: name of the field or column that holds the text.
        encoding: of the files, where they are not UTF-8 and have no byte order mark.

    Raises:
        InputError: a file or the column is missing, a row cannot be read or bytes do not decode (file and line are
            named), or no file holds any text.
    """
    files = check_files(files)
    empty = True
    for path in files:
        for document in file_documents(path, text_field, encoding):
            empty = False
            yield document
    if empty:
        names = ", ".join(str(path) for path in files)
        raise InputError(f"empty corpus: no text in {names}. Give files with at least one line that is not blank")


def read_lines(
    files: str | os.PathLike | Sequence[str | os.PathLike], *, text_field: str = "text", encoding: str | None = None
) -> Iterator[str]:
    """The lines of `read_documents`, for learning a vocabulary: what records are made of, no more."""
    return itertools.chain.from_iterable(read_documents(files, text_field=text_field, encoding=encoding))


def file_documents(
    path: str | os.PathLike, text_field: str = "text", encoding: str | None = None
) -> Iterator[list[str]]:
    """The documents of one file, which may hold none; see `read_documents`."""
    kind = file_format(path, encoding)
    return _text_documents(path, encoding) if kind == "text" else _row_documents(path, kind, text_field, encoding)


def check_files(files: str | os.PathLike | Sequence[str | os.PathLike]) -> list[Path | str]:
    """The paths (addresses such as gs://bucket/a.txt stay text), or an error that names the first that is no file."""
    given = named(files)
    if not given:
        raise InputError("no files given, expected at least one text, jsonl, json, tsv, csv or parquet file")
    paths = [os.fspath(file) if is_remote(file) else Path(file) for file in given]
    for path in paths:
        if isinstance(path, Path) and path.is_dir():
            raise InputError(f"{path} is a directory, expected a file. Name its files, for instance {path}/*.txt")
        if size(path) is None:
            raise no_file(path, "file")
    return paths


def named(files: object) -> list[str | os.PathLike]:
    """The paths that a caller gave: one, or several, of an iterator too, which is read here.

    Raises:
        InputError: what is no path, or an empty one.
    """
    if files is not None and (isinstance(files, bytes) or not isinstance(files, str | os.PathLike | Iterable)):
        raise InputError(f"files is {files!r:.40}, expected one path or several")
    found: list[Any] = list(listed(files or []))
    for file in found:
        if not isinstance(file, str | os.PathLike) or not os.fspath(file):
            raise InputError(f"files hold {file!r:.40}, expected paths")
    return found


def check_texts(files: str | os.PathLike | Sequence[str | os.PathLike]) -> None:
    """Refuse files that are not there, are empty or hold something else than text or a table, by their beginnings."""
    for path in check_files(files):
        if file_format(path) == "text" and not size(path):
            raise InputError(f"{path} is empty, expected a text a line")


def read_table(
    path: str | os.PathLike,
    *,
    columns: Sequence[str] = (),
    names: Sequence[str] | None = None,
    format: str | None = None,
    encoding: str | None = None,
) -> list[Json]:
    """All rows of a table.

    tsv is GLUE's: split at tabs, quotes are ordinary characters. csv has quoting (RFC 4180), and its delimiter is found
    (`dialects`) and told where it is no comma. In jsonl each line is an object; its numbers and booleans become text ("1",
    "0.5", "true"), so that labels look the same in every format. A json array of objects and parquet are read alike.

    Args:
        path: the file; gz, bz2, xz and zst are unpacked.
        columns: names that every row must have.
        names: column names of a tsv or csv file that has no header line.
        format: "tsv", "csv", "jsonl", "json" or "parquet" where name and content do not say it.
        encoding: of the file, where it is not UTF-8 and has no byte order mark.

    Returns:
        One dict per row, name -> text (a json list or object stays what it is).

    Raises:
        InputError: missing file, no rows, a missing column, a row with another number of fields, bytes that do not
            decode; with file and line.
    """
    columns, names = listed(columns), listed(names)
    return [row for _, row in numbered_table(path, columns=columns, names=names, format=format, encoding=encoding)]


def numbered_table(
    path: str | os.PathLike,
    *,
    columns: Sequence[str] = (),
    names: Sequence[str] | None = None,
    format: str | None = None,
    encoding: str | None = None,
    raw: bool = False,
) -> list[NumberedRow]:
    """(line number, row) of all rows of a table; see `read_table`. With `raw` json's numbers stay numbers."""
    (path,) = check_files([path])
    kind = format or file_format(path, encoding)
    if kind not in TABLES:
        raise InputError(
            f"cannot tell the format of {path}: expected a name ending in .tsv, .csv, .jsonl, .json or .parquet"
        )
    rows = list(table_rows(path, kind, columns, names, encoding, raw))
    if not rows:
        raise InputError(no_rows(path))
    return rows


def no_rows(path: str | os.PathLike) -> str:
    """What is said of a table without rows."""
    return f"{path} has no rows, expected at least one below the header"


def _segments(lines: Iterable[str]) -> list[str]:
    return [line for line in map(str.strip, lines) if line]


def _text_documents(path: str | os.PathLike, encoding: str | None) -> Iterator[list[str]]:
    document: list[str] = []
    for lines in plain.texts_in(path, encoding):
        lines = [*map(str.strip, lines), ""]  # no Python for each line: there are five times as many as documents
        begin, last = 0, len(lines) - 1
        while (end := lines.index("", begin)) < last:
            document += lines[begin:end]
            begin = end + 1
            if document:
                yield document
                document = []
        document += lines[begin:end]
    if document:
        yield document


def _row_documents(path: str | os.PathLike, kind: str, text_field: str, encoding: str | None) -> Iterator[list[str]]:
    fields = text_field.split(",")
    for line, row in table_rows(path, kind, fields, None, encoding):
        texts = [row[field] for field in fields]
        for field, text in zip(fields, texts):
            if not isinstance(text, str):
                raise InputError(hints.no_text(f"{path}, line {line}", field, text, "--text-field", "field"))
        document = _segments(texts[0].split("\n") if len(texts) == 1 else [" ".join(text.split()) for text in texts])
        if document:
            yield document


def table_rows(
    path: str | os.PathLike,
    kind: str,
    columns: Sequence[str],
    names: Sequence[str] | None = None,
    encoding: str | None = None,
    raw: bool = False,
) -> Iterator[NumberedRow]:
    """(line number, or number of the row in parquet; row) pairs; `columns` are present in each."""
    if kind in ("jsonl", "json", "parquet"):
        for line, row in _object_rows(path, kind, columns, encoding):
            yield line, row if raw else {name: _json_text(value) for name, value in row.items()}
        return
    names = names or dialects.current().columns or None
    fields, given = dialects.fields(path, kind, columns, names, encoding), names
    if names is None:
        names = next(fields, (0, []))[1]
        if not names:
            raise InputError(f"{path} is empty, expected a line with the names of its columns and a row a line")
    twice = next((name for i, name in enumerate(names) if name and name in names[:i]), None)
    if twice is not None:
        raise InputError(f"{path}: two columns are named {twice!r}, expected each name once: {', '.join(names)}")
    if not set(columns) <= set(names):
        told = None if given is not None else hints.no_header(path, columns, names, fields)
        raise InputError(told or hints.no_column(f"{path} has", columns, names, kind))
    names = _all_named(names)
    for line, values in fields:
        if values == names and (given is not None or len(names) > 1):
            what = (
                "repeats the header: drop it"
                if given is None
                else "is a header, and columns are named: leave out --columns"
            )
            raise InputError(f"{path}, line {line} {what}")
        if len(values) != len(names):
            hint = " (tsv is split at tabs, without quoting)" if kind == "tsv" else ""
            expected = f"expected {len(names)} ({', '.join(names)})"
            raise InputError(f"{path}, line {line}: {len(values)} fields, {expected}{hint}. Mend the row")
        yield line, dict(zip(names, values))


def _object_rows(
    path: str | os.PathLike, kind: str, columns: Sequence[str], encoding: str | None
) -> Iterator[NumberedRow]:
    """`objects` of a table, each with a value in all of `columns`."""
    within = nested.rows_within(path, columns, encoding) if kind == "jsonl" else None
    for line, row in objects(path, kind, encoding) if within is None else within:
        if not isinstance(row, dict):
            raise InputError(f"{path}, line {line}: a {type(row).__name__}, expected an object such as {{...}}")
        if not set(columns) <= row.keys():
            raise InputError(hints.no_column(f"{path}, line {line} has", columns, row))
        for column in columns:
            if row[column] is None:
                raise InputError(f"{path}, line {line}: {column!r} is null. Drop the row, or fill it in")
        yield line, row


def objects(path: str | os.PathLike, kind: str, encoding: str | None = None) -> Iterator[tuple[int, object]]:
    """(line, or number of the row in parquet; what stands there) of a jsonl, json or parquet file."""
    if kind == "parquet":
        return _parquet_rows(path)
    return (_json_array if kind == "json" else _json_lines)(path, encoding)


def _all_named(names: Sequence[str]) -> list[str]:
    """The names of columns, those without one after the first told apart by their numbers: no cell is lost.

    >>> _all_named(["text", "", "", "label"])
    ['text', '', 'column_3', 'label']
    """
    made: list[str] = []
    for number, name in enumerate(names, 1):
        if not name and "" in made:
            name = f"column_{number}"
            while name in names or name in made:
                name += "_"
        made.append(name)
    return made


def _json_lines(path: str | os.PathLike, encoding: str | None) -> Iterator[tuple[int, object]]:
    for number, line in numbered_lines(path, encoding):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line, object_pairs_hook=unrepeated)
        except RepeatedKey as error:
            raise InputError(f"{path}, line {number}: {error}. Mend the row") from error
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{path}, line {number}: not json ({error}). Expected one object per line, or an array of objects"
            ) from error


def _json_array(path: str | os.PathLike, encoding: str | None) -> Iterator[tuple[int, object]]:
    """The elements of an array, never more than one and a chunk in memory."""
    decode, chunks = json.JSONDecoder(object_pairs_hook=unrepeated).raw_decode, text_chunks(path, encoding)
    text = next(chunks, "")
    place, line = text.find("[") + 1, 1 + text.count("\n", 0, text.find("[") + 1)
    while True:
        end = BETWEEN.match(text, place).end()  # pyright: ignore[reportOptionalMemberAccess]  # the empty text matches
        line += text.count("\n", place, end)
        place, failure = end, "the array has no end"
        if text[place : place + 1] == "]":
            return
        if place < len(text):
            try:
                value, end = decode(text, place)
                yield line, value
                line += text.count("\n", place, end)
                place = end
                continue
            except RepeatedKey as error:
                raise InputError(f"{path}, line {line}: {error}. Mend the row") from error
            except (ValueError, RecursionError) as error:
                failure = str(error)
        # The element goes on in the next chunk: twice as much text each time, so that a long one costs linear time.
        parts, size = [text[place:]], len(text) - place
        goal = 2 * size
        while size <= goal and (more := next(chunks, "")):
            parts.append(more)
            size += len(more)
        if len(parts) == 1 or size > reading.LONGEST:
            raise InputError(f"{path}, line {line}: not json ({failure}). Expected an array of objects")
        text, place = "".join(parts), 0


def _parquet_rows(path: str | os.PathLike) -> Iterator[tuple[int, object]]:
    import pyarrow
    from pyarrow import parquet

    try:
        with seekable(path) as file:
            number = given = 0
            for batch in parquet.ParquetFile(file).iter_batches(batch_size=ROWS):
                given += batch.nbytes
                reading.check_swollen(path, given, size(path) or 0)
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except pyarrow.ArrowException as error:
        raise InputError(f"cannot read {path} as parquet: {' '.join(str(error).split())}. Copy it again") from error


def _json_text(value: object) -> object:
    if isinstance(value, str):
        return SURROGATES.sub("\ufffd", value)
    return json.dumps(value) if isinstance(value, bool | int | float) else value

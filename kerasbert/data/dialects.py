"""Tables of text: what stands between two columns, and whether the first line names them. Standard library only.

A csv with another delimiter than the comma is found by its header, which must hold the columns that are wanted and have two
columns at least; a file that two delimiters read evenly is refused. Excel's first line `sep=;` says it. A tsv is GLUE's,
split at tabs without quoting, unless a delimiter is given.
"""

import contextlib
import contextvars
import csv
import dataclasses
import functools
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kerasbert import progress
from kerasbert.data.reading import chosen_encoding, line_lists, numbered_lines
from kerasbert.errors import InputError
from kerasbert.options import offered
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.within import within

DELIMITERS = {",": "','", ";": "';'", "\t": "a tab", "|": "'|'"}
SPELLED = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}
HEAD = 2**16  # characters by which a delimiter is found
SEP = re.compile(r'"?sep=(.)"?[,;\t|]*', re.IGNORECASE)  # Excel's first line
QUOTED = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')  # a cell with quotes around it, and those within it doubled
UNENDED = "unexpected end of data"  # of the csv module, about a quote that is still open
Numbered = Iterator[tuple[int, list[str]]]


@functools.cache
def say(line: str) -> None:
    """A line for the user on stderr, once in a process: a file is read for its labels and for its rows."""
    progress.say(line)


@dataclasses.dataclass(frozen=True)
class Reading:
    """What a user says of tables that they do not say themselves.

    Args:
        delimiter: one character between columns; None: it is found in each file.
        columns: their names, of a csv or tsv without a header line.
        skip_unlabelled: whether rows without a label are left out, and counted.
        encoding: of the files; None: that of `reading.default_encoding`.
    """

    delimiter: str | None = None
    columns: tuple[str, ...] = ()
    skip_unlabelled: bool = False
    encoding: str | None = None

    def to_json(self) -> Json:
        """What run.json holds of it: what differs from the defaults."""
        values = dataclasses.asdict(self) | {"encoding": chosen_encoding(self.encoding)}
        defaults = dataclasses.asdict(Reading())
        return {name: value for name, value in values.items() if value != defaults[name]}


_CURRENT: contextvars.ContextVar[Reading | None] = contextvars.ContextVar("reading", default=None)


def current() -> Reading:
    """What holds for tables that are read now."""
    return _CURRENT.get() or Reading()


@contextlib.contextmanager
def default_reading(given: JsonMap) -> Iterator[None]:
    """In this block tables are read so: the rows of tasks are read far below a command.

    Args:
        given: fields of `Reading`; those that are None or absent stay as they are around the block.

    Raises:
        InputError: a delimiter that is none, columns of one name.
    """
    from kerasbert.data.reading import default_encoding

    told = {name: value for name, value in given.items() if value}
    if "delimiter" in told:
        told["delimiter"] = check_delimiter(told["delimiter"])
    if "columns" in told:
        told["columns"] = check_columns(told["columns"])
    encoding = told.get("encoding")
    encoded = contextlib.nullcontext() if encoding is None else default_encoding(encoding)
    with within(_CURRENT, dataclasses.replace(current(), **told)), encoded:
        yield


def check_delimiter(text: str) -> str:
    r"""The character of a delimiter's name.

    >>> check_delimiter("tab"), check_delimiter(r"\t"), check_delimiter(";")
    ('\t', '\t', ';')

    Raises:
        InputError: what is no single character, or one that cells may begin with.
    """
    found = SPELLED.get(text.lower(), text)
    if len(found) != 1 or found.isalnum() or found in "\"'\r\n":
        raise InputError(f"the delimiter is {text!r}, expected one character such as ';' or '|', or tab")
    return found


def check_columns(names: str | Sequence[str]) -> tuple[str, ...]:
    """Names of columns, of which none stands twice; an empty one is of a column that nobody reads."""
    found = tuple(name.strip() for name in (names.split(",") if isinstance(names, str) else names))
    if twice := next((name for i, name in enumerate(found) if name and name in found[:i]), None):
        raise InputError(f"columns are {', '.join(found)}: {twice!r} stands twice, expected each name once")
    if not any(found):
        raise InputError("columns are empty, expected names such as text,label")
    return found


class Table(NamedTuple):
    """A csv or tsv that was looked at: how many lines of `sep=` to pass over, and the delimiter (None: a tsv of GLUE)."""

    delimiter: str | None
    skipped: int = 0


def fields(
    path: str | os.PathLike,
    kind: str,
    columns: Sequence[str] = (),
    names: Sequence[str] | None = None,
    encoding: str | None = None,
) -> Numbered:
    """(line, cells) of the rows of a csv or tsv, the header among them.

    Args:
        columns: that the header must hold. names: of the columns where there is no header.

    Raises:
        InputError: quoting that is broken, a file that two delimiters read alike.
    """
    if kind == "tsv":
        return _tsv_fields(path, encoding)
    return _csv_fields(path, _look(path, columns, names, encoding), encoding)


def _tsv_fields(path: str | os.PathLike, encoding: str | None) -> Numbered:
    quoted = 0
    for number, line in numbered_lines(path, encoding):
        if line:
            cells = line.split("\t")
            quoted += '""' in line and any(map(QUOTED.fullmatch, cells))
            yield number, cells
    if quoted:
        say(
            f"{path}: cells of {quoted} rows are quoted as in a csv, and a tsv has no quoting: the quotes are text"
            + (". --delimiter tab takes them off" if offered("--delimiter") else "")
        )


def delimiter_of(path: str | os.PathLike, columns: Sequence[str]) -> str:
    """The delimiter of a csv with these columns."""
    return _look(path, columns, current().columns or None, None).delimiter or ","


def _csv_fields(path: str | os.PathLike, table: Table, encoding: str | None) -> Numbered:
    csv.field_size_limit(2**31 - 1)  # the default refuses texts above 131,072 characters
    lines = itertools.islice(_csv_lines(path, encoding), table.skipped, None)
    reader = csv.reader(lines, delimiter=table.delimiter or ",", strict=True)
    begin = 1  # a row with line breaks in its cells is named by its first line
    try:
        for values in reader:
            if values:
                yield begin + table.skipped, values
            begin = reader.line_num + 1
    except csv.Error as error:
        line, begin = reader.line_num + table.skipped, begin + table.skipped
        row = f", in a row that begins in line {begin}" if begin < line else ""
        raise InputError(f"{path}, line {line}: {error}{row}. Mend the quoting, or name the file .tsv") from error


def _csv_lines(path: str | os.PathLike, encoding: str | None) -> Iterator[str]:
    """Lines with their ends, as the csv module wants them; a carriage return alone ends a line too."""
    for line in itertools.chain.from_iterable(line_lists(path, encoding)):
        line += "\n"
        if "\r" in line[:-2]:
            yield from re.split(r"(?<=\r)(?!\n)", line)
        else:
            yield line


def _head(path: str | os.PathLike, encoding: str | None) -> tuple[list[str], bool]:
    """The first lines of a file, and whether they are all."""
    lines, size = [], 0
    for line in _csv_lines(path, encoding):
        lines.append(line)
        size += len(line)
        if size > HEAD:
            return lines, False
    return lines, True


def _look(path: str | os.PathLike, columns: Sequence[str], names: Sequence[str] | None, encoding: str | None) -> Table:
    """The delimiter of a csv: that of its line `sep=`, the one that is given, or the one that is found."""
    given = current().delimiter
    lines, whole = _head(path, encoding)
    said = SEP.fullmatch(lines[0].rstrip("\r\n")) if lines else None
    if said is None:
        return Table(given or _found(path, lines, whole, columns, names))
    if given and given != said[1]:
        raise InputError(f"{path}, line 1 says sep={said[1]}, the delimiter that is given is {given!r}: leave it out")
    if said[1].isalnum() or said[1] in "\"'":
        raise InputError(f"{path}, line 1 says sep={said[1]}, expected a delimiter such as sep=;")
    return Table(said[1], 1)


class _Candidate(NamedTuple):
    """The rows of a head by one delimiter; even: all have as many cells as the first, and no quote is broken."""

    delimiter: str
    rows: list[list[str]]
    even: bool

    @property
    def width(self) -> int:
        return len(self.rows[0]) if self.rows else 0

    def told(self) -> str:
        """As an error names it."""
        return f"{DELIMITERS[self.delimiter]} ({self.width}: {', '.join(self.rows[0])!s:.60})"


def _candidate(lines: Iterable[str], whole: bool, delimiter: str) -> _Candidate:
    csv.field_size_limit(2**31 - 1)
    rows: list[list[str]] = []
    broken = False
    try:
        rows.extend(row for row in csv.reader(lines, delimiter=delimiter, strict=True) if row)
    except csv.Error as error:
        broken = whole or str(error) != UNENDED
    return _Candidate(delimiter, rows, bool(rows) and not broken and len({*map(len, rows)}) == 1)


def _found(
    path: str | os.PathLike, lines: list[str], whole: bool, columns: Sequence[str], names: Sequence[str] | None
) -> str:
    """The delimiter of a file that does not say it; one that is no comma is told.

    Raises:
        InputError: two delimiters fit alike.
    """
    candidates = [_candidate(lines, whole, delimiter) for delimiter in DELIMITERS]
    comma = candidates[0]
    if names is None:
        pool = [each for each in candidates if each.rows and set(columns) <= set(each.rows[0])] if columns else []
        several = [each for each in candidates if each.width > 1]
        if columns and not pool and comma in several:
            return ","  # the columns are in none: an error says so
        pool = pool or several
    else:
        wide = [each for each in candidates if each.width == len(names)]
        pool = [each for each in wide if each.even] or wide
        if not pool and len(names) > 1 and comma.rows:
            widths = ", ".join(f"{DELIMITERS[each.delimiter]} {each.width}" for each in candidates)
            raise InputError(
                f"{path}: no delimiter gives the {len(names)} columns that are named ({', '.join(names)}). Its first "
                f"line has by {widths}. Name all columns, an empty name for one that is not needed"
            )
    if not pool or (comma in pool and comma.width == 1):
        return ","
    if len(pool) > 1:
        pool = [each for each in pool if each.even] or [each for each in pool if each is comma] or pool
    if len(pool) > 1:
        raise InputError(
            f"{path} is read evenly by several delimiters, with these columns: "
            f"{', '.join(each.told() for each in pool)}"
            + (". Name the right one: --delimiter" if offered("--delimiter") else "")
        )
    if (one := pool[0]) is not comma:
        header = f": {', '.join(one.rows[0])!s:.100}" if names is None else ""
        say(f"{path}: the delimiter is {DELIMITERS[one.delimiter]} ({one.width} columns{header})")
    return one.delimiter


def like_a_row(header: Sequence[str]) -> bool:
    """Whether a first line looks like a row, not like names: it holds a number, or a sentence.

    >>> like_a_row(["a fine film", "1"]), like_a_row(["Review Text", "label"]), like_a_row(["It is bad, very bad.", "x"])
    (True, False, True)
    """
    return any(
        re.fullmatch(r"[+-]?\d+([.,]\d+)?", cell.strip()) or len(cell.split()) > 4 or len(cell) > 80 for cell in header
    )

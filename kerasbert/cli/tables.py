"""A table in, the same with answers out: of `kerasbert predict --data` and of `kerasbert-mobile run --data`."""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kerasbert import truncation
from kerasbert.cli import terminal
from kerasbert.cli.outputs import writes
from kerasbert.errors import InputError
from kerasbert.progress import Progress
from kerasbert.storage import steady
from kerasbert.storage.json_view import Json, JsonMap

if TYPE_CHECKING:
    from kerasbert.data.texts import Texts
    from kerasbert.tasks.answer_journal import Journal
    from kerasbert.tasks.answer_tables import Sheet, Survey


WINDOW = 16  # batches that are read at once, and ordered by length
# texts (or the parts of inputs) -> of each whether it was truncated, and the fields of its answer
Answer = Callable[[list[Any]], Sequence[tuple[bool, Sequence[object]]]]


def check_texts(texts: Iterable[str], instead: str) -> None:
    """Refuse the name of a file in the place of a text: its name would be answered, not what it holds.

    Args:
        instead: what to do, with {file} in it.
    """
    for text in texts:
        if text == "-":
            raise InputError(
                "- is no text: predict, encode, fill-mask and run read the standard input where no text is given"
            )
        if os.path.isfile(text):
            raise InputError(f"{text} is a file, expected a text: {instead.format(file=text)}")


def check_json(text: str, where: str) -> None:
    """Refuse an object of json in the place of a text: its braces and names would be answered too."""
    if text.lstrip().startswith("{"):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return
        if isinstance(value, dict) and value:
            raise InputError(
                f"{where} is a json object ({', '.join(value)!s:.60}), the model reads one text: give the text alone, or lines "
                "of json as --data FILE.jsonl"
            )


def check_table(options: argparse.Namespace) -> None:
    """Refuse options of a table without one, and the name of a file as a text."""
    if not options.data and (options.out or options.text_column or options.text_b_column):
        raise InputError("--out and the names of columns go with --data FILE")
    if options.encoding and options.texts:
        raise InputError("--encoding goes with --data FILE or with the standard input")
    check_dialect(options)
    check_texts(options.texts, "pass --data {file} (to read a text of that name use stdin)")


def check_dialect(options: argparse.Namespace) -> None:
    """Refuse what is said of a table without one."""
    if not options.data and (options.delimiter or options.columns):
        raise InputError(f"{'--delimiter' if options.delimiter else '--columns'} goes with --data FILE")


def tell(lines: Iterable[str]) -> None:
    """Print what a user cannot see in the answers."""
    for line in lines:
        print(line, file=sys.stderr)


@contextlib.contextmanager
def telling_truncated() -> Iterator[None]:
    """Within it texts become vectors; those that lost tokens are told at its end."""
    with truncation.truncated() as found:
        yield
    tell(found.told())


def dialect_options(add: argparse.ArgumentParser, unlabelled: bool = False) -> None:
    """How tables are read that do not say it themselves; set by `main` as `--encoding` is."""
    text = "between the columns of a csv: ';', '|', tab; found in the file where it is not given"
    add.add_argument("--delimiter", metavar="CHARACTER", help=text)
    add.add_argument("--columns", metavar="NAME,NAME", help="names of all columns, of a csv or tsv without a header")
    if unlabelled:
        add.add_argument(
            "--skip-unlabelled", action="store_true", help="leave out rows without a label, and count them"
        )


def table_options(add: argparse.ArgumentParser) -> None:
    """The options of a command that answers a table."""
    add.add_argument(
        "--data",
        metavar="FILE",
        help="a csv, tsv, jsonl, json or parquet table (or lines of text): all columns + the answer",
    )
    text = "where it goes, by its ending; the standard output without it. The same command goes on where it was stopped"
    writes(add.add_argument("--out", metavar="TABLE", help=text), "table")
    add.add_argument("--overwrite", action="store_true", help="replace what --out holds")
    add.add_argument("--text-column", metavar="NAME", help="column of the text; the task's by default")
    add.add_argument("--text-b-column", metavar="NAME", help="column of the second text of a pair")
    dialect_options(add)
    add.add_argument("--batch", type=int, default=64, help="texts at once")


def check_out(out: str) -> str:
    """The format of a table to write, by the end of its name; refuse another."""
    from kerasbert.tasks.answer_tables import BY_ID, KINDS

    ending = os.path.splitext(out)[1].lower()
    kind = BY_ID if ending == BY_ID else KINDS.get(ending)
    if kind is None:
        raise InputError(
            f"--out {out}: cannot tell the format, expected a name ending in .csv, .tsv or .jsonl, or in .json for the "
            "answers by the rows' id; of a tagger also .conll or .html"
        )
    return kind


@dataclasses.dataclass(frozen=True)
class Asked:
    """A table whose rows were looked at once, before a model was loaded.

    Args:
        rows: `data.texts.Texts`. survey: `answer_tables.Survey`. kind: how the answers are written. delimiter: of a csv, that
            of the table. mark: bool, whether a csv begins with a byte order mark, by which Excel knows UTF-8: where that of
            the table does, or is no UTF-8.
    """

    rows: "Texts"
    survey: "Survey"
    kind: str
    delimiter: str = ","
    mark: bool = False


def asked(rows: "Texts", options: argparse.Namespace, fields: Sequence[str]) -> Asked:
    """What is to be answered of an opened table, and how it is written (--out, --overwrite, --json).

    Args:
        fields: of an answer, which become columns.

    Raises:
        InputError: a row that cannot be read, or a table that cannot be written.
    """
    from kerasbert.data.dialects import delimiter_of
    from kerasbert.data.reading import codec_of
    from kerasbert.tasks import answer_tables

    own = rows.kind if rows.kind in answer_tables.TABLED else "tsv" if rows.kind == "text" else "jsonl"
    kind = check_out(options.out) if options.out else "jsonl" if options.json else own
    answer_tables.check_kind(kind, fields, options.out)
    delimiter = delimiter_of(rows.path, rows.columns) if rows.kind == "csv" else ","
    mark = kind == rows.kind == "csv" and codec_of(rows.path) != "utf-8"
    return Asked(rows, answer_tables.survey(rows, kind), kind, delimiter, mark)


def write(
    table: Asked,
    answer: Answer,
    fields: Sequence[str],
    *,
    out: str | None,
    batch: int,
    about: Mapping[str, object],
    name: str,
) -> int:
    """Answer the rows of a table and write it; what a user cannot see in it is said on the standard error.

    Args:
        answer: what answers a batch. fields: of an answer, which become columns.
        about: what the answers depend on, beside the table itself. name: of the command.

    Returns:
        how many texts were truncated.
    """
    from kerasbert.tasks.answer_tables import Sheet, check_replaced

    count, absent = table.survey.count, table.survey.absent
    sheet = Sheet(table.kind, table.survey.columns, fields, count > absent, table.delimiter, table.rows.columns[0])
    if out is not None:
        check_replaced(out, sheet)
    tell(sheet.told())
    with Progress(count, "rows", name) as progress:
        if out is None:
            cut = _print(table, answer, sheet, batch, progress)
        else:
            cut = _keep(table, answer, sheet, out, batch, about, progress)
    if out is not None:
        print(out)
    if absent:
        print(f"{absent} of {count} rows have no text and no answer", file=sys.stderr)
    return cut


def _print(table: Asked, answer: Answer, sheet: "Sheet", batch: int, progress: Progress) -> int:
    """The table on the standard output, as it is answered."""
    cut = 0

    def answered() -> Iterator[tuple[Mapping[str, object], Sequence[object] | None]]:
        nonlocal cut
        for window in _windows(table, batch):
            found: dict[int, Sequence[object]] = {}
            for numbers, texts in _batches(window, batch):
                for number, (truncated, values) in zip(numbers, answer(texts), strict=True):
                    found[number], cut = values, cut + truncated
                progress.to(window[0][0] + len(found))
            progress.clear()
            yield from ((row, found.get(number)) for number, row, _ in window)

    stream = sys.stdout if sys.stdout.isatty() else terminal.raw(sys.stdout)  # what goes on to a file is not changed
    try:
        for line in sheet.lines(answered()):
            stream.write(line)
    except UnicodeEncodeError as error:
        raise InputError(
            f"the standard output is {stream.encoding}, which has no {error.object[error.start]!a}: name a file with --out, or "
            "set PYTHONUTF8=1"
        ) from error
    stream.flush()
    return cut


def _journal(table: Asked, out: str, batch: int, settings: Mapping[str, object]) -> "Journal":
    """The journal of a table's answers, which an interrupted command may have left; what of it is used is printed."""
    from kerasbert.storage import files
    from kerasbert.tasks.answer_journal import Journal

    count, path = table.survey.count, table.rows.path
    data = {"sha256": files.sha256(path), "bytes": os.path.getsize(path), "rows": count}
    own = {"data": data, "columns": list(table.rows.columns)}
    window = WINDOW * batch

    def same(head: JsonMap) -> int:
        """Of a table to which rows were appended those before the last window, which may hold some of them."""
        older = head["data"]
        if not older["bytes"] < data["bytes"] or files.sha256(path, older["bytes"]) != older["sha256"]:
            return 0
        return (older["rows"] - 1) // window * window

    journal = Journal(out, {**own, "batch": batch, **settings}, count, same)
    for left, differ in () if journal.kept else journal.others.items():
        print(f"{left} is left of another table ({', '.join(differ)} differ): this one starts afresh", file=sys.stderr)
    if journal.kept:
        print(f"going on: {journal.kept:,} of {count:,} rows were answered before ({journal.path})", file=sys.stderr)
    return journal


def _keep(
    table: Asked, answer: Answer, sheet: "Sheet", out: str, batch: int, about: Mapping[str, object], progress: Progress
) -> int:
    """The table as a file: each batch is kept as it is answered, the whole is put in its place."""
    from kerasbert.storage import files

    count = table.survey.count
    journal = _journal(table, out, batch, {"fields": list(sheet.fields), **about})
    done = progress.start = journal.kept
    whole, encoding = False, "utf-8-sig" if table.mark else "utf-8"
    try:
        for window in _windows(table, batch) if done < count - table.survey.absent else ():
            for numbers, texts in _batches(window, batch):
                if not all(number in journal for number in numbers):
                    new = sum(number not in journal for number in numbers)
                    journal.add(numbers, answer(texts))
                    done += new
                progress.to(done)
        progress.clear()
        cut = 0

        def answered() -> Iterator[tuple[Mapping[str, object], Sequence[object] | None]]:
            nonlocal cut
            for number, row, _ in itertools.chain.from_iterable(_windows(table, batch)):
                truncated, values = journal.answer(number) or (False, None)
                cut += truncated
                yield row, values

        with files.new_file(out) as part, open(part, "w", encoding=encoding, newline="") as file:
            file.writelines(sheet.lines(answered()))
        whole = True
    except (KeyboardInterrupt, InputError) as error:
        progress.clear()
        kept = f"{done:,} of {count:,} rows are answered and kept in {journal.path}: {steady.goes_on(error)}"
        if isinstance(error, InputError):
            raise InputError(f"{error}. {kept}" if done else str(error)) from error
        error.args = (f"interrupted: {kept}" if done else "interrupted, nothing was answered",)
        raise
    finally:
        journal.close(whole or not done)
    return cut


def _windows(table: Asked, batch: int) -> Iterator[list[tuple[int, Json, object]]]:
    """Number from 0, row and text of the rows, some batches at once.

    Raises:
        InputError: other rows than were looked at.
    """
    rows = ((number, row, text) for number, (_, row, text) in enumerate(table.survey.seen.again(iter(table.rows))))
    yield from iter(lambda: list(itertools.islice(rows, WINDOW * batch)), [])


def _batches(window: Sequence[tuple[int, object, object]], batch: int) -> Iterator[tuple[list[int], list[object]]]:
    """The numbers and the texts of a window, those of a like length together: the same batches whenever it is read."""
    from kerasbert.blanks import blank

    some = sorted(((number, text) for number, _, text in window if not blank(text)), key=lambda each: _size(each[1]))
    for begin in range(0, len(some), batch):
        part = some[begin : begin + batch]
        yield [number for number, _ in part], [text for _, text in part]


def _size(text: object) -> int:
    """Characters of a text, or of all parts of an input."""
    if isinstance(text, list | tuple):
        return sum(map(_size, text))
    return len(text) if isinstance(text, str | bytes) else 0

"""Entities by characters of a text, as annotation tools write them -> the words of the text and their tags in BIO.

A format is a row of `FORMATS`: by which fields a row of json is known, its text, and what is annotated. The words are those
of every text (`text.words.split_words`), so that offsets of answers are of the text that was annotated. Offsets count
Unicode characters (Python's); those of Label Studio count UTF-16 units, which differ behind an emoji: where an annotation
holds its own text, that decides.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kerasbert.data import nested
from kerasbert.data.dialects import say
from kerasbert.data.reading import plain_name, whole
from kerasbert.data.sources import NumberedRow, check_files, file_format, objects
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json, JsonMap, RepeatedKey, unrepeated
from kerasbert.tasks import label_studio
from kerasbert.tasks.base import Task
from kerasbert.tasks.spans import Annotated, Marked, counted, outside, same, span_of
from kerasbert.tasks.tables import Memory, Source, where
from kerasbert.tasks.unlabelled import Unlabelled
from kerasbert.text.words import split_words

HELD = ("entities", "label", "labels", "ents", "annotations")  # fields with entities; the last is of older Doccanos


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of annotations: rows that it knows, and what they are of."""

    name: str
    knows: Callable[[object], bool]
    read: Callable[[Any], Annotated] | None = None  # None where that depends on all rows: Label Studio's


def _pair(row: object) -> bool:
    """[text, {"entities": [...]}]: spaCy's, as it is written by hand."""
    return isinstance(row, list | tuple) and len(row) == 2 and isinstance(row[0], str) and isinstance(row[1], Mapping)


def _in_prodigy(row: object) -> bool:
    if not (isinstance(row, Mapping) and isinstance(row.get("text"), str)):
        return False
    return isinstance(row.get("spans"), list) or row.get("answer") in ("accept", "reject", "ignore")


def _of_prodigy(row: JsonMap) -> Annotated:
    said = row.get("answer", "accept")
    return Annotated(row["text"], row.get("spans") or [] if said == "accept" else Unlabelled(f"answer {said!r}"))


def _with(*names: str) -> Callable[[object], bool]:
    """Rows with a text and one of these fields, a list."""

    def knows(row: object) -> bool:
        if not (isinstance(row, Mapping) and isinstance(row.get("text"), str)):
            return False
        return any(isinstance(row.get(name), list) for name in names)

    return knows


def _of(*names: str) -> Callable[[JsonMap], Annotated]:
    def read(row: JsonMap) -> Annotated:
        held = [name for name in names if isinstance(row.get(name), list)]
        if len(held) > 1:
            raise InputError(
                f"there are entities in {' and in '.join(map(repr, held))}: name what is right, --text-column text "
                f"--label-column {held[-1]}"
            )
        return Annotated(row["text"], row[held[0]])

    return read


FORMATS = (
    Format("spaCy", _pair, lambda row: Annotated(row[0], row[1].get("entities", []))),
    Format("Label Studio", label_studio.is_export),
    Format("Label Studio (JSON-MIN)", label_studio.is_minimal),
    Format("Prodigy", _in_prodigy, _of_prodigy),
    Format("entities", _with(*HELD), _of(*HELD)),
)
COLUMNS = (  # names of words and tags in the data sets of others
    ("tokens", "ner_tags"),
    ("tokens", "tags"),
    ("tokens", "labels"),
    ("words", "ner_tags"),
    ("words", "ner"),
    ("tokens", "pos_tags"),
)


def format_of(row: object) -> Format | None:
    """The format of a row; None of another table."""
    return next((each for each in FORMATS if each.knows(row)), None)


def rows_of(source: Source, rows: Sequence[tuple[int, Any]], task: Task) -> list[NumberedRow] | None:
    """The rows of annotations, or of words and tags by other names than the task's, by the task's names; None of others.

    Args:
        rows: (line, what json holds there) of a file or of memory.

    Raises:
        InputError: a row of another form than the first; with file and line.
    """
    first = rows[0][1] if rows else None
    if isinstance(first, Mapping) and task.text in first and (task.label in first or format_of(first) is None):
        return None
    if isinstance(first, Mapping):
        names = next((pair for pair in COLUMNS if isinstance(first.get(pair[0]), list) and pair[1] in first), None)
        if names is not None and "answer" not in first:
            return [(line, _named(source, line, row, names, task)) for line, row in rows]
    form = format_of(first)
    if form is None:
        return None
    found: list[NumberedRow] = []
    several = 0
    forms = [format_of(row) for _, row in rows]
    studio = label_studio.reader(source, [row for row, each in zip(rows, forms) if each and not each.read], task.text)
    for (line, row), each in zip(rows, forms):
        if each is None:
            raise InputError(
                f"{where(source, line)} is no row of {form.name} as the first one is: {json.dumps(row)!s:.60}"
            )
        try:
            text, spans, utf16, others = (each.read or studio)(row)
        except InputError as error:
            raise InputError(f"{where(source, line)}: {error}") from None
        if not isinstance(text, str):
            raise InputError(f"{where(source, line)} holds no text, expected a text with entities ({form.name})")
        if not isinstance(spans, Unlabelled | list | tuple):
            raise InputError(f"{where(source, line)}: the entities are {spans!r:.40}, expected a list ({form.name})")
        spans = spans if isinstance(spans, Unlabelled) or not utf16 else counted(source, line, text, spans)
        several += others > 0
        found.append((line, _kept(row) | {task.text: text, task.label: spans}))
    if several:
        say(
            f"{source}: {several} of {len(found)} texts have several annotations: of each the one marked as ground truth is "
            "taken, else the first"
        )
    return found


def _kept(row: object) -> Json:
    """What a row says beside its text and entities, such as its id: the answers of it stand beside that."""
    return (
        {name: value for name, value in row.items() if isinstance(value, str | int)} if isinstance(row, Mapping) else {}
    )


def _named(source: Source, line: int, row: Mapping[str, object], names: tuple[str, str], task: Task) -> Json:
    if not isinstance(row, Mapping) or not set(names) <= set(row):
        raise InputError(f"{where(source, line)} has no column {names[0]!r} or {names[1]!r}, as the first row has")
    return {**row, task.text: row[names[0]], task.label: row[names[1]]}


def of_any(source: Source, task: Task) -> list[NumberedRow] | None:
    """`rows_of` of rows in memory or of a file of json; None where they are columns of the task."""
    return rows_of(source, list(enumerate(source.rows)), task) if isinstance(source, Memory) else of_json(source, task)


def of_file(path: Path, rows: Iterator[tuple[int, Any]], task: Task) -> list[NumberedRow] | None:
    """`rows_of` of a file of json; one object with a list `annotations` holds the rows."""
    held = list(rows)
    if len(held) == 1 and isinstance(held[0][1], Mapping) and isinstance(held[0][1].get("annotations"), list):
        only = held[0][1]
        held = held if format_of(only) else list(enumerate((row for row in only["annotations"] if row), 1))
    elif len(held) == 1 and format_of(only := held[0][1]) is None:
        name = nested.field_of(path, only, (task.text, *(words for words, _ in COLUMNS)))
        held = held if name is None else list(enumerate(only[name], 1))
    return rows_of(path, held, task)


def of_json(path: Path | str, task: Task) -> list[NumberedRow] | None:
    """The rows of json that an annotation tool wrote; None of a table with the task's columns, and of what is no json."""
    (path,) = check_files([path])
    kind = file_format(path)
    if kind not in ("jsonl", "json", "parquet"):
        return None
    rows = objects(path, kind)
    if kind == "jsonl" and plain_name(path).suffix.lower() == ".json":  # one object perhaps, over many lines
        content = whole(path)
        try:
            rows = iter([(1, json.loads(content, object_pairs_hook=unrepeated))])
        except RepeatedKey as error:
            raise InputError(f"{path}: {error}. Mend the file") from error
        except (ValueError, RecursionError):
            rows = objects(path, kind)
    return of_file(Path(path), rows, task)


def of_docbin(path: Path, task: Task) -> list[NumberedRow]:
    """The documents of a file of spaCy, read by spaCy itself.

    Raises:
        InputError: it is not installed, or cannot read the file.
    """
    try:
        import spacy  # pyright: ignore[reportMissingImports]  # no package that the checks install
        from spacy.tokens import DocBin  # pyright: ignore[reportMissingImports]  # likewise
    except ImportError:
        raise InputError(
            f"{path} is spaCy's own format, which spaCy reads: pip install spacy, or save it as json: [text, "
            '{"entities": [[start, end, label]]}] each'
        ) from None
    try:
        docs = list(DocBin().from_disk(path).get_docs(spacy.blank("xx").vocab))
    except Exception as error:
        raise InputError(f"{path} cannot be read by spaCy: {' '.join(str(error).split())!s:.120}") from error
    return [
        (i, {task.text: doc.text, task.label: [[each.start_char, each.end_char, each.label_] for each in doc.ents]})
        for i, doc in enumerate(docs, 1)
    ]


class _Told:
    """What became of entities that words do not fit: how many, and the first."""

    def __init__(self, source: Source) -> None:
        self.source, self.all, self.found = source, 0, dict[str, list[str]]()

    def add(self, what: str, example: str, line: int) -> None:
        """Count one."""
        self.found.setdefault(what, []).append(
            f"{example} ({'row' if isinstance(self.source, Memory) else 'line'} {line})"
        )

    def say(self) -> None:
        """A line for each kind."""
        for what, examples in self.found.items():
            say(f"{self.source}: {len(examples)} of {self.all} entities {what}, such as {examples[0]}")


def tagged(task: Task, source: Source, rows: list[NumberedRow]) -> list[NumberedRow]:
    """The rows, spans in the place of tags made tags of the text's words; what did not fit is told.

    A span that begins or ends inside a word is widened to it; of spans that share a word the longest stays.

    Raises:
        InputError: a span that lies outside the text, ends before it begins, or is not what its own text says.
    """
    told = _Told(source)
    made = [
        (line, row | {task.label: _tags(source, line, row[task.text], row[task.label], told)})
        if _has_spans(row.get(task.text), row.get(task.label))
        else (line, row)
        for line, row in rows
    ]
    told.say()
    return made


def _has_spans(text: object, value: object) -> bool:
    if not isinstance(text, str) or not isinstance(value, list | tuple) or isinstance(value, Marked):
        return False
    return all(isinstance(each, Mapping | list | tuple) for each in value)


def _tags(source: Source, line: int, text: str, values: Sequence[object], told: _Told) -> list[str]:
    words = split_words(text)
    spans = {}
    for value in values:
        span = value if isinstance(value, Marked) else span_of(value, where(source, line))
        told.all += 1
        if found := _words(source, line, text, words, span, told):
            spans.setdefault((*found, span.label), span)
    tags = ["O"] * len(words)
    longest = sorted(spans, key=lambda each: (each[0] - each[1], each[0]))
    for first, last, label in longest:
        if any(tag != "O" for tag in tags[first : last + 1]):
            span = spans[first, last, label]
            told.add(
                "share a word with a longer or an earlier one and are left out",
                f"{label} {text[span.start : span.end]!r:.40}",
                line,
            )
            continue
        tags[first : last + 1] = [f"B-{label}"] + [f"I-{label}"] * (last - first)
    return tags


def _words(
    source: Source, line: int, text: str, words: Sequence[tuple[str, int, int]], span: Marked, told: _Told
) -> tuple[int, int] | None:
    """The first and the last word of a span; None where it holds none."""
    if not 0 <= span.start < span.end <= len(text):
        raise outside(source, line, span, len(text))
    covered = text[span.start : span.end]
    if span.text is not None and not same(covered, span.text):
        raise InputError(
            f"{where(source, line)}: the entity {span.label!r} from {span.start} to {span.end} is {covered!r:.40} there, and "
            f"{span.text!r:.40} by its own text: the offsets are of another text"
        )
    numbers = [i for i, (_, start, end) in enumerate(words) if start < span.end and span.start < end]
    if not numbers:
        told.add("hold no word and are left out", f"{span.label} {covered!r:.40}", line)
        return None
    start, end = words[numbers[0]][1], words[numbers[-1]][2]
    if start < span.start or end > span.end:
        told.add(
            "begin or end inside a word and are widened to it", f"{covered!r:.40} -> {text[start:end]!r:.40}", line
        )
    return numbers[0], numbers[-1]

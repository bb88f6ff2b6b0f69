"""Words and tags in columns: CoNLL (Tjong Kim Sang and De Meulder, 2003) and CoNLL-U (Universal Dependencies)."""

import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from kerasbert.data import hints, plain
from kerasbert.data.dialects import say
from kerasbert.data.reading import line_lists, plain_name
from kerasbert.data.sources import TABLES, NumberedRow, check_files, file_format, numbered_table
from kerasbert.errors import InputError
from kerasbert.options import offered
from kerasbert.registry import register_reader, register_task
from kerasbert.storage.json_view import Json
from kerasbert.tasks import annotations, fasttext, word_rows
from kerasbert.tasks.base import Task

UD = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
DOCUMENT = "-DOCSTART-"


def read_conll(source: Path, task: Task) -> list[NumberedRow]:
    """Sentences of a file: the line where each begins, its words and its tags.

    A name that ends in .conllu is CoNLL-U, jsonl, json, parquet, tsv and csv are tables whose words and tags are lists or have
    blanks between them; anything else has a word a line, in columns with tabs or blanks between them, and a blank line after a
    sentence. A table without tags holds raw texts. What is given to a trained model may also be one column, of words, or, where
    no line ends in a tag of the task, a raw text a line.

    Args:
        task: its `label` names the column of tags: one of CoNLL-U's, or a number from 1; by default the last one. `text`
            likewise, by default the first one (CoNLL-U's FORM), or the second where the first one numbers the words. Numbers
            may stand in its `reader` too: `conll:2,3` (`find_task`).

    Raises:
        InputError: a line with another number of columns than the first, an empty word; with file and line.
    """
    (path,) = check_files([source])
    if file_format(path) == "spacy":
        return annotations.of_docbin(Path(path), task)
    if fasttext.knows(Path(path)):
        return fasttext.rows_of(Path(path), task)
    numbers = task.reader.partition(":")[2].split(",") if ":" in task.reader else ["", ""]
    ud = plain_name(path).suffix.lower() == ".conllu"
    if not ud and _is_table(path, task, numbers):
        if any(numbers):
            raise InputError(f"{path} is a table, whose columns are named: give their names, not {', '.join(numbers)}")
        if (annotated := annotations.of_json(path, task)) is not None:
            return annotated
        rows = word_rows.sentences(Path(path), numbered_table(path, raw=True), (task.text, task.label))
        return [(line, _listed(task, path, line, row)) for line, row in rows]
    if not ud and (untagged := _untagged(path, task)):
        return untagged
    rows = list(_lines(path, ud))
    if not ud:
        rows = _without_comments(path, rows, numbers[1])
    chosen = numbers[0] or task.text, numbers[1] or task.label
    return _sentences(path, rows, task, chosen, ud)


def _sentences(
    path: Path | str, rows: Sequence[tuple[int, list[str]]], task: Task, chosen: tuple[str, str], ud: bool
) -> list[NumberedRow]:
    """The sentences of the lines of a file of columns.

    Args:
        rows: number and fields of each line. chosen: names or numbers of the columns of words and tags.
    """
    sentences: list[NumberedRow] = []
    words: list[str] = []
    tags: list[str] = []
    columns, begun = None, 0
    for number, fields in rows:
        if not fields or fields[0] == DOCUMENT:
            if words:
                sentences.append((begun, {task.text: words, task.label: tags}))
            words, tags = [], []
            continue
        columns = columns or _columns(path, number, chosen, len(fields), ud, rows)
        width, word, tag = columns
        if len(fields) != width:
            raise InputError(f"{path}, line {number}: {len(fields)} columns, expected {width}. Mend the line")
        if not fields[word] or not fields[tag]:
            raise InputError(f"{path}, line {number}: an empty {'tag' if fields[word] else 'word'}. Mend the line")
        begun = begun if words else number
        if " " in fields[tag]:
            raise InputError(
                f"{path}, line {number}: the tag {fields[tag]!r:.40} holds blanks. Is it a table? {hints.naming()}"
            )
        words.append(fields[word])
        tags.append(fields[tag])
    if words:
        sentences.append((begun, {task.text: words, task.label: tags}))
    return sentences


def _without_comments(
    path: Path | str, rows: Sequence[tuple[int, list[str]]], tag_column: str
) -> list[tuple[int, list[str]]]:
    """The lines without comments, `# ...` in front of a sentence; a row whose word is # stays, and so does #hashtag.

    A line that begins with # and a blank or a tab is a comment where it has another number of columns than the rows, or
    where its last column, or that of the tags, is no tag of theirs and looks like none (MultiCoNER's domain=en).
    """
    others = [fields for _, fields in rows if fields and not _is_marked(fields) and fields[0] != DOCUMENT]
    widths = Counter(map(len, others))
    width = widths.most_common(1)[0][0] if widths else 0
    at = int(tag_column) - 1 if tag_column and 0 < int(tag_column) <= width else width - 1
    tags = {fields[at] for fields in others if len(fields) == width}
    kept: list[tuple[int, list[str]]] = []
    inside, found = False, []
    for number, fields in rows:
        if fields and fields[0] in ("#begin", "#end") and fields[1:2] == ["document"]:
            found.append(number)
            continue
        if fields and not inside and _is_marked(fields) and width > 1 and _is_comment(fields, width, at, tags):
            found.append(number)
            continue
        inside = bool(fields) and fields[0] != DOCUMENT
        kept.append((number, fields))
    if found:
        say(f"{path}: {len(found)} comment lines are no words and are skipped, such as line {found[0]}")
    return kept


def _is_marked(fields: Sequence[str]) -> bool:
    """Whether a line begins with # and a blank or a tab."""
    return fields[0] == "#" or fields[0].startswith("# ")


def _is_comment(fields: Sequence[str], width: int, at: int, tags: Collection[str]) -> bool:
    if len(fields) != width:
        return True
    return fields[at] not in tags and any(sign in part for part in fields[1:] for sign in ("=", "://"))


def _untagged(path: Path | str, task: Task) -> list[NumberedRow]:
    """Words or raw texts without tags; empty where the task has no labels yet, or the file some of them."""
    known = {*task.labels, *task.labels.values()}
    rows = list(_lines(path, False)) if known else []
    if all(len(fields) < 2 or fields[0] == "#" for _, fields in rows):  # words alone, and comments
        rows = [(number, fields) for number, fields in rows if len(fields) < 2]
    if any(field in known for _, fields in rows for field in fields[1:]):
        return []
    if any(len(fields) > 1 for _, fields in rows):
        texts = dict(plain.numbered(path))
        return [(number, {task.text: texts[number]}) for number, fields in rows if fields]
    sentences = itertools.groupby(rows, key=lambda row: bool(row[1]))
    groups = [list(group) for there, group in sentences if there]
    return [(group[0][0], {task.text: [fields[0] for _, fields in group]}) for group in groups]


def _is_table(path: Path | str, task: Task, numbers: Sequence[str]) -> bool:
    """Whether a file is a table; a tsv without the column of words is columns, as of BioBERT's data."""
    kind = file_format(path)
    if kind != "tsv":
        return kind in TABLES
    if any(numbers):
        return False
    return task.text in next((fields for _, fields in _lines(path, False) if fields), ())


def _lines(path: Path | str, ud: bool) -> Iterator[tuple[int, list[str]]]:
    """Number and fields of each line; none of a blank one. What CoNLL-U has besides words is left out."""
    number = 0
    for lines in line_lists(path, None):
        for line in lines:
            number += 1
            line = line.strip("\r ")
            if ud and line.startswith("#"):
                continue
            if not line.strip("\t "):
                fields = []
            else:
                fields = line.split("\t") if "\t" in line else [field for field in line.split(" ") if field]
            # the range of a contraction and a node that is not in the text
            if ud and fields and not fields[0].isdecimal() and fields[0].replace("-", "").replace(".", "").isdecimal():
                continue
            yield number, fields


def _columns(
    path: Path | str,
    number: int,
    chosen: tuple[str, str],
    width: int,
    ud: bool,
    rows: Sequence[tuple[int, list[str]]],
) -> tuple[int, int, int]:
    """How many columns there are, and which hold words and tags."""
    if ud and width != len(UD):
        raise InputError(
            f"{path}, line {number}: {width} columns, expected CoNLL-U's {len(UD)}, with tabs between them"
        )
    if width < 2:
        raise InputError(
            f"{path}, line {number}: one column, expected a word and its tag, with a tab or blanks between them"
        )
    usual = UD.index("form") if ud else 0
    if not ud and not chosen[0].isdecimal() and _counts(rows):
        if width == 2:
            raise InputError(f"{path}: the first of its two columns numbers the words, expected words and tags")
        usual = 1
        tag = chosen[1] if chosen[1].isdecimal() else width
        say(
            f"{path}: the first of its {width} columns numbers the words: words are read from column 2, tags from column "
            f"{tag} (--text-column N, --label-column N choose others)"
        )
    return (
        width,
        _column(path, chosen[0], width, ud, usual),
        _column(path, chosen[1], width, ud, UD.index("upos") if ud else width - 1),
    )


def _counts(rows: Sequence[tuple[int, list[str]]]) -> bool:
    """Whether the first column is 1, 2, 3 ... (or 0, 1, 2 ...) of each sentence."""
    groups = itertools.groupby(rows, key=lambda row: bool(row[1]) and row[1][0] != DOCUMENT)
    sentences = [[fields[0] for _, fields in group] for there, group in groups if there]
    longest = max(map(len, sentences), default=0)
    return longest > 1 and all(
        each == [str(i) for i in range(first, first + len(each))]
        for each in sentences
        for first in [int(each[0] != "0")]
    )


def _column(path: Path | str, name: str, width: int, ud: bool, usual: int) -> int:
    """The column of a name or a number; the usual one where the name says nothing."""
    if ud and name.lower() in UD:
        return UD.index(name.lower())
    if not name.isdecimal():
        return usual
    if not 0 < int(name) <= width:
        raise InputError(f"{path} has {width} columns, expected a number from 1. Received: {name}")
    return int(name) - 1


def _listed(task: Task, path: Path | str, line: int, row: Json) -> Json:
    """A row of a table, its words and tags as lists where it has both."""
    if task.text not in row:
        if "paragraphs" in row:
            raise InputError(
                f"{path} is training data of spaCy 2: python -m spacy convert {path} . makes a .spacy of it, which is read"
            )
        tags = " (of tags with --label-column)" if offered("--label-column") else ""
        told = (
            f"Name the one of texts or words with --text-column{tags}" if offered("--text-column") else hints.naming()
        )
        raise InputError(
            f"{path}, line {line} has no column {task.text!r}. It has: {', '.join(map(str, row))}. {told}, or give texts with "
            "entities as spaCy, Doccano, Prodigy or Label Studio write them"
        )
    if task.label not in row:
        return row
    values = dict(row)
    for name in (task.text, task.label):
        value = row[name].split(" ") if isinstance(row[name], str) else row[name]
        if not isinstance(value, list):
            raise InputError(f"{path}, line {line}: {name!r} is {json.dumps(value)[:40]}, expected a list")
        values[name] = [each for each in value if each != ""] if isinstance(row[name], str) else value
    return values


register_reader("conll", read_conll)
_COLUMNS: dict[str, Any] = {"kind": "tags", "reader": "conll", "text": "words", "label": "tags"}
_TXT = {
    "train": ("train.conll", "train.txt"),
    "dev": ("dev.conll", "valid.txt", "dev.txt"),
    "test": ("test.conll", "test.txt"),
}
_CONLL2003 = {"train": ("train.txt", "eng.train"), "dev": ("valid.txt", "eng.testa"), "test": ("test.txt", "eng.testb")}
_WNUT17 = {
    "train": ("wnut17train.conll", "train.conll"),
    "dev": ("emerging.dev.conll", "dev.conll"),
    "test": ("emerging.test.annotated", "test.conll"),
}
_UD = {split: (f"*-ud-{split}*.conllu", f"{split}.conllu") for split in ("train", "dev", "test")}
register_task("ner", Task("ner", metric="f1", files=_TXT, **_COLUMNS))
register_task("conll2003", Task("conll2003", metric="f1", files=_CONLL2003, **_COLUMNS))
register_task("wnut17", Task("wnut17", metric="f1", files=_WNUT17, **_COLUMNS))
register_task("pos", Task("pos", metric="accuracy", files=_UD, **{**_COLUMNS, "label": "upos"}))

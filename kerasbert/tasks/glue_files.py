"""GLUE's files (Wang et al., 2019), as they are downloaded and as others hand them on, and the files of its server.

The official ones are split at tabs, with literal quotes: CoLA without a header in train.tsv and dev.tsv, the others with
one, more columns than are wanted, test.tsv without labels; of QQP's train.tsv a few questions hold a line break. Others:
MRPC as msr_paraphrase_*.txt, which begin with a byte order mark; csv without a header (STS-B); json and jsonl, where
{"qqp": [...]} holds one list, and labels may be the numbers that Hugging Face gives them.
"""

import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kerasbert.answers.base import Answered
from kerasbert.data import dialects
from kerasbert.data.reading import line_lists, plain_name, text_chunks
from kerasbert.data.sources import TABLES, NumberedRow, check_files, file_format, numbered_table
from kerasbert.errors import InputError
from kerasbert.registry import register_reader
from kerasbert.storage.json_view import unrepeated
from kerasbert.tasks import superglue

if TYPE_CHECKING:
    from kerasbert.tasks.base import Task

# column of a task -> what it is called in files, the likeliest first
NAMES = {
    "sentence1": ("#1 String", "premise"),
    "sentence2": ("#2 String", "hypothesis"),
    "label": ("gold_label", "Quality", "is_duplicate"),
    "score": ("label", "similarity_score"),
}
COLA = ["source", "label", "mark", "sentence"]  # where no header says it
STSB = ["sentence1", "sentence2", "score"]
SUBMISSIONS = {
    "glue/cola": "CoLA.tsv",
    "glue/sst2": "SST-2.tsv",
    "glue/mrpc": "MRPC.tsv",
    "glue/stsb": "STS-B.tsv",
    "glue/qqp": "QQP.tsv",
    "glue/mnli": "MNLI-m.tsv",
    "glue/mnli_mismatched": "MNLI-mm.tsv",
    "glue/qnli": "QNLI.tsv",
    "glue/rte": "RTE.tsv",
    "glue/wnli": "WNLI.tsv",
}


def read(source: Path, task: "Task") -> list[NumberedRow]:
    """(line, column of the task -> text) of each row; a file without labels has no such column.

    Raises:
        InputError: columns that are not GLUE's, a row with too few of them, with file and line.
    """
    source = Path(check_files([source])[0])
    rows = _rows(source, task)
    held = list(rows[0][1]) if rows else []
    called = {
        column: next((name for name in (column, *NAMES.get(column, ())) if name in held), None)
        for column in task.columns
    }
    missing = next((column for column in task.parts if called[column] is None), None)
    if missing is not None:
        names = " or ".join(map(repr, (missing, *NAMES.get(missing, ()))))
        raise InputError(
            f"{source} has no column {names}. It has: {', '.join(held)[:200] or 'none'}. Is it a file of {task.name}?"
        )
    return [
        (line, {column: row.get(name, "") for column, name in called.items() if name is not None})
        for line, row in _numbered_labels(rows, called[task.label], task)
    ]


def _rows(source: Path, task: "Task") -> list[NumberedRow]:
    """The rows of a file of any format, by the names of its columns."""
    kind = file_format(source)
    if kind == "jsonl" and plain_name(source).suffix == ".json":
        return _one_list(source)
    if kind == "csv":
        first = next(dialects.fields(source, kind), (0, []))[1]
        return numbered_table(source, names=_names(first, task))
    if kind in TABLES and kind != "tsv":
        return numbered_table(source)
    return _tab_separated(source, task)  # MRPC's end in .txt


def _names(first: Sequence[str], task: "Task") -> list[str] | None:
    """The names of the columns where the first line is a row; None where it is a header."""
    known = {name for column in task.columns for name in (column, *NAMES.get(column, ()))}
    if known & set(first):
        return None
    return {len(COLA): COLA, len(STSB): STSB}.get(len(first))


def _tab_separated(source: Path, task: "Task") -> list[NumberedRow]:
    lines = enumerate(itertools.chain.from_iterable(line_lists(source)), 1)
    fields = ((number, line.removesuffix("\r").split("\t")) for number, line in lines if line.strip())
    first = next(fields, None)
    if first is None:
        raise InputError(f"{source} has no rows, expected at least one")
    names = _names(first[1], task)
    rows, names = ([], first[1]) if names is None else ([first], names)
    rows, found = itertools.chain(rows, fields), []
    for number, values in rows:
        while "qid1" in names and len(values) < len(names) and (more := next(rows, None)):
            values = [*values[:-1], f"{values[-1]} {more[1][0]}", *more[1][1:]]  # a line break in a question
        if len(values) != len(names):
            raise InputError(
                f"{source}, line {number}: {len(values)} fields, expected {len(names)} ({', '.join(names)}), with tabs "
                "between. Mend the row"
            )
        found.append((number, dict(zip(names, values))))
    if not found:
        raise InputError(f"{source} has no rows, expected at least one below the header")
    return found


def _one_list(source: Path) -> list[NumberedRow]:
    """The rows of {"name": [...]}, numbered from 1."""
    try:
        content = json.loads("".join(text_chunks(source)), object_pairs_hook=unrepeated)
        (rows,) = content.values()
        numbered = [(i, {name: _text(value) for name, value in row.items()}) for i, row in enumerate(rows, 1)]
    except (ValueError, AttributeError) as error:
        expected = 'an array of objects, or one list of them: {"qqp": [{...}]}'
        raise InputError(f"{source} is no json that is known here ({error}). Expected {expected}") from error
    return numbered


def _text(value: object) -> object:
    return json.dumps(value) if isinstance(value, bool | int | float) else value


def _numbered_labels(rows: list[NumberedRow], column: str | None, task: "Task") -> list[NumberedRow]:
    """The rows, words in the place of Hugging Face's numbers where a task's labels are words."""
    words = list(task.labels)
    if column is None or not words or any(word.isdigit() for word in words):
        return rows
    numbers = {str(i): word for i, word in enumerate(words)}
    return [(line, row | {column: numbers.get(str(row.get(column)), row.get(column))}) for line, row in rows]


def check_submission(task: "Task") -> None:
    """Refuse a task of which neither GLUE's nor SuperGLUE's server takes anything."""
    if task.name not in SUBMISSIONS and not superglue.knows(task):
        raise InputError(
            f"--submission is for GLUE's tasks ({', '.join(SUBMISSIONS)}) and SuperGLUE's, the model's task is {task.name}"
        )


def submission(
    folder: str | os.PathLike, task: "Task", source: str | os.PathLike, answers: Sequence[Answered]
) -> tuple[Path, str]:
    """The file of GLUE's server for the answers to a test file: its path, and its content.

    Args:
        source: whose name tells MNLI's two test sets apart, and its diagnostic one. answers: of each row, in their order.

    Raises:
        InputError: a task that is neither GLUE's nor SuperGLUE's.
    """
    check_submission(task)
    if superglue.knows(task):
        return superglue.submission(folder, task, source, answers)
    name = SUBMISSIONS[task.name]
    if name.startswith("MNLI"):
        stem = plain_name(source).name
        name = "MNLI-mm.tsv" if "mismatched" in stem else "MNLI-m.tsv" if "matched" in stem else name
        name = "AX.tsv" if "diagnostic" in stem else name
    values = {label: value for value, label in task.labels.items()}
    lines = ["index\tprediction"]
    for i, answer in enumerate(answers):
        said = answer.to_json()
        # the server takes scores from 0 to 5
        value = values[said["label"]] if "label" in said else f"{min(5.0, max(0.0, said['value'])):.3f}"
        lines.append(f"{i}\t{value}")
    return Path(folder) / name, "\n".join(lines) + "\n"


register_reader("glue", read)

"""SQuAD 1.1 and 2.0 (Rajpurkar et al., 2016, 2018), XQuAD (Artetxe et al., 2020), CMRC 2018 (Cui et al., 2019), MLQA.

All have one format. Nothing but declarations and the reader of that format.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kerasbert.data.reading import plain_name, whole
from kerasbert.data.sources import NumberedRow
from kerasbert.errors import InputError
from kerasbert.registry import register_reader, register_task
from kerasbert.storage.json_view import Json, unrepeated
from kerasbert.tasks import tables
from kerasbert.tasks.base import Task

_COLUMNS: dict[str, Any] = {"kind": "span", "text": "question", "text_b": "context", "label": "answers", "metric": "f1"}
LANGUAGES = ("ar", "de", "en", "es", "hi", "vi", "zh")  # of MLQA


def read(source: Path, task: Task) -> list[NumberedRow]:
    """(line, row) of each question of a file in SQuAD's format; of other files than .json as of any table.

    A row has `id`, the columns of the question and the context, and that of the answers, if the file tells them:
    {"id", "text": [...], "answer_start": [...]}, without texts where a question is impossible.

    Raises:
        InputError: not such a file; with the question's id where one is wrong.
    """
    if plain_name(source).suffix.lower() != ".json":
        return tables.table(source, task.columns, task.parts)
    content = whole(source)
    try:
        articles = json.loads(content, object_pairs_hook=unrepeated)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source} is not a json file in SQuAD's format: {' '.join(str(error).split())}") from error
    if _flat(articles):
        return tables.table(source, task.columns, task.parts)
    rows, line, place = [], 1, 0
    for context, question in _questions(source, articles):
        name = str(question.get("id", ""))
        found = content.find(json.dumps(name), place)
        if found >= 0:
            line, place = line + content.count("\n", place, found), found
        row = {"id": name, task.text: question["question"], task.text_b: context}
        if "answers" in question:
            row[task.label] = {"id": name, **_answers(source, name, question)}
        rows.append((line, row))
    if not rows:
        raise InputError(f"{source} has no questions, expected at least one")
    return rows


def _flat(articles: Any) -> bool:
    """Whether json holds a row for each question, as datasets writes them, and no articles."""
    rows = articles.get("data") if isinstance(articles, Mapping) else articles
    return isinstance(rows, list) and bool(rows) and isinstance(rows[0], Mapping) and "question" in rows[0]


def _questions(source: Path, articles: Any) -> Iterator[tuple[str, Json]]:
    """Each context and question."""
    try:
        for article in articles["data"]:
            for paragraph in article["paragraphs"]:
                context = paragraph["context"]
                for question in paragraph["qas"]:
                    if not (isinstance(context, str) and isinstance(question["question"], str)):
                        raise TypeError(f"question {question.get('id')!r}")
                    yield context, question
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{source} is not in SQuAD's format ({type(error).__name__}: {error}), expected data > paragraphs > context "
            "and qas > question, id and answers"
        ) from error


def _answers(source: Path, name: str, question: Json) -> dict[str, list]:
    """Texts and offsets of a question's answers."""
    answers = [] if question.get("is_impossible") is True else question["answers"]
    try:
        return {"text": [each["text"] for each in answers], "answer_start": [each["answer_start"] for each in answers]}
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{source}, question {name!r}: answers are {str(answers)[:80]!r}, expected a list of text and answer_start"
        ) from error


register_reader("squad", read)
register_task("span", Task("span", **_COLUMNS, reader="squad"))
FILES = {"train": ("train*.json",), "dev": ("dev*.json",), "test": ("test*.json",)}


def _declare(name: str, files: dict[str, tuple[str, ...]], **options: object) -> None:
    register_task(name, Task(name, **_COLUMNS, reader="squad", files=files, options=options))


_declare("squad", {"train": ("train*1.1.json", *FILES["train"]), "dev": ("dev*1.1.json", *FILES["dev"])})
_declare(
    "squad2",
    {"train": ("train*2.0.json", *FILES["train"]), "dev": ("dev*2.0.json", *FILES["dev"])},
    unanswerable=True,
    rules="squad2",
)
_declare("xquad", {})  # a file a language: name it
_declare("cmrc2018", {split: (f"cmrc2018_{split}*.json",) for split in FILES}, rules="cmrc")
for _language in LANGUAGES:
    _declare(f"mlqa/{_language}", {}, rules=f"mlqa/{_language}")

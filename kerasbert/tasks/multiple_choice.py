"""SWAG (Zellers et al., 2018), RACE (Lai et al., 2017), and files of one's own with a text and its choices."""

import json
import string
from pathlib import Path
from typing import Any

from kerasbert.data.reading import plain_name, whole
from kerasbert.data.sources import NumberedRow, numbered_table
from kerasbert.errors import InputError
from kerasbert.registry import register_reader, register_task
from kerasbert.storage.json_view import Json, RepeatedKey, unrepeated
from kerasbert.tasks.base import Task


def read_swag(source: Path, task: Task) -> list[NumberedRow]:
    """Rows of SWAG's csv: the text is sent1, a choice is sent2 (which an ending continues) and the ending."""
    endings = [f"ending{i}" for i in range(4)]
    rows = []
    for line, row in numbered_table(source, columns=["sent1", "sent2", *endings]):
        choices = [f"{row['sent2']} {row[ending]}".strip() for ending in endings]
        answer = {task.label: row["label"]} if "label" in row else {}  # the test file has none
        rows.append((line, row | {task.text: row["sent1"], task.text_b: choices} | answer))  # no column is lost
    return rows


def read_race(source: Path, task: Task) -> list[NumberedRow]:
    """Rows of RACE: articles in json, each with its questions, their options and the answers' letters.

    A file holds one article, or one a line. A folder's articles (*.txt, *.json, *.jsonl at any depth, as in train/high) come
    in the order of their paths. A choice is the question with the option in the place of its blank `_`, or behind it, as
    transformers' run_multiple_choice has it.

    Returns:
        (number of the question from 1, row): an article has no line of its own.

    Raises:
        InputError: no article, a question without options or answer; with file and line.
    """
    files = [source]
    if source.is_dir():
        files = sorted(file for file in source.rglob("*") if plain_name(file).suffix in (".txt", ".json", ".jsonl"))
        if not files:
            raise InputError(
                f"{source} holds no .txt, .json or .jsonl file of articles: is it RACE's train or dev folder?"
            )
    rows = [row for file in files for where, article in _articles(file) for row in _questions(where, article, task)]
    return list(enumerate(rows, 1))


def _articles(file: Path) -> list[tuple[str, object]]:
    """Where each article of a file stands, and the article."""
    text = whole(file)
    try:
        content = json.loads(text, object_pairs_hook=unrepeated)
        return [(str(file), each) for each in (content if isinstance(content, list) else [content])]
    except RepeatedKey as error:
        raise InputError(f"{file}: {error}. Mend the article") from error
    except (ValueError, RecursionError):
        pass
    articles = []
    for line, row in enumerate(text.split("\n"), 1):
        if row.strip():
            try:
                articles.append((f"{file}, line {line}", json.loads(row, object_pairs_hook=unrepeated)))
            except (ValueError, RecursionError) as error:
                raise InputError(f"{file}, line {line}: no json ({error}), expected an article of RACE") from error
    return articles


def _questions(where: str, article: object, task: Task) -> list[Json]:
    names = ("article", "questions", "options")
    if not isinstance(article, dict) or not all(name in article for name in names):
        raise InputError(f"{where}: no article of RACE, expected an object with {', '.join(names)} and answers")
    questions, options, answers = article["questions"], article["options"], article.get("answers")
    lists = [questions, options, *([] if answers is None else [answers])]
    if not all(isinstance(each, list) and len(each) == len(questions) for each in lists):
        told = ", ".join(str(len(each)) if isinstance(each, list) else type(each).__name__ for each in lists)
        raise InputError(f"{where}: questions, options and answers are {told}, expected lists as long as each other")
    rows = []
    for number, (question, choices) in enumerate(zip(questions, options), 1):
        if not isinstance(choices, list) or not all(isinstance(each, str) for each in [question, *choices]):
            raise InputError(f"{where}, question {number}: expected a text and a list of texts as its options")
        row = {task.text: article["article"], task.text_b: [_filled(question, choice) for choice in choices]}
        if answers is not None:
            row[task.label] = _number(answers[number - 1], len(choices), f"{where}, question {number}")
        rows.append(row)
    return rows


def _filled(question: str, option: str) -> str:
    return question.replace("_", option) if "_" in question else f"{question} {option}"


def _number(letter: object, options: int, where: str) -> int:
    letters = string.ascii_uppercase[:options]
    if not isinstance(letter, str) or len(letter) != 1 or letter not in letters:
        raise InputError(f"{where}: the answer {letter!r:.40} is no option, expected one of {', '.join(letters)}")
    return letters.index(letter)


register_reader("swag", read_swag)
register_reader("race", read_race)
_PARTS: dict[str, Any] = {"kind": "choice", "text": "context", "text_b": "choices"}
_SPLITS = {"train": "train", "dev": "val", "test": "test"}
register_task("choice", Task("choice", **_PARTS))
register_task(
    "swag", Task("swag", **_PARTS, reader="swag", files={split: (f"{name}.csv",) for split, name in _SPLITS.items()})
)
register_task(
    "race", Task("race", **_PARTS, reader="race", files={split: (split,) for split in ("train", "dev", "test")})
)

"""fastText's files of labelled texts: `__label__x __label__y text` a line, the labels anywhere in it (Joulin et al., 2016)."""

from pathlib import Path

from kerasbert.data.dialects import say
from kerasbert.data.reading import numbered_lines
from kerasbert.data.sources import NumberedRow, file_format
from kerasbert.errors import InputError
from kerasbert.tasks.base import Task
from kerasbert.tasks.tables import Source

PREFIX = "__label__"
HEAD = 20  # lines by which a file is known


def split(line: str) -> tuple[str, list[str]]:
    """The text and the labels of a line.

    >>> split("__label__good __label__short A gripping film")
    ('A gripping film', ['good', 'short'])
    """
    words = line.split(" ")
    labels = [word.strip().removeprefix(PREFIX) for word in words if word.strip().startswith(PREFIX)]
    return " ".join(word for word in words if not word.strip().startswith(PREFIX)).strip(), labels


def knows(path: Source) -> bool:
    """Whether a file is one of fastText's."""
    if not isinstance(path, Path) or not path.is_file() or file_format(path) != "text":
        return False
    head = [line for (_, line), _ in zip(numbered_lines(path), range(HEAD)) if line.strip()]
    return bool(head) and 2 * sum(PREFIX in line for line in head) > len(head)


def rows_of(path: Path, task: Task) -> list[NumberedRow]:
    """The rows of a file: a text and its label, or a list of labels.

    Raises:
        InputError: a task of other answers.
    """
    kind = task.answer_kind
    if not kind.labelled or kind.per_token or len(task.parts) > 1:
        raise InputError(
            f"{path} is a file of fastText (__label__x TEXT), whose texts have labels: --task classification or multi_label"
        )
    rows: list[NumberedRow] = []
    for number, line in numbered_lines(path):
        if line.strip():
            text, labels = split(line)
            one = len(labels) < 2 and len(kind.label_columns("a,b")) < 2  # a kind with one label refuses a list
            rows.append((number, {task.text: text, task.label: "".join(labels) if one else labels}))
    return rows


def texts_of(path: Path, column: str) -> list[NumberedRow]:
    """The texts of a file that is answered, without its labels; told in one line."""
    say(f"{path} is a file of fastText: the labels ({PREFIX}...) are no part of the texts that are answered")
    return [(number, {column: split(line)[0]}) for number, line in numbered_lines(path)]

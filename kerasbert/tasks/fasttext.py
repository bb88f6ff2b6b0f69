"""fastText's files of labelled texts: `__label__x __label__y text` a line, the labels anywhere in it (Joulin et al., 2016)."""

from pathlib import Path

from kerasbert.data.plain import PREFIX, head_of, is_fasttext, without_labels
from kerasbert.data.reading import numbered_lines
from kerasbert.data.sources import NumberedRow, file_format
from kerasbert.errors import InputError
from kerasbert.tasks.base import Task
from kerasbert.tasks.tables import Source


def split(line: str) -> tuple[str, list[str]]:
    """The text and the labels of a line.

    >>> split("__label__good __label__short A gripping film")
    ('A gripping film', ['good', 'short'])
    """
    words = map(str.strip, line.split(" "))
    return without_labels(line), [word.removeprefix(PREFIX) for word in words if word.startswith(PREFIX)]


def knows(path: Source) -> bool:
    """Whether a file is one of fastText's."""
    return isinstance(path, Path) and path.is_file() and file_format(path) == "text" and is_fasttext(head_of(path))


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

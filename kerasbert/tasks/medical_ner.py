"""Characters and their tags: Chinese entities of medicine, as K-BERT's data has them (CCKS; Liu et al., 2019, "Experiments")."""

from pathlib import Path

from kerasbert.data.sources import NumberedRow, numbered_table
from kerasbert.errors import InputError
from kerasbert.registry import register_reader, register_task
from kerasbert.tasks.base import Task


def read_characters(source: Path, task: Task) -> list[NumberedRow]:
    """Rows of a table with a column of characters and one of tags, a blank between two of them; a list holds them as they are.

    A table without the column of tags holds texts, which are split into words as every text is.

    Raises:
        InputError: no column of characters, two blanks side by side, characters that are several; with file and line.
    """
    rows = numbered_table(source, columns=[task.text], raw=True)
    if task.label not in rows[0][1]:
        return rows
    return [
        (line, row | {name: _parts(row[name], f"{source}, line {line}", name) for name in task.columns})
        for line, row in rows
    ]


def _parts(value: object, where: str, name: str) -> list[str]:
    if isinstance(value, list):
        return value
    parts = str(value).strip(" ").split(" ")
    if "" in parts:
        raise InputError(
            f"{where}: two blanks side by side in {name!r}, expected one between two characters or tags. Mend it"
        )
    return parts


register_reader("characters", read_characters)
register_task("medical_ner", Task("medical_ner", "tags", "text_a", metric="f1", reader="characters"))

"""Tables with a word a row, as Kaggle's corpora of entities are: their rows -> sentences."""

from collections.abc import Mapping, Sequence

from kerasbert.data.dialects import say
from kerasbert.data.sources import NumberedRow
from kerasbert.errors import InputError
from kerasbert.tasks.tables import Memory, Source


def sentences(source: Source, rows: list[NumberedRow], columns: Sequence[str]) -> list[NumberedRow]:
    """The sentences of a table that has a word and its tag a row, or a word alone; the rows of any other table.

    A sentence begins where a column whose name has "sent" in it holds another value (an empty cell goes on with the sentence),
    in a file without such a column behind a blank line.

    Args:
        rows: (line, row). columns: of words, and of tags where there are some.

    Raises:
        InputError: nothing says where a sentence ends, so that each tagged word would be learnt alone.
    """
    if len(rows) < 2 or not all(_word(row.get(name)) for _, row in rows for name in columns):
        return rows
    column = sentence_column(rows[0][1], columns[0])
    found: list[NumberedRow] = []
    last, value = 0, None
    for line, row in rows:
        held = None if column is None else _held(row, column)
        begins = held not in (None, value) if column else line > last + 1 and not isinstance(source, Memory)
        last, value = line, held if begins else value
        if begins or not found:
            found.append((line, {name: [] for name in columns}))
        for name in columns:
            found[-1][1][name].append(_word(row[name]))
    if len(found) < 2:
        raise InputError(
            f"{source}: each row holds one word, and nothing says where a sentence ends: number them in a column 'sentence'"
        )
    how = f"begin where {column!r} changes" if column else "end at blank lines"
    say(f"{source}: each row holds one word; its {len(found)} sentences {how}")
    return found


def sentence_column(row: Mapping[str, object], words: str) -> str | None:
    """The column that numbers the sentences of a row that holds one word; None of another table.

    >>> sentence_column({"Sentence #": "Sentence: 1", "Word": "Anna"}, "Word")
    'Sentence #'
    >>> sentence_column({"sentence": "Anna saw Ben."}, "sentence")
    """
    if not _word(row.get(words)):
        return None
    return next((name for name in row if "sent" in str(name).lower() and name != words), None)


def _held(row: Mapping[str, object], column: str) -> object:
    """The number of a row's sentence; None of an empty cell, which is NaN in a DataFrame."""
    value = row.get(column)
    return None if value == "" or value != value else value


def _word(value: object) -> str | None:
    """The word of a cell that holds one and nothing else; None of others, lists among them: they are sentences."""
    return value.strip() if isinstance(value, str) and len(value.split()) == 1 else None

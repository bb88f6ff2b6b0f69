"""The tags and the words of a row, as its file has them."""

from collections.abc import Collection, Sequence
from typing import Any

from kerasbert.answers.schemes import OUTSIDE, has_spans
from kerasbert.errors import InputError
from kerasbert.tasks.tables import Source, where
from kerasbert.text.words import split_words

FEWEST = 0.5  # of labels that look like BIO, so that the others among them are mistakes


def tags_of(value: Any, source: Source, line: int) -> list[str]:
    """The tags of a row: a list, or a text with blanks between them."""
    tags = value.split() if isinstance(value, str) else [str(tag).strip() for tag in value]
    if not all(tags):
        raise InputError(f"{where(source, line)}: tag {tags.index('') + 1} is empty, expected a tag for every word")
    return tags


def words_of(text: Any) -> Sequence[str]:
    """The words of an input as `Rows` hold it: a raw text, or a tuple with a tuple of words."""
    if isinstance(text, str):
        return [word for word, _, _ in split_words(text)]
    return text[0] if text and isinstance(text[0], tuple) else text


def check_tags(names: Collection[str], source: Source, lines: Sequence[int], values: Sequence[Any]) -> None:
    """Refuse tags that are not BIO or IOBES where the others are.

    Raises:
        InputError: with file and line.
    """
    if OUTSIDE not in names or has_spans(names):
        return
    wrong = {name for name in names if name != OUTSIDE and not has_spans([name])}
    if len(wrong) > FEWEST * len(names):
        return
    for line, value in zip(lines, values):
        for tag in tags_of(value, source, line):
            if tag in wrong:
                raise InputError(
                    f"{where(source, line)}: tag {tag!r:.40} is none of O, B-TYPE, I-TYPE, E-TYPE, S-TYPE, as the others "
                    "are. Mend it"
                )

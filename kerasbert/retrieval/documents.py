"""A folder of documents as passages: the paragraphs of its text files and the rows of its tables, named by file and line."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from kerasbert.data import hints, plain
from kerasbert.data import texts as reader
from kerasbert.data.reading import chosen_encoding, is_utf8, plain_name
from kerasbert.data.sentences import split_sentences
from kerasbert.data.sources import FORMATS, SURROGATES, TABLES, check_files, file_format, table_rows
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json
from kerasbert.storage.places import MARK

PLAIN = (".txt", ".md", ".markdown", ".rst", ".text")
READ = (*PLAIN, *(ending for ending in FORMATS if ending != ".spacy"), ".parquet")
LONGEST = 800  # characters of a passage, about 200 tokens: a longer paragraph is split between its sentences


class Folder:
    """The documents below a folder, in the order of their names. What begins with a dot and folders of ours are passed over.

    Args:
        path: the folder. column: of the texts of its tables; None for `text` where a table has it, else all cells of a row.

    Attributes:
        left: names of the files that are no documents by their endings.
        utf8: names of those that are UTF-8, and are read so, where another encoding is chosen (`--encoding`) for the others.

    Raises:
        InputError: no document.
    """

    def __init__(self, path: str | os.PathLike, column: str | None = None) -> None:
        self.path, self.column = Path(path), column
        self.files, self.left, self.utf8 = list[Path](), list[str](), set[str]()
        for file in self._found():
            if plain_name(file).suffix.lower() in READ:
                self.files.append(file)
            else:
                self.left.append(file.relative_to(self.path).as_posix())
        if not self.files:
            raise InputError(f"{path} holds no documents, expected files ending in {', '.join(READ)}")

    def _found(self) -> Iterator[Path]:
        for top, folders, names in os.walk(self.path, onerror=_unreadable):
            folders[:] = sorted(
                name for name in folders if name[0] != "." and not os.path.lexists(os.path.join(top, name, MARK))
            )
            yield from (Path(top, name) for name in sorted(names) if name[0] != ".")

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """(file:line, text) of each passage, those without text left out."""
        for file in self.files:
            name = file.relative_to(self.path).as_posix()
            for line, text in self._passages(file):
                yield f"{name}:{line}", text

    def told(self) -> list[str]:
        """What a user cannot see in the passages."""
        lines = [f"{self.path}: {len(self.files):,} documents"]
        if self.left:
            shown = ", ".join(self.left[:5]) + (", ..." if len(self.left) > 5 else "")
            lines.append(f"{len(self.left):,} files are no documents by their endings and are left out: {shown}")
        if self.utf8:
            shown = ", ".join(sorted(self.utf8)[:5]) + (", ..." if len(self.utf8) > 5 else "")
            lines.append(
                f"{len(self.utf8):,} files are UTF-8 and were read so, the others as {chosen_encoding(None)}: {shown}"
            )
        return lines

    def _passages(self, file: Path) -> Iterator[tuple[int, str]]:
        check_files([file])  # a pipe is none
        if not file.stat().st_size:
            return iter(())
        # "utf-8" would be the chosen one
        encoding = "utf-8-sig" if chosen_encoding(None) and is_utf8(file) else None
        if encoding:
            self.utf8.add(file.relative_to(self.path).as_posix())
        kind = file_format(file, encoding)
        return self._rows(file, kind, encoding) if kind in TABLES else paragraphs(plain.numbered(file, encoding))

    def _rows(self, file: Path, kind: str, encoding: str | None) -> Iterator[tuple[int, str]]:
        wanted = () if self.column is None else (self.column,)
        for line, row in table_rows(file, kind, wanted, encoding=encoding):
            column = self.column or (reader.TEXT[0] if isinstance(row.get(reader.TEXT[0]), str) else None)
            text = row[column] if column else "; ".join(_cells(row))
            if not isinstance(text, str):
                raise InputError(hints.no_text(f"{file}, line {line}", str(column), text, "--text-column"))
            if text.strip():
                yield line, SURROGATES.sub("\ufffd", text)


def _unreadable(error: OSError) -> None:
    raise InputError(f"cannot read {error.filename}: {error.strerror}") from error


def _cells(row: Json) -> Iterator[str]:
    """`column: cell` of each cell that is text and not empty."""
    for name, value in row.items():
        if isinstance(value, str) and value.strip():
            yield f"{name}: {' '.join(value.split())}" if name else " ".join(value.split())


def paragraphs(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """(number of the first line, text) of paragraphs: a blank line ends one. A heading (#) goes with the next.

    >>> list(paragraphs(iter(enumerate(["# Sea", "", "A ship", "sails.", "", "A whale."], 1))))
    [(1, 'Sea A ship sails.'), (6, 'A whale.')]
    """
    held: list[str] = []
    first, heading = 0, False
    for number, line in lines:
        words = line.split()
        if not words:
            if held and not heading:
                yield from ((first, part) for part in _parts(held))
                held = []
            continue
        heading = bool(words[0].strip("#") == "" and words[1:])
        if not held:
            first = number
        held.append(" ".join(words[1:] if heading else words))
    if held:
        yield from ((first, part) for part in _parts(held))


def _parts(lines: Sequence[str]) -> Iterator[str]:
    """A paragraph, split between sentences where it is long."""
    text = " ".join(lines)
    if len(text) <= LONGEST:
        yield text
        return
    held = ""
    for sentence in split_sentences(text):
        if held and len(held) + len(sentence) >= LONGEST:
            yield held
            held = ""
        held = f"{held} {sentence}".strip()
    if held:
        yield held

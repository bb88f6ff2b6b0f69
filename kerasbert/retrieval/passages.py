"""The texts of an index: read from a file or a list, and kept beside their vectors, each found by its number."""

import functools
import hashlib
import json
import os
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kerasbert.blanks import blank
from kerasbert.data import texts as reader
from kerasbert.data.sources import SURROGATES, TABLES, table_rows
from kerasbert.errors import InputError, near
from kerasbert.retrieval.documents import Folder
from kerasbert.retrieval.folder import TEXTS, damaged
from kerasbert.storage import steady
from kerasbert.storage.json_view import Json
from kerasbert.tasks.given import listed

PLACES = "places.npy"


class Passage(NamedTuple):
    """A text to find. `id` is its own name, or its line of the file (number of the list) as text."""

    id: str
    text: str


class Source:
    """Texts that are read anew by each iteration, those that hold nothing to read left out; they must be the same each time.

    Args:
        given: path of a file (text a line, or a table) or of a folder (`documents.Folder`), or a list of str
            (or what else `tasks.given.listed` takes).
        text_column, id_column: str, of a table; several names with commas between them are texts that are joined by a
            blank, unless the table has a column of that whole name.
        default: bool, whether the column may be called "text" too. keep_blank: bool, whether a text without anything to read is
            one too.

    Attributes:
        path: of the file or folder, None of a list. folder: the documents of a folder, else None.
        count: int, texts. digest: of texts and ids.
        blank: numbers, from 1, of texts without anything to read. left: columns that hold text and are not read.

    Raises:
        InputError: no such file or column, no text, an id that is absent or there twice.
    """

    def __init__(
        self,
        given: "str | os.PathLike | Iterable[object]",
        text_column: str = "text",
        id_column: str | None = None,
        *,
        default: bool = True,
        keep_blank: bool = False,
    ) -> None:
        self.path = os.fspath(given) if isinstance(given, str | os.PathLike) else None
        # a list of its own: what is read once alone, such as a generator, is counted first
        self.given = listed(given) if self.path is None else []
        self.text_column, self.id_column = text_column, id_column
        self.default, self.keep_blank = default, keep_blank
        self.folder = self._documents()
        self.count, self.blank, self.left = 0, list[int](), list[str]()
        self._seen = steady.Rows(self.path)
        self.digest = self._counted()
        if not self.count:
            raise InputError(f"{self.path or 'texts'} holds no text, expected at least one")

    def _documents(self) -> Folder | None:
        if self.path is None or not os.path.isdir(self.path):
            return None
        if self.id_column:
            raise InputError(f"{self.path} is a folder, whose ids are file:line: leave --id-column out")
        return Folder(self.path, None if self.default else self.text_column)

    def _counted(self) -> str:
        """Read all once; -> sha256 of what there is."""
        state, seen, id_column = hashlib.sha256(), set(), self.id_column
        for number, passage in enumerate(self._all(), 1):
            self._seen.note(passage)
            if blank(passage.text):
                self.blank.append(number)
                if not self.keep_blank:
                    continue
            self.count += 1
            if id_column and passage.id in seen:
                raise InputError(f"{self.path}: the id {passage.id!r:.80} is there twice, expected each once")
            if id_column:
                seen.add(passage.id)
            state.update(json.dumps(passage).encode())
        return state.hexdigest()

    def __iter__(self) -> Iterator[Passage]:
        return (passage for passage in self._seen.again(self._all()) if self.keep_blank or not blank(passage.text))

    def texts(self) -> Iterator[str]:
        """The texts alone."""
        return (passage.text for passage in self)

    def told(self) -> list[str]:
        """What a user cannot see in the texts."""
        lines = [] if self.folder is None else self.folder.told()
        if self.left:
            lines.append(f"columns that are not read: {', '.join(self.left)}. --text-column NAME,NAME joins several")
        if self.blank and not self.keep_blank:
            numbers = ", ".join(map(str, self.blank[:5])) + (", ..." if len(self.blank) > 5 else "")
            lines.append(f"{len(self.blank)} texts hold nothing to read and are left out: {numbers}")
        return lines

    @functools.cached_property
    def _columns(self) -> tuple[str, ...]:
        """The columns that `text_column` names."""
        whole, names = (self.text_column,), tuple(self.text_column.split(","))
        if self.path is None or len(names) == 1:
            return whole
        kind = reader.opened(self.path).kind
        if kind in TABLES and self.text_column in next((row for _, row in table_rows(self.path, kind, ())), {}):
            return whole
        if len(set(names)) < len(names):
            raise InputError(f"{self.text_column!r} names a column twice, expected each once")
        return names

    def _all(self) -> Iterator[Passage]:
        if self.path is None:
            for number, text in enumerate(self.given):
                if not isinstance(text, str):
                    raise InputError(f"text {number} is a {type(text).__name__}, expected str")
                yield Passage(str(number), SURROGATES.sub("\ufffd", text))
            return
        if self.folder is not None:
            yield from (Passage(*each) for each in self.folder)
            return
        opened = reader.opened(self.path, self._columns, default=reader.TEXT if self.default else ())
        if self.id_column and opened.kind not in TABLES:
            raise InputError(
                f"{self.path} is plain text, which has no column {self.id_column!r}: leave --id-column out"
            )
        if not self.default and opened.kind not in TABLES:
            raise InputError(
                f"{self.path} is plain text, which has no column {self.text_column!r}: leave --text-column out"
            )
        read = {*opened.columns, self.id_column, *self.left}
        for line, row, text in opened:
            for name, value in row.items():
                if name not in read and isinstance(value, str) and value:
                    read.add(name)
                    self.left.append(name)
            yield Passage(self._id(line, row), text if isinstance(text, str) else " ".join(filter(None, text)))

    def _id(self, line: int, row: Json) -> str:
        if not self.id_column:
            return str(line)
        if self.id_column not in row:
            raise InputError(f"{self.path}, line {line}: no column {self.id_column!r}. {near(self.id_column, row)}")
        value = row[self.id_column]
        if not isinstance(value, str | int) or isinstance(value, bool) or not str(value).strip():
            raise InputError(f"{self.path}, line {line}: column {self.id_column!r} holds {value!r:.40}, expected an id")
        return SURROGATES.sub("\ufffd", str(value))


def write(folder: Path, passages: Iterable[Passage]) -> None:
    """Keep texts: a json line each, and where each line begins."""
    places, place = array("Q", [0]), 0
    with open(folder / TEXTS, "wb") as file:
        for passage in passages:
            line = json.dumps(passage, ensure_ascii=False).encode() + b"\n"
            file.write(line)
            place += len(line)
            places.append(place)
    np.save(folder / PLACES, np.array(places, "<u8"))


def mapped(folder: Path, name: str) -> np.ndarray:
    """An array of an index, read where it lies.

    Raises:
        InputError: there is none, or no whole one.
    """
    try:
        return np.load(folder / name, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise damaged(folder, f"{name} is missing") from error
    except (OSError, ValueError, EOFError) as error:  # numpy's words are of pickles and mappings
        raise damaged(folder, name) from error


class Kept:
    """Texts that `write` has kept. Args: folder: of an index. count: int, how many there must be."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.places = folder, mapped(folder, PLACES)
        try:  # mapped as the vectors are: a folder that is built again has another file of this name
            self._texts = np.memmap(folder / TEXTS, np.uint8, "r")
        except FileNotFoundError as error:
            raise damaged(folder, f"{TEXTS} is missing") from error
        except (OSError, ValueError) as error:  # ValueError: it is empty
            raise damaged(folder, TEXTS) from error
        if self.places.shape != (count + 1,) or int(self.places[-1]) != len(self._texts):
            raise damaged(folder, f"{TEXTS} and {PLACES} do not fit")

    def ids(self) -> Iterator[str]:
        """The ids of all texts, in their order."""
        return (self[number].id for number in range(len(self.places) - 1))

    def __getitem__(self, number: int) -> Passage:
        start, end = (int(place) for place in self.places[number : number + 2])
        if not 0 <= start < end <= int(self.places[-1]):
            raise damaged(self.folder, PLACES)
        return self._passage(self._texts[start:end].tobytes())

    def _passage(self, line: bytes) -> Passage:
        try:
            name, text = json.loads(line)
        except (ValueError, TypeError) as error:  # UTF-8 and json
            raise damaged(self.folder, TEXTS) from error
        return Passage(name, text)

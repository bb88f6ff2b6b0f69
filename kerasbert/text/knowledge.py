"""A knowledge graph for K-BERT (Liu et al., 2019, "Knowledge layer"): triples by their subject. Standard library only.

A `.spo` file has a triple a line, UTF-8: subject, predicate, object, with tabs between them. Beside a tokenizer, and so in a
model directory and in a .tflite's bundle, stands `knowledge.bin`: a line that says what it is, where each subject and each row of
branches ends (uint32, little endian), the subjects, ascending by code points, and the rows. Nothing is parsed at the launch of a
phone; a string is made when a text asks for it.
"""

import array
import functools
import hashlib
import itertools
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kerasbert.errors import InputError
from kerasbert.text.base import KNOWLEDGE
from kerasbert.text.lexicon import LEAST, SortedLexicon, Strings

if TYPE_CHECKING:
    from kerasbert.text.base import Tokenizer
    from kerasbert.text.in_memory import InMemory

NAME = KNOWLEDGE
FORMAT = "kerasbert knowledge 1"
HEAD = re.compile(rb"kerasbert knowledge 1 (\d{1,2}) (\d{1,9}) (\d{1,10})\n")
DAMAGED = f"{NAME} is damaged: write the model or the file again"
BRANCHES = 2  # of an entity: the paper's n, MAX_ENTITIES of the released code
MOST_BRANCHES = 64
MOST_BYTES = 1 << 30  # of a .spo file; a bundle holds 64 MB
LONGEST = 1000  # characters of a subject, a predicate or an object


class Triple(NamedTuple):
    """A fact: "Tim Cook", "CEO", "Apple"."""

    subject: str
    predicate: str
    object: str


class KnowledgeGraph:
    """Triples, found by their subjects in a text.

    Of a subject the first `branches` different triples count, in the order of the file: at most n of them are inserted.
    Differs: the released code keeps them in a set of Python's, whose order is another in each process, and it cuts the text into
    words by a trained segmenter (pkuseg), of which those that are subjects are entities (autoliuweijie/K-BERT,
    brain/knowgraph.py). Here a subject is found by forward maximum matching, wherever it stands: the longest, from left to right.
    As with `predicate=True` there, a branch is the predicate and the object.

    Args:
        triples: (subject, predicate, object). branches: int, n.

    Attributes:
        subjects: Strings, ascending. rows: Strings, the branches of each: predicate, tab, object, tab, predicate, ...
        branches: int, n. unseen: int, triples whose subject is of one character, which no text is searched for.

    >>> graph = KnowledgeGraph([("Tim Cook", "CEO", "Apple"), ("Beijing", "capital", "China")])
    >>> [graph.triples(number) for _, _, number in graph("Tim Cook is in Beijing")][1]
    [Triple(subject='Beijing', predicate='capital', object='China')]
    """

    def __init__(self, triples: Iterable[Sequence[str]] = (), branches: int = BRANCHES) -> None:
        if type(branches) is not int or not 0 < branches <= MOST_BRANCHES:
            raise InputError(f"branches must be 1 to {MOST_BRANCHES}, of an entity. Received: {branches!r}")
        found: dict[str, dict[str, None]] = {}
        self.unseen = 0
        for number, triple in enumerate(triples, 1):
            subject, *fact = checked(triple, f"triple {number}")
            self.unseen += len(subject) < LEAST
            if len(subject) >= LEAST:
                found.setdefault(subject, {})["\t".join(fact)] = None
        subjects = sorted(found)
        rows = ("\t".join(itertools.islice(found[subject], branches)) for subject in subjects)
        self._take(Strings.of(subjects), Strings.of(rows), branches)

    def _take(self, subjects: Strings, rows: Strings, branches: int) -> None:
        self.subjects, self.rows, self.branches = subjects, rows, branches
        self.lexicon = SortedLexicon(subjects)

    @classmethod
    def read(cls, path: str | os.PathLike, branches: int = BRANCHES) -> "KnowledgeGraph":
        """The graph of a .spo file. An empty file is a graph without triples.

        Raises:
            InputError: a file that is not there, not UTF-8 or too large, a line without three columns; with file and line.
        """
        try:
            if (size := Path(path).stat().st_size) > MOST_BYTES:
                raise InputError(f"{path} has {size} bytes, expected at most {MOST_BYTES}: take fewer triples")
            content = Path(path).read_bytes()
        except OSError as error:
            raise InputError(
                f"cannot read the graph {path}: {error.strerror}. Expected a file of triples (.spo)"
            ) from None
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise InputError(
                f"{path}, line {line} is not UTF-8 (byte {error.start} of the file): save it as UTF-8"
            ) from None
        lines = ((line, number) for number, line in enumerate(text.split("\n"), 1) if line.strip(" \r"))
        return cls((checked(line.split("\t"), f"{path}, line {number}") for line, number in lines), branches)

    def __call__(self, text: str) -> list[tuple[int, int, int]]:
        """(begin, end, number of the subject) of each entity in a text."""
        return self.lexicon(text)

    def __len__(self) -> int:
        """How many triples there are."""
        return sum(row.count("\t") + 1 for row in self.rows) // 2

    def told(self) -> list[str]:
        """What a user should know of it, a line each."""
        lines = [f"graph: {len(self)} triples of {len(self.subjects)} entities, at most {self.branches} of each"]
        many = f"{self.unseen} triples of entities of one character are left out: texts are not searched for them"
        return [*lines, *([f"graph: {many}"] if self.unseen else [])]

    def triples(self, number: int) -> list[Triple]:
        """The triples of a subject, at most n.

        Raises:
            InputError: the row of a damaged file.
        """
        try:
            cells = self.rows[number].split("\t")
        except UnicodeDecodeError:
            cells = []
        if not cells or len(cells) % 2 or len(cells) > 2 * self.branches or max(map(len, cells)) > LONGEST:
            raise InputError(DAMAGED)
        return [Triple(self.subjects[number], *pair) for pair in zip(cells[::2], cells[1::2])]

    def to_bytes(self) -> bytes:
        """`knowledge.bin`: the same triples give the same bytes."""
        head = f"{FORMAT} {self.branches} {len(self.subjects)} {len(self.subjects.content)}\n".encode()
        ends = [_little(array.array("I", each.ends)).tobytes() for each in (self.subjects, self.rows)]
        return b"".join([head, *ends, self.subjects.content, self.rows.content])

    @functools.cached_property
    def digest(self) -> str:
        """sha256 of what is kept."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def from_bytes(cls, content: bytes) -> "KnowledgeGraph":
        """The inverse of `to_bytes`.

        Raises:
            InputError: another file, or one whose sizes are not those that it says.
        """
        head = HEAD.match(content)
        branches, count, size = map(int, head.groups()) if head else (0, 0, 0)
        if head is None or not 0 < branches <= MOST_BRANCHES or head.end() + 8 * count + size > len(content):
            raise InputError(DAMAGED)
        view, at = memoryview(content), head.end()
        parts = []
        for _ in range(2):
            ends = array.array("I")
            ends.frombytes(view[at : at + 4 * count])
            parts.append(_little(ends))
            at += 4 * count
        subjects, rows = Strings(view[at : at + size], parts[0]), Strings(view[at + size :], parts[1])
        if any((each.ends[-1] if count else 0) != len(each.content) for each in (subjects, rows)):
            raise InputError(DAMAGED)
        graph = cls.__new__(cls)
        graph.unseen = 0
        graph._take(subjects, rows, branches)
        return graph


def _little(numbers: array.array) -> array.array:
    """uint32 as a file has them, or of a file."""
    if sys.byteorder == "little":
        return numbers
    other = numbers[:]
    other.byteswap()
    return other


def checked(cells: Sequence[str], where: str) -> list[str]:
    """A triple without blanks around its parts.

    Raises:
        InputError: another number of parts, an empty one, one that is too long or holds a tab or a line feed.
    """
    cells = [cell.strip() for cell in cells]
    if len(cells) != len(Triple._fields):
        columns = f"{len(cells)} column{'s' * (len(cells) != 1)}"
        raise InputError(
            f"{where} has {columns}, expected {len(Triple._fields)}: subject, predicate, object with tabs between"
        )
    if not all(cells):
        raise InputError(f"{where} has an empty {Triple._fields[cells.index('')]}. Mend it, or take it out")
    longest = max(cells, key=len)
    if len(longest) > LONGEST or any("\t" in cell or "\n" in cell for cell in cells):
        raise InputError(
            f"{where} has a part of {len(longest)} characters, {longest[:20]!r}..., expected at most {LONGEST} without tabs and "
            "line feeds"
        )
    return cells


def graph_of(source: str | os.PathLike | KnowledgeGraph) -> KnowledgeGraph:
    """The graph of a .spo file, or the graph itself; a file that a command has checked is not parsed again by what it calls."""
    if isinstance(source, KnowledgeGraph):
        return source
    try:
        at = os.stat(source)
    except OSError:
        return KnowledgeGraph.read(source)  # which says what is wrong
    return _parsed(os.fspath(source), at.st_ino, at.st_size, at.st_mtime_ns)


@functools.lru_cache(maxsize=1)
def _parsed(path: str, *state: int) -> KnowledgeGraph:
    """The graph of a file in a state."""
    return KnowledgeGraph.read(path)


def held(folder: "Path | InMemory") -> KnowledgeGraph | None:
    """The graph beside a tokenizer's files, in a Path or in `in_memory.InMemory`; None where there is none."""
    file = folder / NAME
    return KnowledgeGraph.from_bytes(file.read_bytes()) if file.is_file() else None


def save(tokenizer: "Tokenizer", directory: str | os.PathLike) -> None:
    """Write a tokenizer's files, and the graph beside them."""
    tokenizer.save(directory)
    if tokenizer.knowledge is not None:
        (Path(directory) / NAME).write_bytes(tokenizer.knowledge.graph.to_bytes())

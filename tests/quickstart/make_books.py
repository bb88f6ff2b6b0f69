"""Make the books of kerasbert/quickstart/books from plain-text editions of five novels.

    python -m tests.quickstart.make_books FOLDER

FOLDER holds the novels as they come (hard-wrapped, a blank line between paragraphs). Of each, every nth chapter is
taken, the long ones cut, 200 kB in all, without front matter, headings and lines in capitals. What tells editions apart
rather than authors is made equal: curly quotes, dashes, marks of italics.
"""

import bisect
import itertools
import re
import sys
from pathlib import Path

from kerasbert.storage.files import write_atomic

BYTES = 200_000
# file, source, pattern of a chapter's heading, every nth chapter
BOOKS = (
    ("austen", "pride_and_prejudice", r"Chapter \d+", 3),
    ("carroll", "alice_in_wonderland", r"CHAPTER [IVX]+\. .+", 1),
    ("dickens", "tale_of_two_cities", r"[IVX]+\. .+", 3),
    ("doyle", "sherlock_holmes", r"(ADVENTURE )?[IVX]+\. [A-Z' -]+", 1),
    ("melville", "moby_dick", r"CHAPTER \d+\. .+", 5),
)
# Carroll's edition has speech in single quotes
EQUAL = (
    ("[\u201c\u201d\u2018]|(?<=[.,;:!?\u2014-])\u2019", '"'),
    ("\u2019", "'"),
    ("\u2014|--+", " -- "),
    ("[_*]|\\[|\\]", ""),
    (r"\s+", " "),
)
ABBREVIATIONS = ("Mr", "Mrs", "Ms", "Dr", "St", "Col", "Capt", "Rev", "Esq", "Messrs", "No", "viz", "vol", "Hon", "Gen")
END = re.compile(r"(?<=[.!?])(['\")]*)\s+(?=['\"(]*[A-Z])")


def chapters(text: str, heading: str) -> list[list[str]]:
    """The chapters, each a list of paragraphs of one line; what stands before the first heading is left out."""
    found: list[list[str]] = []
    first = ""
    for paragraph in re.split(r"\n\s*\n", text.replace("\r", "")):
        line = " ".join(paragraph.split())
        if re.fullmatch(heading, line):
            if line == first:  # again: what stood before was the table of contents
                found = []
            first = first or line
            found.append([])
        elif found and line and re.search(r"[a-z]", line):
            found[-1].append(line)
    return found


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph; abbreviations and initials end none."""
    for old, new in EQUAL:
        paragraph = re.sub(old, new, paragraph)
    paragraph = paragraph.strip()
    found, begin = [], 0
    for match in END.finditer(paragraph):
        last = re.search(r"(\w+)\.$", paragraph[begin : match.start()])
        if last and (last[1] in ABBREVIATIONS or re.fullmatch(r"[A-Z]", last[1])):
            continue
        found.append(paragraph[begin : match.end(1)])
        begin = match.end()
    return [*found, paragraph[begin:]]


def cut(lines: list[str], limit: int) -> list[str]:
    """The first lines, as many as take at most `limit` bytes."""
    ends = itertools.accumulate(len(line.encode()) + 1 for line in lines)
    return [line for line, end in zip(lines, ends) if end <= limit]


def size(book: list[list[str]]) -> int:
    """Bytes of a book's file."""
    return sum(len(line.encode()) + 1 for chapter in book for line in chapter) + len(book) - 1


def main(folder: str) -> None:
    """Write the files and say how large they are."""
    books = Path(__file__).resolve().parents[2] / "kerasbert/quickstart/books"
    for name, source, heading, every in BOOKS:
        text = (Path(folder) / f"{source}.txt").read_text(encoding="utf-8")
        book = [[line for part in chapter for line in sentences(part)] for chapter in chapters(text, heading)[::every]]
        limit = (
            bisect.bisect(range(BYTES), BYTES, key=lambda limit: size([cut(chapter, limit) for chapter in book])) - 1
        )
        book = [cut(chapter, limit) for chapter in book]
        write_atomic(books / f"{name}.txt", "\n\n".join("\n".join(chapter) for chapter in book) + "\n")
        print(
            f"{name}: {len(book)} chapters of at most {limit} bytes, {size(book)} bytes, {sum(map(len, book))} sentences"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The text of the quickstart: five novels, cut into chapters that are learned from and chapters that are kept apart."""

import hashlib
from importlib import resources
from pathlib import Path

from kerasbert.storage import files

AUTHORS = {"austen": "Austen", "carroll": "Carroll", "dickens": "Dickens", "doyle": "Doyle", "melville": "Melville"}
TEST_EVERY = 4  # of four chapters, the third is for the test
SHORTEST = 6  # words: nobody can say who wrote `"Precisely."`


def chapters(author: str) -> list[list[str]]:
    """The chapters of an author's book, each a list of sentences."""
    text = (resources.files("kerasbert.quickstart") / "books" / f"{author}.txt").read_text(encoding="utf-8")
    return [chapter.splitlines() for chapter in text.strip().split("\n\n")]


def split(author: str) -> dict[str, list[list[str]]]:
    """{"train", "test"} -> chapters; no chapter is in both."""
    parts: dict[str, list[list[str]]] = {"train": [], "test": []}
    for number, chapter in enumerate(chapters(author), 1):
        parts["test" if number % TEST_EVERY == 3 else "train"].append(chapter)
    return parts


def digest() -> str:
    """sha256 of all books."""
    found = hashlib.sha256()
    for author in AUTHORS:
        found.update("\n\n".join("\n".join(chapter) for chapter in chapters(author)).encode())
    return found.hexdigest()


def write(folder: Path) -> dict[str, int]:
    """Write train.txt and test.txt for pretraining and train.tsv and test.tsv (text, author) for the task.

    Returns:
        the number of sentences in each tsv file.
    """
    parts = {author: split(author) for author in AUTHORS}
    counts = {}
    for name in ("train", "test"):
        documents = ["\n".join(chapter) for author in AUTHORS for chapter in parts[author][name]]
        files.write_atomic(folder / f"{name}.txt", "\n\n".join(documents) + "\n")
        rows = [
            (line, label)
            for author, label in AUTHORS.items()
            for chapter in parts[author][name]
            for line in chapter
            if len(line.split()) >= SHORTEST
        ]
        files.write_atomic(
            folder / f"{name}.tsv", "text\tauthor\n" + "".join(f"{line}\t{label}\n" for line, label in rows)
        )
        counts[name] = len(rows)
    return counts

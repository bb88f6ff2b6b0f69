"""A tiny world made in a second: a vocabulary, a corpus, records, labelled texts."""

import csv
import functools
import random
from pathlib import Path

from kerasbert import text
from kerasbert.data import Records, write_records
from kerasbert.text.knowledge import KnowledgeGraph

WORDS = "the cat dog sees runs happy sad film good bad very old new house river stone".split()
SPEC = {
    "hidden": 16,
    "attention.heads": 2,
    "feedforward.width": 24,
    "blocks.layers": 2,
    "embeddings.positions": 32,
}
GOOD, BAD = ("good", "happy", "new"), ("bad", "sad", "old")


def tokenizer() -> text.WordPiece:
    """WordPiece over WORDS and letters."""
    letters = [*"abcdefghijklmnopqrstuvwxyz.,"]
    pieces = [*"[PAD] [UNK] [CLS] [SEP] [MASK]".split(), *WORDS, *letters, *(f"##{letter}" for letter in letters[:26])]
    return text.WordPiece(pieces)


def knowledge() -> KnowledgeGraph:
    """Triples of WORDS: some of a sentence's pairs of words are entities."""
    said = [
        ("happy cat", "sees", "good river"),
        ("sad dog", "sees", "very bad"),
        ("old house", "sees", "stone"),
        ("film", "sees", "new"),
    ]
    return KnowledgeGraph([*said, ("very old", "sees", "the river"), ("happy cat", "runs", "house")])


def sentences(count: int, seed: int) -> list[str]:
    """Sentences of 3 to 9 words."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 9))) for _ in range(count)]


def corpus(path: Path, documents: int = 30, seed: int = 0) -> Path:
    """A text file; blank lines between documents."""
    lines = sentences(documents * 8, seed)
    path.write_text("\n\n".join("\n".join(lines[i : i + 8]) for i in range(0, len(lines), 8)) + "\n", "utf-8")
    return path


def records(folder: Path, packing: str = "pairs") -> Path:
    """Records of 24 tokens."""
    out = folder / f"records-{packing}"
    write_records([corpus(folder / "corpus.txt")], tokenizer(), out, length=24, packing=packing)
    return out


@functools.cache
def first_batch(directory: str, size: int) -> dict:
    """The first batch of records; to build the pipeline that gives it costs a tenth of all checks of a family."""
    return dict(next(iter(Records(directory).dataset(size, seed=0))))


def labelled(path: Path, count: int = 120, seed: int = 0) -> Path:
    """A tsv of `text` and `label` (pos, neg), told apart by one word."""
    draw = random.Random(seed)
    rows = ["text\tlabel"]
    for i, line in enumerate(sentences(count, seed)):
        kept = [word for word in line.split() if word not in GOOD + BAD] or ["film"]
        kept.insert(draw.randint(0, len(kept)), draw.choice(GOOD if i % 2 else BAD))
        rows.append(f"{' '.join(kept)}\t{'pos' if i % 2 else 'neg'}")
    path.write_text("\n".join(rows) + "\n", "utf-8")
    return path


def first_column(path: Path, most: int = 64) -> list[str]:
    """The first texts of a tsv with a header."""
    with open(path, encoding="utf-8", newline="") as rows:
        return [row[0] for row in csv.reader(rows, delimiter="\t", quoting=csv.QUOTE_NONE)][1 : most + 1]

"""A small generated corpus and its tokenizer: every word is one token."""

import random

from kerasbert.text import WordPiece

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"w{number}" for number in range(200)]


def tokenizer(**settings) -> WordPiece:
    """A tokenizer whose word w0 is id 5, w1 is id 6, ..."""
    return WordPiece(SPECIALS + WORDS, **settings)


def documents(count: int, *, seed: int = 0, segments: tuple[int, int] = (2, 12), words: tuple[int, int] = (3, 14)):
    """Documents with a first segment of their own, so that no two are the same."""
    rng = random.Random(seed)
    for number in range(count):
        segment = [f"w{number % 200}", f"w{number // 200}"]
        document = [" ".join(segment)]
        for _ in range(rng.randint(*segments)):
            document.append(" ".join(rng.choice(WORDS) for _ in range(rng.randint(*words))))
        yield document


def write(path, docs) -> str:
    """A text file with a blank line between documents."""
    path.write_text("\n\n".join("\n".join(document) for document in docs) + "\n", encoding="utf-8")
    return str(path)

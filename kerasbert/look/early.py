"""What `kerasbert look` is asked, read and refused before TensorFlow is imported."""

import os
import re

from kerasbert.data.reading import numbered_lines
from kerasbert.errors import InputError

MOST = 24  # sentences: cells of a matrix that can be told apart at 400 pixels
WORD = "bank"
SHIPPED = {
    "bank": (
        "she paid the money into the bank on monday",
        "the bank raised the interest on every loan",
        "he asked the bank for a loan to buy a house",
        "they sat on the bank of the river and fished",
        "the boat was tied to the bank under the trees",
        "after the flood the bank of the river was all mud",
    ),
    "apple": (
        "she ate an apple and gave me a pear",
        "an apple fell from the old tree",
        "he baked a cake with a sour apple in it",
        "apple sold more phones than last year",
        "the shares of apple rose after the news",
        "apple showed a new computer at its store",
    ),
}


def asked(word: str | None, sentences: str | os.PathLike | None) -> tuple[str, tuple[str, ...]]:
    """The word and the sentences that hold it; of `SHIPPED` where no file is given.

    Args:
        sentences: a file with a sentence a line.

    Raises:
        InputError: a file without a word, another word without a file, an unreadable or empty file, fewer than 3 sentences
            with the word, or too many.
    """
    if sentences is None and (word or WORD) in SHIPPED:
        return word or WORD, SHIPPED[word or WORD]
    if word is None or sentences is None:
        known = " or ".join(SHIPPED)
        raise InputError(
            f"--word and --sentences FILE go together: a word, and a file of sentences that hold it. {known} has sentences that "
            "ship"
        )
    if not word.strip():
        raise InputError("--word is blank, expected a word of the sentences")
    lines = [line.strip() for _, line in numbered_lines(sentences) if line.strip()]
    if not lines:
        raise InputError(f"{sentences} has no sentence, expected one a line")
    held = tuple(line for line in lines if place(word, line))
    if len(held) < 3:
        raise InputError(
            f"{len(held)} of {len(lines)} sentences of {sentences} hold the word {word!r}, expected 3 or more"
        )
    if len(held) > MOST:
        raise InputError(f"{len(held)} sentences of {sentences} hold the word {word!r}, expected at most {MOST}")
    return word, held


def check_surface(run: str) -> None:
    """Refuse a model around which no loss can be drawn.

    Raises:
        InputError: a folder that is no fine-tuned run, or one whose rows are gone or others.
    """
    from kerasbert.training import runs

    described = runs.description_of(run) if os.path.isdir(run) else None
    if described is None or described.get("kind") != "finetune":
        raise InputError(f"--surface draws the loss of a fine-tuned run on its dev rows, and {run} is none")
    if not runs.data_of(run):
        raise InputError(
            f"--surface needs the rows that {run} was trained with: they are gone, were changed, or lay in memory"
        )


def place(word: str, sentence: str) -> tuple[int, int] | None:
    """The characters of the word's first occurrence as a whole word, whatever its case.

    >>> place("bank", "Bankers own a Bank")
    (14, 18)
    """
    found = re.search(rf"(?<!\w){re.escape(word.strip())}(?!\w)", sentence, re.IGNORECASE)
    return found.span() if found else None

"""What `kerasbert look` is asked, read and refused before TensorFlow is imported."""

import os
import re
import unicodedata

from kerasbert.data.dialects import say
from kerasbert.data.texts import read
from kerasbert.errors import InputError

MOST = 24  # sentences: cells of a matrix that can be told apart at 400 pixels
LEAST = 3
WORD = "bank"
SPACELESS = re.compile(  # scripts that set no blanks between words: of South-East Asia, kana, ideographs
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
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
        sentences: a file with a sentence a line, or a table with a column `text`. What of it is not drawn is said.

    Raises:
        InputError: a file without a word, another word without a file, an unreadable or empty file, fewer than 3 sentences
            with the word.
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
    word = unicodedata.normalize("NFC", word.strip())
    lines = [unicodedata.normalize("NFC", " ".join(line.split())) for line in read(sentences)]
    held = [line for line in lines if place(word, line)]
    if len(held) < LEAST:
        raise InputError(
            f"{len(held)} of {len(lines)} sentences of {sentences} hold the word {word!r}, expected {LEAST} or more"
        )
    if len(held) < len(lines) or len(held) > MOST:
        drawn = f", the first {MOST} are drawn" if len(held) > MOST else ""
        say(f"{len(held)} of {len(lines)} sentences of {sentences} hold the word {word!r}{drawn}")
    return word, tuple(held[:MOST])


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
    """The characters of the word's first occurrence as a whole word, whatever its case; of a script without blanks anywhere.

    >>> place("bank", "Bankers own a Bank"), place("\u94f6\u884c", "\u53bb\u94f6\u884c\u5427")
    ((14, 18), (1, 3))
    """
    word = word.strip()
    for found in re.finditer(re.escape(word), sentence, re.IGNORECASE):
        start, end = found.span()
        if not (_joined(word[0], sentence[:start][-1:]) or _joined(word[-1], sentence[end:][:1])):
            return start, end
    return None


def _joined(edge: str, beside: str) -> bool:
    """Whether the character beside the edge of a word is of the same word."""
    if not beside or SPACELESS.search(edge + beside):
        return False
    return beside == "_" or unicodedata.category(beside)[0] in "LMN"

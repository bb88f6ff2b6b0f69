"""A second language that ships with no text of its own: the same text in other letters (Fake-English of K et al., 2020)."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from kerasbert.data import read_documents
from kerasbert.errors import InputError
from kerasbert.storage import files
from kerasbert.text.normalize import Normalizer

KINDS = ("letters", "script")
LETTERS = range(0xA000, 0xA48D)  # of the other script, Yi: none has a case or a mark
APART = range(0x3400, 0x4DC0)  # ideographs: words of one character, as punctuation is
NORMAL = Normalizer(lowercase=True, strip_accents=True, split_cjk=True)  # of the lab's vocabulary


def words(text: str) -> str:
    """The text as the lab's tokenizer reads it, a blank between words: without capitals and accents."""
    return " ".join(word for word, _ in NORMAL.words(text))


def characters(texts: Iterable[str]) -> set[str]:
    """What the words of texts are written with."""
    return {kept for character in set().union(*texts) for kept in NORMAL[character]} - {" "}


def alphabet(texts: Iterable[str], kind: str) -> dict[int, str]:
    """Character -> the one in its place, for `str.translate`: one to one, and words stay words.

    letters: each half of the letters for the other half; digits and punctuation stay. script: no character stays.

    Args:
        texts: all that will be translated.
        kind: of KINDS.

    Raises:
        InputError: the other script has fewer letters.

    >>> words("The cat.").translate(alphabet(["abcdefghijklmnopqrstuvwxyz"], "letters"))
    'gur png .'
    """
    used = sorted(characters(texts))
    apart = [character for character in used if NORMAL[character][:1] == " "]
    found: dict[int, str] = {}
    for old, room in ((apart, APART), (sorted(set(used) - set(apart)), LETTERS)):
        if kind == "letters":
            old = [character for character in old if character.isalpha()]
            new = old[len(old) // 2 :] + old[: len(old) // 2]
        else:
            new = [chr(code) for code in room if chr(code) not in used]
        if len(new) < len(old):
            raise InputError(
                f"the text has {len(old):,} characters, and the other script {len(new):,} to put in their place"
            )
        found |= {ord(one): other for one, other in zip(old, new)}
    return found


def write(folder: Path, corpus: Path, rows: Path, kind: str) -> None:
    """Write what is needed of a second language: no document is pretrained on in both.

    Args:
        folder: for whole.txt, the corpus in it, which the vocabulary is learned of; text.txt, which is pretrained on: the first,
            third ... document as they are, then the others in the second language; and the rows in it, under their file's name.
        rows: a tsv of a text and a label, which stays.
    """
    documents = list(read_documents([corpus]))
    header, *lines = rows.read_text("utf-8").splitlines()
    pairs = [line.split("\t") for line in lines]
    table = alphabet([*chain.from_iterable(documents), *(text for text, _ in pairs)], kind)
    second = [[words(line).translate(table) for line in document] for document in documents]
    for name, each in (("whole", second), ("text", [*documents[::2], *second[1::2]])):
        files.write_atomic(folder / f"{name}.txt", "\n\n".join("\n".join(lines) for lines in each) + "\n")
    translated = "".join(f"{words(text).translate(table)}\t{label}\n" for text, label in pairs)
    files.write_atomic(folder / rows.name, f"{header}\n{translated}")

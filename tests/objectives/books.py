"""The quickstart's books as records, with a small vocabulary that cuts many words into pieces."""

import functools
import re
from collections import Counter
from pathlib import Path

from kerasbert.data import Records, write_records
from kerasbert.quickstart import books
from kerasbert.text import WordPiece
from kerasbert.text.base import Tokenizer
from kerasbert.text.characters import CharacterWords, train_characters

AUTHORS = ("carroll", "doyle")


@functools.cache
def tokenizer() -> WordPiece:
    """The 600 commonest words of the books, the 200 commonest ends of three letters, and letters."""
    found = re.findall("[a-z]+", " ".join(line for a in AUTHORS for c in books.chapters(a) for line in c).lower())
    words = [word for word, _ in Counter(found).most_common(600) if len(word) > 1]
    ends = [f"##{end}" for end, _ in Counter(word[-3:] for word in found if len(word) > 4).most_common(200)]
    letters = [*"abcdefghijklmnopqrstuvwxyz"]
    signs = [*".,;:!?'\"-()0123456789"]
    pieces = [*"[PAD] [UNK] [CLS] [SEP] [MASK]".split(), *words, *ends, *letters, *(f"##{c}" for c in letters), *signs]
    return WordPiece(pieces)


@functools.cache
def words() -> CharacterWords:
    """Of the 1,000 commonest words of the books."""
    return train_characters((line for a in AUTHORS for chapter in books.chapters(a) for line in chapter), 1000)


def records(
    folder: Path,
    packing: str,
    length: int = 64,
    chapters: int | None = None,
    sentinels: int = 0,
    known: Tokenizer | None = None,
    **settings,
) -> Records:
    """Records of two books, or of their first chapters; a chapter is a document."""
    known, kind = known or tokenizer(), [] if known is None else [known.kind]
    known = known.extended([f"<extra_id_{i}>" for i in reversed(range(sentinels))]) if sentinels else known
    files = []
    for author in AUTHORS:
        files.append(folder / f"{author}.txt")
        files[-1].write_text("\n\n".join("\n".join(chapter) for chapter in books.chapters(author)[:chapters]) + "\n")
    sizes = [str(length)] * (length != 64) + [str(sentinels)] * bool(sentinels)
    out = folder / "-".join(["records", packing, *kind, *sizes, *settings])
    return write_records(files, known, out, length=length, packing=packing, **settings)

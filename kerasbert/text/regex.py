r"""MediaPipe's `regex` tokenizer in pure Python: words are what [^\w\']+ leaves, each a row of the vocabulary."""

from collections.abc import Iterable

from kerasbert.errors import InputError
from kerasbert.text.split import WORD
from kerasbert.text.whole_words import WholeWords, commonest

PAD, START, UNKNOWN = "<PAD>", "<START>", "<UNKNOWN>"
SPECIALS = {"pad": PAD, "unk": UNKNOWN, "cls": START, "sep": START}
TEMPLATE = (f"{START} $A", f"{START} $A {START} $B")


class RegexWords(WholeWords):
    r"""Whole words, as MediaPipe's TextClassifier reads them (measured with 1.2.2).

    A word is a run of ASCII letters, digits, _ and '; everything else parts words, letters with accents too. Nothing is
    lower-cased. A text begins with <START>; a word without a row is <UNKNOWN>.

    Args:
        vocabulary: words by id; holds <PAD>, <START> and <UNKNOWN>.
    Raises:
        InputError: a special token is missing, a word occurs twice or holds a blank.

    >>> tokenizer = RegexWords([PAD, START, UNKNOWN, "terribl", "film", "don't"])
    >>> tokenizer.pack("terriblé film, don't Film")[0]
    [1, 3, 4, 5, 2]
    """

    kind = "regex"
    about = (SPECIALS, TEMPLATE)
    lines = r"words of [\w'] alone"

    def line(self, number: int, word: str) -> str:
        """MediaPipe's: `word id`."""
        return f"{word} {number}"

    def encode_plain(self, text: str) -> list[int]:
        """Ids of a text."""
        ids, unknown = self._ids, self.unk_id
        return [ids.get(word, unknown) for word in WORD.findall(text)]

    def tokenize_plain(self, text: str, first: bool) -> tuple[list[int], list[int], list[int]]:
        """Ids, starts and ends of a text."""
        spans = [match.span() for match in WORD.finditer(text)]
        return self.encode_plain(text), [start for start, _ in spans], [end for _, end in spans]


def read_vocabulary(text: str, file: object) -> list[str]:
    """The words of a `vocab.txt`: `word id` a line, the ids 0, 1, ... in any order.

    Raises:
        InputError: a line of another form, an id that is missing or occurs twice; file and line.
    """
    words: dict[int, str] = {}
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        word, blank, spelled = line.rpartition(" ")
        if not blank or not (spelled.isascii() and spelled.isdecimal() and len(spelled) < 10) or int(spelled) in words:
            raise InputError(f"{file}, line {number}: {line[:60]!r} is not a word, a blank and an id of its own")
        words[int(spelled)] = word
    if set(words) != set(range(len(words))):
        raise InputError(f"{file}: {len(words)} ids up to {max(words)}, expected each from 0 on once")
    return [words[number] for number in range(len(words))]


def train_regex(text: Iterable[str], size: int, *, lowercase: bool = False) -> RegexWords:
    """The commonest words of a text, equal ones by the alphabet.

    Args:
        text: lines.
        size: int, words at most, the special ones among them.
        lowercase: bool; must be False: nothing lower-cases a text for MediaPipe.

    Raises:
        InputError: lowercase, a size too small, no words.
    """
    if lowercase:
        raise InputError("--lowercase with --kind regex, which reads a text as it is: leave it out")
    if size < 4:
        raise InputError(f"size is {size}, expected at least 4: <PAD>, <START>, <UNKNOWN> and words")
    return RegexWords(commonest((word for line in text for word in WORD.findall(line)), (PAD, START, UNKNOWN), size))

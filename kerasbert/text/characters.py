"""ELMo's tokens in pure Python: a token is a word, and a word is 50 numbers made of its UTF-8 bytes.

The numbers are those of AllenNLP's ELMoCharacterMapper: a byte b is b + 1, 0 is padding behind a text. Words are split by
`words.split_words`, the same here, in the graph (`characters_graph`) and on the phone. The vocabulary is what a language model
predicts; the network reads the bytes, so that words outside of it are no less known to it.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Self

from kerasbert import inputs
from kerasbert.errors import InputError
from kerasbert.inputs import WORD, Input, Tensor
from kerasbert.text.base import Cache, Tokens
from kerasbert.text.whole_words import WholeWords, commonest
from kerasbert.text.words import split_words

if TYPE_CHECKING:
    import numpy as np


ROWS = 261  # bytes, the five below
SENTENCE_BEGIN, SENTENCE_END, WORD_BEGIN, WORD_END, FILLING = range(257, 262)
MOST = WORD - 2  # bytes of a word; of a longer one its first are read, as AllenNLP does
PAD, UNKNOWN, BEGIN, END = "<PAD>", "<UNK>", "<S>", "</S>"
SPECIALS = {"pad": PAD, "unk": UNKNOWN, "cls": BEGIN, "sep": END}
TEMPLATE = (f"{BEGIN} $A {END}", f"{BEGIN} $A {END} $B {END}")
ORDER = (PAD, BEGIN, END, UNKNOWN)  # at the head of a vocabulary that is learned, as in bilm-tf's


class Spelled(int):
    """A token's id that remembers the characters of its word.

    Attributes:
        characters: bytes, WORD numbers of two bytes, the low one first.
    """

    characters: bytes

    def __new__(cls, number: int, characters: bytes = b"") -> Self:
        made = super().__new__(cls, number)
        made.characters = characters
        return made


def characters_of(word: bytes) -> list[int]:
    """The WORD numbers of a word.

    >>> characters_of(b"ab")[:5], len(characters_of(b"a" * 10_000))
    ([259, 98, 99, 260, 261], 50)
    """
    numbers = [WORD_BEGIN, *(byte + 1 for byte in word[:MOST]), WORD_END]
    return numbers + [FILLING] * (WORD - len(numbers))


def characters_of_special(part: str, piece: str) -> list[int]:
    """The WORD numbers of a special token: padding is 0, a sentence's begin and end have a number of their own."""
    if part in ("cls", "sep"):
        numbers = [WORD_BEGIN, SENTENCE_BEGIN if part == "cls" else SENTENCE_END, WORD_END]
        return numbers + [FILLING] * (WORD - len(numbers))
    return [0] * WORD if part == "pad" else characters_of(piece.encode())


def _packed(numbers: Iterable[int]) -> bytes:
    return b"".join(number.to_bytes(2, "little") for number in numbers)


def _make(values: inputs.Values) -> "np.ndarray":
    import numpy as np

    ids = values["token_ids"]
    if not all(type(each) is Spelled for each in ids):
        raise InputError(
            "the model reads words' characters, and got tokens of no text: expected those of its tokenizer"
        )
    return np.frombuffer(b"".join([each.characters for each in ids]), "<u2").reshape(-1, WORD)


CHARACTERS = inputs.register(
    Input("char_ids", axes="BSW", filled_by="maker", make=_make, graph=lambda packed: packed["char_ids"])
)
"""The characters of each word: int32 [B, S, 50]."""


class CharacterWords(WholeWords):
    """Whole words, of which a network reads the characters.

    Nothing is lower-cased. A text is <S> ... </S>; a word without a row is <UNK>, and its characters are its own.

    Args:
        vocabulary: words by id; holds <PAD>, <S>, </S> and <UNK>. A model that only reads needs no others.
    Raises:
        InputError: a special token is missing, a word occurs twice or holds a blank.

    >>> tokenizer = CharacterWords([*ORDER, "film"])
    >>> tokenizer.pack("A film!")[0]
    [1, 3, 4, 3, 2]
    >>> tokenizer.characters(tokenizer.pack("A film!")[0])[1, :4].tolist()
    [259, 66, 260, 261]
    """

    kind = "word_characters"
    about = (SPECIALS, TEMPLATE)
    lines = "one word a line"
    spelled = True

    def __init__(self, vocabulary: Iterable[str]) -> None:
        super().__init__(vocabulary)
        self._special = {
            number: Spelled(number, _packed(characters_of_special(part, piece)))
            for part, piece in self.specials.items()
            for number in (self._ids[piece],)
        }
        self._spelled = Cache(self._of_word)

    def _of_word(self, word: str) -> tuple[Spelled]:
        return (Spelled(self._ids.get(word, self.unk_id), _packed(characters_of(word.encode()))),)

    def _of_id(self, token_id: int) -> Spelled:
        if token_id in self._special:
            return self._special[token_id]
        return Spelled(token_id, _packed(characters_of(self.vocabulary[token_id].encode())))

    def encode_plain(self, text: str) -> list[int]:
        """Ids of a text, as `Spelled`."""
        spelled = self._spelled
        return [spelled[word][0] for word, _, _ in split_words(text)]

    def tokenize_plain(self, text: str, first: bool) -> tuple[list[int], list[int], list[int]]:
        """Ids, starts and ends of a text."""
        words, starts, ends = zip(*split_words(text)) if text.strip() else ((), (), ())
        return [self._spelled[word][0] for word in words], list(starts), list(ends)

    def of_words(self, words: Sequence[str], starts: Sequence[int], ends: Sequence[int]) -> Tokens | None:
        """A token for each of these words as it is, whatever it holds."""
        ids = [self._spelled[word][0] for word in words]
        return Tokens(ids, [self.vocabulary[i] for i in ids], list(starts), list(ends))

    def join(self, ids_a: Sequence[int], ids_b: Sequence[int] | None = None) -> tuple[list[int], list[int], list[int]]:
        """As `Tokenizer.join`, with `Spelled` ids: of one that is none, the characters of its row."""
        token_ids, segment_ids, places = super().join(ids_a, ids_b)
        return [each if type(each) is Spelled else self._of_id(each) for each in token_ids], segment_ids, places

    def __call__(self, texts: Iterable[str | tuple[str, str]], length: int | None = None) -> dict:
        """As `Tokenizer.__call__`, with char_ids [B, S, 50]."""
        import numpy as np

        texts = texts if isinstance(texts, str | bytes) else list(texts)
        arrays = super().__call__(texts, length)
        found = np.zeros((*arrays["token_ids"].shape, WORD), "int32")
        for i, text in enumerate(texts):
            ids = self.pack(*(text if isinstance(text, list | tuple) else (text,)), length=length)[0]
            found[i, : len(ids)] = self.characters(ids)
        return arrays | {CHARACTERS.name: found}

    @functools.cached_property
    def table(self) -> "np.ndarray":
        """The characters of each row of the vocabulary: numpy uint16 [V, 50]."""
        import numpy as np

        packed = b"".join(self._of_id(number).characters for number in range(self.size))
        return np.frombuffer(packed, "<u2").reshape(-1, WORD)

    def characters(self, ids: Tensor) -> Tensor:
        """The characters of ids: of `Spelled` ones their own, of numbers those of their rows.

        Args:
            ids: a list, or an integer array [...].

        Returns:
            numpy int32 [..., 50].
        """
        import numpy as np

        if isinstance(ids, np.ndarray):
            return self.table[ids].astype("int32")
        return np.asarray(_make({"token_ids": self.join(ids)[0]})[1:-1], "int32")

    def others(self, ids: Tensor) -> dict[str, Tensor]:
        """What a network reads of the tokens beside their ids."""
        return {CHARACTERS.name: self.characters(ids)}


def train_characters(text: Iterable[str | bytes], size: int, *, lowercase: bool = False) -> CharacterWords:
    """The commonest words of a text, equally common ones by the alphabet.

    Args:
        text: lines.
        size: int, words at most, the special ones among them.
        lowercase: bool; must be False: ELMo reads a text as it is.

    Raises:
        InputError: lowercase, a size too small, no words.
    """
    from kerasbert.text.train import lines_of

    if lowercase:
        raise InputError("--lowercase with --kind word_characters, which reads a text as it is: leave it out")
    if size <= len(ORDER):
        raise InputError(f"size is {size}, expected at least {len(ORDER) + 1}: {', '.join(ORDER)} and words")
    return CharacterWords(commonest((word for line in lines_of(text) for word, _, _ in split_words(line)), ORDER, size))

"""Learn a vocabulary: WordPiece by likelihood, with tensorflow-text's learner and our own words; the others by name."""

from collections import Counter
from collections.abc import Iterable, Iterator

from kerasbert.errors import InputError, unknown
from kerasbert.registry import TOKENIZERS
from kerasbert.text.base import Tokenizer
from kerasbert.text.normalize import Normalizer
from kerasbert.text.wordpiece import LAYOUTS, SPECIALS, WordPiece

ITERATIONS = 2  # of the learner, per threshold tried; more change few pieces and cost as much again
LETTERS = 1000  # a rarer letter is [UNK]


def _pieces(words: Counter[str], size: int, normalizer: Normalizer) -> list[str]:
    """The pieces of a vocabulary of `size` behind its specials: characters, then what is learned of the words."""
    # punctuation and ideographs are words of one character, whatever the pieces: they take no part in the learning
    alone = Counter({word: count for word, count in words.items() if normalizer[word[0]][:1] == " "})
    words = Counter({word: count for word, count in words.items() if word not in alone})
    kept = [word for word, _ in _by_count(alone)[: size // 2]]
    letters = Counter[str]()
    for word, count in words.items():
        for letter in word:
            letters[letter] += count
    alphabet = [letter for letter, _ in _by_count(letters)[:LETTERS]]
    least = len(SPECIALS) + len(kept) + 2 * len(alphabet)
    if size < least:
        raise InputError(
            f"size is {size}, expected at least {least}: the text's {len(kept) + len(alphabet)} characters and the special "
            "tokens need as many pieces"
        )
    learned = _learn(words, size - len(SPECIALS) - len(kept)) if words else []
    singles = sorted({*kept, *alphabet})
    return [*singles, *(piece for piece in learned if piece not in singles)]


def train_wordpiece(
    text: Iterable[str | bytes],
    size: int,
    *,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    split_cjk: bool = True,
    layout: str = "bert",
) -> WordPiece:
    """A tokenizer of at most `size` pieces (the search stops at about 5% less): specials, characters, then pieces by frequency.

    The same text gives the same vocabulary. Words are split as the tokenizer splits them.

    Args:
        text: lines as strings or UTF-8; `kerasbert.data.read_lines` reads files.
        size: int, the largest vocabulary.
        lowercase: bool, as of `WordPiece`.
        strip_accents: bool or None, as of `WordPiece`.
        split_cjk: bool, as of `WordPiece`.
        layout: special tokens and where they stand: "bert" ([CLS] text [SEP]) or "mpnet" (<s> text </s>).
    Raises:
        InputError: bytes that are not UTF-8, no words in the text, a size too small for the text's characters.
    """
    if layout not in LAYOUTS:
        raise unknown("layout", layout, LAYOUTS, ", ".join(LAYOUTS))
    specials, template = LAYOUTS[layout]
    normalizer = Normalizer(lowercase, lowercase if strip_accents is None else strip_accents, split_cjk)
    words = count_words(text, normalizer)
    if not words:
        raise InputError("the text holds no words. Give files with text")
    pieces = _pieces(words, size, normalizer)
    return WordPiece(
        _cut([*specials.values(), *pieces], size),
        lowercase=lowercase,
        strip_accents=strip_accents,
        split_cjk=split_cjk,
        specials=specials,
        template=template,
    )


def count_words(text: Iterable[str | bytes], normalizer: Normalizer) -> Counter[str]:
    """How often each normalised word occurs."""
    chunks = Counter[str]()
    for line in lines_of(text):
        chunks.update(line.split(" "))
    words = Counter[str]()
    for chunk, count in chunks.items():
        for word, _ in normalizer.words(chunk):
            words[word] += count
    return words


def train(
    kind: str, text: Iterable[str | bytes], size: int, *, lowercase: bool | None = None, layout: str | None = None
) -> Tokenizer:
    """A tokenizer of a kind.

    Args:
        kind: wordpiece, bpe, word_bpe, unigram or a plug-in's.
        text: lines as strings or UTF-8; `kerasbert.data.read_lines` reads files.
        size: int, the largest vocabulary.
        lowercase: bool, drop case and accents. None: as BERT for wordpiece, and not for unigram: vowel signs are marks
            too, and Hindi loses them. bpe keeps every byte.
        layout: of wordpiece or unigram, see `train_wordpiece` and `train_unigram`; None for the usual one.
    Raises:
        InputError: no such kind, and what the kind's own function raises.
    """
    learn = TOKENIZERS.find(kind).learn
    if learn is None:
        raise InputError(f"a tokenizer of kind {kind!r} cannot be learned here: give a directory that holds one")
    if layout is not None and kind not in ("wordpiece", "unigram"):
        raise InputError(
            f"layout {layout!r} is of wordpiece or unigram, received kind {kind!r}: leave it out (--layout)"
        )
    given = {"lowercase": lowercase, "layout": layout}
    return learn(text, size, **{name: value for name, value in given.items() if value is not None})


def lines_of(text: Iterable[str | bytes]) -> Iterator[str]:
    """Lines of strings and bytes."""
    for number, item in enumerate(text, 1):
        if isinstance(item, bytes):
            try:
                item = item.decode()
            except UnicodeDecodeError as error:
                raise InputError(
                    f"line {number}: byte 0x{item[error.start]:02x} is not UTF-8. Decode the text"
                ) from None
        elif not isinstance(item, str):
            raise InputError(
                f"text holds a {type(item).__name__}, expected lines. Read files with kerasbert.data.read_lines"
            )
        yield item


def _by_count(counts: Counter[str]) -> list[tuple[str, int]]:
    """Most frequent first, then alphabetically: no order of insertion in it."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _learn(words: Counter[str], size: int) -> list[str]:
    """Pieces of at least one character, most frequent first; about `size` of them."""
    characters = sum(len(word) * count for word, count in words.items())
    from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as learner

    return learner.learn(
        _by_count(words),
        vocab_size=size,
        reserved_tokens=[],
        lower_thresh=2,
        upper_thresh=characters // size + 2,  # `size` pieces cannot all be more frequent: half of the search saved
        num_iterations=ITERATIONS,
        max_token_length=50,
        max_unique_chars=LETTERS,
    )


def _cut(pieces: list[str], size: int) -> list[str]:
    """Without the rarest pieces of several characters, at the end of the list, that are too many."""
    excess = len(pieces) - size
    kept = []
    for piece in reversed(pieces):
        if excess > 0 and len(piece.removeprefix("##")) > 1 and piece not in SPECIALS:
            excess -= 1
        else:
            kept.append(piece)
    return kept[::-1]

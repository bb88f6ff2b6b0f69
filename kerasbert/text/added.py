"""Added tokens: strings such as `@USER` or `[E1]` that are one token wherever a text holds them. Standard library only.

As in Hugging Face's tokenizers (added_vocabulary.rs): the text is cut at the tokens with `normalized` off, each piece between
them is normalised and cut at the others, whose contents are normalised too, and the model reads what is left.
"""

import copy
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json
from kerasbert.text.normalize import TABLES, inside

if TYPE_CHECKING:
    from kerasbert.text.base import Tokenizer

FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special", "piece")
LONGEST = 1000  # characters of a token


class AddedToken(NamedTuple):
    """A string that is one token.

    Attributes:
        content: the string; the vocabulary has it.
        single_word: bool, not beside a letter, digit, mark or underscore.
        lstrip: bool, takes in the blanks before it.
        rstrip: bool, takes in the blanks after it.
        normalized: bool, looked for in the normalised text: other case and accents match too.
        special: bool, no objective selects it.
        piece: bool, the model's own piece too: other text may give it.
    """

    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool = False
    piece: bool = False

    def to_json(self) -> Json:
        """`content`, and the flags that are on."""
        return {"content": self.content} | {name: True for name in FLAGS if getattr(self, name)}


def special(content: str) -> AddedToken:
    """A string that is one token and that no objective selects."""
    return AddedToken(content, special=True)


def read_added(entries: Any, vocabulary: Mapping[str, int]) -> tuple[AddedToken, ...]:
    """The added tokens that a tokenizer's settings name.

    Args:
        entries: AddedToken, or dicts as `AddedToken.to_json` gives them.
        vocabulary: piece -> id.

    Raises:
        InputError: not such a list, unknown keys, an empty or repeated content, one that the vocabulary has not.
    """
    if isinstance(entries, str | bytes | Mapping) or not isinstance(entries, Iterable):
        raise InputError(f"added must be a list of tokens. Received: {str(entries)[:60]!r}")
    tokens = []
    for entry in entries:
        values = entry._asdict() if isinstance(entry, AddedToken) else entry
        if not isinstance(values, Mapping) or not set(values) <= {"content", *FLAGS}:
            raise InputError(f"an added token is {str(entry)[:60]!r}, expected content and {', '.join(FLAGS)}")
        content, flags = values.get("content"), {name: values.get(name, False) for name in FLAGS}
        if not isinstance(content, str) or not 0 < len(content) <= LONGEST:
            raise InputError(f"an added token is {str(content)[:60]!r}, expected 1 to {LONGEST} characters")
        if wrong := [name for name, value in flags.items() if not isinstance(value, bool)]:
            raise InputError(f"{wrong[0]} of the added token {content!r} must be true or false")
        if content not in vocabulary:
            raise InputError(f"the vocabulary has no {content!r}, which is an added token: add it as the last piece")
        tokens.append(AddedToken(content, **flags))
    seen = set[str]()
    twice = [token.content for token in tokens if token.content in seen or seen.add(token.content)]
    if twice:
        raise InputError(f"the added token {twice[0]!r} occurs twice: leave one out")
    return tuple(tokens)


def finding_specials(tokenizer: "Tokenizer", only: Collection[str] | None = None) -> "Tokenizer":
    """The tokenizer that finds special tokens such as [SEP] within texts too, as transformers' do; else they are other text.

    Args:
        only: the special tokens that are found, nothing beside them; by default all, and where pieces hold the blank before a
            word a mask takes it in, as those of RoBERTa, ALBERT and XLM-R do.

    Raises:
        InputError: a tokenizer of whole words, which knows no added tokens.
    """
    known, mask = {token.content for token in tokenizer.added}, tokenizer.specials.get("mask")
    wanted = dict.fromkeys(piece for piece in tokenizer.specials.values() if only is None or piece in only)
    found = [piece for piece in wanted if piece not in known]
    blanks = only is None and tokenizer.kind != "wordpiece"
    more = [AddedToken(piece, lstrip=blanks and piece == mask, special=True, piece=True) for piece in found]
    other = copy.copy(tokenizer)
    other.__dict__.pop("matchers", None)  # of the tokens before
    other.added = (*tokenizer.added, *more)
    if "added" not in other.settings():
        raise InputError(f"a tokenizer of the kind {tokenizer.kind} finds no special tokens in texts: leave it out")
    return other


class Matcher:
    """Finds tokens in a text: the leftmost, the longest of those; then the flags.

    Args:
        tokens: (string to look for, id, AddedToken).
    Raises:
        InputError: nothing is left of a token after normalisation.
    """

    def __init__(self, tokens: Iterable[tuple[str, int, AddedToken]]) -> None:
        self.tokens: dict[str, tuple[int, AddedToken]] = {}
        for form, number, token in tokens:
            if not form:
                raise InputError(f"nothing is left of the added token {token.content!r} after normalisation: remove it")
            self.tokens.setdefault(form, (number, token))
        self.forms = sorted(self.tokens, key=len, reverse=True)
        self._find = re.compile("|".join(map(re.escape, self.forms))).finditer if self.forms else None

    def split(self, text: str) -> list[tuple[int | None, int, int]]:
        """(id, begin, end) of tokens and of what lies between them (id None)."""
        if self._find is None:
            return [(None, 0, len(text))]
        parts: list[tuple[int | None, int, int]] = []
        done = 0
        for match in self._find(text):
            begin, end = match.span()
            number, token = self.tokens[match[0]]
            if token.single_word and (
                (begin > 0 and in_word(text[begin - 1])) or (end < len(text) and in_word(text[end]))
            ):
                continue
            if token.lstrip:
                while begin > 0 and is_blank(text[begin - 1]):
                    begin -= 1
                begin = max(begin, done)
            if token.rstrip:
                while end < len(text) and is_blank(text[end]):
                    end += 1
            if done < begin:
                parts.append((None, done, begin))
            parts.append((number, begin, end))
            done = end
        if done != len(text):
            parts.append((None, done, len(text)))
        return parts


def matchers(
    tokens: Iterable[AddedToken], ids: Mapping[str, int], form: Callable[[str], str]
) -> tuple[Matcher, Matcher]:
    """For the text, and for the normalised text. Special tokens go first, as theirs do."""
    ordered = sorted(tokens, key=lambda token: not token.special)
    return (
        Matcher((token.content, ids[token.content], token) for token in ordered if not token.normalized),
        Matcher((form(token.content), ids[token.content], token) for token in ordered if token.normalized),
    )


def in_word(character: str) -> bool:
    """Whether a character is part of a word: a letter, a mark, a decimal digit, an underscore."""
    code = ord(character)
    if code < 128:
        return character.isalnum() or character == "_"
    plain = any(inside(code, bounds) for bounds in (TABLES.letters, TABLES.numbers, TABLES.marks))
    return plain != inside(code, TABLES.words)


def is_blank(character: str) -> bool:
    """Whether a character is white space."""
    return inside(ord(character), TABLES.blanks)

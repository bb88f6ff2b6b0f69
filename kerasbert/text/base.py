"""What the tokenizers share: special tokens by their part, packing, a bounded cache. Standard library only."""

import functools
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kerasbert.errors import InputError
from kerasbert.inputs import NAMES, Tensor, listed
from kerasbert.text.added import AddedToken, Matcher, matchers, read_added
from kerasbert.text.template import kept_tokens, parse_template, room

if TYPE_CHECKING:
    from kerasbert.text.tree import Knowledge

PARTS = ("pad", "unk", "cls", "sep", "mask")  # what a special token is for
KNOWLEDGE = "knowledge.bin"  # a graph beside a tokenizer's files, see `text.knowledge`
SENTINEL = "<extra_id_{}>"  # T5's, in place of a span
SURROGATE = re.compile("[\ud800-\udfff]")
CACHED_CHUNKS, CACHED_LENGTH = 16_384, 48  # at most about 10 MB


class Tokens(NamedTuple):
    """Tokens of one text. Offsets are characters (code points) of the original text; `ends` are exclusive."""

    ids: list[int]
    pieces: list[str]
    starts: list[int]
    ends: list[int]


class Cache(dict):
    """Chunk of text -> its tokens; computed on demand, bounded."""

    def __init__(self, compute: Callable[[str], tuple]) -> None:
        self._compute = compute

    def __missing__(self, chunk: str) -> tuple:
        result = self._compute(chunk)
        if len(chunk) <= CACHED_LENGTH:
            if len(self) >= CACHED_CHUNKS:
                self.clear()
            self[chunk] = result
        return result


class Inseparable(Exception):
    """A chunk of text that cannot be tokenized without its neighbours."""


class Tokenizer:
    """Base of the tokenizers.

    A subclass has a `kind`, `settings()`, `save(directory)`, `encode_plain`, `tokenize_plain`, `decode` and `continues`.

    Args:
        vocabulary: strings, one per id.
        specials: part (of PARTS) -> piece. `pad`, `unk` and `sep` are always there; `cls` and `mask` may be missing
            (then their id is None), and two parts may be one piece (GPT-2).
        template: (for one text, for two), see `parse_template`.
        added: tokens that are found in a text before the model reads the rest, see `added.AddedToken`.
    Attributes:
        pad_id, unk_id, cls_id, sep_id, mask_id.
        special_ids: ids that no text gives and no objective selects, in the order of PARTS, each once.
        languages: the table beside its files (`text.languages`), or None.
        knowledge: the graph beside its files, whose branches its rows have (`text.knowledge`), or None.
        not_used: what Hugging Face's files say and nothing reads, by key and file: it changes no id. Empty of our own files.
        spelled: whether its ids remember their words (`text.characters`); numbers in a file would not.
    Raises:
        InputError: empty vocabulary, a special token is missing, a piece occurs twice.
    """

    kind = ""
    languages: dict[str, int] | None = None
    knowledge: "Knowledge | None" = None
    not_used: Mapping[str, object] = MappingProxyType({})
    spelled = False

    def __init__(
        self,
        vocabulary: Iterable[str],
        specials: Mapping[str, str],
        template: Sequence[str],
        added: Iterable[AddedToken | Mapping] = (),
    ) -> None:
        self.vocabulary = tuple(vocabulary)
        self.size = len(self.vocabulary)
        self.specials = _checked_specials(specials)
        self._ids = {piece: i for i, piece in enumerate(self.vocabulary)}
        self._check()
        self.added = read_added(added, self._ids) if added else ()
        own = {*self.specials.values()}  # which may be among `added`, and stay what they are
        self.added_ids = frozenset(self._ids[each.content] for each in self.added if each.content not in own)
        self._absent = frozenset(token.content for token in self.added if not token.piece)  # no pieces of the model
        self.special_ids = tuple(
            dict.fromkeys(
                self._ids[piece]
                for piece in (*self.specials.values(), *(token.content for token in self.added if token.special))
            )
        )
        numbers = {part: self._ids[piece] for part, piece in self.specials.items()}
        self.pad_id, self.unk_id, self.sep_id = (numbers[part] for part in ("pad", "unk", "sep"))
        self.cls_id, self.mask_id = numbers.get("cls"), numbers.get("mask")
        if not isinstance(template, Sequence) or [type(text) for text in template] != [str, str]:
            raise InputError(
                f"template must be two strings, for one text and for two. Received: {str(template)[:60]!r}"
            )
        self.template = (template[0], template[1])
        self.single, self.pair = (parse_template(text, self._ids) for text in self.template)
        for items, texts in ((self.single, ["A"]), (self.pair, ["A", "B"])):
            if [item.text for item in items if item.text] != texts:
                raise InputError(f"template must be two, one with $A and one with $A and $B. Received: {self.template}")
        placed = [item.id for items in (self.single, self.pair) for item in items if not item.text]
        self.special_ids = tuple(dict.fromkeys((*self.special_ids, *placed)))

    def _check(self) -> None:
        """A vocabulary that cannot work is refused, naming what is wrong."""
        if not self.vocabulary:
            raise InputError("the vocabulary is empty, expected one piece a line. Make one with kerasbert vocab")
        if absent := [part for part in ("pad", "unk", "sep") if part not in self.specials]:
            raise InputError(f"specials name no {' '.join(absent)}, expected pad, unk and sep at least")
        wanted = list(dict.fromkeys(self.specials.values()))
        missing = [token for token in wanted if token not in self._ids]
        if missing:
            raise InputError(
                f"the vocabulary of {self.size} pieces has no {clip(missing)}, expected {clip(wanted)}. If it has others in "
                "their place, name them in special_tokens_map.json; else add them as the last pieces (ids are rows of a trained "
                "model's table: none may move), or make a vocabulary with kerasbert vocab"
            )
        if len(self._ids) < self.size:
            twice = [piece for piece, count in Counter(self.vocabulary).items() if count > 1]
            raise InputError(
                f"{len(twice)} pieces occur more than once in the vocabulary, first {twice[0][:60]!r}, expected each once. Give "
                "the earlier one another name: without it all later ids would move"
            )

    @property
    def segments(self) -> int:
        """One more than the highest segment of a token."""
        return 1 + max(item.segment for item in (*self.single, *self.pair))

    @functools.cached_property
    def sentinel_ids(self) -> tuple[int, ...]:
        """Ids of <extra_id_0>, <extra_id_1>, ..., which stand for what is left out of a text (T5); () without."""
        names = itertools.takewhile(self._ids.__contains__, map(SENTINEL.format, itertools.count()))
        return tuple(self._ids[name] for name in names)

    def extended(self, pieces: Sequence[str]) -> "Tokenizer":
        """The tokenizer with further special tokens behind its pieces."""
        raise NotImplementedError

    def _added_settings(self) -> dict:
        """`added` for the settings; nothing where there are none, so that digests of such tokenizers stay."""
        return {"added": [token.to_json() for token in self.added]} if self.added else {}

    def _check_added(self) -> None:
        """Refuse added tokens that nothing can match, when everything that normalises is there."""
        if self.added:
            self.matchers  # noqa: B018

    def save(self, directory: str | os.PathLike) -> None:
        """Write the tokenizer's files."""
        raise NotImplementedError

    def continues(self, token_id: int) -> bool:
        """Whether a token goes on where the one before ends, within a word."""
        raise NotImplementedError

    def spelling(self, token_id: int) -> bytes | None:
        """What a token stands for in a text that is decoded; None where it is left out."""
        raise NotImplementedError

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids, special tokens around a text left out."""
        raise NotImplementedError

    def joined(self, ids: Iterable[int], between: bytes = b"") -> bytes:
        """The spellings of ids, one after the other."""
        return between.join(part for part in map(self.spelling, ids) if part is not None)

    def renumbered(self, ids: Iterable[int]) -> "Tokenizer":
        """The tokenizer with these pieces alone, in this order."""
        raise NotImplementedError

    def settings(self) -> dict:
        """Constructor arguments but the vocabulary, for json."""
        raise NotImplementedError

    def _content(self) -> list:
        """Everything that ids depend on."""
        return [self.kind, self.settings(), self.vocabulary]

    def digest(self) -> str:
        """sha256 of kind, settings and vocabulary: two tokenizers with one digest give the same ids."""
        import hashlib  # here: a phone does without

        return hashlib.sha256(json.dumps(self._content(), sort_keys=True).encode()).hexdigest()

    def encode(self, text: str | bytes) -> list[int]:
        """Ids of a text, without special tokens. Bytes are UTF-8; what is invalid there counts as U+FFFD."""
        text = self.to_text(text)
        if not self.added:
            return self.encode_plain(text)
        ids: list[int] = []
        raw, normal = self.matchers
        for number, begin, end in raw.split(text):
            if number is not None:
                ids.append(number)
                continue
            form = self.form(text[begin:end])[0] if normal.forms else ""
            parts = normal.split(form)
            if all(number is None for number, _, _ in parts):
                ids += self.encode_plain(text[begin:end])
                continue
            for number, first, last in parts:
                ids += self.tokenize_form(form[first:last], False)[0] if number is None else (number,)
        return ids

    def of_words(self, words: Sequence[str], starts: Sequence[int], ends: Sequence[int]) -> Tokens | None:
        """A token for each word of a list, with its characters, where tokens are words; else None."""
        return None

    def others(self, ids: Tensor) -> dict[str, Tensor]:
        """What a network reads of tokens beside their ids, by the name of its input: arrays [..., more] of ids [...]."""
        return {}

    def words(self, text: str | bytes) -> list[tuple[str, int, int]]:
        """The words of a raw text with the characters where each begins and ends: the rule of `words.split_words`."""
        from kerasbert.text.words import split_words  # which reads tables that no other tokenizer needs

        return split_words(to_text(text))

    def tokenize(self, text: str | bytes) -> Tokens:
        """Ids, pieces and character offsets of a text, without special tokens."""
        text = self.to_text(text)
        if not self.added:
            ids, starts, ends = self.tokenize_plain(text, True)
            return Tokens(ids, [self.vocabulary[i] for i in ids], starts, ends)
        ids, starts, ends = [], [], []

        def take(found: tuple[list[int], list[int], list[int]]) -> None:
            for whole, part in zip((ids, starts, ends), found):
                whole += part

        raw, normal = self.matchers
        for number, begin, end in raw.split(text):
            if number is not None:
                take(([number], *self.span(text, begin, end)))
                continue
            piece = text[begin:end]
            if not normal.forms:
                some, first, last = self.tokenize_plain(piece, begin == 0)
                take((some, [begin + place for place in first], [begin + place for place in last]))
                continue
            form, firsts, lasts = self.form(piece)
            for number, low, high in normal.split(form):
                if number is not None:
                    take(([number], *self.span(text, begin + firsts[low], begin + lasts[high - 1])))
                    continue
                some, first, last = self.tokenize_form(form[low:high], begin + firsts[low] == 0)
                first, last = [low + place for place in first], [low + place for place in last]
                places = [begin + (firsts[place] if place < len(form) else lasts[-1]) for place in first]
                take((some, places, [begin + lasts[b - 1] if b > a else s for a, b, s in zip(first, last, places)]))
        return Tokens(ids, [self.vocabulary[i] for i in ids], starts, ends)

    @functools.cached_property
    def matchers(self) -> tuple[Matcher, Matcher]:
        """What finds the added tokens: in the text, and in its normalised form."""
        return matchers(self.added, self._ids, lambda content: self.form(content)[0])

    def to_text(self, text: str | bytes) -> str:
        """Bytes are UTF-8; what is invalid there counts as U+FFFD."""
        return to_text(text)

    def encode_plain(self, text: str) -> list[int]:
        """Ids of a text without added tokens."""
        raise NotImplementedError

    def tokenize_plain(self, text: str, first: bool) -> tuple[list[int], list[int], list[int]]:
        """Ids, starts and ends of a text without added tokens; `first`: nothing stands before it."""
        raise NotImplementedError

    def form(self, text: str) -> tuple[str, list[int], list[int]]:
        """The normalised text in which added tokens are found, and where each of its characters begins and ends."""
        return text, list(range(len(text))), list(range(1, len(text) + 1))

    def tokenize_form(self, form: str, first: bool) -> tuple[list[int], list[int], list[int]]:
        """`tokenize_plain` of a normalised text."""
        return self.tokenize_plain(form, first)

    def span(self, text: str, begin: int, end: int) -> tuple[list[int], list[int]]:
        """Offsets of an added token, each in a list."""
        return [begin], [end]

    def pack(
        self, text_a: str | bytes, text_b: str | bytes | None = None, length: int | None = None
    ) -> tuple[list[int], list[int]]:
        """Token and segment ids of one or two texts with their special tokens, at most `length`, unpadded.

        The longer text loses tokens at its end first, as BERT's `_truncate_seq_pair` does.
        """
        return self.cut_to(text_a, text_b, length)[:2]

    def cut_to(
        self, text_a: str | bytes, text_b: str | bytes | None = None, length: int | None = None
    ) -> tuple[list[int], list[int], bool]:
        """`pack`, and whether tokens of the texts are missing there."""
        items, texts = (self.single, 1) if text_b is None else (self.pair, 2)
        ids_a, ids_b = self.encode(text_a), [] if text_b is None else self.encode(text_b)
        truncated = False
        if length is not None and len(ids_a) + len(ids_b) + len(items) - texts > length:
            truncated = True
            a, b = kept_tokens(room(items, length), len(ids_a), len(ids_b))
            ids_a, ids_b = ids_a[:a], ids_b[:b]
        token_ids, segment_ids, _ = self.join(ids_a, None if text_b is None else ids_b)
        return token_ids, segment_ids, truncated

    def join(self, ids_a: Sequence[int], ids_b: Sequence[int] | None = None) -> tuple[list[int], list[int], list[int]]:
        """Token and segment ids of one or two texts' ids with the special tokens, and where each item of the template begins."""
        token_ids: list[int] = []
        segment_ids: list[int] = []
        places: list[int] = []
        for text, special, segment in self.single if ids_b is None else self.pair:
            ids = (special,) if not text else ids_b if text == "B" and ids_b is not None else ids_a
            places.append(len(token_ids))
            token_ids += ids
            segment_ids += [segment] * len(ids)
        if not token_ids:  # no text, of a template without special tokens: a network reads at least one token
            token_ids, segment_ids = [self.pad_id], [0]
        return token_ids, segment_ids, places

    def __call__(self, texts: Iterable[str | tuple[str, str]], length: int | None = None) -> dict:
        """The inputs of an encoder for texts or pairs, with special tokens and padding.

        Args:
            texts: a list of texts, or of pairs (text_a, text_b).
            length: int, S; longer texts are truncated, the longer one of a pair first. By default the longest text's.

        Returns:
            token_ids, padding_mask (1 = a real token, 0 = padding) and segment_ids: numpy int32 [B, S].

        Raises:
            InputError: a text that is none, a pair of another length, a length without room for the specials.
        """
        import numpy as np

        checked = []
        for i, text in enumerate(listed(texts)):
            parts = tuple(text) if isinstance(text, list | tuple) else (text,)
            if len(parts) > 2 or not all(isinstance(part, str | bytes) for part in parts):
                raise InputError(f"text {i} is {text!r}, expected a text or a pair (text_a, text_b)")
            checked.append(parts)
        if self.knowledge is not None:
            return self.knowledge.arrays(self, checked, length)
        rows = [self.pack(*parts, length=length) for parts in checked]
        shape = len(rows), max((len(ids) for ids, _ in rows), default=0) if length is None else length
        arrays = {name: np.full(shape, self.pad_id if name == "token_ids" else 0, "int32") for name in NAMES}
        for i, (ids, segments) in enumerate(rows):
            for name, values in zip(NAMES, (ids, 1, segments)):
                arrays[name][i, : len(ids)] = values
        return arrays


def clip(pieces: Iterable[str], length: int = 60) -> str:
    """Pieces for an error's text, in one line that is not too long."""
    return " ".join(
        repr(piece)[1:-1] if len(piece) <= length else repr(piece[:length])[1:-1] + "..." for piece in pieces
    )


def _checked_specials(specials: object) -> dict[str, str]:
    """Part -> piece, in the order of PARTS."""
    if not isinstance(specials, Mapping) or not all(isinstance(piece, str) for piece in specials.values()):
        raise InputError(f"specials must be strings by part ({', '.join(PARTS)}). Received: {str(specials)[:60]!r}")
    if other := [part for part in specials if part not in PARTS]:
        raise InputError(f"specials name {str(other[0])[:60]!r}, expected only {', '.join(PARTS)}")
    return {part: specials[part] for part in PARTS if part in specials}


def flag(name: str, value: object) -> bool:
    """A setting that is true or false.

    Raises:
        InputError: anything else.
    """
    if value not in (True, False) or isinstance(value, float):
        raise InputError(f"{name} must be true or false. Received: {str(value)[:60]!r}")
    return bool(value)


def to_text(text: str | bytes) -> str:
    """Text that UTF-8 can hold: invalid bytes and lone surrogates are U+FFFD."""
    if isinstance(text, bytes):
        return text.decode("utf-8", "replace")
    return text if text.isascii() else SURROGATE.sub("\ufffd", text)

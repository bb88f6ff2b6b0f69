"""SentencePiece's unigram tokenizer in pure Python: ALBERT's, XLM-R's, T5's and XLNet's, and the phone's.

sentencepiece adds up scores in float32 from the beginning of the text, so that rounding decides between paths that are
nearly equal. A word is therefore looked up in the cache only where the best path wins by more than rounding can change;
a text with another word is segmented as a whole, with sentencepiece's own rounding.
"""

import functools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from kerasbert.errors import InputError
from kerasbert.text import viterbi
from kerasbert.text.added import AddedToken, special
from kerasbert.text.base import Cache, Inseparable, Tokenizer
from kerasbert.text.charsmap import Charsmap
from kerasbert.text.sentencepiece import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    Model,
    read_model,
    write_model,
)
from kerasbert.text.viterbi import float32

SPACE = "\u2581"
UNKNOWN_PENALTY = 10.0


class Layout(NamedTuple):
    """Special tokens and template of a family of models."""

    specials: dict[str, str]
    template: tuple[str, str]


ALBERT = Layout(
    {"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"),
)
XLM_R = Layout(
    {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"},
    ("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
)
XLNET = Layout(
    {"pad": "<pad>", "unk": "<unk>", "cls": "<cls>", "sep": "<sep>", "mask": "<mask>"},
    ("$A <sep> <cls>:2", "$A <sep> $B:1 <sep>:1 <cls>:2"),
)
T5 = Layout({"pad": "<pad>", "unk": "<unk>", "sep": "</s>"}, ("$A </s>", "$A </s> $B </s>"))


BERT = Layout(
    {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    ALBERT.template,
)


def layout_of(pieces: Sequence[str]) -> Layout:
    """The layout whose special tokens a vocabulary has; XLM-R's where it has only SentencePiece's own <unk> <s> </s>."""
    known = set(pieces)
    for layout in (ALBERT, XLNET, BERT, XLM_R):
        if known.issuperset(layout.specials.values()):
            return layout
    return T5 if known.issuperset(T5.specials.values()) else XLM_R


class Normalized(NamedTuple):
    """A normalised text, where each of its characters comes from, and the end of what was read of the text."""

    text: str
    sources: list[int]
    end: int


class Unigram(Tokenizer):
    """SentencePiece's unigram model (Kudo, 2018), identical to tensorflow-text's: ids, and its offsets in characters.

    A piece's offsets take in the blank that its U+2581 stands for. Special tokens inside a text are ordinary text.

    Args:
        model: Model, or the bytes of a .model file.
        specials: part -> piece; ALBERT's by default.
        template: what stands around one text and two; ALBERT's by default.
        added: tokens that are found in a text first, see `added.AddedToken`.
    Raises:
        InputError: a damaged .model, a special token is missing.

    >>> pieces = (*ALBERT.specials.values(), "\u2581", "\u2581low", "er", "e", "r")
    >>> types = (CONTROL, UNKNOWN, CONTROL, CONTROL, CONTROL, *[NORMAL] * 5)
    >>> Unigram(Model(pieces, (0.0,) * 5 + (-5.0, -3.0, -4.0, -3.0, -3.0), types)).tokenize("lower").pieces
    ['▁low', 'er']
    """

    kind = "unigram"

    def __init__(
        self,
        model: Model | bytes,
        *,
        specials: Mapping[str, str] = ALBERT.specials,
        template: Sequence[str] = ALBERT.template,
        added: Iterable[AddedToken | Mapping] = (),
    ) -> None:
        model = read_model(model) if isinstance(model, bytes) else model
        super().__init__(model.pieces, specials, template, added)
        # no text gives a special token, so that nobody types one
        types = list(model.types)
        for part, piece in self.specials.items():
            types[self._ids[piece]] = UNKNOWN if part == "unk" else CONTROL
        for piece in self._absent:
            types[self._ids[piece]] = CONTROL
        if types.count(UNKNOWN) != 1:
            raise InputError(f"the model has {types.count(UNKNOWN)} unknown pieces, expected one: specials' unk")
        self.model = model._replace(types=tuple(types))
        controls = [i for i, kind in enumerate(types) if kind == CONTROL and i not in self.added_ids]
        self.special_ids = tuple(dict.fromkeys((*self.special_ids, *controls)))
        self._prepare()
        self._chunks = Cache(self._tokenize_chunk)
        if self.added and not (model.dummy_prefix and model.remove_extra and model.escape and not self._user):
            raise InputError(
                f"added tokens ({self.added[0].content}, ...) beside a SentencePiece model that keeps blanks or has "
                "user-defined pieces cannot be read: remove them, or leave the tokenizer's own settings as they are by default"
            )
        self._check_added()

    def _prepare(self) -> None:
        model = self.model
        self._charsmap = Charsmap(model.charsmap)
        normal = [score for score, kind in zip(model.scores, model.types) if kind == NORMAL]
        lowest, highest = (min(normal), max(normal)) if normal else (0.0, 0.0)
        self._unknown_score = float32(lowest - UNKNOWN_PENALTY)
        self._scores: dict[str, float] = {}
        self._longest: dict[str, int] = {}  # first character -> characters of the longest piece
        self._user: dict[str, list[str]] = {}  # first character -> user-defined pieces, longest first
        self._byte_ids: dict[int, int] = {}
        for i, (piece, score, kind) in enumerate(zip(model.pieces, model.scores, model.types)):
            if kind == USER_DEFINED:
                self._user.setdefault(piece[0], []).append(piece)
                score = float32(len(piece.encode()) * highest) - 0.1  # in double precision, as it happens to be there
            elif kind == BYTE:
                self._byte_ids[int(piece[3:5], 16)] = i
            if kind in (NORMAL, USER_DEFINED):
                self._scores[piece] = score
                self._longest[piece[0]] = max(len(piece), self._longest.get(piece[0], 0))
        for pieces in self._user.values():
            pieces.sort(key=len, reverse=True)
        if model.byte_fallback and len(self._byte_ids) < 256:
            raise InputError(
                f"a model with byte fallback has {len(self._byte_ids)} of the 256 byte pieces, expected all"
            )
        inner = any(SPACE in piece[1:] or " " in piece for piece in self._scores)
        # nothing reaches across a blank then
        self._separable = (
            SPACE in self._scores and not inner and model.dummy_prefix and model.remove_extra and model.escape
        )

    def settings(self) -> dict:
        """Constructor arguments but the model, for json."""
        return {"specials": self.specials, "template": list(self.template), **self._added_settings()}

    def _content(self) -> list:
        model = self.model._replace(charsmap=self.model.charsmap.hex())
        return [self.kind, self.settings(), list(model)]

    def save(self, directory: str | os.PathLike) -> None:
        """Write `tokenizer.json` (kind and settings) and `spiece.model`; `text.load_tokenizer` reads them."""
        from kerasbert.storage.files import write_atomic, write_json

        write_atomic(Path(directory) / "spiece.model", write_model(self.model))
        write_json(Path(directory) / "tokenizer.json", {"kind": self.kind, "settings": self.settings()})

    def renumbered(self, ids: Iterable[int]) -> Self:
        """The tokenizer with these pieces alone, in this order."""
        model, ids = self.model, list(ids)
        fields = {name: tuple(getattr(model, name)[i] for i in ids) for name in ("pieces", "scores", "types")}
        return type(self)(model._replace(**fields), **self.settings())

    def extended(self, pieces: Sequence[str]) -> Self:
        """The tokenizer with further special tokens behind its pieces."""
        more = {"pieces": tuple(pieces), "scores": (0.0,) * len(pieces), "types": (CONTROL,) * len(pieces)}
        model = self.model._replace(**{name: (*getattr(self.model, name), *values) for name, values in more.items()})
        settings = self.settings()
        settings["added"] = [*self.added, *map(special, pieces)]
        return type(self)(model, **settings)

    def encode_plain(self, text: str) -> list[int]:
        """Ids of a text without added tokens."""
        try:
            chunks, total = self._chunks, 0.0
            ids: list[int] = []
            for chunk in text.split(" "):
                found = chunks[chunk]
                total += found[1]
                if total < found[2]:
                    raise Inseparable
                ids += found[0]
            return ids
        except Inseparable:
            return self._segment(self.normalize(text).text)[0]

    def tokenize_plain(self, text: str, first: bool) -> tuple[list[int], list[int], list[int]]:
        """Ids, starts and ends of a text without added tokens."""
        try:
            return self._in_chunks(text)
        except Inseparable:
            return self._in_places(self.normalize(text))

    def _in_chunks(self, text: str) -> tuple[list[int], list[int], list[int]]:
        """`_in_places` from what is known of the text's chunks."""
        chunks, total = self._chunks, 0.0
        ids: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        at, blank = 0, -1  # where the blank stands that the next word's U+2581 is of; -1 before the first word
        for chunk in text.split(" "):
            chunk_ids, score, limit, begins, stops, end = chunks[chunk]
            total += score
            if total < limit:
                raise Inseparable
            if chunk_ids:
                first = len(starts)
                ids += chunk_ids
                starts += [at + begin for begin in begins]
                ends += [at + stop for stop in stops]
                if blank >= 0:
                    starts[first] = blank
                blank = at + end
            elif blank < 0 and end < len(chunk):
                blank = at + end  # characters that normalisation drops: the text begins here
            at += len(chunk) + 1
        return ids, starts, ends

    def _in_places(self, normalized: Normalized) -> tuple[list[int], list[int], list[int]]:
        ids, begins, stops = self._segment(normalized.text)
        places = [*normalized.sources, normalized.end]
        return ids, [places[begin] for begin in begins], [places[stop] for stop in stops]

    def form(self, text: str) -> tuple[str, list[int], list[int]]:
        """The text by the character map, and where each of its characters begins and ends."""
        form, starts, at = [], [], 0
        for read, part in self._parts(text):
            form.append(part)
            starts += [at] * len(part)
            at += read
        return "".join(form), starts, [*starts[1:], at] if starts else []

    def tokenize_form(self, form: str, first: bool) -> tuple[list[int], list[int], list[int]]:
        """`tokenize_plain` of a text by the character map."""
        return self._in_places(self.normalize(form, [(1, character) for character in form]))

    def _tokenize_chunk(self, chunk: str) -> tuple:
        """A chunk between blanks.

        Returns:
            ids, the score of its path, how low the text's score may be for them to hold, where each piece begins and ends in
            the chunk, and where what was read of it ends.
        """
        if not self._separable:
            raise Inseparable
        if self._plain.fullmatch(chunk):
            normalized = Normalized(SPACE + chunk if chunk else "", [0, *range(len(chunk))], len(chunk))
        else:
            node, _ = self._charsmap.step(self._charsmap.root, " ")
            if SPACE in chunk or self._charsmap.step(node, chunk[0])[0] >= 0 or self._open(chunk):
                raise Inseparable  # U+2581 is no blank to be dropped, and a rule may take in the blank
            parts = list(self._parts(chunk))
            if any("  " in part or SPACE in part for _, part in parts):
                raise Inseparable  # at the end of a chunk they would be dropped, and inside of a text they stay
            normalized = self.normalize(chunk, parts)
        words = normalized.text
        path, score, gap = viterbi.best(words, self._scores, self._longest, self._unknown_score)
        ids, begins, stops = self._surface(self._path(path, words), words)
        places = [*normalized.sources, normalized.end]
        # each of at most n + 1 additions on both paths is off by at most 2^-24 of the sum; four times as much to be safe
        limit = -gap * 2.0**21 / (len(words) + 1)
        starts, ends = (tuple([places[place] for place in some]) for some in (begins, stops))
        return tuple(ids), score, limit, starts, ends, normalized.end

    @functools.cached_property
    def _plain(self) -> re.Pattern:
        """Chunks of ASCII that normalisation leaves alone."""
        visible = [chr(code) for code in range(0x21, 0x7F)]
        plain = []
        for character in visible:
            node, value = self._charsmap.step(self._charsmap.root, character)
            grows = node >= 0 and any(self._charsmap.step(node, other)[0] >= 0 for other in (*visible, " "))
            if value in (None, character) and not grows and character not in self._user:
                plain.append(character)
        return re.compile(f"[{re.escape(''.join(plain))}]*" if plain else "")

    def _open(self, chunk: str) -> bool:
        """Whether a rule that begins in the chunk may go on with a blank after it."""
        for begin in range(max(0, len(chunk) - 8), len(chunk)):
            node = self._charsmap.root
            for character in chunk[begin:] + " ":
                node, _ = self._charsmap.step(node, character)
            if node >= 0:
                return True
        return False

    def _parts(self, text: str) -> Iterable[tuple[int, str]]:
        """(characters read, what becomes of them): a user-defined piece as it is, or by the character map."""
        at, longest, user = 0, self._charsmap.longest, self._user
        while at < len(text):
            pieces = user.get(text[at], ()) if user else ()
            piece = next((piece for piece in pieces if text.startswith(piece, at)), None)
            part = longest(text, at) if piece is None else (len(piece), piece)
            yield part
            at += part[0]

    def normalize(self, text: str, parts: Iterable[tuple[int, str]] | None = None) -> Normalized:
        """sentencepiece's `Normalizer::Normalize`; `parts`: what becomes of the text, in place of the character map."""
        model = self.model
        blank = SPACE if model.escape else " "
        out: list[str] = []
        sources: list[int] = []
        at, previous, begun = 0, model.remove_extra, False
        for read, part in self._parts(text) if parts is None else parts:
            if not begun:
                if model.remove_extra and part == " ":
                    at += read
                    continue
                begun = True
                if model.dummy_prefix:
                    out.append(blank)
                    sources.append(at)
            if previous:
                part = part.lstrip(" ")
            if part:
                previous = part[-1] == " "
                out.append(part.replace(" ", blank))
                sources += [at] * len(part)
            at += read
            if not model.remove_extra:
                previous = False
        joined = "".join(out)
        if model.remove_extra:
            kept = joined.rstrip(blank)
            if len(kept) < len(joined):
                at = sources[len(kept)]
                del sources[len(kept) :]
            joined = kept
        return Normalized(joined, sources, at)

    def _segment(self, text: str) -> tuple[list[int], list[int], list[int]]:
        """Ids of a normalised text, and where each begins and ends in it."""
        begins = viterbi.as_sentencepiece(text, self._scores, self._longest, self._unknown_score)
        return self._surface(self._path(begins, text), text)

    def _path(self, begins: list[int], text: str) -> list[tuple[int, int, int]]:
        """(id, begin, end) of the pieces on a path."""
        return [
            (self._ids[piece] if (piece := text[begin:end]) in self._scores else self.unk_id, begin, end)
            for begin, end in viterbi.places(begins)
        ]

    def _surface(self, path: list[tuple[int, int, int]], text: str) -> tuple[list[int], list[int], list[int]]:
        """Runs of unknown pieces are one, or go up in bytes (all but the last are empty)."""
        ids: list[int] = []
        begins: list[int] = []
        ends: list[int] = []
        previous = False
        for i, begin, end in path:
            unknown = i == self.unk_id
            if unknown and self.model.byte_fallback:
                some = text[begin:end].encode()
                ids += [self._byte_ids[byte] for byte in some]
                begins += [begin] * len(some)
                ends += [begin] * (len(some) - 1) + [end]
            elif unknown and previous:
                ends[-1] = end
            else:
                ids.append(i)
                begins.append(begin)
                ends.append(end)
            previous = unknown
        return ids, begins, ends

    def continues(self, token_id: int) -> bool:
        """Whether a piece continues a word: it does not begin with U+2581 and is no special token."""
        if token_id in self.special_ids or token_id in self.added_ids:
            return False
        return self.vocabulary[token_id][0] != SPACE

    def spelling(self, token_id: int) -> bytes | None:
        if token_id in self.special_ids and token_id not in (self.unk_id, self.mask_id, *self.added_ids):
            return None
        piece = self.vocabulary[token_id]
        is_byte = self.model.types[token_id] == BYTE
        return bytes([int(piece[3:5], 16)]) if is_byte else piece.replace(SPACE, " ").encode()

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids; special tokens but `unk` and `mask` left out."""
        return self.joined(ids).decode("utf-8", "replace").removeprefix(" ")

"""Byte-level BPE (Radford et al., 2019, GPT-2) in pure Python: RoBERTa's, BART's and GPT-2's tokenizer, and the phone's."""

import heapq
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kerasbert.errors import InputError
from kerasbert.text.added import AddedToken, is_blank, special
from kerasbert.text.base import Cache, Inseparable, Tokenizer, clip, flag
from kerasbert.text.bpe_words import checked, patterns, split_words
from kerasbert.text.nfc import composed, placed

SPECIALS = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
TEMPLATE = ("<s> $A </s>", "<s> $A </s> </s> $B </s>")


def _alphabet() -> str:
    """Byte -> the character that stands for it in pieces: itself where it is visible, else one from U+0100 on."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in visible else next(others)) for byte in range(256))


ALPHABET = _alphabet()
BYTES = {character: byte for byte, character in enumerate(ALPHABET)}
BLANK = ALPHABET[0x20]  # a blank in a piece: U+0120


class MergeTokenizer(Tokenizer):
    """What the kinds of BPE share: pieces that merges make of symbols, and their files.

    Args:
        vocabulary: pieces by id.
        merges: pairs of pieces, the first to be merged first.
        specials, template, added: as of `Tokenizer`.
    Raises:
        InputError: merges that do not fit the vocabulary, and what `Tokenizer` raises.
    """

    def __init__(
        self,
        vocabulary: Iterable[str],
        merges: Iterable[Sequence[str]],
        specials: Mapping[str, str],
        template: Sequence[str],
        added: Iterable[AddedToken | Mapping] = (),
    ) -> None:
        super().__init__(vocabulary, specials, template, added)
        self.merges = tuple(_merge_of(merge) for merge in merges)
        self._ranks: dict[int, int] = {}  # left id * size + right id -> rank
        self._merged: list[int] = []  # rank -> id
        self._fit()

    def symbols(self, word: str) -> list[int]:
        """Ids of what a word begins as, before anything is merged."""
        raise NotImplementedError

    def whole(self, piece: str) -> str | None:
        """The word that a piece may be by itself, None where it is none."""
        raise NotImplementedError

    def singles(self) -> list[int]:
        """Ids of all that `symbols` may give."""
        raise NotImplementedError

    def _word_ids(self, word: str) -> list[int]:
        return self._merge(self.symbols(word))

    def _fit(self) -> None:
        ids, size = self._ids, self.size
        for rank, (left, right) in enumerate(self.merges):
            try:
                self._ranks.setdefault(ids[left] * size + ids[right], rank)
                self._merged.append(ids[left + right])
            except KeyError as error:
                raise InputError(
                    f"merge {rank + 1} ({clip((left, right))}) needs the piece {clip(error.args)!r}, which the vocabulary of "
                    f"{size} pieces has not: the merges belong to another vocabulary"
                ) from None

    def _content(self) -> list:
        return [*super()._content(), self.merges]

    def save(self, directory: str | os.PathLike) -> None:
        """Write `tokenizer.json` (kind and settings), `vocab.json` and `merges.txt`; `text.load_tokenizer` reads them."""
        from kerasbert.storage.files import write_atomic, write_json

        write_json(Path(directory) / "vocab.json", self._ids)
        lines = ["#version: 0.2", *self._merge_lines()]
        write_atomic(Path(directory) / "merges.txt", "\n".join(lines) + "\n")
        write_json(Path(directory) / "tokenizer.json", {"kind": self.kind, "settings": self.settings()})

    def _merge_lines(self) -> Iterable[str]:
        """What merges.txt holds."""
        return map(" ".join, self.merges)

    def renumbered(self, ids: Iterable[int]) -> "MergeTokenizer":
        """The tokenizer with these pieces alone, in this order."""
        pieces = [self.vocabulary[i] for i in ids]
        known = set(pieces)
        merges = [(left, right) for left, right in self.merges if {left, right, left + right} <= known]
        return type(self)(pieces, merges, **self.settings())

    def extended(self, pieces: Sequence[str]) -> "MergeTokenizer":
        """The tokenizer with further special tokens behind its pieces."""
        settings = self.settings()
        settings["added"] = [*self.added, *map(special, pieces)]
        return type(self)([*self.vocabulary, *pieces], self.merges, **settings)

    def _merge(self, symbols: list[int]) -> list[int]:
        """Merge the pair of the lowest rank, the leftmost of equal ones, until no pair is left to merge."""
        ranks, merged, size, count = self._ranks, self._merged, self.size, len(symbols)
        before, after = list(range(-1, count - 1)), list(range(1, count + 1))
        heap = []

        def consider(i: int, j: int) -> None:
            rank = ranks.get(symbols[i] * size + symbols[j])
            if rank is not None:
                heapq.heappush(heap, (rank, i, symbols[i], symbols[j]))

        for i in range(count - 1):
            consider(i, i + 1)
        while heap:
            rank, i, left, right = heapq.heappop(heap)
            j = after[i]
            if symbols[i] != left or j == count or symbols[j] != right:
                continue  # merged into something else meanwhile
            symbols[i], symbols[j] = merged[rank], -1
            after[i] = after[j]
            if after[i] < count:
                before[after[i]] = i
                consider(i, after[i])
            if before[i] >= 0:
                consider(before[i], i)
        return [symbol for symbol in symbols if symbol >= 0]


class BytePairEncoding(MergeTokenizer):
    """Byte-level BPE, identical to Hugging Face's `ByteLevel` + `BPE` with `trim_offsets` (RoBERTa's tokenizer).

    Special tokens inside a text are ordinary text: `<mask>` typed by a user is never the mask. A character that goes up
    in several pieces gives each of them the offsets of the whole character. Segment ids are zero.

    Args:
        vocabulary: pieces by id, bytes written as GPT-2 writes them (ALPHABET); holds all 256 bytes.
        merges: pairs of pieces, the first to be merged first.
        add_prefix_space: bool, put a blank before a text that has none, so that its first word is like the others.
        split: str, the words within which pieces are merged, of `bpe_words.SPLITS`.
        ignore_merges: bool, a word that is a piece is that piece, whatever its merges make.
        nfc: bool, compose the text first: a letter and its accent as characters of their own become one.
        specials: part -> piece; RoBERTa's by default.
        template: what stands around one text and two; RoBERTa's by default.
        added: tokens that are found in a text first, see `added.AddedToken`.
    Raises:
        InputError: merges that do not fit the vocabulary, a byte or a special token is missing.

    >>> pieces = [*SPECIALS.values(), *ALPHABET, "lo", "low"]
    >>> BytePairEncoding(pieces, [("l", "o"), ("lo", "w")]).tokenize("low lower").pieces
    ['low', 'Ġ', 'low', 'e', 'r']
    """

    kind = "bpe"

    def __init__(
        self,
        vocabulary: Iterable[str],
        merges: Iterable[Sequence[str]],
        *,
        add_prefix_space: bool = False,
        split: str = "gpt2",
        ignore_merges: bool = False,
        nfc: bool = False,
        specials: Mapping[str, str] = SPECIALS,
        template: Sequence[str] = TEMPLATE,
        added: Iterable[AddedToken | Mapping] = (),
    ) -> None:
        self.add_prefix_space = flag("add_prefix_space", add_prefix_space)
        self.split, self.ignore_merges = checked(split), flag("ignore_merges", ignore_merges)
        self.nfc = flag("nfc", nfc)
        super().__init__(vocabulary, merges, specials, template, added)
        if self.add_prefix_space and self.split != "gpt2":
            raise InputError(f"add_prefix_space beside the split {split!r}, expected it off: numbers take no blank in")
        self._words = Cache(self._tokenize_word)
        self._chunks, self._firsts = Cache(self._tokenize_chunk), Cache(self._tokenize_first)
        self._check_added()

    def _fit(self) -> None:
        missing = [byte for byte, character in enumerate(ALPHABET) if character not in self._ids]
        if missing:
            raise InputError(
                f"the vocabulary has no piece for {len(missing)} of the 256 bytes, first 0x{missing[0]:02x} "
                f"({ALPHABET[missing[0]]!r}), expected all: is it a byte-level vocabulary?"
            )
        self._bytes = [self._ids[character] for character in ALPHABET]
        super()._fit()

    def symbols(self, word: str) -> list[int]:
        return [self._bytes[byte] for byte in word.encode()]

    def whole(self, piece: str) -> str | None:
        if not all(character in BYTES for character in piece):
            return None
        try:
            return bytes(BYTES[character] for character in piece).decode()
        except UnicodeDecodeError:  # a part of a character
            return None

    def singles(self) -> list[int]:
        return self._bytes

    def _word_ids(self, word: str) -> list[int]:
        if self.ignore_merges:
            piece = "".join(ALPHABET[byte] for byte in word.encode())
            found = self._ids.get(piece)
            if found is not None and found not in self.special_ids and piece not in self._absent:
                return [found]
        return super()._word_ids(word)

    def settings(self) -> dict:
        """Constructor arguments but vocabulary and merges, for json."""
        return {
            "add_prefix_space": self.add_prefix_space,
            "split": self.split,
            "ignore_merges": self.ignore_merges,
            "nfc": self.nfc,
            "specials": self.specials,
            "template": list(self.template),
            **self._added_settings(),
        }

    def encode_plain(self, text: str) -> list[int]:
        """Ids of a text without added tokens."""
        text = self._prefixed(composed(text) if self.nfc else text)
        first, *chunks = text.split(" ")
        try:  # nothing reaches across a single blank
            known = self._chunks
            ids = list(self._firsts[first][0]) if first else []
            for chunk in chunks:
                ids += known[chunk][0]
            return ids
        except Inseparable:
            return [i for word in split_words(text, self.split) for i in self._words[word][0]]

    def form(self, text: str) -> tuple[str, list[int], list[int]]:
        """The text, composed where the tokenizer does that, and where each of its characters begins and ends."""
        return placed(text) if self.nfc else super().form(text)

    def tokenize_plain(self, text: str, first: bool) -> tuple[list[int], list[int], list[int]]:
        """Ids, starts and ends (without blanks around words) of a text without added tokens."""
        if not self.nfc or text.isascii():
            return self.tokenize_form(text, first)
        form, firsts, lasts = placed(text)
        ids, starts, ends = self.tokenize_form(form, first)
        firsts = [*firsts, len(text)]
        return ids, [firsts[a] for a in starts], [lasts[b - 1] if b > a else firsts[a] for a, b in zip(starts, ends)]

    def tokenize_form(self, text: str, first: bool) -> tuple[list[int], list[int], list[int]]:
        """`tokenize_plain` of a text that is composed."""
        prefixed = self._prefixed(text)
        ids: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        offset = len(text) - len(prefixed)
        for word in split_words(prefixed, self.split):
            word_ids, word_starts, word_ends = self._words[word]
            ids += word_ids
            starts += [offset + start for start in word_starts]
            ends += [offset + end for end in word_ends]
            offset += len(word)
        piece = self.vocabulary[ids[0]] if ids else ""
        if self.add_prefix_space and piece[:1] == BLANK:
            if first and piece[1:2] != BLANK:
                # Hugging Face leaves a single blank before the first token, which it may have put there itself
                starts[0] = 0
                ends[0] = ends[0] if piece.strip(BLANK) else 0
            elif not first and len(text) < len(prefixed):
                # after an added token it takes the blank off that it has put there, and with it a character
                ends[0] = max(ends[0], 1)
                starts[0] = min(starts[0] + 1, ends[0])
        return ids, starts, ends

    def span(self, text: str, begin: int, end: int) -> tuple[list[int], list[int]]:
        """Offsets of an added token without the blanks that it has taken in."""
        first, last = begin, end
        while first < end and is_blank(text[first]):
            first += 1
        if self.add_prefix_space and (begin, first) == (0, 1):
            first = 0  # as the first token's
        while last > first and is_blank(text[last - 1]):
            last -= 1
        return [first], [last]

    def _prefixed(self, text: str) -> str:
        return " " + text if self.add_prefix_space and text and text[0] != " " else text

    def _tokenize_first(self, chunk: str) -> tuple:
        """Tokens of a chunk without a blank before it."""
        words, blanks = patterns(chunk, self.split)
        if blanks.search(chunk):
            raise Inseparable
        return (tuple(i for word in words.findall(chunk) for i in self._words[word][0]),)

    def _tokenize_chunk(self, chunk: str) -> tuple:
        """Tokens of a chunk with one blank before it."""
        words, blanks = patterns(chunk, self.split)
        if not chunk or blanks.search(chunk):
            raise Inseparable
        return (tuple(i for word in words.findall(" " + chunk) for i in self._words[word][0]),)

    def _tokenize_word(self, word: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Ids and offsets in the word."""
        ids = self._word_ids(word)
        characters = [i for i, character in enumerate(word) for _ in character.encode()]
        starts, ends = [], []
        begin = 0
        for i in ids:
            piece = self.vocabulary[i]
            end = begin + len(piece)
            last = characters[end - 1] + 1
            starts.append(min(characters[begin] + len(piece) - len(piece.lstrip(BLANK)), last))
            ends.append(max(last - len(piece) + len(piece.rstrip(BLANK)), starts[-1]))
            begin = end
        return tuple(ids), tuple(starts), tuple(ends)

    def continues(self, token_id: int) -> bool:
        """Whether a piece continues a word: it does not begin with a blank and is no special token (as in fairseq)."""
        if token_id in self.special_ids or token_id in self.added_ids:
            return False
        return not chr(BYTES[self.vocabulary[token_id][0]]).isspace()

    def spelling(self, token_id: int) -> bytes | None:
        if token_id in (self.pad_id, self.cls_id, self.sep_id):
            return None
        piece = self.vocabulary[token_id]
        return piece.encode() if token_id in self.added_ids else _to_bytes(piece)

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids; padding, `cls` and `sep` left out. The inverse of `encode` (with a blank before it if that adds one)."""
        return self.joined(ids).decode("utf-8", "replace")


def _to_bytes(piece: str) -> bytes:
    """The bytes of a piece; a special token may hold characters that stand for none."""
    return b"".join(bytes([BYTES[c]]) if c in BYTES else c.encode() for c in piece)


def _merge_of(merge: Sequence[str]) -> tuple[str, str]:
    pieces = list(merge) if isinstance(merge, str | list | tuple) else [merge]
    if len(pieces) == 2 and isinstance(pieces[0], str) and isinstance(pieces[1], str):
        return pieces[0], pieces[1]
    raise InputError(
        f"merge {' '.join(map(str, pieces))[:60]!r} has {len(pieces)} pieces, expected two with a blank between them"
    )

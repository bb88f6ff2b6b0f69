"""SentencePiece's BPE as tokenizer.json files have it, in pure Python: Gemma's tokenizer, which mmBERT has."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from kerasbert.errors import InputError
from kerasbert.text.added import AddedToken
from kerasbert.text.base import Cache
from kerasbert.text.bpe import MergeTokenizer

SPACE = "\u2581"  # a blank in a piece
BYTE = re.compile("<0x([0-9A-F]{2})>")
SPECIALS = {"pad": "<pad>", "unk": "<unk>", "cls": "<bos>", "sep": "<eos>", "mask": "<mask>"}
TEMPLATE = ("<bos> $A <eos>", "<bos> $A <eos> $B <eos>")


class MetaspacePairEncoding(MergeTokenizer):
    """BPE over the characters of a whole text, identical to Hugging Face's `BPE(byte_fallback=True)` where blanks are replaced.

    Blanks are U+2581 and nothing is left out or put before a text. A character that no piece has goes up in the pieces of its
    bytes, <0x00> to <0xFF>, each of which has the offsets of the whole character. Special tokens inside a text are ordinary
    text. Segment ids are zero.

    Args:
        vocabulary: pieces by id; holds those of all 256 bytes.
        merges: pairs of pieces, the first to be merged first.
        specials: part -> piece; Gemma's by default.
        template: what stands around one text and two; Gemma's by default.
        added: tokens that are found in a text first, see `added.AddedToken`.
    Raises:
        InputError: merges that do not fit the vocabulary or join bytes, a byte or a special token is missing.

    >>> pieces = [*SPECIALS.values(), *(f"<0x{byte:02X}>" for byte in range(256)), *"\u2581low", "lo", "\u2581lo"]
    >>> MetaspacePairEncoding(pieces, [("l", "o"), ("\u2581", "lo")]).tokenize("lo lo\u00e9").pieces
    ['lo', '\u2581lo', '<0xC3>', '<0xA9>']
    """

    kind = "metaspace_bpe"

    def __init__(
        self,
        vocabulary: Iterable[str],
        merges: Iterable[Sequence[str]],
        *,
        specials: Mapping[str, str] = SPECIALS,
        template: Sequence[str] = TEMPLATE,
        added: Iterable[AddedToken | Mapping] = (),
    ) -> None:
        super().__init__(vocabulary, merges, specials, template, added)
        self._known = {piece: i for piece, i in self._ids.items() if len(piece) == 1 and piece not in self._absent}
        made = {left + right for left, right in self.merges}
        # no merge goes over the beginning of a word: each is merged alone
        inner = re.compile(f"[^{SPACE}]{SPACE}")
        self.separable = not any(inner.search(piece) for piece in made)
        self._split = re.compile(f"(?s){SPACE}+[^{SPACE}]*|[^{SPACE}]+" if self.separable else "(?s).+").findall
        self._words = Cache(self._tokenize_word)
        self._check_added()

    def _fit(self) -> None:
        self._bytes = [self._ids.get(f"<0x{byte:02X}>", -1) for byte in range(256)]
        if missing := [byte for byte, i in enumerate(self._bytes) if i < 0]:
            raise InputError(
                f"the vocabulary has no piece for {len(missing)} of the 256 bytes, first <0x{missing[0]:02X}>, expected all: a "
                "character without a piece becomes its bytes"
            )
        if wrong := next((merge for merge in self.merges if any(map(BYTE.fullmatch, merge))), None):
            raise InputError(f"the merge {' '.join(wrong)} joins a byte, expected merges of characters")
        super()._fit()
        self._byte_of = {i: byte for byte, i in enumerate(self._bytes)}

    def settings(self) -> dict:
        """Constructor arguments but vocabulary and merges, for json."""
        return {"specials": self.specials, "template": list(self.template), **self._added_settings()}

    def _merge_lines(self) -> Iterable[str]:
        """By ids: a piece may be the end of a line."""
        return (f"{self._ids[left]} {self._ids[right]}" for left, right in self.merges)

    def symbols(self, word: str) -> list[int]:
        known, number = self._known, self._bytes
        found: list[int] = []
        for character in word:
            i = known.get(character)
            found += (i,) if i is not None else [number[byte] for byte in character.encode()]
        return found

    def whole(self, piece: str) -> str | None:
        return piece

    def singles(self) -> list[int]:
        return [*self._known.values(), *self._bytes]

    def width(self, token_id: int) -> int:
        """Bytes of a form that a token stands for."""
        return 1 if token_id in self._byte_of else len(self.vocabulary[token_id].encode())

    def form(self, text: str) -> tuple[str, list[int], list[int]]:
        """The text with its blanks as pieces have them."""
        return text.replace(" ", SPACE), list(range(len(text))), list(range(1, len(text) + 1))

    def encode_plain(self, text: str) -> list[int]:
        """Ids of a text without added tokens."""
        words = self._words
        return [i for word in self._split(text.replace(" ", SPACE)) for i in words[word][0]]

    def tokenize_plain(self, text: str, first: bool) -> tuple[list[int], list[int], list[int]]:
        """Ids, starts and ends of a text without added tokens."""
        ids, starts, ends, at = [], [], [], 0
        for word in self._split(text.replace(" ", SPACE)):
            word_ids, word_starts, word_ends = self._words[word]
            ids += word_ids
            starts += [at + start for start in word_starts]
            ends += [at + end for end in word_ends]
            at += len(word)
        return ids, starts, ends

    def _tokenize_word(self, word: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Ids and offsets in the word."""
        ids = self._word_ids(word)
        characters = [i for i, character in enumerate(word) for _ in character.encode()]
        stops = list(itertools.accumulate(map(self.width, ids)))
        starts = [characters[begin] for begin in [0, *stops[:-1]]]
        return tuple(ids), tuple(starts), tuple(characters[stop - 1] + 1 for stop in stops)

    def continues(self, token_id: int) -> bool:
        """Whether a piece continues a word: it does not begin with U+2581 and is no special token."""
        if token_id in self.special_ids or token_id in self.added_ids:
            return False
        return self.vocabulary[token_id][0] != SPACE

    def spelling(self, token_id: int) -> bytes | None:
        if token_id in self.special_ids and token_id not in (self.unk_id, self.mask_id, *self.added_ids):
            return None
        byte = self._byte_of.get(token_id)
        return self.vocabulary[token_id].replace(SPACE, " ").encode() if byte is None else bytes([byte])

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids; special tokens but `unk` and `mask` left out."""
        return self.joined(ids).decode("utf-8", "replace")

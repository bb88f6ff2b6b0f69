"""WordPiece in pure Python: the reference for the graph's tokenizer, and the tokenizer of the phone."""

import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kerasbert.errors import InputError
from kerasbert.text.normalize import Normalizer

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CACHED_CHUNKS, CACHED_LENGTH = 16_384, 48  # at most about 10 MB


class Tokens(NamedTuple):
    """Tokens of one text. Offsets are characters (code points) of the original text; `ends` are exclusive."""

    ids: list[int]
    pieces: list[str]
    starts: list[int]
    ends: list[int]


class _Chunks(dict):
    """Chunk of text without blanks -> (ids, starts, ends); computed on demand, bounded."""

    def __init__(self, tokenizer: "WordPiece"):
        self._tokenizer = tokenizer

    def __missing__(self, chunk: str) -> tuple:
        result = self._tokenizer._tokenize_chunk(chunk)
        if len(chunk) <= CACHED_LENGTH:
            if len(self) >= CACHED_CHUNKS:
                self.clear()
            self[chunk] = result
        return result


class WordPiece:
    """BERT's tokenizer (Devlin et al., 2019), identical to Hugging Face's `BertNormalizer` + `BertPreTokenizer` + `WordPiece`.

    Special tokens inside a text are ordinary text: `[MASK]` typed by a user is three words and never the mask.

    Args:
        vocabulary: strings, one per id; holds [PAD] [UNK] [CLS] [SEP] [MASK].
        lowercase: bool, lower-case the text.
        strip_accents: bool, drop accents; None does what `lowercase` does.
        split_cjk: bool, every CJK ideograph is a word.
        max_word_chars: int, a longer word is [UNK].
    Raises:
        InputError: empty vocabulary, a special token is missing, a piece occurs twice.

    >>> WordPiece([*SPECIALS, "un", "##aff", "##able"]).encode("Unaffable")
    [5, 6, 7]
    """

    kind = "wordpiece"

    def __init__(
        self,
        vocabulary: Iterable[str],
        *,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        split_cjk: bool = True,
        max_word_chars: int = 100,
    ):
        self.vocabulary = tuple(vocabulary)
        self.size = len(self.vocabulary)
        self._ids = {piece: i for i, piece in enumerate(self.vocabulary)}
        _check(self.vocabulary, self._ids)
        self.special_ids = tuple(self._ids[token] for token in SPECIALS)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = self.special_ids
        self.lowercase = bool(lowercase)
        self.strip_accents = self.lowercase if strip_accents is None else bool(strip_accents)
        self.split_cjk = bool(split_cjk)
        self.max_word_chars = int(max_word_chars)
        self._longest = max(map(len, self.vocabulary))
        self._normalizer = Normalizer(self.lowercase, self.strip_accents, self.split_cjk)
        self._chunks = _Chunks(self)

    def settings(self) -> dict:
        """Constructor arguments but the vocabulary, for json."""
        return {
            "lowercase": self.lowercase,
            "strip_accents": self.strip_accents,
            "split_cjk": self.split_cjk,
            "max_word_chars": self.max_word_chars,
        }

    def digest(self) -> str:
        """sha256 of kind, settings and vocabulary: two tokenizers with one digest give the same ids."""
        import hashlib  # here and in `save`: a phone needs neither

        content = json.dumps([self.kind, self.settings(), self.vocabulary], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def save(self, directory: str | os.PathLike) -> None:
        """Write `tokenizer.json` (kind and settings) and `vocab.txt`; `text.load_tokenizer` reads them."""
        from kerasbert.files import write_atomic, write_json

        write_atomic(Path(directory) / "vocab.txt", "\n".join(self.vocabulary) + "\n")
        write_json(Path(directory) / "tokenizer.json", {"kind": self.kind, "settings": self.settings()})

    def encode(self, text: str | bytes) -> list[int]:
        """Ids of a text, without special tokens. Bytes are UTF-8; what is invalid there counts as U+FFFD."""
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        ids: list[int] = []
        chunks = self._chunks
        for chunk in text.split(" "):  # nothing reaches across a blank
            ids += chunks[chunk][0]
        return ids

    def tokenize(self, text: str | bytes) -> Tokens:
        """Ids, pieces and character offsets of a text, without special tokens."""
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        ids: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        offset = 0
        for chunk in text.split(" "):
            chunk_ids, chunk_starts, chunk_ends = self._chunks[chunk]
            ids += chunk_ids
            starts += [offset + start for start in chunk_starts]
            ends += [offset + end for end in chunk_ends]
            offset += len(chunk) + 1
        return Tokens(ids, [self.vocabulary[i] for i in ids], starts, ends)

    def _tokenize_chunk(self, chunk: str) -> tuple[list[int], list[int], list[int]]:
        ids: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        for word, sources in self._normalizer.words(chunk):
            begin = 0
            for i, end in self._pieces(word):
                ids.append(i)
                starts.append(sources[begin])
                ends.append(sources[end - 1] + 1)
                begin = end
        return ids, starts, ends

    def _pieces(self, word: str) -> list[tuple[int, int]]:
        """Greedy longest match: (id, end) of each piece; one [UNK] for a word that does not go up in pieces."""
        known = self._ids.get(word)
        length = len(word)
        if known is not None and length <= self.max_word_chars:
            return [(known, length)]
        unknown = [(self.unk_id, length)]
        if length > self.max_word_chars:
            return unknown
        pieces = []
        begin, prefix = 0, ""
        while begin < length:
            for end in range(min(length, begin + self._longest), begin, -1):
                known = self._ids.get(prefix + word[begin:end])
                if known is not None:
                    break
            else:
                return unknown
            pieces.append((known, end))
            begin, prefix = end, "##"
        return pieces

    def continues(self, token_id: int) -> bool:
        """Whether a piece continues a word ("##")."""
        return self.vocabulary[token_id].startswith("##")

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids: pieces joined, [PAD] [CLS] [SEP] left out. Case, accents and blanks that encoding dropped stay lost."""
        hidden = {self.pad_id, self.cls_id, self.sep_id}
        return " ".join(self.vocabulary[i] for i in ids if i not in hidden).replace(" ##", "")

    def pack(
        self, text_a: str | bytes, text_b: str | bytes | None = None, length: int | None = None
    ) -> tuple[list[int], list[int]]:
        """Token and segment ids of [CLS] a [SEP] (b [SEP]), at most `length`, unpadded.

        The longer text loses tokens at its end first, as BERT's `_truncate_seq_pair` does.
        """
        a = self.encode(text_a)
        b = None if text_b is None else self.encode(text_b)
        if length is not None:
            specials = 2 if b is None else 3
            if length < specials:
                raise InputError(f"length is {length}, expected at least {specials}: room for the special tokens")
            budget = length - specials
            kept_a = budget if b is None else max(budget - budget // 2, budget - len(b))
            if b is not None:
                b = b[: max(budget // 2, budget - len(a))]
            a = a[:kept_a]
        token_ids = [self.cls_id, *a, self.sep_id]
        segment_ids = [0] * len(token_ids)
        if b is not None:
            token_ids += [*b, self.sep_id]
            segment_ids += [1] * (len(b) + 1)
        return token_ids, segment_ids


def _check(vocabulary: tuple[str, ...], ids: dict[str, int]) -> None:
    """A vocabulary that cannot work is refused, naming what is wrong."""
    if not vocabulary:
        raise InputError("the vocabulary is empty, expected one piece a line. Make one with kerasbert vocab")
    missing = [token for token in SPECIALS if token not in ids]
    if missing:
        raise InputError(
            f"the vocabulary of {len(vocabulary)} pieces has no {' '.join(missing)}, expected {' '.join(SPECIALS)}: "
            "add a line for each, or make a vocabulary with kerasbert vocab"
        )
    if len(ids) < len(vocabulary):
        twice = [piece for piece, count in Counter(vocabulary).items() if count > 1]
        raise InputError(
            f"{len(twice)} pieces occur more than once in the vocabulary, first {twice[0]!r}, expected each once: "
            "remove the repeated lines"
        )

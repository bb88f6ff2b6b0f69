"""WordPiece in pure Python: the reference for the graph's tokenizer, and the tokenizer of the phone."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from kerasbert.errors import InputError
from kerasbert.text.added import AddedToken, special
from kerasbert.text.base import PARTS
from kerasbert.text.bert_words import BertWords

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BY_PART: dict[str, str] = dict(zip(PARTS, SPECIALS))
TEMPLATE = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
# layout -> special tokens by part, in the order of their ids; templates
LAYOUTS: dict[str, tuple[dict[str, str], tuple[str, str]]] = {
    "bert": (BY_PART, TEMPLATE),
    # fairseq's places, by which positions are counted: <s> 0, <pad> 1, </s> 2
    "mpnet": (
        {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "[UNK]", "mask": "<mask>"},
        ("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
    ),
}


class WordPiece(BertWords):
    """BERT's tokenizer (Devlin et al., 2019), identical to Hugging Face's `BertNormalizer` + `BertPreTokenizer` + `WordPiece`.

    Special tokens inside a text are ordinary text: `[MASK]` typed by a user is three words and never the mask.

    Args:
        vocabulary: strings, one per id; holds [PAD] [UNK] [CLS] [SEP] [MASK].
        lowercase: bool, lower-case the text.
        strip_accents: bool, drop accents; None does what `lowercase` does.
        split_cjk: bool, every CJK ideograph is a word.
        max_word_chars: int, a longer word is [UNK].
        specials: part -> piece; BERT's by default.
        template: what stands around one text and two; BERT's by default.
        added: tokens that are found in a text first, see `added.AddedToken`.
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
        specials: Mapping[str, str] = BY_PART,
        template: Sequence[str] = TEMPLATE,
        added: Iterable[AddedToken | Mapping] = (),
    ) -> None:
        super().__init__(vocabulary, specials, template, added)
        if type(max_word_chars) is not int or not 0 < max_word_chars < 1 << 20:
            raise InputError(f"max_word_chars must be a number from 1 to 2^20. Received: {str(max_word_chars)[:60]!r}")
        self._split(lowercase, strip_accents, split_cjk)
        self.max_word_chars = max_word_chars
        self._longest = max(map(len, self.vocabulary))
        self._known = self._ids
        if self._absent:
            self._known = {piece: i for piece, i in self._ids.items() if piece not in self._absent}
        self._check_added()

    def settings(self) -> dict:
        """Constructor arguments but the vocabulary, for json."""
        return {
            **self._split_settings(),
            "max_word_chars": self.max_word_chars,
            # BERT's own are not named, so that digests of such tokenizers stay
            **({} if self.specials == BY_PART else {"specials": self.specials}),
            **({} if self.template == TEMPLATE else {"template": list(self.template)}),
            **self._added_settings(),
        }

    def save(self, directory: str | os.PathLike) -> None:
        """Write `tokenizer.json` (kind and settings) and `vocab.txt`; `text.load_tokenizer` reads them."""
        from kerasbert.storage.files import write_atomic, write_json

        write_atomic(Path(directory) / "vocab.txt", "\n".join(self.vocabulary) + "\n")
        write_json(Path(directory) / "tokenizer.json", {"kind": self.kind, "settings": self.settings()})

    def renumbered(self, ids: Iterable[int]) -> Self:
        """The tokenizer with these pieces alone, in this order."""
        return type(self)([self.vocabulary[i] for i in ids], **self.settings())

    def extended(self, pieces: Sequence[str]) -> Self:
        """The tokenizer with further special tokens behind its pieces."""
        settings = self.settings()
        settings["added"] = [*self.added, *map(special, pieces)]
        return type(self)([*self.vocabulary, *pieces], **settings)

    def _pieces(self, word: str) -> list[tuple[int, int]]:
        """Greedy longest match: (id, end) of each piece; one [UNK] for a word that does not go up in pieces."""
        known = self._known.get(word)
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
                known = self._known.get(prefix + word[begin:end])
                if known is not None:
                    break
            else:
                return unknown
            pieces.append((known, end))
            begin, prefix = end, "##"
        return pieces

    def continues(self, token_id: int) -> bool:
        """Whether a piece continues a word ("##")."""
        return self.vocabulary[token_id].startswith("##") and token_id not in self.added_ids

    def spelling(self, token_id: int) -> bytes | None:
        return None if token_id in (self.pad_id, self.cls_id, self.sep_id) else self.vocabulary[token_id].encode()

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids: pieces joined, [PAD] [CLS] [SEP] left out. Case, accents and blanks that encoding dropped stay lost."""
        return self.joined(ids, b" ").decode().replace(" ##", "")

"""BPE over the characters of words, whose last one has a </w> (Sennrich et al., 2016), in pure Python: GPT's tokenizer."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from kerasbert.errors import InputError
from kerasbert.text.added import AddedToken
from kerasbert.text.base import Cache
from kerasbert.text.bert_words import BertWords
from kerasbert.text.bpe import MergeTokenizer

END = "</w>"
SPECIALS = {"pad": "<pad>", "unk": "<unk>", "sep": "</s>"}
TEMPLATE = ("$A", "$A $B")


class WordPairEncoding(BertWords, MergeTokenizer):
    """BPE within words, identical to Hugging Face's `BertNormalizer` + `BertPreTokenizer` + `BPE` (OpenAIGPTTokenizer).

    Words are BERT's: at blanks, punctuation alone. Characters that no piece has are `unk`, each one of them. Special tokens
    inside a text are ordinary text. Segment ids are zero.

    Args:
        vocabulary: pieces by id; those that end a word end with </w>.
        merges: pairs of pieces, the first to be merged first.
        lowercase: bool, lower-case the text.
        strip_accents: bool, drop accents; None does what `lowercase` does.
        split_cjk: bool, every CJK ideograph is a word.
        specials: part -> piece; <pad>, <unk> and </s> by default, <unk> for all of them in GPT's own.
        template: what stands around one text and two; nothing by default.
        added: tokens that are found in a text first, see `added.AddedToken`.
    Raises:
        InputError: merges that do not fit the vocabulary, no piece that ends a word, a special token is missing.

    >>> pieces = [*SPECIALS.values(), *"low", "w</w>", "lo", "low</w>"]
    >>> WordPairEncoding(pieces, [("l", "o"), ("lo", "w</w>")]).tokenize("Low lows").pieces
    ['low</w>', 'lo', 'w', '<unk>']
    """

    kind = "word_bpe"

    def __init__(
        self,
        vocabulary: Iterable[str],
        merges: Iterable[Sequence[str]],
        *,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        split_cjk: bool = True,
        specials: Mapping[str, str] = SPECIALS,
        template: Sequence[str] = TEMPLATE,
        added: Iterable[AddedToken | Mapping] = (),
    ) -> None:
        super().__init__(vocabulary, merges, specials, template, added)
        self._split(lowercase, strip_accents, split_cjk)
        if not any(piece.endswith(END) for piece in self.vocabulary):
            raise InputError(
                f"none of the {self.size} pieces ends with {END}, expected pieces that end words: a byte-level vocabulary is of "
                "kind bpe"
            )
        self._known = {piece: i for piece, i in self._ids.items() if piece not in self._absent}
        self._merged_words = Cache(self._merge_word)
        self._check_added()

    def settings(self) -> dict:
        """Constructor arguments but vocabulary and merges, for json."""
        return {
            **self._split_settings(),
            "specials": self.specials,
            "template": list(self.template),
            **self._added_settings(),
        }

    def symbols(self, word: str) -> list[int]:
        known, unknown = self._known, self.unk_id
        return [known.get(character, unknown) for character in word[:-1]] + [known.get(word[-1] + END, unknown)]

    def whole(self, piece: str) -> str | None:
        return piece.removesuffix(END) or None if piece.endswith(END) else None

    def singles(self) -> list[int]:
        return [i for i, piece in enumerate(self.vocabulary) if i == self.unk_id or self.width(piece) == 1]

    def width(self, piece: str) -> int:
        """Characters of a word that a piece stands for; an unknown one is one."""
        return 1 if piece == self.specials["unk"] else len(piece.removesuffix(END))

    def _pieces(self, word: str) -> list[tuple[int, int]]:
        return self._merged_words[word]

    def _merge_word(self, word: str) -> tuple[tuple[int, int], ...]:
        """(id, end) of each piece of a word."""
        ids = self._word_ids(word)
        return tuple(zip(ids, itertools.accumulate(self.width(self.vocabulary[i]) for i in ids)))

    def continues(self, token_id: int) -> bool:
        """No: a piece shows where its word ends, not where it begins."""
        return False

    def spelling(self, token_id: int) -> bytes | None:
        """What a token stands for in a text that is decoded; None where it is left out."""
        if token_id in (self.pad_id, self.cls_id, self.sep_id):
            return None
        piece = self.vocabulary[token_id]
        ends = piece.endswith(END) and token_id not in self.added_ids
        return (piece.removesuffix(END) + " " if ends else piece).encode()

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids with a blank after each word; padding, `cls` and `sep` left out. Case and accents stay lost."""
        return self.joined(ids).decode().removesuffix(" ")

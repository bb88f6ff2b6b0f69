"""Words as BERT splits them (Devlin et al., 2019): what WordPiece and GPT's BPE make pieces of."""

import itertools

from kerasbert.text.base import Cache, Tokenizer, flag
from kerasbert.text.normalize import TABLES, Normalizer, inside


class BertWords(Tokenizer):
    """A tokenizer whose texts are normalised and split as by Hugging Face's `BertNormalizer` + `BertPreTokenizer`.

    A subclass calls `_split` and has `_pieces(word)` -> (id, end) of each piece of a word.
    """

    lowercase: bool
    strip_accents: bool
    split_cjk: bool

    def _split(self, lowercase: bool, strip_accents: bool | None, split_cjk: bool) -> None:
        """How texts are normalised: see `WordPiece`."""
        self.lowercase = flag("lowercase", lowercase)
        self.strip_accents = self.lowercase if strip_accents is None else flag("strip_accents", strip_accents)
        self.split_cjk = flag("split_cjk", split_cjk)
        self._normalizer = Normalizer(self.lowercase, self.strip_accents, self.split_cjk)
        self._chunks, self._words = Cache(self._tokenize_chunk), Cache(self._ids_of)

    def _split_settings(self) -> dict:
        """The same for json."""
        return {"lowercase": self.lowercase, "strip_accents": self.strip_accents, "split_cjk": self.split_cjk}

    def _pieces(self, word: str) -> list[tuple[int, int]]:
        """(id, end) of each piece of a word."""
        raise NotImplementedError

    def to_text(self, text: str | bytes) -> str:
        """Bytes are UTF-8; what is invalid there counts as U+FFFD, which like a lone surrogate is dropped."""
        return text.decode("utf-8", "replace") if isinstance(text, bytes) else text

    def encode_plain(self, text: str) -> list[int]:
        """Ids of a text without added tokens."""
        return [*itertools.chain.from_iterable(map(self._words.__getitem__, self._normalizer.split(text)))]

    def _ids_of(self, word: str) -> tuple[int, ...]:
        return tuple([i for i, _ in self._pieces(word)])

    def tokenize_plain(self, text: str, first: bool) -> tuple[list[int], list[int], list[int]]:
        """Ids, starts and ends of a text without added tokens."""
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
        return ids, starts, ends

    def form(self, text: str) -> tuple[str, list[int], list[int]]:
        """The text as BertNormalizer leaves it, and where each of its characters begins and ends."""
        form, sources = self._normalizer.form(text)
        return form, sources, [source + 1 for source in sources]

    def tokenize_form(self, form: str, first: bool) -> tuple[list[int], list[int], list[int]]:
        """Words of a normalised text, punctuation apart."""
        ids: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        word, begin = "", 0

        def end_word() -> None:
            at = begin
            for i, end in self._pieces(word) if word else ():
                ids.append(i)
                starts.append(at)
                at = begin + end
                ends.append(at)

        for place, character in enumerate(form):
            alone = inside(ord(character), TABLES.punctuation)
            if alone or character == " ":
                end_word()
                word = ""
            if alone:
                word, begin = character, place
                end_word()
                word = ""
            elif character != " ":
                begin = begin if word else place
                word += character
        end_word()
        return ids, starts, ends

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

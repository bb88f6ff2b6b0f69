"""What a runner is given to write records: the files, how they become entries, and who writes a shard."""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kerasbert.data import encode, joins
from kerasbert.data.languages import language_repeats
from kerasbert.data.shards import ShardWriter
from kerasbert.data.sources import file_documents
from kerasbert.text.base import Tokenizer


@dataclasses.dataclass(frozen=True)
class Source:
    """A file of text, how it is read, and the number of its language among the languages' names in order."""

    path: str
    language: str | None = None
    number: int = 0
    text_field: str = "text"
    encoding: str | None = None

    def documents(self) -> Iterator[list[str]]:
        """The documents of the file."""
        return file_documents(self.path, self.text_field, self.encoding)


@dataclasses.dataclass(frozen=True)
class Job:
    """What a runner is given; `smoothing` is None where there are no languages, `units` are segmenters by level or None.

    `size` is that of all text in bytes, about.
    """

    sources: Sequence[Source]
    tokenizer: Tokenizer
    writer: ShardWriter
    smoothing: float | None
    units: Sequence[joins.Segmenter | None] = (None, None)
    size: float = math.inf

    def languages(self, counts: Mapping[int, tuple[int, int]]) -> dict[str, dict[str, float]]:
        """What the manifest says of each language, from its number of (documents, tokens)."""
        if self.smoothing is None:
            return {}
        repeats = language_repeats({number: tokens for number, (_, tokens) in counts.items()}, self.smoothing)
        names = {source.number: source.language or "" for source in self.sources}
        return {
            names[number]: {"documents": counts[number][0], "tokens": counts[number][1], "repeats": repeats[number]}
            for number in sorted(counts)
        }

    def entries(self, sources: Iterable[Source], encoder: encode.Encode) -> Iterator[bytes]:
        """The documents of files, tokenized, as a shard takes them."""
        for number, documents in self.batches(sources):
            yield from encode.batch_entries(documents, number, encoder, self.writer.fit)

    def batches(self, sources: Iterable[Source]) -> Iterator[tuple[int, list[list[str]]]]:
        """(number of a language, documents that are tokenized together) of files."""
        for number, group in itertools.groupby(sources, key=lambda source: source.number):
            documents = itertools.chain.from_iterable(source.documents() for source in group)
            yield from ((number, some) for some in encode.gather_lines(documents))

    def repeats(self, languages: Mapping[str, Mapping[str, float]]) -> dict[int, float] | None:
        """How often a document of each language is taken, for `ShardWriter.write`."""
        numbers = {source.language: source.number for source in self.sources}
        return {numbers[name]: found["repeats"] for name, found in languages.items()} or None

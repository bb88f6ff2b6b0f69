"""Files of text -> a vocabulary, read as records are made of them; and what the vocabulary covers."""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence

from kerasbert.data.config import VocabularyConfig
from kerasbert.data.sources import named, read_lines
from kerasbert.errors import InputError
from kerasbert.options import configured
from kerasbert.storage import files as folders
from kerasbert.text.base import SENTINEL, Tokenizer
from kerasbert.text.hf_spm import MOST_SENTINELS
from kerasbert.text.train import train
from kerasbert.text.train_unigram import CHARACTERS

Files = str | os.PathLike | Sequence[str | os.PathLike]
SAMPLE = 2000  # lines at most that the coverage is counted on
LONGEST = 1000  # characters of a line of the sample
SMALL = 0.75  # of the size asked for
UNKNOWN = 0.01  # of the sample's tokens, before it is said


@dataclasses.dataclass(frozen=True)
class Coverage:
    """How a tokenizer does on an even sample of its own text.

    Args:
        lines, characters: of all the text.
        tokens, unknown: of the sample.
        lost: characters in the unknown tokens.
        sampled: characters of the sample.
        read: characters at most that the kind learns from, of lines spread over the text; None for all.
    """

    lines: int
    characters: int
    tokens: int
    unknown: int
    lost: int
    sampled: int
    read: int | None = None

    def __str__(self) -> str:
        share = self.unknown / max(1, self.tokens)
        return f"learned from {self.lines:,} lines, {self.characters:,} characters; {share:.2%} of a sample's tokens unknown"

    def warnings(self, wanted: int, size: int) -> Iterator[str]:
        """What a user should know of a vocabulary of `size` pieces where `wanted` were asked for."""
        if size < SMALL * wanted:
            yield f"{size:,} pieces, {wanted:,} were asked for: the text has no more that occur often enough. Give more text"
        if self.read and self.characters > self.read:
            yield (
                f"learned from lines of at most {self.read:,} of the {self.characters:,} characters, spread over the text: the "
                "kind holds no more in memory"
            )
        if self.unknown > UNKNOWN * self.tokens:
            yield (
                f"{self.unknown / self.tokens:.1%} of the tokens are unknown, {self.lost / self.sampled:.1%} of the "
                "characters: take a larger --size, or --kind bpe, which knows every byte"
            )


@configured(VocabularyConfig)
def train_tokenizer(files: Files, config: VocabularyConfig) -> Tokenizer:
    """Learn a vocabulary from files, as `kerasbert vocab` does.

    Args:
        files: one file, or several, as of `read_documents`.
        {options}

    Returns:
        the tokenizer.

    Raises:
        InputError: a file that is missing or does not decode, a kind that does not exist, a size too small for the text,
            or `out` is taken.
    """
    return learn(files, config)[0]


def learn(files: Files, config: VocabularyConfig) -> tuple[Tokenizer, Coverage]:
    """`train_tokenizer`, and what the vocabulary covers."""
    if not 0 <= config.sentinels <= MOST_SENTINELS:
        raise InputError(f"sentinels is {config.sentinels}, expected 0 to {MOST_SENTINELS}")
    files = named(files)
    if config.out is not None:
        folders.check_free(config.out, config.overwrite, files)
    sample = _Sample(read_lines(files, text_field=config.text_field, encoding=config.encoding))
    tokenizer = train(config.kind, sample, config.size, lowercase=config.lowercase, layout=config.layout)
    if config.sentinels:
        tokenizer = tokenizer.extended([SENTINEL.format(number) for number in reversed(range(config.sentinels))])
    if config.out is not None:
        with folders.new_directory(config.out, config.overwrite) as folder:
            tokenizer.save(folder)
    return tokenizer, _coverage(tokenizer, sample, CHARACTERS if config.kind == "unigram" else None)


class _Sample:
    """Lines that pass by, of which every n-th is kept: n doubles where there are more than SAMPLE of them."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.source, self.lines, self.characters = lines, 0, 0
        self.kept: list[str] = []
        self.every = 1

    def __iter__(self) -> Iterator[str]:
        for line in self.source:
            if self.lines % self.every == 0:
                self.kept.append(line[:LONGEST])
                if len(self.kept) > SAMPLE:
                    self.kept, self.every = self.kept[::2], 2 * self.every
            self.lines += 1
            self.characters += len(line)
            yield line


def _coverage(tokenizer: Tokenizer, sample: _Sample, read: int | None) -> Coverage:
    tokens = unknown = lost = 0
    for line in sample.kept:
        found = tokenizer.tokenize(line)
        tokens += len(found.ids)
        for token, start, end in zip(found.ids, found.starts, found.ends):
            if token == tokenizer.unk_id:
                unknown, lost = unknown + 1, lost + end - start
    return Coverage(sample.lines, sample.characters, tokens, unknown, lost, sum(map(len, sample.kept)), read)

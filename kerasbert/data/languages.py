"""Languages of a corpus: how often each is taken, and the numbers that rows hold of them."""

import dataclasses
import itertools
import os
from collections.abc import Collection, Mapping, Sequence

from kerasbert.data.packing import packing as packing_of
from kerasbert.errors import InputError
from kerasbert.text.languages import number_languages

Paths = str | os.PathLike | Sequence[str | os.PathLike]
Files = Paths | Mapping[str, Paths]


def language_repeats(tokens: Mapping[int, int], smoothing: float) -> dict[int, float]:
    """How often to take a document of each language so that its share p becomes p^smoothing / (sum of those).

    "Exponentially smoothed weighting" of multilingual BERT's README. Six decimals: the same on every machine.

    >>> language_repeats({0: 900, 1: 100}, 0.5)
    {0: 0.833333, 1: 2.5}
    """
    total = sum(tokens.values())
    shares = {language: count / total for language, count in tokens.items() if count}
    norm = sum(share**smoothing for share in shares.values())
    return {language: round(share ** (smoothing - 1) / norm, 6) for language, share in shares.items()}


def translated(files: Files, text_field: str) -> dict[str | None, tuple[str, str]]:
    """The two languages of each pair of translations, which are the columns of its files too.

    >>> translated({"en-fr": ["a.tsv"], "de-en": ["b.tsv"]}, "text")
    {'de-en': ('de', 'en'), 'en-fr': ('en', 'fr')}
    """
    if not isinstance(files, Mapping):
        names = text_field.split(",")
        if len(names) != 2 or len(set(names)) != 2:
            raise InputError(f"text_field {text_field!r}, expected two columns with translations, such as en,fr")
        return {None: (names[0], names[1])}
    found: dict[str | None, tuple[str, str]] = {}
    for name in sorted(files):
        names = name.split("," if "," in name else "-")
        if len(names) != 2 or len(set(names)) != 2 or not all(names):
            raise InputError(f"--language {name!r}, expected a pair of columns with translations, such as en-fr")
        found[name] = (names[0], names[1])
    return found


def check_language_ids(files: Files, packing: str) -> None:
    """Refuse numbers of languages where there are none, or several in a row."""
    if not isinstance(files, Mapping):
        raise InputError("language_ids without languages: give each language's files (--language NAME FILE)")
    if packing_of(packing, 512).crosses:
        raise InputError(f"packing {packing!r} puts several languages into a row, expected doc or one of pairs")


@dataclasses.dataclass(frozen=True)
class CorpusLanguages:
    """The languages whose numbers rows hold; none where rows hold no languages.

    Args:
        names: the languages of the corpus.
        table: language -> its number, of these and of others that the tokenizer knows.
        pairs: of translations, the two languages of each pair's files (`translated`).
    """

    names: Collection[str]
    table: Mapping[str, int]
    pairs: Mapping[str | None, tuple[str, str]]

    def named(self) -> list[str]:
        """Languages by number, as the manifest has them.

        Those behind the last one in use may come and go: the rows stay the same.
        """
        return list(self.table)[: max(self.table[name] for name in self.names) + 1]

    def columns(self) -> tuple[tuple[int, int], ...]:
        """Of translations, the numbers of each pair's two columns (`ShardWriter.columns`)."""
        return tuple((self.table[a], self.table[b]) for a, b in self.pairs.values())

    def of_documents(self) -> tuple[int, ...]:
        """Of documents in one language each, the languages' numbers in the order of their names."""
        return () if self.pairs else tuple(self.table[name] for name in sorted(self.names))


def number_corpus(
    files: Files, packing: str, text_field: str, language_ids: bool, known: Mapping[str, int] | None
) -> CorpusLanguages:
    """The languages whose numbers the rows of that packing shall hold; `known` are those of the tokenizer.

    Raises:
        InputError: translations that name no two languages, or `language_ids` where a row has no language.
    """
    pairs = translated(files, text_field) if packing == "translations" else {}
    if language_ids and not pairs:
        check_language_ids(files, packing)
    of_documents = [*files] if language_ids and isinstance(files, Mapping) else []
    names = {*itertools.chain.from_iterable(pairs.values())} if pairs else {*of_documents}
    return CorpusLanguages(names, number_languages(names, known) if names else {}, pairs)

"""Rows of texts -> batches of arrays, of few lengths: each is a program of its own, none has a dynamic shape."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasbert import inputs
from kerasbert.answers.base import Kind, Parts, TextOrParts
from kerasbert.errors import InputError, of_text
from kerasbert.inputs import NO_TREE, PAD, TEXT, Input, Row
from kerasbert.progress import counted
from kerasbert.tasks import ahead, spelled_specials
from kerasbert.tasks.base import Task, TaskKind, find
from kerasbert.tasks.rows import Targets
from kerasbert.tasks.token_cache import TokenCache
from kerasbert.text import Tokenizer

LENGTH_STEP = 16
WINDOW = 16, 50  # batches whose rows are sorted by length: of many a quarter, at most the latter, as in transformers
FIRST = "first/"  # before the names of the first rows' arrays, where these are padded to lengths of their own


class Lengths(NamedTuple):
    """What the rows of training batches are padded to (`tasks.length_buckets`).

    Args:
        every: int, ascending; None for multiples of LENGTH_STEP.
        first: int, ascending, those of the first row of each text: its inputs are named FIRST + name, and those of the other
            rows as ever. Empty: as the others, in one array with them.
    """

    every: Sequence[int] | None = None
    first: Sequence[int] = ()

    @property
    def shapes(self) -> int:
        """How many shapes batches of these lengths have."""
        return len(self.every or ()) * max(1, len(self.first))


MULTIPLES = Lengths()


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Packed rows of some texts.

    Args:
        rows: unpadded. owners: int [rows], the text of each row, ascending.
        pad_id: of the tokenizer. declared: what the network reads. settings: input name -> number of a setting.
        parts: of each text. kind: what an answer is. lengths: what rows are padded to; empty: LENGTH_STEP's multiples, and the
            longest of a batch where rows are answered (`ordered_batches`).
    """

    rows: list[Row]
    owners: np.ndarray
    pad_id: int = 0
    declared: tuple[Input, ...] = TEXT
    settings: Mapping[str, int] = dataclasses.field(default_factory=dict)
    parts: Sequence[Parts] = ()
    kind: Kind = dataclasses.field(default_factory=Kind)
    lengths: Sequence[int] = ()

    @property
    def texts(self) -> int:
        """How many texts there are."""
        return len(self.parts) or (int(self.owners[-1]) + 1 if len(self.owners) else 0)

    @property
    def truncated(self) -> tuple[int, ...]:
        """The texts that lost tokens."""
        return tuple(sorted({int(owner) for owner, row in zip(self.owners, self.rows) if row.truncated}))

    @property
    def triples(self) -> list[list[tuple[str, str, str]]] | None:
        """What a graph added to each text, each triple once; None of a model that reads no sentence trees."""
        if not any(each.filled_by == "tree" for each in self.declared):
            return None
        return [inputs.triples_of(self.rows[at]) for at in self.of()]

    def of(self) -> list[slice]:
        """The rows of each text."""
        starts = np.searchsorted(self.owners, np.arange(self.texts + 1))
        return [slice(a, b) for a, b in itertools.pairwise(starts)]

    def take(self, texts: Sequence[int]) -> "Encoded":
        """The rows of some of the texts."""
        rows = self.of()
        owners = np.repeat(np.arange(len(texts)), [rows[i].stop - rows[i].start for i in texts])
        parts = [self.parts[i] for i in texts] if self.parts else ()
        return dataclasses.replace(
            self, rows=[row for i in texts for row in self.rows[rows[i]]], owners=owners, parts=parts
        )

    def length_quantiles(self, count: int = 33) -> list[int]:
        """Tokens of the rows: the least, the most, and between them as many others, evenly in rank."""
        return np.quantile([row.length for row in self.rows], np.linspace(0, 1, count), method="nearest").tolist()

    def shapes(self) -> int:
        """How many lengths batches of them may have, as multiples of LENGTH_STEP."""
        return len({-(-row.length // LENGTH_STEP) for row in self.rows})

    def token_ids(self) -> np.ndarray:
        """All token ids of its batches, each once, ascending: int [r]."""
        read = [each for each in inputs.used(self.declared, self.settings) if each.pad == PAD]
        values = (
            row.values[each.name] if each.make is None else each.make(row.values) for each in read for row in self.rows
        )
        return np.unique(np.fromiter(itertools.chain([self.pad_id], *values), "int64"))

    def longest_of_batches(self, batch: int, seed: int, together: bool = False) -> np.ndarray:
        """Of each batch of the first epoch tokens of the longest of its units' first rows, second rows, ...: int [batches, k]."""
        units, lengths = self.units(together), np.array([row.length for row in self.rows])
        order = epoch_order(self, batch, seed, 0, together)
        return np.array([lengths[units[numbers]].max(axis=0) for numbers in order])

    def units(self, together: bool = False) -> np.ndarray:
        """What batches are made of: int [n, k], numbers of the rows that are trained together.

        Args:
            together: whether the k rows of a text are; a text that has fewer repeats its last.
        """
        if not together:
            return np.arange(len(self.rows))[:, None]
        rows = self.of()
        most = max((at.stop - at.start for at in rows), default=1)
        return np.array([np.minimum(np.arange(at.start, at.start + most), at.stop - 1) for at in rows])

    def told(self, what: str, longest: int) -> list[str]:
        """The lines that say how many texts are truncated, and what else their kind tells; none where none is."""
        count = len(self.truncated)
        lines = [self.kind.cut(count, self.texts, longest)] if count else []
        if (triples := self.triples) is not None:
            inserted, lost = sum(len(row.triples) for row in self.rows), sum(row.lost for row in self.rows)
            without, more = sum(not each for each in triples), f", {lost} more found no room" if lost else ""
            lines.append(f"triples inserted: {inserted}{more}; texts without any: {without} of {self.texts}")
        return [what + line for line in (*lines, *self.kind.told(self.rows))]

    def arrays(
        self, indices: Iterable[int], longest: int, rows: int | None = None, lengths: Sequence[int] = ()
    ) -> dict[str, np.ndarray]:
        """Inputs [rows, S] of some rows, padded to `rows` rows and to the next of `lengths`, else of its own."""
        chosen = [self.rows[i] for i in indices]
        length = min(longest, self.padded(max(row.length for row in chosen), lengths or self.lengths))
        settings: dict[str, Any] = {"pad_id": self.pad_id, "count": rows, "settings": self.settings}
        return inputs.arrays(self.declared, chosen, length, target=self.kind.target_length, **settings)

    @staticmethod
    def padded(length: int, lengths: Sequence[int]) -> int:
        """The length that a row of that many tokens is padded to."""
        return next((each for each in lengths if each >= length), -(-length // LENGTH_STEP) * LENGTH_STEP)


def encode_texts(
    tokenizer: Tokenizer | None,
    texts: Sequence[TextOrParts],
    longest: int,
    *,
    kind: TaskKind | None = None,
    declared: tuple[Input, ...] = TEXT,
    settings: Mapping[str, int] | None = None,
    cache: TokenCache | None = None,
    what: str | None = None,
) -> Encoded:
    """Tokenize texts or pairs, truncated to `longest` tokens.

    Args:
        kind: of the task, which may make several rows of a text. declared: what the network reads.
        settings: input name -> number of a setting.
        cache: where tokens are read from, and wait to be written.
        what: str, what the progress of it is called; by default it is shown where a command shows its own.
    """
    if tokenizer is None:
        raise InputError(
            "the model has no tokenizer: import it with one, or put it into the model directory's tokenizer/"
        )
    if tokenizer.knowledge is None and any(each.filled_by == "tree" for each in declared):
        raise InputError(NO_TREE.format("a tokenizer without one"))
    answers = (kind or find("vector")).answers
    parts = [text if isinstance(text, tuple) else (text,) for text in texts]
    spelled_specials.tell(tokenizer, parts, answers)

    def make(tokenizer: Tokenizer, number: int) -> list[Row]:
        with of_text(number):  # a mistake in a text bears its number
            return answers.rows(tokenizer, parts[number], longest)

    with ahead.tokenizing(tokenizer, parts, make) as (known, to):

        def pack(tokenizer: Tokenizer) -> list[list[Row]]:
            rows = []
            for number in counted(range(len(parts)), len(parts), "texts are tokenized", what):
                to(number)
                rows.append(make(tokenizer, number))
            return rows

        if cache is None:
            rows = pack(known)
        else:
            rows = cache.rows(pack, known, [answers.name, sorted(answers.options.items()), longest, *parts])
    owners = np.repeat(np.arange(len(rows)), [len(each) for each in rows])
    flat = [row for each in rows for row in each]
    return Encoded(flat, owners, tokenizer.pad_id, declared, dict(settings or {}), parts, answers)


def epoch_order(encoded: Encoded, batch: int, seed: int, epoch: int, together: bool = False) -> list[np.ndarray]:
    """Numbers of each batch of one epoch: shuffled, then sorted by length within windows of batches.

    Sorting in windows keeps batches random and their padding small. Differs: transformers' group_by_length takes windows of 1 to
    50 batches, of few rows narrower ones. With all 32 batches of a thousand sentences in one, accuracy fell by .011 (five seeds).

    Args:
        together: whether the numbers are those of texts, whose rows stay together (`Encoded.units`); else of rows.
    """
    generator = np.random.default_rng([seed, epoch])
    lengths = np.array([row.length for row in encoded.rows])[encoded.units(together)].max(axis=1)
    order = generator.permutation(len(lengths))
    window = batch * min(max(WINDOW[0], len(lengths) // (4 * batch)), WINDOW[1])
    parts = [order[i : i + window] for i in range(0, len(order), window)]
    order = np.concatenate([part[np.argsort(lengths[part], kind="stable")] for part in parts])
    batches = [order[i : i + batch] for i in range(0, len(order), batch)]
    return [batches[i] for i in generator.permutation(len(batches))]


def training_batches(
    encoded: Encoded,
    targets: Targets,
    *,
    batch: int,
    longest: int,
    seed: int,
    start: int = 0,
    task: Task | None = None,
    lengths: Lengths = MULTIPLES,
) -> Iterator[dict[str, np.ndarray]]:
    """Endless batches from update `start` on, of exactly `batch` rows, or of `batch` texts with k rows each.

    What fills up the last batch of an epoch weighs 0. `row` counts the rows: dropout differs between those of a text.
    `example` int32 is the number of each row in `encoded`, -1 of what fills up.

    Args:
        targets: of the texts, as the task's kind has scaled them. task: by default a classification.
        lengths: what rows are padded to.
    """
    kind = find("classification") if task is None else task.how
    rows_each = encoded.units(kind.together).shape[1]
    for indices in _training_rows(encoded, batch, seed, start, kind.together):
        units = indices.reshape(-1, rows_each)
        if lengths.first:
            own = encoded.arrays(units[:, 0], longest, batch, lengths.first)
            arrays = encoded.arrays(units[:, 1:].ravel(), longest, batch * (rows_each - 1), lengths.every or ())
            arrays |= {FIRST + name: x for name, x in own.items()}
        else:
            arrays = encoded.arrays(indices, longest, batch * rows_each, lengths.every or ())
        rows, owners = [encoded.rows[i] for i in indices], encoded.owners[indices]
        # of an array all at once: one by one costs a sixth of the batch
        wanted = list(targets[owners]) if isinstance(targets, np.ndarray) else [targets[i] for i in owners]
        width = arrays["token_ids"].shape[1]
        # a classification does without its task
        arrays |= kind.batch(task, rows, wanted, batch, width)  # pyright: ignore[reportArgumentType]
        arrays["row"] = np.arange(batch * rows_each, dtype="int32")
        arrays["example"] = np.pad(indices, (0, batch * rows_each - len(indices)), constant_values=-1).astype("int32")
        yield arrays


def _training_rows(encoded: Encoded, batch: int, seed: int, start: int, together: bool) -> Iterator[np.ndarray]:
    """Numbers of the rows of each of `training_batches`, endless, from update `start` on."""
    units = encoded.units(together)
    per_epoch = -(-len(units) // batch)
    for epoch in itertools.count(start // per_epoch):
        order = epoch_order(encoded, batch, seed, epoch, together)
        yield from (units[numbers].ravel() for numbers in order[start % per_epoch :])
        start = 0


def ordered_batches(
    encoded: Encoded, longest: int, batch: int = 64
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """(indices, inputs) of all rows, shortest first, padded to the longest row of a batch; of `encoded.lengths` to the next."""
    lengths = np.array([row.length for row in encoded.rows], int)
    order = np.argsort(lengths, kind="stable")
    bounds = np.searchsorted(lengths[order], list(encoded.lengths[:-1]), side="right")
    for group in np.split(order, bounds):
        for i in range(0, len(group), batch):
            chosen = group[i : i + batch]
            own = encoded.lengths or (int(lengths[chosen].max()),)  # one graph takes any length: no multiple is needed
            yield chosen, encoded.arrays(chosen, longest, lengths=own)

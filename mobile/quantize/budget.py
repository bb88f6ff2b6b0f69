"""The accuracy budget (`--max-drop`): how little must stay float so that a file loses no more than so many points."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from kerasbert.answers.base import Outputs
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json
from kerasbert.tasks.base import Task
from kerasbert.tasks.batches import Encoded
from kerasbert.text import Tokenizer
from ..tflite import repack, weights
from . import forms, ranges, static
from .schemes import SCHEMES

Candidates = Iterator[tuple[bytes, Json]]
SENSITIVITY = 200  # texts that the cost of each weight is measured on
FINENESS = (static.FINENESS, 300.0, 1000.0, 3000.0, 10000.0)


def check(quantize: str, targets: np.ndarray | Sequence | None) -> None:
    """Refuse a budget that cannot be measured or that nothing could be done for."""
    if not SCHEMES[quantize].budget:
        known = ", ".join(name for name, scheme in SCHEMES.items() if scheme.budget)
        raise InputError(f"max_drop is given with {quantize}, expected with one of: {known}")
    if targets is None:
        raise InputError("max_drop needs labelled rows of the task to measure a drop on: give data (--data)")


@dataclasses.dataclass
class Judge:
    """What a candidate is worth.

    Args:
        finish: .tflite -> the file with everything attached.
        task: Task.
        texts, expected, targets: rows, what the Keras model says of them [n, outputs], and their labels.
        run: (finished file, texts, tokenizer) -> what it says of them, [n, outputs].
        tokenizer: the reader's that the file is for; by default the one in the file.
        encode: texts -> their rows as the model and as the file's reader read them; a kind of one row a text does without.
    """

    finish: Callable[[bytes], bytes]
    task: Task
    texts: Sequence
    expected: Outputs
    targets: np.ndarray | Sequence
    run: Callable[[bytes, Sequence, Tokenizer | None], Outputs]
    tokenizer: Tokenizer | None = None
    encode: Callable[[Sequence], tuple[Encoded, Encoded]] | None = None

    def __post_init__(self) -> None:
        self.own, self.fed = self.encode(self.texts) if self.encode else (None, None)

    def check_reading(self, said: Outputs, max_drop: float, losses: Sequence[str]) -> None:
        """Refuse where the model itself loses more, of what the file's reader makes of the texts: no weight mends that.

        Args:
            said: float32 [n, outputs], the Keras model of the ids that the file will be fed.
            losses: what the reader loses, in words.
        """
        drop = self.metric(self.expected, self.own) - self.metric(said, self.fed)
        if losses and drop > max_drop:
            raise InputError(
                f"max_drop is {max_drop:g} points, and reading alone loses {drop:.2f}: {'; '.join(losses)}. Nothing was written"
            )

    def metric(self, outputs: Outputs, encoded: Encoded | None = None) -> float:
        """The task's metric in points, larger is better; `encoded` are the rows that the outputs are of."""
        kind = self.task.how
        sign = 1 if kind.better(self.task.metric, 1.0, 0.0) else -1
        kind.check_metric(self.task)
        measured = self.task.measured(kind.from_exported(outputs), self.targets, encoded)
        return 100 * sign * measured[self.task.metric]

    def row(self, made: bytes, kept: Iterable[str]) -> Json:
        """A candidate's row of the table: float, drop (points), bytes, mean_difference."""
        blob = self.finish(repack.slim(made))
        outputs = self.run(blob, self.texts, self.tokenizer)
        drop = round(self.metric(self.expected, self.own) - self.metric(outputs, self.fed), 4)
        difference = float(self.task.how.answers.differences(self.expected, outputs).mean())
        return {"float": list(kept), "drop": drop, "bytes": len(blob), "mean_difference": difference}

    def sample(self, count: int) -> "Judge":
        """The same on fewer texts, spread evenly."""
        count = min(count, len(self.texts))
        some = [i * len(self.texts) // count for i in range(count)]
        texts, targets = ([values[i] for i in some] for values in (self.texts, self.targets))
        slices = self.own.of() if self.own else [slice(i, i + 1) for i in range(len(self.texts))]
        expected = [row for i in some for row in self.expected[slices[i]]]
        if isinstance(self.expected, np.ndarray):
            expected = np.stack(expected)
        if isinstance(self.targets, np.ndarray):
            targets = self.targets[some]
        return dataclasses.replace(self, texts=texts, expected=expected, targets=targets)


def meet(
    data: bytes, quantize: str, names: Sequence[str], batches: forms.Feeds, max_drop: float, judge: Judge
) -> tuple[bytes, Json]:
    """The smallest file found that loses at most `max_drop` points.

    `dynamic_int8` and `int8_embeddings`: the cost of a weight is the mean |difference| of the outputs when it alone is int8
    (accuracy on a few hundred texts is too coarse to order by). The most costly become float one after the other until the
    budget is met; then each of them that is not needed becomes int8 again, the largest first.
    `static_int8`: operators of less and less uneven values become float.

    Returns:
        The finished file, and the record of `forms.quantized` with budget: one row for each candidate, of float (what
        stayed float beyond the quantization's own), drop, bytes, mean_difference and chosen.
    Raises:
        InputError: no candidate meets it; says the best found.
    """
    rows: list[Json] = []
    best: tuple[tuple, bytes] | None = None
    search = _weights if SCHEMES[quantize].kinds else _static
    for made, row in search(data, quantize, names, batches, max_drop, judge):
        rows.append(row | {"chosen": False})
        rank = (row["bytes"], row["drop"], len(rows) - 1)
        if row["drop"] <= max_drop and (best is None or rank < best[0]):
            best = rank, made
    if best is None:
        least = min(rows, key=lambda row: (row["drop"], row["bytes"]))
        raise InputError(
            f"max_drop is {max_drop:g} points, which no {quantize} file meets: the best of {len(rows)} loses "
            f"{least['drop']:.2f} points at {least['bytes'] / 1e6:.1f} MB with {len(least['float'])} parts in float. Nothing "
            "was written: allow more, use --quantize fp16, or measure on more rows"
        )
    (*_, place), made = best
    rows[place]["chosen"] = True
    return judge.finish(repack.slim(made)), forms.record(made, quantize, names) | {"budget": rows}


def _weights(
    data: bytes, quantize: str, names: Sequence[str], batches: forms.Feeds, max_drop: float, judge: Judge
) -> Candidates:
    """Candidates that keep weights in float."""
    model = repack.read(data)
    found = weights.find(model, names)
    whole = list(dict.fromkeys(weight.name for weight in forms.plan(quantize, found)))

    def make(kept: Iterable[str], judge: Judge = judge) -> tuple[bytes, Json]:
        made = repack.write(weights.lower(model, forms.plan(quantize, found, kept)))
        return made, judge.row(made, [name for name in whole if name in kept])

    made, row = make(())
    yield made, row
    if row["drop"] <= max_drop:
        return
    few = judge.sample(SENSITIVITY)
    cost = {name: make(set(whole) - {name}, few)[1]["mean_difference"] for name in whole}
    kept: list[str] = []
    for name in sorted(whole, key=lambda name: -cost[name])[:-1]:  # all of them would be the float file
        kept.append(name)
        made, row = make(kept)
        yield made, row
        if row["drop"] <= max_drop:
            break
    else:
        return
    size = {name: sum(weight.size for weight in found if weight.name == name) for name in kept}
    for name in sorted(kept[:-1], key=lambda name: -size[name]):
        fewer = [other for other in kept if other != name]
        made, row = make(fewer)
        yield made, row
        if row["drop"] <= max_drop:
            kept = fewer


def _static(
    data: bytes, quantize: str, names: Sequence[str], batches: forms.Feeds, max_drop: float, judge: Judge
) -> Candidates:
    """Candidates that keep more and more operators in float."""
    seen = ranges.observe(data, batches)
    for fineness in FINENESS:
        made = static.static(data, seen, fineness)
        row = judge.row(made, [f"{name} x{count}" for name, count in static.floats(repack.read(made)).items()])
        yield made, row
        if row["drop"] <= max_drop:
            return

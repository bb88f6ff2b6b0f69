"""Calls that wait together are answered together: joined along the first axis, as TF Serving's batcher does, and split again."""

import asyncio
import dataclasses
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path

import numpy as np

from kerasbert.export.status import CallError

FILE = "batching_params.pbtxt"
Arrays = Mapping[str, np.ndarray]
Run = Callable[[Arrays], Arrays]


@dataclasses.dataclass(frozen=True)
class Parameters:
    """How calls are joined.

    Args:
        rows: int, most of a batch; a call of more is split.
        wait: float, seconds that the first call of a batch waits for others.
        batches: int, that may wait.
        pad: bool, whether calls that differ in other axes are joined, each padded with its first element.
    """

    rows: int = 32
    wait: float = 0.002
    batches: int = 100
    pad: bool = False


def parameters(folder: Path) -> Parameters | None:
    """Those that stand beside a SavedModel; None where it has none: its rows may depend on each other, and no calls are joined.

    Raises:
        ValueError: a file that says other things.
    """
    if not (folder / FILE).is_file():
        return None
    text = re.sub(r"#.*", "", (folder / FILE).read_text("utf-8"))
    values = dict(re.findall(r"(\w+)\s*(?::|\{\s*value\s*:)\s*(\w+)", text))
    try:
        return Parameters(
            rows=max(1, int(values.get("max_batch_size", 32))),
            wait=int(values.get("batch_timeout_micros", 2000)) / 1e6,
            batches=max(1, int(values.get("max_enqueued_batches", 100))),
            pad=values.get("pad_variable_length_inputs") == "true",
        )
    except ValueError as error:
        raise ValueError(f"{FILE} is damaged: {error}") from error


@dataclasses.dataclass(eq=False)
class _Call:
    inputs: Arrays
    rows: int
    joins: object  # calls of equal `joins` can be one batch
    length: float  # a row's size: calls of like length are joined first
    since: float
    answer: asyncio.Future


class Queue:
    """The calls of one signature of a version.

    Args:
        run: answers the inputs of a batch, in a thread. how: Parameters, or None for calls that are never joined.
        slots: asyncio.Semaphore, of the batches that run at once. pool: Executor, its threads.
        told: is called with the rows of every batch.
    """

    def __init__(
        self, run: Run, how: Parameters | None, slots: asyncio.Semaphore, pool: Executor, told: Callable[[int], None]
    ) -> None:
        self.run, self.how, self.slots, self.pool, self.told = run, how, slots, pool, told
        self.limits = how or Parameters()
        self.waiting: list[_Call] = []
        self.full = asyncio.Event()
        self.tasks: set[asyncio.Task] = set()
        self.taking = False

    @property
    def rows(self) -> int:
        """Those that wait."""
        return sum(call.rows for call in self.waiting)

    async def answer(self, inputs: Arrays) -> Arrays:
        """The outputs of a call.

        Raises:
            CallError: the model refuses it, or too many wait.
        """
        rows = _rows(inputs)
        if self.how is None or rows is None:
            return await self._wait(inputs, rows or 1, object())
        joins = tuple(
            (name, each.shape[1:] if not self.how.pad else each.ndim) for name, each in sorted(inputs.items())
        )
        most = self.how.rows
        if rows <= most:
            return await self._wait(inputs, rows, joins)
        parts = []  # one after the other: others' calls are answered in between
        for first in range(0, rows, most):
            part = {name: value[first : first + most] for name, value in inputs.items()}
            parts.append(await self._wait(part, _rows(part) or 1, joins, check=first == 0))
        return {name: np.concatenate(_filled([part[name] for part in parts])) for name in parts[0]}

    async def _wait(self, inputs: Arrays, rows: int, joins: object, check: bool = True) -> Arrays:
        most = self.limits.rows * self.limits.batches
        if check and self.rows >= most:
            raise CallError("UNAVAILABLE", f"{most} rows wait for this signature, the most that may: try again later")
        loop = asyncio.get_running_loop()
        size = sum(_bytes(each) for each in inputs.values())
        call = _Call(inputs, rows, joins, size / max(1, rows), loop.time(), loop.create_future())
        self.waiting.append(call)
        if self.rows >= self.limits.rows:
            self.full.set()
        if not self.taking:
            self.taking = True
            self._task(self._take_all())
        return await call.answer

    def _task(self, coroutine: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _take_all(self) -> None:
        """Make batches until no call waits."""
        loop = asyncio.get_running_loop()
        while self.waiting:
            left = self.waiting[0].since + self.limits.wait - loop.time() if self.how else 0
            if left > 0 and self.rows < self.limits.rows:
                self.full.clear()
                try:
                    async with asyncio.timeout(left):
                        await self.full.wait()
                except TimeoutError:
                    pass
            await self.slots.acquire()
            if batch := self._batch():
                self._task(self._answer(batch))
            else:
                self.slots.release()
        self.taking = False

    def _batch(self) -> list[_Call]:
        """The call that waits longest and those that may join it, of the most like length, taken off the queue."""
        self.waiting = [call for call in self.waiting if not call.answer.done()]  # whose caller is gone
        if not self.waiting:
            return []
        first, rows = self.waiting[0], 0
        like = sorted(self.waiting, key=lambda call: (call is not first, abs(call.length - first.length)))
        batch = []
        for call in like:
            if call.joins == first.joins and rows + call.rows <= max(self.limits.rows, first.rows):
                batch.append(call)
                rows += call.rows
        taken = set(map(id, batch))
        self.waiting = [call for call in self.waiting if id(call) not in taken]
        return batch

    async def _answer(self, batch: Sequence[_Call]) -> None:
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.run_in_executor(self.pool, self._joined, [call.inputs for call in batch])
            self.told(sum(call.rows for call in batch))
            for call, answer in zip(batch, answers, strict=True):
                if not call.answer.done():
                    call.answer.set_result(answer)
        except Exception as error:
            if len(batch) == 1:
                if not batch[0].answer.done():
                    batch[0].answer.set_exception(error)
            else:  # one that is refused fails no other
                for call in batch:
                    await self._alone(call)
        finally:
            self.slots.release()

    async def _alone(self, call: _Call) -> None:
        try:
            found = await asyncio.get_running_loop().run_in_executor(self.pool, self.run, call.inputs)
            self.told(call.rows)
            if not call.answer.done():
                call.answer.set_result(found)
        except Exception as error:
            if not call.answer.done():
                call.answer.set_exception(error)

    def _joined(self, calls: Sequence[Arrays]) -> list[Arrays]:
        """What each of several calls gets."""
        if len(calls) == 1:
            return [self.run(calls[0])]
        whole = {name: np.concatenate(_padded([call[name] for call in calls])) for name in calls[0]}
        sizes = [len(next(iter(call.values()))) for call in calls]
        outputs = self.run(whole)
        for name, value in outputs.items():
            if not value.ndim or len(value) != sum(sizes):
                raise CallError(
                    "FAILED_PRECONDITION", f"the output {name} has no row for each of a batch: {value.shape}"
                )
        ends = np.cumsum(sizes)
        return [{name: value[end - size : end] for name, value in outputs.items()} for end, size in zip(ends, sizes)]


def _rows(inputs: Arrays) -> int | None:
    """The rows of a call; None for one that cannot be joined: of no row, of unlike counts, or of single values."""
    counts = {len(each) if each.ndim else None for each in inputs.values()}
    whole = len(counts) == 1 and all(each.size for each in inputs.values())
    return next(iter(counts)) if whole else None


def _bytes(value: np.ndarray) -> int:
    return sum(map(len, value.ravel())) if value.dtype == object else value.size


def _padded(values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arrays of one shape, each padded with its own first element, as TF Serving does it."""
    return _filled(values, [each.ravel()[0] for each in values])


def _filled(values: Sequence[np.ndarray], fillings: Sequence[object] | None = None) -> list[np.ndarray]:
    """Arrays [N, ...] of one shape but for N.

    Args:
        fillings: what each is padded with; by default what says nothing: 0, an empty text.
    """
    shapes = {each.shape[1:] for each in values}
    if len(shapes) == 1:
        return list(values)
    shape = tuple(map(max, zip(*shapes, strict=True)))
    found = []
    for number, each in enumerate(values):
        empty = b"" if each.dtype == object else 0
        whole = np.full((len(each), *shape), empty if fillings is None else fillings[number], each.dtype)
        whole[tuple(map(slice, each.shape))] = each
        found.append(whole)
    return found

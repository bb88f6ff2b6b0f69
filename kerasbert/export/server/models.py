"""The versions of a model that are served: new ones are loaded beside the old ones, which go when they are answered."""

import asyncio
import gc
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerasbert.export.server import batching, folders
from kerasbert.export.server.metrics import Metrics
from kerasbert.export.server.said import fault, say
from kerasbert.export.status import CallError

if TYPE_CHECKING:
    from kerasbert.export.server.loaded import Loaded


class Version:
    """A loaded version and the queues of its signatures.

    Args:
        number: int. loaded: a `loaded.Loaded`. queue: makes a Queue of a function.
    """

    def __init__(self, number: int, loaded: "Loaded", queue: Callable[[batching.Run], batching.Queue]) -> None:
        self.number, self.loaded, self._queue = number, loaded, queue
        self.queues: dict[str, batching.Queue] = {}

    async def answer(self, signature: str, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """The outputs of a call.

        Raises:
            CallError: it is wrong, or too many wait.
        """
        given = self.loaded.checked(signature, inputs)
        if signature not in self.queues:
            self.queues[signature] = self._queue(lambda inputs: self.loaded.run(signature, inputs))
        return await self.queues[signature].answer(given)


class Model:
    """What a name stands for.

    Args:
        name: str. folder: Path, of versions. keep: int, how many of the newest are served.
        rows, wait: of `batching.Parameters`, in place of those beside a version.
        slots: batches that run at once, of all models. pool: their threads. metrics: counts.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        keep: int,
        changes: Mapping[str, object],
        slots: asyncio.Semaphore,
        pool: Executor,
        metrics: Metrics,
    ) -> None:
        self.name, self.folder, self.keep, self.changes = name, folder, keep, changes
        self.slots, self.pool, self.metrics = slots, pool, metrics
        self.versions: dict[int, Version] = {}
        self.stamps: dict[int, folders.Stamp] = {}  # of the versions when they were read
        self.refused: dict[int, str] = {}
        self.remark = ""  # the last that was told of the folder
        self.loading: int | None = None
        self.loader = ThreadPoolExecutor(1, "load")

    async def refresh(self) -> None:
        """Load what is new among the newest versions and let go what is not among them; refused ones leave the old ones.

        A folder that cannot be read leaves them too.
        """
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self.loader, folders.versions, self.folder)
            remark = await loop.run_in_executor(self.loader, self._remark, found)
        except OSError as error:  # a disk that is away for a while
            found, remark = {}, f"{self.folder} cannot be read: {error.strerror or error}"
        if remark and remark != self.remark:
            self._say(remark)
        self.remark = remark
        wanted: list[int] = []
        for number in sorted(found, reverse=True):
            if len(wanted) < self.keep and (number in self.versions or await self._load(number, found[number])):
                wanted.append(number)
        for known in (self.refused, self.stamps):
            for number in known.keys() - found.keys() - self.versions.keys():
                known.pop(number)
        for number in [number for number in self.versions if number not in wanted and wanted]:
            del self.versions[number]
            self._say(f"version {number} is no longer served")
            gc.collect()

    async def _load(self, number: int, folder: Path) -> bool:
        """Whether a version was loaded."""
        loop, start = asyncio.get_running_loop(), time.monotonic()
        stamp = await loop.run_in_executor(self.loader, folders.stamp, folder)
        if number in self.refused and self.stamps[number] == stamp:
            return False
        self.stamps[number] = stamp
        self.loading = number
        try:
            version = await loop.run_in_executor(self.loader, self._open, number, folder)
        except Exception as error:  # whatever a damaged file makes TensorFlow raise
            line = " ".join(str(error).split())[:300] or type(error).__name__
            self.refused[number] = line
            goes_on = f". Version {max(self.versions)} goes on" if self.versions else ""
            self._say(f"version {number} is refused: {line}{goes_on}")
            return False
        finally:
            self.loading = None
        self.versions[number] = version
        self.refused.pop(number, None)
        joined = "joins calls" if batching.parameters(folder) else f"has no {batching.FILE}: answers calls one by one"
        self._say(f"version {number} is served after {time.monotonic() - start:.1f} s; it {joined}")
        return True

    def _open(self, number: int, folder: Path) -> Version:
        from kerasbert.export.server.loaded import Loaded

        how = batching.parameters(folder)
        how = replace(how, **self.changes) if how else None
        told = self.metrics.batch(self.name)
        return Version(number, Loaded(folder), lambda run: batching.Queue(run, how, self.slots, self.pool, told))

    def _remark(self, found: Mapping[int, Path]) -> str:
        """What whoever changed the folder did not mean; "" for nothing."""
        gone = [number for number in self.versions if number not in found]
        changed = [
            number
            for number in self.versions
            if number in found and folders.stamp(found[number]) != self.stamps[number]
        ]
        if gone and not found:
            return f"no version is in {self.folder} any more: {max(gone)} goes on as it was read"
        if changed:
            again = "put what is new into a folder of the next number"
            return f"version {max(changed)} changed on the disk and goes on as it was read: {again}"
        if wrong := folders.misnamed(self.folder, found):
            return f"{wrong[0]} in {self.folder} is no version: folders called 1, 2, ... are, each number once"
        return ""

    def _say(self, line: str) -> None:
        say(f"{self.name}: {line}")

    def find(self, number: int | None = None) -> Version:
        """The version of a number, or the newest.

        Raises:
            CallError: it is not served.
        """
        if number is None and self.versions:
            return self.versions[max(self.versions)]
        if number in self.versions:
            return self.versions[number]
        asked = f"Latest({self.name})" if number is None else f"Specific({self.name}, {number})"
        raise CallError("NOT_FOUND", f"Servable not found for request: {asked}")

    def status(self, number: int | None = None) -> list[tuple[int, str, str]]:
        """(number, state, what is wrong) of the versions, newest first; those of TF Serving's ModelService.

        Raises:
            CallError: no such version.
        """
        states: dict[int, tuple[str, str]] = dict.fromkeys(self.versions, ("AVAILABLE", ""))
        states |= {each: ("END", line) for each, line in self.refused.items() if each not in self.versions}
        states |= {} if self.loading is None else {self.loading: ("LOADING", "")}
        found = [(each, *states[each]) for each in sorted(states, reverse=True) if number in (None, each)]
        if not found:
            which = "any versions" if number is None else f"version {number}"
            raise CallError("NOT_FOUND", f"Could not find {which} of model {self.name}")
        return found


class Models(dict[str, Model]):
    """Name -> Model."""

    def named(self, name: str, missing: str = "Servable not found for request: Latest({})") -> Model:
        """
        Raises:
            CallError: no such model.
        """
        if name not in self:
            raise CallError("NOT_FOUND", missing.format(name))
        return self[name]

    async def refresh(self) -> None:
        """Look for new versions of all models."""
        for model in self.values():
            await model.refresh()

    async def poll(self, seconds: float) -> None:
        """`refresh` for ever."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.refresh()
            except Exception as error:
                fault("looking for versions", error)

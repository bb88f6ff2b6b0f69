"""All cores for the records of this machine: processes that each tokenize documents and write shards.

A `Hand` does the work, in this process or in others. The others are fresh interpreters, not forks, for TensorFlow may run
in this one; nor do they import the program that called us, as `multiprocessing` would. Documents go to them through a
socket, and come to the disk there. Threads would share TensorFlow's import, but packing, sorting and a good part of
tokenizing hold Python's lock.
"""

import collections
import contextlib
import functools
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from kerasbert import children, registry
from kerasbert.data.encode import batch_encoder, batch_entries
from kerasbert.data.job import Job
from kerasbert.data.shards import Report
from kerasbert.data.spool import Spool, add_count, measure
from kerasbert.errors import InputError

EACH = 16 * 2**20  # bytes of text that another process needs to pay: it imports TensorFlow, 3 s or 10 MB of text
ALONE = {  # a process of several: one core, and no device, whose memory TensorFlow would take
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from kerasbert.data import processes; processes.serve(int(sys.argv[1]))"
)

Each = Callable[[str, Iterable[tuple]], Iterator[Any]]


class Hand:
    """Tokenizes documents into files of its own, and writes shards of everybody's.

    Args:
        job: what to write.
        number: int, of the process, and of how many.
    """

    def __init__(self, job: Job, number: int = 0, processes: int = 1) -> None:
        self.job, self.size = job, job.size / processes
        self.spool = Spool(Path(job.writer.directory), job.writer.shards, number, processes)

    @functools.cached_property
    def encode(self) -> Callable:
        """The tokenizer, which imports TensorFlow where there is much text."""
        return batch_encoder(self.job.tokenizer, self.job.units, self.size)

    def tokenize(self, language: int, documents: list[list[str]]) -> dict[int, tuple[int, int]]:
        """Documents -> entries on their way to the disk; the number of (documents, tokens) of their language."""
        counts: dict[int, tuple[int, int]] = {}
        for data in batch_entries(documents, language, self.encode, self.job.writer.fit):
            self.spool.add(data)
            add_count(counts, *measure(data))
        return counts

    def flush(self) -> None:
        """Bring what is held to the disk, where the others find it."""
        self.spool.flush()

    def write(self, shard: int, repeats: dict[int, float] | None) -> Report:
        """Write a shard."""
        return self.job.writer.write(shard, self.spool.take(shard), repeats)


def available() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chosen(processes: int | None, size: int) -> int:
    """How many processes make records from so many bytes of text: as many as are given, else those that pay.

    Raises:
        InputError: less than one, or more than a machine takes.
    """
    if processes is not None and processes < 1:
        raise InputError(f"processes is {processes}, expected at least 1")
    if processes is not None and processes > (most := 16 * available()):
        raise InputError(f"processes is {processes}, expected at most {most}, 16 for each core")
    return max(1, min(available(), size // EACH)) if processes is None else processes


@contextlib.contextmanager
def hands(job: Job, processes: int) -> Iterator[tuple[int, Each, Callable[[], None]]]:
    """Hands for a job: how many there are, `each(method, arguments)` -> results in their order, and `flush` for all.

    Where the job cannot travel (its tokenizer or segmenter was made by a program that is no module) there is one.

    Raises:
        InputError: within the block, a process was killed. OSError: a disk is full.
    """
    data = _portable_job(job) if processes > 1 and os.name == "posix" and sys.executable else None
    pool = _Pool(data, processes) if data else None
    if pool and not pool.ready:
        pool.close()
        pool = None
    if pool is None:
        hand = Hand(job)
        yield 1, lambda name, items: (getattr(hand, name)(*item) for item in items), hand.flush
        return
    try:
        yield processes, pool.each, pool.flush
    finally:
        pool.close()


def _portable_job(job: Job) -> bytes | None:
    try:
        return pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError):  # a function within a function, a lambda
        return None


class _Process:
    """A hand in a process of its own."""

    def __init__(self, job: bytes, number: int, processes: int) -> None:
        self.pipe, theirs = Pipe()
        with theirs:
            handle = theirs.fileno()
            command = children.command(START, str(handle), json.dumps([os.path.abspath(path) for path in sys.path]))
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, env={**os.environ, **ALONE}, pass_fds=[handle]
            )
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # told by the first answer
            self.pipe.send((registry.plugin_files(), number, processes))
            self.pipe.send_bytes(job)

    def answer(self) -> object:
        """What it sends back, or the error that it met."""
        try:
            value, error = self.pipe.recv()
        except (EOFError, OSError):
            status = self.process.wait()
            how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
            raise InputError(
                f"process {self.process.pid} of those that make records was {how}; nothing was written. Perhaps memory "
                "ran out: take fewer --processes"
            ) from None
        if error is not None:
            raise error
        return value

    def ask(self, name: str, arguments: tuple) -> object:
        """Call a method of the hand."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send((name, arguments))
        return self.answer()


class _Pool:
    """Processes, each with a thread here that brings it one piece of work after the other.

    Attributes:
        ready: bool, whether all of them could read the job.
    """

    def __init__(self, job: bytes, processes: int) -> None:
        self.processes: list[_Process] = []
        self.idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        self.threads = ThreadPoolExecutor(processes)
        try:
            for number in range(processes):
                self.processes.append(_Process(job, number, processes))
                self.idle.put(self.processes[-1])
            answers = [process.answer() for process in self.processes]
            self.ready = all(answers)
        except BaseException:
            self.close()
            raise

    def each(self, name: str, items: Iterable[tuple]) -> Iterator[Any]:
        """Results of a method in the order of the items, of which never more than two a process are taken ahead."""
        waiting: collections.deque[Future] = collections.deque()
        try:
            for item in items:
                waiting.append(self.threads.submit(self._ask, name, item))
                if len(waiting) == 2 * len(self.processes):
                    yield waiting.popleft().result()
        except Exception:
            for future in waiting:  # an error that comes before this one in the text is told first
                future.result()
            raise
        while waiting:
            yield waiting.popleft().result()

    def flush(self) -> None:
        """Flush every hand."""
        for process in self.processes:
            process.ask("flush", ())

    def close(self) -> None:
        """End the processes, wherever they are: when this returns none of them writes any more."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        for process in self.processes:
            process.process.kill()
        for process in self.processes:
            process.process.wait()
        self.threads.shutdown()
        for process in self.processes:
            process.pipe.close()

    def _ask(self, name: str, arguments: tuple) -> object:
        process = self.idle.get()
        try:
            return process.ask(name, arguments)
        finally:
            self.idle.put(process)


def serve(handle: int) -> None:
    """A process: work that comes through a socket, until it is closed. Ctrl-C is for the one that holds the other end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError), Connection(handle) as pipe:
        plugins, number, processes = pipe.recv()
        data = pipe.recv_bytes()
        try:
            for path in plugins:
                registry.load_plugin(path)
            hand = Hand(pickle.loads(data), number, processes)
        except Exception:
            pipe.send((False, None))
            return
        pipe.send((True, None))
        del data
        while True:
            name, arguments = pipe.recv()
            try:
                answer = getattr(hand, name)(*arguments), None
            except Exception as error:
                answer = None, _portable(error)
            del arguments
            pipe.send(answer)


def _portable(error: Exception) -> Exception:
    """The error, or one of the same text where it cannot travel."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error

"""What a graph gives for packed rows, batch by batch, some of them at once: the cores of one would wait for each other."""

import collections
import contextlib
import contextvars
import os
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from kerasbert import children
from kerasbert.data.processes import available
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.progress import Progress
from kerasbert.tasks.batches import Encoded, ordered_batches

BATCH = 64  # texts at once
MOST = 4  # batches at once
TOKENS = 2**14  # of batches at once, padding included: one of more is alone, and takes the memory that it took
GIVEN = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")

Values = Generator[tuple[np.ndarray, np.ndarray], None, None]  # indices of rows, and what a graph gives for them


def run(function: Callable, encoded: Encoded, longest: int, batch: int = BATCH, per_token: bool = False) -> Tensor:
    """A graph's values for every row, in their order: float32 [n, ...].

    Args:
        function: of the inputs of a batch; it is called from several threads at once (`at_once`), first from this one alone.
        per_token: bool, whether they are [B, S, ...]; then a list of [S, ...], the real tokens of each row.

    Raises:
        InputError: a value is not finite.
    """
    results: Tensor = None
    with contextlib.closing(_values(function, encoded, longest, batch)) as found:
        for indices, values in _counted(encoded, found):
            if not np.isfinite(values).all():
                raise InputError(
                    "the model answers with numbers that are not finite: its weights are damaged or too large"
                )
            if per_token:
                results = results or [None] * len(encoded.rows)
                for i, value in zip(indices, values):
                    results[i] = value[: encoded.rows[i].length]
                continue
            if results is None:
                results = np.zeros((len(encoded.rows), *values.shape[1:]), "float32")
            results[indices] = values
    return results if results is not None else [] if per_token else np.zeros((0,), "float32")


def at_once() -> int:
    """How many batches are computed at once: a thread's worth each, of those that the user and the machine give; one on a GPU
    or a TPU, and where a CPU stands for several devices.
    """
    import tensorflow as tf

    if [device.device_type for device in tf.config.list_logical_devices()] != ["CPU"]:
        return 1
    threading = tf.config.threading
    given = [threading.get_intra_op_parallelism_threads(), threading.get_inter_op_parallelism_threads()]
    named = [os.environ.get(name, "").split(",")[0].strip() for name in GIVEN]  # OpenMP's may be a list
    given += [int(each) for each in named if each.isdecimal()]
    return min(MOST, available(), *(each for each in given if each > 0))


def _values(function: Callable, encoded: Encoded, longest: int, batch: int) -> Values:
    """What the graph gives for `ordered_batches`, in their order; the batches are the same however many are computed at once."""
    import tensorflow as tf

    children.computing()

    def answer(batched: dict[str, np.ndarray]) -> np.ndarray:
        return function({name: tf.convert_to_tensor(value) for name, value in batched.items()}).numpy()

    batches, most = ordered_batches(encoded, longest, batch), at_once()
    for indices, batched in batches:
        yield indices, answer(batched)  # it traces the graph, which Keras does by what this thread has set
        if most > 1:
            break
    waiting: collections.deque[tuple[int, np.ndarray, Future]] = collections.deque()
    pool, inside = ThreadPoolExecutor(most, "batch"), 0
    try:
        for indices, batched in batches:
            tokens = len(indices) * max(each.shape[1] for each in batched.values() if each.ndim > 1)
            while waiting and (len(waiting) > most or inside + tokens > TOKENS):  # one waits for a thread
                before, at, value = waiting.popleft()
                inside -= before
                yield at, value.result()
            context = contextvars.copy_context()  # options of the call, which a thread of the pool has not
            waiting.append((tokens, indices, pool.submit(context.run, answer, batched)))
            inside += tokens
        yield from ((at, value.result()) for _, at, value in waiting)
    finally:
        pool.shutdown(cancel_futures=True)


def _counted(encoded: Encoded, found: Values) -> Values:
    """What was computed, counted: the time left goes by tokens, for the longest rows come last."""
    lengths, done, tokens = np.array([row.length for row in encoded.rows]), 0, 0
    unit, total = "texts" if len(lengths) == encoded.texts else "rows", max(1, int(lengths.sum()))
    with Progress(len(lengths), unit) as progress:
        for indices, values in found:
            yield indices, values
            done, tokens = done + len(indices), tokens + int(lengths[indices].sum())
            progress.to(done, tokens / total)

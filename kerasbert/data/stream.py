"""Records -> an infinite stream of batches in which step t is a function of (records, batch, seed, t) alone.

Every epoch is a permutation of all examples. Runs of 4 blocks, from all shards, come in a random order; then, in windows
of 16 runs (16,384 examples), the examples do. Documents lie in the shards in the order of their hash, so a window holds
rows from 16 random places of the corpus. The stream starts at any step after reading one window at most.

Nothing here runs Python per block or per example, and nothing works on single examples: per-element dispatch is the
cost of tf.data (0.2M-0.6M tokens per CPU-second against tens of millions).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.storage.json_view import JsonMap

if TYPE_CHECKING:
    from kerasbert.data.records import Shard

RUN = 4  # neighbouring blocks that are read at once: opening a file costs as much as reading a hundred blocks
WINDOW = 16  # runs that are shuffled together; 4 MB at length 128
READERS = 16  # runs in flight, for files with latency (gs://)
PLACES = 2**18  # tokens prepared at once: starting some hundred operations costs as much as 10,000 tokens


class Blocks(Protocol):
    """What is read of records (`data.records.Records`, whose `dataset` is made here)."""

    block: int
    first: int
    examples: int
    length: int

    @property
    def shards(self) -> "Sequence[Shard]":
        """Their files."""
        ...

    @property
    def features(self) -> Mapping[str, Sequence[int]]:
        """Feature -> shape of a row of it."""
        ...

    @property
    def manifest(self) -> JsonMap:
        """What manifest.json holds."""
        ...

    @property
    def columns(self) -> int:
        """Numbers in a row."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """Of a number."""
        ...

    def path(self, shard: "Shard") -> str:
        """Of a shard's file."""
        ...


def _order(seed: tf.Tensor, count: int) -> tf.Tensor:
    """A random permutation of 0 .. count - 1: int32 [count]. Philox by name, so every machine gets the same."""
    draws = tf.random.stateless_uniform([count], seed, minval=None, maxval=None, dtype=tf.int64, alg="philox")
    return tf.argsort(draws)


def _fold(key: tf.Tensor, *words: tf.Tensor | int) -> tf.Tensor:
    for word in words:
        key = tf.random.experimental.stateless_fold_in(key, tf.cast(word, tf.int64), alg="philox")
    return key


def dataset(
    records: Blocks,
    batch: int,
    *,
    seed: int,
    start_step: int = 0,
    shuffle: bool = True,
    prepare: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]] | None = None,
) -> tf.data.Dataset:
    """Global batches from `start_step` on, for ever; the same as skipping `start_step` batches of a stream from 0.

    Args:
        records: the records.
        batch: B, examples in a global batch. A batch may run across the end of an epoch.
        seed: int >= 0, of the order.
        start_step: first step.
        shuffle: bool; False gives the records' own order.
        prepare: features -> what a batch shall be (such as `Program.prepare`). It gets the rows of several batches at
            once, so a row's result may depend on nothing but the row.

    Returns:
        Dataset of dicts, what `prepare` makes of: token_ids int32 [B, S], segment_lengths int32 [B, 2], next_label int32
        [B] (where the records have it), and example (index in the records), epoch, row (0 .. B - 1), step: int32 [B].
    """
    if records.first:
        raise ValueError("rows that are held out of a shard are no stream: read them with Records.rows")
    if batch < 1 or start_step < 0 or seed < 0:
        raise InputError(
            f"batch {batch}, start_step {start_step}, seed {seed}: expected batch >= 1 and the others >= 0"
        )
    many = max(1, min(PLACES // records.length, records.examples) // batch)  # batches at once

    @tf.autograph.experimental.do_not_convert
    def features(chunk: tf.Tensor, columns: tuple[tf.Tensor, ...]) -> Mapping[str, tf.Tensor]:
        rows, number, epochs = columns
        counter = tf.range(many * batch)
        steps = start_step + tf.cast(chunk, tf.int32) * many + counter // batch
        made = {
            **split_columns(rows, records),
            "example": number,
            "epoch": epochs,
            "row": counter % batch,
            "step": steps,
        }
        made = prepare(made) if prepare else made
        return {name: tf.reshape(value, [many, batch, *value.shape[1:]]) for name, value in made.items()}

    epochs = _Epochs(records, seed, shuffle, start_step * batch)
    order = tf.data.Dataset.counter(epochs.epoch).flat_map(epochs.runs_of)
    data = order.interleave(
        epochs.read, cycle_length=READERS, block_length=1, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )
    stream = tf.data.Dataset.zip(order, data).batch(epochs.width, drop_remainder=True)
    stream = stream.enumerate(epochs.epoch * epochs.windows + epochs.window)
    stream = stream.map(epochs.examples, num_parallel_calls=tf.data.AUTOTUNE)
    stream = stream.rebatch(many * batch, drop_remainder=True).enumerate()
    return stream.map(features, num_parallel_calls=tf.data.AUTOTUNE).unbatch().prefetch(tf.data.AUTOTUNE)


class _Epochs:
    """The order of all epochs, and the maps of a tf.data pipeline from it to examples.

    Args:
        records: the records.
        seed: int >= 0.
        shuffle: bool.
        start: int, examples that come before the first one.

    Attributes:
        windows, width: int, windows of an epoch, and runs in each, evenly.
        epoch, window, skip: int, where the stream begins: an epoch, a window of it, and examples to leave out in that window.
    """

    def __init__(self, records: Blocks, seed: int, shuffle: bool, start: int) -> None:
        self.records, self.shuffle = records, shuffle
        shards, counts, starts = _runs([shard.examples for shard in records.shards], records.block)
        self.runs = len(counts)
        self.windows = math.ceil(self.runs / WINDOW)
        self.width = math.ceil(self.runs / self.windows)

        # Tables of the graph. A last run, without examples, fills up the last window of an epoch.
        block_bytes = records.block * records.columns * records.dtype.itemsize
        first, blocks, head = np.cumsum(counts) - counts, -(-counts // records.block), starts * block_bytes
        tail = np.array([shard.bytes for shard in records.shards])[shards] - head - blocks * block_bytes
        self._files = tf.constant([records.path(records.shards[shard]) for shard in shards])
        self._counts, self._first, self._blocks = (
            tf.constant(np.append(x, 0), tf.int32) for x in (counts, first, blocks)
        )
        self._heads, self._tails, self._sizes = (tf.constant(x, tf.int64) for x in (head, tail, blocks * block_bytes))
        self._root = tf.constant([seed & (2**63 - 1), 0x5EED], tf.int64)

        self.epoch, position = divmod(start, records.examples)
        order = self._shuffled(tf.constant(self.epoch, tf.int64)).numpy()
        ends = np.append(counts, 0)[order].reshape(self.windows, self.width).sum(1).cumsum()
        self.window = int(np.searchsorted(ends, position, side="right"))
        self.skip = position - (int(ends[self.window - 1]) if self.window else 0)

    def _shuffled(self, epoch: tf.Tensor) -> tf.Tensor:
        """The runs of an epoch, in whole windows."""
        order = _order(_fold(self._root, epoch, 0), self.runs) if self.shuffle else tf.range(self.runs)
        return tf.pad(order, [[0, self.windows * self.width - self.runs]], constant_values=self.runs)

    @tf.autograph.experimental.do_not_convert
    def runs_of(self, epoch: tf.Tensor) -> tf.data.Dataset:
        """The runs of an epoch, of the first one from its first window on."""
        begin = tf.where(epoch == self.epoch, self.window * self.width, 0)
        return tf.data.Dataset.from_tensor_slices(self._shuffled(epoch)[begin:])

    @tf.autograph.experimental.do_not_convert
    def read(self, run: tf.Tensor) -> tf.data.Dataset:
        """The bytes of a run."""
        run = tf.where(
            run == self.runs, 0, run
        )  # what fills up has no file; `examples` drops what is read in its place
        return tf.data.FixedLengthRecordDataset(
            tf.gather(self._files, run),
            tf.gather(self._sizes, run),
            tf.gather(self._heads, run),
            tf.gather(self._tails, run),
            buffer_size=0,
        )

    @tf.autograph.experimental.do_not_convert
    def examples(self, index: tf.Tensor, pair: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, ...]:
        """A window's runs and their bytes -> its rows in their order, their numbers in the records, and their epochs."""
        (run, data), records = pair, self.records
        epoch, place = index // self.windows, index % self.windows
        data = tf.strings.reduce_join(tf.where(run == self.runs, "", data))
        rows = tf.io.decode_raw(data, records.manifest["dtype"], little_endian=True)
        rows = tf.reshape(rows, [-1, records.columns])
        lengths = tf.gather(self._blocks, run) * records.block
        within = tf.ragged.range(lengths).flat_values
        valid = within < tf.repeat(tf.gather(self._counts, run), lengths)
        number = tf.repeat(tf.gather(self._first, run), lengths) + within
        total = tf.size(within)
        order = _order(_fold(self._root, epoch, 1, place), total) if self.shuffle else tf.range(total)
        order = tf.boolean_mask(order, tf.gather(valid, order))
        order = order[tf.where(index == self.epoch * self.windows + self.window, self.skip, 0) :]
        epochs = tf.fill(tf.shape(order), tf.cast(epoch, tf.int32))
        return tf.gather(rows, order), tf.gather(number, order), epochs


def _runs(examples: Sequence[int], block: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shards of so many examples -> of each run: its shard, its number of examples, its first block in the shard."""
    rows = RUN * block
    found = [
        (shard, min(rows, n - begin), begin // block) for shard, n in enumerate(examples) for begin in range(0, n, rows)
    ]
    return tuple(np.array(found, np.int64).T)


def split_columns(rows: tf.Tensor, records: Blocks) -> dict[str, tf.Tensor]:
    """Rows [B, columns] -> the features, int32."""
    widths = [int(np.prod(shape)) for shape in records.features.values()]
    parts = tf.split(tf.cast(rows, tf.int32), widths, axis=1)
    return {
        name: tf.reshape(part, [rows.shape[0], *shape]) for part, (name, shape) in zip(parts, records.features.items())
    }

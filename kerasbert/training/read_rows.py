"""The rows of a table of word vectors that a run reads.

A row that no batch reads has no gradient: Adam's moments of it stay 0, and decay alone changes it. So gradient, clip, moments and
Adam's update are of the rows that are read, and the others wait: what decay makes of them is one factor, with which they are
multiplied when somebody asks for the weights. A fine-tuning of a thousand sentences reads 5,000 of BERT's 30,522 rows, and no
more of the 250,000 of a multilingual vocabulary.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf

from kerasbert.checkpoints.safetensors import Safetensors
from kerasbert.inputs import Tensor
from kerasbert.layers.naming import copied, names, values
from kerasbert.objectives.base import Objective
from kerasbert.training.config import RunConfig
from kerasbert.training.feed import Feed

if TYPE_CHECKING:
    from kerasbert.training.best_weights import Best
    from kerasbert.training.held_out import HeldOut

TABLE = "tokens/table"  # how the paths of tables of word vectors end
MOST = 0.5  # of a table's rows; where more are read little is gained
# rows that are copied: a variable of which some rows are written gives its value as a copy, and the array would be another
AT_ONCE = 2**14


def ids(program: Objective, config: RunConfig, feed: Feed, evaluate: "Best | HeldOut | None") -> np.ndarray | None:
    """All token ids that updates and evaluations read, each once, ascending: int [r].

    None where they are not known, as of a network or a kind that is none of ours, or where somebody else reads the weights or
    changes them: callbacks, a constraint, a moving average, adversarial updates.
    """
    others = [getattr(config, name, None) for name in ("callbacks", "constraint", "way")]
    mine, judged = feed.token_ids(), None if evaluate is None else evaluate.token_ids()
    if any(others) or (config.optimizer_options or {}).get("ema") or mine is None or judged is None:
        return None
    parts = (program, getattr(program.model, "encoder", program), getattr(program, "kind", program))
    return np.union1d(mine, judged) if all(type(each).__module__.startswith("kerasbert.") for each in parts) else None


class ReadRows:
    """Some rows of a table.

    Args:
        variable: the table, float32 [V, E]. ids: int [r], of the rows, ascending.
    Attributes:
        factor: what decay has made of the other rows since the run began: in the model they stay as they were, until the weights
            that the run leaves are read (`Best.take`).
    """

    def __init__(self, variable: keras.Variable, ids: np.ndarray) -> None:
        self.variable, self.ids = variable, ids.astype("int32")
        self.shape = (len(ids), *variable.shape[1:])
        self.places = np.full(variable.shape[0], -1, "int32")
        self.places[ids] = np.arange(len(ids))
        self.own = tf.Variable(tf.zeros(self.shape, variable.dtype), trainable=False)
        self.factor = tf.Variable(tf.ones((), variable.dtype), trainable=False)

    def gradient(self, slices: tf.IndexedSlices) -> Tensor:
        """The gradient of the rows, float32 [r, E].

        Raises:
            tf.errors.InvalidArgumentError: when it runs; a batch reads a row that is none of them.
        """
        places = tf.gather(self.places, slices.indices)
        known = tf.debugging.assert_non_negative(places, "a batch reads a token that Feed.token_ids does not name")
        with tf.control_dependencies([known]):
            return tf.math.unsorted_segment_sum(tf.cast(slices.values, tf.float32), places, len(self.ids))

    @contextlib.contextmanager
    def within(self, table: tf.Variable, decay: Tensor | None) -> Iterator[tf.Variable]:
        """Within it a variable [r, E] has the rows of the table; the table has that variable's afterwards.

        Args:
            decay: [], what this update multiplies every row with before it; None: nothing.
        """
        rows = tf.gather(table, self.ids)
        if decay is not None:
            self.factor.assign(self.factor * decay)
        self.own.assign(rows if decay is None else rows * decay)
        yield self.own
        tf.raw_ops.ResourceScatterUpdate(resource=table.handle, indices=self.ids, updates=self.own)

    def value(self) -> np.ndarray:
        """A copy of the table, whose other rows have their decay: float32 [V, E]."""
        table = np.empty(self.variable.shape, "float32")
        for begin in range(0, len(table), AT_ONCE):
            part = table[begin : begin + AT_ONCE]
            part[:] = tf.gather(self.variable.value, np.arange(begin, begin + len(part)))
        table *= np.where(self.places < 0, np.float32(self.decayed), np.float32(1))[:, None]
        return table

    @property
    def decayed(self) -> float:
        """The value of `factor`."""
        return float(tf.convert_to_tensor(self.factor))

    def begin(self, table: np.ndarray, factor: float | None) -> None:
        """Go on with the table of a checkpoint, whose others are as they were when the run began, but for this factor.

        Args:
            factor: None of a run that has changed them at each update.
        """
        if factor is not None:
            table, others = table.copy(), self.places < 0
            table[others] = copied(self.variable)[others]
        self.variable.assign(table)
        self.factor.assign(1.0 if factor is None else factor)


def found(variables: Sequence[keras.Variable], ids: np.ndarray | None) -> dict[int, ReadRows]:
    """Of each of the variables that is a table of word vectors, by its number, the rows that are read.

    Args:
        ids: int [r], all token ids that are read, each once, ascending; None where they are not known.
    """
    tables = [] if ids is None else [(i, each) for i, each in enumerate(variables) if each.path.endswith(TABLE)]
    return {i: ReadRows(each, ids) for i, each in tables if ids is not None and len(ids) <= MOST * each.shape[0]}


def weights(model: keras.Model, read: Iterable[ReadRows]) -> dict[str, np.ndarray]:
    """Weight name of a model -> a copy of its value, float32."""
    tables = _named(model, read)
    return values(model, tables) | {name: rows.value() for name, rows in tables.items()}


def assign(model: keras.Model, read: Iterable[ReadRows], tensors: Safetensors, factors: Mapping[str, float]) -> None:
    """Give a model the weights of a checkpoint.

    Args:
        factors: of the rows that are not read, by the name of the table, of `factors`.
    """
    tables = _named(model, read)
    for name, variable in names(model).items():
        if name in tables:
            tables[name].begin(tensors.read(name), factors.get(name))
        else:
            variable.assign(tensors.read(name))


def factors(model: keras.Model, read: Iterable[ReadRows]) -> dict[str, float]:
    """What a checkpoint holds of the rows that are not read: table -> their factor."""
    return {name: rows.decayed for name, rows in _named(model, read).items()}


def _named(model: keras.Model, read: Iterable[ReadRows]) -> dict[str, ReadRows]:
    """The rows of the tables that a model has, by the table's name."""
    held = {id(rows.variable): rows for rows in read}
    return {name: held[id(variable)] for name, variable in names(model).items() if id(variable) in held}

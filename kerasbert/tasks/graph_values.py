"""What a graph gives for packed rows, batch by batch."""

from collections.abc import Callable, Iterator

import numpy as np

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.progress import Progress
from kerasbert.tasks.batches import Encoded, ordered_batches

BATCH = 64  # texts at once


def run(function: Callable, encoded: Encoded, longest: int, batch: int = BATCH, per_token: bool = False) -> Tensor:
    """A graph's values for every row, in their order: float32 [n, ...].

    Args:
        per_token: bool, whether they are [B, S, ...]; then a list of [S, ...], the real tokens of each row.

    Raises:
        InputError: a value is not finite.
    """
    import tensorflow as tf

    results = None
    for indices, batched in _counted(encoded, longest, batch):
        values = function({name: tf.convert_to_tensor(value) for name, value in batched.items()}).numpy()
        if not np.isfinite(values).all():
            raise InputError("the model answers with numbers that are not finite: its weights are damaged or too large")
        if per_token:
            results = results or [None] * len(encoded.rows)
            for i, value in zip(indices, values):
                results[i] = value[: encoded.rows[i].length]
            continue
        if results is None:
            results = np.zeros((len(encoded.rows), *values.shape[1:]), "float32")
        results[indices] = values
    return results if results is not None else [] if per_token else np.zeros((0,), "float32")


def _counted(encoded: Encoded, longest: int, batch: int) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """`ordered_batches`, counted as they are computed: the time left goes by tokens, for the longest rows come last."""
    lengths, done, tokens = np.array([row.length for row in encoded.rows]), 0, 0
    unit, total = "texts" if len(lengths) == encoded.texts else "rows", max(1, int(lengths.sum()))
    with Progress(len(lengths), unit) as progress:
        for indices, batched in ordered_batches(encoded, longest, batch):
            yield indices, batched
            done, tokens = done + len(indices), tokens + int(lengths[indices].sum())
            progress.to(done, tokens / total)

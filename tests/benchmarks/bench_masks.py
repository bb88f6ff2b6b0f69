"""How many tokens a second are masked, by what is selected.

Batches of 256 rows of 128 tokens in tf.data, one call at a time; the rows are ready-made, so that masking alone is timed.
CPU seconds, for the machine may be shared.

    python -m tests.benchmarks.bench_masks
"""

import statistics
import time

import numpy as np
import tensorflow as tf

from kerasbert.objectives.masked_lm import MaskedLM, masker
from kerasbert.registry import SELECTIONS
from tests.objectives import books

ROWS, LENGTH, BATCHES, ROUNDS = 256, 128, 100, 5


def features() -> dict:
    """Random pieces of the books' vocabulary, a third of which continue a word."""
    tokenizer = books.tokenizer()
    continues = np.array([tokenizer.continues(i) for i in range(tokenizer.size)])
    rng = np.random.default_rng(0)
    begins = rng.choice(np.flatnonzero(~continues[5:]) + 5, (ROWS, LENGTH))
    ids = np.where(rng.random((ROWS, LENGTH)) < 1 / 3, rng.choice(np.flatnonzero(continues), (ROWS, LENGTH)), begins)
    ids[:, 0], ids[:, -1] = tokenizer.cls_id, tokenizer.sep_id
    lengths = np.tile([LENGTH, 0], (ROWS, 1))
    given = {"token_ids": ids, "segment_lengths": lengths, "row": np.arange(ROWS), "step": np.zeros(ROWS)}
    return {name: tf.constant(value, tf.int32) for name, value in given.items()}


def main() -> None:
    """Print the table."""
    given = features()
    print(f"TensorFlow {tf.__version__}, {ROWS} x {LENGTH}, {BATCHES} batches, median of {ROUNDS} (least to most)")
    for name in SELECTIONS:
        mask = masker(MaskedLM(select=name), tokenizer=books.tokenizer(), seed=1)
        data = tf.data.Dataset.range(10**9).map(
            lambda step, mask=mask: mask(given | {"step": given["step"] + tf.cast(step, tf.int32)})
        )
        stream, rates = iter(data), []
        next(stream)
        for _ in range(ROUNDS):
            began = time.process_time()
            for _ in range(BATCHES):
                next(stream)
            rates.append(BATCHES * ROWS * LENGTH / (time.process_time() - began) / 1e6)
        print(
            f"{name:8}{statistics.median(rates):8.1f} M tokens per CPU-second  ({min(rates):.1f} to {max(rates):.1f})"
        )


if __name__ == "__main__":
    main()

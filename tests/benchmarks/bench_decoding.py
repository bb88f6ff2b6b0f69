"""How many tokens a CPU-second a model writes, beside transformers' generate: t5/small with random weights, one thread.

A batch of 8 sources of 32 tokens, 32 new tokens each (an end cannot come before), greedily and by 4 beams, in turns. CPU
seconds, for the machine may be shared; the first call, which traces, is not counted.

    python -m tests.benchmarks.bench_decoding
"""

import statistics
import time

import numpy as np
import tensorflow as tf
import torch
import transformers

from kerasbert import registry
from kerasbert.answers.decoding import Decoding
from kerasbert.layers.beam_search import generate

ROWS, SOURCE, NEW, ROUNDS = 8, 32, 32, 5


def ours(ids: np.ndarray, beams: int):
    """A call that writes."""
    family, spec = registry.find("t5/small")
    model = family.encoder(spec)
    model.build()
    decoding = Decoding(max_new_tokens=NEW, min_new_tokens=NEW - 1, beams=beams)
    write = tf.function(lambda given: generate(model, given, decoding, start_id=0, end_id=1), autograph=False)
    given = {"token_ids": tf.constant(ids), "padding_mask": tf.ones_like(ids)}
    return lambda: write(given)["token_ids"].numpy()


def theirs(ids: np.ndarray, beams: int):
    """The same by transformers."""
    sizes = {"vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, decoder_start_token_id=0)).eval()
    settings = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "num_beams": beams}
    with torch.no_grad():
        return lambda: model.generate(torch.tensor(ids).long(), **settings)


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    ids = np.random.default_rng(0).integers(3, 32000, (ROWS, SOURCE)).astype("int32")
    print(f"TensorFlow {tf.__version__}, torch {torch.__version__}, transformers {transformers.__version__}")
    print(f"{ROWS} rows, {NEW} tokens each, median of {ROUNDS} (least to most)")
    for beams in (1, 4):
        calls = {"kerasbert": ours(ids, beams), "transformers": theirs(ids, beams)}
        rates: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(ROUNDS + 1):
            for name, call in calls.items():
                began = time.process_time()
                call()
                rates[name].append(ROWS * NEW / (time.process_time() - began))
        for name, values in rates.items():
            values = values[1:]
            spread = f"({min(values):.0f} to {max(values):.0f})"
            print(f"beams {beams}  {name:14}{statistics.median(values):6.0f} tokens a CPU-second  {spread}")


if __name__ == "__main__":
    main()

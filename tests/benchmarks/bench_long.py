"""Does a long text cost time and memory in proportion to its length?

A gradient of a small encoder (forward and backward, in a graph, float32) on one row of 512 to 8,192 tokens: milliseconds of CPU,
and the peak of memory above that of the built model, each in a process of its own, the models interleaved. Longformer's tokens
see 512 others, Reformer's 512 too (its own chunk of 256 and the one before; a layer of neighbours, one that hashes once).

    python -m tests.benchmarks.bench_long [--models longformer roberta] [--lengths 512 1024 ...] [--plot FILE.png]

Another family joins by a row in MODELS: its name and what it changes at a length.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.bench_reversible import EXACT

ROOT = Path(__file__).resolve().parents[2]
LENGTHS = (512, 1024, 2048, 4096, 8192)
SIZE = {
    "hidden": 128,
    "attention.heads": 2,
    "feedforward.width": 512,
    "blocks.layers": 2,
    "embeddings.vocabulary": 1000,
}
# name of a row -> (model, changes of its Spec at a length)
MODELS: dict[str, tuple[str, Callable[[int], dict[str, Any]]]] = {
    "longformer": ("longformer/base", lambda length: {"embeddings.positions": length + 2, "window.size": 512}),
    "reformer": (
        "reformer/crime-and-punishment",
        lambda length: {
            "hidden": 2 * SIZE["hidden"],
            "embeddings.width": SIZE["hidden"],
            "embeddings.positions": length,
            "axial.shape": (length // 64, 64),
            "lsh.chunk": 256,
            "lsh.buckets": None,
            "local.chunk": 256,
        },
    ),
    "roberta": ("roberta/base", lambda length: {"embeddings.positions": length + 2}),
}


def peak() -> float:
    """MiB, the most that the process had since `forget`."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def forget() -> None:
    """The peak is what the process has now (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def measure(name: str, length: int, rounds: int) -> dict[str, float]:
    """CPU milliseconds of a gradient, and MiB of memory beside the model."""
    import numpy as np
    import tensorflow as tf

    from kerasbert import registry

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    model, changes = MODELS[name]
    family, spec = registry.find(model)
    encoder = family.encoder(spec.derive(SIZE | {"dropout": 0.0, "attention.dropout": 0.0} | changes(length)))
    encoder.build()
    ids = np.random.default_rng(0).integers(5, 1000, (1, length)).astype("int32")
    inputs = {"token_ids": tf.constant(ids), "padding_mask": tf.ones((1, length), tf.int32)}
    weights = [weight.value for weight in encoder.trainable_weights]

    @tf.function(autograph=False)
    def gradient():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(encoder(inputs, training=True)["sequence"] ** 3)
        found = tape.gradient(loss, weights)
        return loss, [tf.reduce_sum(tf.convert_to_tensor(each)) for each in found if each is not None]

    forget()
    before, times = peak(), []
    gradient()
    forget()  # what tracing took
    for _ in range(rounds):
        begun = time.process_time()
        gradient()
        times.append(time.process_time() - begun)
    return {"ms": statistics.median(times) * 1e3, "spread": (max(times) - min(times)) * 1e3, "mb": peak() - before}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], int(options.one[1]), options.rounds)))
        return
    import tensorflow as tf

    print(
        f"$ python -m tests.benchmarks.bench_long; TensorFlow {tf.__version__}, {platform.machine()}, n = {options.rounds}"
    )
    print(f"{'tokens':>6} " + " ".join(f"{name + ' ms':>18} {'MiB':>7}" for name in options.models))
    found: dict[str, list[dict[str, float]]] = {name: [] for name in options.models}
    for length in options.lengths:
        for name in options.models:
            command = [sys.executable, "-m", "tests.benchmarks.bench_long", "--rounds", str(options.rounds)]
            command += ["--one", name, str(length)]
            done = subprocess.run(
                command, capture_output=True, text=True, cwd=ROOT, check=False, env=os.environ | EXACT
            )
            failed = {"ms": float("nan"), "spread": 0.0, "mb": float("nan")}  # out of memory
            found[name].append(json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else failed)
        cells = [found[name][-1] for name in options.models]
        print(
            f"{length:>6} " + " ".join(f"{c['ms']:>9.0f} +-{c['spread'] / 2:>6.0f} {c['mb']:>7.0f}" for c in cells),
            flush=True,
        )
    if options.plot:
        draw(options.lengths, found, options.plot)


def draw(lengths: Any, found: dict[str, list[dict[str, float]]], path: str) -> None:
    """Time and memory against the length; needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.5))
    for axis, key, label in zip(axes, ("ms", "mb"), ("CPU ms of a gradient", "MiB beside the model")):
        for name, rows in found.items():
            axis.plot(lengths, [row[key] for row in rows], marker="o", label=name)
        axis.set(xlabel="tokens", ylabel=label)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main()

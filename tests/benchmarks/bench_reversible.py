"""Do a Reformer's activations stay as they are when layers are added?

A gradient of a small Reformer with dropout, in a graph, float32, one thread, each in a process of its own: the peak of memory
during a pass above what the process has between two passes (activations and gradients), and what it has then above what it had
before the model was traced (the program: graph, kernels, constants, which is alike at every length).

    python -m tests.benchmarks.bench_reversible [--layers 2 4 8 12] [--lengths 512 4096] [--chunk 64] [--plain]

`--tpu` compiles the pretraining step for one v5e chip instead (the extra tpu-check) and prints the temporaries of the compiler.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# freed memory goes back at once: glibc's, and not the pool that oneDNN has on CPUs with AVX512-VNNI
EXACT = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "TF_ENABLE_ONEDNN_OPTS": "0"}
NAME = "reformer/crime-and-punishment"
SIZE = {
    "hidden": 256,
    "embeddings.width": 128,
    "embeddings.vocabulary": 100,
    "feedforward.width": 512,
    "lsh.buckets": 32,
    "lsh.dropout": 0.1,
    "attention.dropout": 0.1,
}


def changes(layers: int, length: int, chunk: int) -> dict:
    """Of the Spec."""
    places = {"embeddings.positions": length, "axial.shape": (length // 64, 64)}
    return SIZE | places | {"blocks.layers": layers, "reversible.chunk": chunk}


def status(name: str) -> float:
    """MiB of a line of /proc/self/status."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def measure(layers: int, length: int, chunk: int, plain: bool) -> dict[str, float]:
    """MiB of a pass, and of the program."""
    import numpy as np
    import tensorflow as tf

    from kerasbert import registry
    from kerasbert.layers import random

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    family, spec = registry.find(NAME)
    encoder = family.encoder(spec.derive(changes(layers, length, chunk)))
    encoder.build()
    encoder.keeps_hidden = plain  # ordinary gradients
    weights = [weight.value for weight in encoder.trainable_weights]
    ids = tf.constant(np.random.default_rng(0).integers(5, 100, (1, length)).astype("int32"))

    @tf.function(autograph=False)
    def gradient(words, mask):
        with random.scope(words, tf.range(1)), tf.GradientTape() as tape:
            outputs = encoder({"token_ids": ids, "padding_mask": mask}, training=True)
            loss = tf.reduce_mean(outputs["sequence"] ** 3)
        found = [tf.convert_to_tensor(each) for each in tape.gradient(loss, weights) if each is not None]
        return [tf.reduce_sum(each) for each in found]

    given, before = (tf.constant([1, 2], tf.uint32), tf.ones((1, length), tf.int32)), status("VmRSS")
    gradient(*given)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is forgotten
    between = status("VmRSS")
    gradient(*given)
    return {"pass": status("VmHWM") - between, "program": between - before}


def compiled(layers: int, length: int, chunk: int) -> dict[str, float]:
    """MiB of the compiler's temporaries for one v5e chip, and of the weights' gradients, which are among them."""
    from kerasbert import registry
    from kerasbert.tpu_check import chips, compiler
    from kerasbert.tpu_check.lower import Step

    family, spec = registry.find(NAME)
    step = Step(family, spec.derive(changes(layers, length, chunk)), length=length, precision="float32")
    done = compiler.compile_for(chips.topology("v5e:1x1"), step.lower(1).module)
    return {"pass": done.temporaries / 2**20, "program": step.program.model.count_params() * 4 / 2**20}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", nargs="+", type=int, default=(2, 4, 8, 12))
    parser.add_argument("--lengths", nargs="+", type=int, default=(512, 4096))
    parser.add_argument("--chunk", type=int, default=0, help="tokens of a piece of the feed-forward network")
    parser.add_argument("--plain", action="store_true", help="ordinary gradients, which keep every layer's activations")
    parser.add_argument("--tpu", action="store_true")
    parser.add_argument("--one", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        of = [*options.one, options.chunk]
        print(json.dumps(compiled(*of) if options.tpu else measure(*of, options.plain)))
        return
    print("$ python -m tests.benchmarks.bench_reversible", *sys.argv[1:])
    columns = ("temporaries", "gradients") if options.tpu else ("a pass", "program")
    print(f"{'layers':>6} {'tokens':>6} {columns[0] + ' MiB':>16} {columns[1] + ' MiB':>16}")
    for length in options.lengths:
        for layers in options.layers:
            command = [sys.executable, "-m", "tests.benchmarks.bench_reversible", *sys.argv[1:]]
            command += ["--one", str(layers), str(length)]
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | EXACT, check=True)
            found = json.loads(done.stdout.splitlines()[-1])
            print(f"{layers:>6} {length:>6} {found['pass']:>16.1f} {found['program']:>16.1f}", flush=True)


if __name__ == "__main__":
    main()

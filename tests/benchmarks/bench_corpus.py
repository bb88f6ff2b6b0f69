"""Does a corpus of 1 GB become records in bounded memory, and how fast?

    python -m tests.benchmarks.bench_corpus [--megabytes 1000] [--packing pairs] [--work DIR]

The text of ../shared/data/lm is repeated, a word of every line replaced each time, up to the size asked for. Records are
made in a process of its own, whose peak memory (resident) and CPU seconds (all threads) are printed.
"""

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support import ROOT, python

SHARED = ROOT.parent / "shared" / "data"


def texts() -> list[Path]:
    """The files of ../shared/data/lm."""
    return sorted(path for path in (SHARED / "lm").rglob("*") if path.is_file() and path.name != "README.md")


def perturbed(lines: list[str], size: int, seed: int = 0) -> Iterator[str]:
    """The lines again and again until there are `size` bytes, each time with another word in every line."""
    draw = random.Random(seed)
    words = sorted({word for line in lines for word in line.split()})
    written = 0
    while written < size:
        for line in lines:
            if line.strip():
                parts = line.split(" ")
                parts[int(draw.random() * len(parts))] = words[int(draw.random() * len(words))]
                line = " ".join(parts).rstrip("\n") + "\n"
            written += len(line.encode())
            yield line
            if written >= size and not line.strip():
                return


def write_corpus(path: Path, size: int) -> Path:
    """A text file of about `size` bytes."""
    lines = [line for file in texts() for line in [*file.read_text(errors="replace").splitlines(keepends=True), "\n"]]
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(perturbed(lines, size))
    return path


def make(source: str, out: str, packing: str) -> None:
    """Make records and print what it took as a line of json."""
    from kerasbert.data import write_records
    from kerasbert.text import load_tokenizer

    start = time.monotonic()
    tokenizer = load_tokenizer(SHARED / "vocab" / "bert-base-uncased")
    records = write_records([source], tokenizer, out, packing=packing)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(
        json.dumps(
            {
                **{name: count for name, count in records.manifest["counts"].items() if name != "labels"},
                "padding": 1 - records.tokens / (records.examples * records.length),
                "peak_mb": used.ru_maxrss / 1024,
                "cpu_seconds": used.ru_utime + used.ru_stime,
                "seconds": time.monotonic() - start,
            }
        )
    )


def measure(megabytes: int, packing: str, work: Path) -> dict:
    """Records of a corpus of that size, made in a process of its own."""
    source = write_corpus(work / "corpus.txt", megabytes * 10**6)
    done = python("-m", "tests.benchmarks.bench_corpus", "--make", source, work / "records", packing, timeout=3600)
    return json.loads(done.stdout.strip().splitlines()[-1]) | {"bytes": source.stat().st_size}


def main() -> None:
    """Print one line per figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--packing", default="pairs")
    parser.add_argument("--work")
    parser.add_argument("--make", nargs=3, metavar=("SOURCE", "OUT", "PACKING"), help="used by the program itself")
    options = parser.parse_args()
    if options.make:
        make(*options.make)
        return
    if options.work:
        Path(options.work).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        found = measure(options.megabytes, options.packing, Path(work))
    print(f"python {sys.version.split()[0]}, packing {options.packing}, n = 1")
    for name, value in found.items():
        print(f"{name:14} {value:,.4g}" if isinstance(value, float) else f"{name:14} {value:,}")


if __name__ == "__main__":
    main()

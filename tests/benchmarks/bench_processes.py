"""What do several processes gain `kerasbert data`, and is every byte the same?

    taskset -c 0,1 python -m tests.benchmarks.bench_processes [--megabytes 100] [--packing pairs] [--repeat 3] [--processes 1 2]

The corpus of `bench_data`. Each run is the command in a fresh interpreter, with its imports; the numbers of processes take
turns. Wall time; CPU-seconds of the first process, through which all text goes, and of the others together; the most
memory of one process.
"""

import argparse
import hashlib
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.bench_corpus import SHARED, perturbed
from tests.benchmarks.bench_data import TEXTS
from tests.support import python


def once(arguments: list[str]) -> None:
    """The command, and what it cost: a line of json."""
    from kerasbert.cli import main

    status = main(arguments)
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = [use.ru_utime + use.ru_stime for use in (own, others)]
    print(json.dumps({"status": status, "cpu": cpu, "memory": max(own.ru_maxrss, others.ru_maxrss) / 2**10}))


def measured(file: Path, out: Path, processes: int, packing: str) -> dict:
    """A run of the command: seconds, CPU-seconds, MB and a digest of all that it wrote."""
    arguments = ["data", file, "--tokenizer", SHARED / "vocab" / "bert-base-uncased", "--out", out, "--overwrite"]
    arguments += ["--packing", packing, "--processes", processes]
    begin = time.monotonic()
    done = python("-m", "tests.benchmarks.bench_processes", "--once", *arguments)
    found = json.loads(done.stdout.splitlines()[-1]) | {"wall": time.monotonic() - begin}
    assert not found["status"], done.stderr
    digest = hashlib.sha256()
    for path in sorted(out.rglob("*")):
        if path.is_file():
            digest.update(path.relative_to(out).as_posix().encode() + path.read_bytes())
    return found | {"digest": digest.hexdigest()}


def main() -> None:
    """Print a line for each number of processes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--packing", default="pairs")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    lines = [
        line
        for name in TEXTS
        for line in [*(SHARED / "lm" / name).read_text(errors="replace").splitlines(keepends=True), "\n"]
    ]
    runs: dict[int, list[dict]] = {number: [] for number in options.processes}
    with tempfile.TemporaryDirectory() as work:
        file = Path(work) / "text.txt"
        file.write_text("".join(perturbed(lines, options.megabytes * 10**6)))
        for _ in range(options.repeat):
            for number, found in runs.items():
                found.append(measured(file, Path(work) / "records", number, options.packing))
    cores = len(os.sched_getaffinity(0))
    print(
        f"{options.megabytes} MB, packing {options.packing}, n = {options.repeat}, {cores} cores, load {os.getloadavg()[0]:.1f}"
    )
    print(
        f"{'processes':>9}{'wall s':>9}{'least':>8}{'most':>8}{'x first':>9}{'CPU first':>11}{'CPU others':>12}{'MB most':>9}"
    )
    first = statistics.median(run["wall"] for run in runs[options.processes[0]])
    for number, found in runs.items():
        walls = [run["wall"] for run in found]
        own, others = (statistics.median(run["cpu"][i] for run in found) for i in (0, 1))
        wall, memory = statistics.median(walls), max(run["memory"] for run in found)
        print(
            f"{number:9}{wall:9.1f}{min(walls):8.1f}{max(walls):8.1f}{wall / first:9.2f}{own:11.1f}{others:12.1f}{memory:9.0f}"
        )
    digests = {run["digest"] for found in runs.values() for run in found}
    print("every byte the same" if len(digests) == 1 else f"{len(digests)} DIFFERENT RESULTS")


if __name__ == "__main__":
    once(sys.argv[2:]) if sys.argv[1:2] == ["--once"] else main()

"""Every family learns: its pretraining losses beside the entropy of its targets, a line a family.

    python -m tests.benchmarks.bench_learning --work DIR [--families deberta modernbert ...]

As `tests.objectives.learn` trains them: one layer of 64 (two of Reformer), rows of 64 tokens of two of the quickstart's books,
batches of 32, one seed. The losses are means of the last updates. The entropy is that of the tokens that are to be predicted, by
how often each occurs: what is known without the text around them. Of Quick-Thoughts it is that of an even choice among sentences.
DIR keeps learning.jsonl, a row for each family: the same command goes on.
tests/benchmarks/measured/learning.jsonl has the rows so far: copied into DIR they are not measured again.
"""

import argparse
import shutil
import time
from pathlib import Path
from typing import Any

import keras

from kerasbert import registry, report
from tests.benchmarks.kept_rows import measured
from tests.objectives import learn


def trained() -> list[str]:
    """Families with an objective of their own."""
    return [name for name, family in registry.families().items() if family.objective]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--families", nargs="+", choices=trained(), default=trained())
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)

    def measure(family: str) -> dict[str, Any]:
        began, out = time.perf_counter(), options.work / family
        shutil.rmtree(out, ignore_errors=True)
        found = learn.run(family, "cpu", options.work)
        shutil.rmtree(out)
        keras.backend.clear_session()
        return {**found, "seconds": round(time.perf_counter() - began, 1)}

    found = measured(options.work / "learning.jsonl", [{"family": family} for family in options.families], measure)
    cells = []
    for row in found:
        losses = ", ".join(f"{name} {value:.2f}" for name, value in row["losses"].items())
        below = all(value < row["entropy"] for value in row["losses"].values())
        numbers = [str(row["updates"]), f"{row['entropy']:.2f}", losses, f"{row['cpu']:.0f}"]
        cells.append([row["family"], row["objective"], *numbers, "" if below else "not below"])
    print(report.table(["family", "objective", "updates", "entropy", "losses", "CPU-s", ""], cells))


if __name__ == "__main__":
    main()

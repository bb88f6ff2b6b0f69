"""Every family learns: its pretraining losses beside the entropy of its targets, a line a family.

    python -m tests.benchmarks.bench_learning --work DIR [--families deberta modernbert ...]

As `tests.objectives.learn` trains them: one layer of 64 (two of Reformer), rows of 64 tokens of two of the quickstart's books,
batches of 32, one seed. The losses are means of the last updates. The entropy is that of the tokens that are to be predicted, by
how often each occurs: what is known without the text around them. Of Quick-Thoughts it is that of an even choice among sentences.
The same model is then fine-tuned with SST-2's 6,920 rows and answers its 436 dev rows: their accuracy stands beside the share of
the commoner label and four standard errors of that share. Needs ../shared/data.
DIR keeps learning.jsonl, a row for each family: the same command goes on.
tests/benchmarks/measured/learning.jsonl has the rows so far: copied into DIR they are not measured again.
"""

import argparse
import math
import shutil
import time
from pathlib import Path
from typing import Any

import keras

import kerasbert as kb
from kerasbert import registry, report
from tests.benchmarks.bench_sst2 import SHARED
from tests.benchmarks.kept_rows import measured
from tests.objectives import learn


def trained() -> list[str]:
    """Families with an objective of their own."""
    return [name for name, family in registry.families().items() if family.objective]


def accuracy(run: Path, out: Path) -> float:
    """Of SST-2's dev rows, by the best of three epochs over its training rows, from a pretrained model."""
    settings = {"epochs": 3, "batch": 32, "learning_rate": 1e-3, "length": 64, "quiet": True}
    kb.finetune(run, "glue/sst2", SHARED / "glue/SST-2", out=out, **settings)
    return float(kb.evaluate(out, SHARED / "glue/SST-2")["metrics"]["accuracy"])


def chance() -> tuple[float, float]:
    """The share of the commoner label among SST-2's dev rows, and its standard error."""
    labels = [line.rsplit("\t", 1)[1] for line in (SHARED / "glue/SST-2/dev.tsv").read_text("utf-8").splitlines()[1:]]
    share = max(labels.count(label) for label in set(labels)) / len(labels)
    return share, math.sqrt(share * (1 - share) / len(labels))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--families", nargs="+", choices=trained(), default=trained())
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)

    def measure(family: str) -> dict[str, Any]:
        began, out, tuned = time.perf_counter(), options.work / family, options.work / f"{family}-sst2"
        for folder in (out, tuned):
            shutil.rmtree(folder, ignore_errors=True)
        found = learn.run(family, "cpu", options.work)
        seconds = round(time.perf_counter() - began, 1)
        found["accuracy"] = accuracy(out, tuned)
        for folder in (out, tuned):
            shutil.rmtree(folder)
        keras.backend.clear_session()
        return {**found, "seconds": seconds}

    found = measured(options.work / "learning.jsonl", [{"family": family} for family in options.families], measure)
    (share, error), cells = chance(), []
    for row in found:
        losses = ", ".join(f"{name} {value:.2f}" for name, value in row["losses"].items())
        below = all(value < row["entropy"] for value in row["losses"].values())
        numbers = [str(row["updates"]), f"{row['entropy']:.2f}", losses, f"{row['seconds']:.0f}"]
        above = row["accuracy"] > share + 4 * error
        doubts = [*([] if below else ["not below"]), *([] if above else ["not above"])]
        cells.append([row["family"], row["objective"], *numbers, f"{row['accuracy']:.3f}", ", ".join(doubts)])
    print(report.table(["family", "objective", "updates", "entropy", "losses", "seconds", "SST-2", ""], cells))
    print(f"SST-2: the commoner label {share:.3f}, four standard errors above it {share + 4 * error:.3f}")


if __name__ == "__main__":
    main()

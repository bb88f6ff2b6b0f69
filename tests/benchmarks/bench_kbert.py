"""K-BERT with and without HowNet, from random weights: the median of three seeds; and what a graph costs at a launch.

    python -m tests.benchmarks.bench_kbert [--sets chnsenticorp ...] [--seeds 0 1 2] [--work DIR] [--limit N] [--steps N]
    python -m tests.benchmarks.bench_kbert --launch

Needs ../shared/data/kbert. Of book_review dev rows alone are there: the first four fifths train, the others judge. The models
are kbert/tiny from random weights with the characters of the training texts as their vocabulary, 128 tokens, batch 32, learning
rate 5e-4, 5 epochs (3 of medical_ner); "none" is the same model and an empty graph, which is BERT to the bit. What is printed is
the last epoch's, so that nothing is selected on dev. From random weights little can be said of the paper's figures, which start
from a pretrained BERT: read the difference beside the spread over the seeds. A killed run goes on with the same --results, which
is results.json in --work by default; those measured so far stand in measured/kbert.json.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

import kerasbert as kb
from kerasbert import report, text
from kerasbert.tasks.base import Rows
from kerasbert.tasks.task import find_task
from kerasbert.text.knowledge import KnowledgeGraph
from kerasbert.training.splits import Split, in_memory, split
from tests.benchmarks.bench_sst2 import SHARED
from tests.benchmarks.bench_tasks import apart

DATA, LENGTH = SHARED / "kbert", 128
SETTINGS: dict[str, Any] = {"batch": 32, "learning_rate": 5e-4, "length": LENGTH, "quiet": True}
REVIEWS = {"text_column": "text_a", "label_column": "label"}


class Set(NamedTuple):
    """A data set: its task, its metric, columns of the task `classification`, graphs beside none, epochs."""

    task: str
    metric: str
    columns: dict[str, str]
    graphs: tuple[str, ...] = ("HowNet",)
    epochs: int = 5


SETS = {
    "chnsenticorp": Set("classification", "accuracy", REVIEWS),
    "book_review": Set("classification", "accuracy", REVIEWS),
    "medical_ner": Set("medical_ner", "f1", {}, ("HowNet", "Medical"), 3),
}


def rows_of(name: str, limit: int | None) -> Split:
    """Train and dev rows of a set, at most `limit` of each."""
    chosen, folder = SETS[name], DATA / name
    columns = {"text": chosen.columns.get("text_column"), "label": chosen.columns.get("label_column")}
    task = find_task(chosen.task, metric=chosen.metric, **columns)
    if (folder / "train.tsv").exists():
        known = split(task, folder)
        assert known.dev is not None
        parts: dict[str, Rows | None] = {"train": known.train, "dev": known.dev}
    else:
        known = split(task, (folder / "dev.tsv", folder / "dev.tsv"))
        assert known.dev is not None
        cut = 4 * len(known.dev.texts) // 5
        parts = {"train": known.dev.take(range(cut)), "dev": known.dev.take(range(cut, len(known.dev.texts)))}
    some = {part: rows.take(range(min(limit or sys.maxsize, len(rows.texts)))) for part, rows in parts.items() if rows}
    return split(known.task, {part: in_memory(rows, f"{name}, {part} rows") for part, rows in some.items()})


def encoder_of(rows: Rows, seed: int) -> Any:
    """kbert/tiny from random weights; its pieces are the characters of the texts."""
    texts = ("".join(each[0]) if isinstance(each, tuple) else each for each in rows.texts)
    special = "[PAD] [UNK] [CLS] [SEP] [MASK]".split()
    letters = sorted({character for each in texts for character in each.lower() if not character.isspace()})
    tokenizer = text.WordPiece([*special, *letters, *(f"##{letter}" for letter in letters if letter.isascii())])
    keras.utils.set_random_seed(seed)
    encoder = kb.build("kbert/tiny", **{"embeddings.vocabulary": tokenizer.size, "embeddings.positions": LENGTH})
    encoder.tokenizer = tokenizer
    return encoder


def trained(name: str, graph: str, seed: int, limit: int | None, steps: int | None, out: Path) -> dict[str, Any]:
    """Fine-tune with one seed: the last evaluation's metric, and how many branches a row has."""
    chosen, known, began = SETS[name], rows_of(name, limit), time.time()
    triples = KnowledgeGraph() if graph == "none" else KnowledgeGraph.read(DATA / f"kgs/{graph}.spo")
    assert known.train is not None
    encoder = encoder_of(known.train, seed)
    amount = {"epochs": chosen.epochs} if steps is None else {"steps": steps}
    model: Any = kb.finetune(
        encoder, known.task, known.sources, out=out, seed=seed, graph=triples, **amount, **SETTINGS
    )
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    last = [record for record in records if f"dev/{chosen.metric}" in record][-1]
    rows = [model.tokenizer.knowledge.row(model.tokenizer, (each,), LENGTH) for each in plain(known.dev)]
    branches = statistics.mean(len(row.triples) for row in rows)
    return {"value": last[f"dev/{chosen.metric}"], "branches": branches, "wall": time.time() - began}


def plain(rows: Rows | None) -> Iterator[str]:
    """Some texts of rows, those of characters one by one joined."""
    for each in (rows.texts if rows else [])[:500]:
        yield "".join(each[0]) if isinstance(each, tuple) else each


def row(name: str, graph: str, known: Split, runs: list[dict], base: list[dict]) -> list[str]:
    """A line of the table."""
    values, without = ([run["value"] for run in each] for each in (runs, base))
    difference = statistics.median(values) - statistics.median(without)
    return [
        f"{name} ({SETS[name].metric})",
        "/".join(str(len(rows.texts)) for rows in (known.train, known.dev) if rows),
        graph,
        f"{statistics.median(values):.4f}",
        " ".join(f"{value:.4f}" for value in values),
        f"{max(values) - min(values):.4f}",
        "-" if graph == "none" else f"{difference:+.4f}",
        f"{statistics.mean(run['branches'] for run in runs):.1f}",
        f"{statistics.mean(run['wall'] for run in runs) / 60:.1f}",
    ]


def timed(function: Callable[[], Any], rounds: int = 9) -> tuple[float, float]:
    """Median and spread of some calls, milliseconds."""
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        function()
        found.append(1e3 * (time.perf_counter() - began))
    return statistics.median(found), max(found) - min(found)


def launch() -> list[list[str]]:
    """What a graph costs on a phone: at the launch, and for a text."""
    from kerasbert.mobile import compress
    from kerasbert.mobile.runtime import load

    path = DATA / "kgs/HowNet.spo"
    graph, known = KnowledgeGraph.read(path), rows_of("chnsenticorp", 500)
    assert known.train is not None
    lines = [("read HowNet.spo", timed(lambda: KnowledgeGraph.read(path), 3))]
    content = graph.to_bytes()
    lines.append((f"read knowledge.bin ({len(content)} bytes)", timed(lambda: KnowledgeGraph.from_bytes(content))))
    texts = known.train.texts[:200]
    with tempfile.TemporaryDirectory() as folder:
        for name, triples in (("an empty graph", KnowledgeGraph()), ("HowNet", graph)):
            encoder = encoder_of(known.train, 0)
            out = Path(folder) / name.replace(" ", "-")
            settings = {"steps": 1, **SETTINGS}
            model = kb.finetune(encoder, known.task, known.sources, out=out, graph=triples, **settings)
            compress(model, out=f"{out}.tflite", texts=texts[:8], min_agreement=0)
            load(f"{out}.tflite", cache=False)  # imports what every launch of the process needs
            lines.append((f"launch, {name}", timed(lambda out=out: load(f"{out}.tflite", cache=False))))
            runner = load(f"{out}.tflite", cache=False)
            first, _ = timed(lambda runner=runner: runner.kind.rows(runner.tokenizer, (texts[0],), LENGTH), 1)
            lines.append((f"the first text's row, {name}", (first, 0.0)))
            pack = timed(
                lambda runner=runner: [runner.kind.rows(runner.tokenizer, (each,), LENGTH) for each in texts], 5
            )
            lines.append((f"a text's row (200 texts), {name}", tuple(np.array(pack) / len(texts))))
    return [[name, f"{median:.3f}", f"{spread:.3f}"] for name, (median, spread) in lines]


def parsed() -> argparse.Namespace:
    """The options of the command line."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "bench_kbert")
    options.add_argument("--results", type=Path, help="default: results.json in --work")
    options.add_argument("--limit", type=int, help="rows of each part, to see that it works")
    options.add_argument("--steps", type=int, help="updates in place of the epochs, to see that it works")
    options.add_argument("--launch", action="store_true", help="times of a phone's runtime instead")
    return options.parse_args()


def main() -> None:
    """Train what is missing in --work, and print the table."""
    options = parsed()
    if options.launch:
        print(report.table(["what", "median ms", "spread"], launch()))
        return
    options.work.mkdir(parents=True, exist_ok=True)
    path = options.results or options.work / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    rows = []
    for name in options.sets:
        known = rows_of(name, options.limit)
        part = "-".join(map(str, [name, *(each for each in (options.limit, options.steps) if each)]))
        base: list[dict] = []
        for graph in ("none", *SETS[name].graphs):
            runs = []
            for seed in options.seeds:
                key = f"{part}, {graph}, seed {seed}"
                if key not in results:
                    out = options.work / f"{part}-{graph}-{seed}"
                    results[key] = apart(trained, name, graph, seed, options.limit, options.steps, out)
                    path.write_text(json.dumps(results, indent=1) + "\n")
                    print(f"{key}: {results[key]}", flush=True)
                runs.append(results[key])
            base = base or runs
            rows.append(row(name, graph, known, runs, base))
    header = [
        "set (metric)",
        "train/dev",
        "graph",
        "median",
        "seeds",
        "spread",
        "difference",
        "branches a text",
        "minutes",
    ]
    print(report.table(header, rows))


if __name__ == "__main__":
    main()

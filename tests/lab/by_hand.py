"""A figure of the lab computed again by numpy, from the files of a folder: python -m tests.lab.by_hand DIR [--seed N].

Losses come from the logits of held-out rows; accuracy, F1 and exact matches from predictions and the file of answers; the test
and the power law from results.jsonl. What fine-tuning left is trained again, for the lab keeps no fine-tuned model.
"""

import argparse
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import kerasbert as kb
from kerasbert import registry
from kerasbert.data import Records
from kerasbert.lab import plan, recipes, work
from kerasbert.training import held_out, model_files


def masked_loss(run: Path, records: Path) -> float:
    """Mean negative log probability of the masked tokens in held-out rows, in nats: logits [B, P, V] in float64."""
    told = json.loads((run / "run.json").read_text())["settings"]
    encoder, data = kb.load(run), Records(records)
    program: Any = registry.objective(told["objective"])(
        encoder, encoder.tokenizer, features=data.features, settings=told["objective_settings"], seed=told["seed"]
    )
    model_files.load_heads(run, program.model.heads)
    _, held = held_out.hold_out(data)
    rows = program.prepare(held_out.first_rows(held, held.examples))
    logits = np.asarray(program.model(rows)["mlm_logits"], "float64")
    labels, weights = np.asarray(rows["mlm_labels"]), np.asarray(rows["mlm_weights"], "float64")
    top = logits.max(-1, keepdims=True)
    log_sum = np.log(np.exp(logits - top).sum(-1)) + top[..., 0]
    of_label = np.take_along_axis(logits, labels[..., None].astype(int), -1)[..., 0]
    return float((weights * (log_sum - of_label)).sum() / weights.sum())


def spans(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """(kind, begin, end) of IOB2 tags; an I- that follows no tag of its kind begins a span, as conlleval has it.

    >>> sorted(spans(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"]))
    [('LOC', 3, 4), ('LOC', 4, 5), ('PER', 0, 2)]
    """
    found, begin = set(), None
    for i, tag in enumerate([*tags, "O"]):
        kind = tag[2:]
        if begin is not None and not (tag.startswith("I-") and kind == begin[0]):
            found.add((*begin, i))
            begin = None
        if tag != "O" and begin is None:
            begin = (kind, i)
    return found


def f1(gold: Sequence[Sequence[str]], said: Sequence[Sequence[str]]) -> float:
    """Micro F1 of spans: 2 hits / (spans of the answers + spans that were said).

    >>> f1([["B-PER", "O"], ["B-LOC"]], [["B-PER", "B-PER"], ["B-LOC"]])
    0.8
    """
    one, other = ([spans(tags) for tags in each] for each in (gold, said))
    return 2 * sum(len(a & b) for a, b in zip(one, other, strict=True)) / sum(map(len, [*one, *other]))


def judged(run: Path, rows: Path, metric: str) -> float:
    """A metric of a fine-tuned model on a file of rows, from what it predicts of each."""
    if metric == "f1":
        blocks = [block.splitlines() for block in rows.read_text("utf-8").strip().split("\n\n")]
        words = [[line.split(" ")[0] for line in block] for block in blocks]
        said = kb.predict(run, [" ".join(each) for each in words])
        assert [list(each.words) for each in said] == words
        return f1([[line.split(" ")[1] for line in block] for block in blocks], [each.labels for each in said])
    pairs = [line.split("\t") for line in rows.read_text("utf-8").splitlines()[1:]]
    said = kb.predict(run, [text for text, _ in pairs], batch=64)
    field = {"accuracy": "label", "exact_match": "text"}[metric]
    return float(np.mean([getattr(each, field) == right for each, (_, right) in zip(said, pairs, strict=True)]))


def again(folder: Path, arm: str, seed: int) -> float:
    """The figure of an arm and seed, whose encoder the lab has pretrained in this folder."""
    begun = json.loads((folder / plan.MARKER).read_text())
    experiment, arms = recipes.find(begun["experiment"]), begun["arms"]
    group = next(names[0] for names in plan.alike(experiment) if arm in names)
    place, settings = work.runs(folder, group, seed), arms[arm]
    if experiment.figure["of"] == "pretrain":
        return masked_loss(place / "pretrained", work.records(folder, arms, arm))
    runs = work._finetuned(folder, place, arm, settings, seed)
    test = settings["test"]
    try:
        return judged(runs[-1], work.rows_of(folder, test), test.get("name", experiment.figure["name"]))
    finally:
        for each in runs:
            shutil.rmtree(each)


def interval(values: Sequence[float] | np.ndarray, quantile: float) -> dict[str, float]:
    """Mean and the ends of the t-interval, for a quantile of Student's distribution from elsewhere."""
    half = quantile * np.std(values, ddof=1) / np.sqrt(len(values))
    return {"mean": float(np.mean(values)), "low": float(np.mean(values) - half), "high": float(np.mean(values) + half)}


def differences(lines: Sequence[Mapping[str, Any]], each: Mapping[str, Any]) -> np.ndarray:
    """A comparison's value of every seed: better minus worse, or the exponent of loss = c N^a by np.polyfit."""
    names = each.get("slope") or (each["better"], each["worse"])
    found = {(line["arm"], line["seed"]): line for line in lines}
    seeds = sorted({line["seed"] for line in lines})
    figures = np.array([[found[name, seed]["figure"] for name in names] for seed in seeds], "float64")
    if "slope" not in each:
        return figures[:, 0] - figures[:, 1]
    sizes = np.array([[found[name, seed]["parameters"] for name in names] for seed in seeds], "float64")
    return np.array([np.polyfit(np.log(x), np.log(y), 1)[0] for x, y in zip(sizes, figures)])


def main() -> None:
    """Print the lab's figure of every arm of a seed beside numpy's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for line in plan.finished(options.folder):
        if line["seed"] == options.seed and line.get("figure") is not None:
            found = again(options.folder, line["arm"], line["seed"])
            print(f"{line['arm']}: {line['figure']:.6f} {found:.6f} {found - line['figure']:+.1e}", flush=True)


if __name__ == "__main__":
    main()

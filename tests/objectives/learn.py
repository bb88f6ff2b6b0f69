"""Train a tiny model of each objective on the quickstart's books; in a process of its own for several replicas.

python -m tests.objectives.learn STRATEGY FOLDER OBJECTIVE ...

OBJECTIVE may be a family's name, which is trained with its own objective.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import kerasbert as kb
from kerasbert import registry, text
from kerasbert import spec as specs
from kerasbert.classics.objectives.sentences import Sentences
from kerasbert.classics.quick_thoughts import Neighbours
from kerasbert.data import Records
from kerasbert.objectives.base import Objective
from kerasbert.objectives.seq2seq import TextToText
from kerasbert.training.strategy import strategy as make_strategy
from tests.objectives import books

STEPS, LAST = 400, 100  # updates, and those at the end whose mean is taken
WRITING = {
    "causal_lm": (160, 60),
    "segment_lm": (160, 60),
    "span_corruption": (160, 60),
    "infilling": (160, 60),
    "mass": (240, 100),
}
# with 6e-3 these post-norm stacks go on saying how frequent the tokens are
RATE, RATES = 6e-3, {"mass": 2e-3, "deberta_v3": 2e-3, "unilm": 2e-3}
CHAPTERS = 9  # of each book: 400 updates go over it six times
SIZE = {
    "hidden": 64,
    "attention.heads": 4,
    "feedforward.width": 128,
    "blocks.layers": 1,
    "recurrence.units": 64,
    "embeddings.filters": (16, 16, 32),
    "embeddings.highways": 1,
    "window.size": 16,
    "dropout": 0.0,
}
# of a family whose Spec has more to make small: chunks of 16 of the 64 tokens, and two layers, of which the second hashes
OWN = {
    "reformer": {
        "axial.shape": (8, 8),
        "blocks.layers": 2,
        "lsh.chunk": 16,
        "lsh.buckets": 8,
        "local.chunk": 16,
        "reversible.chunk": 16,
    }
}
# a choice among a row's sentences wants more of them than 64 tokens hold
LENGTHS, SETTINGS = {"quick_thoughts": 256}, {"quick_thoughts": {"sentences": 16}}
SETTINGS["macbert"] = {"mask": 0.0, "random": 0.9}  # without word vectors: random words in the place of similar ones
# objectives that no family has as its own -> the family that is trained with it
OTHERS = {"recurrent_lm": "sa-lstm", "tsdae": "bert", "funnel_electra": "funnel"}
# losses whose targets are tokens of the text, or sentences of a row
TOKENS = ("mlm", "sbo", "wso", "lm", "forward", "backward", "next", "previous", "context")


def family_of(objective: str) -> registry.Family:
    """The first family whose own it is, else the one of OTHERS."""
    own = (family for family in registry.families().values() if family.objective == objective)
    return next(own, None) or registry.family(OTHERS[objective])


def run(
    objective: str,
    strategy: str,
    folder: Path,
    *,
    updates: int | None = None,
    rate: float | None = None,
    changes: dict | None = None,
    optimizer: str = "adamw",
    seed: int = 0,
) -> dict:
    """The objective and its updates; entropy of the targets, nats; mean losses of the last updates by name.

    Of replaced tokens beside that: the mean loss, and the entropy of their share.

    Args:
        updates, rate: instead of those that objectives have here. changes: of the Spec, beside SIZE.
    """
    family = registry.families().get(objective) or family_of(objective)
    name, objective = objective, family.objective if objective in registry.families() else objective
    kind = registry.objective(objective)
    sentinels = 0 if family.one_stack else 8
    known = books.words() if family.tokenizer == "word_characters" else None
    about = {"chapters": CHAPTERS, "sentinels": sentinels, "known": known}
    records = books.records(folder, kind.packing, LENGTHS.get(objective, 64), **about, **kind.records)
    steps, last = (STEPS, LAST) if name in OWN else WRITING.get(objective, (STEPS, LAST))
    steps = updates or steps
    settings = {"steps": steps, "save_every": steps, "log_every": 5, "batch": 32, "quiet": True, "seed": seed}
    rate = rate or RATES.get(objective, RATE)
    settings |= {"warmup": 20, "schedule": "linear", "learning_rate": rate, "optimizer": optimizer}
    kb.pretrain(
        f"{family.name}/{next(iter(family.sizes))}",
        records.directory,
        out=folder / name,
        changes=made_small(family, records) | (changes or {}),
        objective={"name": objective, **SETTINGS.get(objective, {})},
        strategy=strategy,
        **settings,
    )
    logs = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    logs = [log for log in logs if log["step"] > steps - last]
    losses = {name: float(np.mean([log[name] for log in logs])) for name in TOKENS if name in logs[0]}
    nats = entropy(kind, family, records, SETTINGS.get(objective, {}))
    found = {"objective": objective, "updates": steps, "entropy": nats, "losses": losses}
    return found | ({"replaced": replaced(logs)} if "rtd" in logs[0] else {})


def made_small(family: registry.Family, records: Records) -> dict:
    """What a family's Spec has of SIZE, and OWN."""
    changes = SIZE | {"embeddings.positions": records.length + specs.maybe(family.spec, "embeddings.offset", 0)}
    if specs.maybe(family.spec, "embeddings.width"):
        changes["embeddings.width"] = 32
    changes = {path: value for path, value in changes.items() if path in specs.paths(type(family.spec))}
    return changes | OWN.get(family.name, {})


def entropy(kind: type[Objective], family: registry.Family, records: Records, settings: dict) -> float:
    """Of the targets, nats."""
    if issubclass(kind, Sentences):
        return of_sentences(kind, kind.settings_for(family.spec, settings), records)
    if family.kind != "encoder" or issubclass(kind, TextToText):
        return of_written(kind, family, records)
    return float(kind.baseline(records)["entropy"])


def replaced(logs: list[dict]) -> dict[str, float]:
    """The discriminator's mean loss, and the entropy of the share of replaced tokens: what answering it everywhere costs."""
    share = float(np.mean([log["rtd/replaced"] for log in logs]))
    nats = -share * np.log(share) - (1 - share) * np.log(1 - share)
    return {"loss": float(np.mean([log["rtd"] for log in logs])), "entropy": float(nats)}


def of_sentences(kind: type[Sentences], settings: Any, records: Records) -> float:
    """Entropy of the tokens of sentences, or of an even choice among a row's other sentences."""
    tokenizer = text.load_tokenizer(Path(records.directory) / "tokenizer")
    made = kind.without_model(tokenizer, settings)
    counts, nats = np.zeros(tokenizer.size), []
    for batch in records.dataset(32, seed=0, prepare=made.prepare).take(50):
        ids, mask = batch["token_ids"].numpy(), batch["padding_mask"].numpy()
        np.add.at(counts, ids[:, :, 1:], mask[:, :, 1:])
        found = mask[:, :, 0].sum(1)
        nats += [np.log(n - 1) for n in found if n > 1 for _ in range(2 * (n - 1))]  # of each pair of neighbours
    if kind is Neighbours:
        return float(np.mean(nats))
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def of_written(kind: type[Objective], family: registry.Family, records: Records) -> float:
    """Entropy of the tokens that a model writes, sentinels and ends among them."""
    tokenizer = text.load_tokenizer(Path(records.directory) / "tokenizer")
    prepare = kind.without_model(tokenizer, kind.settings_for(family.spec)).prepare
    counts = np.zeros(tokenizer.size)
    for batch in records.dataset(32, seed=0, prepare=prepare).take(50):
        np.add.at(counts, batch["labels"].numpy(), batch["weights"].numpy())
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def main(strategy: str, folder: Path, objectives: list[str]) -> None:
    """Print what each gave, a line of json each."""
    make_strategy(strategy)  # before TensorFlow is used
    for objective in objectives:
        print(json.dumps(run(objective, strategy, folder)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])

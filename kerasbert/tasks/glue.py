"""GLUE's nine tasks (Wang et al., 2019), declared: columns, labels in the order of Hugging Face's numbers, metric, files.

`--data FOLDER` takes the official folders and those with the names that others hand them on by. SST-2 is in `task.py`.
"""

import dataclasses
from typing import Any

from kerasbert.registry import register_task
from kerasbert.tasks.base import Task

SAME = {"0": "not_equivalent", "1": "equivalent"}
DUPLICATE = {"0": "not_duplicate", "1": "duplicate"}
ENTAILMENT = {name: name for name in ("entailment", "not_entailment")}
INFERENCE = {name: name for name in ("entailment", "neutral", "contradiction")}
SENTENCES: dict[str, Any] = {"text": "sentence1", "text_b": "sentence2"}
QUESTIONS: dict[str, Any] = {"text": "question1", "text_b": "question2"}
SLICES = {"train": ["train.tsv", "train_slice.*"], "dev": ["dev.tsv", "dev_slice.*"]}
PARAPHRASES = {"train": ["train.tsv", "msr_paraphrase_train.txt"], "test": ["test.tsv", "msr_paraphrase_test.txt"]}
ADVERSARIAL = {"dev": ["dev.tsv", "*_dev.json"]}
SCORES = {"train": ["train.tsv", "*-en-train.csv"], "dev": ["dev.tsv", "*-en-dev.csv"]}
MATCHED, MISMATCHED = (
    {"train": SLICES["train"], "dev": [f"dev_{name}.tsv", "dev_slice.*"], "test": [f"test_{name}.tsv"]}
    for name in ("matched", "mismatched")
)

for _task in (
    Task("glue/cola", text="sentence", labels={"0": "unacceptable", "1": "acceptable"}, metric="matthews"),
    Task("glue/mrpc", **SENTENCES, labels=SAME, metric="f1_positive", files=PARAPHRASES),
    Task("glue/stsb", "regression", **SENTENCES, label="score", metric="spearman", files=SCORES),
    Task("glue/qqp", **QUESTIONS, labels=DUPLICATE, metric="f1_positive", files=ADVERSARIAL),
    Task("glue/mnli", **SENTENCES, labels=INFERENCE, files=MATCHED),
    Task("glue/mnli_mismatched", **SENTENCES, labels=INFERENCE, files=MISMATCHED),
    Task("glue/qnli", text="question", text_b="sentence", labels=ENTAILMENT, files=SLICES),
    Task("glue/rte", **SENTENCES, labels=ENTAILMENT),
    Task("glue/wnli", **SENTENCES, labels={"0": "not_entailment", "1": "entailment"}),
):
    register_task(_task.name, dataclasses.replace(_task, reader="glue"))

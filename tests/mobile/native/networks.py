"""A float32 .tflite of every kind that the portable core answers, with random weights: what the runner is compared on."""

from pathlib import Path
from typing import Any

import numpy as np

LENGTH = 32  # tokens of the longest row
PROMPTS = {"query": "the cat ", "passage": "un été 😀 "}
BLOCKS = {"bigbird": {"sparse.block": 1}}  # sparse from 12 tokens on
TASKS = ("classification", "multi_label", "regression", "ner", "squad2", "choice", "sts", "fill-mask")


def network(task: str, folder: Path, family: str = "bert", **lengths: Any) -> Path:
    """Write the file of a task; its labels mean nothing, and differ from text to text.

    Args:
        family: of the encoder; BigBird's blocks are of one token.
        lengths: of `compress`: buckets of 8, 16 and 32 tokens where none are given.
    """
    from kerasbert import registry  # here: it brings TensorFlow
    from kerasbert.mobile import compress
    from kerasbert.testing.battery import Subject
    from kerasbert.testing.case import Case
    from kerasbert.testing.halves import Halves
    from tests.testing.test_kinds import OURS

    declared = registry.task(task)
    declared = declared.optioned({"prompts": PROMPTS, "prompt_name": "passage"} if task == "sts" else {})
    case = Case(Halves(declared), declared, OURS[task].get("data"), Subject(family, folder, **BLOCKS.get(family, {})))
    draw = np.random.default_rng(4)
    for weight in case.model.encoder.weights:
        if weight.path.endswith(("kernel", "table")):
            weight.assign(draw.normal(0, 1.2 / case.model.encoder.spec.hidden**0.5, weight.shape))
    out = folder / f"{task}.tflite"
    compress(case.model, "float32", out, texts=case.texts, **(lengths or {"lengths": [8, 16, LENGTH]}))
    return out

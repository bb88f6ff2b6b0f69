"""Tasks whose answer is a text, and T5's: every task as text (Raffel et al., 2020, section 2.4)."""

from typing import Any

from kerasbert.registry import register_task
from kerasbert.tasks.base import Task

COLUMNS: dict[str, Any] = {"kind": "generation", "text": "source", "text_b": "target", "label": ""}

register_task("generation", Task("generation", **COLUMNS, metric="exact_match"))
register_task("translation", Task("translation", **COLUMNS, metric="bleu"))
register_task("summarization", Task("summarization", **COLUMNS, metric="rougeLsum", options={"target_length": 128}))

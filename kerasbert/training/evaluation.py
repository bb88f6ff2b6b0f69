"""`evaluate`: metrics of a fine-tuned model, and on which rows."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import keras

from kerasbert.options import checked
from kerasbert.storage.json_view import Json
from kerasbert.tasks import early_checks, predict
from kerasbert.tasks.graph_values import BATCH
from kerasbert.training.splits import measured

if TYPE_CHECKING:
    from kerasbert.tasks.predict import Models
    from kerasbert.tasks.tables import Data


@checked
def evaluate(
    model: "Models",
    data: "Data",
    *,
    length: int | None = None,
    batch: int = BATCH,
    split: str | None = None,
    language: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Json:
    """Metrics of a fine-tuned model.

    Args:
        model: a run's directory or a loaded model; a list of them answers as one (`tasks.ensemble`).
        data: a file with the task's columns, a folder, or rows in memory as `finetune` takes them. Of the file that a run
            held rows out of these rows count; of a folder its dev file, else what the run held out, else its test file.
        length: int, tokens a text may have; the length of the task's training by default.
        batch: int, texts at once.
        split: "train", "dev" or "test", where another part of the data is wanted.
        language: str, of the texts, for a model that reads it (XLM); that of the task's training by default.
        options: of the task's kind, over those of its training, such as {"beams": 4} of a generation.

    Returns:
        {"task", "rows": what was measured on, "examples", "truncated": texts that lost their end, "length", "metrics":
        {name: value}, "remarks": lines}; of a task with labels also "labels": {name: {"precision", "recall", "f1",
        "roc_auc" (against the rest), "rows"}}, and of a classification "confusion": rows by [label][answer]; of a
        task that reads a mix of the layers "layers": {"gamma", "shares": of the embeddings and of each layer}.

    Raises:
        InputError: no task, files, columns, labels; a folder with training rows alone.
    """
    model = predict.together(model)
    predict.check_task(model)
    task = model.task.optioned(options or {})
    rows, told = measured(task, data, run=getattr(model, "directory", None), split=split)
    longest = predict.longest(model, length)
    encoded = predict.encoded_rows(model, rows.texts, length, {"language": language}, kind=task.how)
    outputs = predict.outputs_of(model, encoded, longest, batch)
    return {
        "task": task.name,
        "rows": told,
        "examples": len(rows.texts),
        "truncated": len(encoded.truncated),
        "length": longest,
        "metrics": task.measured(outputs, rows.targets, encoded),
        **task.how.details(task, outputs, rows.targets, encoded),
        **model.told(),
        "remarks": [
            *getattr(model, "remarks", ()),
            *encoded.told("", longest),
            *task.how.remarks(task, outputs, rows.targets),
        ],
    }


def with_columns(model: keras.Model, **columns: str | None) -> keras.Model:
    """The model, its task reading other columns (text, text_b, label) where given."""
    model.task = early_checks.with_columns(model.task, columns)
    return model

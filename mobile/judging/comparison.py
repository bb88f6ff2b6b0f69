"""A file beside its Keras model: what both say of the same texts, and what the file's reader loses of them."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerasbert.answers import Kind
from kerasbert.errors import InputError
from kerasbert.storage import scratch
from kerasbert.storage.json_view import JsonMap
from kerasbert.tasks import predict
from kerasbert.tasks.base import find, kind_of
from kerasbert.tasks.batches import Encoded
from kerasbert.tasks.exported_kind import READERS
from kerasbert.tasks.task import Task
from kerasbert.text import Tokenizer
from ..model_and_texts import MADE
from ..options import Texts
from ..quantize.schemes import SCHEMES
from ..runtime import load as load_runtime

if TYPE_CHECKING:
    import keras


Outputs = np.ndarray | list[np.ndarray]  # of rows: float32 [rows, C], or for tokens a list of [S, C]


def reference(
    model: "keras.Model",
    texts: Texts,
    length: int,
    tokenizer: Tokenizer | None = None,
    lengths: Sequence[int] = (),
) -> Outputs:
    """What the Keras model says of each row, in the meaning of the file's output.

    Args:
        length: int, tokens that it reads.
        tokenizer: another than its own. lengths: as of `predict.outputs`; of a task's model.
    """
    kind = kind_of(model).answers
    with _reading(model, tokenizer or model.tokenizer):
        if getattr(model, "task", None) is None:
            return predict.encode(model, texts, length=length)
        rows = [
            np.atleast_1d(kind.probabilities(row)) for row in predict.outputs(model, texts, length, lengths=lengths)
        ]
    return rows if kind.per_token else np.stack(rows)


def encoded(model: "keras.Model", texts: Texts, length: int, tokenizer: Tokenizer | None = None) -> Encoded:
    """The rows that `reference` reads."""
    with _reading(model, tokenizer or model.tokenizer):
        return predict.encoded_for(model, texts, length)


@contextlib.contextmanager
def _reading(model: "keras.Model", tokenizer: Tokenizer) -> Iterator[None]:
    """Let a model and its encoder read by a tokenizer."""
    owners = [model, getattr(model, "encoder", model)]
    kept = [owner.tokenizer for owner in owners]
    try:
        for owner in owners:
            owner.tokenizer = tokenizer
        yield
    finally:
        for owner, own in zip(owners, kept):
            owner.tokenizer = own


def reading(kind: Kind, tokenizer: Tokenizer, reader: Tokenizer | None, texts: Texts, length: int) -> dict[str, int]:
    """What a file's reader loses of the texts.

    Args:
        tokenizer: the model's.
        reader: the one that gives the file its ids, None for the model's.
        length: int, the most tokens that the file takes.
    Returns:
        cut: how many texts have more tokens and are truncated; with a reader other_ids: how many get other ids, and windows:
        how many take more than one row.
    """
    parts = [text if isinstance(text, tuple) else (text,) for text in texts]
    fed = [kind.rows(reader or tokenizer, some, length) for some in parts]
    lost = {"cut": sum(any(row.truncated for row in rows) for rows in fed)}
    if reader:
        own = ([row.token_ids for row in kind.rows(tokenizer, some, length)] for some in parts)
        lost["other_ids"] = sum(ids != [row.token_ids for row in others] for ids, others in zip(own, fed))
        lost["windows"] = sum(len(rows) > 1 for rows in fed)
    return lost


def run(blob: bytes, texts: Texts, tokenizer: Tokenizer | None = None) -> Outputs:
    """What a finished file says of each row, run by the phone's own runtime.

    Args:
        tokenizer: the reader's that the file is for, by default the one in the file.
    """
    with scratch.folder() as directory:
        path = Path(directory) / "model.tflite"
        path.write_bytes(blob)
        runner = load_runtime(path, cache=False)
        runner.tokenizer = tokenizer or runner.tokenizer
        return runner.outputs(texts)


def check_converted(quantize: str, received: Outputs, said: Outputs, kind: str, task: Task | None) -> None:
    """Refuse a float file that computes other numbers than the Keras model of the same ids."""
    limit, difference = SCHEMES[quantize].tolerance, float(find(kind).answers.differences(said, received).max())
    if limit is not None and task is not None:
        limit = task.rounding(limit)
    if limit is not None and not difference <= limit:
        raise InputError(
            f"the {quantize} file differs from the Keras model by {difference:.2g} on {len(said)} texts, expected at most "
            f"{limit:g}. Nothing was written; please report the model"
        )


def losses(report: JsonMap) -> list[str]:
    """What a file's reader loses of the texts that it was compared on, in words."""
    found = []
    if count := report.get("cut"):
        longest = max(report["lengths"])
        found.append(f"{count} of these texts have more than {longest} tokens and lose their end (--length, --lengths)")
    if count := report.get("other_ids"):
        found.append(
            f"{count} of these texts ({count / report['texts']:.1%}) get other ids from {READERS[report['target']][0]}, which "
            "lower-cases ASCII alone and keeps accents (without --target they get the model's)"
        )
    if count := report.get("windows"):
        found.append(
            f"{count} of these texts take more than one row of {max(report['lengths'])} tokens, of which "
            f"{READERS[report['target']][0]} reads the first; they are compared whole"
        )
    return found


def remarks(report: JsonMap) -> list[str]:
    """The same, and what the texts cannot show."""
    found, longest = losses(report), max(report["lengths"])
    if not report.get("cut") and longest < report.get("model_length", 0):
        found.append(
            f"texts of more than {longest} tokens lose their end, the model reads {report['model_length']} (--length)"
        )
    if report.get("other_ids") == 0 and report["texts_from"] == MADE:
        found.append(
            f"these texts have no accents and no capitals, of which {READERS[report['target']][0]} keeps what the model's "
            "tokenizer drops: whether that matters only real texts can show (--texts, --data)"
        )
    return found

"""A file beside its Keras model: what both say of the same texts, and whether that is near enough."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert.errors import InputError
from kerasbert.mobile.quantize.schemes import SCHEMES
from kerasbert.mobile.runtime import load as load_runtime

MADE = "generated from the vocabulary"  # where texts come from that nobody gave

Texts = Sequence[str] | Sequence[tuple[str, str]]


def reference(model: Any, kind: str, texts: Texts, length: int, tokenizer: Any = None) -> np.ndarray:
    """What the Keras model says: float32 [texts, outputs], in the meaning of the file's output.

    Args:
        length: int, tokens that it reads.
        tokenizer: another than its own.
    """
    from kerasbert.answers.base import softmax
    from kerasbert.tasks import predict

    with _reading(model, tokenizer or model.tokenizer):
        if kind == "embedding":
            return predict.encode(model, texts, pooling="mean", length=length)
        values = predict.outputs(model, texts, length)
    return softmax(values) if kind == "classification" else values.reshape(-1, 1)


@contextlib.contextmanager
def _reading(model: Any, tokenizer: Any) -> Iterator[None]:
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


def reading(tokenizer: Any, reader: Any, texts: Texts, length: int) -> dict[str, int]:
    """What a file's reader loses of the texts.

    Args:
        tokenizer: the model's. reader: the one that gives the file its ids, None for the model's.
        length: int, the most tokens that the file takes.
    Returns:
        cut: how many texts have more tokens and lose their end; with a reader other_ids: how many get other ids.
    """
    parts = [text if isinstance(text, tuple) else (text,) for text in texts]
    fed = [(reader or tokenizer).pack(*some)[0] for some in parts]
    found = {"cut": sum(len(ids) > length for ids in fed)}
    if reader:
        own = (tokenizer.pack(*some)[0] for some in parts)
        found["other_ids"] = sum(ids[:length] != others[:length] for ids, others in zip(own, fed))
    return found


def run(blob: bytes, texts: Texts, tokenizer: Any = None) -> np.ndarray:
    """Answers of a finished file, run by the phone's own runtime: float32 [texts, outputs].

    Args:
        tokenizer: the reader's that the file is for, by default the one in the file.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "model.tflite"
        path.write_bytes(blob)
        runner = load_runtime(path, cache=False)
        runner.tokenizer = tokenizer or runner.tokenizer
        return runner.outputs(texts)


def compare(expected: np.ndarray, received: np.ndarray, kind: str, targets: np.ndarray | None) -> dict[str, Any]:
    """What a file says beside what the Keras model says, both float32 [texts, outputs].

    Returns:
        agreement (share of equal labels, correlation or mean cosine), max_difference and mean_difference of the
        outputs, and accuracy {"keras", "tflite"} where `targets` of a classification are given.
    """
    difference = np.abs(received - expected)
    result: dict[str, Any] = {"agreement": float(_agreement(kind, expected, received))}
    result |= {"max_difference": float(difference.max()), "mean_difference": float(difference.mean())}
    if targets is not None and kind == "classification":
        accuracy = {"keras": expected, "tflite": received}
        result["accuracy"] = {who: float((rows.argmax(-1) == targets).mean()) for who, rows in accuracy.items()}
    return result


def _agreement(kind: str, expected: np.ndarray, received: np.ndarray) -> float:
    if not np.isfinite(received).all():
        return 0.0
    if kind == "classification":
        return (expected.argmax(-1) == received.argmax(-1)).mean()
    if kind == "regression":
        if expected.std() == 0 or received.std() == 0:
            return float(np.allclose(expected, received, atol=1e-2))
        return np.corrcoef(expected[:, 0], received[:, 0])[0, 1]
    norms = np.linalg.norm(expected, axis=-1) * np.linalg.norm(received, axis=-1)
    return ((expected * received).sum(-1) / np.maximum(norms, 1e-12)).mean()


def check_converted(quantize: str, received: np.ndarray, said: np.ndarray, task: Any) -> None:
    """Refuse a float file that computes other numbers than the Keras model of the same ids; both float32 [texts, outputs]."""
    limit, difference = SCHEMES[quantize].tolerance, float(np.abs(received - said).max())
    if limit is not None and task is not None:
        limit = task.rounding(limit)
    if limit is not None and not difference <= limit:
        raise InputError(
            f"the {quantize} file differs from the Keras model by {difference:.2g} on {len(said)} texts, expected at most "
            f"{limit:g}. Nothing was written; please report the model"
        )


def check_agreement(report: Mapping[str, Any], kind: str, min_agreement: float | None) -> None:
    """Refuse a file that answers too often otherwise than the model.

    Args:
        report: of `compress`. min_agreement: by default what its quantization is expected to keep.
    """
    if min_agreement is None:
        min_agreement = SCHEMES[report["quantize"]].agreement
    if report["agreement"] >= min_agreement:
        return
    what = {"classification": "labels", "regression": "correlation", "embedding": "cosine"}[kind]
    reasons = losses(report) or ["give texts like the real ones (--data) or use --quantize fp16"]
    raise InputError(
        f"the {report['quantize']} file agrees with the Keras model on {report['agreement']:.4f} ({what}, {report['texts']} "
        f"texts), expected at least {min_agreement:g}. Nothing was written: {'; '.join(reasons)}; or lower --min-agreement"
    )


def losses(report: Mapping[str, Any]) -> list[str]:
    """What a file's reader loses of the texts that it was compared on, in words."""
    found = []
    if count := report.get("cut"):
        longest = max(report["lengths"])
        found.append(f"{count} of these texts have more than {longest} tokens and lose their end (--length, --lengths)")
    if count := report.get("other_ids"):
        found.append(
            f"{count} of these texts ({count / report['texts']:.1%}) get other ids from MediaPipe, which lower-cases ASCII "
            "alone and keeps accents (without --target they get the model's)"
        )
    return found


def remarks(report: Mapping[str, Any]) -> list[str]:
    """The same, and what the texts cannot show."""
    found, longest = losses(report), max(report["lengths"])
    if not report.get("cut") and longest < report.get("model_length", 0):
        found.append(
            f"texts of more than {longest} tokens lose their end, the model reads {report['model_length']} (--length)"
        )
    if report.get("other_ids") == 0 and report["texts_from"] == MADE:
        found.append(
            "these texts have no accents and no capitals, of which MediaPipe keeps what the model's tokenizer drops: whether "
            "that matters only real texts can show (--texts, --data)"
        )
    return found

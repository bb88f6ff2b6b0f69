"""A text as a vector."""

import dataclasses
from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from kerasbert.answers.base import Kind, truncated_json


@dataclasses.dataclass(frozen=True)
class Vector:
    """A text as a vector. `truncated` as of a Classification."""

    values: Sequence[float]
    truncated: bool = False

    def to_json(self) -> dict:
        """A plain dict."""
        return {"values": [float(value) for value in self.values], **truncated_json(self)}


class VectorKind(Kind):
    """A vector [H] of a text: its tokens' mean, or what else `pooling` says.

    Options: `pooling`, one of `layers.readout`, "cls" for its "first"; `normalize`, to length 1; `loss`, what it is fine-tuned
    by on rows of two or more texts, "cosine" or "ranking" (see tasks.vector), with `scale`, `negatives` and `highest` of these
    losses. Where it has a loss each text is a row; without one the two of a pair are one row, as an encoder reads them.
    """

    name = "vector"
    aliases = ("embedding",)
    output = "vector"
    agrees_by = "cosine"
    columns = ("values",)
    since = 1
    defaults = MappingProxyType(
        {"pooling": "mean", "normalize": False, "loss": "", "scale": 20.0, "negatives": 0, "highest": 1.0}
    )

    @property
    def lists(self):
        return (1,) if self.options["loss"] else ()

    @property
    def asked(self):
        return 1 if self.options["loss"] else None

    def rows(self, tokenizer, parts, length):
        if not self.options["loss"] or len(parts) == 1:
            return super().rows(tokenizer, parts, length)
        texts = [text for part in parts for text in (part if isinstance(part, tuple) else (part,))]
        rows = [super(VectorKind, self).rows(tokenizer, (text,), length)[0] for text in texts]
        return [dataclasses.replace(row, about=number) for number, row in enumerate(rows)]

    def decode(self, parts, rows, outputs, labels):
        return Vector([float(value) for value in outputs[0]], rows[0].truncated)

    def agreement(self, expected, received, owners=None, rows=()):
        one, other = np.stack(list(expected)), np.stack(list(received))
        if not np.isfinite(other).all():
            return 0.0
        return float(cosines(one, other).mean())

    def line(self, answer, text):
        return "\t".join(f"{value:.6g}" for value in answer["values"])


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Cosines of the angles between vectors: [..., H], [..., H] -> [...]; 0 of a vector of length 0."""
    norms = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
    return (one * other).sum(-1) / np.maximum(norms, 1e-12)


KIND = VectorKind()

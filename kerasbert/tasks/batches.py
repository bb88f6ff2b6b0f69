"""Rows of texts -> batches of arrays, of few lengths: each is a program of its own, none has a dynamic shape."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kerasbert.errors import InputError

LENGTH_STEP = 16


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Token and segment ids of each text, with special tokens, unpadded; `truncated` tells which lost their end."""

    token_ids: list[list[int]]
    segment_ids: list[list[int]]
    pad_id: int = 0
    truncated: tuple[int, ...] = ()

    def told(self, what: str, longest: int) -> list[str]:
        """The line that says how many texts are truncated; none where none is."""
        count, texts = len(self.truncated), len(self.token_ids)
        share = f"{count} of {texts} texts ({count / max(1, texts):.1%})"
        return [f"{what}{share} have more than {longest} tokens and are truncated (--length)"] if count else []

    def arrays(self, indices: Sequence[int], longest: int, rows: int | None = None) -> dict[str, np.ndarray]:
        """Inputs [rows, S] int32 of some texts, padded to a multiple of LENGTH_STEP and to `rows` rows."""
        width = max(len(self.token_ids[i]) for i in indices)
        length = min(longest, -(-width // LENGTH_STEP) * LENGTH_STEP)
        arrays = {
            name: np.zeros((rows or len(indices), length), "int32")
            for name in ("token_ids", "padding_mask", "segment_ids")
        }
        for row, i in enumerate(indices):
            ids = self.token_ids[i]
            arrays["token_ids"][row] = self.pad_id
            arrays["token_ids"][row, : len(ids)] = ids
            arrays["padding_mask"][row, : len(ids)] = 1
            arrays["segment_ids"][row, : len(ids)] = self.segment_ids[i]
        # a padding row sees one token: a row that sees nothing has no softmax
        arrays["padding_mask"][len(indices) :, 0] = 1
        return arrays


def encode_texts(tokenizer: Any, texts: Sequence[str | tuple[str, str]], longest: int) -> Encoded:
    """Tokenize texts or pairs, truncated to `longest` tokens."""
    if tokenizer is None:
        raise InputError(
            "the model has no tokenizer: import it with one, or put it into the model directory's tokenizer/"
        )
    parts = [text if isinstance(text, tuple) else (text,) for text in texts]
    packed = [tokenizer.pack(*some, length=longest) for some in parts]
    full = [i for i, (ids, _) in enumerate(packed) if len(ids) == longest]
    truncated = tuple(i for i in full if len(tokenizer.pack(*parts[i])[0]) > longest)
    return Encoded([ids for ids, _ in packed], [segments for _, segments in packed], tokenizer.pad_id, truncated)


def epoch_order(encoded: Encoded, batch: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Indices of each batch of one epoch: shuffled, then sorted by length within windows of 16 batches.

    Sorting in windows keeps batches random and their padding small.
    """
    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(len(encoded.token_ids))
    lengths = np.array([len(ids) for ids in encoded.token_ids])
    window = 16 * batch
    parts = [order[i : i + window] for i in range(0, len(order), window)]
    order = np.concatenate([part[np.argsort(lengths[part], kind="stable")] for part in parts])
    batches = [order[i : i + batch] for i in range(0, len(order), batch)]
    return [batches[i] for i in generator.permutation(len(batches))]


def training_batches(
    encoded: Encoded, targets: np.ndarray, *, batch: int, longest: int, seed: int, start: int = 0
) -> Iterator[dict[str, np.ndarray]]:
    """Endless batches of exactly `batch` rows from update `start` on; rows that fill up the last of an epoch weigh 0."""
    per_epoch = -(-len(encoded.token_ids) // batch)
    step = start
    while True:
        order = epoch_order(encoded, batch, seed, step // per_epoch)
        for indices in order[step % per_epoch :]:
            arrays = encoded.arrays(indices, longest, rows=batch)
            labels = np.zeros(batch, targets.dtype)
            labels[: len(indices)] = targets[indices]
            weights = (np.arange(batch) < len(indices)).astype("float32")
            yield arrays | {"label": labels, "label_weight": weights, "row": np.arange(batch, dtype="int32")}
            step += 1


def ordered_batches(
    encoded: Encoded, longest: int, batch: int = 64
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """(indices, inputs) of all texts, shortest first."""
    order = np.argsort([len(ids) for ids in encoded.token_ids], kind="stable")
    for i in range(0, len(order), batch):
        yield order[i : i + batch], encoded.arrays(order[i : i + batch], longest)

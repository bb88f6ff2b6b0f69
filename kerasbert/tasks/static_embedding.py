"""An encoder distilled into a static embedding: a vector a piece, whose mean is the vector of a text (model2vec, Tulkens and
van Dongen, 2024; release 0.10, distill/distillation.py).
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerasbert import inputs, registry
from kerasbert import spec as specs
from kerasbert.checkpoints.directory import Weights, save_model
from kerasbert.checkpoints.static_embeddings import FAMILY, LENGTH, TABLE
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.readout import readout
from kerasbert.options import checked
from kerasbert.storage import files, scratch
from kerasbert.tasks import predict
from kerasbert.tasks.batches import Encoded
from kerasbert.tasks.early_checks import check_static
from kerasbert.tasks.graph_values import run
from kerasbert.text import load_tokenizer
from kerasbert.text.base import Tokenizer

if TYPE_CHECKING:
    import keras

    from kerasbert.layers.encoder import SpecModel


DIMS, SIF = 256, 1e-4
UNUSED = re.compile(r"\[unused\d+\]")  # pieces that no text has
KINDS = ("wordpiece", "bpe", "word_bpe", "metaspace_bpe", "unigram")


@checked
def static_embedding(
    model: "str | os.PathLike | keras.Model",
    out: str | os.PathLike,
    *,
    dims: int = DIMS,
    sif: float = SIF,
    overwrite: bool = False,
) -> list[str]:
    """Distil an encoder into a static embedding, a model directory as any: it is searched with, trained further and exported.

    The vector of a piece is the mean over what the encoder gives of it alone between its special tokens; of these vectors the
    first principal components, each piece weighed by sif / (sif + p), p its probability by Zipf's law, its rank that in the
    vocabulary (SIF: Arora et al., 2017, section 3). Special tokens and [unused...] are left out; unknown pieces have no part in a
    mean; vectors have length 1. No text is read.

    Args:
        model: directory or loaded model; a task's model lends its encoder. out: model directory to write.
        dims: int, numbers of a vector; 0: those of the encoder as they are, without principal components.
        sif: float between 0 and 1; 0: every piece weighs the same.
        overwrite: bool, whether an existing `out` is replaced.

    Returns:
        lines of what came of it.

    Raises:
        InputError: dims above the encoder's, a tokenizer whose pieces cannot be taken out, a place that is not ours.
    """
    check_static(dims, sif)
    files.check_free(out, overwrite, [model] if isinstance(model, str | os.PathLike) else ())
    model = predict.as_model(model)
    encoder = predict.check_one(model)
    if dims > encoder.spec.hidden:
        raise InputError(f"dims is {dims}, and a vector of this model has {encoder.spec.hidden} numbers")
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise InputError(
            "the model has no tokenizer, whose pieces a static embedding has vectors of: import it with one"
        )
    kept = _kept(tokenizer)
    pieces = bare(tokenizer).renumbered(kept)
    vectors = _of_pieces(encoder, tokenizer, kept)
    share = 1.0
    if dims:
        vectors, share = principal(vectors, min(dims, len(kept) - 1))
    table = vectors * weights(len(kept), sif)[:, None]
    left_out = tuple(sorted({pieces.pad_id, pieces.unk_id}))
    changes = {"hidden": table.shape[1], "embeddings.vocabulary": len(table), "embeddings.left_out": left_out}
    spec = specs.derive(registry.family(FAMILY).spec, changes)
    task = {"kind": "vector", "inputs": "text", "options": {"pooling": "mean", "normalize": True}, "length": LENGTH}
    parts = {"encoder": Weights(spec, {TABLE: table.astype("float32")}), "name": FAMILY, "task": task}
    save_model(out, replace=overwrite, tokenizer=pieces, **parts)
    kind = f", {share:.0%} of the variance of {encoder.spec.hidden}" if dims else ""
    return [f"{len(table):,} pieces, vectors of {table.shape[1]} numbers{kind}: {table.size * 4 / 1e6:.1f} MB"]


def _kept(tokenizer: Tokenizer) -> list[int]:
    """Ids of the pieces that stand in texts, and of padding and the unknown piece."""
    gone = {*tokenizer.special_ids, *tokenizer.added_ids} - {tokenizer.pad_id, tokenizer.unk_id}
    return [i for i, piece in enumerate(tokenizer.vocabulary) if i not in gone and not UNUSED.fullmatch(piece)]


def bare(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer without special tokens around a text, and of special tokens with padding and the unknown piece alone.

    Raises:
        InputError: a tokenizer of another kind, or with a knowledge graph.
    """
    if tokenizer.kind not in KINDS or tokenizer.knowledge is not None:
        what = "one with a knowledge graph" if tokenizer.knowledge is not None else repr(tokenizer.kind)
        raise InputError(
            f"the tokenizer is {what}, expected one of {', '.join(KINDS)}: no static embedding is made of it"
        )
    pad, unknown = tokenizer.specials["pad"], tokenizer.specials["unk"]
    settings = tokenizer.settings() | {
        "specials": {"pad": pad, "unk": unknown, "sep": pad},
        "template": ["$A", "$A $B"],
    }
    settings.pop("added", None)
    with scratch.folder() as folder:
        tokenizer.save(folder)
        files.write_json(Path(folder) / "tokenizer.json", {"kind": tokenizer.kind, "settings": settings})
        return load_tokenizer(folder)


def _of_pieces(encoder: "SpecModel", tokenizer: Tokenizer, kept: list[int]) -> np.ndarray:
    """The mean over what the encoder gives of each piece between the special tokens: float64 [n, H]."""

    def function(model: "keras.Model", given: Mapping[str, Tensor]) -> Tensor:
        return readout(model(given)["sequence"], given["padding_mask"], "mean")

    rows = [inputs.row(*tokenizer.join([i])[:2]) for i in kept]
    reads, settings = predict.declared(encoder), predict.settings_of(encoder)
    encoded = Encoded(rows, np.arange(len(rows)), tokenizer.pad_id, reads, settings)
    program = predict.graph(encoder, "static", function, settings)
    longest = max(row.length for row in rows)  # which are all as short: nothing is padded
    return run(program, encoded, longest, batch=256).astype("float64")


def principal(vectors: np.ndarray, dims: int) -> tuple[np.ndarray, float]:
    """The first principal components, the largest score of each positive, and their share of the variance.

    Args:
        vectors: float64 [n, H].

    >>> scores, share = principal(np.array([[0.0, 1.0], [2.0, 1.0], [7.0, 1.0]]), 1)
    >>> scores.tolist(), share
    ([[-3.0], [-1.0], [4.0]], 1.0)
    """
    centred = vectors - vectors.mean(0)
    values, components = np.linalg.eigh(centred.T @ centred / (len(vectors) - 1))
    values, components = np.maximum(values[::-1], 0.0), components[:, ::-1][:, :dims]
    scores = centred @ components
    largest = np.abs(scores).argmax(0)
    return scores * np.sign(scores[largest, np.arange(dims)]), float(values[:dims].sum() / max(values.sum(), 1e-30))


def weights(count: int, sif: float) -> np.ndarray:
    """What each piece weighs, the most frequent first: float64 [n]; ones where sif is 0.

    >>> weights(2, 0.5).round(4).tolist()
    [0.4545, 0.5556]
    """
    if not sif:
        return np.ones(count)
    zipf = 1.0 / np.arange(2, count + 2)
    return sif / (sif + zipf / zipf.sum())

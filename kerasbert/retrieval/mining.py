"""Hard negatives: of an index's texts those that are near to an anchor and are not its positives (Karpukhin et al., 2020, section
3.2; the options are those of sentence-transformers' `mine_hard_negatives`, release 6.2).
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerasbert.errors import InputError
from kerasbert.progress import Progress
from kerasbert.retrieval import forms, reranking
from kerasbert.retrieval.index import Index
from kerasbert.retrieval.limits import check
from kerasbert.storage import files
from kerasbert.storage.json_view import Json
from kerasbert.tasks import predict
from kerasbert.tasks.rows import RowText

if TYPE_CHECKING:
    import keras

    from kerasbert.tasks.ensemble import Ensemble

BLOCK = 256  # anchors at once
FILTERED = 10  # candidates of each negative where a margin or a score may leave some out


def mine(
    index: Index | str | os.PathLike,
    pairs: Iterable[RowText],
    *,
    negatives: int = 3,
    range_min: int = 0,
    range_max: int | None = None,
    margin: float | None = None,
    max_score: float | None = None,
    cross_encoder: "str | os.PathLike | keras.Model | None" = None,
) -> tuple[list[Json], list[str]]:
    """Rows of anchor, positive and negatives, as `finetune --task pairs` reads them.

    A candidate is no negative where it is a positive of that anchor in any row, or the anchor itself (Differs: theirs keeps the
    latter). Without `range_max` it is range_min + negatives and the most positives of an anchor, with a margin or a score
    FILTERED times the negatives, as theirs.

    Args:
        index: an Index, or its directory. pairs: (anchor, positive), or (anchor, (positive, ...)) whose further texts, negatives
            that are known, are kept first.
        negatives: int, of a row at most.
        range_min, range_max: int, ranks of the candidates, from 0, among those that are not left out.
        margin: float, how much less than the anchor's least cosine with a positive that with a negative is at least.
        max_score: float, the highest cosine with a negative.
        cross_encoder: directory or loaded model of pairs, whose scores of the positive and of each negative, in this order, are
            `scores` of a row: the labels of the losses margin_mse and kl.

    Returns:
        rows {"anchor", "positive", "negatives": [str, ...]}, perhaps with "scores", in the order of the pairs, without those that
        no negative is found for, and lines that say how many.

    Raises:
        InputError: no pairs, one of another form, options out of range.
    """
    check(negatives, range_min, range_max, margin, max_score)
    judge = None if cross_encoder is None else predict.as_model(cross_encoder)
    if judge is not None:
        predict.check_ours(judge)
        reranking.check(judge, "cross_encoder")
    index = Index(index) if isinstance(index, str | os.PathLike) else index
    split = [_parts(number, pair) for number, pair in enumerate(pairs)]
    if not split:
        raise InputError("there is no pair of an anchor and its positive, expected at least one")
    positives: dict[str, list[str]] = {}
    for anchor, positive, _ in split:
        known = positives.setdefault(anchor, [])
        known += [] if positive in known else [positive]
    most = max(map(len, positives.values()))
    if range_max is None:
        filtered = margin is not None or max_score is not None
        range_max = range_min + negatives * (FILTERED if filtered else 1) + most
    limits = (margin, max_score)
    found: dict[str, list[str]] = {}
    for anchor, near in _candidates(index, positives, range_max + most + 1, limits):
        found[anchor] = near[range_min:range_max][:negatives]
    rows = [
        {"anchor": anchor, "positive": positive, "negatives": list(dict.fromkeys([*own, *found[anchor]]))}
        for anchor, positive, own in split
    ]
    kept = [row for row in rows if row["negatives"]]
    if judge is not None:
        _score(kept, judge)
    fewer = sum(len(found[row["anchor"]]) < negatives for row in kept)
    told = [f"{len(kept)} rows of {sum(len(row['negatives']) for row in kept)} negatives"]
    told += [f"{fewer} of them have less than {negatives}, which the options leave"] if fewer else []
    told += [f"{len(rows) - len(kept)} pairs without a negative are left out"] if len(kept) < len(rows) else []
    return kept, told


def _parts(number: int, pair: RowText) -> tuple[str, str, list[str]]:
    """The anchor, the positive, and negatives that are known."""
    anchor, texts = pair if isinstance(pair, tuple) and len(pair) == 2 else ("", ())
    if not isinstance(anchor, str) or not texts:
        raise InputError(
            f"pair {number} is {pair!r:.80}, expected (anchor, positive) or (anchor, (positive, negative, ...))"
        )
    return (anchor, texts, []) if isinstance(texts, str) else (anchor, texts[0], list(texts[1:]))


def _score(rows: list[Json], model: "keras.Model | Ensemble") -> None:
    """Give the rows the scores of their texts."""
    pairs = [(row["anchor"], text) for row in rows for text in (row["positive"], *row["negatives"])]
    scores, begin = reranking.scored(model, pairs), 0
    for row in rows:
        end = begin + 1 + len(row["negatives"])
        row["scores"], begin = scores[begin:end], end


def _candidates(
    index: Index, positives: dict[str, list[str]], top: int, limits: tuple[float | None, float | None]
) -> Iterator[tuple[str, list[str]]]:
    """Each anchor with the texts that may be its negatives, the nearest first, each once."""
    anchors, (margin, max_score) = list(positives), limits
    with Progress(len(anchors), "anchors") as progress:
        for begin in range(0, len(anchors), BLOCK):
            block = anchors[begin : begin + BLOCK]
            queries = index.encode(block)
            least = _least(index, queries, [positives[anchor] for anchor in block]) if margin is not None else None
            for i, hits in enumerate(index.nearest(queries, top)):
                highest = np.inf if max_score is None else max_score
                if least is not None and margin is not None:
                    highest = min(highest, least[i] - margin)
                left_out = {block[i], *positives[block[i]]}
                texts = (hit.text for hit in hits if hit.score <= highest and hit.text not in left_out)
                yield block[i], list(dict.fromkeys(texts))
            progress.to(begin + len(block))


def _least(index: Index, queries: np.ndarray, positives: list[list[str]]) -> list[float]:
    """The lowest cosine of each query with a positive, as the index has its texts."""
    texts = list(dict.fromkeys(text for each in positives for text in each))
    vectors = forms.unit(predict.encode(index.model, texts, **index.about["settings"]))
    rows = {text: row for row, text in enumerate(texts)}
    return [float(min(vectors[[rows[text] for text in each]] @ query)) for query, each in zip(queries, positives)]


def write(path: str | os.PathLike, rows: Sequence[Json]) -> None:
    """Write rows as json lines, whole or not at all."""
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    with files.new_file(path) as part:
        Path(part).write_text(lines, encoding="utf-8")

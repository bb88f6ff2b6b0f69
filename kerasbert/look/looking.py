"""All numbers of the pictures of a model, and their page."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerasbert import registry, report, run_report
from kerasbert.look import numbers, page
from kerasbert.look.masked import masked
from kerasbert.look.reading import Read, read
from kerasbert.look.surface import surface
from kerasbert.look.table import table
from kerasbert.storage import files, places
from kerasbert.storage.json_view import Json
from kerasbert.tasks import predict
from kerasbert.tasks.adapted_models import encoder_of
from kerasbert.tasks.model import TaskModel

if TYPE_CHECKING:
    import keras


def look(model: "str | os.PathLike | keras.Model", word: str, sentences: Sequence[str], around: bool = False) -> Json:
    """All numbers of the pictures, as json has them.

    Args:
        model: a run's directory or a loaded model. word: of the sentences. sentences: each holds it.
        around: whether the loss around a run's weights is measured too (`surface.surface`); of a directory alone.

    Returns:
        `layers`: of each layer the cosines [n, n] between the word's vectors (the mean of its tokens) in n sentences, their
        map [n, 2] and the share of the variance that it holds; `blocks`: L2 distance and angle (degrees) between a block's
        input and output; `attention`: patterns and entropy [layers, heads] and the head that is drawn, None of a family
        without attention weights of one shape; `masked`: how sure it is of each token (`masked.masked`); `table`: the token
        table (`table.table`); `mix`: gamma and each layer's share, of a task that reads a mix of the layers, else None.

    Raises:
        InputError: see `reading.read`.
    """
    given, model = model, predict.as_model(model)
    encoder = encoder_of(model)
    found = read(model, word, tuple(sentences))
    sentences = [each.sentence for each in found]
    about = {
        "word": word,
        "sentences": sentences,
        "family": registry.family_of(encoder).name,
    }
    about |= {"layers": _layers(found), "blocks": _blocks(found), "attention": _attention(found)}
    ids = [found[0].ids[place] for place in found[0].word]
    directory = given if isinstance(given, str | os.PathLike) else None
    about |= {"masked": masked(model, sentences, directory), "table": table(encoder, ids)}
    about["mix"] = model.told().get("layers") if isinstance(model, TaskModel) else None
    return about | ({"surface": surface(os.fspath(given), model)} if around else {})


def write(model: "keras.Model", about: Json, out: str | os.PathLike) -> Path:
    """The page of what `look` found; an earlier page of ours is replaced.

    Args:
        model: its name, for the title.
    """
    path = Path(out)
    places.check_file(path, True, "look")
    parts = [
        *page.words(about),
        *page.blocks(about),
        *page.mix(about),
        *page.attention(about),
        *page.masked(about),
        *page.table(about),
        *page.surface(about),
    ]
    files.write_atomic(path, report.page(f"A look at {Path(str(model)).name}", parts, run_report.STYLE, "look"))
    return path


def _layers(found: list[Read]) -> list[Json]:
    vectors = np.stack([each.hidden[:, list(each.word)].mean(1) for each in found], 1)  # [L + 1, n, H]
    layers = []
    for number, layer in enumerate(vectors):
        points, share = numbers.plane(layer)
        layers.append(
            {"layer": number, "cosines": numbers.cosines(layer).tolist(), "map": points.tolist(), "share": share}
        )
    return layers


def _blocks(found: list[Read]) -> list[Json]:
    moved = [numbers.steps(each.hidden) for each in found]
    distances, angles = (np.concatenate([each[i] for each in moved], 1).mean(1) for i in (0, 1))
    return [
        {"block": i + 1, "distance": float(distance), "angle": float(angle)}
        for i, (distance, angle) in enumerate(zip(distances, angles))
    ]


def _attention(found: list[Read]) -> Json | None:
    weights = [each.attention for each in found if each.attention is not None]
    if not weights:
        return None
    shares = np.mean([numbers.patterns(each, of.separators) for each, of in zip(weights, found)], 0)
    entropies = np.mean([numbers.entropy(each) for each in weights], 0)
    layer, head = np.unravel_index(entropies.argmin(), entropies.shape)
    drawn = {
        "layer": int(layer) + 1,
        "head": int(head) + 1,
        "entropy": float(entropies.min()),
        "length": len(found[0].pieces),
        "pieces": list(found[0].pieces),
        "weights": weights[0][layer, head].tolist(),
    }
    patterns = {name: share.tolist() for name, share in zip(numbers.PATTERNS, shares)}
    return {"patterns": patterns, "entropy": entropies.tolist(), "drawn": drawn}

"""The loss around a fine-tuned model (Hao et al., 2019, section 3; directions as of Li et al., 2018, section 4)."""

from typing import TYPE_CHECKING

import numpy as np

from kerasbert import checkpoints
from kerasbert.errors import InputError
from kerasbert.layers import naming
from kerasbert.look import early
from kerasbert.progress import Progress
from kerasbert.storage.json_view import Json
from kerasbert.tasks import predict
from kerasbert.training import runs, splits

if TYPE_CHECKING:
    import keras


POINTS, ROWS = 9, 128  # of a side of the square; rows that each loss is of
LOSSES = ("loss", "mean_squared_error")  # that `evaluate` tells


def surface(run: str, model: "keras.Model") -> Json:
    """The loss on the run's dev rows, in a square around its weights.

    Along x lies the way from the fine-tuned encoder (0) to the one that the run started from (1), where that can still be read;
    else a random direction like y. A random direction has in each filter (a row of a table, a column of a kernel) the length of
    the model's own, 0 elsewhere; beside the way it has the way's length. Heads stay.

    Args:
        run: its directory. model: the same, loaded.

    Returns:
        `rows` (in words, at most ROWS), `centre`: the loss as `evaluate` has it of these rows, `start`: whether x
        leads there, `at`: POINTS places from -1 to 1, `losses` [y][x].

    Raises:
        InputError: no fine-tuned run, rows that are gone, a kind without a loss.
    """
    early.check_surface(run)
    rows, told = splits.measured(model.task, run=run)
    if len(rows.texts) > ROWS:
        rows, told = rows.take(np.arange(ROWS)), f"the first {ROWS} of {told}"
    length = predict.longest(model, None)
    encoded = predict.encoded_rows(model, rows.texts, None, {"language": None}, kind=model.task.how)

    def loss() -> float:
        outputs = predict.outputs_of(model, encoded, length)
        metrics = model.task.measured(outputs, rows.targets, encoded)
        found = [float(metrics[name]) for name in LOSSES if name in metrics]
        if not found:
            raise InputError(f"evaluate tells no loss of a {model.task.kind}: there is no surface of it")
        return found[0]

    centre, weights = loss(), naming.names(model.encoder)
    own = naming.values(model.encoder)
    way = _way(run, own)
    x, y = way or _random(own, 0), _random(own, 1)
    if way is not None:
        y = _beside(y, way)
    at = np.linspace(-1, 1, POINTS)
    losses = np.zeros((POINTS, POINTS))
    with Progress(POINTS**2, "points") as progress:
        try:
            for number, (i, j) in enumerate(np.ndindex(POINTS, POINTS)):
                for name, weight in weights.items():
                    weight.assign(own[name] + at[j] * x[name] + at[i] * y[name])
                losses[i, j] = loss()
                progress.to(number + 1)
        finally:
            for name, weight in weights.items():
                weight.assign(own[name])
    return {
        "rows": told,
        "centre": centre,
        "start": way is not None,
        "at": at.tolist(),
        "losses": losses.tolist(),
    }


def _way(run: str, own: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    """From the weights to those that the run started from; None where these cannot be read or are of another shape."""
    start = (runs.description_of(run) or {}).get("start")
    try:
        encoder, _ = checkpoints.load_encoder(start) if start else (None, None)
    except InputError:
        return None
    found = {} if encoder is None else naming.values(encoder)
    if any(name not in found or found[name].shape != value.shape for name, value in own.items()):
        return None
    return {name: found[name] - value for name, value in own.items()}


def _random(own: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """A direction whose filters have the lengths of the model's."""
    draw, found = np.random.default_rng(seed), {}
    for name, value in own.items():
        direction = draw.standard_normal(value.shape).astype("float32") if value.ndim > 1 else np.zeros_like(value)
        axis = -1 if name.endswith("table") else 0
        lengths = [np.linalg.norm(each, axis=axis, keepdims=True) for each in (value, direction)]
        found[name] = direction * lengths[0] / np.maximum(lengths[1], 1e-12) if value.ndim > 1 else direction
    return found


def _beside(direction: dict[str, np.ndarray], way: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The part of a direction that is at right angles to the way, as long as the way."""

    def dot(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
        return float(sum(np.vdot(one[name].astype("float64"), other[name].astype("float64")) for name in one))

    length = dot(way, way)
    share = dot(direction, way) / length if length else 0.0
    rest = {name: value - share * way[name] for name, value in direction.items()}
    scale = (length / max(dot(rest, rest), 1e-24)) ** 0.5
    return {name: value * np.float32(scale) for name, value in rest.items()}

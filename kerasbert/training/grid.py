"""A search over settings: a fine-tuning for every combination and seed, judged by the median over the seeds."""

import itertools
import os
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasbert import progress
from kerasbert.checkpoints.json_files import read_json
from kerasbert.errors import InputError, NonFinite, near
from kerasbert.lazy import later
from kerasbert.options import checked, options, types_of
from kerasbert.storage import files, places
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.tasks import tables
from kerasbert.tasks.task import Task
from kerasbert.training.config import FinetuneConfig
from kerasbert.value_types import check_whole

if TYPE_CHECKING:
    import keras

    from kerasbert.tasks.tables import Data

finetune = later("kerasbert.training.finetune", "finetune")

FUNCTIONS = {
    "median": statistics.median,
    "least": min,
    "most": max,
    "mean": statistics.fmean,
    "standard_deviation": lambda values: statistics.stdev(values) if len(values) > 1 else 0.0,
}
OWN = ("out", "overwrite", "quiet", "strategy", "peak", "seed")  # of the whole search; the seeds are `seeds`


@checked
def grid(
    model: "str | os.PathLike | keras.Model",
    task: str | Task,
    data: "Data",
    *,
    grid: Mapping[str, Sequence[object]],
    out: str | os.PathLike,
    seeds: int = 1,
    **settings: Any,
) -> Json:
    """Fine-tune with every combination of some settings, each with several seeds; the same call goes on where it was killed.

    Differences below the spread over the seeds say nothing (Dodge et al., 2020, section 4): take five seeds.

    Args:
        model, task, data: as of `finetune`.
        grid: name of an option of `finetune` -> its values, such as {"learning_rate": [5e-5, 3e-5], "epochs": [2, 3]}.
        out: the folder of the runs, `learning_rate=5e-05,epochs=2,seed=0` and so on, and of grid.json.
        seeds: int, runs of each combination: `seed` (0 by default) and those after it.
        settings: the other options of `finetune`.

    Returns:
        what grid.json holds: {"task", "metric", "runs": [{"run", "settings", "seed", "metrics"}], "settings": [{"settings",
        "runs", "median", "least", "most", "mean", "standard_deviation": {metric: value over the seeds}}], "best": the run
        with the best metric among those of the settings with the best median}. Runs that are not finite have an "error" in
        the place of metrics, and their settings are not chosen.

    Raises:
        InputError: no such option, no values, values of another type; as of `finetune`; no settings whose runs are finite.
    """
    check_grid(grid, settings)
    check_whole("seeds", seeds)
    read = [each for each in (model, data) if isinstance(each, str | os.PathLike)]
    places.check_place(out, read)
    places.check_file(Path(out) / "grid.json", True, "grid", read)
    data = tables.kept(data)
    out, first, quiet = Path(out), settings.pop("seed", 0), settings.get("quiet", False)
    every = [dict(zip(grid, values)) for values in itertools.product(*grid.values())]
    runs: list[Json] = []
    trained = None
    for chosen, seed in itertools.product(every, range(first, first + seeds)):
        name = ",".join(f"{key}={value}" for key, value in (chosen | {"seed": seed}).items())
        run: Json = {"run": re.sub(r"[^\w.,=+-]", "_", name), "settings": chosen, "seed": seed}
        progress.say(f"run {len(runs) + 1} of {len(every) * seeds}: {name}", quiet=quiet)
        try:
            trained = finetune(model, task, data, out=out / run["run"], **{**settings, **chosen, "seed": seed})
            run["metrics"] = read_json(out / run["run"] / "dev.json")["metrics"]
        except NonFinite as error:
            progress.say(str(error), quiet=quiet)
            run["error"] = str(error)
        runs.append(run)
    if trained is None:
        raise InputError(f"no run of {out} is finite: take smaller learning rates")
    found = summary(runs, every, trained.task)
    files.write_json(out / "grid.json", found)
    return found


def summary(runs: Sequence[JsonMap], every: Sequence[JsonMap], task: Task) -> Json:
    """What grid.json holds of finished runs.

    Raises:
        InputError: every combination has a run that is not finite.
    """
    rows, best, metric = [], None, task.metric
    for chosen in every:
        own = [run for run in runs if run["settings"] == chosen]
        row: Json = {"settings": chosen, "runs": [run["run"] for run in own]}
        rows.append(row)
        if any("metrics" not in run for run in own):
            continue
        for name, function in FUNCTIONS.items():
            row[name] = {key: function([run["metrics"][key] for run in own]) for key in own[0]["metrics"]}
        if best is None or task.how.better(metric, row["median"][metric], best["median"][metric]):
            best = row
    if best is None:
        raise InputError("every combination has a run that is not finite: take smaller learning rates")
    winner: JsonMap | None = None
    for run in runs:
        if run["settings"] == best["settings"] and (
            winner is None or task.how.better(metric, run["metrics"][metric], winner["metrics"][metric])
        ):
            winner = run
    return {"task": task.name, "metric": metric, "runs": list(runs), "settings": rows, "best": winner}


def check_grid(grid: Mapping[str, Sequence[object]], settings: Mapping[str, object]) -> None:
    """Refuse names, lists and values that cannot be searched over.

    Args:
        settings: the other options, which must say nothing of the same names.
    """
    if not grid:
        raise InputError("grid is empty, expected settings and their values, such as learning_rate=5e-5,3e-5")
    known = searchable()
    for name, values in grid.items():
        if name not in known:
            raise InputError(f"grid: no option {name!r}. {near(name, known)}")
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise InputError(f"grid: {name} must be a list of values, such as [1, 2]. Received: {values!r}")
        if len(set(map(str, values))) < len(values):
            raise InputError(f"grid: {name} has a value twice: {', '.join(map(str, values))}")
        if name in settings:
            raise InputError(f"{name} is given and in the grid too, expected one of them")
        for value in values:
            kinds = (*known[name], int) if float in known[name] else known[name]
            if not isinstance(value, kinds) or isinstance(value, bool):
                wanted = " or ".join(kind.__name__ for kind in known[name])
                raise InputError(f"grid: {name} takes {wanted}. Received: {value!r}")


def searchable() -> dict[str, tuple[type, ...]]:
    """Options of `finetune` that are one number or name -> their types."""
    plain = {name: types_of(field) for name, field in options(FinetuneConfig).items() if name not in OWN}
    plain = {name: tuple(kind for kind in kinds if kind in (int, float, str)) for name, kinds in plain.items()}
    return {name: kinds for name, kinds in plain.items() if kinds}

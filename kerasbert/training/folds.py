"""k-fold cross-validation: a run for each fold of the rows, judged by it."""

import os
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasbert import progress, registry
from kerasbert.checkpoints.json_files import read_json
from kerasbert.data.dialects import default_reading
from kerasbert.errors import InputError
from kerasbert.lazy import later
from kerasbert.options import checked
from kerasbert.storage import files, places
from kerasbert.storage.json_view import Json
from kerasbert.tasks.tables import Memory
from kerasbert.tasks.task import Rows, Task, find_task, fold, without
from kerasbert.training.early import labels_of, parted
from kerasbert.training.splits import in_memory, split
from kerasbert.value_types import check_whole

if TYPE_CHECKING:
    import keras
    import numpy as np

    from kerasbert.tasks.tables import Data

finetune = later("kerasbert.training.finetune", "finetune")


def _parts(rows: Rows, held: "np.ndarray", number: int) -> dict[str, Memory]:
    """The rows of one fold and the others."""
    others = rows.take(without(len(rows.texts), held))
    return {"train": in_memory(others, "the other folds"), "dev": in_memory(rows.take(held), f"fold {number}")}


@checked
def cross_validate(
    model: "str | os.PathLike | keras.Model",
    task: str | Task,
    data: "Data",
    *,
    folds: int,
    out: str | os.PathLike,
    **settings: Any,
) -> Json:
    """Fine-tune once for each fold, on the others' rows; the same call goes on where it was killed.

    Which rows are a fold depends on the data alone, as what `finetune` holds out: every label has its share, equal rows
    stay together. The fold chooses its run's best weights too, by which its metrics are a little better than new rows'.

    Args:
        model, task, data: as of `finetune`; of data with dev rows the training rows count.
        folds: int, at least 2. out: the folder of the runs, `fold_1` and so on, and of folds.json.
        settings: the other options of `finetune`.

    Returns:
        what folds.json holds: {"task", "rows", "folds": [{"run", "rows", "metrics"}], "mean", "median",
        "standard_deviation": {metric: value over the folds}}.

    Raises:
        InputError: as of `finetune`; too few rows.
    """
    check_whole("folds", folds, 2)
    read = [each for each in (model, data) if isinstance(each, str | os.PathLike)]
    places.check_place(out, read)
    places.check_file(Path(out) / "folds.json", True, "folds", read)
    columns = {name: settings.get(f"{name}_column") for name in ("text", "text_b", "label")}
    columns["labels"] = labels_of(settings.get("label_names"))
    known = find_task(task, **columns, metric=registry.metric_name(settings.get("metric")))
    told = {name: settings.pop(name, None) for name in ("encoding", "delimiter", "columns", "skip_unlabelled")}
    with default_reading(told):
        known = split(known.optioned(parted(settings.get("changes"))[1]), data, dev=False)
    if known.train is None:
        raise InputError("data have no training rows to make folds of: give a file, or a folder with train.tsv")
    out, rows, quiet, found = Path(out), known.train, settings.get("quiet", False), []
    numbers = [fold(rows, i, folds, known.task.how.group) for i in range(min(folds, len(rows.texts) + 1))]
    if not all(map(len, numbers)):
        raise InputError(f"{len(rows.texts)} rows are too few for {folds} folds, expected a different one for each")
    for i, held in enumerate(numbers, 1):
        progress.say(f"fold {i} of {folds}", quiet=quiet)
        parts = _parts(rows, held, i)
        run = out / f"fold_{i}"
        finetune(model, known.task, parts, out=run, **settings)
        metrics = read_json(run / "dev.json")["metrics"]
        found.append({"run": run.name, "rows": len(held), "metrics": metrics})
    whole = {"task": known.task.name, "rows": len(rows.texts), "folds": found}
    spread = {"mean": statistics.fmean, "median": statistics.median, "standard_deviation": statistics.stdev}
    for name, function in spread.items():
        whole[name] = {metric: function([each["metrics"][metric] for each in found]) for metric in found[0]["metrics"]}
    files.write_json(out / "folds.json", whole)
    return whole

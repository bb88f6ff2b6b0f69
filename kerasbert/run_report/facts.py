"""What a run's directory holds, read for its report: an older run, or one of pretraining, holds less."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from kerasbert import report
from kerasbert.checkpoints.json_files import read_json
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json, JsonMap

LEDGER = "ledger.json"


@dataclasses.dataclass(frozen=True)
class Facts:
    """The files of a run.

    Args:
        place: its directory. run: run.json. model: model.json. dev: dev.json. Each is {} where there is none.
        curves: name -> points of metrics.jsonl. ledger: rows of a compression's ledger.json.
    """

    place: Path
    run: JsonMap
    model: JsonMap
    dev: JsonMap
    curves: Mapping[str, report.Curve]
    ledger: Sequence[JsonMap] = ()

    @property
    def settings(self) -> JsonMap:
        """Of run.json."""
        return self.run.get("settings", {})

    @property
    def task(self) -> JsonMap:
        """The task as json; {} of a pretraining and of an encoder."""
        found = self.model.get("task") or self.settings.get("task") or {}
        return found if isinstance(found, dict) else {}

    @property
    def labels(self) -> list[str]:
        """Names of the labels in their order."""
        return [*map(str, self.model.get("labels") or dict(self.task.get("labels") or {}).values())]

    @property
    def metric(self) -> str:
        """Name of the metric that the best weights were chosen by; "" of a pretraining."""
        name = str(self.task.get("metric", ""))
        return name if name in self.dev.get("metrics", {}) else ""

    @property
    def base(self) -> str:
        """What was fine-tuned: the name that was given, of a folder its last part; and the model's own name."""
        start = str(self.run.get("start") or "")
        start = os.path.basename(start) if os.path.isabs(start) else start
        name = str(self.settings.get("model") or self.model.get("name") or "")
        return f"{start} ({name})" if start and name and start != name else start or name

    @property
    def data(self) -> dict[str, str]:
        """Split -> name of its file, without the folder."""
        return {str(split): os.path.basename(str(path)) for split, path in dict(self.run.get("data") or {}).items()}


def read(place: str | os.PathLike, ledger: str | os.PathLike | None = None) -> Facts:
    """The facts of a run.

    Args:
        place: directory of a run, or of a plan of compression.
        ledger: a ledger.json, or the folder of a plan that holds one; by default the run's own or that of its plan.

    Raises:
        InputError: no run there, or a damaged file.
    """
    place = Path(place)
    content = {name: _json(place / f"{name}.json") for name in ("run", "model", "dev")}
    rows = _ledger(place, ledger)
    if not (rows or content["dev"]) or (place / "metrics.jsonl").exists():
        curves = report.curves(place)
    else:  # of one task of several, of a plan
        curves = {}
    if (place / "run.json").is_file() and not isinstance(content["run"].get("settings"), dict):
        raise InputError(f"{place / 'run.json'} has no settings: it is damaged")
    return Facts(place, content["run"], content["model"], content["dev"], curves, rows)


def _json(path: Path) -> Json:
    return read_json(path) if path.is_file() else {}


def _ledger(place: Path, asked: str | os.PathLike | None) -> list[JsonMap]:
    """Rows of the ledger that was asked for, else of the run's or of the plan that it is a stage of."""
    if asked is not None:
        path = Path(asked) / LEDGER if os.path.isdir(asked) else Path(asked)
        if not path.is_file():
            raise InputError(f"no ledger {path}: `kerasbert-mobile ledger` and plans of `compress` write ledger.json")
    else:
        beside = place.resolve().parent / LEDGER
        path = place / LEDGER if (place / LEDGER).is_file() else beside
        if not path.is_file() or (path == beside and not beside.with_name("plan.json").is_file()):
            return []
    rows = read_json(path, list)
    if not rows or not all(isinstance(row, dict) and len(row) > 1 for row in rows):
        raise InputError(f"{path} holds no rows of a ledger: it is damaged")
    return rows

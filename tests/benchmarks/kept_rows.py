"""Measurements kept as lines of json, so that a benchmark that was stopped goes on with the first one that is missing."""

import datetime
import json
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def measured(
    path: Path, arms: Iterable[dict[str, Any]], measure: Callable[..., dict[str, Any]]
) -> list[dict[str, Any]]:
    """A row for each arm: what the file has of it, or else what `measure(**arm)` gives, with its CPU-seconds and date."""
    rows = _rows(path)
    found = []
    for arm in arms:
        row = next((row for row in rows if arm.items() <= row.items()), None)
        if row is None:
            began = time.process_time()
            values = measure(**arm)
            times = {"cpu": round(time.process_time() - began, 1), "date": str(datetime.date.today())}
            row = json.loads(json.dumps(arm | values | times))
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
        found.append(row)
    return found


def kept(path: Path, arms: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of `measured` that the file has."""
    rows = _rows(path)
    return [row for arm in arms for row in rows if arm.items() <= row.items()]


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def spread(values: list[float]) -> str:
    """The mean and the standard deviation between runs, such as `.8203 +- .0012`."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.4f} +- {deviation:.4f}".replace("0.", ".")

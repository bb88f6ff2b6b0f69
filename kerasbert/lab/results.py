"""results.jsonl -> what is told of an experiment: figures by arm, and verdicts."""

import statistics
from collections.abc import Mapping, Sequence

from kerasbert.lab import intervals
from kerasbert.lab.recipes import Experiment
from kerasbert.storage.json_view import Json, JsonMap

Lines = Sequence[JsonMap]


def summary(experiment: Experiment, lines: Lines, seeds: int, factor: float = 1.0, text: str | None = None) -> Json:
    """What results.json holds: the claim, a row for each arm and for each comparison, the verdict on the whole.

    Each comparison is tested at 95% divided over all of them (Bonferroni). The whole is seen where every comparison is.

    Args:
        lines: of results.jsonl: {"arm", "seed", "figure", "parameters", "seconds"}, or "error" where a run was not finite.
        seeds, factor, text: of the plan.
    """
    level = 1 - (1 - intervals.LEVEL) / len(experiment.compare)
    compared = [_compared(each, experiment, lines, seeds, level) for each in experiment.compare]
    found = {each["verdict"] for each in compared}
    whole = found.pop() if len(found) == 1 else "in part" if "seen" in found else "not seen"
    return {
        "experiment": experiment.name,
        **{name: getattr(experiment, name) for name in ("title", "claim", "source", "needs", "note")},
        "figure": dict(experiment.figure),
        "seeds": seeds,
        "factor": factor,
        "text": text,
        "arms": [_arm(name, lines) for name in experiment.arms],
        "comparisons": compared,
        "verdict": whole,
    }


def _parameters(lines: Lines) -> dict[str, int]:
    """Arm -> weights of its encoder, of any of its seeds: one that was not finite has none."""
    return {line["arm"]: line["parameters"] for line in lines if line.get("parameters") is not None}


def _arm(name: str, lines: Lines) -> Json:
    own = [line for line in lines if line["arm"] == name]
    values = [line["figure"] for line in own if line.get("figure") is not None]
    row = {
        "arm": name,
        "figures": {str(line["seed"]): line.get("figure") for line in own},
        "parameters": _parameters(own).get(name),
        "seconds": statistics.fmean(line["seconds"] for line in own) if own else None,
        "errors": [line["error"] for line in own if "error" in line],
    }
    if len(values) > 1:
        row |= dict(zip(("mean", "low", "high"), intervals.interval(values)))
    return row


def _compared(each: JsonMap, experiment: Experiment, lines: Lines, seeds: int, level: float) -> Json:
    """A comparison: its value of every seed, how many agree with the claim, their mean and interval, the verdict.

    There is no verdict where a seed lacks a figure.
    """
    figures: dict[tuple[str, int], float | None] = {(line["arm"], line["seed"]): line.get("figure") for line in lines}
    parameters = _parameters(lines)
    arms = each.get("slope") or (each["better"], each["worse"])
    row = {"told": _told(each), "level": level, "verdict": "not seen", "by_seed": [], "missing": []}
    for seed in range(seeds):
        values = [figure for arm in arms if (figure := figures.get((arm, seed))) is not None]
        if len(values) < len(arms):
            row["missing"].append(seed)
        elif "slope" in each:
            row["by_seed"].append(intervals.exponent([parameters[arm] for arm in arms], values))
        else:
            row["by_seed"].append(values[0] - values[1])
    sign = 1 if experiment.figure["higher"] else -1
    row["agree"] = sum(sign * value > 0 for value in row["by_seed"])
    if len(row["by_seed"]) > 1:
        row |= dict(zip(("mean", "low", "high"), intervals.interval(row["by_seed"], level)))
        if not row["missing"]:
            row["verdict"] = intervals.verdict([sign * value for value in row["by_seed"]], level)
    return row


def _told(each: Mapping[str, object]) -> str:
    if "slope" in each:
        return "exponent of the parameters"
    return f"{each['better']} minus {each['worse']}"

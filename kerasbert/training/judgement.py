"""What a fine-tuning leaves of its dev rows for a report: intervals, the worst answers, lengths; and whether it has learnt.

It holds numbers of rows, never their texts: a report reads these again where they lie (`splits.measured`). Answers are labels,
numbers and places in the text, and of a generation what the model wrote.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kerasbert.answers import Kind
from kerasbert.inputs import Tensor
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.tasks.batches import Encoded
from kerasbert.tasks.judging import Judged, Numbers
from kerasbert.tasks.task import Task

RESAMPLES, OF_MANY = 500, 200  # samples of the inputs for an interval; of more than MANY inputs
MANY = 5000
FEWEST = 10  # inputs of which an interval says something
PATIENCE = 60.0  # seconds after which no interval is computed: the metrics of a plug-in may be slow
LISTED = 20  # worst answers
LONGEST, MOST = 2000, 200  # characters and entries of an answer that is kept
UPDATES = 20  # in fewer a new head learns little


def judgement(
    task: Task, outputs: Tensor, targets: Sequence[object] | np.ndarray, encoded: Encoded, longest: int
) -> Json:
    """What dev.json holds beside the metrics.

    Args:
        task: with the options that the dev rows chose. outputs: of the rows. targets: of the inputs.
        longest: int, tokens of a row.

    Returns:
        {"rows": inputs, "truncated", "length", "lengths": quantiles of the rows' tokens, "resamples", "intervals":
        {metric: [low, high]} of 95%, "baseline": {metric: value of a constant answer}, "collapsed": str, "wrong":
        {"count": None where the kind cannot tell, "graded", "listed": [{"row", "answer"}]}, "picture"}.
    """
    judged = task.how.judged(task, outputs, targets, encoded)
    found, resamples = intervals(judged.sampled, encoded.texts)
    return {
        "rows": encoded.texts,
        "truncated": len(encoded.truncated),
        "length": longest,
        "lengths": encoded.length_quantiles(),
        "resamples": resamples,
        "intervals": found,
        "baseline": task.how.baseline(task, targets, encoded),
        "collapsed": task.how.collapsed(task, outputs, targets),
        "wrong": _wrong(judged, task.how.answers, encoded.texts),
        "picture": dict(judged.picture),
    }


def intervals(
    sampled: Callable[[Numbers], Mapping[str, float]], count: int, seed: int = 0
) -> tuple[dict[str, list[float]], int]:
    """Intervals of 95% by the percentile bootstrap (Efron, 1979), and of how many samples; none of fewer than FEWEST inputs.

    Inputs are drawn with repetition, as many as there are: rows of one document, or of one model's seed, differ by more.

    >>> intervals(lambda numbers: {"mean": float(np.mean(np.asarray(numbers) % 2))}, 100)[0]
    {'mean': [0.40475, 0.6]}
    """
    resamples = RESAMPLES if count <= MANY else OF_MANY
    if count < FEWEST:
        return {}, 0
    generator, begun, values = np.random.default_rng(seed), time.monotonic(), {}
    for _ in range(resamples):
        for name, value in sampled(generator.integers(0, count, count)).items():
            values.setdefault(name, []).append(value)
        if time.monotonic() - begun > PATIENCE:
            return {}, 0
    whole = {name: np.quantile(each, (0.025, 0.975)) for name, each in values.items() if np.isfinite(each).all()}
    return {name: [float(f"{value:.6g}") for value in each] for name, each in whole.items()}, resamples


def _wrong(judged: Judged, kind: Kind, count: int) -> Json:
    """The LISTED worst answers, worst first; of a kind that cannot tell as many answers evenly through the rows."""
    if judged.errors is None:
        chosen, wrong = np.unique(np.linspace(0, count - 1, min(count, LISTED)).astype(int)), None
        if type(kind).answer is not Kind.answer:  # it runs the model more than once
            chosen = chosen[:0]
    else:
        order = np.argsort(-judged.errors, kind="stable")[:LISTED]
        chosen, wrong = order[judged.errors[order] > 0], int((judged.errors > 0).sum())
    listed = [{"row": int(number), "answer": _bounded(judged.answer(int(number)))} for number in chosen]
    return {"count": wrong, "graded": judged.graded, "listed": listed}


def _bounded(answer: object) -> object:
    """An answer that fits into a small file."""
    if isinstance(answer, str):
        return answer if len(answer) <= LONGEST else answer[: LONGEST - 1] + "\u2026"
    return answer[:MOST] if isinstance(answer, list) else answer


def safely(task: Task, *known: Any) -> tuple[Json, str]:
    """`judgement`, and why there is none: a plug-in's mistake there loses no training."""
    try:
        found = judgement(task, *known)
        json.dumps(found, allow_nan=False)
        return found, ""
    except Exception as error:
        line = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return {}, f"the report lacks intervals and answers: judging the kind {task.kind!r} raised {line:.200}"


def too_little(task: Task, dev: JsonMap, settings: JsonMap) -> list[str]:
    """What is said of a run that has not learnt the task, and what to change; nothing of another.

    It has learnt where the interval of any metric lies on the better side of what a constant answer reaches: on unbalanced
    rows accuracy alone tells nothing, F1 or Matthews' correlation does. Few updates are told whatever the metrics say.

    Args:
        dev: what dev.json holds. settings: of run.json: steps, batch, learning_rate.
    """
    better, steps, unsure = task.how.better, settings.get("steps", 0), False
    baseline = {name: value for name, value in dev.get("baseline", {}).items() if name in dev.get("intervals", {})}
    beyond = [
        name
        for name, value in baseline.items()
        if better(name, dev["intervals"][name][0 if better(name, 1.0, 0.0) else 1], value)
    ]
    lines = [dev["collapsed"]] if dev.get("collapsed") else []
    made = "1 update was" if steps == 1 else f"{steps} updates were"
    if baseline and not beyond:
        name = task.metric if task.metric in baseline else next(iter(baseline))
        low, high = dev["intervals"][name]
        unsure = better(name, dev["metrics"][name], baseline[name]) and not lines
        lines.append(
            f"{name} is {dev['metrics'][name]:.4g} (95% interval {low:.4g} to {high:.4g}), and a constant answer reaches "
            f"{baseline[name]:.4g}: no metric is better than that beyond noise"
        )
    if not settings.get("keep_head") and steps < UPDATES:
        unsure = unsure or bool(beyond)
        lines.append(f"only {made} made, in which a new head learns little")
    if not lines:
        return []
    rate, batch = settings.get("learning_rate", 0.0), settings.get("batch", 0)
    advice = [f"more --epochs ({made} made)", f"another --learning-rate ({rate:g} now)"]
    advice += [f"a smaller --batch ({batch} now), which makes more updates of an epoch"] * (batch > 8)
    return [f"the run {'may have' if unsure else 'has'} learnt too little: {'; '.join(lines)}. Try {', '.join(advice)}"]

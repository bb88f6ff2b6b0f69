"""The judge of a file: what it is worth beside its model, on which rows, and whether that is enough.

A file is refused where one of these says so:
- *metric*, on labelled rows: the 95% interval of its change lies wholly below 0 (a fall of less than NONE is none);
- *agreement*: too few answers are the model's, those aside whose scores tie within the file's own rounding;
- *fidelity*: the file keeps too little of what the model's scores vary from text to text. It sees a bad file of a model that
  gives one label to every text, and a bad file on few rows, where no fall of a metric can be told from chance.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, cast

import numpy as np

from kerasbert import answers
from kerasbert.answers import Kind, nearness
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.tasks.base import TaskKind
from kerasbert.tasks.batches import Encoded
from kerasbert.tasks.task import Task
from ..model_and_texts import MADE, VOUCHING, Targets
from ..quantize.schemes import SCHEMES
from .comparison import Outputs, losses

Value = TypeVar("Value")
GROUPS = 20  # stretches of rows that are left out in turn
NONE = 0.001  # a fall that is none: a tenth of a point, of an error a hundredth of it
OFFSET = 0.3  # most standard deviations by which all scores may be off together
MADE_UP = (
    2.5  # times the noise on texts made of the vocabulary, whose scores lie nearer together than those of real ones
)


def compare(
    expected: Outputs,
    received: Outputs,
    how: TaskKind,
    targets: Targets | None,
    task: Task | None = None,
    read: tuple[Encoded | None, Encoded | None] = (None, None),
    said: Outputs | None = None,
    ties: bool = False,
) -> Json:
    """What a file says beside what the Keras model says, of the same rows.

    Args:
        how: of the model. A token that the file loses counts as one that it answers otherwise.
        targets: of each text, or None.
        task: theirs.
        read: the rows as the model and as the file's reader read them; a kind of one row a text does without.
        said: what the Keras model says of the rows as that reader reads them; by default `expected`.
        ties: bool, whether answers whose scores tie within the file's rounding are the same.

    Returns:
        agreement, fidelity and offset (`answers.nearness`), max_difference and mean_difference of the outputs; with targets
        metrics, name -> {"keras", "tflite"}: accuracy (also by itself) and the task's own, or all of those without, and change:
        {"metric", "by", "low", "high"}, of the task's own metric with its 95% interval.
    """
    difference, kind, of = how.answers.differences(expected, received), how.answers, read[0]
    packed = {} if of is None else {"owners": of.owners, "rows": of.rows}
    result: Json = {"agreement": kind.agreement(expected, _whole(kind, expected, received), **packed, ties=ties)}
    same = expected if said is None else said
    fed = {} if read[1] is None else {"owners": read[1].owners, "rows": read[1].rows}
    signals = [kind.signal(each, **(packed if said is None else fed)) for each in (same, _whole(kind, same, received))]
    result |= {"fidelity": nearness.fidelity(*signals), "offset": nearness.offset(*signals)}
    result |= {"max_difference": float(difference.max()), "mean_difference": float(difference.mean())}
    if targets is None:
        return result
    theirs, both = cast(Task, task), {"keras": (expected, read[0]), "tflite": (received, read[1])}
    sides = {who: (how.from_exported(rows), of) for who, (rows, of) in both.items()}
    found = {who: how.metrics(theirs, rows, targets, of) for who, (rows, of) in sides.items()}
    names = [name for name in how.metrics_known if name in found["keras"]]
    if "accuracy" in names:
        names = ["accuracy", *(name for name in names if name == getattr(task, "metric", "") != "accuracy")]
    told = {name: {who: float(values[name]) for who, values in found.items()} for name in names}
    result |= {"metrics": told} | {name: told[name] for name in names if name == "accuracy"}
    return result | ({"change": change(theirs, targets, *sides.values())} if task is not None else {})


def _whole(kind: Kind, expected: Outputs, received: Outputs) -> Outputs:
    """The file's rows, as long as the model's: a lost token has the model's numbers in the opposite order."""
    if not kind.per_token:
        return received
    lost = [a[len(b) :] for a, b in zip(expected, received)]
    turned = [a.max(-1, keepdims=True) + a.min(-1, keepdims=True) - a if len(a) else a for a in lost]
    return [np.concatenate([b[: len(a)], more]) for a, b, more in zip(expected, received, turned)]


Side = tuple[Outputs, Encoded | None]  # outputs as metrics take them, and the rows that they are of


def change(task: Task, targets: Targets, model: Side, file: Side) -> Json:
    """By how much the task's metric differs between two sets of answers to the same texts, with its 95% interval."""

    def measured(side: Side, texts: np.ndarray) -> float:
        outputs, encoded = side
        if encoded is not None:
            rows = [row for i, at in enumerate(encoded.of()) if chosen[i] for row in range(at.start, at.stop)]
            encoded = encoded.take(texts.tolist())
        else:
            rows = texts.tolist()
        return task.measured(_some(outputs, rows), _some(targets, texts.tolist()), encoded)[task.metric]

    chosen = np.ones(len(targets), bool)

    def by(left_out: np.ndarray) -> float:
        chosen[:] = True
        chosen[left_out] = False
        texts = np.flatnonzero(chosen)
        return float(measured(file, texts) - measured(model, texts))

    whole = by(np.zeros(0, int))
    low, high = jackknife(whole, by, len(targets))
    return {"metric": task.metric, "by": whole, "low": low, "high": high}


def jackknife(whole: float, without: Callable[[np.ndarray], float], count: int) -> tuple[float, float]:
    """The 95% interval of a number of rows, by what it is without each of GROUPS stretches of them (Tukey, 1958).

    Args:
        whole: of all rows. without: numbers of rows -> what it is without them. count: int, of rows.

    >>> x = np.arange(40.0)
    >>> low, high = jackknife(x.mean(), lambda out: np.delete(x, out).mean(), 40)
    >>> round(low, 1), round(high, 1)  # neighbouring rows are alike: wider than 19.5 -+ 3.7
    (14.0, 25.0)
    """
    groups = np.array_split(np.arange(count), min(GROUPS, count))
    if len(groups) < 2:
        return -np.inf, np.inf
    values = np.array([without(group) for group in groups])
    error = np.sqrt((len(groups) - 1) * np.square(values - values.mean()).mean())
    freedom, z = len(groups) - 1, 1.959964
    quantile = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)  # Student's t
    return float(whole - quantile * error), float(whole + quantile * error)


def _some(values: np.ndarray | Sequence[Value], numbers: list[int]) -> np.ndarray | list[Value]:
    return values[numbers] if isinstance(values, np.ndarray) else [values[i] for i in numbers]


def falls(report: JsonMap, task: Task) -> bool:
    """Whether the task's metric falls by more than none, and more than chance."""
    found = report["change"]
    better = task.how.better(found["metric"], 1.0, 0.0)
    highest = found["high"] if better else -found["low"]
    fall = -found["by"] if better else found["by"]
    values = report["metrics"].get(found["metric"], {"keras": 0.0})
    least = NONE if better else 10 * NONE * abs(values["keras"])
    return highest < 0 and fall > least


def check(report: JsonMap, task: Task | None, min_agreement: float | None, max_drop: float | None) -> None:
    """Refuse a file that is not worth its model.

    Args:
        report: of `compress`.
        min_agreement: least agreement, by default what its quantization is expected to keep; fidelity then need not be more.
            0: nothing is refused.
        max_drop: the budget of points that the file has met, or None.
    """
    labelled = "change" in report
    if min_agreement == 0:
        return
    if labelled and max_drop is not None and report["texts"] >= VOUCHING and min_agreement is None:
        return
    wrong = list(_unfaithful(report, min_agreement))
    if labelled and task is not None and max_drop is None and falls(report, task):
        wrong.insert(0, f"{report['change']['metric']} falls by more than chance")
    if wrong:
        raise InputError(
            f"the {report['quantize']} file is not worth the Keras model: {'; '.join(wrong)}. {'. '.join(told(report))}. "
            f"Nothing was written: {_ways_out(report)}"
        )


def _unfaithful(report: JsonMap, min_agreement: float | None) -> Iterator[str]:
    """What of a file is too far from its model, in words."""
    scheme = SCHEMES[report["quantize"]]
    least = scheme.agreement if min_agreement is None else min_agreement
    if not report["agreement"] >= least:
        yield f"agreement {report['agreement']:.4f}, expected at least {least:g}"
    if scheme.tolerance is not None:  # its numbers were compared one by one
        return
    noise = (
        (1 - scheme.fidelity) * answers.find(report["kind"]).noise * (MADE_UP if report["texts_from"] == MADE else 1)
    )
    lowest = min(1 - noise, 1.0 if min_agreement is None else min_agreement)
    if not report["fidelity"] >= lowest:
        yield f"fidelity {report['fidelity']:.4f}, expected at least {lowest:g}"
    if not report["offset"] <= OFFSET:
        yield f"all scores are off by {report['offset']:.2f} of their standard deviation, expected at most {OFFSET}"


def _ways_out(report: JsonMap) -> str:
    if reasons := losses(report):
        return f"{'; '.join(reasons)}; or lower --min-agreement"
    if "change" in report:
        return "use --quantize fp16, let what costs most stay float (--max-drop POINTS), or lower --min-agreement"
    real = "judge it on labelled rows (--data) or texts like the real ones (--texts)"
    return f"{real}, use --quantize fp16, or lower --min-agreement"


def told(report: JsonMap) -> list[str]:
    """What a file was judged on, and what it is worth, a line each."""
    source, rounded = report["texts_from"], SCHEMES[report["quantize"]].tolerance is None
    line = "judged on " + (source if source[:1].isdigit() else f"{report['texts']} texts ({source})")
    line += f" in {report['judged_seconds']:.0f} s" if "judged_seconds" in report else ""
    if "change" in report:
        found = report["change"]
        values = report["metrics"].get(found["metric"])
        line += f": {found['metric']} " + (f"{values['keras']:.4f} -> {values['tflite']:.4f} " if values else "")
        line += f"({found['by']:+.4f}, 95% interval {found['low']:+.4f} to {found['high']:+.4f})"
    elif source == MADE:
        why = f" ({report['unlabelled']})" if report.get("unlabelled") else ""
        line += f", without labels{why}: they show whether the file computes what the model does, not what it is worth on your "
        line += "texts (--data)"
    else:
        line += ", without labels"
    what = answers.find(report["kind"]).agrees_by + (", ties within the file's rounding aside" if rounded else "")
    second = f"against the Keras model: agreement {report['agreement']:.4f} ({what}), fidelity {report['fidelity']:.4f}, mean "
    return [line, f"{second}difference {report['mean_difference']:.2g}, largest {report['max_difference']:.2g}"]

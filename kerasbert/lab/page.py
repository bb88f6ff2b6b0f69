"""The page of an experiment: claim, figures with intervals, verdict. The same numbers give the same bytes."""

import html

from kerasbert import report, run_report
from kerasbert.run_report import pictures
from kerasbert.storage.json_view import JsonMap


def arm_rows(found: JsonMap) -> list[list[str]]:
    """A row for each arm: name, mean, 95% interval, parameters, every seed's figure."""
    rows = []
    for arm in found["arms"]:
        within = f"{arm['low']:.4f} to {arm['high']:.4f}" if "mean" in arm else ""
        mean = f"{arm['mean']:.4f}" if "mean" in arm else ""
        seeds = " ".join("-" if value is None else f"{value:.4f}" for value in arm["figures"].values())
        rows.append([arm["arm"], mean, within, f"{arm['parameters'] or 0:,}", seeds])
    return rows


def compared_rows(found: JsonMap) -> list[list[str]]:
    """A row for each comparison: what, mean, how many seeds lie on the claim's side, interval at its level, verdict."""
    return [
        [
            each["told"],
            f"{each['mean']:+.4f}" if "mean" in each else "",
            f"{each['agree']} of {len(each['by_seed'])}",
            f"{each['low']:+.4f} to {each['high']:+.4f}" if "mean" in each else "",
            f"{each['level']:.1%}",
            each["verdict"],
        ]
        for each in found["comparisons"]
    ]


ARMS = ("arm", "mean", "95% interval", "parameters", "by seed")
COMPARED = ("comparison", "mean", "seeds", "interval", "level", "verdict")


def text(found: JsonMap) -> str:
    """What the command prints."""
    lines = [f"{found['title']}: {found['claim']}", f"({found['source']})", "", found["figure"]["told"]]
    lines += [report.table(ARMS, arm_rows(found)), "", report.table(COMPARED, compared_rows(found))]
    return "\n".join([*lines, "", f"verdict: {found['verdict']}", f"it would need: {found['needs']}"])


def page(found: JsonMap) -> str:
    """The whole document."""
    better = "More" if found["figure"]["higher"] else "Less"
    lost = [error for arm in found["arms"] for error in arm["errors"]]
    parts = [
        _p(f"Claim: {found['claim']} ({found['source']})."),
        _p(f"Verdict: {found['verdict']}.", "lead"),
        "<h2>Figures</h2>",
        _p(f"The figure is {found['figure']['told']}. {better} is better."),
        *_drawn(found),
        report.html_table(ARMS, arm_rows(found), "Figures"),
        *[_p(f"Not finite: {error}") for error in lost],
        "<h2>Comparisons</h2>",
        report.html_table(COMPARED, compared_rows(found), "Comparisons"),
        _p(
            "Two arms of a seed share their draws, so they are compared in pairs: a two-sided t-test of the differences over "
            "the seeds, at 5% divided by the number of comparisons. The seeds counted lie on the claim's side of 0. Seen: the "
            "interval lies there; opposite: on the other side; else not seen, which does not mean that there is no difference.",
            "soft",
        ),
        "<h2>What the claim needs</h2>",
        _p(_sentence(found["needs"])),
        _p(_sentence(found["note"])) if found["note"] else "",
        _p(f"All updates were multiplied by {found['factor']:.2f} to fit the budget.") if found["factor"] < 1 else "",
        _p(f"Pretrained on {found['text']}.") if found["text"] else "",
    ]
    return report.page(f"The lab: {found['title']}", [part for part in parts if part], run_report.STYLE)


def _drawn(found: JsonMap) -> list[str]:
    """The arms with a mean, and what one sees."""
    arms = [arm for arm in found["arms"] if "mean" in arm]
    if not arms:
        return []
    rows = {
        arm["arm"]: (arm["low"], arm["high"], [v for v in arm["figures"].values() if v is not None]) for arm in arms
    }
    return [
        pictures.intervals(rows, found["figure"].get("axis", found["figure"]["name"])),
        _p(
            f"A ring is a seed, the diamond the mean of the {found['seeds']}, the line Student's t-interval at 95%. Lines that "
            "overlap may still belong to arms that differ, for the arms of a seed share their draws: the comparisons below say "
            "whether they do."
        ),
    ]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _p(text: str, style: str = "") -> str:
    return f"<p{f' class={chr(34)}{style}{chr(34)}' if style else ''}>{html.escape(text)}</p>"

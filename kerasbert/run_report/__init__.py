"""The report of a run: one page of html that can be sent to a colleague. It loads nothing and runs no script."""

import html
import os
from pathlib import Path

from kerasbert import report
from kerasbert.errors import InputError
from kerasbert.options import checked
from kerasbert.run_report import sections
from kerasbert.run_report.examples import short
from kerasbert.run_report.facts import Facts, read
from kerasbert.storage import files, places

PARTS = (
    sections.remarks,
    sections.results,
    sections.summary,
    sections.by_label,
    sections.picture,
    sections.wrong,
    sections.curves,
    sections.lengths,
    sections.ledger,
    sections.next_steps,
    sections.settings,
)
STYLE = """
.note { border-left: 4px solid #b45309; background: #fdf5ea; padding: .6rem .9rem; max-width: none; }
.lead { font-size: 1.05rem; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 0 1.5rem; }
.picture { margin: 0; }
.legend { list-style: none; margin: .25rem 0 0; padding: 0; font-size: .9rem; }
.bar { width: 12rem; height: .7rem; display: block; margin-top: .4rem; }
.right { outline: 2px solid #1a1f2b; outline-offset: -2px; }
td[style] .soft { color: inherit; }
td[style] { padding: .25rem .5rem; min-width: 4.5rem; }
.wrong { padding-left: 0; list-style: none; display: grid; gap: .75rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
.wrong li { border: 1px solid #d9dde5; border-radius: 8px; padding: .6rem .9rem; min-width: 0; }
.wrong .text { margin: .15rem 0; }
dl { margin: .4rem 0 0; display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 0 .75rem; }
dt { color: #545c6c; font-size: .9rem; }
dd { margin: 0; }
.steps { display: block; }
.steps dt { margin-top: .5rem; }
.steps pre { margin: .15rem 0; }
summary { cursor: pointer; padding: .4rem 0; }
"""


@checked
def write(
    run: str | os.PathLike, out: str | os.PathLike | None = None, *, ledger: str | os.PathLike | None = None
) -> Path:
    """The report of one run as a page of html; `report.html` in its directory by default.

    Args:
        run: directory of a fine-tuning, a distillation, a pretraining, or of a plan of compression.
        out: where the page goes.
        ledger: ledger.json of a compression, or the folder that holds it; by default the run's own.

    Raises:
        InputError: no run there, or a damaged file.
    """
    path, facts = Path(out) if out else Path(run) / "report.html", read(run, ledger)
    places.check_file(path, True, "report", [run])
    try:
        parts = [text for part in PARTS for text in part(facts)]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise InputError(
            f"{facts.place} holds what no run writes ({type(error).__name__}: {str(error)[:80]}): dev.json or run.json is damaged"
        ) from error
    files.write_atomic(
        path, report.page(title(facts), [part for part in [_lead(facts), *parts] if part], STYLE, "report")
    )
    return path


def title(facts: Facts) -> str:
    """The task, or what else the run is, and the folder's name."""
    what = str(facts.task.get("name") or facts.run.get("kind") or "compression")
    return f"{short(what, 60)}: {short(facts.place.resolve().name, 60)}"


def _lead(facts: Facts) -> str:
    """The most important number in a sentence."""
    if not facts.metric:
        return ""
    low, high = facts.dev.get("intervals", {}).get(facts.metric, (None, None))
    within = "" if low is None else f" (95% interval {low:.3f} to {high:.3f})"
    rows = facts.dev.get("rows")
    of = f" on {rows:,} dev inputs" if rows else ""
    value = facts.dev["metrics"][facts.metric]
    return f'<p class="lead"><strong>{html.escape(facts.metric)} {value:.3f}</strong>{html.escape(within + of)}.</p>'

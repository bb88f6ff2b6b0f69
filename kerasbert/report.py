"""Numbers for people: text tables, plots, a page of html. The same numbers give the same bytes."""

import html
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kerasbert.errors import InputError
from kerasbert.storage.json_view import JsonMap
from kerasbert.storage.places import PAGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAR = 20  # characters
MARKERS = "osDv^"  # matplotlib has ten colours
Curve = Sequence[tuple[float, float]]
STYLE = """
body { font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; max-width: 68rem; margin: 0 auto;
  padding: 1.5rem 1rem 4rem; color: #1a1f2b; background: #fff; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
p { margin: .5rem 0; max-width: 48rem; }
.soft, figcaption { color: #545c6c; font-size: .9rem; }
.wide { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: .25rem 1rem .25rem 0; border-bottom: 1px solid #d9dde5; text-align: left; vertical-align: top; }
th { font-weight: 600; }
tbody th { overflow-wrap: anywhere; min-width: 6rem; }
td + td, th + td, th + th { text-align: right; }
@media (max-width: 30rem) { th, td { padding-right: .6rem; font-size: .93rem; } }
.words td, .words th { text-align: left; overflow-wrap: anywhere; min-width: 7rem; }
svg { max-width: 100%; height: auto; }
pre { background: #f4f5f7; padding: .75rem; white-space: pre-wrap; border-radius: 6px; }
.o { white-space: nowrap; }
"""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Text in columns, the first aligned left and the others right.

    >>> print(table(["file", "MB"], [["float", "12.5"], ["int8", "3.1"]]))
    file     MB
    float  12.5
    int8    3.1
    """
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = []
    for row in [header, *rows]:
        cells = [
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def breaking(text: str) -> str:
    """Text as html that a narrow screen breaks where it should: not within an option, in a name behind its underscores.

    >>> breaking("exact_match & more --epochs")
    'exact_<wbr>match &amp; more <span class="o">--epochs</span>'
    """
    text = re.sub(r"(?<![-\w])--[a-z][\w-]*", r'<span class="o">\g<0></span>', html.escape(text))
    return re.sub(r"(?<=[a-z0-9])_(?=[a-z0-9])", "_<wbr>", text)


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]], name: str = "", style: str = "") -> str:
    """The same as html, whose first column are headers too; on a narrow screen it scrolls by itself.

    Args:
        name: of the table, for who does not see it. style: class of the table; "words" aligns all columns left.
    """

    def line(cells: Sequence[str], scope: str) -> str:
        inner = ("th", ' scope="col"') if scope == "col" else ("td", "")
        first = f'<th scope="{scope}">{breaking(cells[0])}</th>'
        return f"<tr>{first}{''.join(f'<{inner[0]}{inner[1]}>{html.escape(cell)}</{inner[0]}>' for cell in cells[1:])}</tr>"

    head = f"<thead>{line(header, 'col')}</thead>" if any(header) else ""
    body = "\n".join(line(row, "row") for row in rows)
    named = f' class="{style}"' if style else ""
    inside = f"<table{named}>{head}\n<tbody>{body}</tbody></table>"
    name = html.escape(name or header[0] or "table")
    return f'<div class="wide" role="region" aria-label="{name}" tabindex="0">{inside}</div>'


def curves(run: str | os.PathLike) -> Mapping[str, Curve]:
    """What a run logged: name -> (step, value) pairs, from metrics.jsonl.

    Raises:
        InputError: no run there, or a line that no run of ours writes; one that a kill cut off is passed over.
    """
    path = Path(run) / "metrics.jsonl"
    if not path.is_file():
        absent = f"{run} has no metrics.jsonl" if Path(run).exists() else f"no run {run}"
        raise InputError(f"{absent}, expected the directory of a run: kerasbert pretrain or finetune makes one")
    found: dict[str, list[tuple[float, float]]] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:  # the line that was being written when the process was killed
            continue
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{path}, line {number}: no json of a run ({type(error).__name__}): it is damaged"
            ) from None
        values = list(record.values()) if isinstance(record, dict) else []
        if not values or "step" not in record or not all(map(_is_number, values)):
            raise InputError(f"{path}, line {number}: expected an object of numbers with a step: it is damaged")
        for name, value in record.items():
            if name != "step":
                found.setdefault(name, []).append((record["step"], value))
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def label_tables(found: JsonMap) -> list[tuple[str, list[str], list[list[str]]]]:
    """Tables of what `evaluate` or a run's dev.json tells of labels and of a mix of layers: (title, header, rows).

    Args:
        found: with `labels`, `confusion` and `layers`, or without them.
    """
    labels, tables = found.get("labels", {}), []
    if labels:
        header = ["label", *(name.replace("_", " ") for name in next(iter(labels.values())))]
        cells = [
            [label, *(str(value) if isinstance(value, int) else f"{value:.4f}" for value in row.values())]
            for label, row in labels.items()
        ]
        tables.append(("By label", header, cells))
    if confusion := found.get("confusion"):
        counts = [[label, *map(str, row)] for label, row in zip(labels, confusion)]
        tables.append(("Confusion", ["label, answered as", *labels], counts))
    if mix := found.get("layers"):
        tables.append((f"Layers, times {mix['gamma']:.3f}", ["layer", "share", ""], bars(mix["shares"])))
    return tables


def bars(shares: Sequence[float]) -> list[list[str]]:
    """A row for the embeddings and for each layer: name, share and a bar of it, the longest of 20 characters.

    >>> bars([0.25, 0.75])
    [['embeddings', '0.2500', '#######             '], ['1', '0.7500', '####################']]
    """
    most, names = max(shares), ["embeddings", *map(str, range(1, len(shares)))]
    return [[n, f"{x:.4f}", ("#" * round(BAR * x / most)).ljust(BAR)] for n, x in zip(names, shares)]


def plot(
    lines: Mapping[str, Curve], x: str, y: str, *, levels: Mapping[str, float] | None = None, title: str = ""
) -> str:
    """Curves as an svg.

    Args:
        lines: label -> points.
        x: name of the horizontal axis.
        y: name of the vertical axis.
        levels: label -> height of a dashed line, for baselines.
        title: above the plot.
    """
    figure, axes = _axes(x, y, title)
    for label, points in lines.items():
        axes.plot(*zip(*points), label=_said(label))
    for i, (label, height) in enumerate((levels or {}).items()):
        axes.axhline(height, label=_said(label), linestyle="--", color=str(0.3 + 0.25 * i))
    axes.legend(frameon=False)
    return _svg(figure)


def scatter(points: Mapping[str, tuple[float, float]], x: str, y: str, *, title: str = "") -> str:
    """Named points as an svg; both axes begin at 0."""
    figure, axes = _axes(x, y, title)
    for i, (label, (across, up)) in enumerate(points.items()):
        axes.plot(
            [across], [up], marker=MARKERS[i // 10 % len(MARKERS)], markersize=9, linestyle="none", label=_said(label)
        )
    # beside the plot: labels at the points print over each other where two files are alike
    figure.legend(loc="outside right upper", frameon=False)
    axes.set_xlim(0, 1.1 * max(across for across, _ in points.values()))
    axes.set_ylim(0, 1.1 * max(up for _, up in points.values()))
    return _svg(figure)


def _said(label: str) -> str:
    """A label as it is: dollars are no formulas."""
    return label.replace("$", r"\$")


def _axes(x: str, y: str, title: str) -> "tuple[Figure, Axes]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y, title=title)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _svg(figure: "Figure") -> str:
    from matplotlib import rc_context

    buffer = io.StringIO()
    # ids from a fixed salt, text as text, no date: the same bytes wherever the fonts are others
    with rc_context({"svg.hashsalt": "kerasbert", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    found = buffer.getvalue()
    return found[found.index("<svg") :]


def page(title: str, parts: Sequence[str], style: str = "", command: str = "page") -> str:
    """A whole html document of parts that are html themselves; it loads nothing from elsewhere.

    Args:
        style: further rules of CSS. command: which writes it, as `places.FILES` knows its pages.
    """
    head = f'{PAGE.format(command)}<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"<title>{html.escape(title)}</title><style>{STYLE}{style}</style>"
    body = "\n".join([f"<h1>{html.escape(title)}</h1>", *parts])
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>\n{body}\n</main></body></html>\n'

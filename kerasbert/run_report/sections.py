"""The parts of a report, each a heading with what stands below it; a part of which nothing is known is left out."""

import html
import json
import shlex
from collections.abc import Mapping, Sequence

from kerasbert import report
from kerasbert.run_report import pictures
from kerasbert.run_report.examples import examples, short
from kerasbert.run_report.facts import Facts

SHOWN, CELLS = 50, 15  # labels by label, and of a confusion matrix
RATES = ("learning_rate", "gradient_norm", "steps_per_second", "tokens_per_second", "flops_per_second", "utilisation")
# settings that have a place of their own, or none
PRIVATE = ("spec", "task", "data", "objective_settings", "lengths", "first_lengths")


def summary(facts: Facts) -> list[str]:
    """What was trained on what, when and where."""
    made, machine = dict(facts.run.get("made") or {}), dict(dict(facts.run.get("made") or {}).get("machine") or {})
    kind = str(facts.task.get("kind") or facts.settings.get("objective") or facts.run.get("kind") or "")
    name = str(facts.task.get("name") or "")
    data = [f"{split}: {file}" for split, file in facts.data.items()]
    if held := facts.run.get("held_out"):
        data.append(f"dev: {len(str(held).split()):,} rows held out of it")
    about = dict(facts.run.get("environment") or {})
    versions = [f"{name} {about[name]}" for name in ("kerasbert", "tensorflow", "keras", "python") if about.get(name)]
    where = [machine.get("processor"), machine.get("system"), *machine.get("accelerators", ())]
    where += [f"{machine['cores']} cores"] if machine.get("cores") else []
    where += [f"{machine['memory_gb']} GB of memory"] if machine.get("memory_gb") else []
    rows = {
        "Task" if facts.task else "Objective": f"{name} ({kind})" if name and name != kind else kind,
        "Labels": _listed(facts.labels),
        "Base model": facts.base,
        "Data": "; ".join(data),
        "Date": _period(made.get("begun"), facts.run.get("finished")),
        "Machine": ", ".join(str(each) for each in where if each),
        "Trained on": str(facts.run.get("strategy") or ""),
        "Versions": ", ".join(versions),
    }
    parts = [report.html_table(["", ""], [[name, short(text)] for name, text in rows.items() if text], style="words")]
    if made.get("command"):
        parts += ["<h3>Command</h3>", _code(made["command"])]
    return ["<h2>What was trained</h2>", *parts]


def _period(begun: object, finished: object) -> str:
    """When a run began and ended.

    >>> _period("2026-01-02T03:04:05+00:00", "2026-01-02T03:09:00+00:00")
    '2026-01-02 03:04:05 to 03:09:00 UTC'
    """
    moments = [str(each).replace("T", " ").removesuffix("+00:00") for each in (begun, finished) if each]
    if len(moments) == 2 and moments[0][:10] == moments[1][:10]:
        moments[1] = moments[1][11:]
    return f"{' to '.join(moments)} UTC" if moments else ""


def _listed(names: Sequence[str], most: int = 20) -> str:
    shown = ", ".join(short(name, 60) for name in names[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown


def remarks(facts: Facts) -> list[str]:
    """What a reader is to know before the numbers."""
    lines = [str(line) for line in facts.dev.get("remarks", ())]
    return [f'<p class="note"><strong>Note.</strong> {report.breaking(short(line, 1000))}</p>' for line in lines]


def results(facts: Facts) -> list[str]:
    """The metrics with their intervals; of a run without dev.json the last ones that it logged."""
    metrics, intervals = dict(facts.dev.get("metrics", {})), facts.dev.get("intervals", {})
    if not metrics:
        return _last(facts)
    baseline, cells = facts.dev.get("baseline", {}), []
    order = sorted(metrics, key=lambda name: name != facts.metric)
    for name in order:
        low, high = intervals.get(name, (None, None))
        within = "" if low is None else f"{low:.4f} to {high:.4f}"
        cells.append([name, f"{metrics[name]:.4f}", within, f"{baseline[name]:.4f}" if name in baseline else ""])
    rows, told = facts.dev.get("rows"), []
    if intervals:
        told.append(
            f"Intervals of 95%: percentile bootstrap over the {rows:,} dev inputs, {facts.dev['resamples']:,} samples, seed 0. "
            "They say how far other inputs of the kind would move the number; another seed of the training, or other data, "
            "may move it further."
        )
    elif rows is not None:
        told.append(f"No intervals: {rows:,} dev inputs are too few for them.")
    if any(low == high for low, high in intervals.values()):
        told.append(f"An interval of no width only means that none of {rows:,} inputs was otherwise.")
    if baseline:
        told.append("A constant answer is the best one that does not look at the text.")
    by = f" by {facts.metric}" if facts.metric else ""
    told.append(f"The dev rows also chose the best weights{by}, so new rows may do a little worse.")
    header = ["metric", "value", "95% interval", "constant answer"]
    return ["<h2>Results on the dev rows</h2>", report.html_table(header, cells, "Metrics"), _soft(" ".join(told))]


def _last(facts: Facts) -> list[str]:
    """The last values that a run logged, held-out ones first."""
    last = {name: curve[-1] for name, curve in facts.curves.items() if name not in RATES}
    order = sorted(last, key=lambda name: "/" not in name or not name.startswith(("held_out/", "dev/")))
    cells = [[name, f"{last[name][1]:.4f}", f"{last[name][0]:,}"] for name in order]
    if not cells:
        return []
    return ["<h2>Last values</h2>", report.html_table(["metric", "value", "update"], cells)]


def by_label(facts: Facts) -> list[str]:
    """Metrics of each label, and the confusion matrix."""
    parts, dev = [], dict(facts.dev)
    confusion = dev.pop("confusion", None)
    for title, header, cells in report.label_tables(dev):
        cells = [[short(cell, 60) for cell in row] for row in cells]
        more = _soft(f"The first {SHOWN} of {len(cells):,}.") if len(cells) > SHOWN else ""
        parts += [f"<h2>{title}</h2>", report.html_table(header, cells[:SHOWN], title), more]
    if confusion:
        parts += ["<h2>Confusion matrix</h2>", *_confusion([*map(str, dev.get("labels", ()))], confusion)]
    elif len(facts.labels) > SHOWN and not parts:
        parts += [
            _soft(f"{len(facts.labels):,} labels: the table by label and the confusion matrix are kept of {SHOWN}.")
        ]
    return parts


def _confusion(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> list[str]:
    """Rows by label and answer: counts, shaded by their share of the row; of many labels those with the most mistakes."""
    mistakes = [sum(row) - row[i] + sum(other[i] for other in counts) - row[i] for i, row in enumerate(counts)]
    chosen = sorted(sorted(range(len(counts)), key=lambda i: -mistakes[i])[:CELLS])
    head = "".join(f'<th scope="col">{html.escape(short(labels[i], 24))}</th>' for i in chosen)
    lines = []
    for i in chosen:
        cells, total = "", max(1, sum(counts[i]))
        for j in chosen:
            share = counts[i][j] / total
            style = f"background:rgb(29 78 216/{0.3 * share:.2f})"
            right = ' class="right"' if i == j else ""
            cells += f'<td{right} style="{style}">{counts[i][j]:,}<span class="soft"> {share:.0%}</span></td>'
        lines.append(f'<tr><th scope="row">{html.escape(short(labels[i], 40))}</th>{cells}</tr>')
    table = (
        f"<table><thead><tr><td>labelled, answered as</td>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    )
    told = "Rows are the labels, columns the answers; framed cells are right, shares are of a row."
    if len(counts) > CELLS:
        told += f" The {CELLS} labels with the most mistakes of {len(counts)}."
    return [f'<div class="wide" role="region" aria-label="Confusion matrix" tabindex="0">{table}</div>', _soft(told)]


def picture(facts: Facts) -> list[str]:
    """The kind's own picture."""
    found = facts.dev.get("picture", {})
    if not found:
        return []
    heading = f"<h2>{html.escape(str(found['title']))}</h2>"
    if points := found.get("points"):
        drawn = pictures.scatter(points, "expected", "answered")
        more = f"{len(points):,} of {found['of']:,} inputs, drawn at random. " if found["of"] > len(points) else ""
        return [heading, drawn, _soft(f"{more}On the dashed line the answer is the expected number.")]
    bars = found["bars"]
    whole = facts.dev.get("rows") or 1
    counts = all(isinstance(value, int) for value in bars.values())
    whole = sum(bars.values()) or 1 if counts else 1
    lines = []
    for name, value in bars.items():
        said = f"{value:,} ({value / whole:.1%})" if counts else f"{value:.1%}"
        lines.append(
            f'<tr><th scope="row">{html.escape(name)}</th><td>{said}</td><td class="b">{pictures.bar(value / whole)}</td></tr>'
        )
    return [heading, f'<div class="wide"><table><tbody>{"".join(lines)}</tbody></table></div>']


def wrong(facts: Facts) -> list[str]:
    """The worst answers with their texts."""
    about = facts.dev.get("wrong")
    if not about:
        return []
    found, why = examples(facts)
    count, graded = about.get("count"), about.get("graded")
    title = "Answers" if count is None else "Largest errors" if graded else "Wrong answers"
    told = (
        [f"{count:,} of {facts.dev.get('rows', 0):,} inputs are answered wrong."]
        if count is not None and not graded
        else []
    )
    if found and count and not graded:
        told.append(f"These {len(found)} are the worst, or the ones that the model was surest of.")
    told += [why] if why else []
    cards = []
    for each in found:
        parts = "".join(_part(name, text, len(each.parts) > 1) for name, text in each.parts.items())
        pair = f'<dt>expected</dt><dd dir="auto">{html.escape(each.expected)}</dd>'
        pair += f'<dt>answered</dt><dd dir="auto">{html.escape(each.answered)}</dd>'
        cards.append(f'<li><span class="soft">{each.row}</span>{parts}<dl>{pair}</dl></li>')
    drawn = [f'<ol class="wrong">{"".join(cards)}</ol>'] if cards else []
    return [f"<h2>{title}</h2>", _soft(" ".join(told)) if told else "", *drawn]


def _part(name: str, text: str, several: bool) -> str:
    named = f'<span class="soft">{html.escape(name)}: </span>' if several else ""
    return f'<p class="text" dir="auto">{named}{html.escape(text)}</p>'


def curves(facts: Facts) -> list[str]:
    """Every metric that was logged: those of one name in one picture, rates behind a fold."""
    groups: dict[str, dict[str, report.Curve]] = {}
    for name, points in facts.curves.items():
        groups.setdefault(name.rpartition("/")[2], {})[name] = points
    for name in ("label", "mlm", "nsp"):  # losses by their own name
        if set(groups.get(name, ())) == {name}:
            groups.setdefault("loss", {})[name] = groups.pop(name)[name]
    learnt = {name: lines for name, lines in groups.items() if name not in RATES}
    first = sorted(learnt, key=lambda name: (name != facts.metric, name != "loss"))
    parts = [drawn for name in first for drawn in _drawn(name, learnt[name])]
    rates = [drawn for name in RATES if name in groups for drawn in _drawn(name, groups[name])]
    found = ["<h2>Curves</h2>", f'<div class="grid">{"".join(parts)}</div>'] if parts else []
    if rates:
        found.append(
            f'<details><summary>Learning rate and speed</summary><div class="grid">{"".join(rates)}</div></details>'
        )
    return found


def _drawn(name: str, curves: Mapping[str, report.Curve]) -> list[str]:
    """Pictures of the curves of one name, some in each."""
    names, most = [*curves], len(pictures.COLOURS)
    parts = []
    for i in range(0, len(names), most):
        some = {short(each, 60): curves[each] for each in names[i : i + most]}
        parts.append(
            f"<div><h3>{html.escape(short(name.replace('_', ' '), 60))}</h3>{pictures.lines(some, 'updates')}</div>"
        )
    return parts


def lengths(facts: Facts) -> list[str]:
    """How long the texts are, and how many were truncated."""
    found = {"train": facts.run.get("token_lengths"), "dev": facts.dev.get("lengths")}
    found = {name: values for name, values in found.items() if values}
    if not found:
        return []
    cells = []
    for name, values in found.items():
        at = [values[round(share * (len(values) - 1))] for share in (0, 0.5, 0.9, 1)]
        cells.append([name, *(f"{value:,}" for value in at)])
    told = ""
    if "truncated" in facts.dev:
        dev, most = facts.dev, facts.dev.get("length")
        told = f"{dev['truncated']:,} of {dev['rows']:,} dev inputs have more than {most} tokens and are truncated."
    table = report.html_table(["tokens of a row", "least", "half have up to", "90% have up to", "most"], cells)
    return ["<h2>Lengths of the texts</h2>", table, _soft(told) if told else ""]


def ledger(facts: Facts) -> list[str]:
    """What a compression cost and gained."""
    if not facts.ledger:
        return []
    names = [*facts.ledger[0]]
    cells = [[_number(name, row.get(name)) for name in names] for row in facts.ledger]
    header = [name.replace("_", " ") for name in names]
    return ["<h2>Compression ledger</h2>", report.html_table(header, cells, "Each file measured by itself")]


def _number(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 10 else f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def next_steps(facts: Facts) -> list[str]:
    """Commands that go on from here."""
    run = shlex.quote(str(facts.place))
    if facts.task:
        pair = len([part for part in ("text", "text_b") if facts.task.get(part)]) > 1
        steps = {
            "Measure it on rows that chose nothing": f"kerasbert evaluate {run} --data test.csv",
            "Answer a table": f"kerasbert predict {run} --data new.csv --out answers.csv",
            "See which words decide": f"kerasbert predict {run} {'--pair TEXT TEXT' if pair else 'TEXT'} --explain page.html",
            "Write a model card": f"kerasbert report {run} --card",
            "Serve it": f"kerasbert export {run} serving/1",
            "Make a file for phones": f"kerasbert-mobile compress {run} --quantize dynamic_int8 --out model.tflite",
        }
    elif facts.run:
        steps = {
            "Fine-tune it": f"kerasbert finetune {run} --task classification --data rows.csv --out runs/fine-tuned",
            "Write it for other libraries": f"kerasbert export-checkpoint {run} checkpoint --to hf",
        }
    else:
        return []
    lines = [f"<dt>{html.escape(what)}</dt><dd>{_code(line)}</dd>" for what, line in steps.items()]
    return ["<h2>Next steps</h2>", f'<dl class="steps">{"".join(lines)}</dl>']


def settings(facts: Facts) -> list[str]:
    """All settings of run.json, behind a fold."""
    rows = [[name, short(json.dumps(value), 200)] for name, value in facts.settings.items() if name not in PRIVATE]
    if not rows:
        return []
    table = report.html_table(["setting", "value"], rows, style="words")
    return [f"<h2>Settings</h2><details><summary>All {len(rows)}</summary>{table}</details>"]


def _soft(text: str) -> str:
    return f'<p class="soft">{html.escape(text)}</p>'


def _code(text: str) -> str:
    text = text if len(text) <= 2000 else f"{text[:2000]} \u2026"
    return f"<pre><code>{report.breaking(text)}</code></pre>"

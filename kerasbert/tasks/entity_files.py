"""Answers of a tagger as files that people read: CoNLL, and a page of html that marks the entities.

The page loads nothing and runs nothing. An entity is told by its label in words and by a colour, never by colour alone.
"""

import html
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kerasbert.errors import InputError
from kerasbert.storage.json_view import JsonMap
from kerasbert.storage.places import PAGE

Rows = Iterable[tuple[JsonMap, Sequence[Any] | None]]
FIELDS = ("words", "labels", "entities")  # of the answers of a tagger
DOCUMENT = "-DOCSTART-\tO\n\n"  # CoNLL-2003's first line, by which a file is known as one that may be replaced
COLOURS = ("#1d4ed8", "#b45309", "#047857", "#be123c", "#6d28d9", "#0e7490", "#4d7c0f", "#a21caf")

STYLE = """
:root { color-scheme: light dark; --ink: #1a1f2b; --soft: #5a6274; --line: #d9dde5; --paper: #fff; --mark: #eef1f6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaf0; --soft: #a2aabb; --line: #353c4b; --paper: #12151c;
  --mark: #232a37; } }
* { box-sizing: border-box; }
body { font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 56rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .35rem 0; }
.soft { color: var(--soft); font-size: .9rem; }
ol { list-style: none; padding: 0; }
li { border-top: 1px solid var(--line); padding: .9rem 0; line-height: 2.2; white-space: pre-wrap; overflow-wrap: anywhere; }
mark { color: inherit; background: var(--mark); border-bottom: 3px solid var(--c); border-radius: 4px; padding: .2em .35em; }
mark b { font-size: .72em; letter-spacing: .03em; color: #fff; background: var(--c); border-radius: 3px; padding: .15em .4em;
  margin-left: .4em; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: .15rem 1.2rem .15rem 0; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
"""


def conll(rows: Rows, column: str) -> Iterator[str]:
    """A word and its label a line, with a tab between them, a blank line after each text.

    Args:
        rows: columns of a row, and the FIELDS of its answer or None. column: of the texts.

    Raises:
        InputError: a word that holds a tab or a line break.
    """
    yield DOCUMENT
    for number, (_, answer) in enumerate(rows, 1):
        if answer is None or not answer[0]:
            continue
        words, labels = answer[:2]
        if wrong := next((word for word in words if not word.strip() or any(end in word for end in "\t\n\r")), None):
            raise InputError(f"row {number}: the word {wrong!r:.40} cannot stand in CoNLL: name --out a .jsonl file")
        yield "".join(f"{word}\t{label}\n" for word, label in zip(words, labels)) + "\n"


def page(rows: Rows, column: str) -> Iterator[str]:
    """A page of html: each text with its entities marked, and how many there are of each label.

    Args:
        rows, column: as of `conll`.
    """
    head = (
        PAGE.format("predict")
        + '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    )
    yield f'<!doctype html>\n<html lang="en"><head>{head}<title>Entities</title><style>{STYLE}</style></head>\n<body><main>\n'
    yield "<h1>Entities</h1>\n<p class=soft>The label stands behind each entity; its title shows the score.</p>\n<ol>\n"
    colours: dict[str, str] = {}
    counts: Counter = Counter()
    texts = 0
    for row, answer in rows:
        texts += 1
        value = row.get(column, "")
        text = value if isinstance(value, str) else " ".join(map(str, value or ()))
        yield f"<li>{_marked(text, answer[2] if answer else (), colours, counts)}</li>\n"
    yield f"</ol>\n<h2>How many</h2>\n<p>{sum(counts.values())} entities in {texts} texts.</p>\n"
    if counts:
        lines = "".join(f"<tr><td>{html.escape(k)}</td><td class=n>{n}</td></tr>" for k, n in counts.most_common())
        head = "<tr><th scope=col>label</th><th scope=col>entities</th></tr>"
        yield f"<table><thead>{head}</thead><tbody>{lines}</tbody></table>\n"
    yield "</main></body></html>\n"


def _marked(text: str, entities: Sequence[JsonMap], colours: dict[str, str], counts: Counter) -> str:
    parts, at = [], 0
    for each in entities:
        label, start, end = str(each["label"]), each["start"], each["end"]
        colour = colours.setdefault(label, COLOURS[len(colours) % len(COLOURS)])
        counts[label] += 1
        named = html.escape(label)
        parts.append(html.escape(text[at:start]))
        title = f"{named} {each.get('score', 0.0):.4f}"
        parts.append(f'<mark style="--c:{colour}" title="{title}">{html.escape(text[start:end])}<b>{named}</b></mark>')
        at = end
    return "".join(parts) + html.escape(text[at:])


WRITERS = {"conll": conll, "html": page}
"""How answers are written -> what writes them."""

"""Explanations as one page of html that loads nothing: no script, no font, no picture from elsewhere."""

import base64
import html
import struct
import zlib
from collections.abc import Iterable, Sequence

import numpy as np

from kerasbert.answers.base import Kind
from kerasbert.storage.places import PAGE
from kerasbert.tasks.explain import Explanation, Word

TEXTS = 20  # of a page
TOKENS = 128  # of a row whose attention is shown token by token
EVEN = (
    4  # times the weight of a token that sees all alike have the full colour, or the largest weight where that is more
)
TOP = 12  # words with a bar
SMALL = 32  # cells of a small picture on each side
CELLS, SIDE, EDGE = (
    (8, 24),
    640,
    92,
)  # pixels of the large picture: least and most of a token, all tokens, the words beside
COLOUR = (37, 99, 235)

STYLE = """
:root { color-scheme: light dark; --ink: #1a1f2b; --soft: #5a6274; --line: #d9dde5; --paper: #fff; --card: #f6f7f9;
  --for: 37 99 235; --against: 217 105 20; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaf0; --soft: #a2aabb; --line: #353c4b; --paper: #12151c;
  --card: #1b202a; --for: 96 150 255; --against: 240 140 60; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 72rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.2rem; margin: 0 0 .5rem; }
h3 { font-size: .8rem; letter-spacing: .05em; text-transform: uppercase; color: var(--soft); margin: 1.75rem 0 .5rem; }
p { margin: .35rem 0; max-width: 48rem; }
.soft, figcaption, summary, th { color: var(--soft); font-size: .88rem; }
section { border: 1px solid var(--line); border-radius: 10px; padding: 1.25rem 1.5rem; margin: 1.5rem 0; }
.answer { font-weight: 600; overflow-wrap: anywhere; }
.note { border-left: 3px solid rgb(var(--against)); padding-left: .75rem; }
.text { background: var(--card); border-radius: 8px; padding: .9rem 1rem; line-height: 2.1; overflow-wrap: anywhere; }
.w { border-radius: 4px; padding: .15em .28em; margin: 0 .06em; }
.s { color: var(--soft); font-size: .78em; border: 1px solid var(--line); }
.scale { display: inline-flex; gap: 2px; vertical-align: middle; margin: 0 .4rem; }
.scale i { width: 1.4rem; height: .9rem; border-radius: 2px; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .15rem .8rem .15rem 0; font-weight: 400; }
td.n, th.n { text-align: right; white-space: nowrap; }
.bars td.b { width: 18rem; padding: 0; }
.b svg { display: block; width: 18rem; height: 1rem; }
.numbers { border: 0; padding: 0; margin: .6rem 0 0; }
.wide { overflow-x: auto; }
.heads { border-spacing: 3px; border-collapse: separate; }
.heads th { padding: 0 .5rem 0 0; white-space: nowrap; }
.heads thead th { padding: 0; text-align: center; }
.heads td { padding: 0; line-height: 0; }
.heads img { width: 64px; height: 64px; image-rendering: pixelated; background: var(--card); }
figure { margin: 0; }
figure svg text { fill: var(--ink); dominant-baseline: central; }
figure svg image { image-rendering: pixelated; }
summary { cursor: pointer; margin-top: 1rem; }
footer { margin-top: 2.5rem; }
"""


def page(title: str, explanations: Iterable[tuple[str, Explanation]], kind: Kind) -> str:
    """The page of some inputs, each a text for its heading and what is told of it."""
    sections = [_section(i, text, each, kind) for i, (text, each) in enumerate(explanations, 1)]
    head = (
        PAGE.format("explain")
        + '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    )
    head += f"<title>{html.escape(title)}</title><style>{STYLE}</style>"
    body = "\n".join([f"<h1>{html.escape(title)}</h1>", _legend(), *sections, _footer()])
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>\n{body}\n</main></body></html>\n'


def _legend() -> str:
    shades = "".join(f'<i style="{_shade(value)}"></i>' for value in (-1, -0.6, -0.25, 0, 0.25, 0.6, 1))
    return (
        f'<p>What each word adds to the number that the model gives: <span class="soft">against it</span>'
        f'<span class="scale">{shades}</span><span class="soft">for it</span>. The strongest colour is the word of that text '
        "that adds most; outlined grey tokens are the model's own, added to every text.</p>"
    )


def _footer() -> str:
    return (
        '<footer class="soft"><p>Integrated gradients: (x &minus; x&#8242;) &middot; &int;<sub>0</sub><sup>1</sup> '
        "&part;f(x&#8242; + &alpha;(x &minus; x&#8242;))/&part;x d&alpha;, summed over the embedding of each token, and over the "
        "pieces of a word. x&#8242; is the same text with every token masked; positions, segments and special tokens stay. "
        "Mukund Sundararajan, Ankur Taly and Qiqi Yan, <cite>Axiomatic Attribution for Deep Networks</cite>, ICML 2017, "
        "section 3.</p><p>An attribution says what this model used, not what is true; attention says where a head read, "
        "not what decided.</p></footer>"
    )


def _section(number: int, text: str, about: Explanation, kind: Kind) -> str:
    answer = kind.text(about.answer.to_json())
    parts = [f"<h2>{number}. {html.escape(_short(text))}</h2>", f'<p class="answer">{html.escape(answer)}</p>']
    if about.truncated:
        kept = sum(not word.special for word in about.words)
        parts.append(f'<p class="note">The text is longer than the model reads: only {kept} words of it are here.</p>')
    if about.rows > 1:
        parts.append(
            f'<p class="note">The model reads this input in {about.rows} rows; this is row {about.row + 1}.</p>'
        )
    parts.append(_numbers(about))
    if abs(about.error) > 0.05 * abs(about.score - about.baseline):
        parts.append('<p class="note">The error is more than 5% of the difference: take more --explain-steps.</p>')
    parts += ["<h3>Words</h3>", _words(about), _bars(about.words), _pieces(about)]
    parts += ["<h3>Attention</h3>", _attention(about)]
    return "<section>" + "\n".join(parts) + "</section>"


def _numbers(about: Explanation) -> str:
    total = about.score - about.baseline
    share = abs(about.error) / abs(total) if total else 0.0
    rows = [
        (f"{about.what}, of this text", _number(about.score)),
        ("the same with every word masked", _number(about.baseline)),
        ("difference: what the words add up to", _number(total)),
        (f"completeness error, {about.steps} steps", f"{about.error:+.1e} ({share:.2%})"),
    ]
    cells = "".join(f'<tr><th>{html.escape(name)}</th><td class="n">{value}</td></tr>' for name, value in rows)
    return f'<table class="numbers">{cells}</table>'


def _words(about: Explanation) -> str:
    most = _most(about.words)
    spans, before = [], None
    for word in about.words:
        if before is not None and (word.part is None or word.part != before.part or word.start > before.end):
            spans.append(" ")
        title = _number(word.attribution)
        kind = "w s" if word.special else "w"
        style = _shade(word.attribution / most)
        spans.append(f'<span class="{kind}" style="{style}" title="{title}">{html.escape(word.text)}</span>')
        before = word
    return f'<div class="text" dir="auto">{"".join(spans)}</div>'


def _bars(words: Sequence[Word]) -> str:
    most, kept = _most(words), sorted(words, key=lambda word: -abs(word.attribution))[:TOP]
    rows = []
    for word in kept:
        share = word.attribution / most
        x, width, name = 50 + min(share, 0) * 50, abs(share) * 50, "for" if share > 0 else "against"
        bar = f'<rect x="{x:.1f}" y="2" width="{width:.1f}" height="12" fill="rgb(var(--{name}))"/>'
        line = '<path d="M50 0V16" stroke="var(--line)" stroke-width=".4"/>'
        svg = f'<svg viewBox="0 0 100 16" preserveAspectRatio="none" aria-hidden="true">{bar}{line}</svg>'
        cells = f'<td>{html.escape(_short(word.text, 40))}</td><td class="n">{_number(word.attribution)}</td>'
        rows.append(f'<tr>{cells}<td class="b">{svg}</td></tr>')
    left = len(words) - len(kept)
    more = f'<p class="soft">The {len(kept)} strongest of {len(words)} words.</p>' if left else ""
    return f'<h3>Strongest words</h3><div class="wide"><table class="bars">{"".join(rows)}</table></div>{more}'


def _pieces(about: Explanation) -> str:
    rows = [
        f"<tr><td>{i}</td><td>{html.escape(about.pieces[i])}</td><td>{html.escape(_short(word.text, 40))}</td>"
        f'<td class="n">{_number(about.attributions[i])}</td></tr>'
        for word in about.words
        for i in word.tokens
    ]
    head = '<tr><th>place</th><th>token</th><th>word</th><th class="n">adds</th></tr>'
    return f"<details><summary>All {len(rows)} tokens</summary><table>{head}{''.join(rows)}</table></details>"


def _attention(about: Explanation) -> str:
    weights = about.attention
    if weights is None:
        return '<p class="soft">This model tells no attention of one shape.</p>'
    layers, heads, length, _ = weights.shape
    parts = [_large(about.pieces, weights[-1].mean(0), layers)] if length <= TOKENS else []
    if not parts:
        parts.append(f'<p class="note">{length} tokens: the large picture is left out, it is drawn up to {TOKENS}.</p>')
    head = "".join(f"<th>{j + 1}</th>" for j in range(heads))
    rows = []
    for i in range(layers):
        cells = "".join(f"<td>{_small(weights[i, j], f'layer {i + 1}, head {j + 1}')}</td>" for j in range(heads))
        rows.append(f"<tr><th>layer {i + 1}</th>{cells}</tr>")
    told = "Every head of every layer: rows read, columns are read. The colour is the square root of the weight; it is full at "
    told += f"the largest of a picture, and at {EVEN} times the weight of even attention where that is more."
    if length > SMALL:
        told += f" A cell stands for several tokens, of which the strongest counts ({SMALL} cells a side)."
    table = f"<thead><tr><th>head</th>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    parts.append(f'<p class="soft">{told}</p><div class="wide"><table class="heads">{table}</table></div>')
    return "\n".join(parts)


def _large(pieces: Sequence[str], weights: np.ndarray, layers: int) -> str:
    """The mean of the last layer's heads, with the tokens at its sides."""
    cell = max(CELLS[0], min(CELLS[1], SIDE // len(pieces)))
    side, font = cell * len(pieces), min(12, cell)
    size = EDGE + side
    names = [html.escape(_short(piece, 14)) for piece in pieces]
    rows = [
        f'<text x="{EDGE - 4}" y="{EDGE + cell * (i + 0.5):.0f}" text-anchor="end">{name}</text>'
        f'<text transform="translate({EDGE + cell * (i + 0.5):.0f},{EDGE - 4}) rotate(-90)">{name}</text>'
        for i, name in enumerate(names)
    ]
    image = f'<image href="{_picture(weights, len(pieces))}" x="{EDGE}" y="{EDGE}" width="{side}" height="{side}"/>'
    frame = f'<rect x="{EDGE}" y="{EDGE}" width="{side}" height="{side}" fill="none" stroke="var(--line)"/>'
    label = "attention of the last layer, mean of its heads"
    about = f'width="{size}" height="{size}" font-size="{font}" role="img" aria-label="{label}"'
    svg = f"<svg {about}>{image}{frame}{''.join(rows)}</svg>"
    told = (
        f"Layer {layers}, the last: the mean of its heads. Each row is a token that reads, its cells are what it reads."
    )
    return f'<figure><div class="wide">{svg}</div><figcaption>{told}</figcaption></figure>'


def _small(weights: np.ndarray, title: str) -> str:
    tokens = len(weights)
    step = -(-tokens // SMALL)
    if step > 1:
        edge = -len(weights) % step
        blocks = np.pad(weights, (0, edge)).reshape(-1, step, (len(weights) + edge) // step, step)
        weights = blocks.max((1, 3))
    return f'<img src="{_picture(weights, tokens)}" title="{title}" alt="{title}">'


def _picture(weights: np.ndarray, tokens: int) -> str:
    """Weights of at least 0 as a png of one colour, 16 degrees of opaqueness: a data address."""
    most = max(float(weights.max()), EVEN / tokens)
    levels = np.round(15 * np.sqrt(weights / most)).astype("uint8")
    levels = np.pad(levels, ((0, 0), (0, levels.shape[1] % 2)))
    packed = (levels[:, ::2] << 4) | levels[:, 1::2]
    lines = np.pad(packed, ((0, 0), (1, 0))).tobytes()  # each begins with its filter: none
    height, width = weights.shape
    chunks = [
        (b"IHDR", struct.pack(">2I5B", width, height, 4, 3, 0, 0, 0)),  # 4 bits, a palette
        (b"PLTE", bytes(COLOUR) * 16),
        (b"tRNS", bytes(17 * i for i in range(16))),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    ]
    content = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def _shade(value: float) -> str:
    """The background of a word, for -1 to 1; weak enough for the text on it."""
    name = "for" if value >= 0 else "against"
    return f"background:rgb(var(--{name})/{0.55 * min(1.0, abs(value)):.2f})"


def _most(words: Sequence[Word]) -> float:
    return max((abs(word.attribution) for word in words), default=0.0) or 1.0


def _number(value: float) -> str:
    return f"{value:+.4f}" if abs(value) >= 0.001 or not value else f"{value:+.1e}"


def _short(text: str, most: int = 120) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "\u2026"

"""Small svg pictures of a report, by hand: readable on a telephone, the same bytes for the same numbers.

Lines differ by their marks and dashes as well as by colour, and a legend names them in words.
"""

import html
import math
from collections.abc import Mapping, Sequence

COLOURS = ("#1d4ed8", "#b45309", "#0f766e", "#9d174d", "#4c1d95", "#3f6212")  # at least 4.5 : 1 on white
DASHES = ("", "6 3", "2 3", "8 3 2 3", "4 2", "1 2")
MARKS = ("circle", "square", "triangle", "diamond", "cross", "bar")
WIDTH, HEIGHT = 340, 190  # of a picture, in pixels
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 34
POINTS = 400  # of a line; a longer one is thinned
MARKED = 40  # points of a line that all have a mark
SOFT, LINE = "#545c6c", "#d9dde5"

Curve = Sequence[tuple[float, float]]


def lines(curves: Mapping[str, Curve], across: str) -> str:
    """Curves over one axis, with a legend below them.

    Args:
        curves: name -> points, at most as many as there are COLOURS. across: name of the horizontal axis.
    """
    points = [point for curve in curves.values() for point in curve]
    x, y = _Axis([p[0] for p in points], LEFT, WIDTH - RIGHT), _Axis([p[1] for p in points], HEIGHT - BOTTOM, TOP)
    parts, legend = [_frame(x, y, across)], []
    for number, (name, curve) in enumerate(curves.items()):
        colour, dash, mark = (each[number % len(each)] for each in (COLOURS, DASHES, MARKS))
        thin = _thinned(curve)
        path = " ".join(f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in thin)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        if len(thin) > 1:
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dashed}/>')
        step = max(1, -(-len(thin) // MARKED))
        parts += [_mark(mark, x.at(a), y.at(b), colour) for a, b in thin[::step]]
        swatch = (
            f'<svg width="30" height="12" viewBox="0 0 30 12" aria-hidden="true">{_swatch(colour, dashed, mark)}</svg>'
        )
        last = f'<span class="soft"> {_said(curve[-1][1])}</span>'
        legend.append(f"<li>{swatch} {html.escape(name)}{last}</li>")
    told = f"{', '.join(curves)} over {across}"
    return f'<figure class="picture">{_svg(parts, told)}<ul class="legend">{"".join(legend)}</ul></figure>'


def scatter(points: Sequence[tuple[float, float]], across: str, up: str) -> str:
    """Points, and the diagonal on which both numbers are the same."""
    values = [value for point in points for value in point]
    x, y = _Axis(values, LEFT, WIDTH - RIGHT), _Axis(values, HEIGHT - BOTTOM, TOP)
    low, high = x.low, x.high
    parts = [_frame(x, y, f"{across}; upwards: {up}")]
    parts.append(
        f'<path d="M{x.at(low):.1f} {y.at(low):.1f}L{x.at(high):.1f} {y.at(high):.1f}" stroke="{SOFT}" stroke-dasharray="4 3"/>'
    )
    parts += [
        f'<circle cx="{x.at(a):.1f}" cy="{y.at(b):.1f}" r="2.6" fill="{COLOURS[0]}" fill-opacity=".6"/>'
        for a, b in points
    ]
    return f'<figure class="picture">{_svg(parts, f"{up} over {across}, {len(points)} points")}</figure>'


def intervals(rows: Mapping[str, tuple[float, float, Sequence[float]]], across: str) -> str:
    """Means with their intervals, a row each, and the numbers that they are of as small rings.

    Args:
        rows: name -> (low, high, numbers). across: name of the horizontal axis.
    """
    values = [value for low, high, numbers in rows.values() for value in (low, high, *numbers)]
    x, height, parts = _Axis(values, 20, WIDTH - 20), 34 * len(rows) + BOTTOM, []
    for value in x.ticks():
        at = f"{x.at(value):.1f}"
        parts.append(f'<path d="M{at} 4V{height - BOTTOM}" stroke="{LINE}"/>')
        parts.append(f'<text x="{at}" y="{height - BOTTOM + 14}" text-anchor="middle">{_said(value)}</text>')
    for number, (name, (low, high, numbers)) in enumerate(rows.items()):
        y, mean = 34 * number + 25, sum(numbers) / len(numbers)
        parts.append(f'<text x="20" y="{y - 9}">{html.escape(name)}</text>')
        parts.append(f'<path d="M{x.at(low):.1f} {y}H{x.at(high):.1f}" stroke="{COLOURS[0]}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{x.at(each):.1f}" cy="{y}" r="3" fill="#fff" stroke="{COLOURS[0]}"/>' for each in numbers
        ]
        parts.append(_mark("diamond", x.at(mean), y, COLOURS[1]))
    parts.append(f'<text x="{WIDTH / 2:.0f}" y="{height - 4}" text-anchor="middle">{html.escape(across)}</text>')
    told = f"{across}: means and intervals of {', '.join(rows)}"
    return f'<figure class="picture">{_svg(parts, told, height)}</figure>'


def bar(share: float, colour: str = COLOURS[0]) -> str:
    """A bar of 0 to 1 beside a number that stands in the text: it says nothing of its own."""
    width = 100 * min(1.0, max(0.0, share))
    drawn = f'<rect width="100" height="10" fill="#eceef2"/><rect width="{width:.1f}" height="10" fill="{colour}"/>'
    return f'<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{drawn}</svg>'


class _Axis:
    """Numbers -> pixels, with ticks at round numbers."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = min(values), max(values)
        if low == high:
            room = abs(low) / 10 or 1.0
            low, high = low - room, high + room
        self.step = _round((high - low) / 4)
        self.low, self.high = self.step * math.floor(low / self.step), self.step * math.ceil(high / self.step)
        self.start, self.end = start, end

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        count = round((self.high - self.low) / self.step)
        return [self.low + i * self.step for i in range(count + 1)]


def _round(size: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(size))
    return next(power * each for each in (1, 2, 5, 10) if power * each >= size * 0.999)


def _frame(x: _Axis, y: _Axis, across: str) -> str:
    """Ticks, their numbers and the name of the horizontal axis."""
    parts = []
    for value in y.ticks():
        at = y.at(value)
        parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="{LINE}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">{_said(value)}</text>')
    ticks = x.ticks()
    for value in ticks[:: max(1, -(-len(ticks) // 5))]:
        anchor = "middle"
        parts.append(
            f'<text x="{x.at(value):.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="{anchor}">{_said(value)}</text>'
        )
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 4}" text-anchor="middle">{html.escape(across)}</text>'
    )
    return "".join(parts)


def _svg(parts: Sequence[str], told: str, height: int = HEIGHT) -> str:
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    return (
        f'<svg {size} font-size="11" fill="{SOFT}" role="img" aria-label="{html.escape(told)}">{"".join(parts)}</svg>'
    )


def _swatch(colour: str, dashed: str, mark: str) -> str:
    return f'<path d="M0 6H30" stroke="{colour}" stroke-width="1.8"{dashed}/>' + _mark(mark, 15, 6, colour)


def _mark(kind: str, x: float, y: float, colour: str) -> str:
    """A mark of some shape; a single point of a curve is one."""
    shapes = {
        "square": "M-3-3H3V3H-3Z",
        "triangle": "M0-4L3.6 3H-3.6Z",
        "diamond": "M0-4.2L4.2 0L0 4.2L-4.2 0Z",
        "cross": "M-3-3L3 3M3-3L-3 3",
        "bar": "M0-4V4",
    }
    if kind == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.8" fill="{colour}"/>'
    drawn = f'stroke="{colour}" stroke-width="2" fill="none"' if kind in ("cross", "bar") else f'fill="{colour}"'
    return f'<path transform="translate({x:.1f} {y:.1f})" d="{shapes[kind]}" {drawn}/>'


def _thinned(curve: Curve) -> Curve:
    """At most POINTS points, the last among them; each stands for itself."""
    if len(curve) <= POINTS:
        return curve
    step = (len(curve) - 1) / (POINTS - 1)
    return [curve[round(i * step)] for i in range(POINTS)]


def _said(value: float) -> str:
    """A number of a tick, short.

    >>> [_said(value) for value in (0.30000000000000004, 1500.0, 2e7, 1e-05)]
    ['0.3', '1500', '2e+07', '1e-05']
    """
    text = f"{value:.6g}" if 1e-4 <= abs(value) < 1e5 or not value else f"{value:.3g}"
    return text if len(text) <= 7 else f"{value:.3g}"

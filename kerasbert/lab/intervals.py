"""Student's t over seeds: intervals, and the verdict on a claim."""

import math
import statistics
from collections.abc import Sequence

LEVEL = 0.95


def coverage(t: float, freedom: int) -> float:
    """P(|T| < t) for whole degrees of freedom, by the finite series (Abramowitz & Stegun, 1964, 26.7.3 and 26.7.4).

    >>> round(coverage(12.706, 1), 4), round(coverage(2.776, 4), 4)
    (0.95, 0.95)
    """
    angle = math.atan(t / math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for power in range(1 + odd, freedom, 2):
        total += term
        term *= power / (power + 1) * cosine**2
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total


def quantile(level: float, freedom: int) -> float:
    """t with P(|T| < t) = level.

    >>> round(quantile(0.95, 4), 3)
    2.776
    """
    low, high = 0.0, 1.0
    while coverage(high, freedom) < level:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if coverage(middle, freedom) < level else (low, middle)
    return high


def interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float, float]:
    """Mean of at least two values and the ends of its t-interval.

    >>> [round(value, 3) for value in interval([1.0, 2.0, 3.0])]
    [2.0, -0.484, 4.484]
    """
    mean, count = statistics.fmean(values), len(values)
    half = quantile(level, count - 1) * statistics.stdev(values) / math.sqrt(count)
    return mean, mean - half, mean + half


def verdict(differences: Sequence[float], level: float = LEVEL) -> str:
    """seen, not seen or opposite: a paired two-sided t-test of differences by seed, positive where the claim holds.

    Equal differences have no spread to judge them by: not seen.

    >>> verdict([0.02, 0.03, 0.025]), verdict([-0.02, 0.03, 0.025]), verdict([-2.0, -2.1, -1.9])
    ('seen', 'not seen', 'opposite')
    """
    _, low, high = interval(differences, level)
    if low == high or low <= 0 <= high:
        return "not seen"
    return "seen" if low > 0 else "opposite"


def exponent(sizes: Sequence[float], losses: Sequence[float]) -> float:
    """a of loss = c * size^a: the slope of log loss over log size by least squares.

    >>> round(exponent([1e5, 1e6, 1e7], [8.0, 4.0, 2.0]), 4)
    -0.301
    """
    return statistics.linear_regression([math.log(x) for x in sizes], [math.log(y) for y in losses]).slope

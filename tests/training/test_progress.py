"""Rates and time left."""

from kerasbert.training import feed
from kerasbert.training.progress import Meter


def test_time_left_counts_later_phases_with_their_work(monkeypatch):
    clock = iter([0.0, 10.0])
    monkeypatch.setattr("kerasbert.training.progress.time.monotonic", lambda: next(clock))
    parts = [feed.Part(90, 8, tokens=100, flops=1e9), feed.Part(100, 8, tokens=400, flops=6e9)]
    meter = Meter(parts, peak=1e9)
    meter.add(parts[0], 1)  # compiles: not counted
    meter.add(parts[0], 5)
    assert meter.read() == {
        "steps_per_second": 0.5,
        "tokens_per_second": 50.0,
        "flops_per_second": 5e8,
        "utilisation": 0.5,
    }
    assert meter.left(10) == (80 * 1e9 + 10 * 6e9) / 5e8

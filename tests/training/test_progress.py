"""Rates and time left."""

import io

import pytest
from rich.console import Console

from kerasbert.training import feed
from kerasbert.training.progress import Meter, Progress


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


@pytest.mark.parametrize("width", [60, 80, 120])
def test_bar_step_and_time_left_are_shown_on_any_terminal(width):
    """On 80 columns the numbers filled the line: neither bar, step nor time left."""
    screen = io.StringIO()
    progress = Progress(100_000, quiet=True)
    progress.quiet = False
    progress.begin(Console(file=screen, width=width, force_terminal=True, color_system=None))
    logs = {"loss": 7.123456, "mlm/accuracy": 0.1234567, "nsp/accuracy": 0.7654321, "tokens_per_second": 12345.6}
    progress.update(52_345, logs | {"flops_per_second": 7.5e10}, left=4 * 86400)
    progress.bar.refresh()
    progress.close()
    lines = [line for line in screen.getvalue().replace("\r", "\n").splitlines() if "52345/100000" in line]
    assert lines
    for line in lines:
        assert "━" in line
        assert "4.0 d left" in line
        assert "loss 7.123" in line
        assert ("tokens/s" in line) == (width >= 120)

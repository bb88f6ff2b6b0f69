"""Rates and time left."""

import io
import json

import pytest
from rich.console import Console

from kerasbert.training import feed
from kerasbert.training.progress import Means, Meter, Progress


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


def test_means_by_hand():
    means = Means()
    for loss, rate in ((1.0, 0.1), (2.0, 0.2), (float("nan"), 0.3)):
        means.add({"loss": loss, "learning_rate": rate})
    means.add({"loss": 6.0, "learning_rate": 0.4}, 3)  # the mean of three updates in one call
    assert means.read() == {"loss": (1 + 2 + 3 * 6) / 5, "learning_rate": 0.4}
    again = Means()
    again.reset(json.loads(json.dumps(means.state())))
    assert again.read() == means.read()
    means.reset()
    assert means.read() == {}


def test_lines_come_by_time_and_the_first_two_updates_have_one(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr("kerasbert.training.progress.time.monotonic", lambda: clock[0])
    shown = Progress(100000, start=40)
    for step, now in ((41, 41.0), (42, 82.0), (43, 90.0), (44, 93.0)):
        clock[0] = now
        if shown.due(step):
            shown.update(step, {"loss": 9.0}, left=4e6)
    assert capsys.readouterr().err.splitlines() == [
        "step 41/100000  loss 9  about 46.3 d left at this rate",
        "step 42/100000  loss 9  about 46.3 d left at this rate",
        "step 44/100000  loss 9  46.3 d left",
    ]
    assert not Progress(3, quiet=True).due(1)

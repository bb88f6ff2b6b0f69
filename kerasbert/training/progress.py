"""What a run tells while it works: rates, and a bar on a terminal, lines elsewhere; both on stderr."""

import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kerasbert.inputs import Tensor
from kerasbert.progress import duration
from kerasbert.training.feed import Part

if TYPE_CHECKING:
    from rich.console import Console

EVERY = 10  # seconds within which a line is shown


class Means:
    """Means of what updates log, each update weighing the same; the numbers stay on the device until they are asked for.

    What is not finite, as the gradient norm of a float16 overflow, is left out.
    """

    def __init__(self) -> None:
        self.waiting: list[tuple[Mapping[str, Tensor], int]] = []
        self.sums: dict[str, list[float]] = {}  # name -> [sum, number of updates, the newest value]

    def add(self, logs: Mapping[str, Tensor], updates: int = 1) -> None:
        """Logs of an update, or their mean over several."""
        self.waiting.append((logs, updates))
        if len(self.waiting) >= 1000:
            self.state()

    def state(self) -> dict[str, list[float]]:
        """The sums as json, for a checkpoint."""
        for logs, updates in self.waiting:
            for name, value in logs.items():
                if math.isfinite(value := float(value)):
                    total = self.sums.get(name, [0.0, 0, 0.0])
                    self.sums[name] = [total[0] + updates * value, total[1] + updates, value]
        self.waiting = []
        return self.sums

    def read(self) -> dict[str, float]:
        """Means by name since `reset`; of the learning rate the newest value."""
        state = self.state().items()
        return {name: last if name == "learning_rate" else total / count for name, (total, count, last) in state}

    def reset(self, sums: Mapping[str, list[float]] | None = None) -> None:
        """Start again, with the sums of a checkpoint where there are any."""
        sums = {name: [float(total), int(count), float(last)] for name, (total, count, last) in (sums or {}).items()}
        self.waiting, self.sums = [], sums


class Meter:
    """Rates of the updates since the last reading, and the time left.

    Args:
        parts: of the run.
        peak: float, FLOP/s of all devices, or None where it is not known.
    """

    def __init__(self, parts: Sequence[Part], peak: float | None = None) -> None:
        self.parts, self.peak = parts, peak
        self.speed: float | None = None  # work per second
        self.begin()

    def begin(self) -> None:
        """Count from the end of the next update on: it may hold a compilation."""
        self.since: float | None = None
        self.updates = self.tokens = self.flops = 0

    def add(self, part: Part, updates: int) -> None:
        """So many updates of a part were made."""
        if self.since is None:
            self.since = time.monotonic()
            return
        self.updates, self.tokens = self.updates + updates, self.tokens + updates * part.tokens
        self.flops += updates * part.flops

    def read(self, again: bool = True) -> dict[str, float]:
        """Rates by name, and, with `again`, start again; nothing before there are two updates."""
        if not self.updates or self.since is None:
            return {}
        now = time.monotonic()
        seconds = max(now - self.since, 1e-9)
        rates = {"steps_per_second": self.updates / seconds}
        self.speed = (self.flops or self.updates) / seconds
        if self.tokens:
            rates["tokens_per_second"] = self.tokens / seconds
        if self.flops:
            rates["flops_per_second"] = self.flops / seconds
            if self.peak:
                rates["utilisation"] = rates["flops_per_second"] / self.peak
        if again:
            self.begin()
            self.since = now
        return rates

    def left(self, step: int) -> float | None:
        """Seconds from update `step` to the end: later phases count with their own work."""
        if not self.speed:
            return None
        work, begin = 0.0, 0
        for part in self.parts:
            work += max(0, part.until - max(begin, step)) * (part.flops or 1)
            begin = part.until
        return work / self.speed


class Progress:
    """One short line: loss, accuracies, useful tokens per second, utilisation, time left.

    Args:
        steps: int, of the whole run.
        start: int, already made.
        quiet: bool.
    """

    def __init__(self, steps: int, start: int = 0, quiet: bool = False) -> None:
        self.steps, self.bar, self.quiet, self.shown, self.start = steps, None, quiet, 0.0, start
        if not quiet and sys.stderr.isatty():
            from rich.console import Console

            self.begin(Console(file=getattr(sys.stderr, "raw", sys.stderr)), start)  # a bar means its escapes

    def begin(self, console: "Console", start: int = 0) -> None:
        """Show a bar on a rich Console: step and time left always fit, the bar and the numbers share what is left."""
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar
        from rich.table import Column

        # one line each: what does not fit is cut at the end of the numbers, never of the step or of the time left
        whole, rest = Column(no_wrap=True), Column(no_wrap=True, overflow="ellipsis", ratio=1)
        columns = (
            BarColumn(bar_width=min(20, console.width // 8)),
            TextColumn("{task.completed:.0f}/{task.total:.0f}", table_column=whole),
            TextColumn("{task.fields[left]}", table_column=whole),
            TextColumn("{task.description}", table_column=rest),
        )
        self.bar = Bar(*columns, console=console, expand=True)
        self.task = self.bar.add_task("", total=self.steps, completed=start, left="")
        self.bar.start()

    def due(self, step: int) -> bool:
        """Whether to show update `step` though no line is logged: after the first two, and when 10 s went by."""
        return not self.quiet and (step - self.start <= 2 or time.monotonic() - self.shown >= EVERY)

    def update(self, step: int, logs: Mapping[str, float], left: float | None = None) -> None:
        """Show the state after update `step`.

        Args:
            left: seconds to the end, where that can be told.
        """
        if self.quiet:
            return
        shown = ("loss", *(k for k in logs if k.endswith("accuracy")))
        parts = [f"{name} {logs[name]:.4g}" for name in shown if name in logs]
        if "tokens_per_second" in logs:
            parts.append(f"{logs['tokens_per_second']:,.0f} tokens/s")
        if "utilisation" in logs:
            parts.append(f"{logs['utilisation']:.0%} of peak")
        elif "flops_per_second" in logs:
            parts.append(f"{logs['flops_per_second'] / 1e9:,.3g} GFLOP/s")
        to_go = f"{duration(left)} left" if left is not None and step < self.steps else ""
        now = time.monotonic()
        if self.bar:
            self.shown = now
            self.bar.update(self.task, completed=step, description="  ".join(parts), left=to_go)
            return
        early = step - self.start <= 2
        if to_go:
            parts.append(f"about {to_go} at this rate" if early else to_go)  # the first estimate is of one update
        line = "  ".join(parts)
        if not early and step < self.steps and now - self.shown < EVERY / 2:
            return
        self.shown = now
        print(f"step {step}/{self.steps}  {line}", file=sys.stderr, flush=True)

    def say(self, line: str) -> None:
        """A line of its own, for instance of an evaluation."""
        if self.bar:
            self.bar.console.print(line)
        elif not self.quiet:
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self.bar:
            self.bar.stop()

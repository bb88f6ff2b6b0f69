"""What a run tells while it works: a bar on a terminal, lines elsewhere; both on stderr."""

import math
import sys
import time
from collections.abc import Mapping


class Progress:
    """Loss, tokens per second and time left.

    Args:
        steps: int, of the whole run. start: int, already made. quiet: bool.
    """

    def __init__(self, steps: int, start: int = 0, quiet: bool = False):
        self.steps, self.start, self.began, self.bar = steps, start, time.monotonic(), None
        self.quiet = quiet
        self.shown = 0.0
        if not quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
            self.bar = Bar(*columns, console=Console(stderr=True))
            self.task = self.bar.add_task("", total=steps, completed=start)
            self.bar.start()

    def update(self, step: int, logs: Mapping[str, float]) -> None:
        """Show the state after update `step`."""
        if self.quiet:
            return
        parts = [
            f"{name} {logs[name]:.4g}"
            for name in ("loss", *(k for k in logs if k.endswith("accuracy")))
            if name in logs
        ]
        if "tokens_per_second" in logs:
            parts.append(f"{logs['tokens_per_second']:,.0f} tokens/s")
        if self.bar:
            self.bar.update(self.task, completed=step, description="  ".join(parts))
            return
        now = time.monotonic()
        if step < self.steps and now - self.shown < 5:
            return
        self.shown = now
        done = max(1, step - self.start)
        left = math.ceil((now - self.began) / done * (self.steps - step))
        print(f"step {step}/{self.steps}  {'  '.join(parts)}  {left} s left", file=sys.stderr, flush=True)

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

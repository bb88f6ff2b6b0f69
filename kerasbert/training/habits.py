"""How a run is watched and kept: checkpoints, lines, evaluations, profile."""

import dataclasses

from kerasbert.errors import InputError


@dataclasses.dataclass(frozen=True)
class Habits:
    """How a run is watched and kept; none of it changes the result.

    Args:
        save_every, log_every, evaluate_every: int, updates; 0 for at the end only. What is logged is the mean over the
            updates since the last line.
        keep_every: int, updates; the checkpoints of these are kept for good, 0 for none of them.
        skip_bad_steps: int, updates that may be left out because loss or gradient is not finite, before the run stops.
        profile: (first update, number of updates) to trace for TensorBoard, or None.
        peak: float, FLOP/s of all devices, where utilisation is to be told and the devices are not known.
        quiet: bool.
    """

    save_every: int = 1000
    log_every: int = 10
    evaluate_every: int = 0
    skip_bad_steps: int = 0
    profile: tuple[int, int] | None = None
    peak: float | None = None
    quiet: bool = False
    keep_every: int = 0

    def __post_init__(self):
        for name in ("save_every", "log_every", "evaluate_every", "skip_bad_steps", "keep_every"):
            least = 1 if name == "log_every" else 0
            if type(getattr(self, name)) is not int or getattr(self, name) < least:
                raise InputError(
                    f"{name} must be a whole number of at least {least}. Received: {getattr(self, name)!r}"
                )
        if self.profile is not None and (len(self.profile) != 2 or self.profile[0] < 0 or self.profile[1] < 1):
            raise InputError(f"profile must be a first update and a number of updates. Received: {self.profile}")
        if self.peak is not None and not self.peak > 0:
            raise InputError(f"peak must be more than 0 FLOP/s. Received: {self.peak}")


DEFAULT = Habits()

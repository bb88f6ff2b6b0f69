"""Learning-rate schedules. Update n counts from 1; the optimizer's step is n - 1."""

import inspect
import math
from collections.abc import Mapping

import keras
from keras import ops

from kerasbert.errors import InputError, near
from kerasbert.inputs import Tensor
from kerasbert.registry import SCHEDULES
from kerasbert.storage.json_view import Json


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to `peak` at update `warmup`, then what a subclass says.

    Args:
        peak: float, largest rate.
        steps: int, updates of the run.
        warmup: int, updates of the warm-up.

    Raises:
        InputError: a run shorter than its warm-up.
    """

    def __init__(self, peak: float, steps: int, warmup: int = 0) -> None:
        if not 0 <= warmup <= steps:
            raise InputError(f"warmup {warmup} is not between 0 and steps {steps}: lower --warmup or raise --steps")
        self.peak, self.steps, self.warmup = peak, steps, warmup

    def __call__(self, step: Tensor) -> Tensor:
        update = ops.cast(step, "float32") + 1.0
        after = self.after(update)
        if not self.warmup:
            return self.peak * after
        return self.peak * ops.where(update <= self.warmup, update / self.warmup, after)

    def after(self, update: Tensor) -> Tensor:
        """The factor of the peak after the warm-up, at update n (float32 scalar)."""
        raise NotImplementedError

    def left(self, update: Tensor) -> Tensor:
        """What is left of the decay, from 1 at its first update to just above 0 at the last: no update has a rate of 0."""
        return ops.clip((self.steps - update + 1.0) / (self.steps - self.warmup + 1.0), 0.0, 1.0)

    def get_config(self) -> Json:
        return dict(vars(self))


class LinearSchedule(Schedule):
    """Down to 0 in a straight line (Devlin et al., 2019, appendix A.2)."""

    def after(self, update: Tensor) -> Tensor:
        return self.left(update)


class PolynomialSchedule(Schedule):
    """Down to `end` along (what is left)^power; power 1 and end 0 are the linear schedule.

    Args:
        power: float.
        end: float, the last rate as a part of the peak.
    """

    def __init__(self, peak: float, steps: int, warmup: int = 0, power: float = 1.0, end: float = 0.0) -> None:
        super().__init__(peak, steps, warmup)
        self.power, self.end = power, end

    def after(self, update: Tensor) -> Tensor:
        return self.end + (1.0 - self.end) * ops.power(self.left(update), self.power)


class CosineSchedule(Schedule):
    """Down to `end` along half a cosine (Loshchilov and Hutter, 2017, equation 5, without restarts).

    Args:
        end: float, the last rate as a part of the peak.
    """

    def __init__(self, peak: float, steps: int, warmup: int = 0, end: float = 0.0) -> None:
        super().__init__(peak, steps, warmup)
        self.end = end

    def after(self, update: Tensor) -> Tensor:
        return self.end + (1.0 - self.end) * 0.5 * (1.0 - ops.cos(math.pi * self.left(update)))


class InverseSquareRootSchedule(Schedule):
    """Falls with 1 / sqrt(n) (Vaswani et al., 2017, section 5.3, "Noam").

    The paper's rate d^-0.5 * min(n^-0.5, n * warmup^-1.5) has its peak (d * warmup)^-0.5 at the end of the warm-up:
    6.99e-4 for d = 512 and 4,000 updates, which is the `peak` to give.
    """

    def after(self, update: Tensor) -> Tensor:
        return ops.sqrt(max(1, self.warmup) / update)


class SlantedTriangularSchedule(Schedule):
    """Up and down in straight lines between peak / ratio and the peak (Howard and Ruder, 2018, equation 3).

    The paper's cut is the warm-up here: cut_frac 0.1 is a warm-up of a tenth of the steps, ours by default.

    Args:
        ratio: float, how much smaller than the peak the smallest rate is.
    """

    def __init__(self, peak: float, steps: int, warmup: int = 0, ratio: float = 32.0) -> None:
        super().__init__(peak, steps, warmup)
        self.ratio = ratio

    def __call__(self, step: Tensor) -> Tensor:
        t = ops.cast(step, "float32")
        falling = 1.0 - (t - self.warmup) / max(1, self.steps - self.warmup)
        p = ops.where(t < self.warmup, t / max(1, self.warmup), ops.maximum(falling, 0.0))
        return self.peak * (1.0 + p * (self.ratio - 1.0)) / self.ratio


class WarmupStableDecaySchedule(Schedule):
    """The peak, until a last part of the run goes down to `end` (Hu et al., 2024, "WSD", equation 1).

    ModernBERT's (Warner et al., 2024, section 2.2.2): down along 1 - sqrt(what is done) (Hägele et al., 2024, equation 2).

    Args:
        decay: float, the last part, as a share of the updates after the warm-up.
        power: float, 1 - (what is done)^power: 0.5 is the square root, 1 a straight line.
        end: float, the last rate as a part of the peak.
    """

    def __init__(
        self, peak: float, steps: int, warmup: int = 0, decay: float = 0.1, power: float = 0.5, end: float = 0.0
    ) -> None:
        super().__init__(peak, steps, warmup)
        self.decay, self.power, self.end = decay, power, end

    def after(self, update: Tensor) -> Tensor:
        last = round(self.decay * (self.steps - self.warmup))
        done = ops.clip((update - (self.steps - last)) / (last + 1.0), 0.0, 1.0)
        return self.end + (1.0 - self.end) * (1.0 - ops.power(done, self.power))


def check_class(name: str, schedule: object) -> None:
    """The rules of SCHEDULES.

    Raises:
        InputError: no subclass of Schedule, or one that does not say what follows the warm-up.
    """
    if not (isinstance(schedule, type) and issubclass(schedule, Schedule)):
        raise InputError(f"the schedule {name!r} is {schedule!r:.80}, expected a subclass of Schedule")
    if schedule.after is Schedule.after and schedule.__call__ is Schedule.__call__:
        raise InputError(f"the schedule {name!r} has no after(update): define it in {schedule.__name__}")


for _name, _schedule in {
    "linear": LinearSchedule,
    "polynomial": PolynomialSchedule,
    "cosine": CosineSchedule,
    "inverse_square_root": InverseSquareRootSchedule,
    "slanted_triangular": SlantedTriangularSchedule,
    "warmup_stable_decay": WarmupStableDecaySchedule,
}.items():
    SCHEDULES.add(_name, _schedule)
RANGES = {"power": (0.0, math.inf), "end": (0.0, 1.0), "ratio": (1.0, math.inf), "decay": (0.0, 1.0)}


def make_schedule(
    name: str, peak: float, steps: int, warmup: int = 0, options: Mapping[str, float] | None = None
) -> Schedule:
    """The schedule of that name.

    >>> round(float(make_schedule("cosine", peak=1.0, steps=9)(4)), 4)
    0.5

    Args:
        options: what the schedule takes besides peak, steps and warm-up.

    Raises:
        InputError: another name or option (the nearest is given), a value out of range.
    """
    schedule = SCHEDULES.find(name)
    known = [option for option in inspect.signature(schedule).parameters if option not in ("peak", "steps", "warmup")]
    for option, value in (options or {}).items():
        if option not in known:
            hint = near(option, known) if known else "It takes none"
            raise InputError(f"schedule {name!r} has no option {option!r}. {hint}")
        low, high = RANGES.get(option, (-math.inf, math.inf))
        if type(value) not in (int, float) or not low <= value <= high:
            raise InputError(f"{option} of schedule {name!r} must be from {low:g} to {high:g}. Received: {value!r}")
    return schedule(peak, steps, warmup, **(options or {}))

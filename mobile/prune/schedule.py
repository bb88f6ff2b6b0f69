"""When the masks are made anew and how sparse they are then."""

import dataclasses

from kerasbert.errors import InputError
from kerasbert.value_types import check_whole

POWER = 3
TIMES = 20  # that the masks are made, unless `frequency` says otherwise


@dataclasses.dataclass(frozen=True)
class Schedule:
    """tfmot's ConstantSparsity (power 0) or PolynomialDecay from a sparsity of 0.

    sparsity * (1 - (1 - (step - begin) / (end - begin))^3) (Zhu and Gupta, 2017, equation 1). The formula stands here
    because tfmot brings all of legacy Keras along; a test compares them. Differs: the last time is `end` itself, where
    tfmot leaves it out unless `frequency` divides end - begin, and the final sparsity is then never reached. A constant sparsity
    is made once: what is gone ranks lowest, so that tfmot's repetitions find the same masks.

    Args:
        sparsity: float in [0, 1), the final one.
        begin, end: int, the first and last update before which the masks are made.
        frequency: int, updates from one time to the next.
        power: int; 0 for the final sparsity from the beginning.
    """

    sparsity: float
    begin: int
    end: int
    frequency: int
    power: int = POWER

    def due(self, step: int) -> bool:
        """Whether the masks are made before update `step`."""
        inside = self.begin <= step <= self.end
        return inside and ((step - self.begin) % self.frequency == 0 or step == self.end)

    def next(self, step: int) -> int | None:
        """The next due update after `step`."""
        if step >= self.end:
            return None
        if step < self.begin:
            return self.begin
        return min(self.end, step + self.frequency - (step - self.begin) % self.frequency)

    def at(self, step: int) -> float:
        """The sparsity of masks made before update `step`."""
        if self.end == self.begin or self.power == 0:
            return self.sparsity
        progress = min(1.0, max(0.0, (step - self.begin) / (self.end - self.begin)))
        return self.sparsity * (1 - (1 - progress) ** self.power)


def make_schedule(
    name: str, sparsity: float, steps: int, begin: int | None, end: int | None, frequency: int | None
) -> Schedule:
    """The schedule of a training of `steps` updates.

    Args:
        name: "polynomial" (by default from the beginning to two thirds of the updates, so that the rest repairs what the
            last masks broke) or "constant" (once, before update `begin`).

    Raises:
        InputError: an update outside of the training, or in the wrong order.
    """
    begin = 0 if begin is None else begin
    end = begin if name == "constant" else (max(begin, 2 * steps // 3) if end is None else end)
    for what, value, low, high in (("begin", begin, 0, steps - 1), ("end", end, begin, steps - 1)):
        if type(value) is not int or not low <= value <= high:
            raise InputError(f"{what} of pruning must be from {low} to {high}, of {steps} updates. Received: {value!r}")
    frequency = max(1, (end - begin) // TIMES) if frequency is None else frequency
    check_whole("frequency of pruning", frequency)
    return Schedule(sparsity, begin, end, frequency, power=0 if name == "constant" else POWER)

"""Slices of TPU chips, and the least time that a step can take on them. Standard library only."""

import dataclasses
import math
import re

from kerasbert.errors import InputError, unknown
from kerasbert.training.chips import CHIPS, Chip


@dataclasses.dataclass(frozen=True)
class Slice:
    """Chips wired together: `v5e:2x2`."""

    kind: str
    shape: tuple[int, ...]

    @property
    def chip(self) -> Chip:
        """One of them."""
        return CHIPS[self.kind]

    @property
    def chips(self) -> int:
        """How many."""
        return math.prod(self.shape)

    @property
    def replicas(self) -> int:
        """Programs that run at the same time."""
        return self.chips * self.chip.devices

    def __str__(self) -> str:
        return f"{self.kind}:{'x'.join(map(str, self.shape))}"


def topology(name: str) -> Slice:
    """`v5e:2x2`, `v4:2x2x1` -> Slice.

    Raises:
        InputError: another form, an unknown chip.
    """
    match = re.fullmatch(r"(\w+):([1-9]\d*(?:x[1-9]\d*){1,2})", name)
    if not match:
        raise InputError(f"no topology {name!r}, expected CHIP:AxB or CHIP:AxBxC such as v5e:2x2 or v4:2x2x1")
    if match[1] not in CHIPS:
        raise unknown("TPU chip", match[1], CHIPS, ", ".join(CHIPS))
    return Slice(match[1], tuple(map(int, match[2].split("x"))))


@dataclasses.dataclass(frozen=True)
class Roofline:
    """The least seconds that each resource needs for one step, were it used without a pause.

    Williams et al., 2009: a program is no faster than its slowest resource. The sum over replicas can overlap with the
    computation; it is bounded apart.
    """

    compute: float
    memory: float
    links: float

    @property
    def seconds(self) -> float:
        """The bound."""
        return max(self.compute, self.memory, self.links)

    @property
    def limit(self) -> str:
        """Which resource it comes from."""
        return max(("compute", "memory", "links"), key=lambda name: getattr(self, name))

    @property
    def utilisation(self) -> float:
        """The largest share of the chip's peak FLOP/s that the step can reach."""
        return self.compute / self.seconds if self.seconds else 0.0


def roofline(where: Slice, *, flops: float, moved: float, reduced: float) -> Roofline:
    """The bound of one step on one device.

    Args:
        where: Slice.
        flops: FLOPs.
        moved: bytes from and to HBM.
        reduced: bytes that are summed over the replicas; a ring sends and receives 2 (n - 1) / n of them
            (Patarasu and Yuan, 2009), over links that carry half their bandwidth each way.
    """
    device, n = where.chip.device, where.replicas
    return Roofline(flops / device.peak, moved / device.bandwidth, 2 * (n - 1) / n * reduced / (device.links / 2))

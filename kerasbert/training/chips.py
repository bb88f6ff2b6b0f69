"""TPU chips: what one can do. Standard library only."""

import dataclasses
import urllib.error
import urllib.request

GB = 2**30  # as libtpu counts HBM


@dataclasses.dataclass(frozen=True)
class Chip:
    """What one chip can do.

    Args:
        hbm: bytes of memory.
        peak: bf16 FLOP/s.
        bandwidth: bytes/s of that memory.
        links: bytes/s between chips.
        devices: what XLA compiles for: one program a chip, on v4 one a core, which has half of everything.
    """

    hbm: float
    peak: float
    bandwidth: float
    links: float
    devices: int = 1

    @property
    def device(self) -> "Chip":
        """The share of one device."""
        n = self.devices
        return Chip(self.hbm / n, self.peak / n, self.bandwidth / n, self.links / n)


# Google Cloud, "TPU system architecture", one page per version: HBM capacity, peak compute (bf16), HBM bandwidth,
# inter-chip interconnect bandwidth (per chip, both directions together). The memory is what libtpu lets a program
# have, from its own CompileTimeHbmOom (a slow test): of v5e's 16 GB it keeps 0.25.
CHIPS = {
    "v4": Chip(30.5 * GB, 275e12, 1228e9, 300e9, devices=2),
    "v5e": Chip(15.75 * GB, 197e12, 819e9, 200e9),
    "v5p": Chip(95.73 * GB, 459e12, 2765e9, 600e9),
    "v6e": Chip(31.24 * GB, 918e12, 1640e9, 448e9),
}
# FLOP/s, also of chips that libtpu does not compile for
PEAKS = {"v2": 45e12, "v3": 123e12} | {name: chip.peak for name, chip in CHIPS.items()}
ACCELERATORS = {"v5litepod": "v5e"}  # as gcloud names them, where another name is usual


def kind(accelerator: str | None) -> str | None:
    """The kind of chip of an accelerator type, None where it is not known.

    >>> kind("v5litepod-16"), kind("v4-32"), kind("v3-8"), kind(None)
    ('v5e', 'v4', 'v3', None)
    """
    name = (accelerator or "").partition("-")[0]
    name = ACCELERATORS.get(name, name)
    return name if name in PEAKS else None


def metadata(name: str) -> str | None:
    """An attribute of this Google Cloud machine, such as its zone; None elsewhere."""
    host = "http://metadata.google.internal/computeMetadata/v1/instance/"
    request = urllib.request.Request(host + name, headers={"Metadata-Flavor": "Google"})
    try:
        with urllib.request.urlopen(request, timeout=1) as answer:
            return answer.read().decode().rpartition("/")[2] or None
    except (OSError, urllib.error.URLError, ValueError):
        return None

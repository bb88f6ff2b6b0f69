"""Pruning: `magnitude` makes weights zero (the file zips smaller), `heads`, `width` and `layers` take them out (it runs faster).

Imports nothing heavy.
"""

import importlib
from typing import Any

_HOMES = {
    "Magnitude": "sparsity",
    "magnitude": "sparsity",
    "sparsity_of": "sparsity",
    "heads": "structured",
    "layers": "structured",
    "width": "structured",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"kerasbert.mobile.prune.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'kerasbert.mobile.prune' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

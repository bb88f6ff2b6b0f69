"""Quantization: `aware` trains a model further with the rounding of its int8 file. Imports nothing heavy."""

import importlib
from typing import Any

_HOMES = {
    "Aware": "aware_training",
    "aware": "aware_training",
    "simulated": "aware_training",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"kerasbert.mobile.quantize.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'kerasbert.mobile.quantize' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Distillation: a student learns what a frozen teacher answers, or how it computes. Imports nothing heavy."""

import importlib
from typing import Any

_HOMES = {"distill": "teach", "Distillation": "recipes", "RECIPES": "recipes", "LOSSES": "recipes"}
__all__ = ["LOSSES", "RECIPES", "Distillation", "distill"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"kerasbert.mobile.distill.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'kerasbert.mobile.distill' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

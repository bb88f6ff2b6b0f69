"""Distillation: a student learns what a frozen teacher answers, or how it computes. Imports nothing heavy."""

from kerasbert import lazy

_HOMES = {"distill": "teach", "Distillation": "recipes", "RECIPES": "recipes", "LOSSES": "recipes"}
__getattr__, __dir__, __all__ = lazy.public(__name__, _HOMES)

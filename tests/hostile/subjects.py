"""What is done with a mutated file: path -> answer, a json value of numbers and texts. Runs in the worker."""

import importlib
from pathlib import Path
from typing import Any

IMPORTS = {"tflite": ("kerasbert.mobile.runtime", "ai_edge_litert.interpreter", "ai_edge_litert.compiled_model")}


def prepare(name: str) -> None:
    """Import what a subject needs, before the worker forks."""
    for module in IMPORTS.get(name, ()):
        importlib.import_module(module)


def tflite(path: str) -> Any:
    """Load a .tflite with a cache beside it, and answer a few texts."""
    from kerasbert.mobile.runtime import load

    model = load(path, cache=Path(path).parent / "cache")
    return [answer.to_json() for answer in model(["a good film", "the plot is not good", "x" * 50])]

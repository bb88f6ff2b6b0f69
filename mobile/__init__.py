"""From a fine-tuned model to a phone: `compress` writes a .tflite, `kerasbert.mobile.runtime` runs it. Imports nothing heavy.

`trim` takes pieces out of the vocabulary, `kerasbert.mobile.distill` and `kerasbert.mobile.prune` make the model smaller,
`kerasbert.mobile.quantize` trains it for its int8 file, `run_plan` does all of it one after the other.
"""

import importlib
from typing import Any

# the file is not called compress.py: importing it would put the module in the place of the function
_HOMES = {"compress": "compression", "load": "runtime", "trim": "trimming", "Plan": "plan", "run_plan": "plan"}
__all__ = ["Plan", "compress", "load", "run_plan", "trim"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"kerasbert.mobile.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'kerasbert.mobile' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

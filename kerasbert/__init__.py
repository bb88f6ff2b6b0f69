"""kerasbert: the BERT family from raw text to a phone.

Public names are loaded on first use; this file imports only the standard library.
"""

import importlib
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "list_models": "registry",
    "build": "tasks.load",
    "load": "tasks.load",
    "pretrain": "training.pretrain",
    "read_recipe": "training.recipe",
    "finetune": "training.finetune",
    "evaluate": "training.finetune",
    "predict": "tasks.predict",
    "encode": "tasks.predict",
    "import_checkpoint": "checkpoints",
    "export_checkpoint": "checkpoints",
    "Spec": "spec",
    "InputError": "errors",
}
__all__ = [*_HOMES, "export", "mobile"]

# An install puts the sibling `mobile/` into the package (setup.cfg, package_dir); a source tree has it beside.
_tree = Path(__file__).resolve().parent.parent
if not Path(__file__).with_name("mobile").is_dir() and (_tree / "mobile" / "runtime").is_dir():
    __path__.append(str(_tree))


def __getattr__(name: str) -> Any:
    if name in ("export", "mobile"):
        return importlib.import_module(f"kerasbert.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"kerasbert.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'kerasbert' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

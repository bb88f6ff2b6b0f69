"""What leaves the toolkit: the bundle inside exported files, SavedModels, serving. Imports nothing heavy.

`kb.export(run, out)` and `kerasbert.export.bundle` are both public names, so this package can be called.
"""

import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


class _Package(types.ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> "Path":
        """Write a SavedModel; see `kerasbert.export.saved_model.export`."""
        from kerasbert.export.saved_model import export

        return export(*arguments, **options)


sys.modules[__name__].__class__ = _Package

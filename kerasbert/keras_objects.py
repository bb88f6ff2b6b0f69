"""Our Keras classes are known to `keras.saving` by their names before the modules that hold them are imported.

So `keras.models.load_model("mine.keras")` works after `import kerasbert`, which imports neither Keras nor TensorFlow: the
names are registered as soon as Keras itself is imported.
"""

import functools
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from kerasbert.storage.json_view import JsonMap


class Later:
    """Stands for a class where Keras makes objects of configurations: its module is imported then.

    Args:
        place: str, "module:name".
    """

    def __init__(self, place: str) -> None:
        self.place = place

    def from_config(self, config: JsonMap) -> object:
        """The object of a configuration, by the class itself."""
        module, _, name = self.place.partition(":")
        kind = functools.reduce(getattr, name.split("."), importlib.import_module(module))
        return kind.from_config(config)


def register() -> None:
    """Enter the names of what ships; those that are registered already stay."""
    import keras

    from kerasbert.table import shipped

    known = keras.saving.get_custom_objects()
    for name, place in shipped().get("keras_objects", {}).items():
        known.setdefault(name, Later(place))


class AfterKeras:
    """A finder that registers the names when Keras has been imported; then it is gone."""

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Keras' own spec, of which running the module ends with `register`; None of another module."""
        if name != "keras":
            return None
        sys.meta_path.remove(self)  # pyright: ignore[reportArgumentType]
        spec = importlib.util.find_spec(name)
        loader: Any = spec and spec.loader
        if loader is not None:
            run = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                register()

            loader.exec_module = exec_module
        return spec


def install() -> None:
    """Register the names, now or when Keras is imported."""
    if "keras" not in sys.modules:
        sys.meta_path.insert(0, AfterKeras())  # pyright: ignore[reportArgumentType]
    elif hasattr(sys.modules["keras"], "saving"):
        register()

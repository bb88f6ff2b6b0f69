"""TensorFlow and Keras without what they import for parts that are not used here: scikit-learn, matplotlib and JAX, 2 s.

After `import kerasbert`, which imports neither, these parts of Keras are imported when something of them is used, and TensorFlow
Lite imports JAX when it converts a function of JAX. Whoever uses them finds what was always there.

No garbage is looked for while the two are imported: a million objects, all of which stay (.4 s). TensorFlow multiplies by oneDNN
on every x86 processor, and not on those with AVX512-VNNI alone.
"""

import atexit
import functools
import gc
import importlib.machinery
import importlib.util
import os
import sys
import threading
import types
from typing import Any

from kerasbert.lazy import later

LATER = (
    "keras.src.visualization",  # matplotlib.pyplot
    *(f"{keras}.{part}" for keras in ("keras", "keras._tf_keras.keras") for part in ("visualization", "wrappers")),
)
WITHOUT_JAX = {  # modules that try to import it -> the library without which they never use it
    "tensorflow.lite.python.util": "",  # `from jax import jit as _jit`, else None
    "keras.src.callbacks.orbax_checkpoint": "orbax",  # mends JAX before 0.5 for Orbax
}
UNCOLLECTED = ("tensorflow", "keras")
ONEDNN = "TF_ENABLE_ONEDNN_OPTS"  # 1 is TensorFlow's own choice where there is AVX512-VNNI; with AVX2 an update takes .84 with it
_lock = threading.RLock()
_command = threading.Event()  # set in a process that ends with a command


class LaterModule(types.ModuleType):
    """A module whose file is run when a name of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what goes through all modules asks for these
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self._load()
        return types.ModuleType.__getattribute__(self, name)

    def __dir__(self) -> list[str]:
        self._load()
        return sorted(vars(self))

    def _load(self) -> None:
        with _lock:
            if (run := vars(self).pop("__run__", None)) is not None:
                try:
                    run(self)
                except BaseException:
                    vars(self)["__run__"] = run
                    raise
                object.__setattr__(self, "__class__", types.ModuleType)


class Light:
    """A finder of these modules alone."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The module's own spec, of which running the module is another; None of another module."""
        way = _later if name in LATER else _without_jax if name in WITHOUT_JAX else None
        way = _uncollected if name in UNCOLLECTED else way
        if way is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        loader: Any = spec and spec.loader
        if loader is not None:
            loader.exec_module = functools.partial(way, run=loader.exec_module)
        return spec


def _uncollected(module: Any, run: Any) -> None:
    """Run the module while no garbage is looked for.

    Raises:
        FileNotFoundError: no temporary file can be written, which TensorFlow's import wants to know after seconds.
    """
    import platform  # here: a phone does without
    import tempfile

    tempfile.gettempdir()
    if module.__name__ == "tensorflow" and platform.machine() in ("x86_64", "AMD64"):
        os.environ.setdefault(ONEDNN, "1")
    enabled = gc.isenabled()
    gc.disable()
    try:
        run(module)
    finally:
        if enabled:
            if _command.is_set():
                gc.freeze()
            gc.enable()


def _later(module: Any, run: Any) -> None:
    vars(module)["__run__"] = run
    module.__class__ = LaterModule


def _without_jax(module: Any, run: Any) -> None:
    """Run the module as if there were no JAX; a function that it wanted imports JAX when it is called."""
    user = WITHOUT_JAX[module.__name__]
    if "jax" in sys.modules or not _installed("jax") or (user and _installed(user)):
        run(module)
        return
    sys.modules["jax"] = None  # pyright: ignore[reportArgumentType]  # an import of it is an ImportError
    try:
        run(module)
    finally:
        del sys.modules["jax"]
    if hasattr(module, "_jit"):
        module._jit = later("jax", "jit")


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # somebody's finder forbids it, or what stands for it has no spec
        return False


def install() -> None:
    """From now on; what has been imported already stays."""
    sys.meta_path.insert(0, Light())  # pyright: ignore[reportArgumentType]


def of_a_command() -> None:
    """This process ends with a command: what was imported is never looked through for garbage, at the end nothing is (1 s)."""
    _command.set()
    atexit.register(gc.freeze)

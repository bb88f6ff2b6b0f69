"""TensorFlow has no types: every public name is Any. Its private modules are read from the package itself."""

from typing import Any

def __getattr__(name: str) -> Any: ...

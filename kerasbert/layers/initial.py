"""What weights begin as."""

import contextlib
from collections.abc import Iterator, Sequence

import keras
from keras import ops

from kerasbert.inputs import Tensor

_unset = False


@contextlib.contextmanager
def unset() -> Iterator[None]:
    """Within it kernels and tables begin at 0 and no numbers are drawn: their values are read from a file next."""
    global _unset
    old, _unset = _unset, True
    try:
        yield
    finally:
        _unset = old


class Normal(keras.initializers.TruncatedNormal):
    """Keras' truncated normal; zeros within `unset`, and the initializers after it draw what they always do."""

    def __call__(self, shape: Sequence[int], dtype: str | None = None) -> Tensor:
        return ops.zeros(shape, dtype) if _unset else super().__call__(shape, dtype)

"""What weights begin as."""

import contextlib
import contextvars
from collections.abc import Sequence

import keras
from keras import ops

from kerasbert.inputs import Tensor
from kerasbert.within import within

_unset: contextvars.ContextVar[bool] = contextvars.ContextVar("unset", default=False)


def unset() -> contextlib.AbstractContextManager[object]:
    """Within it kernels and tables begin at 0 and no numbers are drawn: their values are read from a file next."""
    return within(_unset, True)


class Normal(keras.initializers.TruncatedNormal):
    """Keras' truncated normal; zeros within `unset`, and the initializers after it draw what they always do."""

    def __call__(self, shape: Sequence[int], dtype: str | None = None) -> Tensor:
        return ops.zeros(shape, dtype) if _unset.get() else super().__call__(shape, dtype)

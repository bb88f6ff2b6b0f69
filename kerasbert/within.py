"""What holds within a block, in the thread that is in it: others load, train and answer at the same time."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import TypeVar

Value = TypeVar("Value")


@contextlib.contextmanager
def within(variable: contextvars.ContextVar[Value], value: Value) -> Iterator[Value]:
    """In this block the variable has the value.

    >>> depth = contextvars.ContextVar("depth", default=0)
    >>> with within(depth, 1) as value:
    ...     depth.get(), value
    (1, 1)
    >>> depth.get()
    0
    """
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)

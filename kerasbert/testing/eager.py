"""Tiny models without graphs."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """Without graphs: a tiny model's step takes less than its tracing."""
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)

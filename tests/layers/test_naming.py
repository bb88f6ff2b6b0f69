"""Values of weights by name."""

import numpy as np

from kerasbert.layers.embeddings import Table
from kerasbert.layers.naming import copied, values


def test_what_was_copied_is_left_alone_by_later_updates():
    table = Table(3, 2, name="toy")
    table.build()
    table.table.assign(np.arange(6.0).reshape(3, 2))
    kept, own = values(table), copied(table.table)
    table.table.value.assign_add(np.ones((3, 2)))  # in its own memory
    for array in (kept["table"], own):
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, np.arange(6.0).reshape(3, 2))

"""Fast forms equal the plain ones."""

import numpy as np
from keras import ops

from kerasbert.layers import backend


def test_gather_pick_and_project_equal_their_plain_forms():
    generator = np.random.default_rng(0)
    table, ids = generator.normal(size=(11, 3)).astype("float32"), generator.integers(0, 11, (2, 5))
    np.testing.assert_array_equal(backend.gather(table, ids), table[ids])
    x, positions = generator.normal(size=(2, 7, 3)).astype("float32"), generator.integers(0, 7, (2, 4))
    plain = np.take_along_axis(x, positions[:, :, None], axis=1)
    np.testing.assert_array_equal(backend.pick(ops.convert_to_tensor(x), positions), plain)
    np.testing.assert_array_equal(backend.pick_by_contraction(ops.convert_to_tensor(x), positions), plain)
    kernel = generator.normal(size=(3, 6)).astype("float32")
    np.testing.assert_allclose(backend.project(ops.convert_to_tensor(x), kernel), x @ kernel, rtol=1e-5)

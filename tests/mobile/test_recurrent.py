"""Recurrent layers on the phone: a loop, no Flex, a state that goes in and comes out."""

import numpy as np
import pytest

from kerasbert.mobile.tflite import repack
from tests.benchmarks.bench_lstm import CELLS, Reader, file, opened, read

pytestmark = pytest.mark.slow

LENGTH, UNITS = 12, 64  # below 1,024 numbers the converter leaves a weight float


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize(("quantize", "near"), [("float32", 1e-4), ("dynamic_int8", 0.02)])
def test_a_text_in_pieces_is_the_whole(kind, quantize, near):
    """Float within 1e-4 of Keras, int8 within 2% of its range; the pieces within 1e-5 of the whole."""
    model, generator = Reader(CELLS[kind], UNITS), np.random.default_rng(1)
    x = generator.normal(size=(1, LENGTH, UNITS)).astype("float32")
    state = [generator.normal(0, 0.5, (1, width)).astype("float32") for width in model.layer.widths]
    wanted = model({"x": x} | {f"state_{i}": each for i, each in enumerate(state)})
    data = file(model, (LENGTH, 4), quantize)
    operators = repack.operators(data)
    assert "WHILE" in operators
    interpreter = opened(data)
    whole, end = read(interpreter, x, state)
    np.testing.assert_allclose(whole, wanted["y"], atol=near)
    pieces = []
    for begin in range(0, LENGTH, 4):
        y, state = read(interpreter, x[:, begin : begin + 4], state)
        pieces.append(y)
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), whole, atol=1e-5)
    for one, other in zip(state, end, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)

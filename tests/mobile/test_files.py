"""Stored files (tests/golden/files) answer with the numbers that they were written with, in the phone's runtime."""

import json

import numpy as np
import pytest

from kerasbert.mobile.runtime import load
from tests.support import ROOT

FILES = ROOT / "tests/golden/files"
EXPECTED = json.loads((FILES / "expected.json").read_text())
TEXTS = ["the happy cat sees the dog", "a sad old film", "good bad good", "stone house, river", ""]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_stored_file_answers_as_ever(name):
    model = load(FILES / name, cache=False)
    tolerance = 1e-3 if "int8" in model.bundle.quantization else 1e-5
    np.testing.assert_allclose(model.outputs(TEXTS), EXPECTED[name], rtol=tolerance, atol=tolerance)

"""The file that vectors are written to, while others write too."""

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.retrieval.vector_file import VectorFile


def test_two_processes_do_not_write_one_file(tmp_path):
    """And one that is done leaves what another one writes for the same place, of other vectors."""
    held, whole = tmp_path / "vectors.npy", np.zeros((3, 4), "float32")
    with VectorFile(held, {}, (3, 4), "float32") as one:
        with pytest.raises(InputError, match="another process writes"):
            VectorFile(held, {}, (3, 4), "float32").__enter__()
        one.add(whole)
        with VectorFile(held, {"model": "other"}, (3, 4), "float32") as other:
            other.add(whole)
            other.done()
        assert list(tmp_path.iterdir()) == [one.path]
        one.copy(held)
    with VectorFile(held, {"model": "third"}, (3, 4), "float32") as third:
        third.add(whole)
        third.done()
    assert list(tmp_path.iterdir()) == [held]

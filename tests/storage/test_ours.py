"""What is told to be of ours, and so replaced by --overwrite."""

import numpy as np
import pytest

from kerasbert.storage import places


def test_what_a_run_gathers_is_ours(tmp_path):
    """Checkpoints, with what pruning and rounding keep beside the weights; and folders that were empty from the start."""
    run = tmp_path / "run"
    (run / "assets").mkdir(parents=True)
    (run / "run.json").write_text("{}")
    places.mark(run)
    step = run / "checkpoints" / "step_3"
    step.mkdir(parents=True)
    for name in ("manifest.json", "weights.safetensors", "optimizer.safetensors", "constraint.safetensors"):
        (step / name).write_text("x")
    assert places.foreign(run) == ""
    (run / "pictures").mkdir()
    assert places.foreign(run) == "holds pictures, which is not kerasbert's"


@pytest.mark.parametrize(
    ("array", "ours"),
    [
        (np.zeros((3, 4), "float32"), True),
        (np.zeros((0, 4), "float16"), True),
        (np.zeros((3, 4), "int8"), True),
        (np.zeros((12345, 48), "uint8"), True),
        (np.zeros((3, 4)), False),  # numpy's own default: another's
        (np.zeros(3, "float32"), False),
        (np.zeros((3, 4, 5), "float32"), False),
        (np.zeros((3, 4), "int64"), False),
        (np.asfortranarray(np.zeros((3, 4), "float32")), False),
    ],
    ids=lambda value: f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else "",
)
def test_an_array_that_encode_cannot_have_written_is_kept(array, ours, tmp_path):
    np.save(tmp_path / "x.npy", array)
    assert places.is_ours(tmp_path / "x.npy", "vectors") is ours

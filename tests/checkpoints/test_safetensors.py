"""The file format: bytes by hand, damage, precision."""

import json

import numpy as np
import pytest

from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.errors import InputError

VALUES = {
    "b": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a": np.float32([0.5]),
    "empty": np.zeros((0, 4), np.float32),
}


def write(path, values=VALUES, metadata=None):
    write_safetensors(path, {name: value.shape for name, value in values.items()}, values.__getitem__, metadata)
    return path


def raw(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_bytes_by_hand(tmp_path):
    header = b'{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    header += b" " * (-len(header) % 8)
    expected = len(header).to_bytes(8, "little") + header + bytes.fromhex("0000803f000000c0")
    assert write(tmp_path / "x", {"x": np.float32([1, -2])}).read_bytes() == expected


def test_round_trip_whatever_the_order(tmp_path):
    one = write(tmp_path / "one", VALUES, {"format": "pt"})
    other = write(tmp_path / "other", dict(reversed(VALUES.items())), {"format": "pt"})
    assert one.read_bytes() == other.read_bytes()
    file = Safetensors(one)
    assert file.names() == ["a", "b", "empty"]
    for name, value in VALUES.items():
        assert file.shape(name) == value.shape
        np.testing.assert_array_equal(file.read(name), value)
        assert file.read(name).dtype == np.float32


@pytest.mark.parametrize(
    ("dtype", "data"), [("BF16", "803f00c0"), ("F16", "003c00c0"), ("F64", "000000000000f03f00000000000000c0")]
)
def test_other_precisions_become_float32(tmp_path, dtype, data):
    data = bytes.fromhex(data)
    path = raw(tmp_path / "x", {"x": {"dtype": dtype, "shape": [2], "data_offsets": [0, len(data)]}}, data)
    np.testing.assert_array_equal(Safetensors(path).read("x"), np.float32([1, -2]))


def test_integers_are_no_weights(tmp_path):
    path = raw(tmp_path / "x", {"x": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}, bytes(8))
    file = Safetensors(path)
    with pytest.raises(InputError, match=r"x in .* is I64, expected F32, F16, BF16 or F64"):
        file.read("x")


def test_truncated_anywhere(tmp_path):
    whole = write(tmp_path / "whole").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "part").write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"truncated|damaged"):
            Safetensors(tmp_path / "part")


@pytest.mark.parametrize(
    "header",
    [
        b"{",
        b"\xff\xff",
        b"[1]",
        b"[" * 50_000,
        {"x": 1},
        {"x": {"dtype": "F32", "shape": [1]}},
        {"x": {"dtype": "F32", "shape": ["?"], "data_offsets": [0, 4]}},
        {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}},
        {"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}},
        {"x": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}},
        {"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}},
    ],
)
def test_damaged_header(tmp_path, header):
    with pytest.raises(InputError, match="damaged"):
        Safetensors(raw(tmp_path / "x", header, bytes(4)))


def test_no_such_file(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*nothing: No such file"):
        Safetensors(tmp_path / "nothing")


def test_a_wrong_shape_is_not_written(tmp_path):
    with pytest.raises(ValueError, match=r"x has shape \(1,\), expected \(2,\)"):
        write_safetensors(tmp_path / "x", {"x": (2,)}, lambda name: np.zeros(1, np.float32))

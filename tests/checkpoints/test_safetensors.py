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
    "one": np.float32(2.5),  # without an axis, as a scale of a plug-in's layer
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
    assert file.names() == ["a", "b", "empty", "one"]
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


def entry(**changes):
    return {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **changes}


TWICE = b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'


@pytest.mark.parametrize(
    ("header", "size", "message"),
    [
        ({"x": entry(), "y": entry()}, 4, "'y' at byte 0, which overlaps"),
        ({"x": entry(), "y": entry(data_offsets=[8, 12])}, 12, "'y' at byte 8, which leaves a hole"),
        ({"x": entry(data_offsets=[4, 8])}, 8, "'x' at byte 4, which leaves a hole"),
        ({"x": entry()}, 5, "describes 4 bytes of tensors, the file holds 5"),
        ({"x": entry(shape=[1.5])}, 4, r"the shape \[1.5\], expected"),
        ({"x": entry(shape=["1"])}, 4, r"the shape \['1'\], expected"),
        ({"x": entry(shape=[True])}, 4, r"the shape \[True\], expected"),
        ({"x": entry(shape=[-1])}, 4, r"the shape \[-1.0\], expected"),
        ({"x": entry(shape=[1] * 71)}, 4, "expected at most 64 sizes"),
        ({"x": entry(shape=[2**63, 2**63, 0], data_offsets=[0, 0])}, 0, "product is above 2"),
        ({"x": entry(shape=[2**64])}, 4, r"the shape \[18446744073709551616\], expected"),
        ({"x": entry(data_offsets=[0, 4, 4])}, 4, r"expected \[begin, end\]"),
        ({"x": entry(data_offsets=[0, 3])}, 3, r"3 bytes, expected 4 of F32 \[1\]"),
        ({"x": entry(dtype="F31")}, 4, "the dtype 'F31', expected one of"),
        ({"x": entry(dtype=None)}, 4, "the dtype 'None', expected one of"),
        ({"x": entry(), "__metadata__": {"a": 1}}, 4, "__metadata__ that is no object of texts"),
        (TWICE, 4, "names 'x' twice"),
        (b'{"x":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 4, "a field of 'x' twice"),
        (b'{"x":NaN}', 4, "holds NaN"),
        (b'{"\xff":1}', 4, r"no json in UTF-8 \(UnicodeDecodeError\)"),
        ("{}".encode("utf-16"), 0, "no json in UTF-8"),
        (b"\xef\xbb\xbf{}", 0, "no json in UTF-8"),
    ],
)
def test_what_the_reference_refuses_is_refused(tmp_path, header, size, message):
    with pytest.raises(InputError, match=message) as told:
        Safetensors(raw(tmp_path / "odd.safetensors", header, bytes(size)))
    assert "odd.safetensors is damaged or truncated: its header" in str(told.value)
    assert "\n" not in str(told.value)


def mutated(rng):
    """A header and data, one or two things changed at random."""
    header = {"a": entry(shape=[2], data_offsets=[0, 8]), "b": entry(data_offsets=[8, 12]), "c": entry(dtype="F16")}
    header["c"] |= {"shape": [0, 3], "data_offsets": [12, 12]}
    header["__metadata__"] = {"format": "pt"}
    data = bytes(12)
    odd = [0, 1, 2, 4, 8, 12, -1, 2**32, 2**63, 2**64, 1.0, 0.5, True, None, "1", [1], {}]
    for _ in range(rng.integers(1, 3)):
        name = rng.choice(["a", "b", "c"])
        match rng.integers(0, 7) if isinstance(header[name], dict) else 3:
            case 0:
                header[name]["shape"] = [odd[i] for i in rng.integers(0, len(odd), rng.integers(0, 4))]
            case 1:
                header[name]["data_offsets"] = [0, odd[rng.integers(0, len(odd))]][:: rng.choice([-1, 1])]
            case 2:
                header[name]["dtype"] = ["F64", "BF16", "C64", "F4", "f32", "BOOL", None][rng.integers(0, 7)]
            case 3:
                data = data[: rng.integers(0, 12)] if rng.integers(0, 2) else data + bytes(int(rng.integers(1, 5)))
            case 4:
                header[["__metadata__", "d", name][rng.integers(0, 3)]] = odd[rng.integers(0, len(odd))]
            case 5:
                header[name].pop(["shape", "dtype", "data_offsets", "extra"][rng.integers(0, 4)], None)
            case 6:
                header[name]["extra"] = odd[rng.integers(0, len(odd))]
    text = bytearray(json.dumps(header).encode())
    if rng.integers(0, 3) == 0:
        text[rng.integers(0, len(text))] = rng.integers(0, 256)
    return bytes(text), data


@pytest.mark.slow
def test_four_hundred_mutated_files_as_the_reference(tmp_path):
    reference = pytest.importorskip("safetensors")
    rng, counts = np.random.default_rng(0), {"refused": 0, "read": 0}
    for i in range(400):
        path = raw(tmp_path / f"{i}.safetensors", *mutated(rng))
        try:
            with reference.safe_open(path, "np") as file:
                expected = sorted(file.keys())
        except (reference.SafetensorError, OSError):
            expected = None
        if expected is None:
            with pytest.raises(InputError, match=f"{i}.safetensors is"):
                Safetensors(path)
        else:
            assert Safetensors(path).names() == expected, path.read_bytes()
        counts["refused" if expected is None else "read"] += 1
    assert min(counts.values()) > 30, counts

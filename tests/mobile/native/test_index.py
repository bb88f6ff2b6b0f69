"""The portable core's search: the hits of Python's on the same file, to the bit; damaged files are told."""

import ctypes
import hashlib
import random
import struct
import subprocess
import zlib

import numpy as np
import pytest

from kerasbert.answers.vector import KIND
from kerasbert.errors import InputError
from kerasbert.export import bundle
from kerasbert.mobile.native import build
from kerasbert.mobile.runtime import StoredIndex
from kerasbert.mobile.runtime.stored_index import write
from tests.mobile.native.test_answers import made
from tests.mobile.native.tokenizers import SMALL, files
from tests.mobile.native.tools import compiler, needed

OK, DAMAGED, ARGUMENT = 0, 2, 4
DRAW = np.random.default_rng(3)


class Text(ctypes.Structure):
    _fields_ = (("data", ctypes.POINTER(ctypes.c_char)), ("size", ctypes.c_size_t))

    def __str__(self):
        return ctypes.string_at(self.data, self.size).decode("utf-8", "replace")


class Hit(ctypes.Structure):
    _fields_ = (("number", ctypes.c_size_t), ("score", ctypes.c_double), ("id", Text), ("text", Text))


class Runner:
    """Gives vectors in the place of a network."""

    path = "x.tflite"

    def __init__(self, vectors, read):
        self.vectors, self.bundle, self.kind = vectors, read, KIND

    def outputs(self, texts, prompt_name=None):
        return np.array([self.vectors[text] for text in texts], "float32")


class Core:
    """The functions of the header."""

    def __init__(self, path):
        self.library, self.message = ctypes.CDLL(str(path)), ctypes.create_string_buffer(256)

    def model(self, data):
        model = ctypes.c_void_p()
        assert self.library.kb_model_open(data, ctypes.c_size_t(len(data)), ctypes.byref(model), self.message) == OK
        return model

    def opened(self, data, model=None):
        self.data, index = ctypes.create_string_buffer(data, len(data)), ctypes.c_void_p()
        size = ctypes.c_size_t(len(data))
        return self.library.kb_index_open(self.data, size, model, ctypes.byref(index), self.message), index

    def nearest(self, index, vector, top):
        hits, found = (Hit * max(top, 1))(), ctypes.c_size_t()
        vector = np.ascontiguousarray(vector, "float32")
        address = vector.ctypes.data_as(ctypes.c_void_p)
        sizes = ctypes.c_size_t(len(vector)), ctypes.c_size_t(top)
        status = self.library.kb_index_nearest(index, address, *sizes, hits, ctypes.byref(found), self.message)
        return status, [(hit.number, str(hit.text), hit.score, str(hit.id)) for hit in hits[: found.value]]


@pytest.fixture
def core(library):
    return Core(library)


@pytest.fixture(scope="module")
def packed():
    """A bundle of vectors behind some bytes."""
    name = next(iter(SMALL))
    return made("vector", files(SMALL[name]()) if callable(SMALL[name]) else files(SMALL[name])).to_zip()


def index_of(packed, width, folder, count=400):
    """A runner, the file of its index, and queries."""
    texts = {f"{'é😀 ' * (i % 3)}{i}": DRAW.normal(size=width) * 10 ** DRAW.uniform(-20, 20) for i in range(count)}
    names = list(texts)
    for other in range(7, count, 50):  # equal vectors, and zeros
        texts[names[other]] = texts[names[0]] if other % 100 == 7 else np.zeros(width)
    runner = Runner(texts, bundle.read(packed))
    write(runner, ((f"n{i}", text) for i, text in enumerate(names)), folder / "x.kbindex")
    return runner, folder / "x.kbindex", names


@pytest.mark.parametrize("width", [1, 3, 384, 1500])
def test_hits_are_those_of_python(core, packed, width, tmp_path):
    runner, path, names = index_of(packed, width, tmp_path)
    index = StoredIndex(runner, path)
    status, opened = core.opened(path.read_bytes(), core.model(packed))
    assert status == OK
    halves = np.array([127.0, *(np.arange(width - 1) % 64 + 0.5)])  # which are rounded to even
    runner.vectors |= {"halves": halves, "zeros": np.zeros(width)}
    for query in [*names[:20], "halves", "zeros"]:
        for top in (1, 5, 500):
            expected = [tuple(hit) for hit in index.nearest(query, top)]
            assert core.nearest(opened, runner.vectors[query], top) == (OK, expected)
    core.library.kb_index_close(opened)


def test_what_does_not_fit_is_told(core, packed, tmp_path):
    _, path, _ = index_of(packed, 3, tmp_path, 10)
    opened = core.opened(path.read_bytes())[1]
    for vector, top, said in (
        ([1, 2], 1, b"the vector has 2 numbers, those of the index have 3"),
        ([1, np.nan, 2], 1, b"the vector has a number that is not finite"),
        ([1, np.inf, 2], 1, b"the vector has a number that is not finite"),
        ([1, 2, 3], 0, b"top is 0, expected at least 1"),
    ):
        assert core.nearest(opened, vector, top) == (ARGUMENT, [])
        assert core.message.value == said
    other = made("vector", bundle.read(packed).tokenizer, length=99).to_zip()
    assert core.opened(path.read_bytes(), core.model(other))[0] == ARGUMENT
    assert b"made by another file" in core.message.value


def test_damaged_files_are_refused_as_in_python(core, packed, tmp_path):
    """One byte of each place of the head and of the places changed, and every length cut short."""
    runner, path, _ = index_of(packed, 3, tmp_path, 10)
    whole, draw, refused = path.read_bytes(), random.Random(0), 0
    assert hashlib.sha256(whole).digest()  # the file is not changed by what follows
    places = [*range(64, 64 + 10 * 4), *range(64 + 10 * 7 + 2, 64 + 10 * 7 + 2 + 8 * 21)]
    cut = [whole[:size] for size in range(0, len(whole), 7)] + [whole + b"x"]
    spoilt = [bytearray(whole) for _ in range(300)]
    for each in spoilt:
        each[draw.choice([*range(32), *places])] ^= 1 << draw.randrange(8)
    for data in [*cut, *map(bytes, spoilt)]:
        (tmp_path / "spoilt.kbindex").write_bytes(data)
        status, opened = core.opened(data)
        try:
            index = StoredIndex(runner, tmp_path / "spoilt.kbindex")
        except InputError:
            assert status == DAMAGED
            refused += 1
            continue
        assert status == OK
        for query in list(runner.vectors)[:2]:
            try:
                expected = [tuple(hit) for hit in index.nearest(query, 3)]
            except UnicodeDecodeError:
                continue
            found = core.nearest(opened, runner.vectors[query], 3)[1]
            assert [each[0] for each in found] == [each[0] for each in expected]
    assert refused > len(cut)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0, 2.0])
def test_a_length_that_no_vector_has_is_refused_as_in_python(core, packed, tmp_path, value):
    runner, path, _ = index_of(packed, 3, tmp_path, 10)
    data = bytearray(path.read_bytes())
    data[64 + 4 * 4 : 64 + 4 * 5] = struct.pack("<f", value)
    data[28:32] = struct.pack("<I", zlib.crc32(data[64:]))
    path.write_bytes(data)
    assert core.opened(bytes(data))[0] == DAMAGED
    with pytest.raises(InputError, match="is damaged"):
        StoredIndex(runner, path)


@pytest.mark.native
def test_widths_near_two_to_the_32_are_refused_where_a_size_has_32_bits(tmp_path):
    compiler()
    (node,) = needed("node")
    ask = """const {exports: c} = new WebAssembly.Instance(new WebAssembly.Module(require("fs").readFileSync(0)));
    const [head, out, said] = [c.malloc(200), c.malloc(4), c.malloc(256)], found = [];
    for (let width = 2 ** 32 - 32; width < 2 ** 32; width++) {
      const bytes = new Uint8Array(c.memory.buffer, head, 200).fill(0), view = new DataView(c.memory.buffer, head, 200);
      bytes.set([75, 66, 73, 78, 68, 69, 88, 1, 1]), view.setUint32(24, width, true), view.setUint32(16, 104, true);
      found.push(c.kb_index_open(head, 200, 0, out, said));
    }
    console.log(JSON.stringify([...new Set(found)]));"""
    core = build.build(tmp_path / "kerasbert.wasm").read_bytes()
    done = subprocess.run([node, "-e", ask], input=core, capture_output=True)
    assert (done.stdout, done.stderr) == (b"[2]\n", b"")


def test_a_file_is_opened_by_its_path(core, packed, tmp_path):
    _, path, _ = index_of(packed, 3, tmp_path, 10)
    index = ctypes.c_void_p()
    assert core.library.kb_index_open_file(str(path).encode(), None, ctypes.byref(index), core.message) == OK
    assert core.library.kb_index_count(index) == 10
    core.library.kb_index_close(index)
    missing = str(tmp_path / "missing").encode()
    assert core.library.kb_index_open_file(missing, None, ctypes.byref(index), core.message) == ARGUMENT
    assert b"cannot read" in core.message.value

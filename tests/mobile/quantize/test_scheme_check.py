"""`check_scheme` over every scheme of ours, and over others' schemes with a mistake each, which it names."""

import itertools

import numpy as np
import pytest

from kerasbert.mobile.quantize.schemes import SCHEMES, Scheme
from kerasbert.mobile.testing import check_scheme
from kerasbert.mobile.tflite import repack, weights
from tests.support import often, once


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the classifier that all schemes are checked with is trained once."""
    return once(tmp_path_factory, "schemes", lambda folder: None)[0]


@pytest.fixture
def mine(monkeypatch):
    """Enters a scheme of a plug-in, which is forgotten afterwards."""
    monkeypatch.setattr(SCHEMES, "rows", dict(SCHEMES.rows))

    def add(**fields):
        SCHEMES.rows["mine"] = Scheme(**fields)
        return "mine"

    return add


@pytest.mark.parametrize("name", often(SCHEMES, "dynamic_int8", "full_int8"))
def test_every_scheme_of_ours_passes(name, folder):
    assert check_scheme(name, folder)["agreement"] >= SCHEMES[name].agreement


FIELDS = {
    "a type of numbers": ({"weights": "int4"}, "Scheme 'mine': weights is 'int4'. Nearest: 'int8'. Expected one of float32, "),
    "activations": ({"activations": "dynamc"}, "activations is 'dynamc'. Nearest: 'dynamic'"),
    "a percentage": ({"agreement": 98.5}, "agreement is 98.5, expected a share of 0.5 to 1"),
    "no demand": ({"fidelity": 0.0}, "fidelity is 0.0, expected a share of 0.5 to 1"),
    "a tolerance of nothing": ({"tolerance": 0.0}, "tolerance is 0.0, expected a difference of probabilities above 0, or None"),
    "an interpreter": ({"runtimes": {"litert": ""}}, "runtimes names litert, expected ai-edge-litert or tflite-runtime"),
    "no interpreter": ({"runtimes": {}}, "runtimes is empty"),
    "a make that takes less": ({"make": lambda data: data}, r"make takes \(data\), expected a function \(float32 .tflite"),
    "a make that is none": ({"make": b"TFL3"}, "make is a bytes"),
    "two makers": ({"make": lambda data, batches: data, "converter": True}, "make and converter are both given"),
    "half precision that nothing makes": ({"tables": "float16"}, "float16 is declared and nothing makes it"),
    "ranges of nothing": (
        {"weights": "int8", "activations": "static"},
        "activations are 'static' and calibrated is False: their ranges are of real texts",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", FIELDS)
def test_a_field_that_means_nothing(mistake, mine, tmp_path):
    fields, message = FIELDS[mistake]
    with pytest.raises(AssertionError, match=message):
        check_scheme(mine(**fields), tmp_path)


# What `make` does


def found(data, *kinds):
    model = repack.read(data)
    return model, [weight for weight in weights.find(model) if weight.kind in kinds]


def lowered(data, batches, *kinds):
    """The matrices in int8; what a scheme of its own begins with."""
    model, some = found(data, *(kinds or ("matrix",)))
    return repack.write(weights.lower(model, some))


def changed(data, change):
    model = repack.read(lowered(data, ()))
    change(model)
    return repack.write(model)


def another_norm(model):
    """The largest constant that is no weight of a matrix or a table, doubled."""
    graph = model.subgraphs[0]
    biases = [
        t.buffer
        for t in graph.tensors
        if t.type == 0 and len(t.shape) == 1 and model.buffers[t.buffer].data is not None
    ]
    values = model.buffers[biases[0]].data.view("<f4")
    model.buffers[biases[0]].data = (2 * values + 1).astype("<f4").view(np.uint8)


def another_scale(model):
    for tensor in itertools.chain(*(graph.tensors for graph in model.subgraphs)):
        if tensor.quantization is not None and tensor.quantization.scale is not None and len(tensor.shape) == 2:
            scale = tensor.quantization.scale
            tensor.quantization.scale = scale * np.where(np.arange(len(scale)) % 2, 3, 0.1).astype("<f4")


def another_output(model):
    model.signatureDefs[0].outputs[0].name = b"answers"


def one_signature(model):
    model.signatureDefs = model.signatureDefs[1:]


def heavier(model):
    buffer = repack.schema().BufferT()
    buffer.data = np.arange(200_000, dtype="<u4").view(np.uint8)
    model.buffers.append(buffer)
    tensor = repack.schema().TensorT()
    tensor.shape, tensor.type, tensor.buffer, tensor.hasRank = (
        np.array([200_000], "i4"),
        2,
        len(model.buffers) - 1,
        True,
    )
    model.subgraphs[0].tensors.append(tensor)


draws = itertools.count(1)


def at_random(model):
    for buffer in {
        tensor.buffer for tensor in model.subgraphs[0].tensors if tensor.type == repack.schema().TensorType.INT8
    }:
        model.buffers[buffer].data = np.roll(model.buffers[buffer].data, next(draws))


MAKES = {
    "nothing": (lambda data, batches: data, "mine: int8 is declared, and every matrix is float32 as it was"),
    "the tables too": (
        lambda data, batches: lowered(data, batches, "matrix", "table"),
        "mine: the table .*embeddings.* is another than in the float file, and the scheme declares weights int8, tables float32",
    ),
    "a norm": (
        lambda data, batches: changed(data, another_norm),
        "mine: the constant .* is another than in the float file",
    ),
    "another scale": (
        lambda data, batches: changed(data, another_scale),
        # either is told first: the training of the classifier differs by processor
        "mine: the file (agrees with .* on .* of 64 texts, expected agreement 0.985|keeps .*, expected fidelity 0.99)",
    ),
    "no file": (lambda data, batches: b"a file", "mine: what make gave is no .tflite: "),
    "half a file": (lambda data, batches: data[:20_000], "mine: what make gave is no .tflite: "),
    "an object": (
        lambda data, batches: repack.read(data),
        "mine: make gives a ModelT, expected the bytes of a .tflite",
    ),
    "a draw": (lambda data, batches: changed(data, at_random), "mine: make gives other bytes the second time"),
    "ranges of no texts": (
        lambda data, batches: lowered(data, next(iter(batches))),
        r"mine: make \(test_scheme_check.py, line \d+\): StopIteration:  \(it gets batches where calibrated=True alone\)",
    ),
    "a signature less": (lambda data, batches: changed(data, one_signature), "mine: the file has the signatures "),
    "another output": (lambda data, batches: changed(data, another_output), "mine: the file has the signatures "),
    "a larger file": (lambda data, batches: changed(data, heavier), "mine: the file has .* bytes, and .* in float32"),
}


@pytest.mark.parametrize("mistake", often(MAKES, *[*MAKES][::3]))
def test_what_make_does_wrong(mistake, mine, folder):
    make, message = MAKES[mistake]
    with pytest.raises(AssertionError, match=message):
        check_scheme(mine(weights="int8", activations="dynamic", make=make), folder)


@pytest.mark.slow
def test_a_tolerance_that_int8_does_not_keep(mine, folder):
    with pytest.raises(AssertionError, match=r"mine: the file differs by .* from the float file, tolerance 1e-06"):
        check_scheme(mine(weights="int8", activations="dynamic", tolerance=1e-6, make=lowered), folder)


@pytest.mark.slow
def test_a_make_without_a_mistake_passes(mine, folder):
    report = check_scheme(mine(weights="int8", activations="dynamic", make=lowered), folder)
    assert report["bytes"] < 170_000

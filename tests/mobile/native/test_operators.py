"""Files whose digest was made anew: what LiteRT takes unseen is refused by C and by Python, and good files by neither."""

import hashlib
import json
import re

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.export import bundle
from kerasbert.mobile.native import build
from kerasbert.mobile.runtime.checks import operators
from kerasbert.mobile.tflite import repack
from tests.hostile import mutations
from tests.mobile.native.runners import Failed, Runner, litert
from tests.support import ROOT

GOOD = ROOT / "tests/golden/files/int8.tflite"
REFUSED = "the file is damaged: an operator, a tensor or a signature of it cannot be"


def test_the_operands_are_those_of_python():
    text = (build.FOLDER / "operators.c").read_text()
    found = {int(number): int(count) for number, count in re.findall(r"\[(\d+)\] = (-?\d+)", text)}
    assert found == {number: -1 if count is None else count for number, count in operators.OPERANDS.items()}


def read():
    return repack.read(GOOD.read_bytes())


def refused(model, path, status=True) -> None:
    """Both runtimes refuse a changed flatbuffer behind its own digest."""
    front, data = repack.write(model), GOOD.read_bytes()
    members = bundle.unpack(data[data.index(b"PK\x03\x04", len(data) - len(bundle.read(GOOD).to_zip())) :])
    settings = json.loads(members[bundle.SETTINGS]) | {"digest": hashlib.sha256(front).hexdigest()}
    path.write_bytes(
        front + mutations.zipped(list((members | {bundle.SETTINGS: json.dumps(settings).encode()}).items()))
    )
    if not status:
        operators.check(path)
        Runner(path, library=str(litert()).encode()).close()
        return
    with pytest.raises(InputError, match="it is damaged"):
        operators.check(path)
    with pytest.raises(Failed, match=REFUSED):
        Runner(path, library=str(litert()).encode())


def test_a_good_file_opens(tmp_path):
    refused(read(), tmp_path / "x.tflite", status=False)


KINDS = sorted(set(repack.operators(GOOD.read_bytes())))


@pytest.mark.parametrize("name", KINDS)
def test_an_operator_without_an_operand(name, tmp_path):
    code = getattr(repack.schema().BuiltinOperator, name)
    for change in (lambda x: [-1, *x[1:]], lambda x: x[:0], lambda x: [*x, *x], lambda x: [10_000, *x[1:]]):
        model = read()
        operator = next(each for each in model.subgraphs[0].operators if repack.builtin(model, each) == code)
        operator.inputs = np.asarray(change(list(operator.inputs)), np.int32)
        refused(model, tmp_path / "x.tflite")


def _late(model):
    model.subgraphs[0].operators.reverse()


def _variable(model):
    model.subgraphs[0].tensors[0].isVariable = True


def _no_result(model):
    model.subgraphs[0].operators[0].outputs = np.asarray([], np.int32)


def _signature(model):
    model.signatureDefs[0].subgraphIndex = 99


def _tensor(model):
    model.signatureDefs[0].inputs[0].tensorIndex = 10_000


def _quantized(model):
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors]
    return next(each.quantization for each in tensors if each.quantization and each.quantization.scale is not None)


def _scale(model):
    about = _quantized(model)
    about.scale = np.asarray([np.nan, *about.scale[1:]], np.float32)


def _zero_point(model):
    about = _quantized(model)
    about.zeroPoint = np.asarray([300, *about.zeroPoint[1:]], np.int64)


@pytest.mark.parametrize("change", [_late, _variable, _no_result, _signature, _tensor, _scale, _zero_point])
def test_what_cannot_be(change, tmp_path):
    model = read()
    change(model)
    refused(model, tmp_path / "x.tflite")

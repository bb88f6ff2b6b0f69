"""A SavedModel called by TensorFlow's C API, without Python: every kind, three tokenizers, Classify and Regress."""

import importlib.util
import io
import itertools
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.export import graphs, signatures
from kerasbert.mobile.native import build
from kerasbert.tasks.base import kind_of
from tests.support import often
from tests.tasks import real_inputs
from tests.tasks.test_every_kind import KINDS, TOKENIZERS, check_served, made
from tests.tasks.test_writing import writer

DTYPES = {1: np.float32, 3: np.int32, 7: object, 10: np.bool_}  # of types.proto


def folder_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> list[Path]:
    """The C program and the folder's place behind it; skipped by name where nothing compiles it."""
    if (cc := build.compiler()) is None:
        pytest.skip("needs a C compiler: cc, gcc or clang")
    tensorflow, made = folder_of("tensorflow"), tmp_path_factory.mktemp("c") / "saved_model"
    libraries = [f"-l:libtensorflow_{name}.so.2" for name in ("cc", "framework")]
    command = [cc, "-O1", "-Wall", "-Wextra", "-Werror", f"-I{tensorflow / 'include'}", "-o", made]
    source = Path(__file__).with_name("saved_model.c")
    linked = [f"-L{tensorflow}", *libraries, f"-Wl,-rpath,{tensorflow}", "-Wl,--allow-shlib-undefined"]
    subprocess.run([*command, source, *linked], check=True)
    return [made, *sorted((folder_of("tensorflow_text") / "python" / "ops").glob("_*.so"))]


def place(tensor: str) -> str:
    return tensor.replace(":", " ")


def request(definition, inputs: Mapping[str, np.ndarray]) -> bytes:
    """A request as saved_model.c reads it, for all outputs of a signature in the order of their names."""
    lines = []
    for name, value in inputs.items():
        number = 7 if value.dtype == object else 3
        sizes = " ".join(map(str, (number, value.ndim, *value.shape)))
        lines.append(f"input {place(definition.inputs[name].name)} {sizes}".encode())
        lines += [b"%d %s" % (len(one), one) if number == 7 else b"%d" % one for one in value.ravel().tolist()]
    lines += [f"output {place(definition.outputs[name].name)}".encode() for name in sorted(definition.outputs)]
    return b"\n".join([*lines, b"run\n"])


def tensor(said: IO[bytes]) -> np.ndarray:
    """A tensor as saved_model.c prints it."""
    number, _axes, *sizes = map(int, said.readline().split())
    values = []
    for _ in range(int(np.prod(sizes))):
        if number == 7:
            length = b"".join(iter(lambda: said.read(1), b" "))
            values.append(said.read(int(length)))
            assert said.read(1) == b"\n"
        else:
            values.append(DTYPES[number](float(said.readline())))
    found = np.empty(len(values), DTYPES[number])
    found[:] = values
    return found.reshape(sizes)


def answered(program, folder, asked) -> list[dict[str, np.ndarray]]:
    """The outputs of each (signature, inputs), of one process."""
    from tensorflow.core.protobuf import saved_model_pb2

    command = [program[0], folder, *program[1:]]
    graph = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs[0]
    data = b"".join(request(graph.signature_def[name], inputs) for name, inputs in asked)
    done = subprocess.run(command, input=data, capture_output=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    said = io.BytesIO(done.stdout)
    found = [{each: tensor(said) for each in sorted(graph.signature_def[name].outputs)} for name, _ in asked]
    assert not said.read()
    return found


def check_examples(how: str, wanted: list[dict], found: dict[str, np.ndarray]) -> None:
    """What Classify's or Regress' signature gives."""
    if how == "regress":
        np.testing.assert_allclose(found["outputs"], [each["value"] for each in wanted], atol=1e-5, rtol=1e-5)
        return
    for classes, scores, one in zip(found["classes"], found["scores"], wanted, strict=True):
        assert [each.decode() for each in classes] == list(one["scores"])
        np.testing.assert_allclose(scores, list(one["scores"].values()), atol=1e-5)


def check(program, folder, model, inputs, wanted) -> None:
    """All inputs at once, every twentieth alone, and as tf.Examples where the kind reads them."""
    how, names = kind_of(model), graphs.text_names(model)

    def given(some):
        return signatures.given(how, names, some)

    parts = [slice(None), *(slice(number, number + 1) for number in range(0, len(inputs), 20))]
    asked = [
        ("serving_default", {name: value.numpy() for name, value in given(inputs[part]).items()}) for part in parts
    ]
    if how.examples:
        asked.append((how.examples, {"inputs": signatures.examples(given(inputs)).numpy()}))
    found = answered(program, folder, asked)
    for part, outputs in zip(parts, found):
        check_served(model, wanted[part], outputs, inputs[part])
    if how.examples:
        check_examples(how.examples, wanted, found[-1])


EVERY = list(itertools.product(KINDS, TOKENIZERS, [1]))
FEW = ("classification", "wordpiece", 8)  # in CI: every eighth input


@pytest.mark.parametrize(("kind", "tokenizer", "step"), often([FEW, *EVERY], FEW))
def test_a_c_program_prints_what_predict_answers(kind, tokenizer, step, program, tmp_path):
    """200 real inputs and lines of 16 languages."""
    model = made("bert", kind, real_inputs.tokenizer(tokenizer), tmp_path)
    folder = kb.export(model, tmp_path / "serving")
    inputs = [*real_inputs.inputs(kind)[::step], *real_inputs.languages(kind)[::step]]
    if kind == "vector":
        wanted = [{"values": row.tolist()} for row in kb.encode(model, inputs)]
    else:
        wanted = [answer.to_json() for answer in kb.predict(model, inputs)]
    check(program, folder, model, inputs, wanted)


@pytest.mark.full
def test_masks_that_a_c_program_fills(program, pretrained, tmp_path):
    model = kb.load(pretrained, task="fill-mask")
    words = [text.split() for text in real_inputs.inputs("tokens")]
    inputs = [" ".join([*each[:3], "[MASK]", *each[4:], "<mask>"]) for each in words]
    wanted = [answer.to_json() for answer in kb.predict(model, inputs)]
    check(program, kb.export(model, tmp_path / "serving"), model, inputs, wanted)


@pytest.mark.full
@pytest.mark.parametrize(("family", "tokenizer"), [("t5", "unigram"), ("gpt2", "bpe"), ("bart", "bpe")])
def test_texts_that_a_c_program_writes(family, tokenizer, program, tmp_path):
    model = writer(family, {"repetition_penalty": 1.5}, tmp_path, tokenizer)
    inputs = [text for text in real_inputs.inputs("tokens")[::4] if text.strip()]
    wanted = [answer.to_json() for answer in kb.predict(model, inputs, length=28)]
    assert len({each["text"] for each in wanted}) > 5
    check(program, kb.export(model, tmp_path / "serving", length=28), model, inputs, wanted)

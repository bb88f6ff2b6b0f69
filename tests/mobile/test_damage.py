"""Damaged and hostile .tflite files: one line, no crash, and no harm to others (see tests/hostile for many of them)."""

import contextlib
import copy
import dataclasses
import hashlib
import json
import zipfile

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.inputs import NAMES
from kerasbert.storage import zips
from tests.mobile.conftest import TEXTS
from tests.support import python


def test_damaged_files_are_one_line(float_file, tmp_path):
    from kerasbert.mobile.runtime import load

    data = float_file[0].read_bytes()
    (tmp_path / "cut.tflite").write_bytes(data[:-1000])
    with pytest.raises(InputError, match="no readable bundle"):
        load(tmp_path / "cut.tflite")
    (tmp_path / "odd.tflite").write_bytes(rebundled(float_file[0], front=b"x" * 1000))
    with pytest.raises(InputError, match=r"cannot open .*odd\.tflite") as caught:
        load(tmp_path / "odd.tflite", cache=False)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="threads is 0"):
        load(float_file[0], threads=0)


def parts(path):
    """(the bytes in front of the bundle, the Bundle)."""
    from kerasbert.export import bundle

    with zipfile.ZipFile(path) as archive:
        return path.read_bytes()[: archive.infolist()[0].header_offset], bundle.read(path)


def rebundled(path, front=None, **changes):
    """The bytes of a file with another front or other fields in its bundle, its digest made anew."""
    own, found = parts(path)
    front = own if front is None else front
    changes = {"digest": hashlib.sha256(front).hexdigest()} | changes
    return front + dataclasses.replace(found, **changes).to_zip()


def altered(path, **changes):
    """The bytes of a file with other fields in its bundle as they stand in its json, or other tokenizer files."""
    content = zips.unpack(path)
    settings = json.loads(content.pop("bundle.json"))
    if "tokenizer" in changes:
        content = changes.pop("tokenizer")
    settings |= changes
    return parts(path)[0] + zips.pack({**content, "bundle.json": json.dumps(settings).encode()})


def test_the_cache_key_is_computed_and_never_read_from_the_file(int8_file, tmp_path):
    from kerasbert.mobile.runtime import load

    precious = tmp_path / "precious/yolo-1-final.weights"
    precious.parent.mkdir()
    (tmp_path / "a/cache").mkdir(parents=True)
    others = tmp_path / f"a/cache/{'0' * 64}-{'1' * 8}-{'2' * 8}.weights"
    for file in (precious, others):
        file.write_text("not to be touched")
    for digest in ("../../precious/*", "*", "", "0" * 64):
        (tmp_path / "evil.tflite").write_bytes(rebundled(int8_file[0], digest=digest))
        with pytest.raises(InputError, match=r"evil\.tflite is damaged: its first part has sha256"):
            load(tmp_path / "evil.tflite", cache=tmp_path / "a/cache")
    assert precious.exists()
    assert others.exists()


def test_a_damaged_file_does_not_poison_the_cache_of_the_good_one(int8_file, tmp_path):
    from kerasbert.mobile.runtime import load

    expected = load(int8_file[0], cache=False)(TEXTS)
    front, bundle = parts(int8_file[0])
    spoilt = []
    for begin in range(0, len(front) - 256, 256):  # somewhere there are weights
        changed = front[:begin] + bytes(256) + front[begin + 256 :]
        if changed == front:
            continue
        (tmp_path / "damaged.tflite").write_bytes(changed + bundle.to_zip())
        with pytest.raises(InputError, match="is damaged"):
            load(tmp_path / "damaged.tflite", cache=tmp_path / "cache")
        if len(spoilt) < 2:  # the same damage with its own digest answers otherwise, under a key of its own
            (tmp_path / "damaged.tflite").write_bytes(rebundled(int8_file[0], changed))
            with contextlib.suppress(InputError):
                other = load(tmp_path / "damaged.tflite", cache=tmp_path / "cache")(TEXTS)
                spoilt += [other] if other != expected else []
    assert len(spoilt) == 2
    assert load(int8_file[0], cache=tmp_path / "cache")(TEXTS) == expected
    assert load(int8_file[0], cache=tmp_path / "cache")(TEXTS) == expected


def test_what_passed_the_checks_is_not_checked_again_and_nothing_else_is_trusted(int8_file, tmp_path, monkeypatch):
    from kerasbert.mobile.runtime import interpreters, load
    from kerasbert.mobile.runtime.checks import operators

    checked, check = [], operators.check
    monkeypatch.setattr(operators, "check", lambda path: (checked.append(path.name), check(path)))
    cache, good = tmp_path / "cache", int8_file[0]
    expected = load(good, cache=cache)(TEXTS)
    assert load(good, cache=cache)(TEXTS) == expected
    assert checked == [good.name]
    front, bundle = parts(good)
    lying = tuple(
        dataclasses.replace(each, outputs=dict.fromkeys(each.outputs, "no_such")) for each in bundle.signatures
    )
    (tmp_path / "lying.tflite").write_bytes(rebundled(good, signatures=lying))  # the very flatbuffer that was packed
    with pytest.raises(InputError, match="its bundle says"):
        load(tmp_path / "lying.tflite", cache=cache)
    (tmp_path / "cut.tflite").write_bytes(front[:-64] + bytes(64) + bundle.to_zip())
    with pytest.raises(InputError, match="is damaged"):
        load(tmp_path / "cut.tflite", cache=cache)
    assert checked == [good.name, "lying.tflite"]
    monkeypatch.setattr(interpreters, "CHECKS", interpreters.CHECKS + 1)  # a version that looks for more
    assert load(good, cache=cache)(TEXTS) == expected
    assert len(list(cache.glob("*.weights"))) == 2
    for path in cache.iterdir():  # the secret too
        path.write_bytes(path.read_bytes()[:-1])  # damaged weights vouch for nothing
    assert load(good, cache=cache)(TEXTS) == expected
    assert checked == [good.name, "lying.tflite", good.name, good.name]


def answering(signature, length, output="probabilities", name="probabilities"):
    """A signature that answers, as bundle.json holds it."""
    return {"role": "answer", "name": signature, "lengths": {"S": length}, "outputs": {name: output}}


def reading(name, signature=None):
    """An input as bundle.json holds it."""
    return {"name": name, "signature": signature or name}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"signatures": [answering("length_9", 24)]}, "no signature 'length_9'"),
        (
            {"signatures": [answering("length_8", 8), answering("length_24", 23)]},
            r"'length_24' has .*int32\[1, 24\].* says .*int32\[1, 23\]",
        ),
        (
            {"inputs": [*map(reading, NAMES[1:]), reading(NAMES[0], "a")]},
            "bundle says 'a'",
        ),
        (
            {"inputs": [reading(name, "token_ids") for name in NAMES]},
            "damaged bundle.json .*expected some, each once",
        ),
        ({"inputs": [reading("token_ids")]}, "has 'padding_mask' .* its bundle says 'token_ids'"),
        (
            {"signatures": [answering("length_24", 24, "logits")]},
            r"has 'probabilities' float32\[1, 3\], its bundle says 'logits'",
        ),
        ({"labels": ["a", "b"]}, r"float32\[1, 3\], its bundle says 'probabilities' float32\[1, 2\]"),
        (
            {"kind": "regression", "labels": [], "signatures": [answering("length_24", 24, name="value")]},
            r"bundle says 'probabilities' float32\[1, 1\]",
        ),
        ({"signatures": [answering("length_24", 24)], "any_length": True}, r"bundle says .*int32\[1, -1\]"),
        ({"tokenizer": {}}, "damaged tokenizer: no tokenizer in no files"),
        ({"tokenizer": {"tokenizer.json": b"[" * 100_000}}, "damaged tokenizer"),
        ({"tokenizer": {"vocab.txt": b"\xff"}}, "damaged tokenizer: vocab.txt is not UTF-8"),
    ],
)
def test_what_the_bundle_says_is_compared_with_the_model(change, text, float_file, tmp_path):
    from kerasbert.mobile.runtime import load

    (tmp_path / "odd.tflite").write_bytes(altered(float_file[0], **change))
    with pytest.raises(InputError, match=text) as caught:
        load(tmp_path / "odd.tflite", cache=False)
    assert "\n" not in str(caught.value)


def test_operator_numbers_are_those_of_the_schema():
    from ai_edge_litert.schema_py_generated import BuiltinOperator, TensorType

    from kerasbert.mobile.runtime.checks import operators

    assert {name: getattr(BuiltinOperator, name) for name in operators.NUMBERS} == operators.NUMBERS
    assert set(operators.LIMITS) == {TensorType.INT8, TensorType.UINT8}
    assert len(operators.OPERANDS) == len(operators.NUMBERS)


@pytest.mark.parametrize(
    ("operands", "scales", "text"),
    [
        ({"inputs": lambda old: old[:1]}, {}, "has a FULLY_CONNECTED of"),
        ({"inputs": lambda old: [-1, *old[1:]]}, {}, r"of the tensors \[-1, "),
        ({"outputs": lambda old: []}, {}, r"that gives \[\], expected 2 and a result"),
        (
            {"outputs": lambda old: [old[0] + 1]},
            {},
            r"has an operator that (reads|gives) the tensors .*, expected each given once",
        ),
        ({}, {"scale": [0.5], "zeroPoint": [2**31 - 1]}, r"1 scales \[0.5\] and 1 zero points \[2147483647\]"),
        ({}, {"scale": [], "zeroPoint": [0]}, "0 scales .* and 1 zero points"),
        ({}, {"scale": [float("nan")], "zeroPoint": [0]}, r"1 scales \[nan\]"),
        ({}, {"scale": [0.0], "zeroPoint": [0]}, r"1 scales \[0\.\]"),
        ({}, {"scale": [0.5], "zeroPoint": []}, "cannot open .*0 zero_point values and 1 scale values"),
        ({}, {"scale": [0.5], "zeroPoint": [0], "quantizedDimension": 7}, "cannot open .*Was 7"),
    ],
)
def test_operands_and_scales_are_looked_at(operands, scales, text, float_file, tmp_path):
    """XNNPACK's delegate reads beyond the list of operands, and dies of a tensor that nothing gave: a segmentation fault."""
    from ai_edge_litert.schema_py_generated import BuiltinOperator, QuantizationParametersT

    from kerasbert.mobile.runtime import load
    from kerasbert.mobile.tflite import repack

    model = repack.read(parts(float_file[0])[0])
    graph = model.subgraphs[-1]
    codes = [code.builtinCode for code in model.operatorCodes]
    matmul = next(one for one in graph.operators if codes[one.opcodeIndex] == BuiltinOperator.FULLY_CONNECTED)
    for name, changed in operands.items():
        setattr(matmul, name, changed(list(getattr(matmul, name))))
    if scales:
        about = graph.tensors[int(matmul.inputs[1])].quantization = QuantizationParametersT()
        for name, values in scales.items():
            setattr(about, name, values)
    (tmp_path / "odd.tflite").write_bytes(rebundled(float_file[0], repack.write(model)))
    with pytest.raises(InputError, match=text) as caught:
        load(tmp_path / "odd.tflite", cache=False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("of", ["graph", "input", "output"])
def test_a_signature_of_what_is_not_there_is_refused(of, float_file, tmp_path):
    """The interpreter looks up a subgraph by the signature's number without a check: a segmentation fault."""
    from kerasbert.mobile.runtime import load
    from kerasbert.mobile.tflite import repack

    model = repack.read(parts(float_file[0])[0])
    signature = model.signatureDefs[-1]
    if of == "graph":
        signature.subgraphIndex = 2055
    else:
        getattr(signature, f"{of}s")[0].tensorIndex = 1 << 20
    (tmp_path / "odd.tflite").write_bytes(rebundled(float_file[0], repack.write(model)))
    with pytest.raises(
        InputError, match=r"odd\.tflite has a signature of the tensors .* of subgraph \d+, expected one of"
    ):
        load(tmp_path / "odd.tflite", cache=False)


def test_errors_of_the_first_answer_are_one_line(float_file, tmp_path):
    """An id that no table has, and numbers that are not finite."""
    from kerasbert.mobile.runtime import load

    front, bundle = parts(float_file[0])
    more = bundle.tokenizer | {"vocab.txt": bundle.tokenizer["vocab.txt"] + b"unheard\nfurther\n"}
    (tmp_path / "more.tflite").write_bytes(rebundled(float_file[0], tokenizer=more))
    model = load(tmp_path / "more.tflite", cache=False)
    assert model(["good"])
    with pytest.raises(InputError, match=r"cannot run .*more\.tflite") as caught:
        model(["further"])
    assert "\n" not in str(caught.value)
    done = python("-m", "kerasbert.mobile.cli", "run", tmp_path / "more.tflite", "further", "--no-cache", check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    where = max(range(0, len(front) - 64, 4), key=lambda i: len(set(front[i : i + 64])))  # weights look like noise
    broken = front[:where] + np.full(4, np.nan, np.float32).tobytes() * 4 + front[where + 64 :]
    (tmp_path / "nan.tflite").write_bytes(rebundled(float_file[0], broken))
    with pytest.raises(InputError, match=r"nan\.tflite answers with numbers that are not finite"):
        load(tmp_path / "nan.tflite", cache=False)(TEXTS)


@pytest.mark.parametrize("which", ["input", "weights", "output"])
def test_a_tensor_that_keeps_its_value_is_refused(which, float_file, tmp_path):
    """isVariable: the delegate takes the tensor for a state of its own, which nobody gave it; a segmentation fault."""
    from kerasbert.mobile.runtime import load
    from kerasbert.mobile.tflite import repack

    model = repack.read(parts(float_file[0])[0])
    graph = model.subgraphs[0]
    number = {"input": graph.inputs[0], "weights": graph.operators[0].inputs[0], "output": graph.outputs[0]}[which]
    graph.tensors[int(number)].isVariable = True
    (tmp_path / "odd.tflite").write_bytes(rebundled(float_file[0], repack.write(model)))
    with pytest.raises(
        InputError, match=rf"odd\.tflite has the tensor {number} that keeps its value from call to call"
    ):
        load(tmp_path / "odd.tflite", cache=False)


def test_a_slice_by_offsets_is_refused(float_file, tmp_path):
    """STRIDED_SLICE's last option makes its end a length: XNNPACK computed beyond the tensor."""
    from ai_edge_litert.schema_py_generated import BuiltinOptions, OperatorCodeT, OperatorT, StridedSliceOptionsT

    from kerasbert.mobile.runtime.checks import operators
    from kerasbert.mobile.tflite import repack

    def written(offset):
        model = repack.read(parts(float_file[0])[0])
        code, step, options, graph = OperatorCodeT(), OperatorT(), StridedSliceOptionsT(), model.subgraphs[0]
        code.builtinCode = code.deprecatedBuiltinCode = operators.NUMBERS["STRIDED_SLICE"]
        model.operatorCodes.append(code)
        graph.tensors.append(copy.copy(graph.tensors[int(graph.inputs[0])]))
        options.offset = offset
        step.opcodeIndex, step.builtinOptionsType = len(model.operatorCodes) - 1, BuiltinOptions.StridedSliceOptions
        step.builtinOptions, step.inputs, step.outputs = options, [graph.inputs[0]] * 4, [len(graph.tensors) - 1]
        graph.operators.append(step)
        path = tmp_path / f"{offset}.tflite"
        path.write_bytes(rebundled(float_file[0], repack.write(model)))
        return path

    operators.check(written(False))
    with pytest.raises(InputError, match=r"True\.tflite has a STRIDED_SLICE by offsets, expected one by ends"):
        operators.check(written(True))


def test_weights_that_somebody_else_packed_are_not_used(int8_file, tmp_path):
    """A name is right for its bytes and its folder's secret alone: other bytes, another folder's file, a file renamed."""
    from kerasbert.mobile.runtime import load
    from kerasbert.mobile.runtime.system import cache

    def packed(folder):
        answers = load(int8_file[0], cache=folder)(TEXTS)
        (file,) = folder.glob("*.weights")
        return answers, file

    (expected, file), (_, foreign) = packed(tmp_path / "a"), packed(tmp_path / "b")
    key, content = file.name.rpartition("-")[0], file.read_bytes()
    assert foreign.name.rpartition("-")[0] == key
    assert foreign.name != file.name
    poison = bytes(reversed(content))
    for name in (
        file.name,
        foreign.name,
        f"{key}-{'0' * 32}.weights",
        f"{key}-{hashlib.sha256(poison).hexdigest()[:32]}.weights",
    ):
        file.unlink()
        (tmp_path / "a" / name).write_bytes(poison)
        assert cache.find(tmp_path / "a", key) is None
        assert packed(tmp_path / "a") == (expected, file)
    assert file.read_bytes() == content


@pytest.mark.parametrize("kind", ["readable", "short", "link", "folder"])
def test_a_secret_that_is_none_is_not_trusted(kind, int8_file, tmp_path):
    """One that others could read is made anew if it is ours; a link or a folder leaves the cache unused. Answers are right."""
    from kerasbert.mobile.runtime import load
    from kerasbert.mobile.runtime.system import cache

    folder = tmp_path / "cache"
    expected = load(int8_file[0], cache=folder)(TEXTS)
    (file,) = folder.glob("*.weights")
    key, secret = file.name.rpartition("-")[0], folder / cache.SECRET
    before = secret.read_bytes()
    assert (secret.stat().st_mode & 0o777, len(before)) == (0o600, cache.SIZE)
    if kind == "readable":
        secret.chmod(0o644)
    elif kind == "short":
        secret.write_bytes(before[:-1])
    else:
        secret.unlink()
        secret.mkdir() if kind == "folder" else secret.symlink_to(int8_file[0])
    assert cache.find(folder, key) is None
    assert load(int8_file[0], cache=folder)(TEXTS) == expected
    if kind == "folder":
        assert cache.find(folder, key) is None
    else:
        assert secret.read_bytes() != before
        assert not secret.is_symlink()
        assert cache.find(folder, key) is not None
    assert not list(folder.glob("*.draft"))

"""What stands beside a SavedModel for a server, and that the same run gives the same bytes."""

import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.protobuf import saved_model_pb2

from kerasbert.cli import main
from kerasbert.export import beside, serve_check

FIELDS = {  # of tensorflow_serving/apis: message -> (field, number, type or message); `inputs` is a map
    "ModelSpec": (("name", 1, "string"), ("signature_name", 3, "string")),
    "Entry": (("key", 1, "string"), ("value", 2, "bytes")),
    "PredictRequest": (("model_spec", 1, "ModelSpec"), ("inputs", 2, "Entry")),
    "PredictResponse": (("outputs", 1, "Entry"),),
    "PredictLog": (("request", 1, "PredictRequest"), ("response", 2, "PredictResponse")),
    "PredictionLog": (("predict_log", 6, "PredictLog"),),
}


def messages():
    """The messages of a warm-up record as a server declares them."""
    file = descriptor_pb2.FileDescriptorProto(name="prediction_log.proto", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            label = kinds.LABEL_REPEATED if field in ("inputs", "outputs") else kinds.LABEL_OPTIONAL
            types = {"string": kinds.TYPE_STRING, "bytes": kinds.TYPE_BYTES}
            made = message.field.add(name=field, number=number, label=label, type=types.get(kind, kinds.TYPE_MESSAGE))
            if kind not in types:
                made.type_name = f".{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("PredictionLog"))


def test_a_request_is_what_a_server_reads():
    inputs = {"text": tf.constant(["a cat", "é" * 200]), "lengths": tf.constant([3, 300])}
    record = messages().FromString(beside.prediction_log("serving_default", inputs, {"score": tf.constant([0.5])}))
    (output,) = record.predict_log.response.outputs
    assert (output.key, tf.make_ndarray(TensorProto.FromString(output.value)).tolist()) == ("score", [0.5])
    request = record.predict_log.request
    assert (request.model_spec.name, request.model_spec.signature_name) == ("model", "serving_default")
    read = {each.key: tf.make_ndarray(TensorProto.FromString(each.value)).tolist() for each in request.inputs}
    assert read == {"text": [b"a cat", ("é" * 200).encode()], "lengths": [3, 300]}


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes_and_the_next_version(classifier, tmp_path, capsys):
    base = tmp_path / "author"
    (base / "notes").mkdir(parents=True)
    (base / "thesis.txt").write_text("mine")
    command = [sys.executable, "-m", "kerasbert.cli", "export", str(classifier), str(base), "--next"]
    for seed in ("1", "2"):  # variables stood in the order of a set
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed})
    assert sorted(each.name for each in base.iterdir()) == ["1", "2", "notes", "thesis.txt"]
    files = [path.relative_to(base / "1") for path in (base / "1").rglob("*") if path.is_file()]
    assert all((base / "1" / name).read_bytes() == (base / "2" / name).read_bytes() for name in files)
    assert len(files) == 9
    sums = dict(line.split()[::-1] for line in (base / "1" / beside.SUMS).read_text().splitlines())
    told = {str(name) for name in files} - {beside.SUMS, ".kerasbert"}
    assert sums == {name: hashlib.sha256((base / "1" / name).read_bytes()).hexdigest() for name in told}

    import tensorflow_text  # noqa: F401  # the tokenizer's operations: another process made the model

    served = tf.saved_model.load(str(base / "1")).signatures
    rows = []
    for record in tf.data.TFRecordDataset(str(base / "1" / beside.WARM_UP)):
        request = messages().FromString(record.numpy()).predict_log.request
        name = request.model_spec.signature_name
        protos = {each.key: TensorProto.FromString(each.value) for each in request.inputs}
        outputs = served[name](**{key: tf.constant(tf.make_ndarray(value)) for key, value in protos.items()})
        rows.append((name, len(next(iter(outputs.values())))))
    names = ["classify", "ids", "serving_default", "tokenize"]
    assert rows == [(name, count) for count in (1, 4) for name in names]
    file = saved_model_pb2.SavedModel.FromString((base / "1/saved_model.pb").read_bytes())
    methods = {name: each.method_name for name, each in file.meta_graphs[0].signature_def.items() if name in names}
    assert methods == {name: f"tensorflow/serving/{'classify' if name == 'classify' else 'predict'}" for name in names}
    served_check(base / "1", capsys)
    assert "pad_variable_length_inputs: true" in (base / "1" / beside.BATCHING).read_text()
    assert main([*command[3:], "--overwrite"]) == 2
    assert "--next writes a version that is not there yet" in capsys.readouterr().err


def test_the_check_of_a_server_needs_nothing_of_ours():
    """It runs as a file beside TensorFlow alone; a type's import had brought kerasbert into its process."""
    code = (
        f"import runpy, sys; sys.modules['kerasbert'] = None; runpy.run_path({serve_check.__file__!r}, run_name='read')"
    )
    subprocess.run([sys.executable, "-I", "-c", code], check=True, timeout=60)


def served_check(folder, capsys):
    """A process without kerasbert says the same; of a file that was changed it says which."""
    capsys.readouterr()
    assert main(["serve-check", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["problems"] == []
    assert sorted(found["signatures"]) == ["classify", "ids", "serving_default", "tokenize"]
    assert found["operators_of_tensorflow_text"] == ["FastWordpieceTokenizeWithOffsets"]
    records = (folder / beside.WARM_UP).read_bytes()
    (folder / beside.WARM_UP).write_bytes(records[:-1])
    assert main(["serve-check", str(folder)]) == 1
    assert f"problem: {beside.WARM_UP} is not what was exported (sha256)" in capsys.readouterr().out
    (folder / beside.WARM_UP).write_bytes(records)


def test_files_that_differ_from_their_sums_and_operators_are_read_without_ours(tmp_path):
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    for name in ("same", "other"):
        (tmp_path / name).write_text(name)
    sums = [f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n" for name in ("same", "gone", "another")]
    (tmp_path / serve_check.SUMS).write_text("".join(sums).replace("another", "other"))
    assert [*serve_check.differing(tmp_path)] == [("gone", False), ("other", True)]
    assert serve_check.damaged(tmp_path) == ["gone is missing", "other is not what was exported (sha256)"]
    model = SavedModel()
    graph = model.meta_graphs.add().graph_def
    graph.node.add(name="x", op="Placeholder")
    graph.node.add(name="call", op="__inference_f_1")
    function = graph.library.function.add()
    function.signature.name = "__inference_f_1"
    function.node_def.add(name="y", op="AddV2")
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    assert serve_check.operators(tmp_path) == {"Placeholder", "AddV2"}


def test_an_answer_that_differs_is_named():
    wanted = np.array([[0.5, 0.25]], "float32")
    assert serve_check.differs("score", wanted, wanted + 5e-5) == ""
    assert serve_check.differs("score", wanted, wanted + 2e-3) == "score differs by 0.002, allowed 0.0001"
    assert serve_check.differs("score", wanted, wanted[:, :1]) == "score has the shape (1, 1), recorded (1, 2)"
    assert (
        serve_check.differs("text", np.array([b"a"], object), np.array([b"b"], object))
        == "text is another one than recorded"
    )
    log = beside.prediction_log("ids", {"n": tf.constant([300])}, {"y": tf.constant([b"z"])})
    content = dict(serve_check.fields(dict(serve_check.fields(log))[6]))
    assert serve_check.tensors(content[1], 2)["n"].tolist() == [300]
    assert serve_check.tensors(content[2], 1)["y"].tolist() == [b"z"]

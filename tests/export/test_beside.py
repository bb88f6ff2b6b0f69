"""What stands beside a SavedModel for a server, and that the same run gives the same bytes."""

import hashlib
import json
import os
import subprocess
import sys

import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.protobuf import saved_model_pb2

from kerasbert.cli import main
from kerasbert.export import beside

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

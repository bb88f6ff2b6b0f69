"""What stands beside a SavedModel for a server, and that the same run gives the same bytes."""

import hashlib
import os
import subprocess
import sys

import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework.tensor_pb2 import TensorProto

from kerasbert.cli import main
from kerasbert.export import beside

FIELDS = {  # of tensorflow_serving/apis: message -> (field, number, type or message); `inputs` is a map
    "ModelSpec": (("name", 1, "string"), ("signature_name", 3, "string")),
    "Entry": (("key", 1, "string"), ("value", 2, "bytes")),
    "PredictRequest": (("model_spec", 1, "ModelSpec"), ("inputs", 2, "Entry")),
    "PredictLog": (("request", 1, "PredictRequest"),),
    "PredictionLog": (("predict_log", 6, "PredictLog"),),
}


def messages():
    """The messages of a warm-up record as a server declares them."""
    file = descriptor_pb2.FileDescriptorProto(name="prediction_log.proto", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            label = kinds.LABEL_REPEATED if field == "inputs" else kinds.LABEL_OPTIONAL
            types = {"string": kinds.TYPE_STRING, "bytes": kinds.TYPE_BYTES}
            made = message.field.add(name=field, number=number, label=label, type=types.get(kind, kinds.TYPE_MESSAGE))
            if kind not in types:
                made.type_name = f".{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("PredictionLog"))


def test_a_request_is_what_a_server_reads():
    inputs = {"text": tf.constant(["a cat", "é" * 200]), "lengths": tf.constant([3, 300])}
    record = messages().FromString(beside.prediction_log("serving_default", inputs))
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

    served = tf.saved_model.load(str(base / "1")).signatures
    rows = []
    for record in tf.data.TFRecordDataset(str(base / "1" / beside.WARM_UP)):
        request = messages().FromString(record.numpy()).predict_log.request
        name = request.model_spec.signature_name
        protos = {each.key: TensorProto.FromString(each.value) for each in request.inputs}
        outputs = served[name](**{key: tf.constant(tf.make_ndarray(value)) for key, value in protos.items()})
        rows.append((name, len(outputs["labels"])))
    assert rows == [("serving_default", 1), ("ids", 1), ("serving_default", 4), ("ids", 4)]
    assert "pad_variable_length_inputs: true" in (base / "1" / beside.BATCHING).read_text()
    assert main([*command[3:], "--overwrite"]) == 2
    assert "--next writes a version that is not there yet" in capsys.readouterr().err

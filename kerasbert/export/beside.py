"""What stands beside a SavedModel for TF Serving: warm-up requests, batching parameters, a fingerprint and checksums."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import tensorflow as tf

from kerasbert.export.messages import Message, message
from kerasbert.export.serve_check import SUMS, WARM_UP
from kerasbert.export.server.batching import FILE as BATCHING
from kerasbert.export.server.examples import APIS
from kerasbert.storage.files import sha256

# Read by TF Serving with --enable_batching --batching_parameters_file, or, by its place, with
# --enable_per_model_batching_parameters. Texts of any length may be joined: the signatures count what is theirs.
PARAMETERS = """\
max_batch_size { value: 32 }
batch_timeout_micros { value: 2000 }
max_enqueued_batches { value: 100 }
num_batch_threads { value: 4 }
pad_variable_length_inputs: true
"""

Request = tuple[str, Mapping[str, tf.Tensor], Mapping[str, tf.Tensor]]
"""Name of a signature, its inputs, and what it returned."""


def name_methods(folder: Path, names: Collection[str]) -> None:
    """Give the signatures `classify` and `regress` of a SavedModel the API of their names: TensorFlow writes Predict for all."""
    from tensorflow.python.saved_model.pywrap_saved_model import fingerprinting

    apis = {name: api for name, api in APIS.items() if name in names}
    if not apis:
        return
    updater = tf.compat.v1.saved_model.signature_def_utils.MethodNameUpdater(str(folder))
    for name, api in apis.items():
        updater.replace_method_name(name, api.method)
    updater.save()
    (folder / "fingerprint.pb").write_bytes(fingerprinting.CreateFingerprintDef(str(folder)))


def write(folder: Path, requests: Sequence[Request]) -> None:
    """The files beside a SavedModel that is whole: equal ones have equal bytes."""
    _fingerprint(folder / "fingerprint.pb")
    (folder / BATCHING).write_text(PARAMETERS, "utf-8")
    (folder / WARM_UP).parent.mkdir()
    with tf.io.TFRecordWriter(str(folder / WARM_UP)) as records:
        for request in requests:
            records.write(prediction_log(*request))


def sums(folder: Path) -> None:
    """`sha256sum --check` reads it: of every file below the folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [f"{sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in files]
    (folder / SUMS).write_text("".join(lines), "utf-8")


def _fingerprint(path: Path) -> None:
    """TensorFlow's hashes of the parts, and a number of theirs in the place of a random one."""
    from tensorflow.core.protobuf import fingerprint_pb2

    found: Message = fingerprint_pb2.FingerprintDef.FromString(path.read_bytes())  # its types lack the uuid
    found.uuid = ""
    digest = hashlib.sha256(found.SerializeToString(deterministic=True)).digest()
    found.uuid = str(int.from_bytes(digest[:8], "little"))
    path.write_bytes(found.SerializeToString(deterministic=True))


def prediction_log(signature: str, inputs: Mapping[str, tf.Tensor], outputs: Mapping[str, tf.Tensor]) -> bytes:
    """A warm-up record, tensorflow.serving.PredictionLog of a PredictRequest and the PredictResponse, for `serve-check`."""
    record = message("PredictionLog")()
    log = record.predict_log
    log.request.model_spec.name, log.request.model_spec.signature_name = "model", signature
    for values, field in ((inputs, log.request.inputs), (outputs, log.response.outputs)):
        for name, value in values.items():
            field[name].ParseFromString(tf.make_tensor_proto(value).SerializeToString())
    return record.SerializeToString(deterministic=True)

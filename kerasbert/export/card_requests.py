"""Requests for the card of a SavedModel, by REST and gRPC: each is read as a server reads it and answered before it is shown."""

import base64
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.protobuf import saved_model_pb2

from kerasbert.errors import InputError
from kerasbert.export import messages, signatures
from kerasbert.export.server import json_arrays
from kerasbert.storage.json_view import Json

SHOWN = 6  # values of a list in an answer


@dataclasses.dataclass(frozen=True)
class Requests:
    """One row by each way.

    Args:
        rest: the body of :predict. grpc: the json of a PredictRequest, as grpcurl takes it. inputs: what the client takes.
        answer: of all three.
    """

    rest: str
    grpc: str
    inputs: str
    answer: str


def run(folder: Path, served: signatures.ConcreteFunction, inputs: Mapping[str, tf.Tensor]) -> Requests:
    """Ask `serving_default` for a row.

    Args:
        folder: of the SavedModel. served: its signature. inputs: of one row, by name.

    Raises:
        InputError: a server would not read these inputs in one of the ways.
    """
    graph = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs[0]
    written = graph.signature_def["serving_default"].SerializeToString()
    definition = messages.message("SignatureDef").FromString(written)
    arrays = {name: value.numpy() for name, value in inputs.items()}
    columns = {name: _plain(value) for name, value in arrays.items()}
    rest = _json({"instances": [{name: value[0] for name, value in columns.items()}]})
    grpc = _json({"model_spec": {"name": "NAME"}, "inputs": {name: _tensor(value) for name, value in arrays.items()}})
    request = json_format.Parse(grpc, messages.message("PredictRequest")())
    ways = (
        json_arrays.arrays(json_arrays.request(rest.encode()), definition),
        {name: messages.array(tensor) for name, tensor in request.inputs.items()},
    )
    for way in ways:
        if {name: _plain(value) for name, value in way.items()} != columns:
            raise InputError(f"a server reads other inputs than {list(columns)} in a request: please report it")
    outputs = served(**{name: tf.constant(value, inputs[name].dtype) for name, value in ways[0].items()})
    answer = {name: _short(_plain(value.numpy())[0]) for name, value in sorted(outputs.items())}
    return Requests(rest, grpc, _json(columns), _json(answer))


def _plain(array: np.ndarray) -> list:
    """Nested lists; bytes are text."""
    if array.dtype != object:
        return array.tolist()
    texts = np.array([each.decode("utf-8", "replace") for each in array.ravel()], object)
    return texts.reshape(array.shape).tolist()


def _tensor(array: np.ndarray) -> Json:
    """The json of a TensorProto."""
    name, _, field = messages.TYPES[messages.NUMBERS[array.dtype.name]]
    flat = array.ravel().tolist()
    values = [base64.b64encode(each).decode() for each in flat] if array.dtype == object else flat
    return {"dtype": name, "tensor_shape": {"dim": [{"size": size} for size in array.shape]}, field: values}


def _short(value: object) -> object:
    """An answer for a reader: four digits, the first of many values."""
    if isinstance(value, list):
        more = [f"... {len(value)} in all"] if len(value) > SHOWN else []
        return [_short(each) for each in value[:SHOWN]] + more
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _json(value: object) -> str:
    """In one line, for a shell's single quotes: ' is written as json may."""
    return json.dumps(value, ensure_ascii=False).replace("'", "\\u0027")

"""TF Serving's messages over gRPC, and arrays in them: protobuf and numpy, no TensorFlow.

Declared field by field (tensorflow_serving/apis, tensorflow/core/framework/tensor.proto) in a pool of their own, for the package
that has them, tensorflow-serving-api, brings TensorFlow to every client. Fields that are absent here are skipped when read.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

Message = Any  # one of MESSAGES, or a part of it: its fields are declared while we run, where no checker sees them
PACKAGE = "tensorflow.serving"
# message -> field -> (number, type); `[]T` is repeated, `{}T` a map of strings to T
MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "Dim": {"size": (1, "int64"), "name": (2, "string")},
    "Shape": {"dim": (2, "[]Dim"), "unknown_rank": (3, "bool")},
    "Tensor": {
        "dtype": (1, "DataType"),
        "tensor_shape": (2, "Shape"),
        "tensor_content": (4, "bytes"),
        "float_val": (5, "[]float"),
        "double_val": (6, "[]double"),
        "int_val": (7, "[]int32"),
        "string_val": (8, "[]bytes"),
        "int64_val": (10, "[]int64"),
        "bool_val": (11, "[]bool"),
        "uint32_val": (16, "[]uint32"),
        "uint64_val": (17, "[]uint64"),
    },
    "TensorInfo": {"name": (1, "string"), "dtype": (2, "DataType"), "tensor_shape": (3, "Shape")},
    "SignatureDef": {
        "inputs": (1, "{}TensorInfo"),
        "outputs": (2, "{}TensorInfo"),
        "method_name": (3, "string"),
        "defaults": (4, "{}Tensor"),
    },
    "SignatureDefMap": {"signature_def": (1, "{}SignatureDef")},
    "ModelSpec": {
        "name": (1, "string"),
        "version": (2, ".google.protobuf.Int64Value"),
        "signature_name": (3, "string"),
        "version_label": (4, "string"),
    },
    "PredictRequest": {"model_spec": (1, "ModelSpec"), "inputs": (2, "{}Tensor"), "output_filter": (3, "[]string")},
    "PredictResponse": {"outputs": (1, "{}Tensor"), "model_spec": (2, "ModelSpec")},
    "GetModelMetadataRequest": {"model_spec": (1, "ModelSpec"), "metadata_field": (2, "[]string")},
    "GetModelMetadataResponse": {"model_spec": (1, "ModelSpec"), "metadata": (2, "{}.google.protobuf.Any")},
    "GetModelStatusRequest": {"model_spec": (1, "ModelSpec")},
    "StatusProto": {"error_code": (1, "int32"), "error_message": (2, "string")},
    "ModelVersionStatus": {"version": (1, "int64"), "state": (2, "int32"), "status": (3, "StatusProto")},
    "GetModelStatusResponse": {"model_version_status": (1, "[]ModelVersionStatus")},
    # examples are bytes here: TensorFlow alone parses them, and a context stands before each (internal/serialized_input.proto)
    "ExampleList": {"examples": (1, "[]bytes")},
    "ExampleListWithContext": {"examples": (1, "[]bytes"), "context": (2, "bytes")},
    "Input": {"example_list": (1, "ExampleList"), "example_list_with_context": (2, "ExampleListWithContext")},
    "BytesList": {"value": (1, "[]bytes")},
    "FloatList": {"value": (1, "[]float")},
    "Int64List": {"value": (1, "[]int64")},
    "Feature": {"bytes_list": (1, "BytesList"), "float_list": (2, "FloatList"), "int64_list": (3, "Int64List")},
    "Features": {"feature": (1, "{}Feature")},
    "Example": {"features": (1, "Features")},
    "ClassificationRequest": {"model_spec": (1, "ModelSpec"), "input": (2, "Input")},
    "Class": {"label": (1, "string"), "score": (2, "float")},
    "Classifications": {"classes": (1, "[]Class")},
    "ClassificationResult": {"classifications": (1, "[]Classifications")},
    "ClassificationResponse": {"result": (1, "ClassificationResult"), "model_spec": (2, "ModelSpec")},
    "RegressionRequest": {"model_spec": (1, "ModelSpec"), "input": (2, "Input")},
    "Regression": {"value": (1, "float")},
    "RegressionResult": {"regressions": (1, "[]Regression")},
    "RegressionResponse": {"result": (1, "RegressionResult"), "model_spec": (2, "ModelSpec")},
    "ClassifyLog": {"request": (1, "ClassificationRequest")},
    "RegressLog": {"request": (1, "RegressionRequest")},
    "PredictLog": {"request": (1, "PredictRequest"), "response": (2, "PredictResponse")},
    "PredictionLog": {
        "classify_log": (2, "ClassifyLog"),
        "regress_log": (3, "RegressLog"),
        "predict_log": (6, "PredictLog"),
    },
}
STATES = {"UNKNOWN": 0, "START": 10, "LOADING": 20, "AVAILABLE": 30, "UNLOADING": 40, "END": 50}
TYPES: Mapping[int, tuple[str, str, str]] = {  # DataType -> its name, numpy's, the field of single values (types.proto)
    1: ("DT_FLOAT", "float32", "float_val"),
    2: ("DT_DOUBLE", "float64", "double_val"),
    3: ("DT_INT32", "int32", "int_val"),
    4: ("DT_UINT8", "uint8", "int_val"),
    5: ("DT_INT16", "int16", "int_val"),
    6: ("DT_INT8", "int8", "int_val"),
    7: ("DT_STRING", "object", "string_val"),
    9: ("DT_INT64", "int64", "int64_val"),
    10: ("DT_BOOL", "bool", "bool_val"),
    17: ("DT_UINT16", "uint16", "int_val"),
    22: ("DT_UINT32", "uint32", "uint32_val"),
    23: ("DT_UINT64", "uint64", "uint64_val"),
}
NUMBERS = {name: number for number, (_, name, _) in TYPES.items()}
ELEMENTS = 1 << 20  # most of a tensor whose message gives one value for many: a few bytes never become gigabytes


@functools.cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for module in (any_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    needed = [module.DESCRIPTOR.name for module in (any_pb2, wrappers_pb2)]
    file = descriptor_pb2.FileDescriptorProto(name="kerasbert/serving.proto", package=PACKAGE, syntax="proto3")
    file.dependency.extend(needed)
    kinds = file.enum_type.add(name="DataType")
    kinds.value.add(name="DT_INVALID", number=0)
    for number, (name, _, _) in TYPES.items():
        kinds.value.add(name=name, number=number)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _declare(message, field, number, kind)
    pool.Add(file)
    return pool


def _declare(message: descriptor_pb2.DescriptorProto, field: str, number: int, kind: str) -> None:
    """Add a field to the descriptor of a message."""
    proto = descriptor_pb2.FieldDescriptorProto
    made = message.field.add(name=field, number=number, label=proto.LABEL_OPTIONAL)
    if kind.startswith(("[]", "{}")):
        made.label = proto.LABEL_REPEATED
    if kind.startswith("{}"):
        entry = message.nested_type.add(name=field.title().replace("_", "") + "Entry")
        entry.options.map_entry = True
        _declare(entry, "key", 1, "string")
        _declare(entry, "value", 2, kind[2:])
        made.type, made.type_name = proto.TYPE_MESSAGE, f".{PACKAGE}.{message.name}.{entry.name}"
        return
    kind = kind.removeprefix("[]")
    if kind[0] == "." or kind in MESSAGES:
        made.type, made.type_name = proto.TYPE_MESSAGE, kind if kind[0] == "." else f".{PACKAGE}.{kind}"
    elif kind == "DataType":
        made.type, made.type_name = proto.TYPE_ENUM, f".{PACKAGE}.{kind}"
    else:
        made.type = proto.Type.Value(f"TYPE_{kind.upper()}")


@functools.cache
def message(name: str) -> type[Message]:
    r"""The class of a message.

    >>> message("ModelSpec")(name="author").SerializeToString()
    b'\n\x06author'
    """
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


def array(tensor: Message) -> np.ndarray:
    """The array in a message of a tensor; strings are bytes in an array of objects.

    Raises:
        ValueError: what is there does not make an array of the shape.
    """
    shape = [each.size for each in tensor.tensor_shape.dim]
    if tensor.dtype not in TYPES or tensor.tensor_shape.unknown_rank or min(shape, default=0) < 0:
        raise ValueError(f"the tensor has type {tensor.dtype} and shape {shape}, which cannot be read")
    _, name, field = TYPES[tensor.dtype]
    count = int(np.prod(shape, dtype=object)) if shape else 1
    if tensor.tensor_content and name != "object":
        values = np.frombuffer(tensor.tensor_content, np.dtype(name).newbyteorder("<")).astype(name)
    else:
        given = list(getattr(tensor, field))
        values = np.empty(len(given), name)
        values[:] = given
    if 0 < len(values) < count <= ELEMENTS:  # the last value stands for those that follow
        values = np.concatenate([values, np.repeat(values[-1:], count - len(values))])
    if len(values) != count:
        raise ValueError(f"the tensor has {len(values)} values for a shape of {count}: {shape}")
    return values.reshape(shape)


def fill(tensor: Message, values: np.ndarray) -> None:
    """Put an array into a message of a tensor.

    >>> tensor = message("Tensor")()
    >>> fill(tensor, np.array([[1, 2]], "int32"))
    >>> array(tensor).tolist()
    [[1, 2]]
    """
    tensor.dtype = NUMBERS[values.dtype.name]
    for size in values.shape:
        tensor.tensor_shape.dim.add(size=size)
    if values.dtype == object:
        tensor.string_val.extend(values.ravel().tolist())
    else:
        tensor.tensor_content = values.astype(values.dtype.newbyteorder("<")).tobytes()


def bytes_array(values: Sequence[bytes]) -> np.ndarray:
    """Strings [B] as an array of objects."""
    found = np.empty(len(values), object)
    found[:] = values
    return found


def serialized(given: Message) -> np.ndarray:
    """The tf.Examples of an Input, serialized [B]: fields of its context before those of each, which win."""
    many = given.example_list_with_context
    return bytes_array([*given.example_list.examples, *(many.context + each for each in many.examples)])

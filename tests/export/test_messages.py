"""Messages of TF Serving: their numbers on the wire are TensorFlow's and TF Serving's, and arrays travel in them."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2
from tensorflow.core.example import example_pb2, feature_pb2
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from kerasbert.export import messages
from kerasbert.export.messages import ELEMENTS, MESSAGES, STATES, TYPES, array, bytes_array, fill, message, serialized

# TensorFlow's own, of which its package has the descriptors
THEIRS = {
    "Dim": tensor_shape_pb2.TensorShapeProto.Dim,
    "Shape": tensor_shape_pb2.TensorShapeProto,
    "Tensor": tensor_pb2.TensorProto,
    "TensorInfo": meta_graph_pb2.TensorInfo,
    "SignatureDef": meta_graph_pb2.SignatureDef,
    "BytesList": feature_pb2.BytesList,
    "FloatList": feature_pb2.FloatList,
    "Int64List": feature_pb2.Int64List,
    "Feature": feature_pb2.Feature,
    "Features": feature_pb2.Features,
    "Example": example_pb2.Example,
}
# TF Serving's: the numbers of tensorflow_serving/apis/*.proto and util/status.proto, in the order of MESSAGES
NUMBERS = """
    SignatureDefMap 1; ModelSpec 1 2 3 4; PredictRequest 1 2 3; PredictResponse 1 2; GetModelMetadataRequest 1 2;
    GetModelMetadataResponse 1 2; GetModelStatusRequest 1; StatusProto 1 2; ModelVersionStatus 1 2 3; GetModelStatusResponse 1;
    ExampleList 1; ExampleListWithContext 1 2; Input 1 2; ClassificationRequest 1 2; Class 1 2; Classifications 1;
    ClassificationResult 1; ClassificationResponse 1 2; RegressionRequest 1 2; Regression 1; RegressionResult 1;
    RegressionResponse 1 2; ClassifyLog 1; RegressLog 1; PredictLog 1 2; PredictionLog 2 3 6
"""
DTYPES = {number: dtype for number, (_, dtype, _) in TYPES.items() if dtype != "object"}


def fields(made):
    """Name -> number, label and type of the fields of a message; a number of an enum is a number."""
    proto = descriptor_pb2.DescriptorProto()
    made.DESCRIPTOR.CopyToProto(proto)
    enum, whole = descriptor_pb2.FieldDescriptorProto.TYPE_ENUM, descriptor_pb2.FieldDescriptorProto.TYPE_INT32
    return {each.name: (each.number, each.label, whole if each.type == enum else each.type) for each in proto.field}


@pytest.mark.parametrize("name", THEIRS)
def test_tensorflows_messages_have_its_numbers_and_types(name):
    ours = fields(message(name))
    assert ours.items() <= fields(THEIRS[name]).items()
    assert list(ours) == list(MESSAGES[name])


def test_tf_servings_messages_have_the_numbers_of_its_files():
    rows = [row.split() for row in NUMBERS.replace("\n", " ").split(";")]
    assert {name: [*map(int, numbers)] for name, *numbers in rows} == {
        name: [number for number, _ in fields.values()] for name, fields in MESSAGES.items() if name not in THEIRS
    }
    assert STATES == {"UNKNOWN": 0, "START": 10, "LOADING": 20, "AVAILABLE": 30, "UNLOADING": 40, "END": 50}


def test_repeated_fields_maps_and_messages_on_the_wire():
    """By hand: a key is number * 8 + 2, then the length; an entry of a map has its key at 1 and its value at 2."""
    spec = message("ModelSpec")(name="m", signature_name="s")
    spec.version.value = 7
    assert spec.SerializeToString() == b"\x0a\x01m\x12\x02\x08\x07\x1a\x01s"
    request = message("PredictRequest")(output_filter=["a", "b"])
    request.inputs["x"].dtype = 7
    assert request.SerializeToString() == b"\x12\x07\x0a\x01x\x12\x02\x08\x07\x1a\x01a\x1a\x01b"
    response = message("ClassificationResponse")()
    response.result.classifications.add().classes.add(label="l", score=1.0)
    assert response.SerializeToString() == b"\x0a\x0c\x0a\x0a\x0a\x08\x0a\x01l\x15\x00\x00\x80\x3f"
    with pytest.raises(ValueError, match="sum"):
        message("ModelSpec")(sum=1)


def test_types_are_tensorflows():
    """All that numpy has too, and strings: no complex, quantized or 16-bit floats."""
    wanted = "FLOAT DOUBLE INT32 UINT8 INT16 INT8 STRING INT64 BOOL UINT16 UINT32 UINT64"
    assert [name for name, _, _ in TYPES.values()] == [f"DT_{name}" for name in wanted.split()]
    for number, (name, dtype, _) in TYPES.items():
        assert types_pb2.DataType.Value(name) == number
        assert tf.as_dtype(number) == (tf.string if dtype == "object" else tf.as_dtype(dtype))


@pytest.mark.parametrize("number", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_arrays_of_every_type_there_and_back(number, shape):
    values = (np.arange(np.prod(shape, dtype=int)) % 2 + 1).reshape(shape).astype(DTYPES[number])
    tensor = message("Tensor")()
    fill(tensor, values)
    theirs = tensor_pb2.TensorProto.FromString(tensor.SerializeToString())
    np.testing.assert_array_equal(tf.make_ndarray(theirs), values)
    found = array(message("Tensor").FromString(tf.make_tensor_proto(values).SerializeToString()))
    assert (found.dtype, found.shape) == (values.dtype, values.shape)
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("number", TYPES)
def test_values_one_by_one_are_read_of_the_field_of_their_type(number):
    name, dtype, field = TYPES[number]
    values = [b"a", b"\xff"] if dtype == "object" else [1, 0] if dtype == "bool" else [2, 3]
    tensor = message("Tensor")(dtype=number)
    tensor.tensor_shape.dim.add(size=2)
    getattr(tensor, field).extend(values)
    assert array(tensor).tolist() == values, name
    theirs = tensor_pb2.TensorProto.FromString(tensor.SerializeToString())
    assert tf.make_ndarray(theirs).tolist() == values


def of(sizes, dtype=3, **fields):
    tensor = message("Tensor")(dtype=dtype, **fields)
    for size in sizes:
        tensor.tensor_shape.dim.add(size=size)
    return tensor


def test_the_last_value_stands_for_those_that_follow():
    assert array(of((2, 2), int_val=[1, 2])).tolist() == [[1, 2], [2, 2]]
    assert array(of((3,), int_val=[5])).tolist() == [5, 5, 5]
    assert array(of((2,), 7, string_val=[b"x"])).tolist() == [b"x", b"x"]
    assert array(of((), int_val=[4])).tolist() == 4
    assert len(array(of((ELEMENTS,), int_val=[1]))) == ELEMENTS
    assert array(of((0,), int_val=[])).shape == (0,)
    assert array(of((2, 0))).shape == (2, 0)


def test_what_makes_no_array_is_refused():
    unknown = of((1,), int_val=[1])
    unknown.tensor_shape.unknown_rank = True
    for tensor, said in (
        (of((ELEMENTS + 1,), int_val=[1]), f"has 1 values for a shape of {ELEMENTS + 1}"),
        (of((1 << 40, 1 << 40), int_val=[1]), f"for a shape of {1 << 80}"),
        (of((1,), int_val=[1, 2]), "has 2 values for a shape of 1"),
        (of((), int_val=[1, 2]), r"has 2 values for a shape of 1: \[\]"),
        (of((2,)), "has 0 values for a shape of 2"),
        (of((2, 2), tensor_content=np.arange(6, dtype="<i4").tobytes()), "has 6 values for a shape of 4"),
        (of((-1,)), r"has type 3 and shape \[-1\], which cannot be read"),
        (of((1,), 0), "has type 0 and shape"),
        (of((1,), 8), "has type 8 and shape"),
        (unknown, "which cannot be read"),
    ):
        with pytest.raises(ValueError, match=said):
            array(tensor)


def test_strings_travel_as_bytes():
    values = np.array([[b"a", "é".encode()], [b"", b"\xff"]], object)
    tensor = message("Tensor")()
    fill(tensor, values)
    assert (tensor.dtype, list(tensor.string_val), tensor.tensor_content) == (7, values.ravel().tolist(), b"")
    np.testing.assert_array_equal(array(tensor), values)
    tensor.tensor_content = b"abcd"  # of strings it means nothing
    np.testing.assert_array_equal(array(tensor), values)
    made = bytes_array([b"ab", b"c"])
    assert (made.dtype, made.shape, made.tolist()) == (object, (2,), [b"ab", b"c"])
    assert bytes_array([]).shape == (0,)


def test_a_context_stands_before_each_example():
    given = message("Input")()
    given.example_list.examples.extend([b"1", b"2"])
    given.example_list_with_context.examples.extend([b"3", b"4"])
    given.example_list_with_context.context = b"c"
    assert serialized(given).tolist() == [b"1", b"2", b"c3", b"c4"]


def test_a_message_is_declared_once():
    assert message("Tensor") is message("Tensor")
    assert messages._pool().FindMessageTypeByName("tensorflow.serving.Tensor") is message("Tensor").DESCRIPTOR

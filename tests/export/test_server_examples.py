"""`kerasbert serve` answers Classify and Regress over tf.Examples as TF Serving does."""

import base64
import shutil

import grpc
import numpy as np
import pytest
import tensorflow as tf

from kerasbert.export.messages import message, serialized
from kerasbert.export.serve_check import WARM_UP
from kerasbert.export.server.examples import from_json
from kerasbert.export.server.loaded import Loaded
from kerasbert.export.status import CallError
from tests.export import served as serving
from tests.export.served import ask, call, example, examples_request, predict_request


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that answers the two."""
    return serving.write(tmp_path_factory.mktemp("serving") / "tiny" / "3", 3, examples=True).parent


CLASSIFY, REGRESS = "/v1/models/tiny:classify", "/v1/models/tiny:regress"
THIRDS = np.array([0, 1, 2, 3], "float32") / 3


def test_the_forms_of_the_rest_api(tiny):
    """https://www.tensorflow.org/tfx/serving/api_rest; the answer's key is `results` (json_tensor.cc). By hand."""
    rows = [{"text": "é", "n": 0}, {"text": {"b64": base64.b64encode(b"a").decode()}, "n": [1]}, {"text": ["b"]}]
    zero, third, two, _ = map(float, THIRDS)
    code, found = ask(tiny.ports[0], CLASSIFY, {"signature_name": "classify", "examples": rows})
    wanted = [[["é", zero], ["other", zero]], [["A", third], ["other", two]], [["B", third], ["other", two]]]
    assert (code, found) == (200, {"results": wanted})
    body = {"signature_name": "regress", "context": {"n": 3, "text": "x"}, "examples": [{"n": True}, {}]}
    for path in (REGRESS, "/v1/models/tiny/versions/3:Regress"):
        assert ask(tiny.ports[0], path, body) == (200, {"results": [third, 1.0]})  # an example's own feature wins


def test_the_same_over_grpc(tiny):
    request = examples_request("classify", {"text": "é".encode(), "n": 0}, {"text": b"a"})
    response = call(tiny.ports[1], "Classify", request)
    found = [[(each.label, each.score) for each in row.classes] for row in response.result.classifications]
    assert found == [[("é", 0.0), ("other", 0.0)], [("A", THIRDS[1]), ("other", THIRDS[2])]]
    spec = response.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("tiny", 3, "classify")
    request = examples_request("regress", {"n": 1}, {}, context={"n": 3, "text": b"x"}, noun="Regression")
    response = call(tiny.ports[1], "Regress", request)
    assert [each.value for each in response.result.regressions] == [THIRDS[1], 1.0]


def test_json_becomes_the_examples_of_tensorflow():
    """Numbers are int64 or float, what is true is 1, texts and b64 are bytes, and an empty list is a feature of no type."""
    row = '{"s": ["é", {"b64": "/w=="}], "i": [1, true, -9223372036854775808], "f": [0.5, NaN, Infinity], "none": []}'
    name, (found,) = from_json(f'{{"examples": [{row}]}}'.encode())
    read = tf.train.Example.FromString(found).features.feature
    assert name == ""
    assert list(read["s"].bytes_list.value) == ["é".encode(), b"\xff"]
    assert list(read["i"].int64_list.value) == [1, 1, -(1 << 63)]
    np.testing.assert_array_equal(list(read["f"].float_list.value), [0.5, np.nan, np.inf])
    assert read["none"].WhichOneof("kind") is None


FIRST = {"signature_name": "classify"}
WRONG = [  # body, path, status, what is said
    (b"{", CLASSIFY, 400, "JSON Parse error"),
    ({}, CLASSIFY, 400, "key 'examples' is expected and was not found"),
    ({"examples": {}}, CLASSIFY, 400, "Expecting 'examples' value to be a list/array"),
    ({"examples": []}, REGRESS, 400, "'examples' value is an empty array"),
    ({"examples": ["a"]}, CLASSIFY, 400, "Example must be JSON object but got JSON str"),
    ({"examples": [{}], "context": [1]}, CLASSIFY, 400, "Example must be JSON object but got JSON Array"),
    (
        {"examples": [{}], "instances": []},
        CLASSIFY,
        400,
        'no key "instances" in a request. Expected: context, examples',
    ),
    ({"examples": [{"n": None}]}, CLASSIFY, 400, "Feature: n has element with unexpected JSON type: Null"),
    ({"examples": [{"n": [[1]]}]}, CLASSIFY, 400, "Feature: n has element with unexpected JSON type: Array"),
    ({"examples": [{"n": {"b": 1}}]}, CLASSIFY, 400, "Feature: n has element with unexpected JSON type: Object"),
    ({"examples": [{"n": [1, 0.5]}]}, CLASSIFY, 400, "Unexpected element type in feature: n expecting type: int64"),
    ({"examples": [{"n": 1 << 63}]}, CLASSIFY, 400, "Feature: n has a number out of the range of int64"),
    ({"examples": [{"n": 1e300}]}, CLASSIFY, 400, "Cannot convert JSON value: 1e+300 to float without loss"),
    ({"examples": [{"text": {"b64": "?"}}]}, CLASSIFY, 400, 'Feature: text: Unable to base64 decode "?"'),
    (b'{"examples": [{"\\ud800": 1}]}', CLASSIFY, 400, "half of a surrogate pair"),
    (FIRST | {"examples": [{"n": 1}]}, CLASSIFY, 400, "Feature: text (data type: string) is required"),
    (FIRST | {"examples": [{"text": 1}]}, CLASSIFY, 400, "Data types don't match"),
    (FIRST | {"examples": [{"text": ["a", "b"]}]}, CLASSIFY, 400, "text"),
    ({"examples": [{}]}, "/v1/models/no:classify", 404, "Servable not found for request: Latest(no)"),
    ({"signature_name": "no", "examples": [{}]}, CLASSIFY, 400, "No signature was found with the name: no. All: "),
    (
        {"examples": [{}]},
        CLASSIFY,
        400,
        "Expected classification signature method_name to be tensorflow/serving/classify. Was: tensorflow/serving/predict. "
        "Its signature_name: classify",
    ),
    (
        FIRST | {"examples": [{}]},
        REGRESS,
        400,
        "Expected regression signature method_name to be tensorflow/serving/regress. Was: tensorflow/serving/classify",
    ),
]


def test_wrong_requests_get_a_status_and_a_sentence(tiny):
    for body, path, status, said in WRONG:
        code, found = ask(tiny.ports[0], path, body)
        assert (code, list(found)) == (status, ["error"]), (path, body, found)
        assert said in found["error"], found
        assert "\n" not in found["error"]
    ok = {("model", "tiny"), ("protocol", "rest"), ("code", "INVALID_ARGUMENT")}
    assert next(count for labels, count in tiny.metrics.requests.items() if set(labels) == ok) >= len(WRONG) - 1


def test_wrong_calls_over_grpc(tiny):
    good = {"text": b"a"}
    damaged = examples_request("classify", good)
    damaged.input.example_list.examples[0] = b"\x0a\xff"
    wrong = [
        ("Classify", b"\xff\xff", "INVALID_ARGUMENT", "the message is no ClassificationRequest"),
        ("Classify", examples_request("classify"), "INVALID_ARGUMENT", "Input is empty."),
        ("Classify", damaged, "INVALID_ARGUMENT", "Could not parse example input"),
        ("Classify", examples_request("", good), "INVALID_ARGUMENT", "Was: tensorflow/serving/predict"),
        ("Regress", examples_request("classify", good), "INVALID_ARGUMENT", "Expected regression signature"),
        ("Regress", examples_request("no", good), "INVALID_ARGUMENT", "No signature was found with the name: no"),
        ("Classify", examples_request("classify", good, name="no"), "NOT_FOUND", "Latest(no)"),
    ]
    for method, request, code, said in wrong:
        with pytest.raises(grpc.RpcError, match=".") as error:
            call(tiny.ports[1], method, request)
        assert (error.value.code().name, said in error.value.details()) == (code, True), error.value.details()
    rows = [example(**good).SerializeToString()]
    outputs = call(tiny.ports[1], "Predict", predict_request(signature="classify", inputs=rows)).outputs
    assert sorted(outputs) == ["classes", "scores"]  # Predict takes them too


def test_outputs_that_are_no_answer_of_the_api_are_told(tiny, monkeypatch):
    loaded, found = tiny.models["tiny"].versions[3].loaded, {}
    monkeypatch.setattr(loaded, "run", lambda name, inputs: found)
    body = {"examples": [{"text": "a"}, {"text": "b"}]}
    scores, classes = np.array([[0.5, 1], [0, 2]], "float32"), np.array([[b"x", b"\xff"]] * 2, object)
    for outputs, verb, said in (
        ({"scores": scores}, "classify", [[["", 0.5], ["", 1.0]], [["", 0.0], ["", 2.0]]]),
        ({"classes": classes}, "classify", [[["x", 0.0], ["\ufffd", 0.0]]] * 2),
        ({"outputs": scores[:, :1]}, "regress", [0.5, 0.0]),
        ({"outputs": scores}, "regress", "outputs float32 (2, 2)"),
        ({"scores": scores[0], "classes": classes}, "classify", "scores float32 (2,), classes string (2, 2)"),
        ({"scores": scores, "classes": classes[:, :1]}, "classify", "classes string (2, 1)"),
        ({"scores": scores.astype("float64")}, "classify", "scores float64 (2, 2)"),
        ({"other": scores}, "regress", "regress does not return what regress answers. Returned: other float32 (2, 2)"),
    ):
        found.clear()
        found.update(outputs)
        code, answer = ask(tiny.ports[0], f"/v1/models/tiny:{verb}", body | {"signature_name": verb})
        if isinstance(said, list):
            assert (code, answer) == (200, {"results": said})
        else:
            assert (code, said in answer["error"]) == (412, True), answer


def test_requests_of_both_warm_a_server_up(folder, tmp_path):
    """Records of other programs' SavedModels; a request that the model refuses is told by its number."""
    warm = tmp_path / "1" / WARM_UP
    shutil.copytree(folder / "3", tmp_path / "1")
    warm.parent.mkdir()
    logs = [message("PredictionLog")() for _ in range(3)]
    logs[0].classify_log.request.CopyFrom(examples_request("classify", {"text": b"a"}))
    logs[1].regress_log.request.CopyFrom(examples_request("regress", {"text": b"a"}, noun="Regression"))
    logs[2].regress_log.request.CopyFrom(examples_request("regress", {"n": 1}, noun="Regression"))
    for count in (2, 3):
        with tf.io.TFRecordWriter(str(warm)) as records:
            for log in logs[:count]:
                records.write(log.SerializeToString())
        if count == 2:
            assert sorted(Loaded(tmp_path / "1").definitions) == [
                "classify",
                "lists",
                "one",
                "regress",
                "serving_default",
            ]
    with pytest.raises(ValueError, match=r"warm-up request 3 is refused: .*text \(data type: string\) is required"):
        Loaded(tmp_path / "1")
    whole = warm.read_bytes()
    for damaged in (b"\x01" * 100, whole[:-1], whole[:20]):
        warm.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"{WARM_UP} is damaged: expected a TFRecord of PredictionLogs"):
            Loaded(tmp_path / "1")
    with tf.io.TFRecordWriter(str(warm)) as records:
        records.write(b"no message")
    with pytest.raises(ValueError, match=f"{WARM_UP} is damaged: expected a TFRecord of PredictionLogs"):
        Loaded(tmp_path / "1")


def test_rows_of_an_input_are_bytes_in_order():
    request = message("ClassificationRequest").FromString(b"")
    assert serialized(request.input).tolist() == []
    request.input.example_list.examples.extend([b"a", b"b"])
    assert serialized(request.input).tolist() == [b"a", b"b"]
    with pytest.raises(CallError, match="The document is empty"):
        from_json(b"")

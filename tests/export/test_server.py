"""`kerasbert serve` answers as TF Serving does: REST and gRPC, right and wrong calls."""

import base64
import gzip
import json
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import tensorflow as tf

from kerasbert.export import messages
from kerasbert.export.messages import message
from kerasbert.export.status import CallError
from tests.export.served import PREDICT, ask, call, predict_request, raw, row


def test_rows_and_columns_are_those_of_the_rest_api(tiny):
    """The forms of www.tensorflow.org/tfx/serving/api_rest, worked out by hand."""
    raw = [base64.b64encode(text + b"\xff").decode() for text in (b"a", b"\xc3\xa9")]
    rows = [
        {"raw_bytes": {"b64": raw[0]}, "scores": [0.0, 0.0], "shout": "A", "version": 3},
        {"raw_bytes": {"b64": raw[1]}, "scores": [1.0, 2.0], "shout": "é", "version": 3},
    ]
    encoded = {"text": {"b64": base64.b64encode("é".encode()).decode()}, "n": 3}
    assert ask(tiny.ports[0], PREDICT, {"instances": [row("a", 0), encoded]}) == (200, {"predictions": rows})
    inputs = {"text": ["a", "é"], "n": [0, 3]}
    columns = {name: [one[name] for one in rows] for name in rows[0]}
    for path in (PREDICT, "/v1/models/tiny/versions/3:predict"):
        asked = {"signature_name": "serving_default", "inputs": inputs}
        assert ask(tiny.ports[0], path, asked) == (200, {"outputs": columns})
    for body in ({"instances": ["é", "abc"]}, {"instances": [{"text": "é"}, {"text": "abc"}]}):
        assert ask(tiny.ports[0], PREDICT, {"signature_name": "one"} | body) == (200, {"predictions": [1, 3]})
    for inputs in (["é", "abc"], {"text": ["é", "abc"]}):
        assert ask(tiny.ports[0], PREDICT, {"signature_name": "one", "inputs": inputs}) == (200, {"outputs": [1, 3]})
    raw = {"text": {"b64": base64.b64encode(b"a\xff").decode()}, "n": 0}  # of bytes that are no UTF-8
    found = ask(tiny.ports[0], PREDICT, {"instances": [raw]})[1]["predictions"][0]
    assert (found["shout"], base64.b64decode(found["raw_bytes"]["b64"])) == ("A\ufffd", b"a\xff\xff")
    empty = ask(tiny.ports[0], PREDICT, {"inputs": {"text": [], "n": []}})
    assert empty == (200, {"outputs": {"raw_bytes": [], "scores": [], "shout": [], "version": []}})


def test_status_and_metadata(tiny):
    status = {"version": "3", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    for path in ("/v1/models/tiny", "/v1/models/tiny/versions/3"):
        assert ask(tiny.ports[0], path) == (200, {"model_version_status": [status]})
    code, found = ask(tiny.ports[0], "/v1/models/tiny/metadata")
    assert (code, found["model_spec"]) == (200, {"name": "tiny", "signature_name": "", "version": "3"})
    one = found["metadata"]["signature_def"]["signature_def"]["one"]
    assert one["method_name"] == "tensorflow/serving/predict"
    assert one["inputs"]["text"]["dtype"] == "DT_STRING"
    assert one["inputs"]["text"]["tensor_shape"] == {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}


def test_the_same_over_grpc(tiny):
    request = predict_request(text=[b"a", "é".encode()], n=np.array([0, 3], "int32"))
    response = call(tiny.ports[1], "Predict", request)
    spec = response.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("tiny", 3, "serving_default")
    outputs = {name: messages.array(tensor).tolist() for name, tensor in response.outputs.items()}
    scores = [[0.0, 0.0], [1.0, 2.0]]
    shouted = [b"A", "é".encode()]
    raw = [b"a\xff", b"\xc3\xa9\xff"]
    assert outputs == {"shout": shouted, "scores": scores, "raw_bytes": raw, "version": [3, 3]}
    request.output_filter.append("scores")
    assert list(call(tiny.ports[1], "Predict", request).outputs) == ["scores"]
    asked = message("GetModelMetadataRequest")(metadata_field=["signature_def"])
    asked.model_spec.name = "tiny"
    found = call(tiny.ports[1], "GetModelMetadata", asked).metadata["signature_def"]
    assert found.type_url == "type.googleapis.com/tensorflow.serving.SignatureDefMap"
    read = message("SignatureDefMap").FromString(found.value).signature_def
    assert read["one"].inputs["text"].dtype == tf.string.as_datatype_enum
    asked = message("GetModelStatusRequest")()
    asked.model_spec.name = "tiny"
    asked.model_spec.version.value = 0  # ovmsclient's word for the newest
    (status,) = call(tiny.ports[1], "GetModelStatus", asked).model_version_status
    assert (status.version, status.state, status.status.error_code) == (3, 30, 0)


DEEP = b'{"inputs":' + b"[" * 10_000 + b"]" * 10_000 + b"}"
WRONG = [  # body, path, status, what is said
    (b"", PREDICT, 400, "The document is empty"),
    (b"{", PREDICT, 400, "JSON Parse error"),
    (b"\xff\xfe", PREDICT, 400, "JSON Parse error"),
    (DEEP, PREDICT, 400, "nested"),
    (b"[1]", PREDICT, 400, "Is not object"),
    ({}, PREDICT, 400, "Missing 'inputs' or 'instances' key"),
    ({"instances": [row("a", 1)], "inputs": []}, PREDICT, 400, "only one of 'inputs' or 'instances'"),
    ({"instances": []}, PREDICT, 400, "No values in 'instances' array"),
    ({"instances": "a"}, PREDICT, 400, "to be a list/array"),
    ({"instances": ["a"]}, PREDICT, 400, "expecting list of objects of n, text"),
    ({"instances": [row("a", 1), "a"]}, PREDICT, 400, "item 1 of 'instances' is unlike item 0"),
    (
        {"instances": [row("a", 1), {"text": "a"}]},
        PREDICT,
        400,
        "input: n in element 1 of 'instances' list. Expected: n, text",
    ),
    ({"instances": [row("a", 1) | {"x": 1}]}, PREDICT, 400, 'does not have named input: "x". Expected: n, text'),
    ({"inputs": ["a"]}, PREDICT, 400, "expecting an object of n, text"),
    ({"inputs": {"text": ["a"]}}, PREDICT, 400, "Missing named input: n in 'inputs' object. Expected: n, text"),
    ({"inputs": {"text": ["a"], "n": [1], "y": 1}}, PREDICT, 400, 'does not have named input: "y"'),
    ({"inputs": {"text": ["a"], "n": ["1"]}}, PREDICT, 400, 'input n: JSON Value: "1" is not of expected type: int32'),
    ({"inputs": {"text": ["a"], "n": [1.5]}}, PREDICT, 400, "JSON Value: 1.5 is not of expected type: int32"),
    ({"inputs": {"text": ["a"], "n": [True]}}, PREDICT, 400, "JSON Value: true is not of expected type: int32"),
    ({"inputs": {"text": ["a"], "n": [1 << 40]}}, PREDICT, 400, "a number is out of the range of int32"),
    ({"inputs": {"text": [None], "n": [1]}}, PREDICT, 400, "JSON Value: null is not of expected type: string"),
    ({"inputs": {"text": ["a", ["b"]], "n": [1, 1]}}, PREDICT, 400, "is not of expected type: string"),
    ({"inputs": {"text": [["a"], ["b", "c"]], "n": [1, 1]}}, PREDICT, 400, "expected a list of size: 1"),
    ({"inputs": {"text": [{"b64": "?"}], "n": [1]}}, PREDICT, 400, 'Unable to base64 decode "?"'),
    ({"inputs": {"text": [{"b64": 1}], "n": [1]}}, PREDICT, 400, "an object of 1 is not of expected type"),
    (b'{"inputs": {}, "inputs": {"text": ["a"], "n": [1]}}', PREDICT, 400, 'key "inputs" stands twice in an object'),
    (b'{"instances": [{"text": "a", "n": 1, "text": "b"}]}', PREDICT, 400, 'key "text" stands twice in an object'),
    (b'{"inputs": {"text": ["\\ud800"], "n": [1]}}', PREDICT, 400, "surrogate"),
    (
        {"inputs": {"text": [["a"]], "n": [1]}},
        PREDICT,
        400,
        "the input text is a list of strings [B]. Received the shape",
    ),
    ({"inputs": {"text": "a", "n": 1}}, PREDICT, 400, "the input text is a list of strings [B]"),
    ({"inputs": {"text": ["a", "b"], "n": [1]}}, PREDICT, 400, "as many rows of text as of n"),
    ({"inputs": {"text": ["a"], "n": [-1]}}, PREDICT, 400, "n is at least 0"),
    (
        {"signature_name": "no", "inputs": []},
        PREDICT,
        400,
        '"no" not found in signature def. All: lists, one, serving_default',
    ),
    ({"signature_name": 3, "inputs": []}, PREDICT, 400, "'signature_name' key must be a string value"),
    ({"signature": "one", "inputs": []}, PREDICT, 400, 'no key "signature" in a request'),
    ({}, "/v1/models/no:predict", 404, "Servable not found for request: Latest(no)"),
    ({}, "/v1/models/tiny/versions/2:predict", 404, "Servable not found for request: Specific(tiny, 2)"),
    ({}, "/v1/models/tiny/versions/99999999999999999999:predict", 400, "Malformed request: POST"),
    ({"examples": [{}]}, "/v1/models/tiny:classify", 400, "No signature of this model answers classify"),
    ({}, "/v1/models/tiny/labels/stable:predict", 400, "Unrecognized servable version label: stable"),
    (None, "/v1/models/tiny/labels/stable/metadata", 400, "Unrecognized servable version label: stable"),
    ({}, "/v1/models/tiny", 400, "Malformed request: POST /v1/models/tiny"),
    (None, "/v1/models", 400, "Missing model name in request."),
    (None, "/v1/models/no", 404, "Could not find any versions of model no"),
    (None, "/v1/models/tiny/versions/2", 404, "Could not find version 2 of model tiny"),
    (None, "/v1/models/no/metadata", 404, "Servable not found"),
    (None, "/v1/x/../..", 400, "Malformed request: GET"),
    (None, "/%2e%2e/etc/passwd", 404, "nothing is at"),
    (b"x" * 200_001, PREDICT, 413, "has 200001 bytes, more than 200000"),
]


def test_wrong_requests_get_a_status_and_a_sentence_and_the_next_is_answered(tiny):
    for body, path, status, said in WRONG:
        code, found = ask(tiny.ports[0], path, body)
        assert (code, list(found)) == (status, ["error"]), (path, body, found)
        assert said in found["error"], found
        assert "\n" not in found["error"]
        assert "node" not in found["error"]
    assert ask(tiny.ports[0], PREDICT, {"instances": [row("a", 0)]})[0] == 200


def test_wrong_calls_over_grpc(tiny):
    text, number = [b"a"], np.array([1], "int32")
    huge, few = predict_request(text=text, n=number), predict_request(text=text, n=number)
    huge.inputs["text"].tensor_shape.dim.add(size=1 << 40)
    few.inputs["n"].tensor_shape.dim[0].size = -1
    old = predict_request(text=text, n=number)
    old.model_spec.version.value = 2
    label = predict_request(text=text, n=number)
    label.model_spec.version_label = "stable"
    other = predict_request(text=text, n=number)
    other.output_filter.append("x")
    wrong = [
        (b"\xff\xff", "INVALID_ARGUMENT", "the message is no PredictRequest"),
        (predict_request("no", text=text, n=number), "NOT_FOUND", "Servable not found for request: Latest(no)"),
        (old, "NOT_FOUND", "Specific(tiny, 2)"),
        (label, "INVALID_ARGUMENT", "Unrecognized servable version label: stable: versions have numbers alone"),
        (predict_request(signature="no"), "FAILED_PRECONDITION", 'Serving signature key "no" not found'),
        (predict_request(text=text), "INVALID_ARGUMENT", "Missing but required: {n}"),
        (predict_request(text=text, n=number, x=number), "INVALID_ARGUMENT", "Sent extra: {x}"),
        (
            predict_request(text=number, n=number),
            "INVALID_ARGUMENT",
            "the input text is of type int32. Expected: string",
        ),
        (huge, "INVALID_ARGUMENT", "the tensor has 1 values for a shape of"),
        (few, "INVALID_ARGUMENT", "which cannot be read"),
        (other, "INVALID_ARGUMENT", "output tensor alias not found in signature: x"),
        (predict_request(text=text, n=-number), "INVALID_ARGUMENT", "n is at least 0"),
        (predict_request(text=[b"a" * 250_000], n=number), "RESOURCE_EXHAUSTED", "larger than max"),
    ]
    for request, code, said in wrong:
        with pytest.raises(grpc.RpcError, match=".") as error:
            call(tiny.ports[1], "Predict", request)
        assert (error.value.code().name, said in error.value.details()) == (code, True), error.value.details()
    with grpc.insecure_channel(f"127.0.0.1:{tiny.ports[1]}", compression=grpc.Compression.Gzip) as channel:
        asked = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        with pytest.raises(grpc.RpcError, match="larger than max|message too large") as error:  # 20 MB in 20 kB
            asked(predict_request(text=[b"a" * 20_000_000], n=number).SerializeToString(), timeout=20)
        assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert asked(predict_request(text=text, n=number).SerializeToString(), timeout=20)
    assert call(tiny.ports[1], "Predict", predict_request(text=text, n=number)).model_spec.version.value == 3


def test_a_status_over_grpc_quotes_of_long_names_what_a_client_takes(tiny):
    """It was RESOURCE_EXHAUSTED, "received metadata size exceeds hard limit", of which a client thinks that it may try again."""
    text, number = [b"a"], np.array([1], "int32")
    for letter in ("x", "\u65e5"):
        name = letter * 20_000
        wrong = [
            (
                predict_request(name, text=text, n=number),
                "NOT_FOUND",
                f"Servable not found for request: Latest({letter}",
            ),
            (predict_request(signature=name), "FAILED_PRECONDITION", "not found. All: lists, one, serving_default"),
            (predict_request(text=text, n=number, **{name: number}), "INVALID_ARGUMENT", f"Sent extra: {{{letter}"),
        ]
        for request, code, said in wrong:
            with pytest.raises(grpc.RpcError, match=".") as error:
                call(tiny.ports[1], "Predict", request)
            assert (error.value.code().name, said in error.value.details()) == (code, True), error.value.details()


def test_a_fault_of_the_model_is_told_to_the_caller_and_on_stderr(tiny, monkeypatch, capsys):
    def breaks(*_):
        raise RuntimeError("out of\norder")

    monkeypatch.setattr(tiny.models["tiny"].versions[3].loaded, "checked", breaks)
    said = ask(tiny.ports[0], PREDICT, {"instances": [row("a", 0)]})
    assert said == (500, {"error": f"POST {PREDICT}: unexpected RuntimeError: out of order"})
    with pytest.raises(grpc.RpcError, match="Predict: unexpected RuntimeError: out of order") as error:
        call(tiny.ports[1], "Predict", predict_request(text=[b"a"], n=np.array([1], "int32")))
    assert error.value.code() == grpc.StatusCode.INTERNAL
    assert capsys.readouterr().err.count("Traceback") == 2


def packed(head, body, cut=0):
    """A request with a body by gzip, whose last bytes may be missing."""
    data = gzip.compress(body.encode(), mtime=0)
    data = data[: len(data) - cut].decode("latin-1")
    return f"{head}Content-Encoding: GZIP\r\nContent-Length: {len(data)}\r\n\r\n{data}"


def test_clients_that_are_no_good_ones_cost_no_other(tiny):
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\n"
    body = json.dumps({"instances": [row("a", 0)]})
    whole = f"{head}Content-Length: {len(body)}\r\n\r\n{body}"
    large = f"{head}Transfer-Encoding: chunked\r\n\r\n" + f"10000\r\n{'x' * 0x10000}\r\n" * 4
    cases = [
        (f"{head}Content-Length: 99\r\n\r\nabc", False, "408", "did not arrive within 1 s"),
        ("GET /v1/mod", False, "408", "did not arrive"),
        (f"{head}Content-Length: 99\r\n\r\nabc", True, "400", "no request of HTTP/1.1"),
        (whole, True, "200", '"shout":"A"'),
        (whole + whole.replace("/tiny", "/no"), True, "404", "Latest(no)"),
        (f"GET / HTTP/1.1\r\nHost: x\r\nX: {'y' * 40_000}\r\n\r\n", False, "431", "have at most 16384 bytes"),
        ("\x16\x03\x01\x02\x00\x01\x00", False, "400", "no request of HTTP/1.1"),
        ("GET / HTTP/1.1\r\n\r\n", False, "400", "Host"),
        (f"{head}Content-Length: -1\r\n\r\n", False, "400", "Content-Length"),
        (
            f"{head}Content-Encoding: br\r\nContent-Length: 1\r\n\r\nx",
            False,
            "415",
            "compressed by br: send it as it is",
        ),
        (f"{head}Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", False, "400", "no whole gzip"),
        (f"{head}Content-Encoding: gzip\r\nContent-Length: 12\r\n\r\n{'x' * 12}", False, "400", "the body is no gzip"),
        (packed(head, body), True, "200", '"shout":"A"'),
        (packed(head, body, 4), False, "400", "its end is missing"),
        (packed(head, "x" * 10_000_000), False, "413", "is larger unpacked, more than 200000"),
        ("HEAD /v1/models/tiny HTTP/1.1\r\nHost: x\r\n\r\n", True, "200", "Content-Length: "),
        ("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", True, "404", "nothing is at OPTIONS"),
        ("GET /v1/models/tiny HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", False, "200", "AVAILABLE"),
        (large, False, "413", "goes on, more than 200000"),
        ("GET /v1/models/tiny HTTP/1.0\r\n\r\n", False, "200", "AVAILABLE"),
        (f"{head}Expect: 100-continue\r\nContent-Length: 1\r\n\r\n", False, "100", "408 Request Timeout"),
    ]
    with ThreadPoolExecutor(len(cases)) as pool:  # the slow ones wait at the same time
        for case, answer in zip(
            cases, pool.map(lambda case: raw(tiny.ports[0], case[0].encode("latin-1"), case[1]), cases)
        ):
            assert f"HTTP/1.1 {case[2]} " in answer, (case, answer)
            assert case[3] in answer, (case, answer)
    assert ask(tiny.ports[0], PREDICT, {"instances": [row("a", 0)]})[0] == 200


def test_a_number_beyond_float32_is_refused():
    """It was infinity, with a warning of numpy in the log."""
    from kerasbert.export.server import json_arrays

    with pytest.raises(CallError, match="out of the range of float32"):
        json_arrays._array([1e300], "float32", "input x")
    assert np.isinf(json_arrays._array([float("inf")], "float32", "input x")).all()

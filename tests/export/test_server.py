"""`kerasbert serve` answers as TF Serving does: REST and gRPC, alone and joined, right and wrong calls."""

import asyncio
import base64
import importlib.util
import json
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import tensorflow as tf

from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.export import messages
from kerasbert.export.messages import message
from kerasbert.export.server import batching, folders
from kerasbert.export.server.http import HttpServer, Limits
from kerasbert.export.server.run import bound
from tests.export import served
from tests.export.served import ask

PREDICT = "/v1/models/tiny:predict"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return served.write(tmp_path_factory.mktemp("serving") / "tiny" / "3", 3).parent


@pytest.fixture(scope="module")
def tiny(folder):
    with served.server({"tiny": folder}, max_body=200_000, timeout=1.0) as one:
        yield one


def row(text, n):
    return {"text": text, "n": n}


def call(port, method, request):
    """A call over gRPC -> the response."""
    service = "ModelService" if method == "GetModelStatus" else "PredictionService"
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        asked = channel.unary_unary(f"/tensorflow.serving.{service}/{method}")
        data = request if isinstance(request, bytes) else request.SerializeToString()
        return message(f"{method}Response").FromString(asked(data, timeout=20))


def predict_request(name="tiny", signature="", **inputs):
    request = message("PredictRequest")()
    request.model_spec.name, request.model_spec.signature_name = name, signature
    for key, value in inputs.items():
        messages.fill(request.inputs[key], np.array(value, object if isinstance(value[0], bytes) else None))
    return request


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
    ({"instances": [row("a", 1), {"text": "a"}]}, PREDICT, 400, "Missing named input: n in element 1"),
    ({"instances": [row("a", 1) | {"x": 1}]}, PREDICT, 400, 'does not have named input: "x". Expected: n, text'),
    ({"inputs": ["a"]}, PREDICT, 400, "expecting an object of n, text"),
    ({"inputs": {"text": ["a"]}}, PREDICT, 400, "Missing named input: n"),
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
    ({"signature_name": "no", "inputs": []}, PREDICT, 400, 'name: "no" not found in signature def'),
    ({"signature_name": 3, "inputs": []}, PREDICT, 400, "'signature_name' key must be a string value"),
    ({"signature": "one", "inputs": []}, PREDICT, 400, 'no key "signature" in a request'),
    ({}, "/v1/models/no:predict", 404, "Servable not found for request: Latest(no)"),
    ({}, "/v1/models/tiny/versions/2:predict", 404, "Servable not found for request: Specific(tiny, 2)"),
    ({}, "/v1/models/tiny/versions/99999999999999999999:predict", 400, "Malformed request: POST"),
    ({}, "/v1/models/tiny:classify", 501, "classify"),
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
        (label, "FAILED_PRECONDITION", "no label stable"),
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
    assert call(tiny.ports[1], "Predict", predict_request(text=text, n=number)).model_spec.version.value == 3


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


def raw(port, data, end=False):
    """What a server sends to bytes on a socket, until it closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as link:
        link.sendall(data)
        if end:
            link.shutdown(socket.SHUT_WR)
        parts = []
        while part := link.recv(1 << 16):
            parts.append(part)
    return b"".join(parts).decode()


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
        (f"{head}Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", False, "415", "compressed"),
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


def test_more_connections_than_there_may_be_are_told_so():
    async def handle(method, target, body):
        return 200, "text/plain", f"{method} {target} {len(body)}".encode()

    async def read(port, sent):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        return (await reader.readuntil(b"}" if not sent else b" 0")).decode(), writer

    async def check():
        server = HttpServer(handle, Limits(connections=1))
        with bound("127.0.0.1", 0, "--port") as listener:
            await server.start(listener)
            port = listener.getsockname()[1]
            first, open_ = await read(port, b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
            second, refused = await read(port, b"")
            open_.close()
            refused.close()
            await server.stop(5)
        assert first.endswith("GET /x 0")
        assert second.startswith("HTTP/1.1 503 Service Unavailable\r\n")
        assert '"error": "1 connections are open, the most that may: try again later"' in second

    asyncio.run(check())


def test_calls_that_wait_together_are_joined_and_answered_as_alone(tiny):
    """Each of 60 gets its own rows, whatever the others sent; a wrong one fails alone."""

    def of(number):
        rows = [row("x" * (number % 7) + str(number), number + i) for i in range(number % 3 + 1)]
        if number % 10 == 9:
            rows[0] = row("wrong", -1)
        return rows, ask(tiny.ports[0], PREDICT, {"instances": rows})

    def lists(number):
        choices = [[f"{number}.{i}" for i in range(number % 4 + 1)]] * 2
        body = {"choices": choices, "counts": [number % 4 + 1, 1]}
        return number, choices, ask(tiny.ports[0], PREDICT, {"signature_name": "lists", "inputs": body})

    before = dict(tiny.metrics.batches), dict(tiny.metrics.rows)
    with ThreadPoolExecutor(16) as pool:
        several = pool.map(lists, range(30))
        for rows, (code, found) in pool.map(of, range(60)):
            if rows[0]["n"] < 0:
                assert (code, "n is at least 0" in found["error"]) == (400, True)
                continue
            assert [one["shout"] for one in found["predictions"]] == [one["text"].upper() for one in rows]
            np.testing.assert_allclose(
                [one["scores"][1] for one in found["predictions"]], [one["n"] * 2 / 3 for one in rows]
            )
        for _number, choices, (_, found) in several:
            picked = found["outputs"]["picked"]
            assert picked[0][: len(choices[0])] == choices[0]
            assert {*picked[0][len(choices[0]) :], *picked[1][1:]} <= {""}
    assert tiny.metrics.batches["tiny"] - before[0].get("tiny", 0) < 90
    right = sum(number % 3 + 1 for number in range(60) if number % 10 < 9)
    assert tiny.metrics.rows["tiny"] - before[1].get("tiny", 0) == right + 2 * 30


def test_a_call_of_more_rows_than_a_batch_is_split(tiny):
    choices = [["a"] * 20] * 40 + [["b"] * 20] * 3
    body = {"signature_name": "lists", "inputs": {"choices": choices, "counts": [20] * 43}}
    before = tiny.metrics.batches["tiny"]
    assert ask(tiny.ports[0], PREDICT, body)[1]["outputs"]["picked"] == choices
    assert tiny.metrics.batches["tiny"] - before == 6  # of 8 rows


def test_metrics_count_what_was_asked(tiny):
    import urllib.request

    ask(tiny.ports[0], PREDICT, {"instances": [row("a", 0)]})
    ask(tiny.ports[0], "/v1/models/unknown-name:predict", {})
    with urllib.request.urlopen(f"http://127.0.0.1:{tiny.ports[0]}/metrics") as answer:
        text = answer.read().decode()
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    ok = values['kerasbert_serve_requests_total{model="tiny",protocol="rest",code="OK"}']
    assert int(ok) == tiny.metrics.requests[("model", "tiny"), ("protocol", "rest"), ("code", "OK")] > 0
    assert values['kerasbert_serve_version{model="tiny",version="3"}'] == "1"
    assert values['kerasbert_serve_waiting_rows{model="tiny"}'] == "0"
    counts = [int(value) for name, value in values.items() if '_bucket{model="tiny"' in name]
    assert counts == sorted(counts)
    assert counts[-1] == int(values['kerasbert_serve_request_seconds_count{model="tiny"}'])
    assert "unknown-name" not in text  # a stranger's names are no series


def test_a_new_version_takes_over_and_a_damaged_one_does_not(tmp_path, folder, capsys):
    base = tmp_path / "tiny"
    shutil.copytree(folder / "3", base / "3")

    def version():
        code, found = ask(one.ports[0], PREDICT, {"instances": [row("a", 0)]})
        assert code == 200, found
        return found["predictions"][0]["version"]

    def until(wanted, look):
        end = time.monotonic() + 20
        while look() != wanted:
            assert time.monotonic() < end, look()
            time.sleep(0.02)

    def states():
        return {
            each["version"]: each["state"] for each in ask(one.ports[0], "/v1/models/tiny")[1]["model_version_status"]
        }

    with served.server({"tiny": base}, poll=0.05) as one:
        assert version() == 3
        seen, stop = [], threading.Event()
        asking = threading.Thread(target=lambda: [seen.append(version()) for _ in iter(stop.is_set, True)])
        asking.start()
        served.write(tmp_path / "new", 4)
        (tmp_path / "new").rename(base / "4")
        until({"4": "AVAILABLE"}, states)
        stop.set()
        asking.join()
        assert (seen[0], version()) == (3, 4)
        assert seen == sorted(seen)
        (base / "5").mkdir()
        (base / "5" / "saved_model.pb").write_bytes(b"\x00" * 100)
        until({"5": "END", "4": "AVAILABLE"}, states)
        shutil.copytree(base / "4", tmp_path / "six")
        (tmp_path / "six" / "SHA256SUMS").write_text(f"{'0' * 64}  saved_model.pb\n")
        (tmp_path / "six").rename(base / "6")
        until({"6": "END", "5": "END", "4": "AVAILABLE"}, states)
        warm = base / "4" / "assets.extra"  # of a request that the model refuses
        shutil.copytree(base / "4", tmp_path / "seven")
        (tmp_path / "seven" / warm.name).mkdir()
        log = message("PredictionLog")()
        log.predict_log.request.CopyFrom(predict_request(text=[b"a"], n=np.array([-1], "int32")))
        with tf.io.TFRecordWriter(str(tmp_path / "seven" / warm.name / "tf_serving_warmup_requests")) as records:
            records.write(b"\x0a\x00")  # a classify_log, of an API that is not answered here
            records.write(log.SerializeToString())
        (tmp_path / "seven").rename(base / "7")
        until({"7": "END", "6": "END", "5": "END", "4": "AVAILABLE"}, states)
        assert version() == 4
        shutil.rmtree(base / "5")
        until({"7": "END", "6": "END", "4": "AVAILABLE"}, states)
        (base / "6" / "SHA256SUMS").unlink()  # what was refused is tried again when it changes
        until({"7": "END", "6": "AVAILABLE"}, states)
    said = capsys.readouterr().err
    assert "tiny: version 6 is refused: saved_model.pb differs from its sum in SHA256SUMS: it is damaged, or" in said
    assert "tiny: version 7 is refused: warm-up request 2 is refused:" in said
    assert "n is at least 0" in said
    assert "Version 4 goes on" in said


def test_several_versions_and_models_and_one_that_joins_nothing(tmp_path, folder):
    base = tmp_path / "other"
    for version in (1, 2, 3):
        served.write(base / str(version), version, None)
    with served.server({"tiny": folder, "other": base}, versions=2) as one:
        found = [
            ask(one.ports[0], f"/v1/models/other{v}:predict", {"instances": [row("a", 0)]})
            for v in ("", "/versions/2", "/versions/1")
        ]
        assert [code for code, _ in found] == [200, 200, 404]
        assert [each["predictions"][0]["version"] for _, each in found[:2]] == [3, 2]
        text = ["a"] * 20
        _code, whole = ask(one.ports[0], "/v1/models/other:predict", {"inputs": {"text": text, "n": [0] * 20}})
        assert len(whole["outputs"]["shout"]) == 20
        assert one.metrics.batches["other"] == 3  # rows may depend on each other


def test_what_has_begun_is_answered_when_it_stops(folder):
    with served.server({"tiny": folder}, changes={"wait": 0.6, "rows": 100}) as one, ThreadPoolExecutor(9) as pool:
        asked = [pool.submit(ask, one.ports[0], PREDICT, {"instances": [row("a", i)]}) for i in range(8)]
        called = pool.submit(call, one.ports[1], "Predict", predict_request(text=[b"a"], n=np.array([1], "int32")))
        idle = socket.create_connection(("127.0.0.1", one.ports[0]))
        time.sleep(0.3)
        one.halt()
        assert [each.result()[0] for each in asked] == [200] * 8
        assert called.result().model_spec.version.value == 3
        assert idle.recv(10) == b""
        idle.close()
    with pytest.raises(OSError, match="."):
        socket.create_connection(("127.0.0.1", one.ports[0])).close()


def test_a_queue_that_is_full_says_so(folder):
    """4 batches of 8 rows may wait; what comes then is told to come again."""
    with served.server({"tiny": folder}, changes={"wait": 0.5, "rows": 8, "batches": 1}) as one:
        with ThreadPoolExecutor(12) as pool:
            asked = [pool.submit(ask, one.ports[0], PREDICT, {"instances": [row("a", 0)] * 7}) for _ in range(12)]
            codes = [each.result()[0] for each in asked]
        assert set(codes) == {200, 503}
        assert codes.count(200) >= 2
        assert ask(one.ports[0], PREDICT, {"instances": [row("a", 0)]})[0] == 200


def test_parameters_are_those_beside_the_model(tmp_path):
    from kerasbert.export.beside import PARAMETERS

    assert batching.parameters(tmp_path) is None
    (tmp_path / batching.FILE).write_text(PARAMETERS)
    assert batching.parameters(tmp_path) == batching.Parameters(32, 0.002, 100, True)
    (tmp_path / batching.FILE).write_text("max_batch_size { value: many }")
    with pytest.raises(ValueError, match=r"batching_params\.pbtxt is damaged"):
        batching.parameters(tmp_path)


def test_tensors_are_tensorflows():
    for dtype in (
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
    ):
        for values in ([[0, 1, 2], [3, 4, 1]], [], 1):
            value = np.array(values, dtype)
            mine = message("Tensor").FromString(tf.make_tensor_proto(value).SerializeToString())
            assert (messages.array(mine).tolist(), messages.array(mine).dtype) == (value.tolist(), value.dtype)
            made = message("Tensor")()
            messages.fill(made, value)
            theirs = tf.make_ndarray(type(tf.make_tensor_proto(0)).FromString(made.SerializeToString()))
            assert (theirs.tolist(), theirs.dtype) == (value.tolist(), value.dtype)
    same = message("Tensor")(dtype=1, float_val=[2.0])  # one value for all
    same.tensor_shape.dim.add(size=3)
    assert messages.array(same).tolist() == [2.0, 2.0, 2.0]


def test_names_and_folders_of_a_command(folder, tmp_path, monkeypatch):
    assert folders.named([str(folder)], None) == {"tiny": folder}
    assert folders.named([str(folder / "3")], None) == {"tiny": folder / "3"}
    assert folders.versions(folder / "3") == {3: folder / "3"}
    assert list(folders.named([f"a={folder}", f"b={folder}"], None)) == ["a", "b"]
    monkeypatch.chdir(folder)
    assert folders.named(["."], None).keys() == {"tiny"}
    for given, name, said in (
        ([str(folder), str(folder)], None, "two models are called 'tiny': give them names by NAME=DIR"),
        ([str(folder), f"b={folder}"], "c", "--name is for one DIR"),
        ([f"a:b={folder}"], None, "no '/', ':' or blank"),
        ([str(tmp_path / "no")], None, "no folder"),
        ([str(tmp_path)], None, "is no SavedModel: expected saved_model.pb in it, or in folders called 1, 2"),
    ):
        with pytest.raises(InputError, match=said):
            folders.named(given, name)


def test_a_library_that_is_not_installed_is_named_with_its_extra(folder, monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "h11" else find(name, *rest))
    assert main(["serve", str(folder)]) == 2
    assert capsys.readouterr().err == (
        "error: this command needs h11, which is not installed. Do, in a checkout of kerasbert: pip install '.[serving]'\n"
    )


def test_a_port_that_is_taken_and_a_model_that_cannot_be_loaded_are_one_line(folder, tmp_path, capsys):
    with bound("127.0.0.1", 0, "--port") as taken:
        taken.listen()
        port = str(taken.getsockname()[1])
        for option, other in (("--port", "--grpc-port"), ("--grpc-port", "--port")):
            assert main(["serve", str(folder), option, port, other, "0"]) == 2
            assert capsys.readouterr().err == (
                f"error: port {port} of 127.0.0.1 is taken: stop what listens there, or give another by {option}\n"
            )
    (tmp_path / "damaged" / "1").mkdir(parents=True)
    (tmp_path / "damaged" / "1" / "saved_model.pb").write_bytes(b"\x00")
    assert main(["serve", str(tmp_path / "damaged"), "--port", "0", "--grpc-port", "0"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == f"error: damaged: no version in {tmp_path / 'damaged'} can be served"
    assert said[-2].startswith("damaged: version 1 is refused: ")

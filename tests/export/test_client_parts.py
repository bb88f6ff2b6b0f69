"""Parts of the client, each by hand: addresses, rows of several calls, values as json and as arrays, times between tries."""

import urllib.parse

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.export import client, client_grpc, client_rest, messages
from kerasbert.export.client import Client
from kerasbert.export.client_grpc import Grpc
from kerasbert.export.client_rest import Rest
from kerasbert.export.status import Again, CallError


def rest(url="http://host:1/prefix/"):
    return Rest(urllib.parse.urlsplit(url), None, {"X": "1"})


@pytest.mark.parametrize(
    ("url", "port"),
    [("http://h", 8501), ("https://h", 443), ("http://h:9", 9), ("https://h:9/p", 9), ("http://[::1]:7", 7)],
)
def test_the_usual_port_of_an_address(url, port):
    link = rest(url)._connection()
    assert link.port == port
    assert link.host == ("::1" if "::1" in url else "h")


@pytest.mark.parametrize(
    ("url", "where"),
    [("grpc://h", "h:8500"), ("grpcs://h", "h:443"), ("grpc://h:9", "h:9"), ("grpc://[::1]:7", "[::1]:7")],
)
def test_the_usual_port_of_a_channel(url, where):
    channel = Grpc(urllib.parse.urlsplit(url), None, {"Name": "value"})
    assert (channel.where, channel.headers) == (where, (("name", "value"),))
    channel.close()


def test_paths_of_models_and_versions():
    link = rest()
    assert link._path(("a b/c", None, "s"), ":predict") == "/prefix/v1/models/a%20b%2Fc:predict"
    assert link._path(("m", 0, "s"), "") == "/prefix/v1/models/m/versions/0"
    assert link.headers == {"Content-Type": "application/json", "X": "1"}


def test_values_in_json_there_and_back():
    value = ["a", b"\xff", [b"x", ("y", 1)], 2.5, True]
    assert client_rest._jsonable(value) == ["a", {"b64": "/w=="}, [{"b64": "eA=="}, ["y", 1]], 2.5, True]
    assert client_rest._bytes([{"b64": "/w=="}, [{"b64": "eA=="}]]) == [b"\xff", [b"x"]]
    with pytest.raises(TimeoutError):
        client_rest._left(0.0)
    with pytest.raises(InputError, match="the inputs cannot be sent"):
        rest().predict(("m", None, "s"), {"x": [object()]}, None)


def answering(status, data, after=0.0):
    link = rest()
    link._exchange = lambda *_: (status, after, data)
    return link


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "INVALID_ARGUMENT"),
        (404, "NOT_FOUND"),
        (403, "PERMISSION_DENIED"),
        (409, "ALREADY_EXISTS"),
        (412, "FAILED_PRECONDITION"),
    ]
    + [(418, "INTERNAL"), (500, "INTERNAL"), (501, "UNIMPLEMENTED"), (504, "DEADLINE_EXCEEDED")],
)
def test_statuses_of_http_are_codes(status, code):
    with pytest.raises(CallError, match="said") as error:
        answering(status, b'{"error": "said"}')._asked("GET", "/", None, 1, "outputs")
    assert error.value.code == code
    assert not isinstance(error.value, Again)


@pytest.mark.parametrize("status", client_rest.AGAIN)
def test_statuses_of_calls_that_did_not_begin(status):
    with pytest.raises(Again) as error:
        answering(status, b"<html>", 2.5)._asked("GET", "/", None, 1, "outputs")
    assert (error.value.code, error.value.after) == (client_rest.AGAIN[status], 2.5)


@pytest.mark.parametrize(
    "data", [b"", b"<html>", b"\xff", b"null", b"[1]", b"1", b'{"other": 1}', b'{"outputs": null}']
)
def test_an_answer_that_is_none_of_tf_serving(data):
    with pytest.raises(CallError, match="answers 200, and not as TF Serving does") as error:
        answering(200, data)._asked("GET", "/", None, 1, "outputs")
    assert error.value.code == "INTERNAL"


def test_outputs_types_and_states_of_a_server():
    link = answering(200, b'{"outputs": [1, 2]}')
    call = link.predict(("m", None, "s"), {}, lambda _: {"outputs": ["only"]})
    assert call(1) == {"only": [1, 2]}
    call = answering(200, b'{"outputs": {"x_bytes": [{"b64": "/w=="}], "y": ["a"]}}').predict(
        ("m", None, "s"), {}, None
    )
    assert call(1) == {"x_bytes": [b"\xff"], "y": ["a"]}
    status = b'{"model_version_status": [{"version": "7", "state": "LOADING"}]}'
    assert answering(200, status).status(("m", None, ""))(1) == {7: "LOADING"}
    found = b"""{"metadata": {"signature_def": {"signature_def": {"__init": {}, "s": {
        "inputs": {"b": {"dtype": "DT_INT32", "tensor_shape": {"dim": [{"size": "-1"}, {"size": "3"}]}},
                   "a": {"dtype": "DT_STRING", "tensor_shape": {"unknown_rank": true}}},
        "outputs": {"o": {"dtype": "DT_FLOAT", "tensor_shape": {}}}}}}}}"""
    typed = answering(200, found).signatures(("m", None, ""))(1)
    assert typed == {"s": {"inputs": {"a": "DT_STRING ?", "b": "DT_INT32 [-1, 3]"}, "outputs": {"o": "DT_FLOAT []"}}}


@pytest.mark.parametrize(
    ("rows", "kind", "dtype", "expected"),
    [
        ([1, 2], "DT_INT32 [-1]", "int32", [1, 2]),
        ([1, 2], "DT_FLOAT [-1]", "float32", [1, 2]),
        ([[1.5], [2]], "DT_FLOAT [-1, 1]", "float32", [[1.5], [2]]),
        ([True, False], "DT_BOOL [-1]", "bool", [True, False]),
        ([2**40], "DT_INT64 [-1]", "int64", [2**40]),
        (["a", b"b"], "DT_STRING [-1]", "object", [b"a", b"b"]),
        ([["a", "é"], ["b", "c"]], "DT_STRING [-1, -1]", "object", [[b"a", "é".encode()], [b"b", b"c"]]),
        ([], "DT_INT32 [-1]", "int32", []),
    ],
)
def test_rows_as_arrays_of_a_signatures_type(rows, kind, dtype, expected):
    found = Grpc._array(None, "x", rows, kind)
    assert (found.dtype, found.tolist()) == (dtype, expected)


@pytest.mark.parametrize(
    ("rows", "kind", "said"),
    [
        ([2**31], "DT_INT32 [-1]", "numbers of int32"),
        ([1.5], "DT_INT32 [-1]", "numbers of int32"),
        ([True], "DT_INT32 [-1]", "numbers of int32"),
        ([1], "DT_BOOL [-1]", "numbers of bool"),
        ([1e300], "DT_FLOAT [-1]", "numbers of float32"),  # it was sent as infinity
        (["a"], "DT_FLOAT [-1]", "numbers of float32|could not convert"),
        ([1], "DT_STRING [-1]", "strings, or lists of equal length"),
        ([["a"], ["b", "c"]], "DT_STRING [-1, -1]", "strings, or lists of equal length|Expected"),
        (["\ud800"], "DT_STRING [-1]", "half of a surrogate pair"),
    ],
)
def test_rows_of_another_type_are_refused(rows, kind, said):
    with pytest.raises(InputError, match=f"the input x cannot be sent.*({said})"):
        Grpc._array(None, "x", rows, kind)


def test_strings_of_an_array_are_text_but_where_bytes_are_named():
    value = np.array([[b"a", b"\xff"]], object)
    assert client_grpc._text(value, "x") == [["a", "\ufffd"]]
    assert client_grpc._text(value, "x_bytes") == [[b"a", b"\xff"]]
    assert client_grpc._text(np.array([1.5]), "x") == [1.5]
    assert {"DT_STRING", "DT_FLOAT"} < set(client_grpc.DTYPES)
    assert client_grpc.NAMES[messages.NUMBERS["float32"]] == "DT_FLOAT"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([{"a": [1, 2]}], {"a": [1, 2]}),
        ([{"a": [1]}, {"a": [2, 3]}], {"a": [1, 2, 3]}),
        ([{"a": [[1], [2, 3]]}], {"a": [[1], [2, 3]]}),  # of one call: as it came
        ([{"a": [[1]]}, {"a": [[2, 3]]}], {"a": [[1, 0], [2, 3]]}),
        ([{"a": [["x"]]}, {"a": [[]]}], {"a": [["x"], [""]]}),
        ([{"a": [[]]}, {"a": [[]]}], {"a": [[], []]}),
        ([{"a": [[[1, "x"]]]}, {"a": [[]]}], {"a": [[[1, "x"]], [[0, ""]]]}),
    ],
)
def test_rows_of_several_calls(parts, expected):
    assert client._joined(parts) == expected


def test_plain_values_of_numpy():
    plain = client._plain([np.int64(1), (np.str_("a"), np.array([1.5])), "b", b"c", None])
    assert plain == [1, ["a", [1.5]], "b", b"c", None]
    assert client._listed("x", np.array([[1], [2]])) == client._listed("x", ([1], [2])) == [[1], [2]]
    for wrong in ("abc", b"abc", 3, np.float32(1)):
        with pytest.raises(InputError, match="the input x is a list with a value for each row"):
            client._listed("x", wrong)


@pytest.fixture
def clock(monkeypatch):
    """Time that only sleeps; -> the seconds slept."""
    slept = []
    monkeypatch.setattr(client.time, "monotonic", lambda: sum(slept))
    monkeypatch.setattr(client.time, "sleep", slept.append)
    monkeypatch.setattr(client.random, "uniform", lambda low, high: high)
    return slept


def failing(times, after=0.0, seconds=None):
    left = [times]

    def call(given):
        if seconds is not None:
            seconds.append(given)
        if left[0]:
            left[0] -= 1
            raise Again("UNAVAILABLE", "full", after)
        return "answer"

    return call


def test_pauses_between_tries_double_up_to_the_longest(clock):
    asked = []
    one = Client("http://h", "m", retries=20, timeout=1e6)
    assert one._tried(failing(12, seconds=asked)) == "answer"
    expected = [min(client.LONGEST, client.FIRST * 2**i) for i in range(12)]
    assert clock == pytest.approx(expected)
    assert asked == pytest.approx([1e6 - sum(expected[:i]) for i in range(13)])


def test_a_server_that_asks_for_a_longer_pause_gets_it_within_the_time(clock):
    assert Client("http://h", "m", retries=1, timeout=100)._tried(failing(1, after=7.0)) == "answer"
    assert clock == [7.0]
    with pytest.raises(CallError, match="full"):
        Client("http://h", "m", retries=5, timeout=7.0)._tried(failing(1, after=7.0))
    assert clock == [7.0]


@pytest.mark.parametrize(("retries", "fails", "right"), [(0, 0, True), (0, 1, False), (2, 2, True), (2, 3, False)])
def test_as_many_tries_as_retries_say(retries, fails, right, clock):
    one = Client("http://h", "m", retries=retries, timeout=1e3)
    if right:
        assert one._tried(failing(fails)) == "answer"
        return
    with pytest.raises(CallError) as error:
        one._tried(failing(fails))
    assert not isinstance(error.value, Again)
    assert len(clock) == retries


@pytest.mark.parametrize("url", ["http://h", "grpc://h"])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"model": ""}, "a model's name"),
        ({"model": "a/b"}, "a model's name"),
        ({"model": "\ud83d"}, "a model's name"),
        ({"version": -1}, "version of a client"),
        ({"version": 2**63}, "version of a client"),
        ({"version": True}, "version of a client"),
        ({"headers": {"a": 3}}, "a header is"),
        ({"headers": {"a": "b\r\nX: c"}}, "a header is"),
        ({"headers": {"a b": "c"}}, "a header is"),
        ({"headers": {"a": "\u65e5"}}, "a header is"),
    ],
)
def test_what_no_call_can_hold_is_refused_at_once(url, given, told):
    """They were errors of http.client, gRPC and protobuf, in the first call."""
    with pytest.raises(InputError, match=told):
        Client(url, **{"model": "m", **given})


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "grpc://127.0.0.1:1"])
def test_a_closed_client_is_refused(url):
    """By gRPC it was a ValueError of the channel; by REST it opened its connections again."""
    import pickle

    one = Client(url, "m")
    with pytest.raises(InputError, match="neither pickled"):
        pickle.dumps(one)
    with pytest.raises(InputError, match="no option 'signatur'. Nearest: 'signature'"):
        one.predict(["a"], signatur="x")
    one.close()
    one.close()
    with pytest.raises(InputError, match="client is closed"):
        one.predict({"text": ["a"]})
    with pytest.raises(InputError, match="client is closed"):
        one.status()

"""The client against `kerasbert serve`, and against servers that fail in each way."""

import contextlib
import datetime
import http.server
import json
import shutil
import ssl
import subprocess
import threading
import time
from concurrent import futures

import grpc
import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.export.client import CallError, Client
from kerasbert.export.messages import message
from tests.export import served
from tests.support import python

DONE = (200, {"outputs": {"a": [1], "b": [2]}}, {})


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = served.write(tmp_path_factory.mktemp("serving") / "tiny" / "3", 3).parent
    with served.server({"tiny": folder}) as one:
        yield one


def urls(one):
    return [f"http://127.0.0.1:{one.ports[0]}", f"grpc://127.0.0.1:{one.ports[1]}"]


class Scripted(http.server.BaseHTTPRequestHandler):
    """Answers by a script of (status, json or bytes, headers); None closes the connection, a number sleeps."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append((self.path, json.loads(body), dict(self.headers)))
        step = self.script.pop(0)
        if step is None:
            self.close_connection = True
            return
        if isinstance(step, float):
            time.sleep(step)
            step = DONE
        status, body, headers = step
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        with contextlib.suppress(OSError):  # whose client has gone
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def scripted(*script, context=None):
    """A server of `script`; -> its port, and what was asked."""
    handler = type("Handler", (Scripted,), {"script": list(script), "asked": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True)
            server.handle_error = lambda *_: None
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.server_address[1], handler.asked
        finally:
            server.shutdown()
            thread.join()


def test_an_answer_that_ends_its_connection_is_read():
    """Of a proxy that keeps none open: the socket was gone when its limit of time was set, and every call failed."""
    ends = (200, DONE[1], {"Connection": "close"})
    with scripted(ends, ends) as (port, asked), Client(f"http://127.0.0.1:{port}", "m", retries=0) as client:
        assert client.predict({"a": [1]}) == client.predict({"a": [1]}) == {"a": [1], "b": [2]}
        assert len(asked) == 2


def test_rest_and_grpc_give_the_same(tiny):
    given = {"text": ["a", "é".encode(), "long " * 50], "n": np.array([0, 3, 6], "int64")}
    found = []
    for url in urls(tiny):
        with Client(url, "tiny", version=3) as client:
            found.append((client.predict(given), client.status(), client.signatures()))
            assert client.predict(["é", "abc"], signature="one") == {"length": [1, 3]}
            assert client.predict({"text": [], "n": []})["shout"] == []
            given_of_numpy = {"text": (np.str_("a"), np.bytes_(b"b")), "n": [np.int64(0), np.int32(3)]}
            assert client.predict(given_of_numpy)["shout"] == ["A", "B"]
            lists = {"choices": [np.array(["a", "b"]), ["c", np.str_("d")]], "counts": np.array([2, 1])}
            assert client.predict(lists, signature="lists")["picked"] == [["a", "b"], ["c", ""]]
    assert found[0] == found[1]
    answer, status, signatures = found[0]
    assert answer["shout"] == ["A", "é", "LONG " * 50]
    assert answer["raw_bytes"][0] == b"a\xff"
    np.testing.assert_allclose(answer["scores"], [[0, 0], [1, 2], [2, 4]])
    assert status == {3: "AVAILABLE"}
    assert signatures["one"] == {"inputs": {"text": "DT_STRING [-1]"}, "outputs": {"length": "DT_INT32 [-1]"}}


def test_many_rows_are_several_calls(tiny):
    """Rows of 1 to 4 choices, 5 a call: what comes back is in one order and of one width."""
    lists = [[f"{i}.{j}" for j in range(4 if i == 13 else 2)] for i in range(17)]
    wide = [each + [""] * (4 - len(each)) for each in lists]
    for url in urls(tiny):
        with Client(url, "tiny", rows=5) as client:
            parts = {"choices": [each[:2] for each in lists], "counts": [2] * 17}
            assert client.predict(parts, "lists")["picked"] == parts["choices"]
            assert client.predict({"choices": wide, "counts": [*map(len, lists)]}, "lists")["picked"] == wide
    with scripted(
        (200, {"outputs": {"w": [["a"]], "p": [[[1, "x"]]]}}, {}), (200, {"outputs": {"w": [[]], "p": [[]]}}, {})
    ) as (port, asked):
        found = Client(f"http://127.0.0.1:{port}", "m", rows=1).predict({"t": ["x", "y"]})
    assert found == {"w": [["a"], [""]], "p": [[[1, "x"]], [[0, ""]]]}
    assert [body["inputs"] for _, body, _ in asked] == [{"t": ["x"]}, {"t": ["y"]}]


def test_refusals_are_errors_with_a_code(tiny):
    for url in urls(tiny):
        client = Client(url, "tiny", retries=0)
        with pytest.raises(CallError, match="n is at least 0") as error:
            client.predict({"text": ["a"], "n": [-1]})
        assert error.value.code == "INVALID_ARGUMENT"
        with pytest.raises(CallError, match=r"Servable not found for request: Specific\(tiny, 9\)") as error:
            Client(url, "tiny", version=9).predict({"text": ["a"], "n": [1]})
        assert error.value.code == "NOT_FOUND"
        with pytest.raises(CallError, match="no input x|named input"):
            client.predict({"text": ["a"], "n": [1], "x": [1]})
        with pytest.raises(InputError, match="as many rows as each other. Received: text 1, n 2"):
            client.predict({"text": ["a"], "n": [1, 2]})
        with pytest.raises(InputError, match="the input text is a list with a value for each row. Received: str"):
            client.predict({"text": "abc", "n": [1]})
        with pytest.raises(InputError, match="serving_default has the inputs n, text: give"):
            client.predict(["a"])
        for text, n in ((["a"], [True]), (["caf\udce9"], [1]), ([datetime.date.min], [1])):
            with pytest.raises(
                (InputError, CallError), match="cannot be sent|of expected type: int32|half of a surrogate"
            ):
                client.predict({"text": text, "n": n})
    with pytest.raises(InputError, match="the input n cannot be sent"):
        client.predict({"text": ["a"], "n": [1.5]})


def test_only_what_may_be_repeated_is_tried_again():
    """Connections that end, 429, 502 and 503 are; a refusal, a fault of the server and silence are not."""
    busy = (503, {"error": "full"}, {})
    with scripted(busy, None, (429, {"error": "slow down"}, {"Retry-After": "0"}), DONE) as (port, asked):
        client = Client(f"http://127.0.0.1:{port}/prefix/", "m", headers={"Authorization": "Bearer x"})
        assert client.predict({"t": ["x"]}) == {"a": [1], "b": [2]}
        assert {path for path, _, _ in asked} == {"/prefix/v1/models/m:predict"}
        assert [headers["Authorization"] for _, _, headers in asked] == ["Bearer x"] * 4
        client.close()
    for code, step, said in (
        ("INVALID_ARGUMENT", (400, {"error": "no"}, {}), "no"),
        ("INTERNAL", (500, {"error": "oh"}, {}), "oh"),
        ("INTERNAL", (200, b"<html>", {}), "answers 200, and not as TF Serving does: b'<html>'"),
        ("DEADLINE_EXCEEDED", 0.4, "did not answer within 0.2 s"),
    ):
        with scripted(step, DONE) as (port, asked):
            with pytest.raises(CallError, match=said) as error:
                Client(f"http://127.0.0.1:{port}", "m", timeout=0.2).predict({"t": ["x"]})
            assert (error.value.code, len(asked)) == (code, 1)
    with scripted(*[busy] * 3) as (port, asked):
        with pytest.raises(CallError, match="full"):
            Client(f"http://127.0.0.1:{port}", "m", retries=2).predict({"t": ["x"]})
        assert len(asked) == 3
    with scripted((503, {"error": "full"}, {"Retry-After": "60"})) as (port, _):
        start = time.monotonic()
        with pytest.raises(CallError, match="full"):
            Client(f"http://127.0.0.1:{port}", "m", timeout=1).predict({"t": ["x"]})
        assert time.monotonic() - start < 0.9  # longer than the call may last
    for scheme in ("http", "grpc"):
        with pytest.raises(CallError, match=f"127.0.0.1:{port}") as error:
            Client(f"{scheme}://127.0.0.1:{port}", "m", retries=1, timeout=5).status()
        assert error.value.code == "UNAVAILABLE"


def test_a_client_is_shared_by_threads(tiny):
    for url in urls(tiny):
        client = Client(url, "tiny")
        with futures.ThreadPoolExecutor(8) as pool:
            given = [{"text": [str(n)], "n": [n]} for n in range(80)]
            answers = pool.map(client.predict, given)
            assert [answer["shout"] for answer in answers] == [[str(n)] for n in range(80)]
        client.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A key and a certificate of localhost that it signs itself."""
    if not shutil.which("openssl"):
        pytest.skip("needs the program openssl")
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost"
    extension = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command.split(), *extension], cwd=folder, check=True, capture_output=True)
    return folder


def test_tls(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with scripted(DONE, context=context) as (port, _):
        with pytest.raises(CallError, match="localhost is not trusted: self.signed certificate"):
            Client(f"https://localhost:{port}", "m").predict({"t": ["x"]})
        client = Client(f"https://localhost:{port}", "m", certificate=certificate / "cert.pem")
        assert client.predict({"t": ["x"]}) == {"a": [1], "b": [2]}
        client.close()

    def status(_, __):
        response = message("GetModelStatusResponse")()
        response.model_version_status.add(version=7, state=30)
        return response.SerializeToString()

    server = grpc.server(futures.ThreadPoolExecutor(1))
    handlers = {"GetModelStatus": grpc.unary_unary_rpc_method_handler(status)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("tensorflow.serving.ModelService", handlers)])
    pair = ((certificate / "key.pem").read_bytes(), (certificate / "cert.pem").read_bytes())
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    server.start()
    with Client(f"grpcs://localhost:{port}", "m", certificate=certificate / "cert.pem") as client:
        assert client.status() == {7: "AVAILABLE"}
    server.stop(0).wait()


def test_mistakes_are_one_line(tmp_path):
    for url in ("localhost:8501", "ftp://x", "http://", "http://x:99999", "grpc://x/models", "http://x/?a=1"):
        with pytest.raises(InputError, match="the address of a server is such as http://HOST:8501"):
            Client(url, "m")
    for settings in ({"timeout": 0}, {"retries": -1}, {"rows": 0}, {"timeout": float("nan")}):
        with pytest.raises(InputError, match=f"{next(iter(settings))} of a client is at least"):
            Client("http://x", "m", **settings)
    with pytest.raises(InputError, match="certificate is for https:// and grpcs://"):
        Client("http://x", "m", certificate="cert.pem")
    with pytest.raises(InputError, match="no file cert.pem"):
        Client("https://x", "m", certificate="cert.pem")
    (tmp_path / "cert.pem").write_text("x")
    with pytest.raises(InputError, match="is no certificate in PEM"):
        Client("https://x", "m", certificate=tmp_path / "cert.pem")


def test_importing_it_imports_nothing_heavy():
    program = """
import sys
sys.modules["grpc"] = None
from kerasbert.export.client import Client
Client("http://localhost:1", "m")
print(sorted({"numpy", "google.protobuf", "tensorflow", "keras"} & {*sys.modules}))
try:
    Client("grpc://localhost:1", "m")
except ModuleNotFoundError as error:
    print(error)
"""
    said = python("-c", program).stdout.splitlines()
    assert said == [
        "[]",
        "grpc:// needs grpc, which is not installed. Do, in a checkout of kerasbert: pip install '.[serving]'",
    ]

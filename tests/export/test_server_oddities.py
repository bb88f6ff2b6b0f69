"""`kerasbert serve` in its first week: odd requests and clients, folders that change under it, ports, files and signals."""

import asyncio
import json
import os
import re
import resource
import shutil
import signal
import socket
import sys
import time

import pytest

from kerasbert.cli import main
from kerasbert.export.server.http import HttpServer, Limits
from kerasbert.export.server.run import bound, connections, teller
from tests.export import served
from tests.export.served import PREDICT, ask, raw, row

HEAD = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\n"
BODY = json.dumps({"instances": [row("a", 0)]})


def post(body=BODY, headers="", encoding="utf-8"):
    data = body.encode(encoding)
    return f"{HEAD}{headers}Content-Length: {len(data)}\r\n\r\n".encode() + data


def chunked(headers="", ending="0\r\n\r\n"):
    parts = "".join(f"1;x=y\r\n{each}\r\n" for each in BODY)
    return f"{HEAD}{headers}Transfer-Encoding: chunked\r\n\r\n{parts}{ending}".encode()


def get(target, headers=""):
    return f"GET {target} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode()


TINY = "/v1/models/tiny"
ANSWERED = [  # as other servers answer it
    chunked(),
    chunked(ending="0\r\nTrailer: 1\r\n\r\n"),
    post(headers="Content-Type: application/x-www-form-urlencoded\r\n"),  # curl -d
    post(headers="Content-Type: text/plain\r\n"),
    post(headers="Content-Encoding:\r\n"),
    post(headers="Content-Encoding: identity\r\n"),
    post("\ufeff" + BODY),
    post(f" {BODY}\n"),
    post(headers="Expect: 100-continue\r\n"),
]
ODD = [  # request, status, what is said
    (f"{HEAD}Content-Length: {'1' * 5000}\r\n\r\n".encode(), 400, "bad Content-Length"),
    (post(headers="Content-Length: 5\r\n"), 400, "conflicting Content-Length headers"),
    (chunked(headers="Content-Length: 5\r\n"), 400, "a Content-Length or a Transfer-Encoding, not both"),
    (f"{HEAD}Transfer-Encoding: gzip, chunked\r\n\r\n".encode(), 501, "Only Transfer-Encoding: chunked"),
    (f"{HEAD}Transfer-Encoding: chunked\r\n\r\nzz\r\n".encode(), 400, "illegal chunk header: 'zz"),
    (chunked(ending=""), 408, "did not arrive within 1 s"),
    (get(TINY, "bad header\r\n"), 400, "illegal header line: 'bad header'"),
    (post(headers="Content-Encoding: gzip\r\nContent-Encoding: br\r\n"), 415, "compressed by gzip, br"),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "HTTP/1.1 is spoken, not 2.0: gRPC has a port of its own"),
    (b"GET /\r\n\r\n", 400, "no request of HTTP/1.1"),
    (get(f"{TINY}:predict"), 400, "Malformed request: GET /v1/models/tiny:predict: ask it by POST"),
    (b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", 404, "nothing is at CONNECT x:80"),
    (get("/v1/models/%ff%zz"), 404, "Could not find any versions of model"),
    (get("/v1/models/mod\u00e8le"), 400, "illegal request line"),
    (post('{"instances": ["\u00e9"]}', encoding="latin-1"), 400, "the body is no UTF-8: byte 0xe9 at 16"),
    (post(BODY, encoding="utf-16"), 400, "the body is no UTF-8: byte 0xff at 0"),
    (post("\0" * 10), 400, "JSON Parse error"),
    (post(f"{BODY} x"), 400, "Extra data"),
    (post("null"), 400, "JSON Value: null Is not object"),
    (post('{"instances": [{"text": "a", "n": NaN}]}'), 400, "NaN is not of expected type: int32"),
    (post('{"instances": [{"text": "a", "n": 1e999}]}'), 400, "Infinity is not of expected type: int32"),
    (post(f'{{"instances": [{{"text": "a", "n": {"1" * 5000}}}]}}'), 400, "a number has too many digits"),
    (post('{"signature_name": null, "inputs": []}'), 400, "'signature_name' key must be a string"),
    (post('{"signature_name": "\\ud800", "inputs": []}'), 400, "not found in signature def"),
    (post('{"signature_name": "one", "inputs": {"text": ["a"], "\\ud800": 1}}'), 400, '"\\ud800'),
]


def test_odd_requests_are_answered_or_refused_in_a_line(tiny):
    """Those at the end of a connection leave the next one alone."""
    closing = "Connection: close\r\n"

    def sent(data):
        return raw(tiny.ports[0], data.replace(b"Host: x\r\n", f"Host: x\r\n{closing}".encode(), 1))

    for data in ANSWERED:
        assert '"shout":"A"' in sent(data), data
    for data, status, line in ODD:
        said = sent(data)
        assert said.startswith(f"HTTP/1.1 {status} "), (data, said)
        found = json.loads(said.partition("\r\n\r\n")[2])["error"]
        assert line in found, (data, said)
        assert "bytearray" not in found
    for target in ("http://host:8501/v1/models/tiny", "HTTP://host/v1/models/tiny?x=y"):
        assert "AVAILABLE" in sent(get(target))


def test_requests_of_one_connection_are_answered_in_their_order(tiny):
    requests = [post(), get(TINY), post("{"), get("/v1/models/no"), post(headers="Connection: close\r\n"), post()]
    found = raw(tiny.ports[0], b"".join(requests))
    assert re.findall(r"HTTP/1\.1 (\d+)", found) == ["200", "200", "400", "404", "200"]
    assert raw(tiny.ports[0], post()[:-1], end=True).startswith("HTTP/1.1 400 ")
    with socket.create_connection(("127.0.0.1", tiny.ports[0]), timeout=20) as link:
        for data in (post(), get(TINY)):  # a byte at a time
            for byte in data:
                link.sendall(bytes([byte]))
            assert link.recv(100).startswith(b"HTTP/1.1 200 OK")
            time.sleep(0.05)
            link.recv(1 << 16)


async def handle(method, target, body):
    return 200, "text/plain", b"x" * int(target[1:])


async def opened(port, sent):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    return reader, writer


def with_http(limits, check):
    """`check` of a server without models, and its port."""

    async def run():
        server = HttpServer(handle, limits)
        async with asyncio.timeout(30):
            with bound("127.0.0.1", 0, "--port") as listener:
                await server.start(listener)
                await check(server, listener.getsockname()[1])
                await server.stop(5)
            while len(asyncio.all_tasks()) > 1:  # no connection is left
                await asyncio.sleep(0.01)

    asyncio.run(run())


def test_more_connections_than_there_may_be_are_told_so():
    """Those that were there go on; where as many have been told, more are closed at once."""

    async def check(server, port):
        first, held = await opened(port, get("/1"))
        assert (await first.readuntil(b"\r\n\r\nx")).startswith(b"HTTP/1.1 200 OK")
        second, told = await opened(port, b"")
        said = (await second.readuntil(b"}")).decode()
        assert said.startswith("HTTP/1.1 503 Service Unavailable\r\n")
        assert '"error": "1 connections are open, the most that may: try again later"' in said
        third, cut = await opened(port, b"")
        assert await third.read() == b""
        held.write(get("/1"))
        assert (await first.readuntil(b"\r\n\r\nx")).startswith(b"HTTP/1.1 200 OK")
        for each in (held, told, cut):
            each.close()

    with_http(Limits(connections=1), check)


def test_a_client_that_does_not_read_is_let_go():
    """An answer that does not fit into the buffers of the machine stands in the way of nobody."""

    async def check(server, port):
        _, stuck = await opened(port, get("/50000000"))
        _, late = await opened(port, get("/3000000") + get("/3000000"))
        await asyncio.sleep(0.1)
        assert len(server.connections) == 2
        other, fine = await opened(port, get("/5"))
        assert (await other.readuntil(b"xxxxx")).startswith(b"HTTP/1.1 200 OK")
        while server.connections:
            await asyncio.sleep(0.01)
        for each in (stuck, late, fine):
            each.close()

    with_http(Limits(seconds=0.3), check)


def test_connections_are_as_many_as_the_process_may_open_files(monkeypatch):
    for files, most in ((resource.RLIM_INFINITY, 1000), (1 << 20, 1000), (1000, 400), (64, 1)):
        monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert connections() == most


def test_what_the_loop_cannot_do_is_told_once_a_minute(capsys):
    """asyncio tells of every connection that it cannot take: hundreds of tracebacks a second."""
    tell, loop, message = teller(), asyncio.new_event_loop(), "socket.accept() out of system resource"
    for number in (24, 24, 23, 24):
        tell(loop, {"message": message, "exception": OSError(number, os.strerror(number))})
    loop.close()
    said = [f"{message}: {os.strerror(number)}" for number in (24, 23)]
    assert capsys.readouterr().err.splitlines() == said


def until(look, seconds=20):
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_folders_that_change_under_it_are_told_once_and_answered_from_memory(tmp_path, folder, capsys):
    """Files replaced, odd names, a number twice, a damaged card, the whole folder gone and back."""
    base, said = tmp_path / "tiny", []
    shutil.copytree(folder / "3", base / "3")

    def told(line):
        said.append(capsys.readouterr().err)
        return line in "".join(said)

    def version():
        code, found = ask(one.ports[0], PREDICT, {"instances": [row("a", 0)]})
        assert code == 200, found
        return found["predictions"][0]["version"]

    with served.server({"tiny": base}, poll=0.02) as one:
        (base / "3" / "MODEL_CARD.md").write_text("a card may be edited")
        for name in ("v4", "03"):
            shutil.copytree(base / "3", tmp_path / "new")
            (tmp_path / "new").rename(base / name)
            until(lambda name=name: told(f"tiny: {name} in {base} is no version: folders called 1, 2, ... are, each"))
            assert version() == 3
            shutil.rmtree(base / name)
        (base / "3" / "saved_model.pb").write_bytes(b"")
        until(lambda: told("tiny: version 3 changed on the disk and goes on as it was read: put what is new into"))
        shutil.copytree(folder / "3", base / ("9" * 19))  # no number of TensorFlow Serving's
        base.rename(tmp_path / "away")
        until(lambda: told(f"tiny: no version is in {base} any more: 3 goes on as it was read"))
        base.write_text("no folder")
        time.sleep(0.1)
        assert version() == 3
        base.unlink()
        served.write(tmp_path / "away" / "5", 5)
        (tmp_path / "away").rename(base)
        until(lambda: version() == 5)
    lines = [line for line in "".join(said).splitlines() if "3 goes on" in line or "is no version" in line]
    assert len(lines) == len(set(lines))
    assert "Traceback" not in "".join(said)


def test_what_may_not_be_read_is_refused_and_read_when_it_may(tmp_path, folder, capsys, monkeypatch):
    """One model's trouble is no other's."""
    base, path = tmp_path / "tiny", type(tmp_path)
    shutil.copytree(folder / "3", base / "3")
    shutil.copytree(folder / "3", tmp_path / "other" / "3")
    locked, isfile, iterdir = set(), path.is_file, path.iterdir

    def guarded(real):
        def look(place):
            if any(str(place).startswith(str(each)) for each in locked):
                raise PermissionError(13, "Permission denied", str(place))
            return real(place)

        return look

    monkeypatch.setattr(path, "is_file", guarded(isfile))
    monkeypatch.setattr(path, "iterdir", guarded(iterdir))
    with served.server({"tiny": base, "other": tmp_path / "other"}, poll=0.02) as one:
        locked.add(base / "4")
        served.write(tmp_path / "4", 4)
        (tmp_path / "4").rename(base / "4")

        def states(model="tiny"):
            found = ask(one.ports[0], f"/v1/models/{model}")[1]["model_version_status"]
            return [(each["version"], each["state"]) for each in found]

        until(lambda: states() == [("4", "END"), ("3", "AVAILABLE")])
        locked.add(base)
        served.write(tmp_path / "other" / "4", 4)
        until(lambda: ("4", "AVAILABLE") in states("other"))
        locked.clear()
        os.chmod(base / "4" / "saved_model.pb", 0o640)
        until(lambda: ("4", "AVAILABLE") in states())
    said = capsys.readouterr().err
    assert "tiny: version 4 is refused: [Errno 13] Permission denied" in said
    assert said.count(f"tiny: {base} cannot be read: Permission denied") == 1


def test_a_closed_stderr_stops_nothing(tmp_path, folder, monkeypatch):
    class Closed:
        def write(self, _):
            raise BrokenPipeError(32, "Broken pipe")

        flush = write

    shutil.copytree(folder / "3", tmp_path / "tiny" / "3")
    with served.server({"tiny": tmp_path / "tiny"}, poll=0.02) as one:
        monkeypatch.setattr(sys, "stderr", Closed())
        served.write(tmp_path / "4", 4)
        (tmp_path / "4").rename(tmp_path / "tiny" / "4")
        until(lambda: ask(one.ports[0], f"{TINY}/versions/4:predict", json.loads(BODY))[0] == 200)
        monkeypatch.setattr(one.models["tiny"].versions[4].loaded, "checked", lambda *_: 1 / 0)
        assert ask(one.ports[0], PREDICT, {"instances": [row("a", 0)]})[0] == 500
    monkeypatch.undo()


def test_ports_that_cannot_be_had_are_one_line(folder, capsys):
    for words, line in (
        (["--port", "8123", "--grpc-port", "8123"], "REST and gRPC have a port each, not both 8123: give another by"),
        (["--port", "70000"], "--port is 1 to 65535, or 0 for a free one. Received: 70000"),
        (["--host", "no.such.host.invalid"], "no.such.host.invalid is no address"),
        (["--host", "203.0.113.1", "--port", "0"], "cannot listen at 203.0.113.1:0: Cannot assign requested address"),
    ):
        assert main(["serve", str(folder), *words]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"error: {line}"), said
        assert said.count("\n") == 1


def test_two_that_begin_at_the_same_time_do_not_share_a_port(folder, capsys, monkeypatch):
    """Both are bound before either listens; the second is told when it would."""
    from kerasbert.export.server import run

    held = []
    answer = run.Server._answer

    async def late(server, listener, rpc):
        held.append(socket.socket())
        held[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held[0].bind(listener.getsockname())
        held[0].listen()
        await answer(server, listener, rpc)

    monkeypatch.setattr(run.Server, "_answer", late)
    assert main(["serve", str(folder), "--port", "0", "--grpc-port", "0"]) == 2
    assert re.search(r"error: port \d+ of 127.0.0.1 is taken: stop what listens there", capsys.readouterr().err)
    held[0].close()


def test_it_listens_on_ipv6(folder):
    if not socket.has_ipv6:
        pytest.skip("needs IPv6")
    try:
        bound("::1", 0, "--port").close()
    except Exception as error:
        pytest.skip(f"needs an address of IPv6: {error}")
    with (
        served.server({"tiny": folder}, host="::1") as one,
        socket.create_connection(("::1", one.ports[0]), timeout=20) as link,
    ):
        link.sendall(get(TINY))
        assert link.recv(100).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_when_it_answers_and_while_it_loads(number, folder):
    from tests.export.test_served_models import process

    with process(folder, "--port", 0, "--grpc-port", 0) as one:
        one.ready()
        one.child.send_signal(number)
        assert one.child.wait(30) == 0
        assert one.child.stderr.read_text().endswith("stopping: requests that have begun are answered\n")
    with process(folder, "--port", 0, "--grpc-port", 0) as one:
        until(lambda: "loading TensorFlow" in one.child.stderr.read_text(), 60)
        one.child.send_signal(number)
        assert one.child.wait(30) == 0
        assert "Traceback" not in one.child.stderr.read_text()

"""HTTP/1.1 on asyncio by h11: limits of time and size, and a stop that loses no request."""

import asyncio
import contextlib
import dataclasses
import http.client
import re
import socket
import zlib
from collections.abc import Awaitable, Callable

import h11

from kerasbert.export.server.rest import JSON, Answer, problem
from kerasbert.export.server.said import fault

CHUNK = 1 << 16
GZIP = (b"gzip", b"x-gzip")
HEAD = 1 << 14  # most bytes of a request's line and headers
TOO_LONG = f"the line and headers of a request have at most {HEAD} bytes"
LINGER = 5.0  # seconds in which what a refused client still sends is thrown away: it would not read the refusal
Handle = Callable[[str, str, bytes], Awaitable[Answer]]


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a client may take.

    Args:
        body: int, bytes of a request. seconds: float, for a request to arrive, or an answer to be read; also how long a
            connection may stand idle.
        connections: int, open at once.
    """

    body: int = 16 << 20
    seconds: float = 60.0
    connections: int = 1000


def _encoding(request: h11.Request) -> bytes:
    """How a body is compressed; of several headers all."""
    found = [value.lower() for name, value in request.headers if name == b"content-encoding"]
    return b", ".join(filter(None, found)) or b"identity"


def _line(error: h11.RemoteProtocolError) -> str:
    """What h11 says of bytes that are no request, as a client knows them."""
    return re.sub(r"bytearray\(b(.*)\)", r"\1", str(error))


class _Refused(Exception):
    """A request that is answered before it is read, and ends its connection."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status


class HttpServer:
    """Connections and what answers their requests.

    Args:
        handle: (method, target, body) -> status, type and body. limits: Limits.
    """

    def __init__(self, handle: Handle, limits: Limits) -> None:
        self.handle, self.limits = handle, limits
        self.connections: dict[asyncio.Task, bool] = {}  # whether it has a request
        self.refused: set[asyncio.Task] = set()  # more than may be: open until they have read so
        self.stopping = False
        self.server: asyncio.Server | None = None

    async def start(self, listener: socket.socket) -> None:
        """Answer what comes to a bound socket."""
        self.server = await asyncio.start_server(self._serve, sock=listener, limit=CHUNK, backlog=512)

    async def stop(self, grace: float) -> None:
        """Take no more connections, close idle ones, and wait for requests that have begun."""
        self.stopping = True
        if self.server:
            self.server.close()
        for task, busy in list(self.connections.items()):
            if not busy:
                task.cancel()
        if self.connections:
            await asyncio.wait(list(self.connections), timeout=grace)
        for task in list(self.connections):
            task.cancel()
        await asyncio.gather(*self.connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # a stream's callback runs in one
        one, most = _Connection(self, task, reader, writer), self.limits.connections
        try:
            with contextlib.suppress(ConnectionError, TimeoutError, h11.LocalProtocolError, asyncio.CancelledError):
                if len(self.connections) < most:
                    self.connections[task] = False
                    await one.run()
                elif len(self.refused) < most:
                    self.refused.add(task)
                    await one.refuse(503, f"{most} connections are open, the most that may: try again later")
        except Exception as error:  # a fault of ours ends one connection, not the server
            fault("a connection", error)
        finally:
            self.connections.pop(task, None)
            self.refused.discard(task)
            await _close(writer, LINGER if self.stopping else self.limits.seconds)


async def _close(writer: asyncio.StreamWriter, seconds: float) -> None:
    """Close a connection, whose client may never read what it asked for."""
    writer.close()
    with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
        async with asyncio.timeout(seconds):
            await writer.wait_closed()
    writer.transport.abort()


class _Connection:
    """The requests of a client, one after the other."""

    def __init__(
        self, server: HttpServer, task: asyncio.Task, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.server, self.task, self.reader, self.writer = server, task, reader, writer
        self.limits = server.limits
        self.http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD)

    async def run(self) -> None:
        while not self.server.stopping:
            try:
                request = await self._event()
                if not isinstance(request, h11.Request):
                    return
                self.server.connections[self.task] = True
                method, target = request.method.decode("ascii"), request.target.decode("latin-1")
                self._check(request)
                body = await self._body()
                if _encoding(request) in GZIP:
                    body = await asyncio.to_thread(self._unpacked, body)
                answer = await self.server.handle(method, target, body)
            except _Refused as error:
                return await self.refuse(error.status, str(error))
            except h11.RemoteProtocolError as error:
                status = error.error_status_hint
                return await self.refuse(
                    status, TOO_LONG if status == 431 else f"no request of HTTP/1.1: {_line(error)}"
                )
            await self._send(*answer, request.method)
            if self.http.our_state is not h11.DONE or self.http.their_state is not h11.DONE:
                return await self._linger()
            self.http.start_next_cycle()
            self.server.connections[self.task] = False

    async def refuse(self, status: int, line: str) -> None:
        """Answer what is no request, or may not be one, and end."""
        await self._send(status, JSON, problem(line), b"")
        await self._linger()

    async def _event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next of h11's events; a client that takes too long is refused, one that sent nothing is left."""
        begun = self.http.trailing_data[0] != b""
        try:
            async with asyncio.timeout(self.limits.seconds):
                while (event := self.http.next_event()) is h11.NEED_DATA:
                    if self.http.they_are_waiting_for_100_continue:
                        await self._write(self.http.send(h11.InformationalResponse(status_code=100, headers=[])))
                    data = await self.reader.read(CHUNK)
                    begun = begun or bool(data)
                    self.http.receive_data(data)
                return event
        except TimeoutError:
            if not begun:
                raise
            raise self._late() from None

    def _late(self) -> _Refused:
        return _Refused(408, f"the request did not arrive within {self.limits.seconds:g} s")

    def _check(self, request: h11.Request) -> None:
        if sum(len(name) + len(value) for name, value in request.headers) + len(request.target) > HEAD:
            raise _Refused(431, TOO_LONG)
        headers = dict(request.headers)
        if request.http_version not in (b"1.0", b"1.1"):
            version = request.http_version.decode("ascii")
            raise _Refused(505, f"here HTTP/1.1 is spoken, not {version}: gRPC has a port of its own")
        if b"transfer-encoding" in headers and b"content-length" in headers:  # what stands before us may take the other
            raise _Refused(400, "a request has a Content-Length or a Transfer-Encoding, not both")
        length = int(headers.get(b"content-length", b"0"))
        if length > self.limits.body:
            raise self._large(f"has {length} bytes")
        if (found := _encoding(request)) not in (b"identity", *GZIP):
            raise _Refused(
                415, f"the body is compressed by {found.decode('latin-1')[:40]}: send it as it is, or by gzip"
            )

    def _large(self, what: str) -> _Refused:
        return _Refused(413, f"the body {what}, more than {self.limits.body} (--max-body): send fewer texts at once")

    async def _body(self) -> bytes:
        found = bytearray()
        try:
            async with asyncio.timeout(self.limits.seconds):
                while isinstance(event := await self._event(), h11.Data):
                    found += event.data
                    if len(found) > self.limits.body:
                        raise self._large("goes on")
        except TimeoutError:
            raise self._late() from None
        return bytes(found)

    def _unpacked(self, body: bytes) -> bytes:
        """What came by gzip: never more than may come as it is."""
        unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            found = unpacker.decompress(body, self.limits.body + 1)
        except zlib.error as error:
            raise _Refused(400, f"the body is no gzip: {error}") from None
        if len(found) > self.limits.body:
            raise self._large("is larger unpacked")
        if not unpacker.eof:
            raise _Refused(400, "the body is no whole gzip: its end is missing")
        return found

    async def _send(self, status: int, kind: str, body: bytes, method: bytes) -> None:
        if self.http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        headers = [("Content-Type", kind), ("Content-Length", str(len(body))), ("Server", "kerasbert-serve")]
        if self.server.stopping or not method:
            headers.append(("Connection", "close"))
        reason = http.client.responses.get(status, "")
        parts = [self.http.send(h11.Response(status_code=status, headers=headers, reason=reason))]
        if method != b"HEAD":
            parts.append(self.http.send(h11.Data(data=body)))
        parts.append(self.http.send(h11.EndOfMessage()))
        await self._write(b"".join(part or b"" for part in parts))

    async def _write(self, data: bytes | None) -> None:
        self.writer.write(data or b"")
        async with asyncio.timeout(self.limits.seconds):
            await self.writer.drain()

    async def _linger(self) -> None:
        """Read what the client still sends, for a while: closing with data unread would take the answer from it."""
        with contextlib.suppress(ConnectionError, TimeoutError, OSError):
            if self.writer.can_write_eof():
                self.writer.write_eof()
            async with asyncio.timeout(LINGER):
                while await self.reader.read(CHUNK):
                    pass

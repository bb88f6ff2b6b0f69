"""A server's life: ports first, then TensorFlow and the models, then requests until a SIGTERM, then what had begun."""

import asyncio
import contextlib
import dataclasses
import errno
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc.aio

from kerasbert.errors import InputError
from kerasbert.export.server.http import HttpServer, Limits
from kerasbert.export.server.metrics import Metrics
from kerasbert.export.server.models import Model, Models
from kerasbert.export.server.rest import Rest
from kerasbert.export.server.rpc import Rpc
from kerasbert.export.server.said import say

OTHER_FILES = 200  # that TensorFlow, the models and gRPC open


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is served, and where.

    Args:
        models: name -> folder. host: str, an address of this machine. port, grpc_port: int, 0 for a free one.
        versions: int, how many of the newest are served. poll: float, seconds between looks for new ones.
        max_body: int, bytes of a request. timeout: float, seconds for a request to arrive.
        grace: float, seconds that a stop waits for what has begun.
        changes: of `batching.Parameters`, in place of what stands beside the models.
    """

    models: Mapping[str, Path]
    host: str = "127.0.0.1"
    port: int = 8501
    grpc_port: int = 8500
    versions: int = 1
    poll: float = 2.0
    max_body: int = 16 << 20
    timeout: float = 60.0
    grace: float = 30.0
    changes: Mapping[str, object] = dataclasses.field(default_factory=dict)


def run(settings: Settings) -> int:
    """Serve until a SIGTERM or Ctrl-C; -> the status of the process.

    Raises:
        InputError: a port is taken, or no version of a model can be loaded.
    """
    server = Server(settings)
    status = asyncio.run(server.run())
    if not server.ready.is_set():  # a signal came: what TensorFlow still reads is not waited for
        sys.stdout.flush()
        os._exit(status)
    return status


class Server:
    """A server of `settings`.

    Args:
        settings: Settings. signals: bool, whether a SIGTERM ends it: of the main thread alone.

    Attributes:
        ports: (REST, gRPC), once they are bound. ready: threading.Event, set when requests are answered.
    """

    def __init__(self, settings: Settings, signals: bool = True) -> None:
        self.settings, self.metrics, self.models = settings, Metrics(), Models()
        self.ports, self.ready = (0, 0), threading.Event()
        self.handled = [signal.SIGTERM, signal.SIGINT] if signals else []
        if signals and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup has it
            self.handled.append(signal.SIGHUP)
        self.stopped = asyncio.Event()
        self.asked = False

    async def run(self) -> int:
        """Bind, load, answer, and answer what had begun -> the status of the process."""
        loop, settings = asyncio.get_running_loop(), self.settings
        loop.set_exception_handler(teller())
        with contextlib.closing(bound(settings.host, settings.port, "--port")) as listener:
            rpc = self._rpc(listener.getsockname()[1])
            for number in self.handled:
                loop.add_signal_handler(number, self.stop, number)
            try:
                if await self._loaded():
                    await self._answer(listener, rpc)
            finally:
                await rpc.stop(0)
                for number in self.handled:
                    loop.remove_signal_handler(number)
        return 0

    async def _answer(self, listener: socket.socket, rpc: grpc.aio.Server) -> None:
        """Answer requests until a stop."""
        settings = self.settings
        limits = Limits(settings.max_body, settings.timeout, connections())
        http = HttpServer(Rest(self.models, self.metrics), limits)
        try:
            await http.start(listener)
        except OSError as error:  # of one that began at the same time
            raise _refused(settings.host, self.ports[0], "--port", error) from error
        await rpc.start()
        host, names = _bracketed(settings.host), ", ".join(self.models)
        print(f"serving {names}: http://{host}:{self.ports[0]}/v1/models/NAME, gRPC {host}:{self.ports[1]}", flush=True)
        self.ready.set()
        polling = asyncio.get_running_loop().create_task(self.models.poll(settings.poll))
        await self.stopped.wait()
        polling.cancel()
        say("stopping: requests that have begun are answered")
        await asyncio.gather(http.stop(settings.grace), rpc.stop(settings.grace))

    def stop(self, number: int) -> None:
        """Answer what has begun and end; asked a second time, end at once, as of that signal."""
        if self.asked:
            os._exit(128 + number)
        self.asked = True
        self.stopped.set()

    def _rpc(self, port: int) -> grpc.aio.Server:
        """The server of gRPC, bound."""
        settings = self.settings
        options = [
            ("grpc.so_reuseport", 0),  # a second server on the port would take half of the calls
            ("grpc.max_receive_message_length", settings.max_body),
            ("grpc.max_send_message_length", -1),
        ]
        if settings.grpc_port and settings.grpc_port == port:
            raise InputError(f"REST and gRPC have a port each, not both {port}: give another by --port or --grpc-port")
        if settings.grpc_port:
            bound(settings.host, settings.grpc_port, "--grpc-port").close()
        server = grpc.aio.server(options=options)
        Rpc(self.models, self.metrics).register(server)
        try:
            self.ports = port, server.add_insecure_port(f"{_bracketed(settings.host)}:{settings.grpc_port}")
        except RuntimeError as error:
            raise InputError(f"gRPC cannot listen at {settings.host}:{settings.grpc_port}: {error}") from error
        return server

    async def _loaded(self) -> bool:
        """Load the models; False where a signal ends it.

        Raises:
            InputError: a model of which no version can be served.
        """
        threads = max(2, os.cpu_count() or 1)
        slots, pool = asyncio.Semaphore(threads), ThreadPoolExecutor(threads, "batch")
        how = {"keep": self.settings.versions, "changes": self.settings.changes, "metrics": self.metrics}
        for name, folder in self.settings.models.items():
            self.models[name] = Model(name, folder, slots=slots, pool=pool, **how)
        say("loading TensorFlow")
        loading = asyncio.ensure_future(self.models.refresh())
        stopped = asyncio.ensure_future(self.stopped.wait())
        await asyncio.wait([loading, stopped], return_when=asyncio.FIRST_COMPLETED)
        if not loading.done():
            loading.cancel()
            say("stopping: no model is loaded yet")
            return False
        stopped.cancel()
        loading.result()
        for model in self.models.values():
            if not model.versions:
                raise InputError(f"{model.name}: no version in {model.folder} can be served")
        return True


def _bracketed(host: str) -> str:
    """
    >>> _bracketed("::1"), _bracketed("127.0.0.1")
    ('[::1]', '127.0.0.1')
    """
    return f"[{host}]" if ":" in host else host


def bound(host: str, port: int, option: str) -> socket.socket:
    """A socket at an address of this machine.

    Raises:
        InputError: another program listens there, or the address is another machine's.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except OSError as error:
        raise InputError(f"{host} is no address: {error.strerror}") from error
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise _refused(host, port, option, error) from error
    return made


def _refused(host: str, port: int, option: str, error: OSError) -> InputError:
    taken = f"port {port} of {host} is taken: stop what listens there, or give another by {option}"
    line = taken if error.errno == errno.EADDRINUSE else f"cannot listen at {host}:{port}: {error.strerror}"
    return InputError(line)


def connections() -> int:
    """How many connections of REST may stand: as many more are told that they are too many, and each is a file (ulimit -n)."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = Limits.connections
    return most if files == resource.RLIM_INFINITY else max(1, min(most, (files - OTHER_FILES) // 2))


def teller() -> Callable[[asyncio.AbstractEventLoop, dict[str, object]], None]:
    """What tells of that which the loop cannot do, such as to take a connection where no file may be opened: a line a minute."""
    told: dict[str, float] = {}

    def tell(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError):
            return loop.default_exception_handler(context)
        line = f"{context['message']}: {error.strerror or error}"
        if loop.time() >= told.get(line, 0.0):
            told[line] = loop.time() + 60
            say(line)

    return tell

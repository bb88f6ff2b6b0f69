"""A process that has imported TensorFlow, used nothing of it yet, and forks: `python -m tests.forks`.

What needs a process of its own begins in it after a tenth of a second and not after the six that the imports take.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


class Child:
    """A process that was forked; as far as tests need it a `subprocess.Popen`, whose output goes to files.

    Attributes:
        pid: int. stdout, stderr: Path, the files.
    """

    def __init__(self, server: "Server", pid: int, stdout: Path, stderr: Path):
        self.server, self.pid, self.stdout, self.stderr = server, pid, stdout, stderr
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The status as of `subprocess`, None while it runs."""
        if self.returncode is None:
            self.returncode = self.server.ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float = 600) -> int:
        """Wait for its end -> the status.

        Raises:
            TimeoutError: it was killed for taking longer.
        """
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                self.send_signal(signal.SIGKILL)
                raise TimeoutError(f"{self.pid} took more than {timeout} s")
            time.sleep(0.01)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)


class Server:
    """The process; it is started by the first child and ended with this one."""

    def __init__(self):
        self.process: subprocess.Popen | None = None
        self.count = 0

    def ask(self, request: Any) -> Any:
        """A line of json to it -> the line that it answers."""
        if self.process is None:
            environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            command = [sys.executable, "-m", "tests.forks"]
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes)
            self.folder = tempfile.TemporaryDirectory(prefix="forks.")
            atexit.register(self.close)
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self, *arguments: Any, cwd: Path = ROOT, **env: str) -> Child:
        """Begin `python *arguments` in a child: -c CODE, -m MODULE or a script, with what follows."""
        if self.process is None:
            self.ask(None)
        self.count += 1
        stdout, stderr = (Path(self.folder.name) / f"{self.count}.{name}" for name in ("out", "err"))
        request = {"argv": [*map(str, arguments)], "cwd": str(cwd), "env": env, "to": [str(stdout), str(stderr)]}
        return Child(self, self.ask(request), stdout, stderr)

    def close(self) -> None:
        """End it and its children."""
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
            self.process.stdout.close()
            self.process = None
            self.folder.cleanup()


# others are imported by the child that needs them
PREPARED = (
    "tensorflow_text",
    "kerasbert.cli.training",
    "kerasbert.training.pretrain",
    "kerasbert.training.finetune",
    "kerasbert.export.saved_model",
    "kerasbert.mobile.cli",
    "kerasbert.mobile.pipeline.plan",
    "kerasbert.testing.battery",
)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """What is imported in here stays: the garbage collector leaves it alone, in children too, and looks at others less often."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(10_000)
        gc.enable()


@uncollected()
def prepare() -> None:
    """Import what the children use; no operation of TensorFlow, which starts threads and fixes the devices."""
    from kerasbert import registry

    for table in (registry.families(), registry.objectives(), registry.tasks()):
        dict(table)  # imports what fills it
    for name in PREPARED:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)


def run(argv: list[str]) -> None:
    """As `python *argv`."""
    kind, *rest = argv
    if kind == "-c":
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    elif kind == "-m":
        sys.argv, sys.path[0] = rest, ""
        warnings.filterwarnings("ignore", message=".*found in sys.modules", category=RuntimeWarning)  # runpy's
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = argv, os.path.dirname(kind)
        runpy.run_path(kind, run_name="__main__")


def fork(request: Mapping[str, Any]) -> int:
    """A child's pid; in the child 0, with its own place, environment and files."""
    opened = [os.open(path, os.O_RDWR | os.O_CREAT, 0o600) for path in (os.devnull, *request["to"])]
    if not (pid := os.fork()):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as a shell leaves it, where nohup started the tests too
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        for number, file in enumerate(opened):
            os.dup2(file, number)
    for file in opened:
        os.close(file)
    return pid


def main() -> None:
    """Fork as asked until the standard input ends."""
    source, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between
    prepare()
    ended: dict[int, int] = {}
    running: set[int] = set()
    argv = None
    for line in iter(source.readline, ""):
        request = json.loads(line)
        answer = None
        if request and "poll" in request:
            pid = request["poll"]
            if pid in running and (status := os.waitpid(pid, os.WNOHANG))[0]:
                ended[pid] = os.waitstatus_to_exitcode(status[1])
                running.discard(pid)
            answer = ended.get(pid)
        elif request:
            answer = fork(request)
            if not answer:
                argv = request["argv"]
                break
            running.add(answer)
        print(json.dumps(answer), file=replies, flush=True)
    if argv is not None:
        for file in (source, replies):
            file.close()
        run(argv)
        return
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()

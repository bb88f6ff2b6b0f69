"""The programs `kerasbert` and `kerasbert-mobile`, as they are installed: what they import takes most of a second."""

import importlib
import signal


def main() -> int:
    """The program `kerasbert`; its exit status."""
    return _run("kerasbert.cli")


def mobile() -> int:
    """The program `kerasbert-mobile`; its exit status."""
    return _run("kerasbert.mobile.cli")


def _run(program: str) -> int:
    """Import a program and run it; until `cli.stopping.listen` Ctrl-C ends the process at once, without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return importlib.import_module(program).main()

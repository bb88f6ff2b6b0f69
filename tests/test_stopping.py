"""A SIGTERM or SIGHUP leaves nothing half written and one line, as Ctrl-C does; from the first moments of a command on."""

import os
import signal

import pytest

from kerasbert.cli import stopping
from kerasbert.cli.parser import command_line, run
from kerasbert.storage import files


def program(do):
    class Module:
        @staticmethod
        def add(declare):
            declare("do", do, "does")

    return command_line("p", "d", {"do": "p do"}, [Module])


@pytest.fixture
def unheard():
    """The system's handlers, as a command finds them."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_deletes_what_is_half_written(tmp_path, unheard, capsys, number):
    """The process was gone at once before, and left a folder beside the place and others in TMPDIR."""

    def do(options):
        with files.new_directory(tmp_path / "out") as new:
            (new / "half").write_text("x")
            os.kill(os.getpid(), number)

    stopping.listen()
    assert run(lambda: program(do), ["do"]) == 128 + number
    assert capsys.readouterr().err == "error: interrupted\n"
    assert not list(tmp_path.iterdir())
    assert signal.getsignal(number) is signal.SIG_DFL  # a second one ends the process at once


def test_what_is_ignored_stays_so(unheard):
    """As nohup has SIGHUP."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stopping.listen()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_an_interruption_while_options_are_read_is_a_line(capsys):
    """A traceback of argparse before."""

    def made():
        raise KeyboardInterrupt

    assert run(made, ["do"]) == 130
    assert capsys.readouterr().err == "error: interrupted\n"
    with pytest.raises(KeyboardInterrupt):
        run(made, ["do", "--debug"])

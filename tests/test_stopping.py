"""A SIGTERM or SIGHUP leaves nothing half written and one line, as Ctrl-C does; from the first moments of a command on."""

import configparser
import contextlib
import os
import signal
import sys
import types

import pytest

from kerasbert import command, signals
from kerasbert.cli import stopping
from kerasbert.cli.parser import command_line, run
from kerasbert.errors import InputError
from kerasbert.storage import files
from tests.support import ROOT


def program(do):
    class Module:
        @staticmethod
        def add(declare):
            declare("do", do, "does")

    return command_line("p", "d", {"do": "p do"}, [Module])


@pytest.fixture
def unheard(monkeypatch):
    """The system's handlers, as a command finds them."""
    monkeypatch.setattr(signals, "came", None)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
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


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_within_a_library_is_no_fault_of_ours(tmp_path, unheard, capsys, number, status):
    """TensorFlow makes another error of it where it traces a graph: `unexpected OperatorNotAllowed...`, status 1."""

    def do(options):
        try:
            with files.new_directory(tmp_path / "out"):
                os.kill(os.getpid(), number)
        except KeyboardInterrupt as error:
            raise SystemError("<built-in function __import__> returned a result with an exception set") from error

    stopping.listen()
    assert run(lambda: program(do), ["do"]) == status
    assert capsys.readouterr().err == "error: interrupted\n"
    assert signals.came is None


def test_an_error_that_says_what_it_is_stays_so(unheard, capsys):
    def do(options):
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        raise InputError("no file x")

    stopping.listen()
    assert run(lambda: program(do), ["do"]) == 2
    assert capsys.readouterr().err == "error: no file x\n"


@pytest.mark.parametrize(("program", "module"), [("main", "kerasbert.cli"), ("mobile", "kerasbert.mobile.cli")])
def test_an_interruption_while_a_program_is_imported_shows_no_traceback(unheard, monkeypatch, program, module):
    """The installed programs begin by `command`; `listen` hears it from then on."""
    seen = []
    fake = types.ModuleType(module)
    fake.main = lambda: seen.append(signal.getsignal(signal.SIGINT)) or stopping.listen() or 7
    monkeypatch.setitem(sys.modules, module, fake)
    assert getattr(command, program)() == 7
    assert seen == [signal.SIG_DFL]
    assert signal.getsignal(signal.SIGINT) is stopping._stop


def test_the_programs_are_installed_as_they_are_called():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config["options.entry_points"]["console_scripts"].split("\n")[1:]
    for line in lines:
        module, _, name = line.partition("=")[2].strip().partition(":")
        assert (module, callable(getattr(command, name))) == ("kerasbert.command", True)
    assert len(lines) == 2

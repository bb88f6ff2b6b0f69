"""Ctrl-C and SIGTERM save; what is said is true; the next run says where it goes on; every N-th checkpoint stays."""

import os
import pty
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

import kerasbert as kb
from kerasbert import children, progress, signals
from kerasbert.storage import folders
from kerasbert.training import interruption
from kerasbert.training.checkpoints import Checkpoints
from kerasbert.training.runs import Run
from tests import tiny
from tests.support import ROOT, often
from tests.training.test_pretrain import ARGUMENTS, same


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("interruption")


@pytest.fixture(scope="module")
def data(folder):
    return tiny.records(folder)


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch):
    monkeypatch.setattr(interruption, "saved", interruption.NOTHING)
    monkeypatch.setattr(progress, "lasting", False)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def interrupt_at(monkeypatch, step: int, *numbers: int) -> None:
    """The signals come while update `step` is logged."""
    log = Run.log

    def noting(self, record):
        log(self, record)
        for number in numbers if record["step"] == step else ():
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Run, "log", noting)


@pytest.mark.parametrize(
    ("number", "error"),
    often([(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)], (signal.SIGTERM, SystemExit)),
)
def test_a_signal_saves_and_the_next_run_goes_on(folder, data, monkeypatch, capfd, number, error):
    out, arguments = folder / f"run-{number}", ARGUMENTS | {"log_every": 1, "quiet": False, "keep_every": 5}
    interrupt_at(monkeypatch, 7, number)
    with pytest.raises(error) as caught:
        kb.pretrain("bert/tiny", data, out=out, **arguments)
    said = "interrupted: saved step 7; the same command goes on from there"
    if number == signal.SIGTERM:
        assert caught.value.code == 75
        assert said in capfd.readouterr().err
    else:
        assert str(caught.value) == said
        assert "interrupted: saving after this update" in capfd.readouterr().err
    assert Checkpoints(out).latest().step == 7
    monkeypatch.undo()
    kb.pretrain("bert/tiny", data, out=out, **arguments)
    assert "\ngoing on from step 7\n" in capfd.readouterr().err
    assert sorted(folders.names(out / "checkpoints")) == ["step_10", "step_12", "step_5"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert interruption.saved == interruption.at(12)


@pytest.mark.slow
def test_a_second_ctrl_c_leaves_at_once(folder, data, monkeypatch):
    """Here, where it is not the process of a command, by an exception."""
    interrupt_at(monkeypatch, 7, signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as caught:
        kb.pretrain("bert/tiny", data, out=folder / "twice", **ARGUMENTS | {"log_every": 1})
    assert str(caught.value) == ""
    assert Checkpoints(folder / "twice").latest() is None


def test_nothing_is_promised_before_the_first_update(capfd):
    with pytest.raises(KeyboardInterrupt, match="^interrupted: nothing saved: no update was made$"):
        interruption.leave(signal.SIGINT)
    with pytest.raises(SystemExit):
        interruption.leave(signal.SIGTERM)
    assert capfd.readouterr().err == "interrupted: nothing saved: no update was made\n"


def test_what_a_process_was_started_to_ignore_stays_ignored():
    """A shell ignores Ctrl-C for what a script starts behind `&`."""
    assert interruption.heeded() == [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert interruption.heeded() == [signal.SIGTERM, signal.SIGHUP]
    interruption.listen()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_terminal_that_closes_ends_a_training_as_sigterm_does():
    """What it prints goes nowhere then: to write to a terminal that is gone is an error, before anything would be saved."""
    program = (
        "import os, signal, time\n"
        "from kerasbert.training import interruption\n"
        "interruption.listen()\n"
        "try:\n    print('ready', flush=True)\n    time.sleep(30)\n"
        "except SystemExit as error:\n    print('saving', flush=True)\n    os._exit(error.code)\n"
    )
    terminal, theirs = pty.openpty()
    child = subprocess.Popen(
        children.command(program), stdin=theirs, stdout=theirs, stderr=theirs, env=children.environment()
    )
    os.close(theirs)
    # the whole line: a terminal that closes within it fails the print that is under way
    with open(terminal, "rb") as shown:
        assert shown.readline() == b"ready\r\n"
    child.send_signal(signal.SIGHUP)
    assert child.wait(30) == interruption.INTERRUPTED


@pytest.mark.full
def test_a_save_between_two_lines_changes_no_logged_mean(folder, data, monkeypatch):
    """What was summed up since the last line is part of the checkpoint."""
    arguments = ARGUMENTS | {"log_every": 5, "save_every": 7}
    whole, killed = folder / "whole", folder / "killed"
    kb.pretrain("bert/tiny", data, out=whole, **arguments)
    begin = Checkpoints.begin

    def dying(self, step, groups, state):
        begin(self, step, groups, state)
        self.wait()
        raise RuntimeError("killed")

    monkeypatch.setattr(Checkpoints, "begin", dying)
    with pytest.raises(RuntimeError, match="killed"):
        kb.pretrain("bert/tiny", data, out=killed, **arguments)
    monkeypatch.undo()
    kb.pretrain("bert/tiny", data, out=killed, **arguments)
    assert same(whole, killed)

    def logged(run):
        rates = ("_per_second", "utilisation")
        return [{k: v for k, v in r.items() if not k.endswith(rates)} for r in Run(run, {}, True).records()]

    assert [record["step"] for record in logged(whole)] == [5, 10, 12]
    assert logged(whole) == logged(killed)
    each = folder / "each"
    kb.pretrain("bert/tiny", data, out=each, **ARGUMENTS | {"log_every": 1})
    losses = [record["loss"] for record in logged(each)]
    assert logged(whole)[1]["loss"] == pytest.approx(sum(losses[5:10]) / 5, rel=1e-6)
    assert logged(whole)[1]["learning_rate"] == logged(each)[9]["learning_rate"]


@pytest.mark.slow
@pytest.mark.parametrize(("early", "said"), [(True, "nothing saved: no update was made"), (False, "saved step ")])
def test_ctrl_c_in_the_shell(folder, data, early, said):
    out = folder / f"shell-{early}"
    command = [sys.executable, "-m", "kerasbert.cli", "pretrain", "bert/tiny", "--data", data, "--out", out]
    command += ["--steps", "100000", "--batch", "8", "--save-every", "100000", "--set", "hidden=16", "--log-every", "1"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    time.sleep(1)
    while not early and not ((out / "metrics.jsonl").is_file() and (out / "metrics.jsonl").stat().st_size > 1000):
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    shown = process.communicate()[1]
    assert process.returncode == 130, shown
    last = shown.splitlines()[-1]
    assert last.startswith(f"error: interrupted: {said}"), shown
    assert early == (not (out / "checkpoints").exists())
    if not early:
        step = Checkpoints(out).latest().step
        assert last == f"error: interrupted: saved step {step}; the same command goes on from there"


def test_a_signal_that_was_lost_while_the_training_was_set_up(monkeypatch):
    """A library's callback swallowed what the handler raised, and the training went on to its end."""
    monkeypatch.setattr(signals, "came", None)
    monkeypatch.setattr(interruption, "leave", lambda number: None)
    interruption._leave(signal.SIGTERM, None)
    trainer = SimpleNamespace(interrupted=None)
    with interruption.noted(trainer):
        assert trainer.interrupted == signal.SIGTERM
    assert signals.came is None

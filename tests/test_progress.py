"""What a command tells while it works: nothing of short work, a rate and the time left of long."""

import sys

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import progress
from kerasbert.cli import main
from kerasbert.progress import Progress, counted, named


@pytest.fixture
def clock(monkeypatch):
    """Seconds that a test sets."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_lines_come_after_a_while_and_tell_rate_and_time_left(clock, capsys):
    with named("predict"), Progress(1000) as shown:
        for second in range(1, 31):
            clock[0] = float(second)
            shown.to(10 * second)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "predict: 50 of 1,000 texts, 10 a second, 2 min left",
        "predict: 150 of 1,000 texts, 10 a second, 2 min left",
        "predict: 250 of 1,000 texts, 10 a second, 2 min left",
    ]


def test_short_work_and_work_that_no_command_shows_are_silent(clock, capsys):
    with named("predict"), Progress(10) as shown:
        clock[0] = 4.0
        shown.to(5)
        clock[0] = 60.0
        shown.to(10)  # done
    with Progress(10) as shown:
        clock[0] = 90.0
        shown.to(5)
    assert capsys.readouterr().err == ""


def test_the_time_left_goes_by_the_work_and_not_by_the_first_step(clock, capsys):
    with named("x"), Progress(100, "rows") as shown:
        clock[0] = 20.0  # compiles
        shown.to(10, 0.1)
        clock[0] = 30.0
        shown.to(60, 0.2)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "x: 10 of 100 rows, 0.5 a second, 3 min left"
    assert second == "x: 60 of 100 rows, 5.0 a second, 2 min left"


def test_work_within_counted_work_is_silent_and_a_bar_is_taken_away(clock, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with named("compress"):
        for number in counted(range(4), 4, "files"):
            clock[0] += 10.0
            with Progress(2) as inner:
                inner.to(1)
            assert number < 4
    err = capsys.readouterr().err
    assert "\r[#####...............] compress: 1 of 4 files, " in err
    assert "texts" not in err
    assert err.endswith("\r\x1b[K")


def test_commands_show_theirs_and_calls_from_python_do_not(classifier, tmp_path, capsys, monkeypatch):
    for name in ("SILENT", "EVERY"):
        monkeypatch.setattr(progress, name, 0.0)
    texts = ["the happy cat", "a sad dog"] * 80
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    rows = "".join(f"{text}\t{'neg' if 'sad' in text else 'pos'}\n" for text in texts)
    (tmp_path / "rows.tsv").write_text(f"text\tlabel\n{rows}")
    kb.predict(classifier, texts)
    vectors = kb.encode(classifier, texts)
    assert capsys.readouterr().err == ""
    run, file = str(classifier), str(tmp_path / "texts.txt")
    for command, said in (
        (["search", run, file, "the cat"], "search: 128 of 160 texts, "),
        (["evaluate", run, "--data", str(tmp_path / "rows.tsv")], "evaluate: 128 of 160 texts, "),
        (["predict", run, "--data", file, "--batch", "32"], "predict: 128 of 160 rows, "),
    ):
        assert main(command) == 0
        assert said in capsys.readouterr().err
    with open(file) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert main(["encode", run]) == 0
    captured = capsys.readouterr()
    found = np.array([eval(line) for line in captured.out.splitlines()])
    np.testing.assert_allclose(found, vectors, atol=1e-5)

"""What a command prints: control characters shown, closed streams empty, a reader that leaves no error."""

import io
import json
import os
import pty
import subprocess
import sys
import time

import pytest

from kerasbert import children
from kerasbert.cli import terminal
from kerasbert.cli.parser import command_line, run
from tests.support import ROOT

FILES = ROOT / "tests/golden/files"

ESCAPES = [
    "\x1b[2J\x1b[31mred",
    "\x1b]0;title\x07",
    "\x9b31m",
    "a\rb",
    "a\bb",
    "\x7f",
    "\x00",
    "\x0b\x0c",
    "\x85",
    "\x1b]8;;http://x\x1b\\link",
]


class Module:
    """A command that prints what it is given, and one that fails with it."""

    @staticmethod
    def add(declare):
        def say(options):
            print(options.text)
            print(json.dumps({"text": options.text}, ensure_ascii=False))
            print(options.text, file=sys.stderr)
            raise ValueError(options.text)

        declare("say", say, "says").add_argument("text")


@pytest.mark.parametrize("text", ESCAPES, ids=ascii)
def test_control_characters_are_shown(text, capsys):
    """In lines, in json, in remarks and in errors; json stays json."""
    assert run(lambda: command_line("p", "d", {"say": "p say x"}, [Module]), ["say", text]) == 1
    out, err = capsys.readouterr()
    assert all(character.isprintable() or character in "\n\t" for character in out + err)
    assert json.loads(out.splitlines()[1]) == {"text": text}
    assert type(sys.stdout) is not terminal.Plain


def test_other_text_is_left_alone():
    """Tabs, line feeds, every script, joiners."""
    stream = io.StringIO()
    text = "a\tb\nschöner\u200d 你好 שלום \u200f👩‍👩‍👧 \u2028x\n"
    print(text, end="", file=terminal.Plain(stream))
    assert stream.getvalue() == text
    terminal.raw(terminal.Plain(stream)).write("\x1b[0m")
    assert stream.getvalue() == f"{text}\x1b[0m"


def shell(line: str, **more) -> subprocess.CompletedProcess:
    program = more.pop("program", "from kerasbert.cli import main")
    command = f"import sys; sys.argv[0] = 'kerasbert'; {program}; sys.exit(main())"
    script = line.replace("PROGRAM", f'{sys.executable} -c "{command}"')
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False, **more)


@pytest.mark.parametrize("lines", [0, 1, 3])
def test_a_reader_that_leaves_is_no_error(lines):
    """`| head -1` ended with "error: Broken pipe" in 5 of 9 runs: what is printed in one piece, and in many."""
    for _ in range(3):
        done = shell(f"PROGRAM list models | head -n {lines}; echo ${{PIPESTATUS[0]}}")
        assert (done.stderr, done.stdout.splitlines()[-1]) == ("", "0")
    assert len(done.stdout.splitlines()) == lines + 1


def test_a_reader_that_leaves_before_the_end_of_a_long_output():
    """More than a pipe holds, line by line, and one that is slow to begin."""
    program = "import kerasbert.cli.look as look; from kerasbert.cli import main; "
    program += "look._list = lambda options: [print('x' * 99, flush=i % 7 == 0) for i in range(9999)]"
    begun = time.monotonic()
    for reader in ("head -n 1", "true", "sleep 0.2", "head -c 70000"):
        done = shell(f"PROGRAM list models | {reader} > /dev/null; echo ${{PIPESTATUS[0]}}", program=program)
        assert (done.stderr, done.stdout) == ("", "0\n"), reader
    assert time.monotonic() - begun < 60


LONG = (
    "import kerasbert.cli.look as look; from kerasbert.cli import main; from kerasbert.training import interruption; "
    "look._list = lambda options: (LISTEN, [print('x' * 99, file=FILE, flush=True) for _ in range(3000)], "
    "open('done', 'w').close()) and None"
)


def long(listen: bool, file: str) -> str:
    """A program whose `list` prints much, on a stream, and then writes a file; it trains where it listens for signals."""
    return LONG.replace("LISTEN", "interruption.listen()" if listen else "0").replace("FILE", f"sys.{file}")


@pytest.mark.parametrize(
    ("listen", "file", "done"),
    [(True, "stdout", True), (True, "stderr", True), (False, "stderr", True), (False, "stdout", False)],
)
def test_what_is_told_of_the_work_ends_none_where_nobody_reads_it(listen, file, done, tmp_path):
    """`finetune ... 2>&1 | head` ended with status 0, and there was no model; what is printed by `predict` is the work itself."""
    line = "PROGRAM list models 2>&1 | head -n 1 > /dev/null; echo ${PIPESTATUS[0]}"
    found = shell(line, program=long(listen, file), cwd=tmp_path)
    assert (found.stderr, found.stdout) == ("", "0\n")
    assert (tmp_path / "done").exists() == done


@pytest.mark.parametrize("file", ["stdout", "stderr"])
def test_a_training_goes_on_where_its_terminal_is_gone(file, tmp_path):
    """Without a signal, as of what `disown` left behind: its next line was an "Input/output error", and the end."""
    terminal_of, theirs = pty.openpty()
    program = f"import sys\n{long(True, file)}\nsys.argv[:] = ['kerasbert', 'list', 'models']\nsys.exit(main())"
    child = subprocess.Popen(
        children.command(program), stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, env=children.environment()
    )
    os.close(theirs)
    with open(terminal_of, "rb") as shown:
        assert shown.readline() == b"x" * 99 + b"\r\n"
    assert child.wait(60) == 0
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_streams_are_empty(closed):
    """An AttributeError of None before; what goes to a closed stream goes nowhere."""
    done = shell(f"PROGRAM list tasks {closed}; echo $?")
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "0"
    assert (len(done.stdout.splitlines()) > 1) == (">&-" not in closed.split())


def test_another_broken_pipe_is_still_told(capsys):
    """One of a child, say: somebody reads what is printed."""

    class Other:
        @staticmethod
        def add(declare):
            def fail(options):
                raise BrokenPipeError(32, "Broken pipe")

            declare("fail", fail, "fails")

    assert run(lambda: command_line("p", "d", {"fail": "p fail"}, [Other]), ["fail"]) == 2
    assert "Broken pipe" in capsys.readouterr().err


def test_a_table_that_the_standard_output_cannot_hold_is_refused(tmp_path, monkeypatch, capsys):
    """What goes on to a file is data, and is not changed."""
    from kerasbert.mobile.cli import main

    (tmp_path / "a.txt").write_text("a good film\ntrès bon\n", encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert main(["run", str(FILES / "float32.tflite"), "--data", str(tmp_path / "a.txt"), "--no-cache"]) == 2
    said = r"error: the standard output is ascii, which has no '\xe8': name a file with --out, or set PYTHONUTF8=1"
    assert capsys.readouterr().err == f"{said}\n"


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_what_a_stream_cannot_hold_appears_as_json_writes_it(encoding):
    held = io.BytesIO()
    stream = io.TextIOWrapper(held, encoding=encoding)
    texts = ["plain", "très", "中文 😀", "lone \ud800"]
    for text in texts:
        print(json.dumps({"text": text}, ensure_ascii=False), file=terminal.Plain(stream))
    stream.flush()
    written = held.getvalue().decode(encoding)
    assert [json.loads(line)["text"] for line in written.splitlines()] == texts
    assert ("très" in written) == (encoding != "ascii")
    assert ("中文" in written) == (encoding == "utf-8")

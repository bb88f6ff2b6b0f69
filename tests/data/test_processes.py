"""Records made by several processes: the same bytes, the same errors, and nothing left by one that is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from kerasbert.data import encode, processes, write_records
from kerasbert.data.joins import Segmenter
from kerasbert.errors import InputError
from tests.data import corpus
from tests.data.test_records import contents
from tests.support import ROOT, python


def texts(place, count=3):
    """Files of a few documents each."""
    return [Path(corpus.write(place / f"{n}.txt", corpus.documents(40, seed=n))) for n in range(count)]


@pytest.mark.parametrize("settings", [{}, {"packing": "packed"}, {"packing": "stream"}])
def test_two_processes_write_the_bytes_of_one(tmp_path, settings):
    files = texts(tmp_path)
    one = write_records(files, corpus.tokenizer(), tmp_path / "one", length=32, shards=3, **settings)
    two = write_records(files, corpus.tokenizer(), tmp_path / "two", length=32, shards=3, processes=2, **settings)
    assert (one.processes, two.processes) == (1, 2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_languages_and_many_batches(tmp_path, monkeypatch):
    from kerasbert.data import encode, spool

    one, two, three = texts(tmp_path)
    files = {"de": [one, two], "en": [three]}
    write_records(files, corpus.tokenizer(), tmp_path / "a", length=32, shards=3)
    monkeypatch.setattr(encode, "LINES", 7)  # more batches than are taken ahead
    monkeypatch.setattr(spool, "SPOOL_BYTES", 1000)
    records = write_records(files, corpus.tokenizer(), tmp_path / "b", length=32, shards=3, processes=3)
    assert records.processes == 3
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.slow
def test_with_tensorflow_the_bytes_are_the_same(tmp_path, monkeypatch):
    at_once = processes.START.replace(
        "processes.serve", "from kerasbert.data import encode; encode.STARTED = 0; processes.serve"
    )
    monkeypatch.setattr(processes, "START", at_once)
    files = texts(tmp_path)
    for number in (1, 2):
        write_records(files, corpus.tokenizer(), tmp_path / f"{number}", length=32, shards=2, processes=number)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


@pytest.mark.parametrize(("size", "begun"), [(1000, False), (10**12, True)])
def test_a_small_text_is_tokenized_without_tensorflow(size, begun):
    asked = []

    def tokenizing(name):
        def tokenize(lines):
            asked.append((name, [*lines]))
            return np.array([ord(line[0]) for line in lines]), np.array([*map(len, lines)]), None

        return tokenize

    long = "x" * (encode.SAMPLE + 1)
    rest = "graph" if begun else "plain"
    for first, other in ([[*"ab"], [long, *"cd"]], [[], [long, "c"]], [[*"ab"], []]):
        asked.clear()
        tokenize = encode._faster(tokenizing("plain"), lambda: tokenizing("graph"), size)
        assert [found.tolist() for found in tokenize([])[:2]] == [[], []]
        ids, counts, _ = tokenize(lines := first + other)
        assert (ids.tolist(), counts.tolist()) == ([ord(line[0]) for line in lines], [*map(len, lines)])
        # each line once, but for the beginning of a first one that is as long as the sample
        assert asked == [("plain", []), ("plain", first or [long[:-1]]), *([(rest, other)] if other else [])]
        tokenize([*"e"])
        assert asked[-1] == (rest, ["e"])


def test_a_small_corpus_is_written_without_tensorflow(tmp_path, monkeypatch):
    (text,) = texts(tmp_path, 1)
    code = (
        "import sys; from kerasbert.data import write_records; from tests.data import corpus; "
        "write_records(sys.argv[1], corpus.tokenizer(), sys.argv[2], length=32); print('tensorflow' in sys.modules)"
    )
    assert python("-c", code, text, tmp_path / "small").stdout.split()[-1] == "False"
    monkeypatch.setattr(encode, "STARTED", 0)
    write_records(text, corpus.tokenizer(), tmp_path / "graph", length=32)
    assert contents(tmp_path / "small") == contents(tmp_path / "graph")


def test_how_many_pay():
    assert processes.chosen(None, 3 * processes.EACH) == min(3, processes.available())
    assert processes.chosen(None, processes.EACH - 1) == 1
    assert processes.chosen(5, 0) == 5
    with pytest.raises(InputError, match="processes is 0, expected at least 1"):
        processes.chosen(0, 1)


def test_beam_has_workers_of_its_own(tmp_path):
    with pytest.raises(InputError, match="processes are of --runner local"):
        write_records(texts(tmp_path), corpus.tokenizer(), tmp_path / "out", runner="beam", processes=2)


@pytest.mark.parametrize("processes", [1, 2])
def test_the_first_mistake_in_the_text_is_told(tmp_path, processes):
    """With its file and its line, whoever meets it; and nothing is left."""
    good, bad, worse = texts(tmp_path)
    bad.write_bytes(b"w1 w2\n\nw3 \xff w4\n")
    worse.write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"1\.txt, line 3"):
        write_records([good, bad, worse], corpus.tokenizer(), tmp_path / "out", length=32, processes=processes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.txt", "1.txt", "2.txt"]


@pytest.mark.parametrize("processes", [1, 2])
def test_what_is_lost_is_refused_alike(tmp_path, processes):
    (tmp_path / "a.txt").write_text("".join(f"w{n % 200} w{n // 200}\n\n" for n in range(100)))
    with pytest.raises(InputError, match="of the pairs have next_label"):
        write_records([tmp_path / "a.txt"], corpus.tokenizer(), tmp_path / "out", length=32, processes=processes)
    assert not (tmp_path / "out").exists()


def broken(text):
    """A segmenter whose spans are none."""
    return [(5, 2)]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_mistake_in_another_process_is_told(tmp_path, processes):
    with pytest.raises(InputError, match="segmenter tests.data.test_processes:broken gave"):
        write_records(
            texts(tmp_path),
            corpus.tokenizer(),
            tmp_path / "out",
            length=32,
            words="tests.data.test_processes:broken",
            processes=processes,
        )


def test_what_cannot_travel_is_done_here(tmp_path, monkeypatch):
    monkeypatch.setattr("kerasbert.data.joins.find", lambda source: Segmenter("mine", "0", lambda text: []))
    records = write_records(texts(tmp_path), corpus.tokenizer(), tmp_path / "out", length=32, words="x", processes=2)
    assert records.processes == 1


def test_a_killed_process_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    started = []
    real = processes._Process.__init__

    def noted(self, *arguments):
        real(self, *arguments)
        started.append(self.process)

    monkeypatch.setattr(processes._Process, "__init__", noted)
    real_ask = processes._Process.ask

    def ask(self, name, arguments):
        if name == "write":  # in the middle of the work
            started[0].kill()
            time.sleep(0.05)
        return real_ask(self, name, arguments)

    monkeypatch.setattr(processes._Process, "ask", ask)
    with pytest.raises(InputError, match=r"was killed by SIGKILL; nothing was written.*take fewer --processes"):
        write_records(texts(tmp_path), corpus.tokenizer(), tmp_path / "out", length=32, shards=4, processes=2)
    assert [process.poll() for process in started] == [-signal.SIGKILL] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.txt", "1.txt", "2.txt"]


def test_a_full_disk_in_another_process(tmp_path):
    """The limit on a file's size stands in for it; the others inherit it."""
    program = (
        "import resource, sys; from tests.data import corpus; from kerasbert.data import encode, processes, write_records; "
        "processes.START = sys.argv[3]; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)); "
        "write_records([sys.argv[1]], corpus.tokenizer(), sys.argv[2], length=32, processes=2)"
    )
    file = corpus.write(tmp_path / "a.txt", corpus.documents(300))
    done = python("-c", program, file, tmp_path / "out", processes.START, check=False)
    assert done.returncode == 1
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .startswith(f"kerasbert.errors.InputError: cannot write {tmp_path / 'out'}: File too large")
    )
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def script(place, in_front="", **settings):
    """A program without `if __name__ == "__main__"` that writes records with two processes."""
    file = corpus.write(place / "a.txt", corpus.documents(300))
    (place / "script.py").write_text(
        f"{in_front}\nfrom tests.data import corpus; from kerasbert.data import encode, processes, write_records\n"
        f"processes.START, encode.LINES = {processes.START!r}, 50\n"
        f"settings = {{'length': 32, 'processes': 2, **{settings!r}}}\n"
        f"print(write_records([{str(file)!r}], corpus.tokenizer(), {str(place / 'out')!r}, **settings).processes)\n"
    )
    return place / "script.py"


def test_the_caller_may_be_a_bare_script(tmp_path):
    assert python(script(tmp_path, "print('once')")).stdout.split() == ["once", "2"]


def slow(text):
    """A segmenter that says who works, and takes its time."""
    with open(os.environ["WORKING"], "a") as file:
        print(os.getpid(), file=file)
    time.sleep(0.2)
    return []


def test_an_interrupt_ends_them_all(tmp_path):
    """Ctrl-C goes to the whole group: the first one ends the others, and only then removes what they wrote."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "WORKING": str(tmp_path / "working")}
    # a shell that starts pytest in the background has it ignore SIGINT, and its children too
    front = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, script(tmp_path, front, words="tests.data.test_processes:slow")]
    child = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    for _ in range(600):
        working = set((tmp_path / "working").read_text().split()) if (tmp_path / "working").exists() else set()
        if len(working) == 2:
            break
        time.sleep(0.1)
    assert len(working) == 2
    os.killpg(child.pid, signal.SIGINT)
    try:
        error = child.communicate(timeout=60)[1]
    finally:
        child.kill()
    assert child.returncode == -signal.SIGINT
    assert error.strip().splitlines()[-1] == "KeyboardInterrupt"
    assert error.count("Traceback") == 1, "the others say nothing"
    for pid in working:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "script.py", "working"]

"""The phone side: the same answers as kb.predict, any length or the shortest bucket, a cache that never hurts, no TensorFlow."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from kerasbert.errors import InputError
from tests.mobile.conftest import TEXTS
from tests.support import ROOT, python
from tests.tiny import sentences


@pytest.fixture
def runner(float_file):
    from kerasbert.mobile.runtime import load

    return load(float_file[0], cache=False)


def test_answers_equal_predict(run, runner):
    from kerasbert.tasks.predict import predict

    texts = [*TEXTS, b"a good \xff film", "a \u0000 film", "x" * 200]
    expected = predict(run, [t.decode("utf-8", "replace") if isinstance(t, bytes) else t for t in texts])
    for ours, theirs in zip(runner(texts), expected, strict=True):
        assert ours.label == theirs.label
        assert ours.scores == pytest.approx(theirs.scores, abs=1e-4)
    assert len({answer.label for answer in runner(texts)}) > 1


def test_an_answer_says_that_its_text_was_truncated(run, runner, any_file):
    """The end of a long text had no say, and nothing told so; `kb.predict` says the same of its own length."""
    from kerasbert.mobile.runtime import load
    from kerasbert.tasks.predict import predict

    texts = ["good " * n for n in (0, 22, 23, 100)]
    expected = [False, False, True, True]
    assert [answer.truncated for answer in runner(texts)] == expected
    assert [answer.truncated for answer in load(any_file[0], cache=False)(texts)] == expected
    assert [answer.to_json().get("truncated") for answer in runner(texts)] == [None, None, True, True]
    assert [answer.truncated for answer in predict(run, texts, length=24)] == expected
    assert [answer.truncated for answer in predict(run, texts)] == [False, False, False, True]


def test_the_shortest_bucket_that_holds_the_text_is_taken(runner, monkeypatch):
    used = []
    real = runner.model.run
    monkeypatch.setattr(runner.model, "run", lambda length, inputs: used.append(length) or real(length, inputs))
    runner(["good " * n for n in (0, 6, 7, 10, 11, 22, 23, 1000)])
    assert used == [8, 8, 12, 12, 24, 24, 24, 24]


def test_every_bucket_gives_the_same(runner):
    ids, segments = runner.tokenizer.pack("a good film")
    rows = []
    for length in runner.lengths:
        runner.lengths = (length,)
        rows.append(runner.run(ids, segments))
    np.testing.assert_allclose(rows, rows[:1] * len(rows), atol=1e-5)


def test_buckets_are_prepared_on_first_use(runner):
    prepared = runner.model.buffers
    assert not prepared
    runner(["a"])
    assert list(prepared) == ["length_8"]


def packed(runner, length, seed=0):
    """Token and segment ids of `length` random words between the special tokens."""
    draw = np.random.default_rng([seed, length])
    tokenizer = runner.tokenizer
    words = draw.integers(5, tokenizer.size, length - 2).tolist()
    return [tokenizer.cls_id, *words, tokenizer.sep_id], [0] * length


@pytest.mark.parametrize(("kind", "tolerance"), [("float32", 1e-5), ("dynamic_int8", 0.02)])
def test_any_length_equals_the_buckets(kind, tolerance, any_file, float_file, int8_file, int8_buckets):
    from kerasbert.mobile.runtime import load

    files = (any_file, float_file) if kind == "float32" else (int8_file, int8_buckets)
    exact, buckets = (load(path, cache=False) for path, _ in files)
    lengths = (3, 5, 7, 8, 11, 17, 23, 24)
    rows = [(exact.run(*packed(exact, n)), buckets.run(*packed(buckets, n))) for n in lengths]
    received, expected = map(np.stack, zip(*rows))
    np.testing.assert_allclose(received, expected, atol=tolerance)
    assert expected.std(axis=0).max() > 0.05


@pytest.mark.parametrize("plain", [False, True])
def test_lengths_in_any_order_give_the_same_answers(int8_file, plain, tmp_path):
    from ai_edge_litert.interpreter import Interpreter

    from kerasbert.mobile.runtime import load
    from kerasbert.mobile.runtime.interpreters import Plain

    exact = load(int8_file[0], cache=tmp_path)
    if plain:
        exact.model = Plain(Interpreter, "plain", int8_file[0], exact.bundle, 1)
    first = {n: exact.run(*packed(exact, n)) for n in (24, 5, 3, 23)}
    for n in (3, 24, 23, 5, 5, 24, 3, 23, 3):
        np.testing.assert_array_equal(exact.run(*packed(exact, n)), first[n])
        exact.run(*packed(exact, n, seed=1))


def test_texts_run_at_their_own_length_in_order_of_length(any_file, monkeypatch):
    from kerasbert.mobile.runtime import load

    exact, used = load(any_file[0], cache=False), []
    texts = ["good " * n for n in (7, 0, 23, 6, 22, 21, 1000, 7)]
    expected = [exact([text])[0] for text in texts]
    real = exact.model.run
    monkeypatch.setattr(exact.model, "run", lambda length, inputs: used.append(length) or real(length, inputs))
    assert exact(texts) == expected
    assert used == [2, 8, 9, 9, 23, 24, 24, 24]


def test_a_litert_that_cannot_resize_is_not_asked_to(any_file, float_file, monkeypatch):
    from ai_edge_litert.compiled_model import CompiledModel

    from kerasbert.mobile.runtime import load

    expected = load(any_file[0], cache=False).outputs(TEXTS)
    monkeypatch.delattr(CompiledModel, "resize_input_tensor")
    plain = load(any_file[0], cache=False)
    assert plain.model.name == "ai-edge-litert Interpreter"
    np.testing.assert_allclose(plain.outputs(TEXTS), expected, atol=1e-6)
    assert load(float_file[0], cache=False).model.name == "ai-edge-litert CompiledModel"


def test_one_text_is_a_list_of_one_and_a_pair_is_refused(runner):
    assert runner("a good film") == runner(["a good film"])
    with pytest.raises(InputError, match="does not read pairs"):
        runner([("a", "b")])
    assert runner([]) == []


class Table(list):
    """What iterates as pandas' DataFrame does: over the names of its columns."""

    columns = ("text",)


def test_what_is_no_list_of_texts_is_refused(runner, tmp_path):
    """The names of a table's columns were answered, and a set in any order; an array without axes was a TypeError."""
    named = tmp_path / "texts.txt"
    named.write_text("the cat")
    refused = [(str(named), "is a file, expected texts"), (named, "is a file"), (Table(["text"]), "give a column")]
    for texts, told in (*refused, ({"a"}, "no order"), (np.array("a"), "is a ndarray")):
        with pytest.raises(InputError, match=told):
            runner(texts)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"thread": 2}, "load has no option 'thread'. Nearest: 'threads'"),
        ({"threads": True}, "threads is True"),
        ({"threads": "2"}, "threads is '2'"),
        ({"cache": 0}, "cache must be"),
        ({"cache": ""}, "cache is empty"),
        ({"delegate": None}, "delegate must be text"),
        ({"plugin": None}, "plugin must be a path or a list"),
        ({"plugin": [3]}, "plugin must be a path or a list"),
    ],
)
def test_options_that_cannot_be_are_told_before_the_file_is_read(options, told, tmp_path):
    """They were a TypeError or an AttributeError, and an empty cache filled the working directory."""
    from kerasbert.mobile.runtime import load

    with pytest.raises(InputError, match=told):
        load(tmp_path / "no.tflite", **options)


def test_calls_that_cannot_be_are_told_in_a_line(runner):
    import copy
    import pickle

    wrong = {
        "Runner.__call__ has no option 'tresh'. Nearest: 'threshold'": lambda: runner(["a"], tresh=0.5),
        "options must be a mapping": lambda: runner(["a"], options=3),
        "Runner.outputs has no option": lambda: runner.outputs(["a"], top=3),
        "token_ids are 1 to": lambda: runner.run([], []),
        "2 token_ids and 1 segment_ids": lambda: runner.run([1, 2], [0]),
        "neither pickled nor copied": lambda: pickle.dumps(runner),
        "a Runner is neither": lambda: copy.copy(runner),
    }
    for told, call in wrong.items():
        with pytest.raises(InputError, match=told):
            call()
    (answer,) = runner(["a good film"], top=np.int64(1), threshold=np.float32(0.1))
    assert len(answer.scores) == 1


@pytest.mark.parametrize("lengths", ["buckets", "any"])
def test_threads_share_a_runner(lengths, float_file, any_file):
    from kerasbert.mobile.runtime import load

    runner = load((float_file if lengths == "buckets" else any_file)[0], cache=False)
    texts = TEXTS * 10
    expected = [answer.score for answer in runner(texts)]
    results = {}
    threads = [
        threading.Thread(target=lambda n=n: results.update({n: [a.score for a in runner(texts)]})) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(scores == expected for scores in results.values())
    assert len(results) == 4


def test_weight_cache_is_made_used_and_repaired(int8_file, tmp_path):
    from kerasbert.mobile.runtime import load

    expected = load(int8_file[0], cache=False)(TEXTS)
    assert load(int8_file[0], cache=tmp_path / "cache")(TEXTS) == expected
    (file,) = (tmp_path / "cache").glob("*.weights")
    written, content = file.stat().st_mtime_ns, file.read_bytes()
    assert load(int8_file[0], cache=tmp_path / "cache")(TEXTS) == expected
    assert file.stat().st_mtime_ns == written
    file.write_bytes(content[:-100] + bytes(100))
    assert load(int8_file[0], cache=tmp_path / "cache")(TEXTS) == expected
    file.write_bytes(content[: len(content) // 2])
    assert load(int8_file[0], cache=tmp_path / "cache")(TEXTS) == expected
    assert [found.read_bytes() for found in (tmp_path / "cache").glob("*.weights")] == [content]


def test_old_caches_and_drafts_of_killed_processes_are_removed(int8_file, tmp_path):
    from kerasbert.mobile.runtime import load
    from kerasbert.mobile.runtime.system import cache

    hour = time.time() - cache.STALE - 60
    old = [f"{n:x}{'ab' * 31}f-12345678-{'01' * 16}.weights" for n in range(12)]
    theirs = ["notes.weights", "a.draft", ".12345678.drafts", f"{'ab' * 16}.weights", cache.SECRET]
    for number, name in enumerate([*old, ".abcd_123.draft", ".abcd_124.draft", *theirs]):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (hour + number, hour + number))
    os.utime(tmp_path / ".abcd_124.draft")  # its process may live
    load(int8_file[0], cache=tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left >= {*theirs, ".abcd_124.draft", *old[-cache.KEPT + 1 :]}
    assert len(left) == len(theirs) + 1 + cache.KEPT
    load(int8_file[0], cache=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == left


LOAD = "from kerasbert.mobile.runtime import load; print(load(sys.argv[1], {cache})(['a good film'])[0].label)"


def test_a_limit_on_the_size_of_files_does_not_abort(int8_file, tmp_path):
    """XNNPACK aborts where its cache cannot be written; as `ulimit -f 20` does it, for quotas too."""
    code = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20480, 20480)); "
    code += LOAD.format(cache="sys.argv[2]")
    done = python("-c", code, int8_file[0], tmp_path / "cache", PYTHONDONTWRITEBYTECODE="1")
    assert done.stdout == "negative\n"
    assert not (tmp_path / "cache").exists()


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare")
def test_a_full_disk_does_not_abort(int8_file, tmp_path):
    code = "import sys; " + LOAD.format(cache="sys.argv[2]")
    line = f"mount -t tmpfs -o size=8k tmpfs {tmp_path} && {sys.executable} -c {shlex.quote(code)} {int8_file[0]} {tmp_path}"
    done = subprocess.run(
        ["unshare", "-rm", "bash", "-c", f"{line} && ls -A {tmp_path}"], cwd=ROOT, capture_output=True, text=True
    )
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip("may not mount")
    assert (done.returncode, done.stdout, done.stderr) == (0, "negative\n", "")  # and no draft is left


def test_no_home_and_no_temporary_folder_is_needed(int8_file, monkeypatch, tmp_path):
    import pathlib
    import tempfile

    from kerasbert.mobile.runtime import load

    def fail(*_, **__):
        raise FileNotFoundError("No usable temporary directory found")

    def homeless(*_):
        raise RuntimeError("Could not determine home directory.")

    expected = load(int8_file[0], cache=False)(TEXTS)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(pathlib.Path, "expanduser", homeless)
    monkeypatch.setattr(tempfile, "gettempdir", fail)
    monkeypatch.setattr(tempfile, "_get_default_tempdir", fail)
    assert load(int8_file[0])(TEXTS) == expected
    monkeypatch.setattr(tempfile, "mkstemp", fail)
    assert load(int8_file[0], cache=tmp_path)(TEXTS) == expected
    assert not list(tmp_path.iterdir())


def test_output_of_the_process_is_left_alone(any_file, float_file):
    """While two threads load and answer, and in exit handlers: what the process prints arrives, litert's lines do not."""
    code = (
        "import atexit, sys, threading\n"
        "atexit.register(lambda: print('last words', file=sys.stderr))\n"
        "from kerasbert.mobile.runtime import load\n"
        "def work(path):\n"
        "    for _ in range(10):\n"
        "        load(path, cache=False)(['a good film'])\n"
        "threads = [threading.Thread(target=work, args=(path,)) for path in sys.argv[1:]]\n"
        "[thread.start() for thread in threads]\n"
        "count = 0\n"
        "while any(thread.is_alive() for thread in threads):\n"
        "    count += 1\n"
        "    print('line', flush=True)\n"
        "    print('line', file=sys.stderr)\n"
        "    threads[0].join(0.001)\n"
        "print('lines', count)\n"
        "load(sys.argv[1], cache=False)\n"
    )
    done = python("-c", code, any_file[0], float_file[0])
    count = int(done.stdout.split()[-1])
    assert count > 5
    assert done.stdout == "line\n" * count + f"lines {count}\n"
    assert done.stderr == "line\n" * count + "last words\n"


def test_a_cache_that_cannot_be_written_is_done_without(int8_file, tmp_path):
    from kerasbert.mobile.runtime import load

    (tmp_path / "file").write_text("")
    assert len(load(int8_file[0], cache=tmp_path / "file" / "folder")(TEXTS)) == len(TEXTS)
    with pytest.raises(InputError, match="cache is .*/file, which is no folder; False writes nothing"):
        load(int8_file[0], cache=tmp_path / "file")


def test_default_cache_folder(monkeypatch, tmp_path):
    from kerasbert.mobile.runtime.system import cache

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.default_directory() == tmp_path / "kerasbert"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.default_directory() == tmp_path / ".cache" / "kerasbert"
    monkeypatch.setattr(cache.Path, "expanduser", lambda path: (_ for _ in ()).throw(RuntimeError("no home")))
    assert cache.default_directory() is None


def test_no_tensorflow_and_no_noise(any_file):
    code = (
        "import sys, json\n"
        "from kerasbert.mobile.runtime import load\n"
        f"answers = load({str(any_file[0])!r}, cache=False)(['a good film', 'bad', 'good ' * 40])\n"
        "print(json.dumps([answer.to_json() for answer in answers]))\n"
        "assert not {'tensorflow', 'keras', 'torch', 'tokenizers'} & set(sys.modules)\n"
    )
    done = python("-c", code)
    assert done.stderr == ""
    kept = {"label", "score", "scores"}
    assert [set(answer) for answer in json.loads(done.stdout)] == [kept, kept, kept | {"truncated"}]


def test_a_launch_imports_nothing_that_its_first_answer_does_not_need(int8_file, tmp_path):
    code = (
        "import sys\n"
        "from kerasbert.mobile.runtime import load\n"
        f"load({str(int8_file[0])!r}, cache={str(tmp_path)!r})(['a good film'])\n"
        "print(*sorted(set(sys.modules)))\n"
    )
    python("-c", code)  # packs the weights, for which it needs tempfile
    loaded = set(python("-c", code).stdout.split())
    kinds = {f"kerasbert.answers.{name}" for name in ("span", "tags", "tokens", "choice", "generation", "vector")}
    assert "kerasbert.answers.classification" in loaded
    assert not loaded & {*kinds, "kerasbert.spec", "tempfile", "traceback", "difflib"}


@pytest.mark.slow
def test_layers_that_share_a_kernel_keep_their_own_bias(tmp_path):
    """XNNPACK's weight cache finds an int8 kernel with the bias of the layer that came first (0.03 of probability here)."""
    from kerasbert import mobile
    from kerasbert.mobile.runtime.interpreters import Compiled
    from kerasbert.testing.battery import Subject
    from tests.mobile.quantize.test_aware import uneven

    texts = sentences(20, 5)
    mobile.compress(
        uneven(Subject("albert", tmp_path, hidden=64)), out=tmp_path / "x.tflite", lengths=[24], min_agreement=0
    )
    cached = mobile.load(tmp_path / "x.tflite", cache=False)
    alone = mobile.load(tmp_path / "x.tflite", cache=False)
    alone.model = Compiled(tmp_path / "x.tflite", alone.bundle, 1, "")
    np.testing.assert_allclose(cached.outputs(texts), alone.outputs(texts), atol=1e-6)

"""kb_runner: text -> answer in C == in Python, over a network in Python and over LiteRT's library."""

import collections
import dataclasses
import hashlib
import os
import random
import struct
import subprocess
import threading

import numpy as np
import pytest

from kerasbert import answers, inputs
from kerasbert.errors import InputError
from kerasbert.export import bundle
from kerasbert.mobile.native import build
from kerasbert.mobile.runtime import load
from kerasbert.mobile.runtime.native import UNSUPPORTED
from kerasbert.text import load_tokenizer
from tests.hostile.test_tflite import mutated
from tests.mobile.native.networks import TASKS, network
from tests.mobile.native.runners import ARGUMENT, CANCELLED, INTERPRETER, Failed, Runner, litert, opened
from tests.mobile.native.script import word
from tests.mobile.native.test_answers import CASES, close, inputs_of, made
from tests.mobile.native.tokenizers import SMALL, files, texts
from tests.support import ROOT

BUCKETS = (8, 12, 24)
DAMAGED = 2  # KB_DAMAGED


def bucketed(case: str, content: dict[str, bytes], **changes) -> bundle.Bundle:
    """The bundle of a case with a signature for each bucket, or with other fields."""
    said = made(case, content)
    name = said.signatures[0].outputs
    signatures = tuple(bundle.Signature("answer", f"length {length}", {"S": length}, name) for length in BUCKETS[::-1])
    return dataclasses.replace(said, **{"signatures": signatures, "any_length": False} | changes)


def numbers(said: bundle.Bundle, size: int):
    """A network in the place of a .tflite: numbers that all inputs and the signature decide."""
    kind = answers.find(said.kind).configured(said.options)
    width = size if kind.name == "tokens" else kind.width(said.labels) or 5

    def run(name: str, arrays: dict[str, np.ndarray], output: str) -> np.ndarray:
        assert output == "p"
        seed = hashlib.sha256(repr([name, sorted((key, value.tolist()) for key, value in arrays.items())]).encode())
        draw = np.random.default_rng(int.from_bytes(seed.digest()[:8], "little"))
        shape = (arrays["token_ids"].size, width) if kind.per_token else (width,)
        return draw.normal(size=shape).astype("float32")

    return run


def expected(said: bundle.Bundle, parts: tuple, run) -> dict:
    """What Python answers with the network `run`: rows, buckets and arrays as `mobile.runtime` makes them."""
    kind, tokenizer = answers.find(said.kind).configured(said.options), load_tokenizer(said.tokenizer)
    rows, outputs = kind.rows(tokenizer, parts, said.longest), []
    for row in rows:
        length = row.length if said.any_length else next(each for each in said.lengths if each >= row.length)
        arrays = inputs.arrays([each.declared() for each in said.inputs], [row], length)
        signatures = {each.name: each.signature for each in said.inputs}
        flat = {signatures[name]: np.asarray(values).reshape(-1).astype("int32") for name, values in arrays.items()}
        found = run(said.signature(length), flat, "p")
        outputs.append(found[: row.length] if kind.per_token else found)
    return kind.decode(parts, rows, outputs, said.labels).to_json()


@pytest.mark.parametrize("any_length", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_answers_are_those_of_python(case, any_length):
    content = files(SMALL["bpe" if case in ("span", "tokens") else "wordpiece"]())
    said = made(case, content) if any_length else bucketed(case, content)
    kind, draw = answers.find(said.kind).configured(said.options), random.Random(5)
    run, strings = numbers(said, load_tokenizer(content).size), texts(40, seed=12)[:-1]
    with opened(said.to_zip(), run) as runner:
        for _ in range(6):
            parts = inputs_of(kind.name, draw, strings)
            words = kind.name == "tags" and isinstance(parts[0], tuple)
            flat = [text for part in parts for text in (part if isinstance(part, tuple) else (part,))]
            close(expected(said, parts, run), runner(flat, words), f"{case} {parts!r:.200}")


@pytest.mark.parametrize(
    "text",
    [
        "the 😀 house 👩\u200d👩\u200d👧 e\u0301 مرحبا 中文".encode(),
        b"the \xff\xfe un\xf0\x9f\x98 house \xed\xa0\x80 the",  # not UTF-8: the offsets are still those of these bytes
        b"",
        b"the \0 house",
    ],
)
def test_offsets_in_code_points_bytes_and_utf_16(text):
    """`Runner` cuts the text of every word, entity and answer out of the input by each of them."""
    for case in ("tags", "span"):
        said = bucketed(case, files(SMALL["bpe"]()))
        with opened(said.to_zip(), numbers(said, 1)) as runner:
            runner([b"who", text] if case == "span" else [text])
            if case == "tags":
                assert runner([b"\xff a", text, "😀".encode()], words=True)["words"][0] == "\ufffd a"


def test_other_names_types_and_pads_of_inputs():
    content, seen = files(SMALL["wordpiece"]()), []
    reads = (
        bundle.Reads("padding_mask", "real", dtype="bool"),
        bundle.Reads("token_ids", "words", pad=7),
        bundle.Reads("segment_ids", "types", pad=-1),
    )

    def run(name, arrays, output):
        seen.append((name, arrays))
        return np.zeros(3)

    with opened(bucketed("classification", content, inputs=reads).to_zip(), run) as runner:
        runner(["un the"])
    name, arrays = seen[0]
    ids, segments = load_tokenizer(content).pack("un the", None, 24)
    assert name == "length 8"
    assert {key: value.dtype.name for key, value in arrays.items()} == {
        "real": "uint8",
        "words": "int32",
        "types": "int32",
    }
    rest = 8 - len(ids)
    assert arrays["words"].tolist() == [*ids, *[7] * rest]
    assert arrays["types"].tolist() == [*segments, *[-1] * rest]
    assert arrays["real"].tolist() == [*[1] * len(ids), *[0] * rest]


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"inputs": (bundle.Reads("neighbours", "n"),)}, UNSUPPORTED, "a file with the input 'neighbours'"),
        ({"inputs": (bundle.Reads("token_ids", "a"), bundle.Reads("segment_ids", "a"))}, DAMAGED, "an input twice"),
        ({"inputs": (bundle.Reads("token_ids", "a", dtype="int8"),)}, DAMAGED, "an input of no name or type"),
        ({"inputs": ()}, DAMAGED, "no inputs"),
        ({"outputs": {"p": "p", "q": "q"}}, UNSUPPORTED, "signatures of several outputs"),
        ({"outputs": {"p": ""}}, DAMAGED, "signatures with different outputs"),
        ({"any_length": True}, DAMAGED, "several signatures of any length"),
        ({"lengths": (8, 8)}, DAMAGED, "two signatures of one length"),
    ],
)
def test_bundles_that_are_refused(change, status, text):
    said = bucketed("classification", files(SMALL["wordpiece"]()))
    lengths, outputs = change.pop("lengths", BUCKETS), change.pop("outputs", {"p": "p"})
    signatures = tuple(bundle.Signature("answer", f"s{i}", {"S": length}, outputs) for i, length in enumerate(lengths))
    data = dataclasses.replace(said, **{"signatures": signatures} | change).to_zip()
    with pytest.raises(Failed, match=text) as caught:
        Runner(data, numbers(said, 1))
    assert caught.value.status == status


def test_limits_and_options():
    said = bucketed("tags", files(SMALL["wordpiece"]()))
    run = numbers(said, 1)
    with opened(said.to_zip(), run, rows=3) as runner:
        assert len(runner(["a " * 30])["words"]) == 30
        with pytest.raises(Failed, match=r"takes \d+ rows of 24 tokens, expected at most 3: split it") as caught:
            runner(["a b " * 100])
        assert caught.value.status == ARGUMENT
        assert len(runner(["a " * 30])["words"]) == 30  # and goes on
    for options, text in (
        ({"rows": 1025}, "rows is 1025, expected 1 to 1024"),
        ({"threads": 2}, "library, threads and delegate are of LiteRT's library"),
        ({"library": b"x"}, "library, threads and delegate are of LiteRT's library"),
    ):
        with pytest.raises(Failed, match=text):
            Runner(said.to_zip(), run, **options)


def test_a_network_that_fails_or_gives_other_numbers():
    said = bucketed("tags", files(SMALL["wordpiece"]()))
    given = [np.zeros(9), np.zeros(8), np.zeros((8, len(said.labels))), np.full((8, len(said.labels)), np.nan)]

    def run(*_):
        if not given:
            raise InterruptedError("the network is tired")
        return given.pop(0)

    with opened(said.to_zip(), run) as runner:
        for status, text in ((DAMAGED, "gives 9 numbers of 8 tokens"), (ARGUMENT, "expected")):
            with pytest.raises(Failed, match=text) as caught:
                runner(["the"])
            assert caught.value.status == status
        assert runner(["the"])["words"] == ["the"]
        with pytest.raises(Failed, match="not finite"):
            runner(["the"])
        with pytest.raises(Failed, match="the network is tired") as caught:
            runner(["the"])
        assert caught.value.status == INTERPRETER


def test_cancelled_by_another_thread():
    """The row that runs ends, the next one does not begin; the next answer is whole."""
    said = bucketed("tags", files(SMALL["wordpiece"]()))
    begun, told, rows, run = threading.Event(), threading.Event(), [], numbers(said, 1)

    def waits(*arguments):
        rows.append(1)
        begun.set()
        assert told.wait(20)
        return run(*arguments)

    with opened(said.to_zip(), waits) as runner:
        runner.cancel()  # nothing runs: nothing is cancelled

        def stop():
            assert begun.wait(20)
            runner.cancel()
            told.set()

        thread = threading.Thread(target=stop)
        thread.start()
        with pytest.raises(Failed, match="the answer was cancelled") as caught:
            runner(["a b " * 100])
        thread.join()
        assert (caught.value.status, len(rows)) == (CANCELLED, 1)
        assert len(runner(["a b " * 100])["words"]) == 200


def test_two_threads_take_turns_or_are_told():
    said, said_inside = bucketed("classification", files(SMALL["wordpiece"]())), []

    def run(*_):
        with pytest.raises(Failed, match="the runner answers another thread") as caught:
            runner(["b"])
        said_inside.append(caught.value.status)
        return np.zeros(3)

    with opened(said.to_zip(), run) as runner:
        runner(["a"])
    assert said_inside == [ARGUMENT]


def test_a_file_or_a_library_that_is_none(tmp_path):
    library = str(litert()).encode()
    said = bucketed("classification", files(SMALL["wordpiece"]()))
    (tmp_path / "empty.tflite").touch()
    (tmp_path / "undigested.tflite").write_bytes(b"flatbuffer" + said.to_zip())
    nothing = struct.pack("<IHHi", 8, 4, 4, 4)  # a flatbuffer whose table has no fields
    for name, front in (("odd", nothing), ("none", b"no flatbuffer")):
        digest = hashlib.sha256(front).hexdigest()
        (tmp_path / f"{name}.tflite").write_bytes(front + dataclasses.replace(said, digest=digest).to_zip())
    for name, status, text in (
        ("absent", ARGUMENT, "cannot read .*absent.tflite: No such file"),
        ("empty", ARGUMENT, "cannot read .*: it is no file, or empty"),
        ("undigested", DAMAGED, "has not the sha256 of its bundle"),
        ("none", DAMAGED, "the file is damaged: an operator, a tensor or a signature of it cannot be"),
        ("odd", INTERPRETER, "LiteRT cannot open the network"),
    ):
        with pytest.raises(Failed, match=text) as caught:
            Runner(tmp_path / f"{name}.tflite", library=library)
        assert caught.value.status == status
    with pytest.raises(Failed, match="threads is 257, expected 1 to 256"):
        Runner(tmp_path / "odd.tflite", library=library, threads=257)
    with pytest.raises(Failed, match="delegate is 'nnapi', expected xnnpack, gpu or npu") as caught:
        Runner(tmp_path / "odd.tflite", library=library, delegate=b"nnapi")
    assert caught.value.status == ARGUMENT
    with pytest.raises(Failed, match=r"/none.so is not to be loaded, expected LiteRT's library"):
        Runner(tmp_path / "odd.tflite", library=b"/none.so")
    with pytest.raises(Failed, match=r"has no LiteRtCreateEnvironment, expected LiteRT 2.1.6 or later"):
        Runner(tmp_path / "odd.tflite", library=b"libm.so.6")


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000])
def test_sha256(size, tmp_path):
    """Lengths around a block's end: the network is looked at, so its digest was the same."""
    said, front = bucketed("classification", files(SMALL["wordpiece"]())), bytes(range(256)) * 4
    digest = hashlib.sha256(front[:size]).hexdigest()
    (tmp_path / "x.tflite").write_bytes(front[:size] + dataclasses.replace(said, digest=digest).to_zip())
    with pytest.raises(Failed, match="the file is damaged: an operator"):
        Runner(tmp_path / "x.tflite", library=str(litert()).encode())


def asked(task: str, count: int) -> list:
    """Inputs of a task, of generated strings in which its own words stand."""
    draw, strings = random.Random(9), texts(count, seed=13)[:-1]
    kind = {"ner": "tags", "squad2": "span", "sts": "vector", "fill-mask": "tokens"}.get(task, task)
    for i, text in enumerate(strings):
        places = text.split(" ")
        for own in ("the", "film", "dog", "😀", "house", "e\u0301", "مرحبا", "中文"):
            places.insert(draw.randrange(len(places) + 1), own)
        strings[i] = " ".join(places)
    found = []
    for _ in range(count):
        parts = inputs_of(kind, draw, strings)
        found.append(parts[0] if len(parts) == 1 else parts)
    return found


def beside_python(path, task: str, count: int) -> int:
    """Compare answers of a file in C over LiteRT's library with the runtime's -> number of rows."""
    rows = 0
    with load(path, cache=False) as python, opened(path, library=str(litert()).encode(), threads=2) as runner:
        for text in asked(task, count):
            parts = text if isinstance(text, tuple) else (text,)
            words = task == "ner" and not isinstance(text, str)
            flat = list(text) if words else [t for p in parts for t in (p if isinstance(p, tuple) else (p,))]
            close(python([text])[0].to_json(), runner(flat, words), f"{task} {text!r:.200}")
            rows += len(python.rows(text))
    return rows


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    """A file that reads long texts in windows."""
    return network("ner", tmp_path_factory.mktemp("tagger"))


@pytest.mark.slow
def test_a_delegate_computes_all_or_is_refused(tagger):
    """Each by its name, in C and in Python; one that is there answers as the processor does."""
    text, library = "the happy cat", str(litert()).encode()
    with load(tagger, cache=False) as python:
        wanted = python([text])[0].to_json()
    for name in ("xnnpack", "gpu", "npu"):
        said = []
        for opener in (
            lambda name=name: opened(tagger, library=library, delegate=name.encode()),
            lambda name=name: load(tagger, cache=False, delegate=name),
        ):
            try:
                with opener() as runner:
                    found = runner([text])
                close(wanted, found[0].to_json() if isinstance(found, list) else found, name)
            except (Failed, InputError) as error:
                said.append(str(error))
        assert not said or name != "xnnpack"
        assert all(f"LiteRT has no {'such accelerator' if 'such' in each else name} here" in each for each in said)


@pytest.mark.slow
def test_over_litert(tagger, tmp_path):
    assert beside_python(tagger, "ner", 40) > 80
    assert beside_python(network("classification", tmp_path, lengths="any", length=32), "classification", 40) == 40


@pytest.mark.native
@pytest.mark.parametrize("task", TASKS)
def test_every_kind_over_litert(task, tmp_path):
    """200 texts of each kind, buckets and any length."""
    many = beside_python(network(task, tmp_path), task, 200)
    print(f"\n{task}: 200 inputs, {many} rows, buckets; and any length")
    (tmp_path / "any").mkdir()
    beside_python(network(task, tmp_path / "any", lengths="any", length=32), task, 200)


@pytest.mark.native
def test_cancelled_within_litert(tagger):
    with opened(tagger, library=str(litert()).encode()) as runner:
        done = threading.Event()

        def stop():
            while not done.is_set():
                runner.cancel()

        thread = threading.Thread(target=stop)
        thread.start()
        try:
            with pytest.raises(Failed, match="the answer was cancelled") as caught:
                runner(["the film " * 5000])
        finally:
            done.set()
            thread.join()
        assert caught.value.status == CANCELLED
        assert len(runner(["the film " * 50])["words"]) == 100


@pytest.mark.native
def test_damaged_files_under_sanitizers(tagger, tmp_path):
    """400 files: an answer or one line, never a signal or a sanitizer's report."""
    driver = [ROOT / "tests/mobile/native/driver.c"]
    program = build.build(tmp_path / "driver", ["-D_POSIX_C_SOURCE=200809L", *build.SANITIZERS], driver)
    path, outcomes = tmp_path / "x.tflite", collections.Counter()
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # LiteRT keeps what it made once
    said = [f"runner 0 {word(str(path))} {word(str(litert()))}", f"ask 0 {word('the happy cat sees a dog . ' * 9)}", ""]
    good = None
    for number in range(401):
        group, name, data = (
            mutated(tagger.read_bytes(), f"runner {number}") if number else ("good", "", tagger.read_bytes())
        )
        path.write_bytes(data)
        done = subprocess.run(
            [program], input="\n".join(said), capture_output=True, text=True, env=environment, timeout=60
        )
        assert done.returncode == 0, f"{name}: {done.stderr[-2000:]}"
        lines = done.stdout.splitlines()
        assert len(lines) == 2, name
        good = good or lines
        outcomes[group, "error" if lines[1].startswith("error") else "same" if lines == good else "other"] += 1
    assert outcomes["digest kept", "other"] == 0  # what is not looked at, such as a date in the zip, may differ
    assert outcomes["good", "same"] == 1
    assert outcomes["digest anew", "same"] > 20
    print(f"\n{dict(outcomes)}")

"""The Runner beside its answers: where a file comes from, top and threshold, its end, the nearest texts, many at once."""

import concurrent.futures
import gc
import json
import os
import random
import tempfile
import tracemalloc

import numpy as np
import pytest

from kerasbert.answers.classification import Classification
from kerasbert.answers.multi_label import MultiLabel, MultiLabelKind
from kerasbert.answers.span import Span, SpanKind
from kerasbert.answers.tags import Entity, Tags, TagsKind
from kerasbert.answers.tokens import Filling, FillMask, TokensKind
from kerasbert.errors import InputError
from kerasbert.mobile.cli import main
from kerasbert.mobile.runtime import load
from tests.mobile.conftest import TEXTS, WORDS


@pytest.fixture
def runner(float_file):
    return load(float_file[0], cache=False)


@pytest.fixture(scope="module")
def vectors(run, tmp_path_factory):
    """A file of the encoder's vectors."""
    import kerasbert as kb
    from kerasbert.mobile import compress

    path = tmp_path_factory.mktemp("vectors") / "x.tflite"
    compress(kb.load(run).encoder, "float32", path, lengths="any", length=24, texts=TEXTS)
    return path


def test_a_file_comes_as_bytes_or_as_a_descriptor(float_file, runner, monkeypatch, tmp_path):
    content, expected = float_file[0].read_bytes(), runner(TEXTS)
    for given in (content, bytearray(content), memoryview(content)):
        assert load(given, cache=False)(TEXTS) == expected
    with open(float_file[0], "rb") as file:
        file.read(100)
        opened = load(file.fileno(), cache=tmp_path)
        assert file.tell() == 100
    assert opened(TEXTS) == expected  # the caller's descriptor is closed
    assert len(list(tmp_path.glob("*.weights"))) == 1
    monkeypatch.delattr(os, "memfd_create")  # another system
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with load(content, cache=False) as held:
        assert held(TEXTS) == expected
        assert len(list(tmp_path.glob("*/*.tflite"))) == 1
    assert not list(tmp_path.glob("*/"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (b"", "the 0 bytes are no .tflite, expected the content of one"),
        (b"PK\x05\x06 of something else", "the 22 bytes are no .tflite"),
        ("", "the path is empty"),
        (987654, "descriptor 987654 cannot be read"),
        (True, "received a bool, expected a path"),
        (None, "received a NoneType, expected a path"),
    ],
)
def test_what_is_no_file_is_refused_in_a_line_and_leaves_nothing_open(given, said):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(InputError, match=said) as error:
        load(given)
    assert "\n" not in str(error.value)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_runner_ends(float_file):
    with load(float_file[0].read_bytes(), cache=False) as one:
        assert one(TEXTS)
    with pytest.raises(InputError, match="is closed: load it again"):
        one(TEXTS)
    one.close()
    before = len(os.listdir("/proc/self/fd"))
    two = load(float_file[0].read_bytes(), cache=False)
    assert len(os.listdir("/proc/self/fd")) > before
    del two
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_top_and_threshold_of_a_classification(runner, float_file, capsys):
    for full, best, good in zip(runner(TEXTS), runner(TEXTS, top=2), runner(TEXTS, threshold=0.3)):
        ordered = sorted(full.scores.items(), key=lambda item: -item[1])
        assert (best.label, best.score, good.label) == (full.label, full.score, full.label)
        assert list(best.scores.items()) == ordered[:2]
        assert list(good.scores.items()) == [(name, value) for name, value in ordered if value >= 0.3]
    assert main(["run", str(float_file[0]), TEXTS[0], "--no-cache", "--json", "--top", "1"]) == 0
    assert len(json.loads(capsys.readouterr().out)["scores"]) == 1
    assert main(["run", str(float_file[0]), TEXTS[0], "--no-cache", "--threshold", "2"]) == 2
    assert "threshold is 2.0, expected a probability from 0 to 1" in capsys.readouterr().err
    with pytest.raises(InputError, match="top is 0, expected a whole number of at least 1"):
        runner(TEXTS, top=0)


def test_top_and_threshold_of_other_kinds_by_hand():
    several = MultiLabel(("a", "c"), {"a": 0.6, "b": 0.45, "c": 0.9})
    assert MultiLabelKind().limited(several, 1, None) == MultiLabel(("c",), {"c": 0.9})
    assert MultiLabelKind().limited(several, None, 0.4) == MultiLabel(("c", "a", "b"), {"c": 0.9, "a": 0.6, "b": 0.45})
    span = Span("x", 0, 1, 0.5, (Span("y", 2, 3, 0.3), Span("z", 4, 5, 0.1)))
    assert SpanKind().limited(span, None, 0.2).alternatives == span.alternatives[:1]
    assert SpanKind().ranking(2, None).options["n_best"] == 2
    mask = FillMask("a b", ((Filling("b", 0.7, 1), Filling("c", 0.2, 2)),))
    assert TokensKind().limited(mask, None, 0.5).tokens == ((Filling("b", 0.7, 1),),)
    assert TokensKind().ranking(9, None).options["top"] == 9
    entities = (Entity("X", 0, 3, "a b"), Entity("Y", 4, 5, "c"))
    tags = Tags(("a", "b", "c"), ("B-X", "I-X", "B-Y"), (0, 2, 4), (1, 3, 5), entities, (0.9, 0.4, 0.8))
    assert TagsKind().limited(tags, None, 0.5).entities == entities[1:]
    with pytest.raises(InputError, match="top is 2 and tags rank nothing: give a threshold"):
        TagsKind().ranking(2, None)


def test_a_kind_that_ranks_nothing_refuses(vectors):
    with pytest.raises(InputError, match="top or threshold is given, and a vector ranks nothing"):
        load(vectors, cache=False)(TEXTS, top=2)


def test_the_nearest_texts(vectors, tmp_path, capsys):
    runner = load(vectors, cache=False)
    texts = [" ".join(random.Random(i).choices(WORDS[:12], k=1 + i % 20)) for i in range(300)]
    index = runner.index(texts)
    assert index.nearest(texts[7], 1)[0].text == texts[7]
    held = np.stack([answer.values for answer in runner(texts)])
    query = np.asarray(runner(["a good film"])[0].values)
    cosines = held @ query / np.linalg.norm(held, axis=1) / np.linalg.norm(query)
    found = index.nearest("a good film", 10)
    assert [hit.index for hit in found] == np.argsort(-cosines, kind="stable")[:10].tolist()
    np.testing.assert_allclose([hit.score for hit in found], np.sort(cosines)[::-1][:10], atol=1e-6)
    again = runner.index(texts, index.vectors)
    assert again.nearest("a good film", 10) == found
    assert len(again) == 300
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    arguments = ["nearest", str(vectors), "a good film", "--among", str(tmp_path / "texts.txt"), "--no-cache"]
    assert main([*arguments, "--top", "3", "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["index"], row["text"]) for row in told] == [(hit.index, hit.text) for hit in found[:3]]


def test_what_is_no_index_is_refused(runner, vectors):
    with pytest.raises(InputError, match="answers with a classification, expected vectors"):
        runner.index(TEXTS)
    found = load(vectors, cache=False)
    with pytest.raises(InputError, match="texts is empty"):
        found.index([])
    assert found.index("a text").texts == ("a text",)
    with pytest.raises(InputError, match=r"vectors have the shape \(1, 3\), expected \(2, H\)"):
        found.index(["a", "b"], np.zeros((1, 3)))
    with pytest.raises(InputError, match="vectors have 3 numbers, the file's 16"):
        found.index(["a"], np.zeros((1, 3))).nearest("a")
    with pytest.raises(InputError, match="k must be a whole number of at least 1. Received: 0"):
        found.index(["a"]).nearest("a", 0)


def test_a_document_of_too_many_windows_is_refused_before_anything_runs(runner, float_file, monkeypatch):
    """Any kind of several rows; here one whose rows are a text's words."""
    monkeypatch.setattr(
        type(runner.kind),
        "rows",
        lambda self, tokenizer, parts, length: [row_of(tokenizer, word) for word in parts[0].split() or ["a"]],
    )
    monkeypatch.setattr(runner.model, "run", None)
    runner.windows = 4
    with pytest.raises(
        InputError, match="text 1 takes 5 rows of 24 tokens, expected at most 4: split it, or allow more"
    ):
        runner(["a good film", "a good film and bad"])
    with pytest.raises(InputError, match="windows is 0, expected at least 1"):
        load(float_file[0], windows=0)


def row_of(tokenizer, text):
    from kerasbert import inputs

    return inputs.row(*tokenizer.pack(text))


def test_more_texts_than_a_block(runner, monkeypatch):
    texts = (TEXTS * 10)[:50]
    expected = runner(texts)
    monkeypatch.setattr("kerasbert.mobile.runtime.BLOCK", 7)
    assert runner(texts) == expected
    assert all(isinstance(answer, Classification) for answer in expected)


def mixed(count, seed):
    """Calls of one to four texts of all lengths, with and without top."""
    draw = random.Random(seed)
    for _ in range(count):
        texts = [
            " ".join(draw.choices(WORDS[:12], k=draw.choice((0, 1, 3, 8, 20, 60)))) for _ in range(draw.randint(1, 4))
        ]
        yield texts, draw.choice((None, 1, 2))


def hammered(file, threads, calls):
    """Whether `threads` on one Runner and on one each answer as one alone does; MB of Python's and the process's growth."""
    work = list(mixed(calls, 3))
    alone = load(file, cache=False)
    expected = [alone(texts, top=top) for texts, top in work]

    def answers(runner):
        return all(runner(texts, top=top) == wanted for (texts, top), wanted in zip(work, expected))

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        several = [load(file, cache=False) for _ in range(threads)]
        assert all(pool.map(answers, several))
        assert all(pool.map(answers, [alone] * threads))
        tracemalloc.start()
        for _ in range(3):  # what leaks grows each time; what the tests before have left to the allocator does once
            gc.collect()
            before, begun = resident(), tracemalloc.get_traced_memory()[0]
            assert all(pool.map(answers, several))
            assert all(pool.map(answers, [alone] * threads))
            gc.collect()
            python, process = tracemalloc.get_traced_memory()[0] - begun, resident() - before
            if process < 2:
                break
        tracemalloc.stop()
    return python / 1e6, process


def resident():
    """MB of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.slow
def test_threads_answer_as_one_does_and_memory_stays(int8_buckets):
    python, process = hammered(int8_buckets[0], 8, 25)
    assert python < 1
    assert process < 8


@pytest.mark.full
def test_8_threads_of_1000_calls(int8_buckets):
    python, process = hammered(int8_buckets[0], 8, 1000)
    print(f"growth: {python:.3f} MB of Python, {process:.1f} MB of the process")
    assert python < 1
    assert process < 8

"""Texts that are generated in C == in Python: ids -> text, prompts, and what is chosen, over LiteRT's library."""

import collections
import json
import os
import random
import subprocess
import threading

import numpy as np
import pytest

from kerasbert import answers
from kerasbert.export import bundle
from kerasbert.mobile import compress
from kerasbert.mobile.native import build
from kerasbert.mobile.runtime import load
from kerasbert.mobile.runtime.native import NativeModel, Unsupported
from kerasbert.text import load_tokenizer
from tests.hostile.test_tflite import mutated
from tests.mobile.native.chains import chain
from tests.mobile.native.runners import CANCELLED, Failed, litert
from tests.mobile.native.script import word
from tests.mobile.native.tokenizers import SMALL, files, texts
from tests.mobile.native.writers import Writer, detokenized
from tests.support import ROOT, once

OPTIONS = (
    {},
    {"temperature": 0.9, "seed": 5},
    {"temperature": 1.5, "top_k": 20, "top_p": 0.9, "seed": 1},
    {"top_p": 0.7},
    {"temperature": 1.0, "num_return_sequences": 3},
    {"beams": 3},
    {"beams": 4, "repetition_penalty": 1.3, "min_new_tokens": 4, "length_penalty": 0.6},
    {"beams": 2, "no_repeat_ngram_size": 2, "early_stopping": True, "num_return_sequences": 2},
    {"suppress_tokens": [5, 6], "bad_words_ids": [[9], [8, 10]], "forced_bos_token_id": 11, "beams": 3},
    {"repetition_penalty": 1.5, "begin_suppress_tokens": [7]},
    {"no_repeat_ngram_size": 2},
    {"max_tokens": 5},
    {"beams": 3, "early_stopping": "never", "length_penalty": 2.0, "forced_eos_token_id": 3},
)


def prompts(count: int) -> list[str]:
    """Texts in which a tokenizer finds something."""
    return [f"the {text}" for text in texts(count, seed=15)[:-1]][:count]


@pytest.mark.parametrize("name", SMALL)
def test_ids_are_the_text_that_python_decodes(name):
    """Of any ids: bytes that are no UTF-8, "##" in front, special and added tokens."""
    tokenizer, draw = SMALL[name](), np.random.default_rng(7)
    content = files(tokenizer)
    for size in (0, 1, 2, 5, 40):
        for _ in range(10):
            ids = draw.integers(0, tokenizer.size, size).tolist()
            assert detokenized(content, ids) == tokenizer.decode(ids)
    with pytest.raises(Failed, match=f"the id {tokenizer.size} is none of the {tokenizer.size} pieces"):
        detokenized(content, [tokenizer.size])


def said(content: dict[str, bytes], role: str = "prefill", **options) -> bundle.Bundle:
    """A bundle of a file that generates."""
    axis = "P" if role == "prefill" else "S"
    signatures = (
        bundle.Signature(role, "reads", {axis: 14}, {"key_0": "key_0"}),
        bundle.Signature("decode_step", "steps", {"T": 20}, {"logits": "logits", "key_0": "key_0"}),
    )
    options = {"start": "pad" if role == "encode" else "", "target_length": 6, **options}
    return bundle.Bundle("generation", content, signatures, (bundle.Reads("token_ids", "token_ids"),), options=options)


CASES = {
    "alone": ("bpe", {"separator": " :"}),
    "goes on": ("bpe", {"separator": ""}),
    "prefixed": ("wordpiece", {"role": "encode", "prefix": "the un: "}),
    "masked": ("wordpiece", {"masked": True}),
    "unigram": ("unigram", {"role": "encode"}),
}


@pytest.mark.parametrize("case", CASES)
def test_prompts_are_those_of_python(case):
    name, options = CASES[case]
    content = files(SMALL[name]())
    made = said(content, **options)
    tokenizer, model = load_tokenizer(content), NativeModel(made.to_zip())
    kind = answers.find("generation").configured(made.options)
    assert model.longest == made.longest
    cut = 0
    for text in [*prompts(40), "the " * 30, "a"]:
        (row,), (ours,) = kind.rows(tokenizer, (text,), made.longest), list(model.rows([text]))
        assert ours[0] == list(row.token_ids)
        assert ours[3] == row.truncated
        cut += row.truncated
    assert 0 < cut < 42
    if case == "goes on":  # it loses its beginning
        assert next(iter(model.rows(["the " * 30 + "a"])))[0][-1:] == tokenizer.encode("the a")[-1:]
    for blank in ("", " \u3000\n", "\u200b\x00"):
        with pytest.raises(ValueError, match="a source is empty, expected a text to write from"):
            model.rows([blank])
    assert len(model.rows(["\ue000"])) == 1  # private use is something to read


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"options": {"beams": 0}}, ValueError, "beams is out of range, expected a whole number from 1 to 256"),
        ({"options": {"beam": 2}}, ValueError, "no option 'beam' of texts that are generated"),
        ({"options": {"beams": 2, "temperature": 1.0}}, ValueError, "tokens are drawn for one text at a time"),
        ({"options": {"coverage_penalty": 0.5}}, ValueError, "coverage_penalty is out of range, expected 0"),
        ({"options": {"start": "pad"}}, ValueError, "signatures are not encode or prefill with decode_step"),
        ({"options": {"start": "ro_RO"}}, Unsupported, "a file whose texts start with the piece 'ro_RO'"),
        ({"signatures": said({}).signatures[:1]}, ValueError, "signatures are not encode or prefill with decode_step"),
        (
            {"signatures": (bundle.Signature("sing", "x", {"S": 3}, {"a": "a"}),)},
            Unsupported,
            "a signature of the role 'sing'",
        ),
    ],
)
def test_bundles_that_cannot_be_are_refused(change, error, text):
    content = files(SMALL["bpe"]())
    made = said(content, **change.get("options", {}))
    if "signatures" in change:
        made = bundle.dataclasses.replace(made, signatures=change["signatures"])
    with pytest.raises(error, match=text):
        NativeModel(made.to_zip())


def test_a_network_of_the_callers_generates_nothing():
    with pytest.raises(Failed, match="texts over another network than LiteRT's library"):
        Writer(said(files(SMALL["bpe"]())).to_zip(), lambda *_: None).generate("the cat")


# ---- over LiteRT's library ----


@pytest.fixture(scope="module")
def chains(tmp_path_factory):
    """Role -> a file of a table."""
    tokenizers = {"prefill": "bpe", "encode": "wordpiece"}
    made = lambda folder: [str(chain(folder, SMALL[name](), role)) for role, name in tokenizers.items()]  # noqa: E731
    folder, _ = once(tmp_path_factory, "chains", made)
    return {role: folder / f"{role}.tflite" for role in tokenizers}


def beside_python(path, count: int, options=OPTIONS) -> int:
    """Compare texts, scores and pieces of a file in C with the runtime's -> number of texts."""
    asked = 0
    with load(path, cache=False) as python:
        writer = Writer(path, library=str(litert()).encode())
        for each in options:
            for text in [*prompts(count), "the " * 60]:
                wanted, several = (
                    python.generate(text, **each).to_json(),
                    max(each.get("beams", 1), each.get("num_return_sequences", 1)) > 1,
                )
                pieces, found = (None, writer.generate(text, **each)) if several else writer.stream(text, **each)
                what = f"{each} {text!r:.80}"
                assert found.keys() == wanted.keys(), what
                for ours, theirs in zip(
                    [found, *found.get("sequences", [])], [wanted, *wanted.get("sequences", [])], strict=True
                ):
                    assert ours["text"] == theirs["text"], what
                    assert ours["score"] == pytest.approx(theirs["score"], rel=1e-4, abs=1e-4), what
                if pieces is not None:
                    assert "".join(piece.decode() for piece in pieces) == found["text"], what  # each is whole
                    assert pieces == [piece.encode() for piece in python.stream(text, **each)], what
                asked += 1
        writer.close()
    return asked


@pytest.mark.slow
@pytest.mark.parametrize("role", ["prefill", "encode"])
def test_texts_are_those_of_python(role, chains):
    assert beside_python(chains[role], 3) == 4 * len(OPTIONS)


@pytest.mark.slow
def test_who_listens_may_end_a_text(chains):
    writer, heard = Writer(chains["prefill"], library=str(litert()).encode()), []
    for end in (lambda: 1, writer.cancel):
        heard.clear()

        def told(piece, end=end):
            heard.append(piece)
            return (end() or 0) if len(heard) == 2 else 0

        with pytest.raises(Failed, match="the answer was cancelled") as caught:
            writer.generate("the cat", told)
        assert (caught.value.status, len(heard)) == (CANCELLED, 2)
    assert b"".join(writer.stream("the cat")[0]).decode() == writer(["the cat"])["text"]
    for options, text in (
        ({"beams": 3}, "beams is 3, expected 1: a text is known at its end alone"),
        ({"temperature": -1}, "temperature is out of range, expected a number above 0"),
        ({"max_tokens": 9}, "max_tokens is 9, expected 1 to target_length, 8"),
        ({"target_length": 3}, "target_length is the file's own, 8: max_tokens says how many"),
        ({"smoothing": 0.1}, "smoothing is an option of training alone"),
        ({"bems": 1}, "no option 'bems' of texts that are generated"),
        ({"suppress_tokens": [10**6]}, "token 1000000 is none of the vocabulary's"),
    ):
        with pytest.raises(Failed, match=text):
            writer.generate("the cat", lambda _: 0, **options)
    writer.close()


FAMILIES = {
    "gpt2": 40,
    "t5": 72,
    "bart": 24,
    "mass": 24,
    "transformer": 24,
    "bert2bert": 24,
    "unilm": 40,
}  # longest rows


@pytest.mark.native
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_writes_what_python_writes(family, tmp_path):
    from tests.mobile.generation.test_phone import TEXTS
    from tests.mobile.generation.test_phone import writer as model

    (tmp_path / family).mkdir()
    out = tmp_path / f"{family}.tflite"
    compress(model(family, tmp_path / family), "float32", out, texts=TEXTS[:8], length=FAMILIES[family])
    print(f"\n{family}: {beside_python(out, 47)} texts")


def asked(program, path, lines) -> list[str]:
    """What the program of generate.c says of a file under sanitizers."""
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # LiteRT keeps what it made once
    done = subprocess.run(
        [program, path, str(litert())],
        input="".join(lines),
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split("\n")[:-1]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """generate.c, with sanitizers."""
    source = ROOT / "tests/mobile/native/generate.c"
    return build.build(
        tmp_path_factory.mktemp("c") / "generate", ["-D_POSIX_C_SOURCE=200809L", *build.SANITIZERS], [source]
    )


@pytest.mark.native
def test_texts_under_sanitizers(chains, program):
    """And 75 damaged files of each: an answer or one line."""
    lines = []
    for each in OPTIONS:
        silent = max(each.get("beams", 1), each.get("num_return_sequences", 1)) > 1
        lines += [
            f"{word(json.dumps(each))} {word(text)} {'-' if silent else end}\n" for end, text in enumerate(prompts(5))
        ]
    outcomes = collections.Counter()
    for role, path in chains.items():
        good = asked(program, path, lines)
        ends = [line.split()[2] for line in lines]
        assert len(good) == len(lines)
        assert all(line.startswith("error 5 ") for line, end in zip(good, ends) if end == "1")
        assert not any(line.startswith("error") for line, end in zip(good, ends) if end in "-0")
        damaged = path.with_name("damaged.tflite")
        for number in range(75):
            group, _, data = mutated(path.read_bytes(), f"generation {role} {number}")
            damaged.write_bytes(data)
            found = asked(program, damaged, lines[::9])
            outcomes[group, "error" if all(line.startswith("error") for line in found) else "texts"] += 1
    print(f"\n{dict(outcomes)}")


@pytest.mark.native
def test_searches_under_sanitizers(program):
    done = subprocess.run([program, "60", "3"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    print(f"\n{done.stdout}")


@pytest.mark.native
def test_cancelled_from_another_thread(chains):
    writer, done, draw = Writer(chains["encode"], library=str(litert()).encode()), threading.Event(), random.Random(4)

    def stop():
        while not done.wait(draw.random() / 1000):
            writer.cancel()

    thread = threading.Thread(target=stop)
    thread.start()
    outcomes = collections.Counter()
    try:
        for _ in range(300):
            try:
                writer.generate("the cat sees", beams=4)
                outcomes["text"] += 1
            except Failed as error:
                outcomes[error.status] += 1
    finally:
        done.set()
        thread.join()
    assert outcomes.keys() <= {"text", CANCELLED}
    assert outcomes[CANCELLED] > 20
    assert writer.generate("the cat sees", beams=4)["text"]
    writer.close()

"""A bundle's rows and answers in C == in Python, for every kind, on random outputs."""

import ctypes
import dataclasses
import json
import random

import numpy as np
import pytest

from kerasbert import answers
from kerasbert.answers.span import IMPOSSIBLE
from kerasbert.errors import InputError
from kerasbert.export import bundle
from kerasbert.inputs import NAMES
from kerasbert.mobile.runtime import native
from kerasbert.mobile.runtime.native import NativeModel, Unsupported
from kerasbert.text import load_tokenizer
from tests.mobile.native.tokenizers import SMALL, files, texts

TAGS = ("O", "B-PER", "I-PER", "E-PER", "S-LOC", "B-LOC", "I-LOC")
NUMBERS = np.random.default_rng(0)
TRANSITIONS = NUMBERS.normal(size=(len(TAGS) + 2, len(TAGS))).tolist()
CASES = {
    "classification": ({}, ("no", 'y"es\n', "jä")),
    "multi_label": ({"thresholds": [0.1, 0.5, 0.9]}, ("no", "yes", "jä")),
    "regression": ({}, ()),
    "vector": ({}, ()),
    "vector prompt": ({"prompts": {"q": 'say "it": ', "": "p", 'é"': "der Satz: "}, "prompt_name": "q"}, ()),
    "vector no prompt": ({"prompts": {"q": "the "}, "prompt_name": ""}, ()),
    "choice": ({}, ()),
    "tokens": ({"top": 3}, ()),
    "span": ({"unanswerable": True, "null_threshold": 0.3, "max_answer": 4, "n_best": 4}, ()),
    "span starts": ({"starts": 3, "unanswerable": True, "max_answer": 4, "n_best": 4}, ()),
    "span plain": ({"context_first": True, "stride": 5, "question": 4}, ()),
    "tags": ({}, TAGS),
    "tags stride": ({"stride": 3}, ("DET", "NOUN", "VERB")),
    "tags crf": ({"crf": True, "transitions": TRANSITIONS}, TAGS),
}


def made(case: str, tokenizer_files: dict[str, bytes], length: int = 24, pair: bool = False) -> bundle.Bundle:
    """A bundle of a case."""
    options, labels = CASES[case]
    kind = answers.find(case.split()[0]).configured(options)
    signature = bundle.Signature("answer", "a", {"S": length}, {kind.output: "p"})
    reads = tuple(bundle.Reads(name, name) for name in NAMES)
    if kind.name == "tokens":
        reads += (bundle.Reads("positions", "positions", "BP", filled_by="kind"),)
    return bundle.Bundle(
        kind.name, tokenizer_files, (signature,), reads, labels=labels, options=options, pair=pair, any_length=True
    )


def inputs_of(kind: str, draw: random.Random, strings: list[str]) -> tuple:
    """Parts of an input of a kind."""
    text, other = draw.choice(strings), draw.choice(strings)
    if kind == "choice":
        return text, tuple(draw.choice(strings) or "x" for _ in range(draw.randint(2, 4)))
    if kind == "tokens":
        return (
            "".join(
                [text[:60], draw.choice(("", " ", " \t")), draw.choice(("[MASK]", "<mask>")), other[:60], "[MASK]"]
            ),
        )
    if kind == "span":
        return draw.choice((text[:30], "", " ")) or "who", other
    if kind == "tags" and draw.random() < 0.5:
        return (tuple(text[i : i + 5] for i in range(0, len(text), 5)),)
    return (text,)


def outputs_of(kind, row, labels: int, size: int) -> np.ndarray:
    """Random numbers of the shape of a row's output, with ties among them."""
    width = kind.width(("x",) * labels) if kind.name != "tokens" else size
    shape = (row.length, width) if kind.per_token else (width or 5,)
    values = NUMBERS.normal(size=shape).astype("float32")
    if kind.name == "span" and kind.options["starts"]:  # of each pair one token begins
        values[:, ::2][np.arange(len(values))[:, None] != NUMBERS.integers(0, len(values), width // 2)] = IMPOSSIBLE
    return np.round(values * 2) / 2 if NUMBERS.random() < 0.3 else values


def close(one, other, where="", rel=1e-6, most=1e-9) -> None:
    """Equal json; floating-point numbers within 1e-6 of theirs, or within `rel` or `most`."""
    assert type(one) is type(other) or isinstance(one, int | float), where
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for name in one:
            close(one[name], other[name], f"{where}.{name}", rel, most)
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for i, pair in enumerate(zip(one, other)):
            close(*pair, f"{where}[{i}]", rel, most)
    elif isinstance(one, float):
        assert other == pytest.approx(one, rel=rel, abs=most), where
    else:
        assert one == other, where


def compare(case: str, name: str, count: int) -> None:
    tokenizer_files = files(SMALL[name]())
    tokenizer, said = load_tokenizer(tokenizer_files), made(case, tokenizer_files)
    model, kind, draw = NativeModel(b"flatbuffer" + said.to_zip()), answers.find(said.kind), random.Random(2)
    kind = kind.configured(said.options)
    assert (model.kind, model.longest) == (kind.name, 24)
    strings = texts(60, seed=11)[:-1]
    for _ in range(count):
        parts = inputs_of(kind.name, draw, strings)
        rows = kind.rows(tokenizer, parts, said.longest)
        words = kind.name == "tags" and isinstance(parts[0], tuple)
        flat = [text for part in parts for text in (part if isinstance(part, tuple) else (part,))]
        ours = model.rows(flat, words)
        assert len(ours) == len(rows), parts
        for row, (ids, segments, position, truncated) in zip(rows, ours):
            assert (list(row.token_ids), list(row.values["segment_ids"])) == (ids, segments), parts
            assert truncated == row.truncated, parts
            assert position == row.values.get("positions", [-1])[0], parts
        outputs = [outputs_of(kind, row, len(said.labels), tokenizer.size) for row in rows]
        expected = kind.decode(parts, rows, outputs, said.labels).to_json()
        close(expected, ours.answer(outputs), f"{case} {parts!r:.200}")


@pytest.mark.parametrize("case", CASES)
def test_rows_and_answers_are_those_of_python(case):
    compare(case, "bpe" if case in ("span", "span starts", "tokens") else "wordpiece", 12)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_with_added_tokens_and_the_other_tokenizers(case):
    for name in ("wordpiece added", "bpe space added", "unigram lower added"):
        if case != "tokens" or name != "unigram lower added":
            compare(case, name, 30)


def test_pairs():
    tokenizer = SMALL["wordpiece"]()
    said = made("classification", files(tokenizer), pair=True)
    model = NativeModel(said.to_zip())
    assert model.rows(("a text", "and another"))[0][:2] == tokenizer.pack("a text", "and another", 24)
    with pytest.raises(InputError, match="received 1 texts, expected 2"):
        model.rows(("alone",))


def test_another_prompt_by_its_name():
    """Rows after it are Python's; a name that is none is refused with those there are, as is a prompt of another kind."""
    content = files(SMALL["wordpiece"]())
    tokenizer, model = load_tokenizer(content), NativeModel(made("vector prompt", content).to_zip())
    kind = answers.find("vector").configured(CASES["vector prompt"][0])
    for name in ("q", 'é"', ""):
        for text in ("a text", "", "x" * 300):
            (row,) = kind.with_prompt(name).rows(tokenizer, (text,), 24)
            ((ids, *_, truncated),) = model.rows((text,), prompt_name=name)
            assert (list(row.token_ids), row.truncated) == (ids, truncated)
    with pytest.raises(InputError, match="no prompt 'query': the file has q, é"):
        model.rows(("a text",), prompt_name="query")
    with pytest.raises(InputError, match="received 2 texts, expected 1"):
        model.rows(("a", "b"), prompt_name="q")
    for case, said in (
        ("vector", "no prompt 'q': the file has none"),
        ("regression", "a prompt is named, and a regression"),
    ):
        with pytest.raises(InputError, match=said):
            NativeModel(made(case, content).to_zip()).rows(("a",), prompt_name="q")


@pytest.mark.parametrize(
    "options", [{"prompts": []}, {"prompts": {"q": 1}}, {"prompts": {"q": "x"}, "prompt_name": "p"}]
)
def test_prompts_that_are_none_are_damage(options):
    said = dataclasses.replace(made("vector", files(SMALL["wordpiece"]())), options=options)
    with pytest.raises(InputError, match=r"the option prompts is no object|a prompt is no string|no prompt 'p'"):
        NativeModel(said.to_zip())


def test_the_settings_are_those_of_the_bundle():
    said = made("tags", files(SMALL["wordpiece"]()))
    model = NativeModel(b"flatbuffer" + said.to_zip())
    settings = model._library["kb_model_settings"]  # a function of its own: ctypes knows no arguments of it yet
    settings.restype, settings.argtypes = native._Json, [ctypes.c_void_p]
    text = settings(model._handle)
    assert json.loads(ctypes.string_at(text.data, text.size)) == json.loads(json.dumps(said.to_json()))


def test_what_is_refused():
    content = files(SMALL["wordpiece"]())
    said = made("classification", content)
    with pytest.raises(InputError, match="carries no readable bundle"):
        NativeModel(b"no zip at all, but longer than one needs to be")
    data = bytearray(said.to_zip())
    data[data.index(b"[PAD]")] ^= 1
    with pytest.raises(InputError, match="the file vocab.txt of the bundle is damaged"):
        NativeModel(bytes(data))
    for change, error, text in (
        ({"format": 9}, Unsupported, "a bundle of another format than 3"),
        ({"kind": "song"}, Unsupported, "a file that answers with 'song'"),
        ({"kind": "regression"}, InputError, "3 labels of a regression"),
        ({"plugin": {"file": "x", "sha256": "0"}}, Unsupported, "a plug-in brings"),
    ):
        settings = said.to_json() | change
        with pytest.raises(error, match=text):
            NativeModel(bundle.pack(content | {"bundle.json": json.dumps(settings).encode()}))
    rows = NativeModel(said.to_zip()).rows(("a",))
    with pytest.raises(InputError, match="output 0 has 2 numbers, expected 3"):
        rows.answer([np.zeros(2, "float32")])
    with pytest.raises(InputError, match="output 0 has numbers that are not finite"):
        rows.answer([np.array([0, np.nan, 1], "float32")])


@pytest.mark.parametrize("case", ["tags", "tags stride", "span"])
def test_a_document_of_many_windows_and_one_of_too_many(case):
    """Python refuses what takes more than 1,024 rows too."""
    tokenizer_files = files(SMALL["wordpiece"]())
    tokenizer, said = load_tokenizer(tokenizer_files), made(case, tokenizer_files)
    kind, model = answers.find(said.kind).configured(said.options), NativeModel(said.to_zip())
    for words, most in ((300, 1024), (40_000, 0)):
        parts = ("who", "a b " * words) if case == "span" else ("a b " * words,)
        if not most:
            with pytest.raises(InputError, match="an input takes more than 1024 rows of 24 tokens: split it"):
                model.rows(parts)
            continue
        rows, ours = kind.rows(tokenizer, parts, said.longest), model.rows(parts)
        assert 20 < len(rows) == len(ours) < most
        outputs = [outputs_of(kind, row, len(said.labels), tokenizer.size) for row in rows]
        close(kind.decode(parts, rows, outputs, said.labels).to_json(), ours.answer(outputs), case)


def test_scores_that_overflow_are_refused_and_not_written():
    """Logits that are finite, of which a span's score is none: it was `-nan` in what claimed to be JSON."""
    tokenizer_files = files(SMALL["wordpiece"]())
    said = made("span", tokenizer_files)
    kind, tokenizer = answers.find(said.kind).configured(said.options), load_tokenizer(tokenizer_files)
    rows, ours = (kind.rows(tokenizer, ("who", "a b"), 24), NativeModel(said.to_zip()).rows(("who", "a b")))
    huge = [np.zeros((row.length, 2), "float32") for row in rows]
    huge[0][0] = 3e38  # of no answer, start and end
    with pytest.raises(InputError, match="the scores that are made of them are not"):
        ours.answer(huge)

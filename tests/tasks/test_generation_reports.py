"""Texts that are written, by hand: what a server is asked and answers, what a report shows. No network."""

import dataclasses

import numpy as np
import pytest

from kerasbert import registry
from kerasbert.errors import InputError
from kerasbert.tasks import generation
from kerasbert.tasks.base import Task, find
from kerasbert.tasks.batches import encode_texts
from kerasbert.tasks.task import find_task
from kerasbert.text.graph import graph_tokenizer
from tests import tiny
from tests.tasks import reports

KIND = generation.KIND
TASK = find_task("generation")
TWO, ROW, MASKED = {"start": "pad"}, {"start": ""}, {"start": "", "masked": True}


def configured(**options):
    return KIND.configured({"target_length": 4, **options})


@pytest.mark.parametrize(
    ("options", "inputs", "behind", "tag"),
    [
        (TWO, 1, 0, "text2text-generation"),
        (ROW, 0, 4, "text-generation"),
        (MASKED, 2, 4, "text2text-generation"),
    ],
)
def test_two_stacks_a_row_or_masks(options, inputs, behind, tag):
    kind = configured(**options)
    assert (len(kind.targets_read), kind.written_behind, kind.pipeline_tag(TASK)) == (inputs, behind, tag)
    beside = {"": "the separator", "True": "its special tokens"}[str(options.get("masked", ""))]
    said = kind.longer(16)
    assert (f"{beside} and the 4 tokens that are written have 16 tokens" in said) == (behind > 0)
    for name in ("translation", "summarization"):
        assert kind.pipeline_tag(dataclasses.replace(TASK, name=name)) == name
    assert kind.readout(TASK, None) is None
    assert kind.group("x") == 0


@pytest.mark.parametrize(("options", "draws"), [({}, False), ({"temperature": 0.7}, True), ({"top_k": 3}, True)])
def test_numbers_of_texts_where_tokens_are_drawn(options, draws):
    kind = configured(**TWO, **options)
    assert list(kind.numbers(["a", "b"]).values()) == ([[0, 1]] if draws else [])
    assert ("draws tokens by `seed`" in kind.described()) == draws
    assert kind.program != configured(**TWO).program or not options
    several = configured(**TWO, num_return_sequences=2, beams=2)
    assert ["`texts` and `scores`" in each.described() for each in (kind, several)] == [False, True]


def test_blank_sources_are_no_probes():
    assert KIND.probes(["a", "", " \u3000", "b"], 1) == ["a", "b"]


END = tiny.tokenizer().sep_id


@pytest.mark.parametrize("options", [TWO, MASKED, {**ROW, "separator": " film "}, {**ROW, "separator": ""}])
def test_the_graph_reads_sources_as_python(options):
    """And writes what stands before the end token; a blank source has no text."""
    import tensorflow as tf

    tokenizer, kind = tiny.tokenizer(), configured(**options)
    texts = ["the cat", "a dog sees the old house and runs", " "]
    cat, dog = tokenizer.encode("cat dog")
    written = {
        "token_ids": tf.constant([[cat, END, dog], [dog, cat, dog], [cat, cat, END]]),
        "score": tf.constant([0.5, 1, 2]),
    }
    seen = {}

    def run(packed):
        seen.update(packed)
        return written

    served = kind.served(run, graph_tokenizer(tokenizer), {"text": tf.constant(texts)}, 12)
    found = kind.unserved({name: value.numpy() for name, value in served.items()}, ())
    assert [each["text"] for each in found] == ["cat", "dog cat dog", ""]
    assert [each["score"] for each in found] == [0.5, 1.0, 0.0]
    for i, text in enumerate(texts[:2]):
        (row,) = kind.answers.rows(tokenizer, (text,), 12)
        prompt = kind.answers.prompt(row, i) if options != TWO else row
        ids = seen["token_ids"].numpy()[i]
        assert ids[: len(prompt.token_ids)].tolist() == list(prompt.token_ids), text
        assert seen["padding_mask"].numpy()[i].sum() == len(prompt.token_ids)
        assert bool(served["truncated"][i]) == row.truncated
    assert "texts" not in served


def test_the_graph_answers_several_texts_of_a_source_and_puts_the_prefix_before_it():
    import tensorflow as tf

    tokenizer, kind = tiny.tokenizer(), configured(**TWO, prefix="old ", beams=2, num_return_sequences=2)
    cat, dog = tokenizer.encode("cat dog")
    both = tf.constant([[[cat, END], [dog, END]], [[dog, dog], [cat, cat]]])

    def run(packed):
        assert packed["token_ids"].numpy()[0, :4].tolist() == [tokenizer.cls_id, *tokenizer.encode("old cat"), END]
        return {
            "token_ids": both[:, 0],
            "score": tf.constant([1.0, 2]),
            "sequences": both,
            "scores": tf.constant([[1.0, 3], [2, 4]]),
        }

    served = kind.served(run, graph_tokenizer(tokenizer), {"text": tf.constant(["cat", ""])}, 12)
    first, blank = kind.unserved({name: value.numpy() for name, value in served.items()}, ())
    assert [each["text"] for each in first["sequences"]] == ["cat", "dog"]
    assert [each["score"] for each in first["sequences"]] == [1.0, 3.0]
    assert [each["text"] for each in blank["sequences"]] == ["", ""]
    assert [each["score"] for each in blank["sequences"]] == [0.0, 0.0]


def test_what_a_report_shows():
    reports.check_report("generation")
    task = TASK.optioned({**TWO, "target_length": 4})
    texts = [("x", "the cat"), ("x", "a dog"), ("x", "old house")]
    encoded = encode_texts(tiny.tokenizer(), texts, 16, kind=task.how)
    encode = tiny.tokenizer().encode
    written = ("the cat", "old dog", "cat cat")
    outputs = np.array([[0.0, *encode(text), END, END] for text in written])
    targets = [target for _, target in texts]
    judged = task.how.judged(task, outputs, targets, encoded)
    assert [judged.answer(i) for i in range(3)] == [*written]
    assert judged.errors[0] == 0
    assert 0 < judged.errors[1] < judged.errors[2] == 1
    bars = judged.picture["bars"]
    assert bars["the expected text"] == pytest.approx(1 / 3)
    assert bars["at least 75% of the words"] == pytest.approx(1 / 3)
    assert bars["at least 50% of the words"] == pytest.approx(2 / 3)
    assert KIND.shown(TASK, None, "x", None, "") == ("x", "nothing")
    assert KIND.shown(TASK, None, "x", None, "y") == ("x", "y")
    assert task.how.collapsed(task, outputs, targets) == ""
    same = np.repeat(outputs[:1], 3, 0) + [[1.0, 0, 0, 0, 0]] * 3
    assert task.how.collapsed(task, same, targets) == "all 3 answers are the same text"
    assert task.how.collapsed(task, same, ["a"] * 3) == ""


@pytest.mark.parametrize(
    ("metric", "targets", "expected"),
    [
        ("exact_match", ["a", " a", "b"], {"exact_match": 2 / 3}),
        ("exact_match", ["a", "b"], {}),
        ("exact_match", [], {}),
        ("bleu", ["a", "a"], {}),
    ],
)
def test_a_baseline_is_the_commonest_text(metric, targets, expected):
    assert KIND.baseline(dataclasses.replace(TASK, metric=metric), targets, None) == pytest.approx(expected)


def test_sources_that_are_empty_and_what_it_begins_with():
    assert KIND.targets(TASK, "a.tsv", [2], [], [("x", "y")]) == ["y"]
    for text in ("x", (" ", "y")):
        with pytest.raises(InputError, match="a.tsv, line 2: .* is empty, expected a text to write from"):
            KIND.targets(TASK, "a.tsv", [2], [], [text])
    assert KIND.goes_on({}) == ("mlm",)
    bert, t5 = registry.family("bert"), registry.family("t5")
    assert KIND.of_family(TASK, t5).options["start"] == t5.encoder.first_token
    found = KIND.of_family(TASK, bert).options
    assert (found["start"], found["masked"]) == ("", True)
    assert KIND.reads(t5) == t5.inputs
    assert "start" in KIND.of_family(TASK, registry.family("gpt2")).options
    assert KIND.outputs(None, 3) == {"sequence": 3}


def test_the_scores_and_tokens_of_what_is_written_are_one_array(monkeypatch):
    kind = configured(**TWO)
    one = {"token_ids": np.array([[5, 6, 3, 0]]), "score": np.array([-0.5], "float32")}
    monkeypatch.setattr(type(kind), "written", lambda *_: one)
    assert np.asarray(kind.output(None, None)).tolist() == [[-0.5, 5, 6, 3, 0]]
    several = configured(**TWO, beams=2, num_return_sequences=2)
    two = {"sequences": np.array([[[5, 3], [6, 3]]]), "scores": np.array([[-0.5, -1]], "float32")}
    monkeypatch.setattr(type(kind), "written", lambda *_: two)
    assert np.asarray(several.output(None, None)).tolist() == [[-0.5, 5, 3, -1, 6, 3]]
    assert several.answered(None, None) is two


def test_a_task_of_another_model_is_refused():
    assert find("generation").prompts([]) == []
    with pytest.raises(InputError, match="decoder=full is given and gpt2 is of kind 'decoder'|decoder"):
        KIND.of_family(Task("generation", "generation", options={"decoder": "full"}), registry.family("gpt2"))

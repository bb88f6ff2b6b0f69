"""What exporters ask of a kind that says nothing of its own."""

import types

import numpy as np
import pytest

from kerasbert import answers, registry
from kerasbert.answers.base import softmax
from kerasbert.errors import InputError
from kerasbert.tasks.exported_kind import Exported
from kerasbert.tasks.task import find_task
from kerasbert.text.graph import graph_tokenizer
from tests import tiny


class Bare(Exported):
    name = "classification"


class Bounded(Exported):
    name = "tags"


BARE, PER_TOKEN = Bare(), Bounded()
PAIR = find_task("glue/mrpc")


def test_options_make_another_kind_and_none_the_same():
    assert BARE.configured({}) is BARE
    assert BARE.answers is BARE.answers
    other = BARE.configured({"label_smoothing": 0.5})
    assert (other.options["label_smoothing"], BARE.options["label_smoothing"]) == (0.5, 0.0)
    assert (BARE.per_token, PER_TOKEN.per_token) == (False, True)


def test_names_and_numbers_that_a_server_takes():
    assert BARE.strings(find_task("classification")) == ("text",)
    assert BARE.strings(PAIR) == ("text_a", "text_b")
    assert (BARE.numbers(["x"]), dict(BARE.call_options), dict(BARE.signatures(None))) == ({}, {}, {})
    assert BARE.probes(["a", "b", "c"], 1) == ["a", "b", "c"]
    assert BARE.probes(["a", "b", "c"], 2) == [("a", "b"), ("b", "c")]
    assert BARE.prompted(["x"]) == ["x"]
    assert (BARE.unserved({}, ()), BARE.reader_outputs("kerasbert"), BARE.targets_read) == (None, (), ())
    assert (BARE.program, BARE.written_behind, BARE.pipeline_tag(None)) == ("", 0, "")
    rows = [1, 2]
    assert BARE.prompts(rows) is rows
    assert "after 7 tokens" in BARE.longer(7)
    assert BARE.described() == "`probabilities`"


def test_outputs_in_a_graph():
    logits = np.array([[1.0, 3.0], [0.0, 0.0]], "float32")
    np.testing.assert_allclose(BARE.device({"logits": logits}, {}), softmax(logits), rtol=1e-6)
    found = BARE.exported(None, {"logits": logits}, {})
    assert list(found) == ["probabilities"]
    np.testing.assert_allclose(found["probabilities"], softmax(logits), rtol=1e-6)
    model = lambda inputs: {"logits": inputs["x"]}  # noqa: E731
    np.testing.assert_allclose(BARE.answered(model, {"x": logits})["probabilities"], softmax(logits), rtol=1e-6)
    assert BARE.output(model, {"x": logits}) is logits

    class Number(Exported):
        name = "regression"

    value = np.array([[2.0]], "float32")
    assert Number().device({"value": value}, {}) is value


@pytest.mark.parametrize("length", [6, 16])
def test_texts_are_packed_run_and_told_where_they_are_cut(length):
    import tensorflow as tf

    tokenizer = tiny.tokenizer()
    texts = ["the cat", "a dog sees the old house and runs"]
    served = BARE.served(
        lambda packed: {"ids": packed["token_ids"]},
        graph_tokenizer(tokenizer),
        {"text": tf.constant(texts)},
        length,
        (),
    )
    rows = [BARE.answers.rows(tokenizer, (text,), length)[0] for text in texts]
    assert served["truncated"].numpy().tolist() == [row.truncated for row in rows]
    for ids, row in zip(served["ids"].numpy(), rows):
        assert ids[: len(row.token_ids)].tolist() == list(row.token_ids)
        assert not ids[len(row.token_ids) :].any()


def test_what_a_family_must_have():
    bert, writer = registry.family("bert"), registry.family("transformer")
    task = find_task("classification")
    assert BARE.of_family(task, bert) is task
    assert [each.name for each in BARE.reads(bert)] == ["token_ids", "padding_mask", "segment_ids"]
    with pytest.raises(
        InputError, match="it writes texts and gives no classification, take the task generation|encoder-decoder"
    ):
        BARE.reads(writer)
    tree = types.SimpleNamespace(reads_tree=True, name="kbert", text_inputs=bert.text_inputs)
    assert BARE.reads(tree)

    class Flat(Exported):
        name = next(kind.name for kind in answers.KINDS.values() if not kind.trees)

    with pytest.raises(InputError, match=f"kbert reads sentence trees, which a {Flat.name} does not make of its texts"):
        Flat().reads(tree)


def test_a_reader_that_has_no_such_answers_is_named():
    for target in ("mediapipe", "task_library"):
        with pytest.raises(InputError, match="the model answers with classification, expected .*: .* has no other"):
            BARE.check_target(target)
    with pytest.raises(NotImplementedError):
        BARE.of_examples({}, ())

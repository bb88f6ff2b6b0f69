"""Answers of models in memory: how long a text may be, options of a call, vectors and what they are cut to."""

import types

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.tasks import predict
from kerasbert.tasks.base import Task
from kerasbert.tasks.model import TaskModel
from kerasbert.testing.battery import eagerly
from tests import tiny

TEXTS = ["the cat sees a dog", "old house", "the very old house by the river and the stone"]


@pytest.fixture(scope="module")
def encoder():
    encoder = kb.build("bert/tiny", **tiny.SPEC, **{"embeddings.vocabulary": tiny.tokenizer().size, "dropout": 0.0})
    generator = np.random.default_rng(0)
    for weight in encoder.weights:
        weight.assign(generator.normal(0, 0.4, weight.shape))
    encoder.tokenizer = tiny.tokenizer()
    return encoder


@pytest.fixture(scope="module")
def classifier(encoder):
    model = TaskModel(encoder, Task("t", labels={"a": "no", "b": "yes"}, length=10))
    model.build()
    model.heads["classifier"].kernel.assign(np.random.default_rng(1).normal(size=(16, 2)))
    return model


def sized(positions, trained=None, fixed=None):
    """A model of which the family knows so many positions, or none."""
    family = types.SimpleNamespace(longest=lambda spec: positions)
    task = None if trained is None else types.SimpleNamespace(length=trained)
    return family, types.SimpleNamespace(spec=None, task=task, fixed=fixed)


@pytest.mark.parametrize(
    ("positions", "trained", "asked", "expected"),
    [
        (512, None, None, 512),
        (512, 128, None, 128),
        (64, 128, None, 64),
        (None, 128, None, 128),
        (None, None, None, predict.UNBOUNDED),
        (512, 128, 3, 3),
        (512, 128, 512, 512),
        (None, None, 9999, 9999),
    ],
)
def test_how_many_tokens_a_text_may_have(positions, trained, asked, expected, monkeypatch):
    family, model = sized(positions, trained)
    monkeypatch.setattr(predict.registry, "family_of", lambda _: family)
    assert predict.longest(model, asked) == expected


@pytest.mark.parametrize(
    ("positions", "asked", "said"),
    [(512, 2, "between 3 and 512, the model's positions"), (512, 513, "between 3 and 512"), (None, 2, "at least 3")],
)
def test_a_length_beyond_the_edges_is_refused(positions, asked, said, monkeypatch):
    family, model = sized(positions)
    monkeypatch.setattr(predict.registry, "family_of", lambda _: family)
    with pytest.raises(InputError, match=f"length must be {said}.*Received: {asked}"):
        predict.longest(model, asked)


@pytest.mark.parametrize(
    ("known", "fixed", "expected"), [(512, None, 512), (512, 16, 16), (8, 16, 8), (None, 16, 16), (None, None, None)]
)
def test_positions_of_a_model_of_ones_own(known, fixed, expected, monkeypatch):
    family, model = sized(known, fixed=fixed)
    monkeypatch.setattr(predict.registry, "family_of", lambda _: family)
    assert predict.positions(model) == expected


def test_what_is_no_model_of_ours(encoder):
    for wrong in (3, types.SimpleNamespace(spec=1), types.SimpleNamespace(tokenizer=1)):
        with pytest.raises(InputError, match="expected a directory or a model of kerasbert"):
            predict.check_ours(wrong)
    with pytest.raises(InputError, match="task"):
        kb.predict(encoder, ["x"])
    with pytest.raises(InputError, match="precision is for a directory"):
        predict.as_model(encoder, "bfloat16")
    assert predict.as_model(encoder) is encoder


def test_an_answer_does_not_depend_on_its_neighbours(classifier):
    with eagerly():
        together = kb.predict(classifier, TEXTS)
        alone = [kb.predict(classifier, text)[0] for text in TEXTS]
        pairs = kb.predict(classifier, TEXTS, batch=2)
        assert kb.predict(classifier, []) == []
    for one, other, third in zip(together, alone, pairs, strict=True):
        assert one.label == other.label == third.label
        assert one.scores == pytest.approx(other.scores, abs=1e-6)
        assert one.scores == pytest.approx(third.scores, abs=1e-6)
    assert [answer.truncated for answer in together] == [False, False, True]  # of 10 tokens
    with eagerly():
        assert not kb.predict(classifier, TEXTS, length=16)[2].truncated
    with pytest.raises(InputError, match="batch"):
        kb.predict(classifier, TEXTS, batch=0)


def test_logits_and_outputs_are_those_of_the_head(classifier):
    inputs = classifier.tokenizer(TEXTS[:2])
    wanted = np.asarray(classifier(inputs)["logits"])
    np.testing.assert_allclose(predict.task_logits(classifier, inputs), wanted, atol=1e-6)
    with eagerly():
        np.testing.assert_allclose(predict.outputs(classifier, TEXTS[:2]), wanted, atol=1e-6)


def test_a_graph_is_made_once_for_a_model_a_name_and_its_settings(encoder):
    def read(model, inputs):
        return inputs["token_ids"]

    first = predict.graph(encoder, "x", read)
    assert predict.graph(encoder, "x", read) is first
    assert predict.graph(encoder, "y", read) is not first
    assert predict.graph(encoder, "x", read, {"language_ids": 1}) is not first


def means(encoder, texts):
    inputs = encoder.tokenizer(texts)
    sequence, mask = np.asarray(encoder(inputs)["sequence"]), inputs["padding_mask"][..., None]
    return (sequence * mask).sum(1) / mask.sum(1)


def test_vectors_by_their_pooling(encoder, classifier):
    with eagerly():
        np.testing.assert_allclose(kb.encode(encoder, TEXTS), means(encoder, TEXTS), atol=1e-5)
        np.testing.assert_allclose(kb.encode(classifier, TEXTS, length=16), means(encoder, TEXTS), atol=1e-5)
        first = np.asarray(encoder(encoder.tokenizer(TEXTS))["sequence"])[:, 0]
        np.testing.assert_allclose(kb.encode(encoder, TEXTS, pooling="first"), first, atol=1e-5)
        pooled = encoder(encoder.tokenizer(TEXTS))["pooled"]
        np.testing.assert_allclose(kb.encode(encoder, TEXTS, pooling="pooled"), pooled, atol=1e-5)
        assert kb.encode(encoder, [], pooling="first+max").shape == (0, 32)
        assert kb.encode(encoder, []).shape == (0, 16)
        prompted = kb.encode(encoder, ["cat"], prompt="old ")
        np.testing.assert_allclose(prompted, kb.encode(encoder, ["old cat"]), atol=1e-6)


@pytest.mark.parametrize("dims", [1, 15, 16])
def test_vectors_are_cut_to_their_first_numbers(dims, encoder):
    with eagerly():
        found = kb.encode(encoder, TEXTS[:1], dims=dims)
    np.testing.assert_allclose(found, means(encoder, TEXTS[:1])[:, :dims], atol=1e-5)


def test_more_numbers_than_there_are_and_a_pooler_that_is_not_there(encoder):
    with eagerly(), pytest.raises(InputError, match="dims is 17, and a vector of this model has 16 numbers"):
        kb.encode(encoder, TEXTS[:1], dims=17)
    with eagerly():
        assert kb.encode(encoder, [], dims=17).shape == (0, 16)
    bare = kb.build("bert/tiny", **tiny.SPEC, **{"embeddings.vocabulary": tiny.tokenizer().size, "pooler": False})
    bare.tokenizer = tiny.tokenizer()
    with pytest.raises(InputError, match="pooling='pooled' needs a model with a pooler"):
        kb.encode(bare, TEXTS, pooling="pooled")


def test_options_of_a_call_hold_for_the_call(encoder):
    model = TaskModel(encoder, Task("v", "vector", options={"pooling": "first"}))
    model.build()
    with eagerly():
        plain = kb.predict(model, TEXTS[:1])[0].values
        unit = kb.predict(model, TEXTS[:1], options={"normalize": True})[0].values
        again = kb.predict(model, TEXTS[:1])[0].values
        np.testing.assert_allclose(kb.encode(model, TEXTS[:1])[0], plain, atol=1e-6)
    np.testing.assert_allclose(unit, plain / np.linalg.norm(plain), atol=1e-6)
    np.testing.assert_array_equal(plain, again)
    with pytest.raises(InputError, match="loss is an option of training alone"):
        kb.predict(model, TEXTS[:1], options={"loss": "cosine"})

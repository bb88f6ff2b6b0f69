"""What the signatures of a SavedModel compute, over a tiny model and without saving it."""

import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert.answers.base import softmax
from kerasbert.errors import InputError
from kerasbert.export import graphs
from kerasbert.export.graphs import Graph
from kerasbert.inputs import Input
from kerasbert.tasks.base import Task
from kerasbert.tasks.model import TaskModel
from kerasbert.testing.battery import eagerly
from tests import tiny

TEXTS = ["the cat", "a dog sees the old house", ""]
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*softmax over axis -1 of a tensor.*:UserWarning"
)  # of rows of one token


def model(kind="classification", pair=False, **options):
    encoder = kb.build("bert/tiny", **tiny.SPEC, **{"embeddings.vocabulary": tiny.tokenizer().size, "dropout": 0.0})
    encoder.tokenizer = tiny.tokenizer()
    generator = np.random.default_rng(0)
    for weight in encoder.weights:
        weight.assign(generator.normal(0, 0.4, weight.shape))
    labels = {"a": "no", "b": "yes"} if kind == "classification" else {}
    made = TaskModel(encoder, Task("t", kind, labels=labels, text_b="b" if pair else "", options=options))
    made.build()
    return made


@pytest.fixture(scope="module")
def classifier():
    return model()


def test_a_signature_of_texts_of_tokens_and_of_examples_answers_as_the_model(classifier):
    graph = Graph(classifier, 16)
    wanted = softmax(np.asarray(classifier(classifier.tokenizer(TEXTS))["logits"]))
    packed = classifier.tokenizer(TEXTS)
    rows = tf.constant(
        [
            tf.train.Example(
                features=tf.train.Features(
                    feature={"text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))}
                )
            ).SerializeToString()
            for text in TEXTS
        ]
    )
    lengths = tf.constant(packed["padding_mask"].sum(1), tf.int32)
    ids = {name: tf.constant(packed[name]) for name in ("token_ids", "segment_ids")}
    with eagerly():
        of_texts = graph.serving_default({"text": tf.constant(TEXTS)})
        of_ids = graph.ids({**ids, "lengths": lengths})
        of_examples = graph.of_examples({"inputs": rows})
        none = graph.serving_default({"text": tf.zeros([0], tf.string)})
    for found in (of_texts["probabilities"], of_ids["probabilities"], of_examples["scores"]):
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert of_texts["truncated"].numpy().tolist() == [False] * 3
    assert of_examples["classes"].numpy().tolist() == [[b"no", b"yes"]] * 3
    assert {name: len(value) for name, value in none.items()} == dict.fromkeys(none, 0)
    assert none["probabilities"].shape == (0, 2)


def test_a_signature_of_tokens_refuses_what_the_tables_do_not_hold(classifier):
    graph, size = Graph(classifier, 16), tiny.tokenizer().size
    most = classifier.spec.longest
    found = graphs.bounds(classifier)
    assert (found.numbers, found.tokens) == ({"token_ids": size, "segment_ids": 2}, most)
    good = {"token_ids": [[size - 1, 2]], "segment_ids": [[1, 0]], "lengths": [2]}
    for change, said in (
        ({}, ""),
        ({"token_ids": [[size, 2]]}, "token_ids holds numbers of 0 to"),
        ({"segment_ids": [[2, 0]]}, "segment_ids holds numbers of 0 to 1"),
        ({"token_ids": [[2] * (most + 1)], "segment_ids": [[0] * (most + 1)]}, f"at most {most} tokens a row"),
    ):
        given = {name: tf.constant(value) for name, value in (good | change).items()}
        with eagerly():
            if not said:
                graph.ids(given)
                continue
            with pytest.raises(tf.errors.InvalidArgumentError, match=said):
                graph.ids(given)


def test_tokens_with_their_places(classifier):
    with eagerly():
        found = Graph(classifier, 16).tokenize({"text": tf.constant(TEXTS)})
    for i, text in enumerate(TEXTS):
        tokens = classifier.tokenizer.tokenize(text)
        count = int(found["lengths"][i])
        assert found["token_ids"].numpy()[i, :count].tolist() == list(tokens.ids)
        assert [each.decode() for each in found["pieces"].numpy()[i, :count]] == [
            tiny.tokenizer().vocabulary[j] for j in tokens.ids
        ]
        places = [*zip(found["starts"].numpy()[i, :count].tolist(), found["ends"].numpy()[i, :count].tolist())]
        assert places == [tuple(place) for place in zip(tokens.starts, tokens.ends)]
        assert not found["token_ids"].numpy()[i, count:].any()


class Halves(keras.layers.Layer):
    """A network whose answers are bfloat16, and one that is not a float."""

    def call(self, inputs):
        return {"score": tf.cast(inputs["token_ids"], tf.bfloat16) / 4, "count": inputs["padding_mask"]}


def test_answers_of_bfloat16_are_float32_for_a_servers_client(monkeypatch, classifier):
    monkeypatch.setattr(graphs, "answers", lambda model, inputs: Halves()(inputs))
    packed = {name: tf.constant(value) for name, value in classifier.tokenizer(TEXTS[:1]).items()}
    found = Graph(classifier, 16).answers(packed)
    assert (found["score"].dtype, found["count"].dtype) == (tf.float32, tf.int32)


def test_inputs_of_a_signature(classifier):
    assert graphs.text_names(classifier) == ("text",)
    assert graphs.text_names(types.SimpleNamespace()) == ("text",)
    specs = graphs.specs_of(classifier, ["language"])
    assert {name: (each.shape.rank, each.dtype) for name, each in specs.items()} == {
        "text": (1, tf.string),
        "language": (1, tf.string),
    }
    choice = graphs.specs_of(model("choice", pair=True), [])
    assert {name: (each.shape.rank, each.dtype.name) for name, each in choice.items()} == {
        "context": (1, "string"),
        "choices": (2, "string"),
        "choice_counts": (1, "int32"),
    }


def test_prompts_of_a_call():
    prompts = {"query": "Q: "}
    vector = model("vector", prompts=prompts).kind
    assert graphs.prompts_of(vector) == prompts
    assert graphs.prompts_of(model("vector", prompts=prompts, include_prompt=False).kind) == {}
    assert graphs.prompts_of(model("regression").kind) == {}


def test_a_prompt_that_is_named_stands_before_its_text():
    made = model("vector", prompts={"query": "old "})
    graph = Graph(made, 16)
    names = tf.constant(["query", ""])
    with eagerly():
        found = graph.prompted({"text": tf.constant(["cat", "dog"]), "prompt_name": names})["vector"]
        plain = graph.serving_default({"text": tf.constant(["old cat", "dog"])})["vector"]
    np.testing.assert_allclose(found, plain, atol=1e-6)


def test_inputs_that_a_kind_fills_in_python_alone_are_refused():
    kind = types.SimpleNamespace(name="pairing")
    number, place = (
        Input("text_number", "B", "int32", filled_by="kind"),
        Input("places", "BP", "int32", filled_by="kind"),
    )
    graphs._check_filled(kind, [number, Input("token_ids", "BS", "int32")])
    graphs._check_filled(kind, [Input("places", "BP", "int32", filled_by="kind", graph=lambda *_: None)])
    with pytest.raises(
        InputError, match="nothing fills places in a graph, which a pairing reads: give its Input a graph"
    ):
        graphs._check_filled(kind, [number, place])


def test_what_cannot_be_exported_is_named():
    inputs = keras.Input((3,))
    with pytest.raises(InputError, match="Functional cannot be exported: expected a kerasbert model"):
        graphs.OwnModel(keras.Model(inputs, keras.layers.Dense(2)(inputs)))


@pytest.mark.parametrize(
    ("outputs", "names"),
    [(3, ["output"]), ([3], ["output"]), ([3, 4], ["output_0", "output_1"]), ({"a": 3}, ["a"])],
)
def test_names_of_the_outputs_of_a_model_of_ones_own(outputs, names):
    own = types.SimpleNamespace(taken=lambda inputs: outputs)
    assert list(graphs.OwnModel.call(own, {})) == names

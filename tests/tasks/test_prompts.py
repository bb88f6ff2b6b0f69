"""What an import from sentence-transformers brings to a task: prompts, first numbers, the sigmoid of a score."""

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.tasks.base import Task
from kerasbert.tasks.model import TaskModel
from kerasbert.testing.battery import eagerly
from tests import tiny


@pytest.fixture(scope="module")
def encoder():
    import keras

    keras.utils.set_random_seed(3)
    encoder = kb.build("bert/tiny", **tiny.SPEC)
    encoder.tokenizer = tiny.tokenizer()
    return encoder


@eagerly()
def test_a_prompt_stands_before_each_text(encoder, capsys):
    prompts = {"prompts": {"q": "the cat ", "d": "old "}, "prompt_name": "q"}
    plain = TaskModel(encoder, Task("v", "vector", options={"pooling": "max", "normalize": True}))
    model = TaskModel(encoder, Task("v", "vector", options={"pooling": "max", "normalize": True, **prompts}))
    texts = ["sees a dog", "river", ""]
    for name, prompt in ((None, "the cat "), ("d", "old "), ("", "")):
        wanted = kb.encode(plain, [prompt + text for text in texts])
        np.testing.assert_allclose(kb.encode(model, texts, prompt_name=name), wanted, atol=1e-6)
        options = {} if name is None else {"prompt_name": name}
        answers = kb.predict(model, texts, options=options)
        np.testing.assert_allclose([answer.values for answer in answers], wanted, atol=1e-6)
    mean = kb.encode(plain, ["old " + text for text in texts], pooling="mean")
    np.testing.assert_allclose(kb.encode(model, texts, pooling="mean", prompt_name="d"), mean, atol=1e-6)
    kind = model.task.how
    assert kind.answers.carried == prompts
    assert plain.task.how.answers.carried == {}
    assert [text.decode() for text in kind.prompted([["x", "y"]])[0].numpy()] == ["the cat x", "the cat y"]
    assert kind.answers.rows(encoder.tokenizer, (b"river",), 16)[0].token_ids == (
        kind.answers.rows(encoder.tokenizer, ("river",), 16)[0].token_ids
    )
    assert "'the cat ' is put before each text" in kind.described()
    with pytest.raises(InputError, match="no prompt 'x'. All: q, d; without one"):
        kb.encode(model, texts, prompt_name="x")
    with pytest.raises(InputError, match="prompt_name is 'q', and the model has no prompts"):
        kb.encode(encoder, texts, prompt_name="q")
    for each in (model, plain, encoder):
        wanted = kb.encode(each, ["old " + text for text in texts], **({"prompt_name": ""} if each is model else {}))
        np.testing.assert_allclose(kb.encode(each, texts, prompt="old "), wanted, atol=1e-6)
    with pytest.raises(InputError, match="prompt_name is 'q' and prompt 'old ', expected one of them"):
        kb.encode(model, texts, prompt_name="q", prompt="old ")
    with pytest.raises(InputError, match="a prompt goes before a text, and text 1 is a tuple"):
        kb.encode(encoder, ["a", ("b", "c")], prompt="old ")
    with pytest.raises(
        InputError, match="the prompt 'q' is to be left out of the pooling .* prompt_tokens does not say"
    ):
        model.task.optioned({"include_prompt": False})
    with pytest.raises(InputError, match="puts the prompt 'the cat ' before each text, which MediaPipe does not"):
        kind.check_target("mediapipe")


@eagerly()
def test_a_prompt_may_be_left_out_of_the_pooling(encoder):
    texts, prompts = ["the cat", "river", ""], {"q": "the film ", "d": "old "}
    for pooling in ("first", "last+mean+weighted_mean"):
        options = {"pooling": pooling, "prompts": prompts, "include_prompt": False}
        model = TaskModel(encoder, Task("v", "vector", options=options))
        for asked, before in (({"prompt_name": "q"}, "the film "), ({"prompt": "a "}, "a "), ({}, "")):
            found = kb.encode(model, texts, **asked)
            for text, vector in zip(texts, found):
                ids = encoder.tokenizer.pack(before + text)[0]
                rows = encoder({"token_ids": np.array([ids], "int32")})["sequence"].numpy()[0]
                begin = 1 + len(before.split()) if before else 0
                places, read = np.arange(1, len(ids) + 1)[begin:, None], rows[begin:]
                weighted = (read * places).sum(0) / places.sum()
                wanted = read[0] if pooling == "first" else np.concatenate([read[-1], read.mean(0), weighted])
                np.testing.assert_allclose(vector, wanted, atol=1e-5)
    fixed = TaskModel(encoder, Task("v", "vector", options=options | {"prompt_name": "q", "prompt_tokens": {"q": 3}}))
    np.testing.assert_allclose(kb.encode(fixed, texts), kb.encode(model, texts, prompt_name="q"), atol=1e-6)
    (one,) = kb.encode(model, ["the cat"], prompt_name="q", pooling="mean")
    ids = encoder.tokenizer.pack("the film the cat")[0]
    rows = encoder({"token_ids": np.array([ids], "int32")})["sequence"].numpy()[0]
    np.testing.assert_allclose(one, rows[3:].mean(0), atol=1e-5)


def test_search_puts_its_prompts_before_texts_and_query(encoder):
    prompts = {"query": "the film ", "passage": "the house "}
    model = TaskModel(encoder, Task("v", "vector", options={"pooling": "mean", "prompts": prompts}))
    texts = ["the cat sees", "a dog", "river"]
    held = kb.encode(model, ["the house " + text for text in texts])
    for asked, before in ((None, "the film "), ("passage", "the house "), ("", "")):
        query = kb.encode(model, [before + "the cat"])[0]
        cosines = held @ query / np.linalg.norm(held, axis=-1) / np.linalg.norm(query)
        hits = kb.search(model, texts, "the cat", top=3, prompt_name=asked)
        assert [hit.index for hit in hits] == np.argsort(-cosines).tolist()
        np.testing.assert_allclose([hit.score for hit in hits], np.sort(cosines)[::-1], atol=1e-6)


@pytest.mark.slow
def test_a_saved_model_takes_the_name_of_a_prompt(encoder, tmp_path):
    import tensorflow as tf

    prompts = {"prompts": {"query": "the film ", "passage": "the house "}, "prompt_name": "passage"}
    model = TaskModel(encoder, Task("v", "vector", options={"pooling": "mean", "normalize": True, **prompts}))
    model.build()
    kb.export(model, tmp_path / "serving", length=16)
    served = tf.saved_model.load(str(tmp_path / "serving")).signatures
    texts, names = ["the cat", "a dog sees", "river"], ["query", "", "passage"]
    found = served["prompted"](text=tf.constant(texts), prompt_name=tf.constant(names))["vector"]
    wanted = [kb.encode(model, [text], prompt_name=name)[0] for text, name in zip(texts, names)]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    np.testing.assert_allclose(served["serving_default"](text=tf.constant(texts))["vector"][2], wanted[2], atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="prompt_name: expected one of query, passage, or none"):
        served["prompted"](text=tf.constant(["a"]), prompt_name=tf.constant(["document"]))
    assert "signature `prompted` takes `prompt_name` too, of query, passage" in (
        tmp_path / "serving" / "MODEL_CARD.md"
    ).read_text("utf-8")


@eagerly()
def test_first_numbers_and_options_of_a_call(encoder):
    model = TaskModel(encoder, Task("v", "vector", options={"pooling": "max"}))
    whole = kb.encode(model, ["the cat", "river"])
    for options in ({"normalize": True}, {"dimensions": 3}, {"pooling": "first"}):
        made = TaskModel(encoder, Task("v", "vector", options={"pooling": "max", **options}))
        wanted = kb.encode(made, ["the cat", "river"])
        assert wanted.shape == (2, 3 if "dimensions" in options else whole.shape[1])
        answers = kb.predict(model, ["the cat", "river"], options=options)  # were passed over
        np.testing.assert_allclose([answer.values for answer in answers], wanted, atol=1e-6)
        assert wanted.shape != whole.shape or not np.allclose(wanted, whole)
    np.testing.assert_array_equal(kb.encode(model, ["the cat", "river"]), whole)


def test_the_value_of_a_regression_may_be_a_sigmoid(encoder):
    model = TaskModel(encoder, Task("r", "regression", text_b="other"))
    model.build()
    texts = [("the cat", "river"), ("old", "a dog")]
    plain = np.array([answer.value for answer in kb.predict(model, texts)])
    scores = [answer.value for answer in kb.predict(model, texts, options={"activation": "sigmoid"})]
    np.testing.assert_allclose(scores, 1 / (1 + np.exp(-plain)), atol=1e-6)
    with pytest.raises(InputError, match="activation must be sigmoid or empty. Received: 'tanh'"):
        model.task.optioned({"activation": "tanh"})
    kind = model.task.optioned({"activation": "sigmoid"}).how
    with pytest.raises(InputError, match="numbers of 0 to 5 in column 'label', expected 0 to 1"):
        kind.fitted(model.task, "file", np.array([0.0, 5.0]))
    assert kind.fitted(model.task, "file", np.array([0.0, 1.0])) == model.task
    batch = {"label": np.array([1.0, 0.0], "float32"), "label_weight": np.ones(2, "float32")}
    loss = kind.losses(model.task, np.array([[0.0], [np.log(3.0)]], "float32"), batch)["label"]
    assert float(loss) == pytest.approx(0.25 + 0.75**2)  # sigmoid: 1/2 and 3/4

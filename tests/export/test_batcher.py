"""SavedModels under a server: calls that a batcher joins, wrong calls, documents: every kind's answer is its caller's own."""

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert.export import signatures
from kerasbert.tasks.base import kind_of
from kerasbert.testing import battery
from tests.support import by_hand
from tests.tasks.test_every_kind import KINDS, made
from tests.tasks.test_writing import writer

pytestmark = pytest.mark.slow


def joined(calls):
    """Calls as TF Serving joins them where lengths may differ: each is padded with its own first element (batching_util.cc)."""
    found = {}
    for name in calls[0]:
        values = [call[name].numpy() for call in calls]
        shape = [max(value.shape[axis] for value in values) for axis in range(1, values[0].ndim)]
        rows = []
        for value in values:
            padded = np.full((len(value), *shape), value.ravel()[0], value.dtype)
            padded[tuple(map(slice, value.shape))] = value
            rows.append(padded)
        found[name] = tf.constant(np.concatenate(rows))
    return found


def same(alone, together, first):
    """The rows of one call are what it got alone, whatever they were padded to."""
    for name, value in alone.items():
        value = value.numpy()
        rows = together[name].numpy()[first : first + len(value)]
        rows = rows[tuple(map(slice, value.shape))]
        if value.dtype.kind == "f":
            np.testing.assert_allclose(rows, value, atol=1e-5, err_msg=name)
        else:
            assert rows.tolist() == value.tolist(), name


def check(serve, calls):
    together = serve(**joined(calls))
    first = 0
    for call in calls:
        alone = serve(**call)
        same(alone, together, first)
        first += len(next(iter(call.values())))


def refusal(serve, **given):
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        serve(**given)
    return str(error.value)


def other(inputs):
    """Inputs of other lengths."""
    return [
        ("old stone river house", ("a", "the cat sees", "x", "y", "no film"))
        if isinstance(one, tuple) and isinstance(one[1], tuple)
        else one
        for one in reversed(inputs)
    ]


@pytest.fixture
def exported(tmp_path, monkeypatch):
    """Kind -> a tiny model of it, what it takes, and the signatures of its SavedModel, which reads few windows of a text."""

    def make(kind):
        monkeypatch.setattr("kerasbert.tasks.span_graph.MOST_ROWS", 4)
        monkeypatch.setattr("kerasbert.tasks.tags_graph.MOST_ROWS", 4)
        model = made("bert", kind, battery.tokenizer("wordpiece"), tmp_path)
        how, names = kind_of(model), model.task.how.strings(model.task)
        if kind in ("span", "tags"):
            short = staticmethod(
                lambda texts, parts: [("a film ?", "the cat"), ("who", "")] if parts > 1 else ["a", ""]
            )
            monkeypatch.setattr(type(how), "probes", short)
        kb.export(model, tmp_path / "serving")
        loaded = tf.saved_model.load(str(tmp_path / "serving"))
        return model, lambda texts: signatures.given(how, names, texts), loaded.signatures

    return make


@pytest.mark.parametrize("kind", [*by_hand(["classification"]), "choice", "span", "tags"])
def test_calls_that_are_joined_are_answered_as_alone(kind, exported):
    model, given, served = exported(kind)
    serve, inputs = served["serving_default"], KINDS[kind][2]
    calls = [given(some) for some in (inputs[:1], inputs, other(inputs))]
    check(serve, calls)
    wrong_calls(serve, calls[1], len(inputs))
    if kind == "classification":
        check_ids(served["ids"])
        check_examples(served["classify"], calls, serve)
        check_tokens(model, served["tokenize"])
        assert serve(**calls[1])["truncated"].numpy().tolist() == [False, False, False, True, False]
    if kind == "choice":
        invalid_bytes(serve)
    if kind in ("span", "tags"):
        document(model, given, serve, kind)
    if kind == "tags":
        words_of_callers(model, served["words"])
    if kind == "span":
        n_best_of_each(model, served["options"], calls, inputs)


def check_ids(serve):
    generator, calls = np.random.default_rng(1), []
    for size in (5, 9, 3):
        shape = (2, size)
        one = {
            "token_ids": generator.integers(5, 40, shape),
            "segment_ids": np.zeros(shape),
            "lengths": [size, size - 1],
        }
        calls.append({name: tf.constant(value, tf.int32) for name, value in one.items()})
    check(serve, calls)
    for lengths in ([6, 1], [0, 1]):
        wrong = calls[0] | {"lengths": tf.constant(lengths)}
        assert "lengths says how many of each row of token_ids count: 1 to all of them" in refusal(serve, **wrong)


def check_examples(serve, calls, whole):
    """tf.Examples, as TF Serving's Classify hands them over."""
    as_examples = [{"inputs": signatures.examples(call)} for call in calls]
    check(serve, as_examples)
    found, wanted = serve(**as_examples[1]), whole(**calls[1])
    np.testing.assert_allclose(found["scores"], wanted["probabilities"], atol=1e-6)
    best = np.take_along_axis(found["classes"].numpy(), wanted["label_ids"].numpy()[:, None], 1)[:, 0]
    assert best.tolist() == wanted["labels"].numpy().tolist()
    assert "Feature: text (data type: string) is required" in refusal(serve, inputs=tf.constant([b""]))


def check_tokens(model, serve):
    texts = ["the cat, Zo\u00eb", "", "old " * 30, b"a\xff cat"]
    check(serve, [{"text": tf.constant(some)} for some in (texts[:1], texts[1:], texts)])
    found = {name: value.numpy() for name, value in serve(text=tf.constant(texts)).items()}
    for i, text in enumerate(texts):
        tokens, count = model.tokenizer.tokenize(text), found["lengths"][i]
        assert [piece.decode() for piece in found["pieces"][i][:count]] == tokens.pieces
        for name, wanted in (("token_ids", tokens.ids), ("starts", tokens.starts), ("ends", tokens.ends)):
            assert found[name][i][:count].tolist() == list(wanted)


def wrong_calls(serve, call, count):
    first, *others = call
    for given in (tf.constant("x"), tf.constant([["x"]])):
        assert f"the input {first} is a list of strings [B]. Received the shape" in refusal(
            serve, **call | {first: given}
        )
    if others:
        message = refusal(serve, **call | {first: call[first][:2]})
        assert f"the inputs {first} and {others[0]} have as many rows in a call. Received] [2] [{count}]" in message
    empty = serve(**{name: value[:0] for name, value in call.items()})
    assert {len(value) for value in empty.values()} == {0}


def words_of_callers(model, serve):
    """Texts that are split already, of another number of words in each call."""
    lists = [["the", "cat"], ["old stone", "", "river", "by", "zoe"], ["a", "b", "c"], []]

    def call(some):
        width = max(1, *map(len, some))
        padded = [[*words, *["x"] * (width - len(words))] for words in some]
        return {"words": tf.constant(padded), "lengths": tf.constant(list(map(len, some)))}

    check(serve, [call(lists[:2]), call(lists[2:]), call(lists[1:])])
    found = kind_of(model).unserved({name: value.numpy() for name, value in serve(**call(lists)).items()}, model.labels)
    for answered, said in zip(found, kb.predict(model, lists[:3] + [["the"]])[:3]):
        assert answered["words"] == list(said.words)
        assert answered["labels"] == list(said.labels)
        np.testing.assert_allclose(answered["scores"], said.scores, atol=1e-5)
    for wrong in (3, -1):
        message = refusal(serve, words=tf.constant([["a", "b"]]), lengths=tf.constant([wrong]))
        assert "the input lengths says how many of each row of words count: 0 to all of them. Received" in message


def n_best_of_each(model, serve, calls, inputs):
    """As many answers as a text asks for, also where a stranger asks for more."""
    for count, call in enumerate(calls, 1):
        call["n_best"] = tf.fill(call["context"].shape, 2 * count)
        call["null_threshold"] = tf.fill(call["context"].shape, 1.0 - count)
    check(serve, calls)
    found = serve(**calls[1])
    for i, answer in enumerate(kb.predict(model, inputs, options={"n_best": 4, "null_threshold": -1.0})):
        if found["truncated"].numpy()[i]:
            continue  # of more windows than these tests let it read
        wanted = [answer, *answer.alternatives]
        assert found["answer_counts"].numpy()[i] == len(wanted)
        scores = found["scores"].numpy()[i][: len(wanted)]
        np.testing.assert_allclose(scores, [each.score for each in wanted], atol=1e-5)
    for wrong in (0, 21):
        message = refusal(serve, **calls[0] | {"n_best": tf.constant([wrong])})
        assert "the input n_best is a whole number of 1 to 20. Received" in message


def invalid_bytes(serve):
    choices = tf.constant([[b"\xff\xfe a", b"\xed\xa0\x80 b"]])
    found = serve(context=tf.constant(["a cat"]), choices=choices, choice_counts=tf.constant([2]))
    assert found["text"].numpy()[0].decode() in ("\ufffd\ufffd a", "\ufffd\ufffd\ufffd b")
    none = serve(context=tf.constant(["a cat"]), choices=choices, choice_counts=tf.constant([0]))
    assert (none["text"].numpy().tolist(), none["scores"].numpy().tolist()) == ([b""], [[0.0, 0.0]])
    for wrong in (3, -1):
        message = refusal(serve, context=tf.constant(["a"]), choices=choices, choice_counts=tf.constant([wrong]))
        assert "the input choice_counts says how many of each row of choices count: 0 to all of them" in message


def document(model, given, serve, kind):
    """It is answered for its first windows: a limit on the rows of a call refused whoever it was joined with."""
    short, long = "the cat sees .", "old stone river . " * 100
    texts = [("who sees ?", short), ("who sees ?", long)] if kind == "span" else [short, long]
    found = serve(**given(texts))
    assert found["truncated"].numpy().tolist() == [False, True]
    said = kb.predict(model, texts[:1])[0].to_json()
    first = {name: value[:1].numpy() for name, value in found.items()}
    answered = kind_of(model).unserved(first, list(model.labels or ()))[0]
    if kind == "span":
        assert (answered["text"], answered["start"]) == (said["text"], said["start"])
        return
    assert answered["labels"][:4] == said["labels"]
    assert found["lengths"].numpy().tolist() == [4, 400]
    labels = found["labels"].numpy()[1]
    assert set(labels[200:]) == {b"O"}
    assert set(labels[:32]) - {b"O"}


def test_what_is_drawn_depends_on_its_seed_alone(tmp_path):
    model = writer("gpt2", {"temperature": 0.9, "separator": " :"}, tmp_path, "bpe")
    served = tf.saved_model.load(str(kb.export(model, tmp_path / "serving", length=28))).signatures
    serve = served["serving_default"]

    def written(texts, seeds):
        found = serve(text=tf.constant(texts), seed=tf.constant(seeds))["text"].numpy()
        return [text.decode() for text in found]

    texts = ["the cat", "a dog", "the cat"]
    wanted = [answer.text for answer in kb.predict(model, texts, length=28)]
    assert written(texts, [0, 1, 2]) == wanted
    assert written(texts[1:2], [1]) == wanted[1:2]
    assert written(["the cat", "a dog"], [2, 1]) == [wanted[2], wanted[1]]
    assert len({*written(["the cat"] * 6, list(range(6)))}) > 3
    assert len({*written(["the cat"] * 3, [7, 7, 7])}) == 1
    assert written(["the cat", " \t", ""], [0, 1, 2]) == [
        wanted[0],
        "",
        "",
    ]  # refused in Python: no other text waits there
    check_options(model, served["options"], texts)


OPTIONS = [  # temperature, top_k, top_p, max_tokens
    {"temperature": 0.9, "top_k": 0, "top_p": 1.0, "max_tokens": 10},
    {"temperature": 2.0, "top_k": 9, "top_p": 0.9, "max_tokens": 3},
    {"temperature": 0.3, "top_k": 0, "top_p": 0.5, "max_tokens": 7},
]


def check_options(model, serve, texts):
    """What each text is written by, as of a call with these options; strangers in the batch have others."""

    def call(at):
        columns = {name: [OPTIONS[i][name] for i in at] for name in OPTIONS[0]} | {"seed": at}
        columns = {name: tf.constant(values) for name, values in columns.items()}
        return {"text": tf.constant([texts[i] for i in at]), **columns}

    check(serve, [call([0, 1, 2]), call([2]), call([1, 0])])
    whole = call([0, 1, 2])
    found = [text.decode() for text in serve(**whole)["text"].numpy()]
    for i, options in enumerate(OPTIONS):
        asked = options | {"top_k": options["top_k"] or None}
        assert found[i] == kb.predict(model, texts, length=28, options=asked)[i].text
    for name, value, message in (
        ("max_tokens", 11, "a whole number of 1 to 10"),
        ("max_tokens", 0, "a whole number of 1 to 10"),
        ("temperature", 0.0, "a number above 0"),
        ("temperature", float("nan"), "a number above 0"),
        ("top_p", 1.1, "a number above 0 and at most 1"),
        ("top_k", -1, "a whole number of at least 0, which is all"),
    ):
        wrong = whole | {name: tf.constant([*whole[name].numpy()[:2], value], whole[name].dtype)}
        assert f"the input {name} is {message}. Received" in refusal(serve, **wrong)

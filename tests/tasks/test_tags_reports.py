"""Tags by hand: what is told of rows, what a report shows, what is explained and what a server is asked. No training."""

import dataclasses
import types

import numpy as np
import pytest

from kerasbert.answers.base import softmax
from kerasbert.errors import InputError
from kerasbert.tasks import tags
from kerasbert.tasks.base import Task, find
from kerasbert.tasks.batches import encode_texts
from kerasbert.tasks.classification import log_odds
from kerasbert.tasks.task import find_task
from kerasbert.text.graph import graph_tokenizer
from tests import tiny
from tests.tasks import reports

KIND = tags.KIND
NAMES = ("B-X", "I-X", "O")
NER = dataclasses.replace(find_task("ner"), labels={name: name for name in NAMES})
POS = dataclasses.replace(NER, labels={"DET": "DET", "NOUN": "NOUN"}, metric="accuracy")
WORDS = [("the", "cat"), ("a", "dog", "sees")]
ENCODED = encode_texts(tiny.tokenizer(), [(each,) for each in WORDS], 16, kind=KIND)
TARGETS = [np.array([2, 0]), np.array([0, 1, 2])]


def outputs(*rows, size=3):
    """Logits of which these labels are the answers of the words of each row."""
    found = []
    for row, answered in zip(ENCODED.rows, rows):
        values = np.zeros((row.length, size), "float32")
        values[row.about.tokens, list(answered)] = 3
        found.append(values)
    return found


def test_tags_and_words_of_a_row():
    assert tags.tags_of("O  B-X", "a", 2) == tags.tags_of(["O", " B-X "], "a", 2) == ["O", "B-X"]
    assert tags.tags_of([1, 2], "a", 2) == ["1", "2"]
    with pytest.raises(InputError, match="a, line 2: tag 2 is empty, expected a tag for every word"):
        tags.tags_of(["O", ""], "a", 2)
    assert tags.words_of("don't run") == ["don", "'", "t", "run"]
    assert tags.words_of((("a b", "c"),)) == tags.words_of(("a b", "c")) == ("a b", "c")
    assert tags.words_of(()) == ()


def test_the_scheme_is_of_the_training_rows_and_told_where_it_is_another():
    bare = dataclasses.replace(NER, labels={})
    for rows, scheme, told in (
        ([["O", "B-X", "I-X"]], "IOB2", []),
        ([["O", "S-X"], ["B-X", "E-X"]], None, ["a.conll: the tags are in"]),
    ):
        task = KIND.with_labels(bare, "a.conll", [2, 3], rows)
        found = task.options["scheme"]
        assert scheme in (None, found)
        said = task.how.told("a.conll", types.SimpleNamespace(texts=range(len(rows)), labels=rows))
        assert [line.startswith(start) for line, start in zip(said, told, strict=True)] == [True] * len(told)
    own = NER.how.fitted(NER, "a", TARGETS)
    assert own.options["scheme"] == "IOB2"
    assert own.how.fitted(own, "a", []) is own
    assert POS.how.fitted(POS, "a", TARGETS) is POS
    numbers = types.SimpleNamespace(texts=["x", "y"], labels=[[0, 1], [1]])
    assert "the tags are numbers, which make no entities" in POS.how.told("a.conll", numbers)[0]
    twice = types.SimpleNamespace(texts=["x", "x"], labels=["DET", "NOUN"])
    assert ["different labels" in line for line in POS.how.told("a.conll", twice)] == [True]
    with pytest.raises(InputError, match="no scheme of tags 'BIOS'"):
        KIND.configured({"scheme": "BIOS"}).check_metric(NER)


def test_labels_and_scheme_of_what_it_goes_on_from():
    bare = dataclasses.replace(NER, labels={})
    begun = {"labels": {"O": "O"}, "options": {"scheme": "IOB1"}}
    assert KIND.continued(NER, begun) is NER
    found = KIND.continued(bare, begun)
    assert (found.labels, found.options["scheme"]) == ({"O": "O"}, "IOB1")
    own = bare.optioned({"scheme": "IOBES"})
    assert own.how.continued(own, begun).options["scheme"] == "IOBES"
    assert KIND.continued(bare, {"options": None}).options == bare.options


def test_tags_that_no_dev_row_has_are_told():
    def rows(*targets):
        return types.SimpleNamespace(targets=[np.array(each, int) for each in targets])

    assert KIND.absent(NER, rows([0, 1], [2]), rows([2])) == ["no dev row has the tags 'B-X', 'I-X'"]
    assert KIND.absent(NER, rows([0, 2]), rows([2], [])) == ["no dev row has the tag 'B-X'"]
    assert KIND.absent(NER, rows([2]), rows([0, 2])) == KIND.absent(NER, rows([2]), rows([2])) == []
    assert KIND.group(np.array([2, 0, 2])) == (0, 2)
    assert [each.tolist() for each in KIND.unlabelled(NER, ["the cat", ((),)])] == [[0, 0], []]


def test_a_report():
    reports.check_report("tags")
    reports.check_baseline("tags")
    judged = KIND.judged(NER, outputs([2, 0], [0, 2, 2]), TARGETS, ENCODED)
    assert [judged.answer(i) for i in (0, 1)] == [[["X", 1, 1]], [["X", 0, 0]]]
    assert KIND.shown(NER, (WORDS[1],), TARGETS[1], None, judged.answer(1)) == ("X: a dog", "X: a")
    assert KIND.shown(NER, (WORDS[0],), np.array([2, 2]), None, []) == ("none", "none")
    found = KIND.metrics(NER, outputs([2, 0], [0, 2, 2]), TARGETS, ENCODED)
    assert found["accuracy"] == pytest.approx(4 / 5)
    assert (found["f1"], found["precision"], found["recall"], found["mended"]) == (0.5, 0.5, 0.5, 0.0)
    mended = KIND.metrics(NER, outputs([2, 1], [0, 1, 2]), TARGETS, ENCODED)
    assert (mended["f1"], mended["mended"]) == (1.0, 1.0)  # I-X that begins a span
    loss = -np.log(softmax(np.array([3.0, 0, 0])))
    assert KIND.metrics(NER, outputs([2, 0], [0, 2, 2]), TARGETS, ENCODED)["loss"] == pytest.approx(
        (4 * loss[0] + loss[1]) / 5
    )
    baseline = KIND.baseline(NER, TARGETS, ENCODED)
    assert baseline == {"f1": 0.0, "precision": 0.0, "recall": 0.0, "accuracy": 2 / 5}
    assert KIND.baseline(POS, [np.array([0, 1, 1])], None) == {"accuracy": 2 / 3}
    assert KIND.baseline(POS, [], None) == {"accuracy": 0.0}


@pytest.mark.parametrize(
    ("target", "row", "word", "label"),
    [(None, 0, 1, "B-X"), (0, 0, 0, "O"), (1, 0, 1, "B-X")],
)
def test_the_label_of_a_word_that_is_explained(target, row, word, label):
    """Without a target the surest that is in a span."""
    logits = outputs([2, 0])
    logits[0][ENCODED.rows[0].about.tokens[0], 2] = 9
    number, what, value = KIND.explained(NER, ENCODED.rows[:1], logits, target)
    assert (number, what) == (row, f"log-odds of {label} of word {word}, {WORDS[0][word]}")
    token = ENCODED.rows[0].about.tokens[word]
    np.testing.assert_allclose(value(logits[0][None]), log_odds(logits[0][None][:, token], NAMES.index(label)))


def test_words_that_cannot_be_explained():
    assert KIND.explained(NER, None, None, 3)[:2] == (0, "")
    for target in (-1, "cat", 1.0, True):
        with pytest.raises(InputError, match="the target of tags is the number of a word, from 0"):
            KIND.explained(NER, None, None, target)
    with pytest.raises(InputError, match="no word 2 with a token to explain among 2 words"):
        KIND.explained(NER, ENCODED.rows[:1], outputs([2, 0]), 2)


def test_what_files_hold_with_and_without_a_crf():
    crf = NER.optioned({"crf": True}).how
    logits, probabilities = np.ones((1, 2, 3), "float32"), [np.full((2, 3), 1 / 3)]
    assert crf.device({"logits": logits}, {}) is logits
    assert crf.from_exported(probabilities) is probabilities
    np.testing.assert_allclose(KIND.device({"logits": logits}, {}), np.full((1, 2, 3), 1 / 3), rtol=1e-6)
    np.testing.assert_allclose(KIND.from_exported(probabilities)[0], np.log(1 / 3))
    assert KIND.settled(NER, {}) is NER
    plain = {"label": np.zeros((1, 2), int), "label_weight": np.ones((1, 2), "float32")}
    assert {*KIND.losses_of(types.SimpleNamespace(declaration=NER), logits, plain)} == {"label", "label/accuracy"}
    heads = {"crf": lambda logits, labels, weight: logits[:, 0, 0] + weight[:, 0] + labels[:, 0]}
    model = types.SimpleNamespace(heads=heads)
    batch = {"label": np.full((2, 2), 3.0), "label_weight": np.full((2, 2), 2.0)}
    assert float(crf.losses_of(model, np.ones((2, 2, 3)), batch)["label"]) == 2 * (1 + 2 + 3)


def test_what_a_server_is_asked(monkeypatch):
    import tensorflow as tf

    tokenizer, kind = tiny.tokenizer(), find("tags")
    assert kind.strings(NER) == ("text",)
    signature = kind.signatures(tokenizer)["words"]
    assert signature.inputs == {"words": ("string", 2), "lengths": ("int32", 1)}
    assert kind.signatures(types.SimpleNamespace(knowledge=object())) == {}
    assert "in windows of 9 tokens" in kind.longer(9)
    assert kind.pipeline_tag(NER) == "token-classification"
    assert all(f"`{name}`" in kind.described() for name in ("words", "labels", "entities", "truncated", "lengths"))

    def run(packed):
        ids = tf.cast(packed["token_ids"], tf.float32)
        return {kind.answers.output: tf.nn.softmax(tf.stack([tf.sin(ids), tf.cos(ids), 0 * ids], -1))}

    graph = graph_tokenizer(tokenizer)
    of_text = kind.served(run, graph, {"text": tf.constant(["the cat sees"])}, 9, NAMES)
    given = {"words": tf.constant([["the", "cat", "sees", "behind"]]), "lengths": tf.constant([3])}
    of_words = signature.served(run, graph, given, 9, NAMES)
    found = [kind.unserved({name: each.numpy() for name, each in some.items()}, ()) for some in (of_text, of_words)]
    assert found[0] == found[1]
    assert found[0][0]["words"] == ["the", "cat", "sees"]


def test_heads_that_are_none():
    encoder = types.SimpleNamespace(spec=None, dtype_policy=None)
    for options, said in (({"lstm": -1}, "lstm is -1"), ({"lstm_layers": 0}, "lstm_layers 0, expected")):
        task = Task("t", "tags", labels=NER.labels, options=options)
        with pytest.raises(InputError, match=said):
            find("tags").configured(options).heads(encoder, task)

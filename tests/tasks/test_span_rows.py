"""Questions by hand: their answers and places in a file, what a report shows, what a server is told. No training."""

import types

import numpy as np
import pytest

from kerasbert import registry
from kerasbert.errors import InputError
from kerasbert.tasks import span
from kerasbert.tasks.batches import encode_texts
from kerasbert.tasks.span import Target
from tests import tiny

SQUAD, SQUAD2 = registry.task("squad"), registry.task("squad2")


@pytest.mark.parametrize(
    ("value", "golds"),
    [
        ("a", [("a", None)]),
        (["a", "b"], [("a", None), ("b", None)]),
        ({"text": ["a", "b"], "answer_start": [3, 5]}, [("a", 3), ("b", 5)]),
        ({"text": ["a"], "answer_start": None}, [("a", None)]),
        ({"text": "a", "answer_start": 4}, [("a", 4)]),
        ([{"text": "a", "answer_start": 3}, {"text": "b"}], [("a", 3), ("b", None)]),
        ({"text": [], "answer_start": []}, []),
        (" ", []),
        ([], []),
    ],
)
def test_the_answers_of_a_row(value, golds):
    assert span._golds("a.json", 2, value) == ("", golds)


def test_a_question_with_an_id_is_named_by_it():
    assert span._golds("a.json", 2, {"id": "q7", "text": ["a"]}) == (", question 'q7'", [("a", None)])
    for value in (
        None,
        3,
        [3],
        [None],
        {"text": [1]},
        {"text": 5, "answer_start": 1},
        {"text": ["a", "b"], "answer_start": [1]},
        {"text": ["a"], "answer_start": 1},
        [{"text": "a", "answer_start": "3"}],
        [{"text": "a", "answer_start": True}],
    ):
        with pytest.raises(
            InputError, match="a.json, line 2.*: the answer is .*, expected a text, or text and answer_start"
        ):
            span._golds("a.json", 2, value)


CONTEXT = "a cat, a dog, a cat"


@pytest.mark.parametrize(
    ("golds", "expected"),
    [
        ([], Target(())),
        ([("dog", 9)], Target(("dog",), 9, 12)),
        ([("dog", None)], Target(("dog",), 9, 12)),
        ([("dog", 2)], Target(("dog",), 9, 12, "moved")),
        ([("cat", 16)], Target(("cat",), 16, 19)),
        ([("a", 0)], Target(("a",), 0, 1)),
        ([("cat", None)], Target(("cat",), 2, 5, "first")),
        ([("cat", 3)], Target(("cat",), where="absent", row="here")),  # which of the two?
        ([("cat", -14)], Target(("cat",), where="absent", row="here")),
        ([("cow", 0)], Target(("cow",), where="absent", row="here")),
        ([("cow", 0), ("dog", 9)], Target(("cow", "dog"), 9, 12)),
    ],
)
def test_the_place_of_an_answer(golds, expected):
    assert span._placed(golds, CONTEXT, "here") == expected
    assert Target(("x",)) == Target(("x",), -1, -1, "", "")  # nowhere: no window holds it


def test_places_that_were_chosen_are_told():
    texts = [("q", CONTEXT)] * 4
    rows = types.SimpleNamespace(
        texts=texts, targets=[Target(("a",), 0, 1, where) for where in ("", "moved", "first", "first")]
    )
    assert SQUAD.how.told("a.json", rows) == [
        "a.json: 1 of 4 answers do not stand at their offset; they stand once in their context, and that place is taken",
        "a.json: 2 of 4 answers have no offset and stand several times in their context: the first place is taken",
    ]
    rows.targets[0] = Target(("cow",), where="absent", row="a.json, line 5")
    with pytest.raises(InputError, match="a.json, line 5: the answer 'cow' does not stand .* as in 1 of 4 rows"):
        SQUAD.how.told("a.json", rows)
    for question, context, said in (("", "x", "the question is empty"), ("x", " ", "the context is empty")):
        with pytest.raises(InputError, match=f"a.json, line 2: {said}, expected a text. Drop the row"):
            SQUAD.how.targets(SQUAD, "a.json", [2], ["x"], [(question, context)])
    with pytest.raises(InputError, match="a.json, line 2 has no answer: drop it, or train with --task squad2"):
        SQUAD.how.targets(SQUAD, "a.json", [2], [[]], [("q", "x")])
    assert SQUAD2.how.targets(SQUAD2, "a.json", [2], [[]], [("q", "x")]) == [Target(())]


def judged_case():
    """Questions with the answers 'cat', none, 'old new' and none; a network that answers dog, none, old and bad."""
    task = SQUAD2.optioned({"null_threshold": 0.0, "n_best": 1})
    texts = [
        ("film", "the cat sees a dog"),
        ("film", "a cat"),
        ("film", "old new"),
        ("film", "bad good"),
        ("film", "river"),
    ]
    encoded = encode_texts(tiny.tokenizer(), texts, 16, kind=task.how)
    outputs = [np.zeros((row.length, 2), "float32") for row in encoded.rows]
    for row, output, word in zip(encoded.rows, outputs, (4, None, 0, 0, None)):
        output[row.about.null if word is None else row.about.place + word] = 5
    golds = (("cat",), (), ("old new",), (), ("river",))
    return task, outputs, [Target(each, 0 if each else -1) for each in golds], encoded, texts


def test_what_a_report_shows_by_hand():
    task, outputs, targets, encoded, texts = judged_case()
    judged = task.how.judged(task, outputs, targets, encoded)
    assert judged.picture["bars"] == {
        "the expected answer": 1,
        "words in common with it": 1,
        "no word in common with it": 1,
        "an answer where there is none": 1,
        "none where there is an answer": 1,
    }
    assert judged.errors == pytest.approx([1, 0, 1 - 2 / 3, 1, 1])
    shown = [
        task.how.shown(task, text, target, None, judged.answer(i))
        for i, (text, target) in enumerate(zip(texts, targets))
    ]
    none = span.NO_ANSWER
    assert shown == [("cat", "dog"), (none, none), ("old new", "old"), (none, "bad"), ("river", none)]
    assert task.how.shown(task, texts[0], Target(("a", "b", "a")), None, {})[0] == "a | b"
    assert judged.sampled(np.array([1, 2])) == pytest.approx(
        {"exact_match": 0.5, "f1": (1 + 2 / 3) / 2, "has_answer_exact_match": 0, "has_answer_f1": 2 / 3, "no_answer": 1}
    )
    assert task.how.baseline(task, targets, encoded) == {"f1": 0.4, "exact_match": 0.4}
    assert [task.how.group(target) for target in targets] == [True, False, True, False, True]
    assert task.how.unlabelled(task, texts[:2]) == [Target(())] * 2


def test_a_threshold_is_chosen_where_questions_may_have_no_answer():
    task, outputs, targets, encoded, _ = judged_case()
    tuned = task.how.tuned(task, outputs, targets, encoded)
    before, after = (each.how.metrics(each, outputs, targets, encoded) for each in (task, tuned))
    assert after["f1"] >= before["f1"]
    assert "null_threshold" in tuned.options
    assert SQUAD.how.tuned(SQUAD, outputs, targets, encoded) is SQUAD


def test_what_is_explained_are_the_ends_of_the_answer():
    task, outputs, _, encoded, _ = judged_case()
    values = np.arange(40, dtype="float64").reshape(1, 20, 2)
    number, what, value = task.how.explained(task, encoded.rows[:1], outputs[:1], None)
    place = encoded.rows[0].about.place + 4
    assert (number, what, value(values).tolist()) == (0, "logits of the answer's ends", [2 * place + 2 * place + 1])
    assert task.how.explained(task, None, None, None)[:2] == (0, "")
    with pytest.raises(InputError, match="target"):
        task.how.explained(task, None, None, "a")


def test_what_servers_and_readers_are_told():
    kind = SQUAD.how
    assert kind.strings(SQUAD) == ("question", "context")
    assert (kind.reader_outputs("task_library"), kind.reader_outputs("kerasbert")) == (
        ("start_logits", "end_logits"),
        (),
    )
    assert kind.check_target("task_library") is None
    with pytest.raises(InputError, match="the model answers with span"):
        kind.check_target("mediapipe")
    probes = kind.probes(["a", "b" * 80, "c"], 2)
    long = probes[2][1]
    assert probes == [("a", "b" * 80), ("b" * 80, "c"), ("c", long), ("a", long), ("c", "a")]
    assert long.split()[:4] == ["0", "a", "0", "c"]
    assert len(long.split()) == 60 * 2 * 2
    served = {"text": [b"x", b""], "start": [1, 0], "end": [2, 0], "score": [0.5, 0.25], "truncated": [True, False]}
    assert kind.unserved({name: np.array(value, object) for name, value in served.items()}, ()) == [
        {"text": "x", "start": 1, "end": 2, "score": 0.5, "truncated": True},
        {"text": "", "start": 0, "end": 0, "score": 0.25},
    ]
    assert f"in windows of 9 tokens; a question has at most {kind.options['question']}" in kind.longer(9)
    assert ["`null_odds`" in each.how.described() for each in (SQUAD, SQUAD2)] == [False, True]
    assert kind.pipeline_tag(SQUAD) == "question-answering"


@pytest.mark.parametrize(("own", "most"), [(1, 20), (5, 20), (30, 30)])
def test_options_of_a_call_at_the_edges(own, most):
    options = SQUAD2.optioned({"n_best": own, "null_threshold": 1.5}).how.call_options
    number, threshold = options["n_best"], options["null_threshold"]
    assert (number.own, threshold.own, number.expected) == (own, 1.5, f"a whole number of 1 to {most}")
    assert number.fits(np.array([0, 1, most, most + 1])).numpy().tolist() == [False, True, True, False]
    assert threshold.fits(np.array([-9.0, np.inf, np.nan])).numpy().tolist() == [True, False, False]
    assert list(SQUAD.how.call_options) == ["n_best"]

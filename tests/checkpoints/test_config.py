"""Sizes from their configuration and back."""

import contextlib

import pytest

from kerasbert import registry
from kerasbert.checkpoints import config as configs
from kerasbert.errors import InputError
from kerasbert.storage.json_view import JsonView
from tests.checkpoints.reference import CONFIG

BERT = registry.family("bert")
HF = BERT.names["hf"]


def spec(**changes):
    return configs.to_spec(CONFIG | changes, HF, BERT.spec, "FOLDER")


def test_sizes():
    made = spec(hidden_act="gelu_new", attention_probs_dropout_prob=0.25, layer_norm_eps=1e-5)
    assert (made.hidden, made.blocks.layers, made.attention.heads, made.feedforward.width) == (6, 2, 3, 7)
    assert (made.embeddings.vocabulary, made.embeddings.positions, made.embeddings.segments) == (13, 10, 2)
    assert (made.feedforward.activation, made.dropout, made.attention.dropout) == ("gelu_tanh", 0.1, 0.25)
    assert made.epsilon == 1e-5
    assert spec().attention.dropout is None


@pytest.mark.parametrize("size", BERT.sizes)
def test_every_size_goes_there_and_back(size):
    ours = BERT.size(size)
    for change in ({}, {"attention.dropout": 0.0}, {"feedforward.activation": "swish"}, {"embeddings.segments": 3}):
        changed = ours.derive(change)
        assert configs.to_spec(configs.to_config(changed, HF, BERT.spec), HF, BERT.spec, "") == changed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key', expected 'absolute'"),
        ({"is_decoder": True}, "is_decoder True, expected False"),
        ({"add_cross_attention": True}, "add_cross_attention True, expected False"),
        ({"hidden_act": "quick_gelu"}, "activation 'quick_gelu', expected one of gelu, "),
        ({"type_vocab_size": -1}, "type_vocab_size -1, expected at least 0"),
        ({"hidden_size": "6"}, "hidden must be int. Received: '6'"),
        ({"num_attention_heads": 4}, "hidden 6 is not a multiple of attention.heads 4"),
    ],
)
def test_refused(changes, message):
    with pytest.raises(InputError, match=message):
        spec(**changes)


def test_all_absent_sizes_are_named():
    content = {key: value for key, value in CONFIG.items() if key not in ("hidden_size", "vocab_size")}
    with pytest.raises(InputError, match="the configuration of FOLDER lacks vocab_size, hidden_size"):
        configs.to_spec(content, HF, BERT.spec, "FOLDER")


@pytest.mark.parametrize(
    "changes",
    [
        {"attention.head_size": 32},
        {"attention.heads": (2, 1)},
        {"embeddings.width": 64},
        {"feedforward.width": (512, 256)},
        {"embeddings.segments": 0},
    ],
)
def test_a_spec_that_their_configuration_cannot_say(changes):
    made = BERT.size("tiny").derive({"attention.head_size": 64, **changes})
    with pytest.raises(InputError, match=f"cannot say {next(iter(changes))}="):
        configs.to_config(made, HF, BERT.spec)


def test_labels():
    assert configs.labels({"id2label": {"1": "good", "0": "bad"}}, 2) == ("bad", "good")
    assert configs.labels({}, 3) == ("LABEL_0", "LABEL_1", "LABEL_2")
    with pytest.raises(InputError, match="id2label must number its classes 0 to 1"):
        configs.labels({"id2label": {"1": "good", "2": "bad"}}, 2)
    with pytest.raises(InputError, match="id2label must map numbers to names"):
        configs.labels({"id2label": ["bad", "good"]}, 2)


def test_tasks():
    assert configs.task_of({}, 1)["kind"] == "regression"
    assert configs.task_of({"problem_type": "single_label_classification"}, 2)["kind"] == "classification"
    assert configs.task_of({"problem_type": "multi_label_classification"}, 2)["kind"] == "multi_label"
    with pytest.raises(InputError, match="problem_type is 'ranking', expected one of regression, single_label"):
        configs.task_of({"problem_type": "ranking"}, 2)
    for ending, kind in (("TokenClassification", "tags"), ("QuestionAnswering", "span"), ("MultipleChoice", "choice")):
        assert configs.kind_of(f"BertFor{ending}", ()) == kind
        assert configs.task_of({}, 1, kind=kind) == {"kind": kind, "inputs": "text" if kind == "tags" else "pair"}
        assert [configs.serves(f"BertFor{end}", kind) for end in (ending, "SequenceClassification")] == [True, False]
    assert configs.kind_of(None, ["span"]) == "span"  # of Google's releases, which name no class
    assert configs.serves("BertForSequenceClassification", "regression")
    assert configs.serves("BertForMaskedLM", None)
    kinds = ("classification", "regression", "multi_label", "tags")
    assert [configs.problem_of(kind) for kind in kinds] == [None, "regression", "multi_label_classification", None]


@pytest.mark.parametrize("name", ["bert", "mbert"])
def test_every_bert_is_a_bert_to_them(name):
    family = registry.family(name)
    assert configs.to_config(family.spec, family.names["hf"], family.spec)["model_type"] == "bert"


@pytest.mark.parametrize("key", CONFIG)
def test_odd_values_never_crash(key):
    """Whatever stands there: a Spec or an InputError, never another exception."""
    for value in (None, "x", [], {}, -1, 0, 1.5, True, [1, 2], 10**30):
        with contextlib.suppress(InputError):
            spec(**{key: value})


def test_languages_are_numbered_from_0_without_a_gap():
    assert configs.languages({"lang2id": {"fr": 1, "en": 0}}) == {"en": 0, "fr": 1}
    assert [*configs.languages({"lang2id": {"fr": 1, "en": 0}})] == ["en", "fr"]
    assert [configs.languages(each) for each in ({}, {"lang2id": None}, {"lang2id": {}})] == [None] * 3
    for wrong in (
        {"en": 1},
        {"en": 0, "fr": 2},
        {"en": 0, "fr": 0},
        {"en": 0, "fr": True},
        {"en": "0"},
        {"en": 0.0},
        ["en"],
        "en",
    ):
        with pytest.raises(InputError, match="lang2id must number languages from 0, each its own, without a gap"):
            configs.languages({"lang2id": wrong})


@pytest.mark.parametrize(
    ("config", "classes", "pair", "kind", "expected"),
    [
        ({}, 1, None, None, ("regression", "text")),
        ({}, 2, None, None, ("classification", "text")),
        ({"problem_type": None}, 3, True, None, ("classification", "pair")),
        ({"problem_type": "regression"}, 1, None, None, ("regression", "text")),
        ({"problem_type": "single_label_classification"}, 2, None, None, ("classification", "text")),
        ({"problem_type": "multi_label_classification"}, 1, None, None, ("multi_label", "text")),
        ({configs.PAIR: True}, 2, None, None, ("classification", "pair")),
        ({configs.PAIR: True}, 2, False, None, ("classification", "text")),
        ({configs.PAIR: 1}, 2, None, None, ("classification", "text")),
        ({configs.PAIR: True}, 2, None, "tags", ("tags", "text")),
        ({}, 2, None, "span", ("span", "pair")),
        ({}, 1, False, "choice", ("choice", "pair")),
    ],
)
def test_the_task_of_a_head(config, classes, pair, kind, expected):
    found = configs.task_of(config, classes, pair, kind)
    assert (found["kind"], found["inputs"], len(found)) == (*expected, 2)
    options = {configs.OPTIONS: {"thresholds": [0.5]}}
    assert configs.task_of(config | options, classes, pair, kind) == found | {"options": {"thresholds": [0.5]}}
    for none in ({}, None, "x", [1]):
        assert configs.task_of(config | {configs.OPTIONS: none}, classes, pair, kind) == found


def test_options_of_a_task_are_read():
    view = JsonView({configs.OPTIONS: {"thresholds": [0.5]}})
    assert configs.task_of(view, 2)["options"] == {"thresholds": [0.5]}
    assert view.unread() == {}


@pytest.mark.parametrize(
    ("problem", "classes", "said"),
    [
        ("regress", 1, "problem_type is 'regress', expected one of regression, single_label_classification, multi_"),
        (3, 1, "problem_type is 3"),
        ("regression", 2, "problem_type is regression with 2 outputs"),
        ("single_label_classification", 1, "single_label_classification with one label"),
    ],
)
def test_a_problem_that_is_none_here(problem, classes, said):
    with pytest.raises(InputError, match=said):
        configs.task_of({"problem_type": problem}, classes)


@pytest.mark.parametrize(
    ("config", "count", "expected"),
    [
        ({}, None, ("LABEL_0", "LABEL_1")),
        ({}, 3, ("LABEL_0", "LABEL_1", "LABEL_2")),
        ({"id2label": {"1": "b", 0: "a"}}, 2, ("a", "b")),
        ({"id2label": {"0": "a"}}, None, ("a",)),
        ({"num_labels": 2, "_num_labels": 2}, 2, ("LABEL_0", "LABEL_1")),
        ({"num_labels": 3}, None, ("LABEL_0", "LABEL_1")),
        ({"num_labels": "3"}, 2, ("LABEL_0", "LABEL_1")),
    ],
)
def test_names_of_classes(config, count, expected):
    assert configs.labels(config, count) == expected


@pytest.mark.parametrize(
    ("config", "count", "said"),
    [
        ({"num_labels": 3}, 2, "the classifier has 2 outputs, and num_labels says 3"),
        ({"_num_labels": 1}, 2, "the classifier has 2 outputs, and _num_labels says 1"),
        ({"id2label": {"a": "b"}}, None, "id2label must map numbers to names"),
        ({"id2label": ["a"]}, None, "id2label must map numbers to names"),
        ({"id2label": {"1": "a", "2": "b"}}, None, "id2label must number its classes 0 to 1"),
        ({"id2label": {"0": "a", "1": "a"}}, None, "id2label must number its classes 0 to 1"),
        ({"id2label": {"0": "a", "1": "b"}}, 3, "the classifier has 3 outputs, and id2label names 2"),
    ],
)
def test_names_of_classes_that_do_not_fit(config, count, said):
    with pytest.raises(InputError, match=said):
        configs.labels(config, count)


def test_numbers_of_languages():
    assert configs.languages({}) is None
    assert configs.languages({"lang2id": {}}) is None
    assert list(configs.languages({"lang2id": {"fr": 1, "en": 0}}).items()) == [("en", 0), ("fr", 1)]
    for table in ({"en": 1}, {"en": 0, "fr": 0}, {"en": 0, "fr": 2}, {"en": "0"}, {"en": True}, ["en"], {"en": 0.0}):
        with pytest.raises(InputError, match="lang2id must number languages from 0"):
            configs.languages({"lang2id": table})


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [
        ("BertForTokenClassification", "tags"),
        ("BertForQuestionAnswering", "span"),
        ("BertForMultipleChoice", "choice"),
        ("BertForSequenceClassification", None),
        ("BertModel", None),
        (None, None),
    ],
)
def test_the_kind_of_a_class(architecture, kind):
    assert configs.kind_of(architecture, ()) == kind
    assert configs.kind_of(architecture, ("span",)) == (kind or "span")
    assert configs.one_number(architecture) == (kind == "choice")
    if architecture:
        for asked in ("tags", "span", "choice", "classification", None):
            own = asked if asked in ("tags", "span", "choice") else None
            assert configs.serves(architecture, asked) == (own == kind), asked


def test_the_problem_of_a_kind():
    kinds = ("regression", "multi_label", "classification", "tags", None)
    assert [configs.problem_of(kind) for kind in kinds] == [
        "regression",
        "multi_label_classification",
        None,
        None,
        None,
    ]

"""Sizes from their configuration and back."""

import contextlib

import pytest

from kerasbert import registry
from kerasbert.checkpoints import config as configs
from kerasbert.errors import InputError
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

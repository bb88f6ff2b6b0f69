"""What a CrossEncoder's files say of its task: activations, lengths of texts, and what is written back."""

import json
import types

import pytest

from kerasbert.checkpoints.cross_encoders import (
    UNBOUNDED,
    activation_in,
    cross_encoder,
    from_before,
    tokenizer_length,
    within,
    written_activation,
)
from kerasbert.errors import InputError

TORCH = "torch.nn.modules."
SPEC = types.SimpleNamespace(longest=512)


@pytest.mark.parametrize(
    ("classes", "activation", "kind", "options"),
    [
        (1, None, "regression", {"activation": "sigmoid"}),
        (1, "activation.Sigmoid", "regression", {"activation": "sigmoid"}),
        (1, "linear.Identity", "regression", {}),
        (2, None, "classification", {}),
        (3, "linear.Identity", "classification", {}),
        (3, "activation.Softmax", "classification", {}),
        (2, "activation.Sigmoid", "multi_label", {}),
    ],
)
def test_the_task_of_a_classifier_of_pairs(classes, activation, kind, options):
    given = activation and TORCH + activation
    task, told = cross_encoder({}, classes, given, given or "x")
    assert task == {"kind": kind, "inputs": "pair"} | ({"options": options} if options else {})
    logits = kind == "classification" and activation != "activation.Softmax"
    assert [("gives logits" in line) for line in told] == [True] * logits


@pytest.mark.parametrize(
    ("classes", "taken", "kind"), [(1, "Sigmoid", "regression"), (2, "Identity", "classification")]
)
def test_an_activation_of_their_own_code_is_told(classes, taken, kind):
    task, told = cross_encoder({"options": {"thresholds": [1]}}, classes, "mine.Swish", "config.json")
    assert (task["kind"], task["options"]["thresholds"]) == (kind, [1])
    assert told[0] == f"config.json names the activation mine.Swish, code of its own: as theirs does, {taken} is taken"


@pytest.mark.parametrize(
    ("classes", "name"), [(1, "activation.Softmax"), (1, "activation.Tanh"), (2, "activation.Tanh")]
)
def test_another_activation_is_refused(classes, name):
    with pytest.raises(InputError, match=f"has the activation {TORCH}{name}, expected Identity, Sigmoid, Softmax"):
        cross_encoder({}, classes, TORCH + name, "config.json")


@pytest.mark.parametrize(
    ("longest", "positions", "expected"),
    [(3, 512, 3), (128, 512, 128), (600, 512, 512), (128.0, 512, 128), (128, None, 128), (UNBOUNDED, 512, 512)]
    + [(UNBOUNDED + 1, 512, 512), (1e30, 512, 512), (1e30, None, None), (UNBOUNDED, None, UNBOUNDED)],
)
def test_a_length_is_within_the_positions(longest, positions, expected):
    found = within(longest, types.SimpleNamespace(longest=positions), "file")
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize("longest", [2, 0, -1, 2.5, 3.5, "128", True, None, [128]])
def test_a_length_that_is_none_is_refused(longest):
    with pytest.raises(InputError, match="expected a whole number of at least 3"):
        within(longest, SPEC, "file")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, 512),
        ({}, 512),
        ({"model_max_length": 64}, 64),
        ({"max_len": 32}, 32),
        ({"model_max_length": 64, "max_len": 32}, 64),
        ({"model_max_length": None}, 512),
    ],
)
def test_a_length_of_the_tokenizers_settings(content, expected, tmp_path):
    if content is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(content))
    assert tokenizer_length(tmp_path, SPEC) == expected


OLD = "sbert_ce_default_activation_function"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, (False, None)),
        ({OLD: "a"}, (True, "a")),
        ({OLD: None}, (True, None)),
        ({"sentence_transformers": {"activation_fn": "b"}, OLD: "a"}, (True, "b")),
        ({"sentence_transformers": {}}, (True, None)),
        ({"sentence_transformers": "6.0"}, (False, None)),
    ],
)
def test_where_a_configuration_names_it(config, expected):
    assert activation_in(config) == expected


def test_a_checkpoint_of_before_says_it_in_its_configuration(tmp_path):
    task = {"kind": "classification", "inputs": "text"}
    config = {OLD: f"{TORCH}linear.Identity"}
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 64}')
    expected = ({"kind": "regression", "inputs": "pair", "length": 64}, [])
    assert from_before(config, task, 1, tmp_path, SPEC) == expected
    for kind in ("regression", "multi_label"):
        assert from_before(config, task | {"kind": kind}, 1, tmp_path, SPEC) == expected
    assert from_before({}, task, 1, tmp_path, SPEC) == (task, [])
    assert from_before(config, None, 1, tmp_path, SPEC) == (None, [])
    assert from_before(config, {"kind": "tags"}, 1, tmp_path, SPEC) == ({"kind": "tags"}, [])
    (tmp_path / "tokenizer_config.json").unlink()
    assert "length" not in from_before(config, task, 1, tmp_path, types.SimpleNamespace(longest=None))[0]


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ({"kind": "regression", "inputs": "pair"}, "linear.Identity"),
        ({"kind": "regression", "inputs": "pair", "options": None}, "linear.Identity"),
        ({"kind": "regression", "inputs": "pair", "options": {"activation": "sigmoid"}}, "activation.Sigmoid"),
        ({"kind": "regression", "inputs": "text"}, None),
        ({"kind": "classification", "inputs": "pair"}, None),
        ({}, None),
    ],
)
def test_what_is_written_back(task, name):
    expected = {"sentence_transformers": {"activation_fn": TORCH + name}} if name else {}
    assert written_activation(task) == expected
    if name:  # and read again
        again, _ = cross_encoder({}, 1, activation_in(expected)[1], "x")
        assert again.get("options", {}) == (task.get("options") or {})

"""SavedModels in bfloat16: half the weights, answers that rounding explains, float32 outputs; what it is not for is refused."""

import json

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.export import rounded
from kerasbert.layers.naming import values
from kerasbert.tasks import early_checks
from kerasbert.tasks.adapted_models import in_bfloat16
from kerasbert.tasks.base import kind_of
from kerasbert.testing import battery
from tests.export.served import ask, server
from tests.tasks.test_every_kind import KINDS, made


@pytest.mark.slow
def test_a_classifier_in_bfloat16_answers_as_in_float32(classifier, tmp_path, capfd):
    folder = kb.export(classifier, tmp_path / "author" / "1", precision="bfloat16")
    told = capfd.readouterr().err
    remark = next(line for line in told.splitlines() if "bfloat16 against float32, of " in line)
    assert "9 of 9 labels are equal" in remark
    assert "for processors with AVX512-BF16 or AMX; bfloat16 against float32" in (folder / "MODEL_CARD.md").read_text()
    texts = ["a good cat", "never a dog", "the old house sees", "", "bad " * 40]
    wanted = [list(answer.scores.values()) for answer in kb.predict(classifier, texts)]
    served = tf.saved_model.load(str(folder))
    found = served.signatures["serving_default"](text=tf.constant(texts))["probabilities"]
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, wanted, atol=0.03)
    assert np.abs(found - wanted).max() > 1e-6  # it was rounded
    assert {each.dtype for each in served.signatures["ids"].graph.variables} <= {tf.bfloat16}
    with server({"author": folder.parent}) as one:
        code, answer = ask(one.ports[0], "/v1/models/author:predict", {"inputs": {"text": texts}})
        assert code == 200
        np.testing.assert_allclose(answer["outputs"]["probabilities"], found, atol=1e-6)


def test_weights_are_rounded_and_the_model_is_left_as_it_was(tmp_path):
    model = made("bert", "regression", battery.tokenizer("wordpiece"), tmp_path)
    before = {name: np.array(value) for name, value in values(model.encoder).items()}
    other = in_bfloat16(model)
    assert (other.task, other.labels, other.tokenizer) == (model.task, model.labels, model.tokenizer)
    for name, value in values(other.encoder).items():
        rounded_once = tf.cast(tf.cast(before[name], tf.bfloat16), tf.float32)
        np.testing.assert_array_equal(np.array(value, "float32"), rounded_once)
    after = values(model.encoder)
    assert all((np.array(after[name]) == value).all() for name, value in before.items())


def test_a_network_that_stays_in_float32_is_refused(tmp_path):
    """Skip-thought's GRUs begin with orthogonal matrices, which TensorFlow has no bfloat16 form of."""
    encoder = battery.Subject("skip-thought", tmp_path).encoder()
    with pytest.raises(InputError, match=r"precision bfloat16: \w+ is computed in float32 alone\. Leave it out"):
        in_bfloat16(encoder)


def test_how_far_answers_are_is_said():
    wanted = np.array([[0.9, 0.1], [0.51, 0.49]], "float32")
    found = np.array([[0.89, 0.11], [0.49, 0.51]], "float32")
    said = rounded.agreement([*wanted], [*found], True)
    assert said == "bfloat16 against float32, of 2 answers: largest difference 0.02 of 0.9, 1 of 2 labels are equal"
    assert "labels" not in rounded.agreement([*wanted], [*found], False)
    for wrong in (wanted + 0.1, wanted * np.nan):
        with pytest.raises(InputError, match="in bfloat16 the model answers otherwise"):
            rounded.agreement([*wanted], [*wrong], False)


def test_what_it_is_not_for_is_refused(tmp_path):
    for kind in ("tags", "span", "choice"):
        model = made("bert", kind, battery.tokenizer("wordpiece"), tmp_path / kind)
        with pytest.raises(InputError, match=f"the answers of {kind_of(model).name} are decoded in the graph"):
            kb.export(model, tmp_path / "out", precision="bfloat16")
    assert sorted(KINDS) == ["choice", "classification", "multi_label", "regression", "span", "tags", "vector"]
    with pytest.raises(InputError, match="precision is one of float32, bfloat16. Received: 'int8'"):
        kb.export(model, tmp_path / "out", precision="int8")
    (tmp_path / "model.json").write_text(json.dumps({"task": None}))
    early_checks.check_precision(tmp_path, "bfloat16")  # an encoder's vectors
    assert not (tmp_path / "out").exists()

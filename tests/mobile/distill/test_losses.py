"""Each loss against values worked out by hand."""

import math

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.mobile.distill import losses

LN2, LN3 = math.log(2), math.log(3)


def value(x) -> list:
    """A tensor as plain numbers."""
    return np.asarray(tf.convert_to_tensor(x)).tolist()


def array(*rows) -> np.ndarray:
    """float32."""
    return np.array(rows, "float32")


def test_soft_cross_entropy():
    # p = (3/4, 1/4), q = (1/2, 1/2): 3/4 ln(3/2) + 1/4 ln(1/2)
    found = losses.soft_cross_entropy(array([0, 0], [LN3, 0]), array([LN3, 0], [LN3, 0]))
    assert value(found) == pytest.approx([0.75 * math.log(1.5) - 0.25 * LN2, 0], abs=1e-6)
    # at T = 2 the teacher has logits (ln 9 / 2, 0) = (ln 3, 0) and the result counts four times
    found = losses.soft_cross_entropy(array([0, 0]), array([2 * LN3, 0]), 2.0)
    assert value(found) == pytest.approx([4 * (0.75 * math.log(1.5) - 0.25 * LN2)], abs=1e-6)


def test_the_gradient_of_soft_targets_keeps_its_size():
    """T (q - p): T^2 undoes the two divisions by T but one, and p - q is about the logits' difference / T."""
    student = tf.constant(array([0, 0]))
    with tf.GradientTape() as tape:
        tape.watch(student)
        loss = losses.soft_cross_entropy(student, array([2 * LN3, 0]), 2.0)
    assert value(tape.gradient(loss, student)[0]) == pytest.approx([2 * (0.5 - 0.75), 2 * (0.5 - 0.25)], abs=1e-6)


def test_squared_error():
    assert value(losses.squared_error(array([1, 2], [0, 0]), array([1, 5], [3, 1]))) == [4.5, 5]


def test_cosine_distance():
    found = losses.cosine_distance(array([1, 0], [1, 0], [2, 0], [0, 0]), array([1, 1], [-3, 0], [5, 0], [1, 0]))
    assert value(found) == pytest.approx([1 - math.sqrt(0.5), 2, 0, 1], abs=1e-6)


def test_feature_maps_and_their_statistics():
    student, teacher = array([1, 3], [0, 4]), array([5, 1], [10, 30])
    # normalised (-1, 1) against (1, -1); both (-1, 1)
    assert value(losses.feature_error(student, teacher)) == pytest.approx([4, 0], abs=1e-4)
    assert value(losses.mean_error(student, teacher)) == [1, 324]  # means 2 and 3, 2 and 20
    assert value(losses.variance_error(student, teacher)) == [3, 96]  # variances 1 and 4, 4 and 100


def softmax(scores) -> np.ndarray:
    """Attention of scores [..., K]."""
    exponentials = np.exp(np.array(scores, "float64"))
    return (exponentials / exponentials.sum(-1, keepdims=True)).astype("float32")


def test_score_error():
    # centred (-1, 1) against (-3, 3) in the first head, nothing in the second: (4 + 0) / 2
    student, teacher = softmax([[[[1, 3]], [[0, 1]]]]), softmax([[[[0, 6]], [[7, 8]]]])
    assert value(losses.score_error(student, teacher)) == [pytest.approx([2], abs=1e-4)]
    # a third key that nobody sees changes nothing, whatever stands there
    hidden = [np.concatenate([x, np.full((1, 2, 1, 1), y, "float32")], -1) for x, y in ((student, 1e-9), (teacher, 0))]
    visible = np.array([[[True, True, False]]])
    assert value(losses.score_error(*hidden, visible)) == [pytest.approx([2], abs=1e-4)]


def test_attention_divergence():
    student, teacher = array([[[[0.5, 0.5]], [[0.2, 0.8]]]])[0], array([[[[0.75, 0.25]], [[0.2, 0.8]]]])[0]
    expected = (0.75 * math.log(1.5) - 0.25 * LN2) / 2
    assert value(losses.attention_divergence(student, teacher)) == [pytest.approx([expected], abs=1e-6)]
    # what the teacher does not see costs nothing, and where the student sees nothing the loss stays finite
    found = losses.attention_divergence(array([[[[1, 0]]]])[0], array([[[[1, 0]]]])[0])
    assert value(found) == [pytest.approx([0], abs=1e-6)]
    assert np.isfinite(value(losses.attention_divergence(array([[[[1, 0]]]])[0], array([[[[0.5, 0.5]]]])[0]))).all()


def test_half_precision_is_compared_in_float32():
    one, other = (tf.cast(array([1, 2, 4]), kind) for kind in ("bfloat16", "float32"))
    for loss in (losses.soft_cross_entropy, losses.squared_error, losses.cosine_distance, losses.feature_error):
        found = loss(one, other)
        assert found.dtype == tf.float32
        assert value(found) == pytest.approx([0], abs=1e-6)

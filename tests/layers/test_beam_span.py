"""Ends given their starts, beside the formulas in numpy."""

import numpy as np
import pytest

from kerasbert.layers.beam_span import IMPOSSIBLE, BeamSpan

HIDDEN = 6


def made(starts):
    """A layer with drawn weights, and these by name."""
    layer = BeamSpan(starts, epsilon=1e-3, name="beam_span")
    layer.build((None, None, HIDDEN))
    draw = np.random.default_rng(0)
    for weight in layer.weights:
        weight.assign(draw.normal(size=weight.shape))
    assert sum(weight.numpy().size for weight in layer.weights) == 4 * HIDDEN * HIDDEN + 7 * HIDDEN + 2
    return layer, {weight.path.split("beam_span/")[-1]: weight.numpy() for weight in layer.weights}


def softmax(x):
    shares = np.exp(x - x.max())
    return shares / shares.sum()


def ends(w, x, start):
    inner = np.tanh(x @ w["end_token/kernel"] + start @ w["end_start/kernel"] + w["end_start/bias"])
    normal = (inner - inner.mean(-1, keepdims=True)) / np.sqrt(inner.var(-1, keepdims=True) + 1e-3)
    return ((normal * w["end_norm/gamma"] + w["end_norm/beta"]) @ w["end/kernel"] + w["end/bias"])[:, 0]


def none(w, x, null, start):
    inner = start @ w["none_start/kernel"] + x[null] @ w["none_token/kernel"] + w["none_token/bias"]
    return float((np.tanh(inner) @ w["none/kernel"])[0])


@pytest.mark.parametrize(("starts", "length"), [(1, 7), (3, 7), (9, 5)])
def test_pairs_and_no_answer(starts, length):
    layer, w = made(starts)
    x = np.random.default_rng(1).normal(size=(2, length, HIDDEN)).astype("float32")
    allowed, null = np.ones((2, length), bool), np.zeros((2, length), bool)
    allowed[0, 1] = allowed[1, -1] = False
    null[0, 0] = null[1, 2] = True
    found = np.asarray(layer(x, allowed, null))
    assert found.shape == (2, length, 2 * starts)
    for row in range(2):
        begins = np.where(allowed[row], (x[row] @ w["start/kernel"] + w["start/bias"])[:, 0], IMPOSSIBLE)
        log, place = begins - begins.max() - np.log(np.exp(begins - begins.max()).sum()), int(null[row].argmax())
        for k, at in enumerate(np.argsort(-begins)[: min(starts, allowed[row].sum())]):
            wanted = np.where(np.arange(length) == at, log, IMPOSSIBLE)
            to = np.where(allowed[row], ends(w, x[row], x[row, at]), IMPOSSIBLE)
            others = np.arange(length) != place
            np.testing.assert_allclose(found[row, others, 2 * k], wanted[others], atol=1e-5)
            seen = others & allowed[row]
            np.testing.assert_allclose(np.exp(found[row, seen, 2 * k + 1]), softmax(to)[seen], atol=1e-6)
        expected = none(w, x[row], place, softmax(begins) @ x[row])
        np.testing.assert_allclose(found[row, place], [expected, *[0] * (2 * starts - 1)], atol=1e-5)


def test_given_the_start():
    layer, w = made(2)
    x = np.random.default_rng(2).normal(size=(2, 5, HIDDEN)).astype("float32")
    allowed, null = np.ones((2, 5), bool), np.eye(5, dtype=bool)[[0, 4]]
    allowed[0, 3] = False
    found = np.asarray(layer(x, allowed, null, np.array([2, 1])))
    for row, start in enumerate([2, 1]):
        begins = (x[row] @ w["start/kernel"] + w["start/bias"])[:, 0]
        wanted = [begins, ends(w, x[row], x[row, start])]
        for i in (0, 1):
            np.testing.assert_allclose(
                found[row, :, i], np.where(allowed[row], wanted[i], IMPOSSIBLE), atol=1e-5, rtol=1e-5
            )
        np.testing.assert_allclose(found[row, :, 2], none(w, x[row], row * 4, x[row, start]), atol=1e-5)

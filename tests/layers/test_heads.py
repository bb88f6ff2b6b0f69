"""Heads by hand: kernels by arange."""

import math

import numpy as np

from kerasbert.layers.heads import LabelHead, MaskedLM, Pooler

SQUARE = np.arange(4.0).reshape(2, 2)  # [[0, 1], [2, 3]]


def test_tokens_are_predicted_by_the_transposed_table():
    head = MaskedLM(vocabulary=3, width=2, activation="relu", epsilon=3.0)
    head.build((None, None, 2))
    head.transform.kernel.assign(SQUARE)
    head.transform.bias.assign([1, 0])
    head.norm.gamma.assign([2, 4])
    head.norm.beta.assign([1, 1])
    head.bias.assign([10, 20, 30])
    table = np.arange(6.0, dtype="float32").reshape(3, 2)
    # x = [1, 1]: transform [2 + 1, 4]; half of the difference .5 -> .5/sqrt(.25 + 3); then [1 - 2a, 1 + 4a]
    # x = [-1, 0]: transform [1, -1] -> [1, 0]: the same with the other sign
    a = 0.5 / 3.25**0.5
    first, second = (1 - 2 * a, 1 + 4 * a), (1 + 2 * a, 1 - 4 * a)
    expected = [[u * 0 + v * 1 + 10, u * 2 + v * 3 + 20, u * 4 + v * 5 + 30] for u, v in (first, second)]
    logits = head(np.array([[[1, 1], [-1, 0]]], "float32"), table)
    np.testing.assert_allclose(logits, [expected], rtol=1e-6)


def test_the_pooler_reads_the_first_token():
    pooler = Pooler(2)
    pooler.build((None, None, 2))
    pooler.kernel.assign(SQUARE)
    pooler.bias.assign([0.5, -3])
    # [0, 1] @ [[0, 1], [2, 3]] + [.5, -3] = [2.5, 0]
    pooled = pooler(np.array([[[0, 1], [9, 9]]], "float32"))
    np.testing.assert_allclose(pooled, [[math.tanh(2.5), 0]], rtol=1e-6)


def test_labels():
    head = LabelHead(3)
    head.build((None, 2))
    head.kernel.assign(np.arange(6.0).reshape(2, 3))
    head.bias.assign([1, 2, 3])
    # 2*[0, 1, 2] + 1*[3, 4, 5] + [1, 2, 3]
    np.testing.assert_array_equal(head(np.array([[2, 1]], "float32")), [[4, 8, 12]])


def test_labels_behind_a_hidden_layer():
    head = LabelHead(3, activation="relu")
    head.build((None, 2))
    head.inner.kernel.assign(SQUARE)
    head.inner.bias.assign([0, -4])
    head.kernel.assign(np.arange(6.0).reshape(2, 3))
    # [2, 0] @ SQUARE + [0, -4] = [0, -2] -> 0; [0, 2] @ SQUARE + [0, -4] = [4, 2]: 4*[0, 1, 2] + 2*[3, 4, 5]
    logits = head(np.array([[2, 0], [0, 2]], "float32"))
    np.testing.assert_array_equal(logits, [[0, 0, 0], [6, 12, 18]])

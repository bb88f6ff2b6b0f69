"""A decoder's block by hand: as tests/layers/test_block.py, queries are zero and other kernels by arange."""

import numpy as np

from kerasbert.layers.context import Context
from kerasbert.layers.decoder_block import DecoderBlock, PreNormDecoderBlock
from kerasbert.layers.norms import RMSNorm
from kerasbert.layers.visibility import HIDDEN
from tests.layers.test_block import SQUARE, after, block, norm

X = np.array([[[2, 0], [0, 2]]], "float32")
SOURCE = np.array([[[1, 0], [0, 1], [9, 9]]], "float32")
CAUSAL = np.array([[0, HIDDEN], [0, 0]], "float32").reshape(1, 1, 2, 2)
CONTEXT = Context(CAUSAL, source=SOURCE, source_bias=np.array([0, 0, HIDDEN], "float32").reshape(1, 1, 1, 3))


def decoder(kind: type):
    made = block(kind, 5.0)
    made.cross_attention.query.kernel.assign(np.zeros((2, 2)))
    for part in (made.cross_attention.key, made.cross_attention.value, made.cross_attention.output_projection):
        part.kernel.assign(SQUARE)
    made.cross_attention_norm.gamma.assign([1, 2])
    made.cross_attention_norm.beta.assign([0, 1])
    return made


def crossed(x) -> np.ndarray:
    """After the cross-attention: values [0, 1], [2, 3] of the two real source tokens, mean [1, 2] -> [4, 7]."""
    u, v = x + np.array([4, 7])
    return norm((v - u) / 2, 5.0)


def test_post_norm():
    """Self: values [0, 2], [4, 6]; token 0 sees [0, 2] -> [4, 6], token 1 the mean [2, 4] -> [8, 14]."""
    y, probabilities, of_source = decoder(DecoderBlock)(X, context=CONTEXT)
    np.testing.assert_allclose(probabilities, [[[[1, 0], [0.5, 0.5]]]], atol=1e-7)
    np.testing.assert_allclose(of_source, [[[[0.5, 0.5, 0], [0.5, 0.5, 0]]]], atol=1e-7)
    first, second = norm(0, 5.0), norm(4, 5.0)  # sums [6, 6] and [8, 16]
    np.testing.assert_allclose(y, [[after(crossed(x), 5.0) for x in (first, second)]], rtol=1e-5)


def test_pre_norm_adds_the_three_sublayers_to_what_came_in():
    """With feed-forward and self-attention silenced, [4, 7] of the source is added."""
    made = decoder(PreNormDecoderBlock)
    for part in (made.attention.output_projection, made.feedforward.outer):
        part.kernel.assign(np.zeros((2, 2)))
    y, _, _ = made(X, context=CONTEXT)
    np.testing.assert_allclose(y, X + np.array([4, 7]), rtol=1e-5)


def test_rms_norm_by_hand():
    """Mean square of [3, 4] is 12.5; with epsilon 3.5 the root is 4."""
    layer = RMSNorm(3.5)
    layer.build((None, 2))
    layer.gamma.assign([1, 2])
    np.testing.assert_allclose(layer(np.array([[3, 4]], "float32")), [[0.75, 2.0]], rtol=1e-6)

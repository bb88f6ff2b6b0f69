"""Adaptive input and softmax by hand, and beside the softmax over all tokens."""

import numpy as np
import pytest
from keras import ops

from kerasbert import registry
from kerasbert.errors import InputError
from kerasbert.layers.adaptive import Adaptive, AdaptiveEmbeddings, AdaptiveSoftmax

SIZES = {"hidden": 4, "attention.heads": 1, "blocks.layers": 1, "feedforward.width": 4, "dropout": 0.0}


def layers(vocabulary: int, cutoffs: tuple[int, ...], div_val: int, width: int | None = None, seed: int | None = None):
    """Both, with weights by arange / 10, or random."""
    _, spec = registry.find("transformer-xl/base")
    changes = {"embeddings.vocabulary": vocabulary, "embeddings.width": width}
    spec = spec.derive(SIZES | changes | {"adaptive.cutoffs": cutoffs, "adaptive.div_val": div_val})
    embeddings, softmax = AdaptiveEmbeddings(spec, name="embeddings"), AdaptiveSoftmax(spec, name="output")
    embeddings.build()
    softmax.build()
    draw = np.random.default_rng(seed)
    for weight in (*embeddings.weights, *softmax.weights):
        values = np.arange(np.prod(weight.shape)) / 10 if seed is None else draw.normal(0, 0.7, weight.shape)
        weight.assign(np.reshape(values, weight.shape))
    return embeddings, softmax


def test_input_by_hand():
    """Tables [[0 .1 .2 .3] [.4 .5 .6 .7]] and [[0 .1] [.2 .3]]; the second projection's rows [0 .1 .2 .3] and [.4 .5 .6 .7].

    Token 3 is the second of the tail: .2 of the first row and .3 of the second, times 2, the root of H.
    """
    embeddings, _ = layers(4, (2,), 2)
    assert [tuple(weight.shape) for weight in embeddings.weights] == [(2, 4), (4, 4), (2, 2), (2, 4)]
    found = embeddings(np.array([[3, 0]], "int32"))
    np.testing.assert_allclose(found[0, 0], 2 * (0.2 * np.arange(4) / 10 + 0.3 * np.arange(4, 8) / 10), rtol=1e-6)
    kernel = np.arange(16).reshape(4, 4) / 10
    np.testing.assert_allclose(found[0, 1], 2 * (np.arange(4) / 10 @ kernel), rtol=1e-6)


def test_one_table_where_tails_are_as_wide():
    embeddings, _ = layers(4, (2,), 1)
    assert [weight.path for weight in embeddings.weights] == ["embeddings/tokens_0/table"]
    np.testing.assert_allclose(embeddings(np.array([[3]], "int32"))[0, 0], 2 * np.arange(12, 16) / 10, rtol=1e-6)
    assert layers(4, (), 1)[0].weights[0].path == "embeddings/tokens/table"


def test_softmax_by_hand():
    """x = e_0, so that of each row its first number counts, and the bias: no projection.

    Tables: rows begin with 0, .4, .8, 1.2, biases 0, .1, .2, .3; the tail's row of the head begins with 0, its bias is 0.
    Head: logits 0, .4 + .1, 0 (tail). Tail: .8 + .2, 1.2 + .3.
    """
    embeddings, softmax = layers(4, (2,), 1)
    found = np.asarray(softmax(np.array([[1.0, 0, 0, 0]], "float32"), embeddings=embeddings))[0]
    head, tail = np.exp([0.0, 0.5, 0.0]), np.exp([1.0, 1.5])
    expected = [*head[:2] / head.sum(), *(head[2] / head.sum() * tail / tail.sum())]
    np.testing.assert_allclose(np.exp(found), expected, rtol=1e-6)


CASES = [((3, 7), 1, None), ((3, 7), 2, None), ((5,), 4, 8), ((3, 7), 1, 6), ((2, 5, 9), 2, 9)]


@pytest.mark.parametrize(("cutoffs", "div_val", "width"), CASES)
def test_probabilities_sum_to_one(cutoffs, div_val, width):
    embeddings, softmax = layers(11, cutoffs, div_val, width, seed=1)
    x = np.random.default_rng(2).normal(size=(3, 2, 4)).astype("float32")
    found = np.asarray(softmax(x, embeddings=embeddings))
    assert found.shape == (3, 2, 11)
    np.testing.assert_allclose(np.exp(found).sum(-1), 1, rtol=1e-5)


def test_the_heads_projection_is_its_own_and_those_of_the_tails_are_the_inputs():
    embeddings, softmax = layers(11, (3, 7), 2, None, seed=1)
    paths = [weight.path for weight in softmax.weights]
    assert sorted(paths) == [
        f"output/{name}" for name in ("bias_0", "bias_1", "bias_2", "projection/kernel", "tail_bias", "tail_kernel")
    ]
    x = ops.ones((1, 1, 4))
    (head, *_), (tail, table, bias), _ = softmax.parts(x, embeddings)
    np.testing.assert_allclose(head, softmax.projection(x))
    np.testing.assert_allclose(tail, np.asarray(x) @ np.asarray(embeddings.projections[1].kernel).T, rtol=1e-6)
    assert (table.shape, bias.shape) == ((4, 2), (4,))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"adaptive.cutoffs": (20, 20)},
            "^adaptive.cutoffs must ascend between 0 and embeddings.vocabulary 60. Received: 20, 20$",
        ),
        ({"adaptive.cutoffs": (20, 60)}, "^adaptive.cutoffs must ascend .*vocabulary 60. Received: 20, 60$"),
        ({"adaptive.cutoffs": (0, 20)}, "^adaptive.cutoffs must ascend .*vocabulary 60. Received: 0, 20$"),
        ({"adaptive.div_val": 0}, "^adaptive.div_val must be at least 1 and leave .* Received: 0$"),
        (
            {"adaptive.cutoffs": (20, 40), "adaptive.div_val": 3},
            r"^adaptive.div_val .* last of 3 clusters a number of 4 \(em",
        ),
    ],
)
def test_clusters_that_cannot_be_are_refused(changes, message):
    _, spec = registry.find("transformer-xl/base")
    with pytest.raises(InputError, match=message):
        spec.derive(SIZES | {"embeddings.vocabulary": 60} | changes)


def test_the_usual_cutoffs_are_those_below_the_vocabulary():
    assert [end for _, end in Adaptive().borders(267735)] == [20000, 40000, 200000, 267735]
    assert Adaptive().borders(20000) == [(0, 20000)]


def test_clusters_with_tables_of_their_own_have_no_one_table():
    embeddings, _ = layers(11, (3, 7), 2)
    with pytest.raises(
        InputError, match=r"^3 clusters of tokens have a table each, expected one table: set adaptive.div_val=1$"
    ):
        _ = embeddings.tokens

"""Embeddings by hand: tables by arange, their squares where a norm follows (rows by arange differ by a constant)."""

import numpy as np
import tensorflow as tf

from kerasbert.layers.embeddings import Embeddings, Table
from kerasbert.spec import Spec

SPEC = Spec().derive(
    {
        "hidden": 2,
        "attention.heads": 1,
        "embeddings.vocabulary": 5,
        "embeddings.positions": 4,
        "embeddings.segments": 2,
        "epsilon": 4.0,
        "dropout": 0.0,
    }
)


def rows(count: int, scale: float = 1.0, power: int = 1) -> np.ndarray:
    """[0, 1], [2, 3], ... to a power."""
    return scale * np.arange(2.0 * count).reshape(count, 2) ** power


def embeddings(spec, power: int = 1) -> Embeddings:
    """Tokens 0, 1, ...; positions tens of it; segments hundreds."""
    made = Embeddings(spec)
    made.build()
    made.tokens.table.assign(rows(5, power=power))
    made.positions.table.assign(rows(spec.embeddings.positions, 10))
    if spec.embeddings.segments:
        made.segments.table.assign(rows(2, 100))
    return made


def test_a_table():
    table = Table(3, 2)
    table.build()
    table.table.assign(rows(3))
    np.testing.assert_array_equal(table(np.array([[2, 0]])), [[[4, 5], [0, 1]]])


def test_rows_of_mixed_tables_are_cast_and_not_the_tables():
    layer = Embeddings(SPEC.derive({"embeddings.vocabulary": 50}), dtype="mixed_bfloat16")
    layer.build()
    function = tf.function(lambda ids: layer(ids, ids)).get_concrete_function(tf.TensorSpec((3, 4), tf.int32))
    cast = [each.inputs[0].shape for each in function.graph.get_operations() if each.type == "Cast"]
    assert (3, 4, 2) in cast
    assert (50, 2) not in cast
    ids, x = tf.ones((3, 4), tf.int32), layer.tokens(tf.ones((3, 4), tf.int32))
    assert layer(ids, ids).dtype == x.dtype == tf.bfloat16
    np.testing.assert_array_equal(x[0, 0], tf.cast(layer.tokens.table.value[1], tf.bfloat16))


def test_token_position_and_segment_are_added():
    """In front of pre-norm blocks nothing is normalised."""
    layer = embeddings(SPEC.derive({"blocks.norm": "pre"}))
    # tokens 3, 0, 4 at positions 0, 1, 2 of segments 0, 0, 1
    sums = [[6 + 0 + 0, 7 + 10 + 100], [0 + 20 + 0, 1 + 30 + 100], [8 + 40 + 200, 9 + 50 + 300]]
    np.testing.assert_array_equal(layer(np.array([[3, 0, 4]]), np.array([[0, 0, 1]])), [sums])
    # positions that are given: 2, 2, 0; without segments all tokens are of the first
    sums = [[6 + 40, 7 + 50 + 100], [0 + 40, 1 + 50 + 100], [8 + 0, 9 + 10 + 100]]
    np.testing.assert_array_equal(layer(np.array([[3, 0, 4]]), position_ids=np.array([[2, 2, 0]])), [sums])


def test_positions_may_begin_further_on():
    """RoBERTa's begin at 2: rows [40, 50], [60, 70]."""
    changes = {"blocks.norm": "pre", "embeddings.segments": 0, "embeddings.offset": 2, "embeddings.positions": 6}
    layer = embeddings(SPEC.derive(changes))
    expected = [[[6 + 40, 7 + 50], [0 + 60, 1 + 70]]]
    np.testing.assert_array_equal(layer(np.array([[3, 0]])), expected)
    np.testing.assert_array_equal(layer(np.array([[3, 0]]), position_ids=np.array([[0, 1]])), expected)


def test_the_sum_is_normalised():
    layer = embeddings(SPEC.derive({"embeddings.segments": 0}), power=2)
    layer.norm.gamma.assign([1, 2])
    layer.norm.beta.assign([5, 6])
    # tokens 1 and 2: [4, 9] + [0, 10], [16, 25] + [20, 30]; half of the differences 15 and 19, epsilon 4
    a, b = 7.5 / (7.5**2 + 4) ** 0.5, 9.5 / (9.5**2 + 4) ** 0.5
    expected = [[[5 - a, 6 + 2 * a], [5 - b, 6 + 2 * b]]]
    np.testing.assert_allclose(layer(np.array([[1, 2]])), expected, rtol=1e-6)


def test_narrow_embeddings_are_projected():
    changes = {"blocks.norm": "pre", "embeddings.segments": 0, "embeddings.width": 2, "hidden": 3}
    layer = embeddings(SPEC.derive(changes))
    layer.projection.kernel.assign(np.arange(6.0).reshape(2, 3))
    layer.projection.bias.assign([1, 2, 3])
    # [6, 7] + [0, 10] = [6, 17]: 6*[0, 1, 2] + 17*[3, 4, 5] + [1, 2, 3]
    np.testing.assert_array_equal(layer(np.array([[3]])), [[[52, 76, 100]]])

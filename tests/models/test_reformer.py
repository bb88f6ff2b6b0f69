"""Reformer: counts, axial positions, the reversible stack of a model, what is refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasbert import models, registry
from kerasbert.errors import InputError
from kerasbert.layers import random
from kerasbert.testing import battery
from kerasbert.testing.objectives import check_micro_batches
from tests.support import close

FAMILY = registry.family("reformer")
TINY = {
    "embeddings.width": 12,
    "hidden": 24,
    "embeddings.vocabulary": 50,
    "embeddings.positions": 36,
    "attention.head_size": 5,
    "feedforward.width": 20,
    "blocks.layers": 3,
    "lsh.chunk": 4,
    "lsh.buckets": (2, 4),
    "lsh.rounds": 2,
    "local.chunk": 6,
    "axial.shape": (4, 9),
}


def made(**changes):
    keras.utils.set_random_seed(1)
    encoder = FAMILY.encoder(FAMILY.spec.derive(TINY | changes))
    encoder.build()
    generator = np.random.default_rng(0)
    for weight in encoder.weights:
        if weight.path.endswith(("kernel", "table")):
            weight.assign(generator.normal(0, 0.3, weight.shape))
    return encoder


IDS = np.random.default_rng(0).integers(0, 50, (3, 17)).astype("int32")


def test_parameters_are_those_of_the_released_models():
    assert models.parameters(FAMILY.encoder, FAMILY.size("enwik8")) == 148_654_080
    # 6 layers: 3 x 4 + 3 x 3 maps of 256 x 128, feed-forward of 512, norms; positions 512 x 64 + 1,024 x 192
    maps, inner, norms = (12 + 9) * 256 * 128, 6 * (2 * 256 * 512 + 512 + 256), 6 * 4 * 256 + 2 * 512
    expected = 320 * 256 + 512 * 64 + 1024 * 192 + maps + inner + norms
    assert models.parameters(FAMILY.encoder, FAMILY.spec) == expected == 2_584_064


def test_a_position_is_its_row_and_its_column():
    encoder = made()
    positions = encoder.embeddings.positions
    found = np.asarray(positions(None, np.array([[0, 10, 35]])))[0]
    row, column = positions.row_table.numpy()[:, 0], positions.column_table.numpy()[0]
    expected = [np.concatenate([row[i], column[j]]) for i, j in ((0, 0), (1, 1), (3, 8))]
    np.testing.assert_array_equal(found, expected)


def test_tables_of_rows_and_columns_begin_with_numbers_of_their_own():
    encoder = FAMILY.encoder(FAMILY.spec.derive(TINY))
    encoder.build()
    tables = [getattr(encoder.embeddings.positions, f"{axis}_table").numpy() for axis in ("row", "column")]
    assert not np.intersect1d(*tables).size


def gradients(encoder, keeps, ids=IDS, rows=range(3)):
    encoder.keeps_hidden = keeps
    with random.scope(tf.constant([3, 4], tf.uint32), tf.constant(list(rows))), tf.GradientTape() as tape:
        outputs = encoder({"token_ids": ids}, training=True)
        assert ("hidden" in outputs) == keeps
        loss = tf.reduce_mean(outputs["sequence"] ** 2 * tf.range(24.0))
    return [loss, *tape.gradient(loss, [weight.value for weight in encoder.weights])]


def test_a_model_has_the_gradients_of_one_that_keeps_everything():
    encoder = made(dropout=0.2, **{"attention.dropout": 0.1, "lsh.dropout": 0.1, "reversible.chunk": 5})
    for one, other in zip(gradients(encoder, False), gradients(encoder, True), strict=True):
        one, other = (np.asarray(tf.convert_to_tensor(x)) for x in (one, other))
        # the inputs are worked out again to their last digits, of which a norm of small numbers magnifies what is missing
        assert np.abs(one - other).max() <= 1e-5 * max(1.0, np.abs(other).max())


@pytest.mark.full  # 40 s
def test_any_accumulation_makes_the_same_updates(tmp_path):
    """Rotations are drawn by the update, not by the micro-batch, dropout by the row."""
    subject = battery.Subject("reformer", tmp_path)

    def trained():
        return subject.program(subject.encoder()), subject

    check_micro_batches(trained, counts=(1, 2, 8), steps=2)


def test_pieces_of_the_feed_forward_change_nothing():
    whole, pieces = made(), made(**{"reversible.chunk": 5})
    close(pieces({"token_ids": IDS})["sequence"], whole({"token_ids": IDS})["sequence"])


def test_an_earlier_token_sees_no_later_one_where_layers_are_local():
    """Of layers that hash a later token may change who shares a chunk, never what is read."""
    encoder = made(**{"reversible.kinds": ("local",)})
    later = IDS.copy()
    later[:, 11] += 1
    one, other = (np.asarray(encoder({"token_ids": ids % 50})["sequence"]) for ids in (IDS, later))
    np.testing.assert_array_equal(one[:, :11], other[:, :11])
    assert np.abs(one[:, 11:] - other[:, 11:]).max() > 1e-3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": 25}, "hidden 25 must be twice embeddings.width 12"),
        ({"axial.widths": (4, 9)}, r"axial.widths \[4, 9\] must be two that make embeddings.width 12"),
        ({"axial.shape": (4, 0)}, r"axial.shape must be two sizes of at least 1. Received: \[4, 0\]"),
        ({"lsh.buckets": 7}, "lsh.buckets must be even, for a direction and its opposite. Received: 7"),
        ({"lsh.chunk": 0}, "lsh.chunk must be at least 1 token. Received: 0"),
        ({"local.chunk": -1}, "local.chunk must be at least 1 token. Received: -1"),
        ({"reversible.kinds": ("full",)}, r"reversible.kinds must be of local, lsh. Received: \['full'\]"),
        ({"lsh.after": 1}, r"lsh.after is 1, expected 0 where a token sees none behind it \(attention.causal\)"),
        ({"blocks.norm": "post"}, "blocks.norm 'post', blocks.share 'none': a reversible stack has 'pre', 'none'"),
        ({"lsh.rounds": 0}, "lsh.rounds must be at least 1. Received: 0"),
        ({"pals.width": 24}, "pals.width 24: projected attention layers read one stream"),
    ],
)
def test_what_no_reformer_is(changes, message):
    with pytest.raises(InputError, match=message):
        FAMILY.spec.derive(TINY | changes)


def test_a_length_that_the_axes_do_not_make():
    with pytest.raises(InputError, match="token_ids has length 37, expected at most 36: .* axial.shape 4 x 9"):
        made()({"token_ids": np.zeros((1, 37), "int32")})

"""BERT: counts, shapes, relations. Parity with the authors is in tests/checkpoints."""

import json

import keras
import numpy as np
import pytest

from kerasbert import models, registry
from kerasbert.layers.naming import names
from kerasbert.models.bert import Encoder
from kerasbert.spec import Spec
from tests.support import shared

COUNTS = {  # transformers' BertModel with pooler
    "bert/tiny": 4385920,
    "bert/mini": 11170560,
    "bert/small": 28763648,
    "bert/medium": 41373184,
    "bert/base": 109482240,
    "bert/base-cased": 108310272,
    "bert/base-chinese": 102267648,
    "bert/large": 335141888,
    "mbert/base-cased": 177853440,
    "mbert/base-uncased": 167356416,
}
SMALL = {
    "hidden": 40,
    "embeddings.vocabulary": 101,
    "embeddings.positions": 19,
    "attention.heads": 5,
    "feedforward.width": 37,
    "blocks.layers": 3,
}


@pytest.fixture(scope="module")
def encoder():
    keras.utils.set_random_seed(1)
    made = Encoder(Spec().derive(SMALL | {"initializer": 0.3}))
    made.build()
    return made


def inputs(rows=2, length=9, seed=0):
    generator = np.random.default_rng(seed)
    mask = np.ones((rows, length), "int32")
    mask[0, length - 3 :] = 0
    ids = generator.integers(0, 101, (rows, length)).astype("int32")
    return {
        "token_ids": ids,
        "padding_mask": mask,
        "segment_ids": generator.integers(0, 2, (rows, length)).astype("int32"),
    }


def count(name):
    family, spec = registry.find(name)
    return models.parameters(family.encoder, spec)


@pytest.mark.parametrize("name", COUNTS)
def test_parameters_are_the_papers(name):
    assert count(name) == COUNTS[name]


def test_parameters_equal_the_shared_reference():
    """Of the index, whose counts test_cli makes again."""
    reference = json.loads(shared("papers/reference_counts.json").read_text())
    found = {name.split()[0]: entry["parameters"] for name, entry in reference.items()}
    mine = {row["name"]: row["parameters"] for row in registry.shipped()["models"] if row["name"] in found}
    assert len(mine) >= 23
    assert mine == {name: found[name] for name in mine}


def test_counting_leaves_nothing_to_be_allocated_later():
    import resource

    count("bert/large")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with keras.StatelessScope():  # as in `fit`: when it ends, Keras gives memory to all that waits for it
        pass
    # BERT-large takes 1.3 GB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 100_000


def test_weight_names_are_public(encoder):
    block = [
        f"{part}/{leaf}"
        for part in ("attention/query", "attention/key", "attention/value", "attention/output")
        for leaf in ("kernel", "bias")
    ]
    block += [f"feedforward/{part}/{leaf}" for part in ("inner", "outer") for leaf in ("kernel", "bias")]
    block += [f"{part}_norm/{leaf}" for part in ("attention", "feedforward") for leaf in ("gamma", "beta")]
    expected = {f"embeddings/{table}/table" for table in ("tokens", "positions", "segments")}
    expected |= {"embeddings/norm/gamma", "embeddings/norm/beta", "pooler/kernel", "pooler/bias"}
    expected |= {f"block_{i}/{name}" for i in range(3) for name in block}
    assert set(names(encoder)) == expected


def test_shapes(encoder):
    outputs = encoder(inputs(), attention=True)
    assert outputs["sequence"].shape == (2, 9, 40)
    assert outputs["pooled"].shape == (2, 40)
    assert [h.shape for h in outputs["hidden"]] == [(2, 9, 40)] * 4
    assert [a.shape for a in outputs["attention"]] == [(2, 5, 9, 9)] * 3


def test_padding_changes_nothing_and_is_never_seen(encoder):
    long, short = inputs(), {name: value[:1, :6] for name, value in inputs().items()}
    other = dict(long, token_ids=np.where(long["padding_mask"] == 1, long["token_ids"], 7))
    seen = np.asarray(encoder(long)["sequence"])
    np.testing.assert_allclose(seen[0, :6], np.asarray(encoder(short)["sequence"])[0], atol=1e-5)
    np.testing.assert_array_equal(seen[0, :6], np.asarray(encoder(other)["sequence"])[0, :6])
    assert (np.asarray(encoder(long, attention=True)["attention"])[:, 0, :, :, 6:] < 1e-20).all()


def test_the_first_token_alone_is_the_same(encoder):
    whole, first = encoder(inputs()), encoder(inputs(), queries="first")
    assert first["sequence"].shape == (2, 1, 40)
    np.testing.assert_allclose(first["pooled"], whole["pooled"], atol=1e-5)


def test_positions_are_counted_when_not_given(encoder):
    given = dict(inputs(), position_ids=np.tile(np.arange(9, dtype="int32"), (2, 1)))
    np.testing.assert_array_equal(encoder(given)["sequence"], encoder(inputs())["sequence"])
    no_segments = {name: value for name, value in inputs().items() if name != "segment_ids"}
    zeros = dict(inputs(), segment_ids=np.zeros((2, 9), "int32"))
    np.testing.assert_allclose(encoder(no_segments)["sequence"], encoder(zeros)["sequence"], atol=1e-6)


def test_too_long_an_input_is_refused(encoder):
    with pytest.raises(ValueError, match=r"token_ids has length 20, expected at most 19 \(embeddings.positions\)"):
        encoder(inputs(length=20))


def test_every_weight_receives_a_gradient(encoder):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        outputs = encoder(inputs(length=19, rows=8))
        loss = tf.reduce_sum(outputs["sequence"] ** 3) + tf.reduce_sum(outputs["pooled"] ** 2)
    variables = {name: variable.value for name, variable in names(encoder).items()}
    gradients = dict(zip(variables, tape.gradient(loss, list(variables.values()))))
    assert [name for name, gradient in gradients.items() if gradient is None] == []
    dead = [name for name, g in gradients.items() if not np.abs(tf.convert_to_tensor(g)).max() > 1e-6]
    # a key bias adds the same number to all scores of a query: softmax does not see it
    assert [name for name in dead if not name.endswith("key/bias")] == []


def test_bfloat16_is_near_float32():
    spec = Spec().derive(SMALL)
    keras.utils.set_random_seed(1)
    plain = Encoder(spec)
    plain.build()
    half = Encoder(spec, dtype="mixed_bfloat16")
    half.build()
    half.set_weights(plain.get_weights())
    y = half(inputs())["sequence"]
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"
    np.testing.assert_allclose(keras.ops.cast(y, "float32"), plain(inputs())["sequence"], atol=0.15)


@pytest.mark.slow
def test_it_works_in_a_users_own_fit():
    keras.utils.set_random_seed(1)
    encoder = Encoder(Spec().derive(SMALL | {"blocks.layers": 1}))

    class Mean(keras.Model):
        def __init__(self):
            super().__init__()
            self.encoder, self.dense = encoder, keras.layers.Dense(1)

        def call(self, x, training=False):
            return self.dense(self.encoder(x, training=training)["pooled"])

    model = Mean()
    model.compile(optimizer=keras.optimizers.Adam(3e-3), loss="mse")
    x, y = inputs(rows=16), (np.arange(16) % 2).astype("float32")[:, None]
    history = model.fit(x, y, epochs=5, batch_size=8, verbose=0).history["loss"]
    assert history[-1] < history[0]

"""SpanBERT: the boundary of a span, by hand and against plain loops; its head worked out in numpy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert.checkpoints import read_tensors
from kerasbert.checkpoints.directory import save_model
from kerasbert.layers.naming import names
from kerasbert.models.spanbert import PLACES, SPANBERT, SpanBertPretraining
from kerasbert.objectives.boundary import boundaries
from kerasbert.objectives.masked_lm import MaskedLM
from tests import tiny
from tests.checkpoints.reference import gelu, norm
from tests.data import corpus
from tests.objectives.test_packed import features


def boundary_of(positions, weights, length=12, places=PLACES):
    batch = {
        "token_ids": tf.zeros([len(positions), length], tf.int32),
        "mlm_positions": tf.constant(positions, tf.int32),
        "mlm_weights": tf.constant(weights, tf.float32),
    }
    return {name: value.numpy().tolist() for name, value in boundaries(batch, places).items()}


def test_boundaries_by_hand():
    # masked: 2 3 4 | 6 | 9 10; unused places have position 0
    found = boundary_of([[2, 3, 4, 6, 9, 10, 0], [0] * 7], [[1] * 6 + [0], [0] * 7])
    assert found["sbo_left"] == [[1, 1, 1, 5, 8, 8, 0], [0] * 7]
    assert found["sbo_right"] == [[5, 5, 5, 7, 11, 11, 0], [0] * 7]
    assert found["sbo_places"] == [[0, 1, 2, 0, 0, 1, 0], [0] * 7]
    assert found["sbo_weights"] == [[1.0] * 6 + [0.0], [0.0] * 7]
    # places farther inside than the head knows are not predicted; unused ones may stand between
    found = boundary_of([[2, 0, 3, 4]], [[1, 0, 1, 1]], places=2)
    assert found["sbo_weights"] == [[1.0, 0.0, 1.0, 0.0]]
    assert found["sbo_places"] == [[0, 0, 1, 0]]


@pytest.fixture(scope="module")
def program():
    keras.utils.set_random_seed(1)
    tokenizer = corpus.tokenizer()
    small = {"embeddings.vocabulary": tokenizer.size, "initializer": 0.3, "dropout": 0.0}
    encoder = SPANBERT.encoder(SPANBERT.spec.derive(tiny.SPEC | small))
    encoder.build()
    return SpanBertPretraining(encoder, tokenizer, seed=3)


def rows(count=64, length=32, packed=False):
    """Random ordinary tokens; packed: two pieces and padding."""
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 205, (count, length))
    ids[:, 0], ids[:, length - 1] = 2, 3
    total = np.full(count, length)
    if packed:
        ids[:, 12:14] = 3, 2
        ids[:, 24], ids[:, 25:] = 3, 0
        total[:] = 25
    return features(ids, total, np.full(count, 1 + packed))


@pytest.mark.parametrize("packed", [False, True])
def test_boundaries_are_seen_and_of_the_same_piece(program, packed):
    given = rows(packed=packed)
    batch = {name: value.numpy() for name, value in program.prepare(given).items()}
    chosen = batch["sbo_weights"] == 1
    assert chosen.sum() > 200
    masked = np.zeros(batch["token_ids"].shape, bool)
    for row, position in zip(*np.nonzero(batch["mlm_weights"] == 1)):
        masked[row, batch["mlm_positions"][row, position]] = True
    for row, place in zip(*np.nonzero(chosen)):
        position = batch["mlm_positions"][row, place]
        left, right = batch["sbo_left"][row, place], batch["sbo_right"][row, place]
        assert left < position < right
        assert not masked[row, left]
        assert not masked[row, right]
        assert masked[row, left + 1 : right].all()
        assert batch["sbo_places"][row, place] == position - left - 1
        assert batch["packed_ids"][row, left] == batch["packed_ids"][row, right] == batch["packed_ids"][row, position]
    assert (batch["sbo_weights"] == batch["mlm_weights"]).mean() > 0.99


def test_the_head_by_hand(program):
    head = program.model.heads["sbo"]
    weights = {name.removeprefix("heads/sbo/"): v for name, v in names(program.model).items() if "/sbo/" in name}
    w = {name: keras.ops.convert_to_tensor(v).numpy().astype("float64") for name, v in weights.items()}
    assert {name: v.shape for name, v in w.items()} == {
        "places/table": (20, 200),
        "inner/kernel": (232, 16),
        "transform/kernel": (16, 16),
        "bias": (205,),
        **dict.fromkeys(("inner/bias", "inner_norm/gamma", "inner_norm/beta"), (16,)),
        **dict.fromkeys(("transform/bias", "norm/gamma", "norm/beta"), (16,)),
    }
    rng = np.random.default_rng(1)
    left, right, table = (rng.normal(size=shape).astype("float32") for shape in ((2, 3, 16), (2, 3, 16), (205, 16)))
    places = np.array([[0, 1, 2], [0, 0, 19]], "int32")
    x = np.concatenate([left, right, w["places/table"][places]], -1) @ w["inner/kernel"] + w["inner/bias"]
    x = norm(gelu(x), w["inner_norm/gamma"], w["inner_norm/beta"])
    x = norm(gelu(x @ w["transform/kernel"] + w["transform/bias"]), w["norm/gamma"], w["norm/beta"])
    np.testing.assert_allclose(head(left, right, places, table), x @ table.T + w["bias"], atol=1e-4)


def test_losses_and_counts(program):
    assert program.packing == "full"
    assert program.scales == {"mlm": 1.0, "sbo": 1.0}
    assert (program.settings.select, program.settings.render) == ("spans", "span")
    batch = program.prepare(rows(8))
    sums, counts = program.losses(batch, training=False), program.counts(batch)
    assert set(sums) == {"mlm", "mlm/accuracy", "sbo", "sbo/accuracy"}
    assert float(counts["mlm"]) == float(counts["sbo"]) == 8 * 5  # 15% of 32
    # the label of the span boundary is the masked token: with its logits, the loss is
    outputs = program.model(batch)
    nats = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["mlm_labels"], outputs["sbo_logits"])
    assert float(sums["sbo"]) == pytest.approx(float(tf.reduce_sum(nats)), rel=1e-5)


def test_every_weight_of_the_head_learns(program):
    batch = program.prepare(rows(16))
    variables = {name: variable.value for name, variable in names(program.model).items() if "/sbo/" in name}
    with tf.GradientTape() as tape:
        loss = program.losses(batch)["sbo"]
    found = dict(zip(variables, tape.gradient(loss, list(variables.values()))))
    assert all(np.abs(tf.convert_to_tensor(g)).max() > 1e-4 for g in found.values())


def test_the_head_is_left_out_on_export(program, tmp_path):
    save_model(tmp_path / "run", encoder=program.model.encoder, name="spanbert/base", heads=program.model.heads)
    ours = read_tensors(tmp_path / "run").names()
    assert any(name.startswith("heads/sbo/") for name in ours)
    for target in ("hf", "tf1"):
        kb.export_checkpoint(tmp_path / "run", tmp_path / target, target)
        kb.import_checkpoint(tmp_path / target, target, "spanbert", out=tmp_path / f"back-{target}")
        assert set(read_tensors(tmp_path / f"back-{target}").names()) == {n for n in ours if "/sbo/" not in n}


def test_other_selections_have_boundaries_too(program):
    other = SpanBertPretraining(program.model.encoder, program.tokenizer, settings=MaskedLM(select="tokens"))
    batch = other.prepare(rows(8))
    assert (batch["sbo_weights"].numpy() == batch["mlm_weights"].numpy()).all()

"""DeBERTaV3: gradient-disentangled embedding sharing, its generator, what a run leaves."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.layers import random
from kerasbert.layers.naming import names
from kerasbert.models.deberta_v2 import DEBERTA_V2
from kerasbert.models.deberta_v3 import DEBERTA_V3, DebertaV3Pretraining, of_generator
from kerasbert.models.electra import RTD_WEIGHT
from kerasbert.registry import family
from tests import tiny
from tests.models.test_electra import TOKENIZER, features

SMALL = {
    "hidden": 12,
    "attention.heads": 3,
    "feedforward.width": 10,
    "blocks.layers": 4,
    "embeddings.vocabulary": 61,
    "embeddings.positions": 24,
    "relative.buckets": 4,
    "relative.distance": 9,
    "dropout": 0.0,
    "initializer": 0.3,
}
SHARED, DELTA, TOTAL = "embeddings/tokens/table", "heads/gdes/delta", "heads/gdes/total"


def program():
    keras.utils.set_random_seed(1)
    encoder = DEBERTA_V3.encoder(DEBERTA_V3.spec.derive(SMALL))
    encoder.build()
    return DebertaV3Pretraining(encoder, TOKENIZER)


@pytest.fixture
def made():
    return program()


def gradients(made, batch, loss):
    """Name -> gradient of one loss, zeros where there is none."""
    weights = {name: weight for name, weight in names(made.model).items() if weight.trainable}
    with random.scope(random.key(0, "test"), batch["row"]), tf.GradientTape() as tape:
        value = made.losses(batch)[loss]
    zero = tf.UnconnectedGradients.ZERO
    found = tape.gradient(value, [weight.value for weight in weights.values()], unconnected_gradients=zero)
    return {name: tf.convert_to_tensor(gradient).numpy() for name, gradient in zip(weights, found)}


def test_the_discriminators_loss_does_not_move_the_shared_table(made):
    """Section 3.3: E_G gets the gradient of the generator's loss alone, E_delta that of the discriminator's alone."""
    batch = made.prepare(features())
    of_generator, of_discriminator = (gradients(made, batch, loss) for loss in ("mlm", "rtd"))
    assert not of_discriminator[SHARED].any()
    assert np.abs(of_discriminator[DELTA]).max() > 1e-3
    assert not of_generator[DELTA].any()
    assert np.abs(of_generator[SHARED]).max() > 1e-3
    for name, gradient in of_discriminator.items():
        assert not (name.startswith("heads/generator/") and gradient.any()), name
    for name, gradient in of_generator.items():
        own = name == SHARED or name.startswith("heads/generator/")
        assert own or not gradient.any(), name


@pytest.mark.slow
def test_an_update_is_adams_of_two_tables(made):
    """E_G and E_delta in Adam's hands, beside what the encoder's table and the head hold after each update."""
    weights = names(made.model)
    start = weights[SHARED].numpy().copy()
    two = [keras.Variable(start), keras.Variable(np.zeros_like(start))]
    ours, theirs = keras.optimizers.Adam(0.05), keras.optimizers.Adam(0.05)
    trained = [weight for weight in weights.values() if weight.trainable]
    for step in range(2):
        batch = made.prepare(features(seed=step))
        mlm, rtd = (gradients(made, batch, loss) for loss in ("mlm", "rtd"))
        both = [mlm[name] + RTD_WEIGHT * rtd[name] for name, weight in weights.items() if weight.trainable]
        theirs.apply([mlm[SHARED], RTD_WEIGHT * rtd[DELTA]], two)
        ours.apply([tf.constant(gradient) for gradient in both], trained)
        shared, delta = (each.numpy() for each in two)
        np.testing.assert_allclose(weights[TOTAL].numpy(), delta, atol=1e-6)
        np.testing.assert_allclose(weights[SHARED].numpy(), shared + delta, atol=1e-6)
        assert not weights[DELTA].numpy().any()
        head = made.model.heads["gdes"]
        np.testing.assert_allclose(head.of_generator(weights[SHARED]), shared, atol=1e-6)
        np.testing.assert_allclose(head.of_discriminator(weights[SHARED]), shared + delta, atol=1e-6)
    assert np.abs(delta).max() > 0.05


def test_the_discriminator_is_the_encoder_of_the_run(made):
    """What a run leaves is what told replaced tokens, with no rest anywhere."""
    weights, draw = names(made.model), np.random.default_rng(0)
    weights[TOTAL].assign(draw.normal(size=weights[TOTAL].shape))
    batch = made.prepare(features())
    with random.scope(random.key(0, "test"), batch["row"]):
        outputs = made.model(batch)
    alone = made.model.encoder({**batch, "token_ids": outputs["corrupted_ids"]})
    np.testing.assert_allclose(alone["sequence"], outputs["sequence"], atol=1e-5)


def test_the_generator_is_half_as_deep_and_as_wide():
    assert of_generator(DEBERTA_V3.spec).blocks.layers == 6
    assert of_generator(DEBERTA_V3.spec).hidden == DEBERTA_V3.spec.hidden
    assert of_generator(DEBERTA_V3.spec.derive({"blocks.layers": 1})).blocks.layers == 1


def test_every_selected_token_is_masked(made):
    batch = made.prepare(features())
    chosen = batch["mlm_weights"].numpy() > 0
    shown = np.take_along_axis(batch["token_ids"].numpy(), batch["mlm_positions"].numpy(), 1)
    assert set(shown[chosen].tolist()) == {TOKENIZER.mask_id}


@pytest.mark.parametrize(
    ("named", "changes", "message"),
    [
        ("bert", {}, "pretrain a deberta-v3"),
        ("deberta-v2", {"embeddings.kind": "learned"}, "shares the table of tokens alone"),
        ("deberta-v2", {"embeddings.segments": 2}, "shares the table of tokens alone"),
        ("deberta-v2", {"relative.terms": ()}, "relative.terms and relative.norm"),
    ],
)
def test_what_has_no_such_generator_is_refused(named, changes, message):
    spec = family(named).spec.derive((tiny.SPEC if named == "bert" else SMALL) | changes)
    with pytest.raises(InputError, match=message):
        DebertaV3Pretraining(family(named).encoder(spec), tiny.tokenizer())


def test_its_checkpoints_are_deberta_v2s():
    assert DEBERTA_V3.names["hf"] is DEBERTA_V2.names["hf"]
    assert set(DEBERTA_V3.names["hf"].own_heads) == {"emd", "gdes", "generator", "rtd"}

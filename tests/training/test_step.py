"""The step core: one replica = N replicas = any accumulation, dropout on, uneven counts of predictions."""

import hashlib
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasbert.objectives.base import Objective, label_sums
from kerasbert.training.config import TrainConfig
from kerasbert.training.optimizers import make_optimizer
from kerasbert.training.step import StepCore
from tests.support import by_hand, forked, often

LIMIT = 1e-6  # largest weight difference after 10 updates, float32


DEFAULTS = {"strategy": "cpu", "accumulate": 1, "dropout": 0.1, "precision": "float32", "fused": False}


def train(folder, again: bool = False, **settings) -> dict:
    """What the worker wrote; the same settings are trained once, unless `again`."""
    settings = {name: value for name, value in settings.items() if value != DEFAULTS.get(name)}
    out = folder / f"{hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()}{again}.npz"
    if out.exists():
        return dict(np.load(out))
    forked("-m", "tests.training.worker", out, json.dumps(settings))
    return dict(np.load(out))


def distance(one: dict, other: dict) -> float:
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in one if not name.startswith("log/"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("step")


@pytest.fixture(scope="module")
def one(folder):
    return train(folder)


@pytest.mark.slow
def test_two_replicas_with_accumulation_equal_one(folder, one):
    assert distance(one, train(folder, strategy="cpu:2", accumulate=2)) <= LIMIT


@pytest.mark.full
def test_fused_parts_keep_the_equality(folder):
    whole = train(folder, fused=True)
    assert distance(whole, train(folder, fused=True, strategy="cpu:2", accumulate=2)) <= LIMIT


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "limit"), [("mixed_bfloat16", 0.03), *by_hand([("float32", 1e-4)])])
def test_fused_parts_follow_the_plain_graph(folder, precision, limit):
    fast, plain = (train(folder, fused=on, precision=precision)["log/history"] for on in (True, False))
    assert np.abs(fast - plain).max() < limit


@pytest.mark.slow
def test_the_equality_could_fail(folder, one):
    # another dropout seed moves the weights a thousand times further than the limit
    assert distance(one, train(folder, seed=1)) > 1000 * LIMIT


SPLITS = ({"strategy": "cpu:4"}, {"accumulate": 4})  # both at once: test_two_replicas_with_accumulation_equal_one
MORE = ({"strategy": "cpu:2"}, {"strategy": "cpu:2", "accumulate": 4})


@pytest.mark.parametrize(
    ("dropout", "splits"), often([(0.1, SPLITS), (0.1, MORE), (0.0, SPLITS + MORE)], (0.1, SPLITS))
)
def test_any_split_of_the_batch_gives_the_same_weights(folder, dropout, splits):
    whole = train(folder, dropout=dropout)
    for settings in splits:
        assert distance(whole, train(folder, dropout=dropout, **settings)) <= LIMIT, settings


@pytest.mark.slow
def test_a_rerun_is_the_same_to_the_bit(folder, one):
    assert distance(one, train(folder, again=True)) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["cpu", *by_hand(["cpu:2"])])
def test_float16_with_loss_scaling_follows_float32(folder, one, strategy):
    half = train(folder, precision="mixed_float16", strategy=strategy)
    assert np.abs(half["log/history"] - one["log/history"]).max() < 0.02
    assert np.isfinite(distance(one, half))


@pytest.mark.slow
def test_bfloat16_follows_float32(folder, one):
    assert np.abs(train(folder, precision="mixed_bfloat16")["log/history"] - one["log/history"]).max() < 0.05


NAMED = {
    "lamb": {"optimizer": "lamb", "optimizer_options": {"ema": 0.7, "layer_decay": 0.9}, "schedule": "cosine"},
    "adafactor": {"optimizer": "adafactor", "optimizer_options": {"ema": 0.7}, "schedule": "inverse_square_root"},
}


@pytest.mark.parametrize("name", often(NAMED, "lamb"))
def test_every_optimizer_gives_the_same_on_two_replicas(folder, one, name):
    alone = train(folder, optimizer=NAMED[name])
    split = train(folder, optimizer=NAMED[name], strategy="cpu:2", accumulate=2)
    if name == "adafactor":
        # The gradient of a key's bias is 0 but for rounding (softmax), and Adafactor scales any gradient to 1
        biases = [key for key in split if key.endswith("key/bias")]
        assert max(np.abs(alone.pop(key) - split.pop(key)).max() for key in biases) < 1e-5
    assert distance(alone, split) <= LIMIT
    assert max(np.abs(alone[key] - one[key]).max() for key in alone if key in one) > 1000 * LIMIT


class Weighed(Objective):
    """A softmax regression whose rows weigh what the batch says."""

    def __init__(self):
        self.model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
        self.model.set_weights([np.arange(6, dtype="float32").reshape(3, 2) / 10, np.zeros(2, "float32")])
        self.scales = {"label": 1.0}

    def counts(self, batch):
        return {"label": tf.reduce_sum(batch["label_weight"])}

    def losses(self, batch):
        loss, hits = label_sums(self.model(batch["x"]), batch["label"], batch["label_weight"])
        return {"label": loss, "label/accuracy": hits}


def weighed(weights, accumulate=1):
    """Loss, gradient and accuracy of eight rows with these weights of their two labels."""
    draw, label = np.random.default_rng(0), np.arange(8, dtype="int32") % 2
    batch = {"x": draw.normal(size=(8, 3)).astype("float32"), "label": label, "row": np.arange(8, dtype="int32")}
    batch["label_weight"] = np.array(weights, "float32")[label]
    batch["token_ids"] = np.zeros((8, 1), "int32")  # which tells the shape
    program, strategy = Weighed(), tf.distribute.get_strategy()
    core = StepCore(program, make_optimizer(TrainConfig(1, 8, 1e-3)), strategy, accumulate=accumulate, clip=0.0)
    gradients, logs = core._backward({name: tf.constant(value) for name, value in batch.items()})
    return [float(logs["loss"]), float(logs["label/accuracy"]), *(each.numpy() for each in gradients)]


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("scale", [1e-6, 0.01, 100.0])
def test_weights_that_sum_to_anything_give_the_weighted_mean(accumulate, scale):
    """Weights of classes are a ratio: {pos .01, neg .002} is {5, 1}, though a batch of theirs sums below 1."""
    for one, other in zip(weighed((5.0, 1.0)), weighed((5.0 * scale, scale), accumulate)):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_batch_in_which_nothing_counts_changes_nothing():
    loss, accuracy, *gradients = weighed((0.0, 0.0))
    assert loss == 0.0
    assert np.isnan(accuracy)  # what nothing counted for is left out of the log
    assert not any(each.any() for each in gradients)


@pytest.mark.parametrize("clip", [0.0, 1e-3, 1e3])
def test_an_update_is_clipped_the_same_before_it_and_in_its_graph(clip):
    """`step` multiplies by the clip's factor where the norm is too large, `update_once` always."""
    draw, made = np.random.default_rng(0), []
    batch = {"x": draw.normal(size=(8, 3)), "label": np.arange(8) % 2, "label_weight": np.ones(8), "row": np.arange(8)}
    batch = {name: tf.constant(x, tf.float32 if x.dtype.kind == "f" else tf.int32) for name, x in batch.items()}
    batch["token_ids"] = tf.zeros((8, 1), tf.int32)
    for way in ("step", "update_once"):
        program, sgd = Weighed(), keras.optimizers.SGD(1.0)
        core = StepCore(program, sgd, tf.distribute.get_strategy(), clip=clip)
        norm = float(getattr(core, way)(batch)["gradient_norm"])
        made.append(np.concatenate([x.ravel() for x in program.model.get_weights()]))
    np.testing.assert_array_equal(*made)
    change = np.linalg.norm(made[0] - np.append(np.arange(6, dtype="float32") / 10, np.zeros(2)))
    assert change == pytest.approx(clip if 0 < clip < norm else norm, rel=1e-3)


@pytest.mark.full
def test_small_weights_give_the_same_on_any_split(folder, one):
    small = {"weight": 1e-3}  # of a prediction: a batch sums below 1
    assert distance(one, train(folder, **small)) <= LIMIT
    assert distance(one, train(folder, strategy="cpu:2", accumulate=2, **small)) <= LIMIT

"""What every objective has: settings of its own at dotted paths, state that evaluation carries."""

import dataclasses
from types import MappingProxyType

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert.data import Records
from kerasbert.errors import InputError
from kerasbert.objectives.base import Objective, changed
from kerasbert.objectives.bert import MaskedLMPretraining
from kerasbert.objectives.masked_lm import MaskedLM
from kerasbert.training import held_out
from kerasbert.training.held_out import HeldOut
from kerasbert.training.phases import Phase
from kerasbert.training.progress import Means
from kerasbert.training.step import StepCore
from tests import tiny


@dataclasses.dataclass(frozen=True)
class Noise:
    rate: float = 0.1
    kinds: tuple[int, ...] = (1,)


@dataclasses.dataclass(frozen=True)
class Settings:
    noise: Noise = Noise()
    segments: int = 2


class Nested(Objective):
    settings_class = Settings
    defaults = MappingProxyType({"noise.rate": 0.2})


def test_settings_are_a_dataclass_with_dotted_paths():
    spec = kb.build("bert/tiny", **tiny.SPEC).spec
    assert Nested.settings_for(spec) == Settings(Noise(0.2))
    asked = Nested.settings_for(spec, {"noise.rate": 1}, {"noise.kinds": [2, 3], "segments": 4})
    assert asked == Settings(Noise(1.0, (2, 3)), 4)
    assert MaskedLMPretraining.settings_for(spec, {"rate": 0.3}) == MaskedLM(rate=0.3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise.rat": 1.0}, r"the objective has no setting 'noise.rat'\. Nearest: 'noise.rate'"),
        ({"segments": "two"}, "segments must be int. Received: 'two'"),
    ],
)
def test_settings_that_cannot_be(changes, message):
    with pytest.raises(InputError, match=message):
        changed(Settings(), changes)
    with pytest.raises(InputError, match="the objective has no setting 'rate'. There is none"):
        changed(Objective.settings, {"rate": 1.0})


class Distance(Objective):
    """Counts for each row the tokens read before it in its text: state by which a row is told from the same one read first."""

    model, scales = None, MappingProxyType({"read": 1.0})

    def prepare(self, features):
        return {name: features[name] for name in ("token_ids", "segment_lengths", "row")}

    def counts(self, batch):
        return {"read": tf.cast(tf.shape(batch["row"])[0], "float32"), "never": tf.constant(0.0)}

    def losses(self, batch, training=True):
        return self.losses_from(batch, self.empty_state(batch["row"].shape[0]))[0]

    def empty_state(self, rows):
        return {"before": tf.zeros([rows, 1]), "text": tf.zeros([rows], tf.int32)}

    def losses_from(self, batch, state):
        tokens = tf.cast(tf.reduce_sum(batch["segment_lengths"], 1), "float32")
        read = tf.reduce_sum(state["before"][:, 0] * (1.0 + tf.cast(batch["row"], "float32")))
        state = {"before": state["before"] + tokens[:, None], "text": state["text"] + 1}
        return {"read": read, "never": tf.constant(0.0), "never/accuracy": tf.constant(0.0)}, state


def test_evaluation_carries_state_over_the_whole_text_and_counts_every_row_once(tmp_path):
    """By hand: 16 stretches of neighbouring rows, whatever the batch; its filling adds nothing."""
    records = Records(tiny.records(tmp_path, "full"))
    tokens = held_out.first_rows(records, records.examples)["segment_lengths"].numpy().sum(1)
    expected = 0.0
    for stretch in np.array_split(np.arange(records.examples), held_out.STREAMS):
        before = np.cumsum(tokens[stretch]) - tokens[stretch]
        expected += (before * (1 + stretch)).sum()
    assert records.examples % held_out.STREAMS  # so that some columns end before others
    objective = Distance.without_model(None, Distance.settings)
    for batch, accumulate in ((1, 1), (5, 1), (16, 2), (64, 1)):
        phase = Phase(None, "x", batch, accumulate)
        found, _ = HeldOut([phase], [records], objective, seed=0, devices=tf.distribute.get_strategy())(1)
        assert found.keys() == {"held_out/read", "held_out/loss"}  # a loss without targets is left out
        np.testing.assert_allclose(found["held_out/read"], expected / records.examples, rtol=1e-5)


class Two(Objective):
    """A weight that meets two targets; the second counts the rows whose number is above 1."""

    scales = MappingProxyType({"first": 1.0, "second": 2.0})

    def __init__(self):
        self.model = keras.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
        self.model.build((None, 1))

    def counts(self, batch):
        above = tf.reduce_sum(tf.cast(batch["row"] > 1, "float32"))
        return {"first": tf.cast(tf.size(batch["row"]), "float32"), "second": above}

    def losses(self, batch, training=True):
        x = self.model(batch["token_ids"])[:, 0]
        second = tf.where(batch["row"] > 1, tf.square(x), 0.0)
        return {"first": tf.reduce_sum(x), "second": tf.reduce_sum(second), "second/size": tf.reduce_sum(second)}


def test_a_loss_without_a_target_is_in_no_log_and_no_mean():
    def batch(*rows):
        return {"token_ids": tf.ones([2, 1]), "row": tf.constant(rows)}

    objective = Two()
    core = StepCore(objective, keras.optimizers.SGD(0.0), tf.distribute.get_strategy(), clip=0.0)
    means = Means()
    for rows in ((0, 1), (1, 2), (0, 1)):
        logs = core.step(batch(*rows))
        assert not core.nonfinite(logs)
        means.add(logs)
    assert means.read()["second"] == 1.0  # of the one update that has it
    absent = Means()
    absent.add(core.step(batch(0, 1)))
    assert absent.read().keys() == {"first", "loss", "gradient_norm", "learning_rate"}
    assert absent.read()["loss"] == 1.0
    # several updates in one call of the graph
    many = tf.data.Dataset.from_tensor_slices({"token_ids": tf.ones([3, 2, 1]), "row": [[0, 1], [1, 2], [0, 1]]})
    logs = core.loop(iter(many), tf.constant(3))
    assert [float(logs[name]) for name in ("first", "second", "second/size")] == [1.0, 1.0, 1.0]
    assert float(logs["loss"]) == pytest.approx((1 + 3 + 1) / 3)
    absent.reset()
    absent.add(core.loop(iter(many.take(1).repeat(2)), tf.constant(2)), 2)
    assert "second" not in absent.read()


def test_a_number_that_is_no_number_is_still_found():
    objective = Two()
    core = StepCore(objective, keras.optimizers.SGD(0.0), tf.distribute.get_strategy(), clip=0.0)
    logs = core.step({"token_ids": tf.constant([[1.0], [np.nan]]), "row": tf.constant([0, 1])})
    assert core.nonfinite(logs)

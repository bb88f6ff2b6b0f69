"""Keras callbacks in a fine-tuning: the moments and the logs of `fit`, by hand and in a run."""

import keras
import pytest

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.training.callbacks import Callbacks, check


class Log(keras.callbacks.Callback):
    def __init__(self, stop=-1):
        super().__init__()
        self.said, self.stop = [], stop

    def on_train_begin(self, logs=None):
        self.said.append("begin")

    def on_epoch_begin(self, epoch, logs=None):
        self.said.append(f"epoch {epoch}")

    def on_train_batch_end(self, batch, logs=None):
        self.said.append((batch, logs))

    def on_epoch_end(self, epoch, logs=None):
        self.said.append((f"end {epoch}", logs))
        self.model.stop_training = epoch == self.stop

    def on_train_end(self, logs=None):
        self.said.append("done")


def run(log, first: int, steps: int = 5, epoch: int = 2):
    """Updates from `first` on, of loss 1, 2, 3 and so on; an evaluation after each epoch."""
    model, optimizer = keras.Sequential([keras.layers.Dense(1)]), keras.optimizers.SGD(0.5)
    made = Callbacks([log], model, optimizer, epoch, steps)
    made.begin(first)
    for step in range(first, steps):
        made.before_updates(step)
        assert model.optimizer is optimizer
        made.after_updates(step + 1, {"loss": step + 1.0, "label": 0.0, "label/accuracy": 0.5}, 1)
        if (step + 1) % epoch == 0:
            made.evaluated({"dev/accuracy": 0.25})
        if made.after_epoch(step + 1):
            break
    made.end()
    assert "optimizer" not in vars(model)
    return log.said


def test_the_moments_by_hand():
    """5 updates in epochs of 2; the last epoch is of one update, and nothing is measured in it."""
    batch = {"accuracy": 0.5}
    assert run(Log(), 0) == [
        "begin",
        "epoch 0",
        (0, {"loss": 1.0} | batch),
        (1, {"loss": 2.0} | batch),
        ("end 0", {"loss": 1.5, "val_accuracy": 0.25} | batch),
        "epoch 1",
        (0, {"loss": 3.0} | batch),
        (1, {"loss": 4.0} | batch),
        ("end 1", {"loss": 3.5, "val_accuracy": 0.25} | batch),
        "epoch 2",
        (0, {"loss": 5.0} | batch),
        ("end 2", {"loss": 5.0} | batch),
        "done",
    ]


def test_a_run_that_goes_on_counts_its_epochs_on():
    said = [each if isinstance(each, str) else each[0] for each in run(Log(), 3)]
    assert said == ["begin", "epoch 1", 1, "end 1", "epoch 2", 0, "end 2", "done"]


def test_a_callback_ends_the_run():
    assert [each for each in run(Log(stop=0), 0) if isinstance(each, str)] == ["begin", "epoch 0", "done"]


def test_updates_in_one_call_end_with_the_epoch():
    model = keras.Sequential([keras.layers.Dense(1)])
    assert Callbacks([Log()], model, None, 4, 10).until(5) == 8
    assert Callbacks([], model, None, 4, 10).until(5) == 10


def test_what_is_no_callback_is_refused():
    assert check(Log()).__class__ is list
    with pytest.raises(InputError, match="callbacks: 3 is no keras.callbacks.Callback"):
        check([3])
    for kind in (keras.callbacks.ReduceLROnPlateau, keras.callbacks.BackupAndRestore):
        with pytest.raises(InputError, match=f"{kind.__name__} has no place here"):
            check([kind("x")])


def test_the_direction_of_a_metric_is_known():
    for monitor, mode in (("val_loss", "min"), ("val_accuracy", "max"), ("val_mean_squared_error", "min")):
        stopping = keras.callbacks.EarlyStopping(monitor=monitor)
        Callbacks([stopping], keras.Sequential([keras.layers.Dense(1)]), None, 1, 1)
        assert stopping.mode == mode


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of Keras, which writes the file
def test_keras_own_callbacks_in_a_fine_tuning(pretrained, tmp_path):
    """What W&B's and MLflow's callbacks are made of; the checkpoint that one writes answers."""
    rows, log = [(f"good {i}" if i % 2 else f"bad {i}", "pos" if i % 2 else "neg") for i in range(48)], Log()
    callbacks = [
        log,
        keras.callbacks.CSVLogger(str(tmp_path / "log.csv")),
        keras.callbacks.ModelCheckpoint(str(tmp_path / "epoch_{epoch}.keras")),
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=3),
    ]
    settings = {"epochs": 2, "batch": 8, "length": 8, "quiet": True}
    kb.finetune(pretrained, "classification", rows, out=tmp_path / "run", callbacks=callbacks, **settings)
    assert [each[0] for each in log.said if isinstance(each, tuple) and isinstance(each[0], str)] == ["end 0", "end 1"]
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert len(lines) == 3
    assert {"epoch", "loss", "accuracy", "val_accuracy", "val_loss"} <= set(lines[0].split(","))
    model = keras.models.load_model(tmp_path / "epoch_2.keras")
    assert kb.predict(model, "good a")[0].label in ("pos", "neg")

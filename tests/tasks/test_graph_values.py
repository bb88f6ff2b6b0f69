"""A graph's values for rows of any lengths: each row's own, in the order of the rows, whatever the batch."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.tasks import graph_values
from kerasbert.tasks.batches import encode_texts
from kerasbert.tasks.graph_values import run
from tests import tiny

TEXTS = ["the cat", "a dog runs and sees the house", "old", "the very old cat", "a house"]


def own(arrays):
    """Of each token its id and half of it."""
    ids = tf.cast(arrays["token_ids"], tf.float32)
    return tf.stack([ids, ids / 2], -1)


@pytest.fixture(params=[1, 2, 4], ids="{} at once".format)
def most(request, monkeypatch):
    monkeypatch.setattr(graph_values, "at_once", lambda: request.param)
    return request.param


@pytest.mark.parametrize("batch", [1, 2, 5, 64])
def test_values_are_those_of_each_row(batch, most):
    encoded = encode_texts(tiny.tokenizer(), TEXTS, 16)
    ids = [tiny.tokenizer().pack(text)[0] for text in TEXTS]
    found = run(lambda arrays: own(arrays)[:, 1], encoded, 16, batch)
    np.testing.assert_array_equal(found, [[row[1], row[1] / 2] for row in ids])
    for row, value in zip(ids, run(own, encoded, 16, batch, per_token=True)):
        np.testing.assert_array_equal(value, np.stack([row, np.array(row) / 2], -1))


def test_no_rows_have_no_values():
    encoded = encode_texts(tiny.tokenizer(), [], 16)
    assert run(own, encoded, 16, per_token=True) == []
    assert run(own, encoded, 16).shape == (0,)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("number", range(5))
def test_a_value_that_is_not_finite_is_refused_wherever_it_stands(wrong, number, most):
    encoded = encode_texts(tiny.tokenizer(), TEXTS, 16)
    token = tiny.tokenizer().pack(TEXTS[number])[0][-2]

    def damaged(arrays):
        return tf.where(arrays["token_ids"] == token, wrong, 1.0)

    with pytest.raises(InputError, match="the model answers with numbers that are not finite"):
        run(damaged, encoded, 16, 2)


class Watched:
    """A graph that says which calls were made at the same time, in which threads; the first `together` behind one wait for
    each other.
    """

    def __init__(self, together=1, fails=None):
        self.together, self.barrier = together, threading.Barrier(together)
        self.inside, self.tokens, self.most, self.heaviest, self.threads, self.fails = 0, 0, 0, 0, [], fails
        self.lock, self.calls = threading.Lock(), 0

    def __call__(self, arrays):
        size = int(np.prod(arrays["token_ids"].shape))
        with self.lock:
            self.calls += 1
            call, self.inside, self.tokens = self.calls, self.inside + 1, self.tokens + size
            self.most, self.heaviest = max(self.most, self.inside), max(self.heaviest, self.tokens)
            self.threads.append(threading.current_thread())
        if 1 < call <= 1 + self.together:
            self.barrier.wait(60)
        time.sleep(0.004 * (call % 3 == 2))  # longer than those behind it
        with self.lock:
            self.inside, self.tokens = self.inside - 1, self.tokens - size
        if call == self.fails:
            raise RuntimeError("out of memory")
        return own(arrays)[:, 1]


def test_batches_at_once_are_bounded_and_the_first_is_of_the_caller_alone(most):
    encoded, watched = encode_texts(tiny.tokenizer(), TEXTS * 8, 16), Watched(most)
    found = run(watched, encoded, 16, 2)
    ids = [tiny.tokenizer().pack(text)[0][1] for text in TEXTS * 8]
    np.testing.assert_array_equal(found[:, 0], ids)
    assert watched.threads[0] is threading.current_thread()
    assert watched.calls == 20
    assert watched.most == most
    assert len({*watched.threads}) == (most + 1 if most > 1 else 1)


def test_tokens_at_once_are_bounded(monkeypatch):
    monkeypatch.setattr(graph_values, "at_once", lambda: 4)
    encoded = encode_texts(tiny.tokenizer(), ["the cat"] * 20, 16)  # 4 tokens each
    for bound, expected in ((16, 16), (15, 8), (7, 8), (1, 8)):  # one alone may have more
        monkeypatch.setattr(graph_values, "TOKENS", bound)
        run(watched := Watched(expected // 8), encoded, 16, 2)
        assert watched.heaviest == expected


def test_an_error_of_one_batch_is_the_error_of_all(most):
    encoded, watched = encode_texts(tiny.tokenizer(), TEXTS * 8, 16), Watched(fails=4)
    with pytest.raises(RuntimeError, match="out of memory"):
        run(watched, encoded, 16, 2)
    assert watched.calls <= 4 + most + 1
    assert watched.inside == 0
    assert not any(each.name.startswith("batch") for each in threading.enumerate())


@pytest.mark.parametrize("name", graph_values.GIVEN)
@pytest.mark.parametrize(("value", "expected"), [("1", 1), ("2,4", 2), ("9", 4), ("0", 4), ("many", 4), ("", 4)])
def test_the_threads_that_a_user_gives_are_kept(monkeypatch, name, value, expected):
    for other in graph_values.GIVEN:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setattr(graph_values, "available", lambda: 16)
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: [tf.config.LogicalDevice("/device:CPU:0", "CPU")])
    monkeypatch.setenv(name, value)
    assert graph_values.at_once() == expected
    monkeypatch.setattr(graph_values, "available", lambda: 1)
    assert graph_values.at_once() == 1


@pytest.mark.parametrize("devices", [["CPU", "GPU"], ["CPU", "TPU", "TPU"], ["CPU", "CPU"]])
def test_another_device_gets_one_batch_after_another(monkeypatch, devices):
    found = [tf.config.LogicalDevice(f"/device:{kind}:{number}", kind) for number, kind in enumerate(devices)]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: found)
    monkeypatch.setattr(graph_values, "available", lambda: 16)
    for name in graph_values.GIVEN:
        monkeypatch.delenv(name, raising=False)
    assert graph_values.at_once() == 1

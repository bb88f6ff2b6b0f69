"""What holds while a graph is traced, or a model is built, holds in its thread alone: others answer and load meanwhile."""

import threading

import pytest
import tensorflow as tf

from kerasbert import truncation
from kerasbert.adaptation import Lora
from kerasbert.layers import backend, initial, lora, random

EVERY = {
    "serving": (backend.serving, lambda: bool(backend._serving.get())),
    "as_tpu": (backend.as_tpu, lambda: backend.on_tpu()),
    "fusion": (lambda: backend.fusion(True), backend.fusing),
    "unset": (initial.unset, lambda: float(tf.reduce_max(tf.abs(initial.Normal(stddev=1.0)((64,))))) == 0.0),
    "scope": (lambda: random.scope(tf.constant([0, 0], tf.uint32), tf.range(2)), random.scoped),
    "recorded": (random.recorded, lambda: random._tape.get() is not None),
    "truncated": (truncation.truncated, lambda: bool(truncation._counting.get())),
    "lora": (lambda: lora.asked(Lora(), "a"), lambda: lora._asked.get() is not None),
}


@pytest.mark.parametrize("name", EVERY)
def test_two_threads_that_overlap_leave_it_as_it_was(name):
    """The first to leave put back what the second had found: `serving` held for good, and a conversion failed."""
    within, holds = EVERY[name]
    seen, inside, left = {}, threading.Event(), threading.Event()

    def second():
        with within():
            inside.set()
            left.wait(10)
            seen["second"] = holds()

    with within():
        other = threading.Thread(target=second)
        other.start()
        inside.wait(10)
        seen["first"] = holds()
    seen["behind"] = holds()
    left.set()
    other.join()
    assert seen == {"first": True, "behind": False, "second": True}
    assert not holds()


@pytest.mark.parametrize("name", EVERY)
def test_another_thread_does_not_see_it(name):
    within, holds = EVERY[name]
    seen = []
    with within():
        other = threading.Thread(target=lambda: seen.append(holds()))
        other.start()
        other.join()
    assert seen == [False]

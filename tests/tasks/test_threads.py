"""Threads that share one model: options of a call are of that call alone, a graph is traced once."""

import threading
from concurrent.futures import ThreadPoolExecutor

import kerasbert as kb
from kerasbert.tasks import predict
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import Task
from tests import tiny

TEXTS = ["the cat sees a dog", "old stone", "the film"] * 2
ASKED = [None, {"thresholds": [0.1, 0.1]}, {"thresholds": [0.9, 0.9]}]


def labelling():
    encoder = kb.build("bert/tiny", **tiny.SPEC, **{"embeddings.vocabulary": tiny.tokenizer().size})
    encoder.tokenizer = tiny.tokenizer()
    model = TaskModel(encoder, Task("mine", "multi_label", labels={"a": "a", "b": "b"}, length=16))
    model.build()
    return model


def test_options_of_a_call_are_seen_by_no_other_thread():
    """One thread put its options into the model and another put them back: an answer, or every later one, had them."""
    model = labelling()
    expected = [kb.predict(model, TEXTS, options=options) for options in ASKED]
    assert expected[1] != expected[2]
    own, inside = model.declaration, threading.Event()
    with ThreadPoolExecutor(4) as pool:
        with model.asked(ASKED[1]):
            assert model.declaration.options["thresholds"] == model.kind.options["thresholds"] == [0.1, 0.1]
            assert pool.submit(lambda: model.declaration).result() is own
            assert pool.submit(kb.predict, model, TEXTS).result() == expected[0]

        def holding():
            with model.asked(ASKED[2]):
                inside.set()
                return kb.predict(model, TEXTS, options=ASKED[1])

        held = pool.submit(holding)
        inside.wait(60)
        assert kb.predict(model, TEXTS) == expected[0]
        assert held.result() == expected[1]
        several = [*pool.map(lambda options: kb.predict(model, TEXTS, options=options), ASKED * 4)]
    assert several == expected * 4
    assert model.declaration is own


def test_a_graph_that_several_threads_want_first_is_traced_once(monkeypatch):
    model, traced, together = labelling(), [], threading.Barrier(4)
    used = predict.inputs.used

    def read(model, batch):
        traced.append(threading.get_ident())
        return model.network(batch)["sequence"]

    def waited(*given):
        together.wait(60)
        return used(*given)

    def answer(_):
        function = predict.graph(model, "mine", read)
        return function, predict.run(function, encoded, 16).tolist()

    encoded = predict.encoded_for(model, TEXTS, None)
    monkeypatch.setattr(predict.inputs, "used", waited)
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(answer, range(4))]
    assert len(traced) == 1
    assert len({id(function) for function, _ in found}) == 1
    assert all(values == found[0][1] for _, values in found)

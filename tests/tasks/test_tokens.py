"""Masks in the graph = in Python: rows, tokens, the text that is filled in, with numbers for a network."""

import types

import numpy as np
import pytest

from kerasbert import answers
from kerasbert.errors import InputError
from kerasbert.tasks.base import Task, find
from kerasbert.tasks.tokens import fill_mask
from kerasbert.text.graph import graph_tokenizer
from tests import tiny
from tests.text.kinds import small_bpe

TEXTS = [
    "the [MASK] sees <mask>",
    "[MASK]",
    "no mask at all",
    "the cat  [MASK] sees a very old house by the river and the stone and the [MASK] film",
    "<mask> <mask>[MASK] happy ",
    "",
]


@pytest.mark.parametrize(("make", "length"), [(tiny.tokenizer, 32), (tiny.tokenizer, 7), (small_bpe, 9)])
def test_the_graph_fills_masks_as_python(make, length):
    import tensorflow as tf

    tokenizer, kind = make(), answers.find("tokens").configured({"top": 3})
    table = np.random.default_rng(0).permutation(101 * tokenizer.size).reshape(101, -1).astype("float32")
    table = np.exp(table / table.max()) / np.exp(table / table.max()).sum(-1, keepdims=True)

    def numbers(token_ids, positions):
        """What a network would say of the token at a place of a row: by the row's ids and the place."""
        return table[(np.sum(token_ids) * 7 + positions[0]) % 101]

    rows_seen = []

    def run(packed):
        masks = packed["padding_mask"].numpy().astype(bool)
        rows = [ids[mask].tolist() for ids, mask in zip(packed["token_ids"].numpy(), masks)]
        rows_seen[:] = list(zip(rows, packed["positions"].numpy().tolist(), packed["owners"].numpy().tolist()))
        values = np.array([numbers(ids, place) for ids, place, _ in rows_seen])
        ids = np.argsort(-values, axis=-1, kind="stable")[:, :3].astype("int32")
        return {"scores": tf.constant(np.take_along_axis(values, ids, 1)), "token_ids": tf.constant(ids)}

    task_kind = find("tokens")
    served = task_kind.served(run, graph_tokenizer(tokenizer), {"text": tf.constant(TEXTS)}, length)
    found = task_kind.unserved({name: value.numpy() for name, value in served.items()}, ())
    masked, wanted_rows = [text for text in TEXTS if "mask" in text.lower() and "no mask" not in text], []
    for i, text in enumerate(TEXTS):
        if text not in masked:
            assert (found[i]["text"], found[i]["tokens"]) == (text, [])
            continue
        rows = kind.rows(tokenizer, (text,), length)
        wanted_rows += [(row.token_ids, row.values["positions"], i) for row in rows]
        outputs = [numbers(row.token_ids, row.values["positions"]) for row in rows]
        wanted = kind.decode((text,), rows, outputs, ()).to_json()
        assert found[i]["text"] == wanted["text"]
        assert found[i].get("truncated") == wanted.get("truncated"), text
        for mine, theirs in zip(found[i]["tokens"], wanted["tokens"], strict=True):
            assert [(each["token"], each["id"]) for each in mine] == [(each["token"], each["id"]) for each in theirs]
            np.testing.assert_allclose([e["score"] for e in mine], [e["score"] for e in theirs], rtol=1e-6)
    assert [(list(ids), list(place), owner) for ids, place, owner in wanted_rows] == rows_seen


TASK = Task("fill-mask", kind="tokens")


def test_what_a_server_and_a_phone_answer():
    import tensorflow as tf

    kind = find("tokens").configured({"top": 2})
    logits = np.array([[0.0, 3.0, 1.0, 9.0]], "float32")  # the last is no piece of the tokenizer
    model = types.SimpleNamespace(tokenizer=types.SimpleNamespace(size=3))
    found = kind.exported(model, {"logits": tf.constant(logits)}, {})
    shares = np.exp(logits) / np.exp(logits).sum()
    assert found["token_ids"].numpy().tolist() == [[1, 2]]
    np.testing.assert_allclose(found["scores"], [[shares[0, 1], shares[0, 2]]], rtol=1e-5)
    np.testing.assert_allclose(kind.device({"logits": logits}, {}), shares, rtol=1e-5)
    many = find("tokens").configured({"top": 9}).exported(model, {"logits": tf.constant(logits)}, {})
    assert many["token_ids"].shape == (1, 3)
    assert kind.pipeline_tag(TASK) == "fill-mask"
    assert "7 tokens around each mask" in kind.longer(7)
    assert kind.probes(["a", "b", "c"], 1) == [
        "a [MASK]",
        "<mask>b[MASK] a\u2003 [MASK]",
        "<mask>c[MASK] a\u2003 [MASK]",
    ]
    assert all(f"`{name}`" in kind.described() for name in ("tokens", "count", "text", "truncated"))


def test_what_is_explained_and_what_is_not_learnt():
    kind = find("tokens")
    row, what, value = kind.explained(TASK, None, np.array([[0.5, 2.0, 1.0]]), None)
    logits = np.array([[1.0, 2.0, 0.0]], "float32")
    assert (row, what) == (0, "log-odds of the best token for the first mask")
    assert float(value(logits)[0]) == pytest.approx(2 - np.log(np.e + 1), rel=1e-6)
    assert float(kind.explained(TASK, None, None, None)[2](logits)[0]) == pytest.approx(
        1 - np.log(np.exp(2) + 1), rel=1e-5
    )
    with pytest.raises(InputError, match="is explained by its answer alone"):
        kind.explained(TASK, None, None, "x")
    with pytest.raises(InputError, match="fill-mask is what pretraining learns"):
        kind.check_metric(TASK)
    with pytest.raises(InputError, match="has no token_head: it predicts no tokens"):
        kind.heads(types.SimpleNamespace(), TASK)
    assert kind.readout(TASK, None) is None


@pytest.mark.parametrize("top", [0, -1, 1.0, "3", True])
def test_a_number_of_tokens_is_at_least_1(top):
    with pytest.raises(InputError, match="top must be a whole number of at least 1"):
        fill_mask(None, [], top=top)
    with pytest.raises(InputError, match="the model fills no masks"):
        fill_mask(types.SimpleNamespace(), ["a [MASK]"], top=1)

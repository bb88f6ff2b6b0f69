"""Masks in the graph = in Python: rows, tokens, the text that is filled in, with numbers for a network."""

import numpy as np
import pytest

from kerasbert import answers
from kerasbert.tasks.base import find
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

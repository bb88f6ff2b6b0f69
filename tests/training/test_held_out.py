"""Held-out loss: every row once, whatever the batch; rows of a single shard may be held out, and are never trained on."""

import json

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert import registry
from kerasbert.data import Records, write_records
from kerasbert.errors import InputError
from kerasbert.objectives.bert import BertPretraining
from kerasbert.training import held_out
from kerasbert.training.held_out import HeldOut, hold_out
from kerasbert.training.phases import Phase
from kerasbert.training.runs import Run
from tests import tiny
from tests.support import often
from tests.training.test_pretrain import ARGUMENTS, same

SPEC = tiny.SPEC | {"embeddings.vocabulary": tiny.tokenizer().size}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("held_out")


@pytest.fixture(scope="module")
def single(folder):
    """Records of one shard."""
    return tiny.records(folder)


@pytest.fixture(scope="module")
def short(folder):
    out = folder / "short"
    write_records([tiny.corpus(folder / "a.txt")], tiny.tokenizer(), out, length=16, shards=3)
    return out


def evaluated(program, records, batch, accumulate=1):
    devices = tf.distribute.get_strategy()
    return HeldOut([Phase(None, "x", batch, accumulate)], [records], program, seed=0, devices=devices)(3)[0]


@pytest.mark.parametrize(
    "name",
    often(("bert/tiny", "electra/small", "structbert/base"), "electra/small"),
)
def test_every_row_counts_once_whatever_batch_and_accumulation(name, single):
    """The reference is a batch of all rows, which needs no filling."""
    _, records = hold_out(Records(single))
    family, _ = registry.find(name)
    program = registry.objective(family.objective)(
        kb.build(name, **SPEC), tiny.tokenizer(), features=records.features, seed=0
    )
    expected = evaluated(program, records, records.examples)
    assert {"held_out/loss", "held_out/perplexity"} <= expected.keys()
    for batch, accumulate in ((1, 1), (records.examples - 1, 1), (8, 2), (64, 1)):
        found = evaluated(program, records, batch, accumulate)
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-6, atol=1e-6, err_msg=f"{key}, batch {batch}")


def test_rows_of_several_shards_are_read_in_order(short):
    records = Records(short)
    features = held_out.first_rows(records, records.examples)
    expected = next(iter(records.dataset(records.examples, seed=0, shuffle=False)))
    assert (features["token_ids"].numpy() == expected["token_ids"].numpy()).all()
    assert (features["segment_lengths"].numpy() == expected["segment_lengths"].numpy()).all()


def test_what_is_held_out_is_not_trained_on(short):
    kept, held = hold_out(Records(short))
    assert kept.examples + held.examples == Records(short).examples
    rows = {tuple(row) for shard in kept.shards for row in kept.rows(shard)}
    assert not rows & {tuple(row) for row in held.rows(held.shards[0])}
    batch = next(iter(held.dataset(4, seed=0, shuffle=False)))
    assert (batch["token_ids"].numpy() == held.rows(held.shards[0])[:4, :16]).all()


def test_the_last_rows_of_a_single_shard_are_never_trained_on(single):
    records = Records(single)
    kept, held = hold_out(records)
    assert kept.examples + held.examples == records.examples
    assert held.examples == -(-records.examples // 20)
    rows = records.rows(records.shards[0])
    assert (held_out.first_rows(held, held.examples)["token_ids"].numpy() == rows[kept.examples :, :24]).all()
    stream = iter(kept.dataset(7, seed=3))
    seen = np.concatenate([next(stream)["example"].numpy() for _ in range(3 * kept.examples // 7 + 1)])
    assert set(seen) == set(range(kept.examples))
    assert (kept.rows(kept.shards[0]) == rows[: kept.examples]).all()


@pytest.mark.slow
def test_a_single_shard_is_evaluated_while_it_is_trained_on(single, folder):
    out = folder / "single"
    kb.pretrain("bert/tiny", single, out=out, evaluate_every=6, **ARGUMENTS)
    assert json.loads((out / "run.json").read_text())["settings"]["held_out"] == "last rows"
    steps = [record["step"] for record in Run(out, {}, True).records() if "held_out/loss" in record]
    assert steps == [6, 12]


def test_a_single_shard_of_repeated_documents_cannot_be_held_out(folder, tmp_path):
    write_records([tiny.corpus(tmp_path / "a.txt")], tiny.tokenizer(), tmp_path / "data", length=24, dupe_factor=2)
    with pytest.raises(InputError, match="have one shard with every document several times.*--shards 2 or more"):
        kb.pretrain("bert/tiny", tmp_path / "data", out=tmp_path / "run", evaluate_every=2, **ARGUMENTS)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_evaluation_on_records_of_its_own_changes_no_weight(folder, short, single):
    for name, more in (("plain", {}), ("evaluated", {"held_out": single, "evaluate_every": 4})):
        kb.pretrain("bert/tiny", short, out=folder / name, **ARGUMENTS | more)
    assert same(folder / "plain", folder / "evaluated")
    evaluations = [record for record in Run(folder / "evaluated", {}, True).records() if "held_out/loss" in record]
    assert [record["step"] for record in evaluations] == [4, 8, 12]


def test_perplexity_by_hand(short):
    """A model that knows nothing: every token has the same probability, so the perplexity is the vocabulary's size."""

    class Program(BertPretraining):
        def losses(self, batch, training=True):
            count = tf.reduce_sum(batch["mlm_weights"])
            return {"mlm": count * float(np.log(50.0)), "mlm/accuracy": count * 0.02}

        def counts(self, batch):
            return {"mlm": tf.reduce_sum(batch["mlm_weights"])}

    program = Program(kb.build("bert/tiny", **tiny.SPEC | {"embeddings.vocabulary": 100}), tiny.tokenizer())
    devices = tf.distribute.get_strategy()
    evaluate = HeldOut([Phase(None, "x", 8)], [Records(short)], program, seed=0, devices=devices)
    found, stop = evaluate(3)
    assert not stop
    np.testing.assert_allclose(found["held_out/perplexity"], 50.0, rtol=1e-4)
    np.testing.assert_allclose(found["held_out/mlm/accuracy"], 0.02, rtol=1e-4)

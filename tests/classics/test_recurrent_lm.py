"""Recurrent language models and the sequence autoencoder: what is predicted, carried, added to the loss, and refused."""

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.classics.objectives.recurrent import RecurrentLM, SequenceAutoencoder, Settings
from kerasbert.data import Records, write_records
from kerasbert.errors import InputError
from kerasbert.layers import random
from kerasbert.testing import battery, world
from kerasbert.testing.objectives import check_micro_batches
from kerasbert.training.held_out import HeldOut, first_rows
from kerasbert.training.phases import Phase
from tests.objectives.test_causal import features


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("recurrent")


def made(folder, name="ulmfit", objective=RecurrentLM, settings=None, **changes):
    """A tiny model, and its objective."""
    subject = battery.Subject(name, folder, **changes)
    return objective(subject.encoder(), subject.tokenizer, settings=settings), subject


def test_segments_are_one_text_whose_gradient_ends_at_their_borders(folder):
    rows = features(np.random.default_rng(0).integers(5, 40, (2, 12)), [12, 7])
    one, _ = made(folder, settings={"segments": 1})
    three = RecurrentLM(one.model.body, one.tokenizer, settings={"segments": 3})
    batch, found = one.prepare(rows), []
    for program in (one, three):
        with tf.GradientTape() as tape:
            sums = program.losses(batch, training=False)
        found.append((sums, tape.gradient(sums["lm"], program.model.body.recurrent[0].kernel.value)))
    (whole, of_whole), (parts, of_parts) = found
    assert float(whole["lm"]) == pytest.approx(float(parts["lm"]), rel=1e-5)
    assert float(whole["lm/accuracy"]) == float(parts["lm/accuracy"])
    assert float(three.counts(batch)["lm"]) == 11 + 6
    # by hand: each segment behind a state that is a number
    body, total = one.model.body, 0.0
    with tf.GradientTape() as tape:
        state = None
        for place in (0, 4, 8):
            part = {
                name: batch[name][:, place : place + 4] for name in ("token_ids", "padding_mask", "labels", "weights")
            }
            x, state = body.read_from(part, state)
            state = {name: tf.constant(each.numpy()) for name, each in state.items()}
            logits = tf.matmul(body.scaled(x), body.output_rows, transpose_b=True)
            nats = tf.nn.sparse_softmax_cross_entropy_with_logits(part["labels"], logits)
            total += tf.reduce_sum(nats * part["weights"])
    by_hand = tape.gradient(total, body.recurrent[0].kernel.value)
    np.testing.assert_allclose(of_parts, by_hand, atol=2e-4)
    assert np.abs(of_whole - of_parts).max() > 1e-3


def test_activations_and_their_changes_are_kept_small(folder):
    """Merity et al., section 4.6, in numpy; dropout off."""
    off = {f"rates.{name}": 0.0 for name in ("words", "input", "between", "output", "weights")}
    settings = {"segments": 2, "activation": 2.0, "change": 1.0}
    program, _ = made(folder, settings=settings, **off)
    assert program.scales == {"lm": 1.0, "activation": 2.0, "change": 1.0}
    batch = program.prepare(features(np.random.default_rng(1).integers(5, 40, (2, 8)), [8, 5]))
    sums, counts = program.losses(batch), program.counts(batch)
    states = np.asarray(program.model.body(batch)["sequence"])
    weights = np.asarray(batch["weights"])
    assert float(sums["activation"]) == pytest.approx(((states**2).mean(-1) * weights).sum(), rel=1e-5)
    moved = (np.diff(states, axis=1) ** 2).mean(-1) * weights[:, 1:] * weights[:, :-1]
    moved[:, 3] = 0  # the border of two segments
    assert float(sums["change"]) == pytest.approx(moved.sum(), rel=1e-4)
    assert (float(counts["activation"]), float(counts["change"])) == (7 + 4, 5 + 3)
    assert set(program.losses(batch, training=False)) == {"lm", "lm/accuracy"}


def test_what_is_dropped(folder):
    """Words for all rows, places of a row alike, weights for a call; other numbers in another update."""
    body = made(folder, **{"rates.words": 0.5, "rates.input": 0.0})[0].model.body
    ids = tf.constant(np.tile(np.arange(5, 45, dtype="int32"), (3, 2)))
    rows = tf.range(3)

    def embedded(word):
        with random.scope(tf.constant([word, 0], tf.uint32), rows):
            return np.asarray(body.embed({"token_ids": ids}, training=True))

    table, found = np.asarray(body.table.table), embedded(1)
    dropped = (found == 0).all(-1)
    np.testing.assert_array_equal(dropped, np.tile(dropped[:1, :40], (3, 2)))  # all occurrences of a word
    assert abs(dropped[0, :40].mean() - 0.5) < 3 * (0.25 / 40) ** 0.5
    np.testing.assert_allclose(found[~dropped], 2 * table[np.asarray(ids)][~dropped], rtol=1e-6)
    assert (embedded(2) != found).any()

    locked = random.LockedDropout(0.25, name="locked")
    locked.build()
    with random.scope(tf.constant([3, 0], tf.uint32), rows):
        mask = np.asarray(locked(tf.ones((3, 7, 400)), training=True))
    np.testing.assert_array_equal(mask, np.repeat(mask[:, :1], 7, axis=1))
    assert set(np.unique(mask)) == {0.0, np.float32(1 / 0.75)}
    assert (mask[0] != mask[1]).any()
    assert abs((mask[:, 0] == 0).mean() - 0.25) < 3 * (0.1875 / 1200) ** 0.5

    layer = body.recurrent[1]
    with random.scope(tf.constant([4, 0], tf.uint32), rows):
        matrices = [np.asarray(layer.matrix(training=True)) for _ in range(2)]
    with random.scope(tf.constant([4, 0], tf.uint32), rows + 3):  # another micro-batch, or replica
        np.testing.assert_array_equal(layer.matrix(training=True), matrices[0])
    assert (matrices[0] != matrices[1]).any()  # the next segment
    share, plain = (matrices[0] == 0).mean(), np.asarray(layer.recurrent_kernel)
    assert abs(share - 0.5) < 3 * (0.25 / plain.size) ** 0.5
    np.testing.assert_allclose(matrices[0][matrices[0] != 0], 2 * plain[matrices[0] != 0], rtol=1e-6)
    np.testing.assert_array_equal(layer.matrix(), plain)


def test_the_autoencoder_reads_and_writes_by_hand(folder):
    program, subject = made(folder, "sa-lstm", SequenceAutoencoder)
    cls, sep, pad = subject.tokenizer.cls_id, subject.tokenizer.sep_id, subject.tokenizer.pad_id
    batch = program.prepare(features([[cls, 9, 8, sep, pad], [cls, 7, 6, 5, sep]], [4, 5]))
    assert np.asarray(batch["padding_mask"]).tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]]
    assert np.asarray(batch["written_ids"]).tolist() == [[sep, 9, 8, sep], [sep, 7, 6, 5]]
    assert np.asarray(batch["labels"]).tolist() == [[9, 8, sep, pad], [7, 6, 5, sep]]
    assert np.asarray(batch["weights"]).tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    # one text: what is read, the separator, what is written
    body, head, nats = program.model.body, program.model.heads["mlm"], 0.0
    head.bias.assign(np.linspace(-1, 1, head.bias.shape[0]))
    for text in ([9, 8], [7, 6, 5]):
        states = np.asarray(body({"token_ids": np.array([[cls, *text, sep, *text]], "int32")})["sequence"])[0]
        logits = states[len(text) + 1 :] @ head.table.numpy().T + head.bias.numpy()
        logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        nats -= logs[range(len(text) + 1), [*text, sep]].sum()
    assert float(program.losses(batch)["lm"]) == pytest.approx(nats, rel=1e-5)


@pytest.mark.filterwarnings("ignore:Even though the `tf.config")  # what reads the rows is no matter
def test_the_state_is_carried_through_held_out_text(folder):
    """Each of the 16 stretches is read as one text."""
    program, subject = made(folder, settings={"segments": 2})
    out = folder / "short"
    write_records([world.corpus(folder / "short.txt", 6)], subject.tokenizer, out, length=16, packing="stream")
    records, body = Records(out), program.model.body
    rows, stretches = first_rows(records, records.examples), np.array_split(np.arange(records.examples), 16)
    assert len(stretches[0]) > 1
    nats = count = 0.0
    for stretch in stretches:
        text = program.prepare({name: tf.gather(value, stretch) for name, value in rows.items()})
        text = {
            name: np.asarray(text[name]).reshape(1, -1) for name in ("token_ids", "padding_mask", "labels", "weights")
        }
        x = body({name: text[name] for name in ("token_ids", "padding_mask")})["sequence"]
        logits = tf.matmul(body.scaled(x), body.output_rows, transpose_b=True)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(text["labels"], logits)
        nats, count = nats + float(tf.reduce_sum(each * text["weights"])), count + text["weights"].sum()
    phases = [Phase(steps=1, data=out, batch=8)]
    held_out = HeldOut(phases, [records], program, seed=0, devices=tf.distribute.get_strategy())
    with battery.eagerly():
        found, _ = held_out(1)
    assert found["held_out/lm"] == pytest.approx(nats / count, rel=1e-5)
    assert found["held_out/perplexity"] == pytest.approx(np.exp(nats / count), rel=1e-4)


@pytest.mark.filterwarnings("ignore:Even though the `tf.config")
def test_any_accumulation_makes_the_same_updates(folder):
    """All dropouts on: a row is told by its number in the global batch, an update's masks are those of all rows."""
    settings = {"segments": 2, "activation": 2.0, "change": 1.0}
    check_micro_batches(lambda: made(folder, settings=settings, **{"recurrence.layers": 1}))


def test_what_is_refused(folder, tmp_path):
    (tmp_path / "short.txt").write_text("the happy cat sees the river\n")
    records = write_records([tmp_path / "short.txt"], world.tokenizer(), tmp_path / "out", length=24, packing="stream")
    with pytest.raises(InputError, match="out hold 6 tokens, expected at least one row of 24: make them of more text"):
        RecurrentLM.check(Settings(), records)
    for settings, expected in (
        ({"segments": 0}, "segments 0, expected at least 1"),
        ({"change": -1.0}, "change must be"),
    ):
        with pytest.raises(InputError, match=expected):
            Settings(**settings)
    bert = battery.Subject("bert", folder)
    with pytest.raises(InputError, match="Encoder carries no state from text to text: choose another objective"):
        RecurrentLM(bert.encoder(), bert.tokenizer)
    with pytest.raises(InputError, match="recurrence.cell"):
        made(folder, **{"recurrence.cell": "rnn"})
    with pytest.raises(InputError, match="embeddings.width must be hidden, 16: .*Received: 8"):
        made(folder, **{"embeddings.width": 8})
    with pytest.raises(InputError, match="rates.input must be at least 0 and below 1. Received: 1"):
        made(folder, **{"rates.input": 1.0})
    with pytest.raises(InputError, match="recurrence.layers must be at least 1. Received: 0"):
        made(folder, **{"recurrence.layers": 0})

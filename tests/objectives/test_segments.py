"""Rows of segments: what is predicted, gradients, what held-out evaluation carries, what is refused."""

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.cli import main
from kerasbert.data import Records, write_records
from kerasbert.errors import InputError
from kerasbert.layers import random
from kerasbert.layers.backend import fusion
from kerasbert.layers.memory import Memory
from kerasbert.objectives.causal import CausalLM
from kerasbert.objectives.segments import SegmentLM, Settings
from kerasbert.testing import battery, world
from kerasbert.testing.objectives import check_micro_batches
from kerasbert.training.held_out import HeldOut, first_rows
from kerasbert.training.phases import Phase
from tests import tiny
from tests.objectives.test_causal import features
from tests.training.stopping import ends_the_same

CLUSTERS = {"adaptive.cutoffs": (20, 40), "adaptive.div_val": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("segments")


def made(folder, settings=None, **changes):
    """A tiny model, and its objective."""
    subject = battery.Subject("transformer-xl", folder, **{"dropout": 0.0, "memory.length": 3} | changes)
    return SegmentLM(subject.encoder(), subject.tokenizer, settings=settings or {"segments": 2}), subject


def test_what_is_predicted_by_hand(folder):
    program, _ = made(folder)
    batch = program.prepare(features([[5, 6, 7, 8], [9, 10, 3, 3]], [4, 2]))
    assert np.asarray(batch["labels"]).tolist() == [[6, 7, 8, 8], [10, 3, 3, 3]]
    assert np.asarray(batch["weights"]).tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]
    assert np.asarray(batch["padding_mask"]).tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert float(program.counts(batch)["lm"]) == 4


def test_a_memory_of_all_is_the_next_token_of_the_whole_row(folder):
    """Three segments with all before them in the memory: the loss of causal_lm on the row."""
    program, subject = made(folder, {"segments": 3}, **{"memory.length": 50})
    other = CausalLM(program.model.body, subject.tokenizer)
    rows = features(np.random.default_rng(0).integers(5, 40, (2, 12)), [12, 7])
    one, whole = (p.losses(p.prepare(rows), training=False) for p in (program, other))
    for name in ("lm", "lm/accuracy"):
        assert float(one[name]) == pytest.approx(float(whole[name]), rel=1e-5)


@pytest.mark.parametrize(("more", "on"), [({}, False), (CLUSTERS, True)], ids=["one softmax", "clusters, compiled"])
def test_the_gradient_is_that_of_a_loop_written_by_hand(folder, more, on):
    """Each segment differentiated alone, with a memory of plain numbers; in compiled parts too, u and v among the weights."""
    program, _ = made(folder, {"segments": 3}, **more)
    batch = program.prepare(features(np.random.default_rng(0).integers(5, 40, (2, 9)), [9, 6]))
    body = program.model.body
    weights = [weight.value for weight in body.trainable_weights]
    with fusion(on), tf.GradientTape() as tape:
        loss = program.losses(batch, training=False)["lm"]
    found = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, weights)]

    expected = [tf.zeros_like(weight) for weight in weights]
    total, memory, places = 0.0, [np.zeros((2, 0, 16), "float32")] * 2, np.asarray(batch["labels"])
    for i in range(3):
        part = slice(3 * i, 3 * i + 3)
        ids = np.asarray(batch["token_ids"])[:, part]
        with tf.GradientTape() as tape:
            before = None if not i else body_memory(memory)
            outputs, _ = body.read({"token_ids": ids}, before)
            logits = tf.nn.log_softmax(body.logits(outputs["sequence"]))
            picked = tf.gather(logits, places[:, part], batch_dims=2)
            loss_of = -tf.reduce_sum(picked * batch["weights"][:, part])
        gradients = tape.gradient(loss_of, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        expected = [a + tf.convert_to_tensor(b) for a, b in zip(expected, gradients, strict=True)]
        total += float(loss_of)
        layers = [np.asarray(x) for x in outputs["hidden"][:-1]]
        memory = [np.concatenate(pair, axis=1)[:, -3:] for pair in zip(memory, layers, strict=True)]
    assert float(loss) == pytest.approx(total, rel=1e-5)
    for weight, one, other in zip(body.trainable_weights, found, expected, strict=True):
        assert np.abs(other).max() > 0 or weight.path.endswith("key/kernel"), weight.path
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-4 * np.abs(other).max() + 1e-6, err_msg=weight.path)


def body_memory(layers):
    return Memory(tuple(tf.constant(layer) for layer in layers))


def test_segments_have_masks_of_their_own(folder):
    """The same tokens twice without a memory: dropout tells the segments apart."""
    program, _ = made(folder, {"segments": 2, "memory": 0}, dropout=0.5)
    once = np.random.default_rng(0).integers(5, 40, (2, 4))
    batch = program.prepare(features(np.concatenate([once, once], axis=1), [8, 8])) | {"weights": tf.ones((2, 8))}
    batch["labels"] = tf.constant(np.concatenate([once, once], axis=1), tf.int32)

    def of(part):
        with random.scope(tf.constant([1, 2], tf.uint32), batch["row"]):
            parts = iter(part)
            program.segment, keep = lambda *a: keep(*a) if next(parts) else skipped(keep, *a), program.segment
            try:
                return float(program.losses(batch)["lm"])
            finally:
                del program.segment

    def skipped(keep, *arguments):
        sums, memory = keep(*arguments)
        return {name: 0.0 * value for name, value in sums.items()}, memory

    assert of((True, False)) != of((False, True))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Even though the `tf.config")
def test_any_accumulation_makes_the_same_updates(folder):
    """Dropout on, a memory in every micro-batch: rows are told by their number in the global batch."""
    changes = {"dropout": 0.1, "blocks.layers": 1}
    check_micro_batches(lambda: made(folder, {"segments": 4}, **changes), counts=(1, 4), steps=2)


@pytest.mark.full
def test_interrupted_and_resumed_it_ends_with_the_same_weights(tmp_path):
    records = world.records(tmp_path, "stream")
    arguments = {"changes": world.SPEC | {"blocks.layers": 1, "memory.length": 8}, "objective": {"segments": 2}}
    ends_the_same("transformer-xl/base", records, tmp_path, **arguments)


# Held-out text


@pytest.mark.filterwarnings("ignore:Even though the `tf.config")  # what reads the rows is no matter
@pytest.mark.parametrize("evaluation", [{}, {"memory": 7, "clamp": 4, "same_length": True}])
def test_held_out_text_is_read_with_a_memory_that_is_carried_on(folder, evaluation):
    """The reference reads each of the 16 stretches of rows one segment after the other."""
    asked = {f"evaluation.{name}": value for name, value in evaluation.items()}
    program, subject = made(folder, {"segments": 2} | asked, **{"blocks.layers": 1, "memory.length": 5})
    out = folder / "short"
    if not out.exists():
        write_records([world.corpus(folder / "short.txt", 6)], subject.tokenizer, out, length=16, packing="stream")
    records = Records(out)
    about, body, rows = program.about(False), program.model.body, first_rows(records, records.examples)
    stretches = np.array_split(np.arange(records.examples), 16)
    assert len(stretches[0]) > 1
    nats = count = 0.0
    for stretch in stretches:
        memory = None
        text = program.prepare({name: tf.gather(value, stretch) for name, value in rows.items()})
        text = {name: np.asarray(text[name]).ravel() for name in ("token_ids", "labels", "weights")}
        for place in range(0, len(text["labels"]), 8):
            part = slice(place, place + 8)
            outputs, memory = body.read({"token_ids": text["token_ids"][None, part]}, memory, about)
            logits = np.asarray(tf.nn.log_softmax(body.logits(outputs["sequence"])))[0]
            nats -= (logits[np.arange(8), text["labels"][part]] * text["weights"][part]).sum()
            count += text["weights"][part].sum()
    phase = Phase(None, "x", *((20, 2) if evaluation else (16, 1)))  # batch and micro-batches change nothing
    with battery.eagerly():
        found, _ = HeldOut([phase], [records], program, seed=0, devices=tf.distribute.get_strategy())(1)
    np.testing.assert_allclose(found["held_out/lm"], nats / count, rtol=1e-5)
    assert found["held_out/perplexity"] == pytest.approx(np.exp(nats / count), rel=1e-4)


def test_padding_is_not_remembered(folder):
    """A row that ends in padding, and another behind it: what the padding is changes nothing."""
    program, _ = made(folder, {"segments": 2})
    behind = features([[11, 12, 13, 14]], [4])
    found = []
    for padding in (3, 30):
        state = program.empty_state(1)
        _, state = program.losses_from(program.prepare(features([[5, 6, 7, padding]], [3])), state)
        found.append(float(program.losses_from(program.prepare(behind), state)[0]["lm"]))
    assert found[0] == found[1]


def test_without_a_memory_nothing_is_carried(folder):
    program, _ = made(folder, {"segments": 2, "memory": 0})
    assert program.empty_state(3) == {}
    batch = program.prepare(features([[5, 6, 7, 8]], [4]))
    assert float(program.losses_from(batch, {})[0]["lm"]) == float(program.losses(batch, training=False)["lm"])
    longer, _ = made(folder, {"segments": 2, "memory": 0, "evaluation.memory": 5})
    assert longer.empty_state(3)["memory_0"].shape == (3, 5, 16)


# What is refused


def test_lengths():
    settings = Settings(segments=3)
    assert SegmentLM.lengths(settings, 12) == (4,)
    assert SegmentLM.record_length(settings, 4) == 12
    assert SegmentLM.sequences(settings) == 3
    with pytest.raises(
        InputError, match=r"^rows of 14 tokens are no 3 segments of one length: make records with --length 12"
    ):
        SegmentLM.lengths(settings, 14)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"segments": 0}, "^segments 0, expected at least 1 in a row$"),
        ({"memory": -1}, "^memory -1, expected at least 0 tokens$"),
        ({"evaluation.memory": -2}, "^evaluation.memory -2, expected at least 0 tokens$"),
        ({"evaluation.clamp": 0}, "^evaluation.clamp 0, expected a distance of at least 1$"),
    ],
)
def test_settings_that_mean_nothing_are_refused(folder, settings, message):
    with pytest.raises(InputError, match=message):
        made(folder, settings)


def test_a_model_without_a_memory_is_refused(folder):
    subject = battery.Subject("gpt2", folder)
    with pytest.raises(
        InputError, match=r"^GPT2 has no memory, which segments are read with: choose another objective"
    ):
        SegmentLM(subject.encoder(), subject.tokenizer)


@pytest.mark.parametrize("packing", ["full", "pairs", "packed"])
def test_records_of_another_packing_are_refused(packing, tmp_path):
    records = Records(tiny.records(tmp_path, packing))
    with pytest.raises(
        InputError, match=f"packed as '{packing}', and the objective takes rows of one text without a .CLS.: make"
    ):
        SegmentLM.check(Settings(), records)


def test_pretrain_says_what_is_wrong_in_one_line(folder, capsys, tmp_path):
    records = str(world.records(folder, "stream"))  # of 24 tokens
    command = ["pretrain", "transformer-xl/base", "--data", records, "--steps", "1", "--out", str(tmp_path / "run")]
    for name, value in world.SPEC.items():
        command += ["--set", f"{name}={value}"]
    for more, message in (
        (
            ["objective.segments=5"],
            "error: rows of 24 tokens are no 5 segments of one length: make records with --length 20, ",
        ),
        (
            ["objective.segments=1", "embeddings.positions=20"],
            "error: records have 24 tokens, the model 20 positions: set ",
        ),
        (
            ["objective.segments=3", "embeddings.positions=7"],
            "error: records have 24 tokens, of which the model reads 8, the",
        ),
        (["objective.segments=3", "memory.length=-1"], "error: memory.length must be at least 0. Received: -1"),
    ):
        assert main([*command, *(part for pair in more for part in ("--set", pair))]) == 2
        error = capsys.readouterr().err
        assert error.startswith(message), error
        assert error.count("\n") == 1
        assert not (tmp_path / "run").exists()

"""A language model of two directions: what each predicts and sees, its candidates, what is carried, and what is refused."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert import registry
from kerasbert import spec as specs
from kerasbert.classics.objectives.bilm import BiLM, Settings, expected_logs, log_uniform, sampled_nats
from kerasbert.data import Records, write_records
from kerasbert.errors import InputError
from kerasbert.layers import random
from kerasbert.quickstart import books
from kerasbert.testing import battery, world
from kerasbert.testing.objectives import check_micro_batches
from kerasbert.text.characters import train_characters
from kerasbert.tpu_check.lower import Step
from tests.objectives.test_causal import features


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bilm")


def made(folder, settings=None, **changes):
    """A tiny model without dropout, and its objective, whose softmax has a bias."""
    subject = battery.Subject("elmo", folder, **{"dropout": 0.0} | changes)
    program = BiLM(subject.encoder(), subject.tokenizer, settings=settings)
    draw, head = np.random.default_rng(3), program.model.heads["mlm"]
    for weight in (head.table, head.bias):
        weight.assign(draw.normal(0, 0.5, weight.shape))
    return program, subject


def rows(lengths=(12, 7), seed=0):
    return features(np.random.default_rng(seed).integers(4, 20, (len(lengths), 12)), list(lengths))


def test_each_direction_by_hand(folder):
    program, subject = made(folder, {"segments": 1})
    body, head, batch = program.model.body, program.model.heads["mlm"], program.prepare(rows())
    assert {name: float(count) for name, count in program.counts(batch).items()} == {"forward": 17, "backward": 17}
    half, expected = subject.spec.hidden // 2, {"forward": 0.0, "backward": 0.0}
    for ids in (np.asarray(batch["token_ids"])[0], np.asarray(batch["token_ids"])[1, :7]):
        states = np.asarray(body({"char_ids": subject.tokenizer.characters(ids)[None]})["sequence"])[0]
        for name, read, labels in (
            ("forward", states[:-1, :half], ids[1:]),
            ("backward", states[1:, half:], ids[:-1]),
        ):
            logits = read @ head.table.numpy().T + head.bias.numpy()
            logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            expected[name] -= logs[range(len(labels)), labels].sum()
    found = program.losses(batch, training=False)
    assert {name: float(found[name]) for name in expected} == pytest.approx(expected, rel=1e-5)
    assert {"forward/accuracy", "backward/accuracy"} < set(found)
    # the state is carried from segment to segment, by each direction in its own order
    for count in (2, 3):
        parts = BiLM(body, subject.tokenizer, settings={"segments": count})
        parts.model.heads["mlm"].set_weights(head.get_weights())
        found = parts.losses(batch, training=False)
        assert {name: float(found[name]) for name in expected} == pytest.approx(expected, rel=1e-5)


def test_no_direction_sees_what_it_predicts(folder):
    """The loss of the word at a place changes by no word from there on, in its direction."""
    program, subject = made(folder, {"segments": 2})
    batch, place = program.prepare(rows((12,))), 5
    other = subject.tokenizer.size - 1

    def loss(name, changed=()):
        ids = np.asarray(batch["token_ids"]).copy()
        ids[0, list(changed)] = other
        weights = np.eye(12, dtype="float32")
        own = {"weights": weights[place - 1][None], "weights_before": weights[place + 1][None]}
        read = batch | own | {"char_ids": subject.tokenizer.characters(ids)}
        return float(program.losses(read, training=False)[name])

    before, behind = range(place), range(place + 1, 12)
    for name, seen, unseen in (("forward", before, behind), ("backward", behind, before)):
        plain = loss(name)
        assert loss(name, [place, *unseen]) == plain
        assert all(loss(name, [at]) != plain for at in (seen[0], seen[-1]))


def test_the_gradient_ends_at_the_segments_border(folder):
    program, _ = made(folder, {"segments": 2})
    batch, body = program.prepare(rows((12,))), program.model.body
    read = batch | {"weights": tf.one_hot([9], 12), "weights_before": tf.one_hot([3], 12)}
    for name, silent in (("forward", slice(0, 6)), ("backward", slice(6, 12))):
        x = body.embed(read)
        with tf.GradientTape() as tape:
            tape.watch(x)
            parts = iter(tf.split(x, 2, axis=1))
            body.embed = lambda part, training=False, parts=parts: next(parts)
            loss = program.losses(read, training=False)[name]
        del body.embed
        gradient = np.abs(np.asarray(tape.gradient(loss, x)))[0].max(-1)
        assert (gradient[silent] == 0).all()
        assert gradient.max() > 0


def test_the_forward_state_is_carried_through_held_out_text(folder):
    program, _ = made(folder, {"segments": 1})
    batch = program.prepare(rows((12,), seed=2))
    state, total = program.empty_state(1), 0.0
    for place in (0, 6):
        part = {name: value[:, place : place + 6] for name, value in batch.items() if name != "row"}
        sums, state = program.losses_from(part, state)
        total += float(sums["forward"])
    assert total == pytest.approx(float(program.losses(batch, training=False)["forward"]), rel=1e-5)
    assert set(state) == set(program.empty_state(1))


def test_words_are_drawn_by_their_rank():
    count, vocabulary = 200_000, 50
    drawn = np.asarray(log_uniform(random.key(7, "words"), count, vocabulary))
    expected = np.exp(np.asarray(expected_logs(np.arange(vocabulary), count, vocabulary), "float64"))
    assert expected.sum() == pytest.approx(count, rel=1e-5)
    by_hand = np.log((np.arange(vocabulary) + 2) / (np.arange(vocabulary) + 1)) / math.log(vocabulary + 1)
    np.testing.assert_allclose(expected, count * by_hand, rtol=1e-5)
    found, share = np.bincount(drawn, minlength=vocabulary), expected / count
    assert len(found) == vocabulary
    sigma = np.sqrt(count * share * (1 - share))
    assert np.mean(np.abs(found - expected) < 3 * sigma) > 0.96  # 49 of 50
    assert (np.abs(found - expected) < 4.5 * sigma).all()


def test_sampled_softmax_by_hand():
    draw = np.random.default_rng(0)
    x, table, bias = (draw.normal(0, 1, shape).astype("float32") for shape in ((2, 3, 4), (9, 4), (9,)))
    labels, candidates = np.array([[1, 0, 5], [8, 8, 2]], "int32"), np.array([0, 1, 1, 7], "int32")
    logits = x.astype("float64") @ table.T + bias
    logits -= np.log(4 * np.log((np.arange(9) + 2) / (np.arange(9) + 1)) / np.log(10))
    expected = np.zeros((2, 3))
    for row in range(2):
        for place in range(3):
            label, of = labels[row, place], logits[row, place]
            others = [each for each in candidates if each != label]  # one that is drawn twice counts twice
            expected[row, place] = np.log(np.exp(of[[label, *others]]).sum()) - of[label]
    found = sampled_nats(*map(tf.constant, (x, table, bias, labels, candidates)))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_candidates_stand_for_all_words():
    """The corrected sum over candidates is, on average, the sum over all words but the label."""
    draw, vocabulary, label = np.random.default_rng(1), 30, 4
    logits = draw.normal(0, 1, vocabulary)
    found = []
    for number in range(100):
        drawn = np.asarray(log_uniform(random.key(number, "words"), 64, vocabulary))
        kept = drawn[drawn != label]
        found.append(np.exp(logits[kept] - np.asarray(expected_logs(kept, 64, vocabulary))).sum())
    everything = np.exp(np.delete(logits, label)).sum()
    assert abs(np.mean(found) - everything) < 3 * np.std(found) / 100**0.5


def test_one_set_of_candidates_an_update(folder):
    program, _ = made(folder, {"segments": 2, "candidates": 9})
    batch = program.prepare(rows())

    def drawn(step, first=0):
        with random.scope(tf.constant([step, 0], tf.uint32), tf.range(2) + first):
            return np.asarray(program.candidates())

    np.testing.assert_array_equal(drawn(1), drawn(1, first=2))  # of all micro-batches and replicas
    assert (drawn(1) != drawn(2)).any()
    with random.scope(tf.constant([1, 0], tf.uint32), tf.range(2)):
        sampled = program.losses(batch)
    assert set(sampled) == {"forward", "backward"}  # how many are right is told of all words
    full, _ = made(folder, {"segments": 2, "candidates": 0})
    exact = full.losses(batch)
    for name in sampled:
        assert float(program.losses(batch, training=False)[name]) == float(exact[name])
        assert abs(float(sampled[name]) - float(exact[name])) > 1e-3
    assert made(folder)[0].candidates() is None  # 8,192 are more words than there are


@pytest.mark.slow
def test_the_sampled_step_is_safe_on_a_tpu():
    """The families' tiny steps have fewer words than candidates."""
    family, spec = registry.find("elmo/small")
    spec = specs.derive(spec, battery.tiny(spec, 40) | {"recurrence.layers": 1})
    lowered = Step(family, spec, length=6, objective={"segments": 2, "candidates": 9}).lower(4)
    assert lowered.problems == []
    assert lowered.module
    assert "f32[24,10]" in lowered.text  # logits of the label and of the candidates, not of all words
    assert "[24,40]" not in lowered.text


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Even though the `tf.config")
def test_any_accumulation_makes_the_same_updates(folder):
    settings, changes = {"segments": 2, "candidates": 9}, {"dropout": 0.2, "recurrence.layers": 1}
    check_micro_batches(lambda: made(folder, settings, **changes))


def test_what_is_refused(folder, tmp_path):
    (tmp_path / "short.txt").write_text("the happy cat sees the river\n")
    tokenizer = train_characters(world.sentences(300, 0), 60)
    records = write_records([tmp_path / "short.txt"], tokenizer, tmp_path / "out", length=24, packing="stream")
    with pytest.raises(InputError, match="out hold 6 tokens, expected at least one row of 24: make them of more text"):
        BiLM.check(Settings(), records)
    for settings, expected in (
        ({"segments": 0}, "segments 0, expected at least 1"),
        ({"candidates": -1}, "candidates -1, expected at least 1 word"),
    ):
        with pytest.raises(InputError, match=expected):
            Settings(**settings)
    bert = battery.Subject("bert", folder)
    with pytest.raises(InputError, match="Encoder does not read a text in two directions: choose another objective"):
        BiLM(bert.encoder(), bert.tokenizer)
    program, _ = made(folder)
    program.tokenizer = world.tokenizer()
    with pytest.raises(InputError, match="tokenizer is of kind wordpiece, expected word_characters"):
        program.prepare(rows())


@pytest.mark.full
def test_both_perplexities_fall_below_the_unigrams(tmp_path):
    """On the quickstart's books, learned with fewer candidates than words; told of held-out text by the full softmax."""
    books.write(tmp_path)
    text = tmp_path / "train.txt"
    tokenizer = train_characters(text.read_text().splitlines(), 2000)
    records = write_records([text], tokenizer, tmp_path / "records", length=64, packing="stream")
    changes = {"hidden": 128, "recurrence.units": 128, "embeddings.filters": (16, 32, 64), "embeddings.highways": 1}
    kb.pretrain(
        "elmo/small",
        tmp_path / "records",
        out=tmp_path / "run",
        changes=changes | {"dropout": 0.0, "embeddings.vocabulary": tokenizer.size},
        objective={"segments": 2, "candidates": 256},
        steps=240,
        batch=32,
        learning_rate=3e-3,
        warmup=20,
        log_every=60,
        evaluate_every=240,
        quiet=True,
    )
    logs = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    told = next(log for log in reversed(logs) if "held_out/forward" in log)
    entropy = BiLM.baseline(Records(records.directory))["entropy"]
    found = {name: told[f"held_out/{name}"] for name in ("forward", "backward")}
    print(
        f"unigram perplexity {math.exp(entropy):.1f}, held out { ({name: math.exp(x) for name, x in found.items()}) }"
    )
    assert max(found.values()) < entropy
    assert told["held_out/perplexity"] == pytest.approx(math.exp(found["forward"]), rel=1e-4)
    assert told["held_out/backward/perplexity"] == pytest.approx(math.exp(found["backward"]), rel=1e-4)

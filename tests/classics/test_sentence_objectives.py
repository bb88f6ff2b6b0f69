"""Skip-Thought and Quick-Thoughts: sentences of a row by hand, losses in float64 from the equations, what is seen, refused."""

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.classics.objectives.sentences import Settings, bounds
from kerasbert.classics.quick_thoughts import Neighbours
from kerasbert.classics.quick_thoughts import Settings as Choice
from kerasbert.classics.skip_thought import SkipThoughts
from kerasbert.data import Records, write_records
from kerasbert.errors import InputError
from kerasbert.layers.naming import values
from kerasbert.testing import battery, world
from kerasbert.testing.objectives import check_micro_batches
from kerasbert.tpu_check.lower import Step
from tests.support import often


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("sentences")


def made(folder, name="skip-thought", settings=None, **changes):
    """A tiny model with its objective, and the subject."""
    subject = battery.Subject(name, folder, **changes)
    return subject.objective(subject.encoder(), subject.tokenizer, settings=settings), subject


def rows(tokenizer, *texts, length=12):
    """Records' features of rows that hold these sentences, lists of ids."""
    ids = np.full((len(texts), length), tokenizer.pad_id, "int32")
    borders, total = np.zeros((len(texts), -(-length // 16)), "int32"), []
    for i, sentences in enumerate(texts):
        place = 1
        for sentence in sentences:
            borders[i, place // 16] |= 1 << place % 16
            ids[i, place : place + len(sentence)] = sentence
            place += len(sentence)
        ids[i, 0], ids[i, place] = tokenizer.cls_id, tokenizer.sep_id
        total.append(place + 1)
    lengths = np.stack([total, np.zeros(len(total))], 1).astype("int32")
    found = {"token_ids": ids, "segment_lengths": lengths, "sentence_borders": borders}
    return {name: tf.constant(value) for name, value in found.items()} | {"row": tf.range(len(texts))}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru(x, weights, at, added=0.0):
    """Equations 1 to 4, and 5 to 8 with `added`: float64 [T, E] -> [T, U]."""
    kernel, matrix = weights[f"{at}/kernel"], weights[f"{at}/recurrent_kernel"]
    units = len(matrix)
    h, found = np.zeros(units), []
    for word in x:
        own = word @ kernel + weights[f"{at}/bias"] + added
        r, z = np.split(sigmoid(own[: 2 * units] + h @ matrix[:, : 2 * units]), 2)
        h = (1 - z) * h + z * np.tanh(own[2 * units :] + (r * h) @ matrix[:, 2 * units :])
        found.append(h)
    return np.array(found)


def read(ids, weights, spec, reader):
    """A reader's vector of a sentence."""
    words = weights[f"embeddings/{reader}/table"][ids]
    ways = {"uni": {"forward": words}}.get(spec.readers[reader], {"forward": words, "backward": words[::-1]})
    return np.concatenate([gru(x, weights, f"block_0/{reader}_{way}")[-1] for way, x in ways.items()])


def float64(program):
    """The weights, biases not zero."""
    generator = np.random.default_rng(7)
    for weight in program.model.weights:
        if weight.path.endswith("bias"):
            weight.assign(generator.normal(0, 0.3, weight.shape))
    return {name: value.astype("float64") for name, value in values(program.model).items()}


def test_sentences_of_a_row_by_hand(folder):
    program, subject = made(folder, settings={"sentences": 3})
    cls, sep, pad = (getattr(subject.tokenizer, f"{part}_id") for part in ("cls", "sep", "pad"))
    # places of 2 * 12 / 3 = 8 tokens: the first sentence of the second row is cut to 6; the third row has a fourth sentence
    texts = [[[9, 8], [7]], [[11, 12, 13, 14, 15, 16, 17], [18, 19]], [[5], [6], [7], [8, 9, 10]]]
    batch = program.prepare(rows(subject.tokenizer, *texts))
    expected = np.full((3, 3, 8), pad)
    for (i, j), sentence in {
        (0, 0): [9, 8],
        (0, 1): [7],
        (1, 0): [11, 12, 13, 14, 15, 16],
        (1, 1): [18, 19],
        (2, 0): [5],
        (2, 1): [6],
        (2, 2): [7],
    }.items():
        expected[i, j, : len(sentence) + 2] = [cls, *sentence, sep]
    np.testing.assert_array_equal(batch["token_ids"], expected)
    np.testing.assert_array_equal(batch["padding_mask"], expected != pad)
    assert np.asarray(batch["dropped"]).tolist() == [0, 1, 3]


def test_a_row_may_begin_within_a_sentence():
    starts = tf.constant([[False, False, False, True, False, False]])
    begins, ends = bounds(starts, tf.constant([[6]]), 3)
    assert (np.asarray(begins).tolist(), np.asarray(ends).tolist()) == ([[1, 3, 5]], [[3, 5, 5]])


@pytest.mark.parametrize("directions", [("uni",), ("uni", "bi")])
def test_both_neighbours_are_written_in_float64(folder, directions):
    program, subject = made(folder, settings={"sentences": 3}, directions=directions)
    texts = [[[9, 8], [7], [12, 13, 14]], [[11, 12], [18, 19]]]
    batch = program.prepare(rows(subject.tokenizer, *texts))
    weights, spec = float64(program), subject.spec
    cls, sep = subject.tokenizer.cls_id, subject.tokenizer.sep_id
    nats, right, count = dict.fromkeys(("next", "previous"), 0.0), dict.fromkeys(("next", "previous"), 0), 0
    for reader in spec.readers:
        for text in texts:
            vectors = [read([cls, *each, sep], weights, spec, reader) for each in text]
            for i in range(len(text) - 1):
                for way, told, written in (("next", i, i + 1), ("previous", i + 1, i)):
                    at = f"heads/{reader}_{way}"
                    words = weights[f"embeddings/{reader}/table"][[cls, *text[written]]]
                    y = gru(words, weights, at, vectors[told] @ weights[f"{at}/context_kernel"])
                    logits = y @ weights[f"heads/{reader}_words/table"].T + weights[f"heads/{reader}_words/bias"]
                    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
                    labels = [*text[written], sep]
                    nats[way] -= logs[range(len(labels)), labels].sum()
                    right[way] += (logs.argmax(-1) == labels).sum()
                    count += len(labels) * (way == "next")
    sums, counts = program.losses(batch), program.counts(batch)
    for way in ("next", "previous"):
        assert float(sums[way]) == pytest.approx(nats[way], rel=1e-5)
        assert float(sums[f"{way}/accuracy"]) == right[way]
    assert float(counts["next"]) == count == len(spec.readers) * (2 + 4 + 3)
    assert float(counts["previous"]) == len(spec.readers) * (3 + 2 + 3)


@pytest.mark.parametrize("directions", [("uni",), ("bi", "uni")])
def test_neighbours_are_chosen_in_float64(folder, directions):
    program, subject = made(folder, "quick-thoughts", {"sentences": 4}, directions=directions)
    texts = [[[9, 8], [7], [12, 13], [5]], [[11], [18, 19], [6, 7]]]
    batch = program.prepare(rows(subject.tokenizer, *texts))
    weights, spec = float64(program), subject.spec
    cls, sep = subject.tokenizer.cls_id, subject.tokenizer.sep_id
    nats, right, count, scores_seen = 0.0, 0, 0, []
    for direction in spec.directions:
        for text in texts:
            f, g = (
                np.stack([read([cls, *each, sep], weights, spec, f"{direction}_{role}") for each in text])
                for role in "fg"
            )
            scores = f @ g.T
            scores_seen.append(scores)
            for i in range(len(text)):
                others = [j for j in range(len(text)) if j != i]
                logs = scores[i] - np.log(np.exp(scores[i][others]).sum())
                near = [j for j in others if abs(i - j) == 1]
                nats -= logs[near].sum()
                right += len(near) * (max(others, key=lambda j: scores[i][j]) in near)
                count += len(near)
    sums = program.losses(batch)
    assert max(np.ptp(scores) for scores in scores_seen) > 0.05  # else any softmax is even
    assert float(sums["context"]) == pytest.approx(nats, rel=1e-5)
    assert float(sums["context/accuracy"]) == right
    assert float(program.counts(batch)["context"]) == count == len(spec.directions) * (6 + 4)
    wider = Neighbours(program.model.body, subject.tokenizer, settings={"sentences": 4, "context": 2})
    assert float(wider.counts(batch)["context"]) == len(spec.directions) * (6 + 4 + 4 + 2)


def test_what_is_written_is_not_seen(folder):
    """A sentence's tokens enter its own loss no earlier than behind themselves; other rows never."""
    program, subject = made(folder, settings={"sentences": 2})
    body, heads = program.model.body, program.model.heads
    ids = np.array([[5, 6, 7, 8]])
    words = body.embed({"token_ids": tf.constant(ids)})
    vector = tf.ones((1, subject.spec.hidden))
    plain = np.asarray(heads["uni_next"](words, vector))
    ids[0, 2] = 9
    other = np.asarray(heads["uni_next"](body.embed({"token_ids": tf.constant(ids)}), vector))
    assert (np.abs(other - plain).max(-1) > 0).tolist() == [[False, False, True, True]]
    one, two = [[9, 8], [7]], [[11, 12], [18, 19]]
    alone = program.losses(program.prepare(rows(subject.tokenizer, one)))
    both = program.losses(program.prepare(rows(subject.tokenizer, one, two)))
    second = program.losses(program.prepare(rows(subject.tokenizer, two)))
    for name in ("next", "previous"):
        assert float(both[name]) == pytest.approx(float(alone[name]) + float(second[name]), rel=1e-5)


@pytest.mark.filterwarnings("ignore:Even though the `tf.config")  # what reads the rows is no matter
def test_any_accumulation_makes_the_same_updates(folder):
    """What `check_objective` asks of the others: here a vector of a whole sentence is the target."""
    check_micro_batches(lambda: made(folder, "quick-thoughts"))


def test_rows_are_as_long_as_their_sentences_need():
    assert SkipThoughts.lengths(Settings(16), 256) == (32,)
    assert SkipThoughts.record_length(Settings(16), 32) == 256
    assert Neighbours.lengths(Choice(400), 6400) == (32,)
    assert SkipThoughts.tokens_read(Settings(16), 256, 200.0) == 200


@pytest.mark.parametrize("name", often(("skip-thought", "quick-thoughts"), "skip-thought"))
def test_the_step_of_combined_readers_lowers(name, folder):
    subject = battery.Subject(name, folder, directions=("uni", "bi"))
    assert Step(subject.family, subject.spec, length=12, replicas=2).lower(4).problems == []


def test_what_is_refused(folder):
    with pytest.raises(InputError, match="sentences 1, expected at least 2 in a row"):
        Settings(1)
    with pytest.raises(InputError, match="context 8, expected 1 to 7 sentences on each side"):
        Choice(8, context=8)
    with pytest.raises(InputError, match="24 tokens have 3 for each of 16 sentences, .* --length 32 or more"):
        SkipThoughts.lengths(Settings(16), 24)
    bert = battery.Subject("bert", folder)
    with pytest.raises(InputError, match="Encoder gives no vectors of sentences while it learns: choose another"):
        SkipThoughts(bert.encoder(), bert.tokenizer)
    skip = battery.Subject("skip-thought", folder)
    with pytest.raises(InputError, match="SkipThought has no encoders f and g, which score"):
        Neighbours(skip.encoder(), skip.tokenizer)
    corpus = world.corpus(folder / "corpus.txt")
    for packing, borders in (("doc", False), ("full", True)):
        out = folder / f"other-{packing}"
        settings = {"length": 24, "packing": packing, "sentence_borders": borders}
        records = write_records([corpus], world.tokenizer(), out, **settings)
        with pytest.raises(InputError, match=f"'{packing}'.* do not tell where the sentences of one text begin: make"):
            SkipThoughts.check(Settings(), records)
    SkipThoughts.check(Settings(), Records(skip.records().directory))

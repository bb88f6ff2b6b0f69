"""XLNet's objective: rows by hand, exact shares, spans and orders within 3 sigma, what a prediction may see, bad settings."""

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.layers import random
from kerasbert.models.xlnet import XLNET
from kerasbert.objectives import permutation
from kerasbert.objectives.permutation import SPECIALS, Permutation, Settings
from kerasbert.testing.battery import tokenizer
from kerasbert.text import WordPiece
from tests import tiny

TOKENIZER = tokenizer("unigram", "xlnet")
CLS, SEP, PAD = TOKENIZER.cls_id, TOKENIZER.sep_id, TOKENIZER.pad_id
ORDINARY = np.setdiff1d(np.arange(TOKENIZER.size), TOKENIZER.special_ids)


def features(rows, length, lengths=None, step=3, first=0):
    generator = np.random.default_rng(0)
    total = np.full(rows, length) if lengths is None else np.asarray(lengths)
    ids = np.where(np.arange(length) < total[:, None], generator.choice(ORDINARY, (rows, length)), PAD)
    found = {"token_ids": ids, "segment_lengths": np.stack([total, 0 * total], 1), "row": first + np.arange(rows)}
    return {name: tf.constant(x, tf.int32) for name, x in (found | {"step": np.full(rows, step)}).items()}


def prepared(given, seed=1, **settings):
    made = Permutation.without_model(TOKENIZER, Settings(**settings), seed)
    return {name: np.asarray(x) for name, x in made.prepare(given).items()}


def keys(rows):
    return random.key(5, "test", np.arange(rows))


@pytest.mark.parametrize("segments", [1, 2, 3])
def test_rows_are_a_text_and_end_with_sep_and_cls(segments):
    """Every second row is written backward; the text goes on from segment to segment; its last tokens are left out."""
    given = features(8, 48, lengths=[48] * 6 + [30, 5])
    batch = prepared(given, segments=segments)
    size = 48 // segments
    for row in range(8):
        total = min(int(given["segment_lengths"][row, 0]), 48 - SPECIALS * segments)
        text = given["token_ids"][row].numpy()[:total][:: -1 if row % 2 else 1].tolist()
        found = []
        for i in range(segments):
            part = {name: x[row, i * size : (i + 1) * size] for name, x in batch.items() if x.shape[1:] == (48,)}
            held = part["padding_mask"].sum()
            ids, numbers = part["token_ids"][:held].tolist(), part["segment_ids"][:held].tolist()
            assert (part["token_ids"][held:] == PAD).all()
            if held:
                assert ids[-2:] == [SEP, CLS]
                assert numbers == sorted(numbers)
                assert numbers[-1] == 2
                assert numbers.count(2) == 1
                cut = ids.index(SEP)
                assert numbers[: cut + 1] == [0] * (cut + 1)
                found += ids[:cut] + ids[cut + 1 : -2]
        assert found == text
        assert (batch["backward"][row] == row % 2).all()


def test_one_direction_alone():
    assert "backward" not in prepared(features(2, 24), both_directions=False)


def test_exactly_one_token_in_six_of_full_rows_is_predicted():
    batch = prepared(features(40, 512), segments=1)
    assert batch["target_positions"].shape == (40, 85)  # the released num_predict
    assert (batch["weights"] == 1).all()
    for row, (ids, places, labels) in enumerate(zip(batch["token_ids"], batch["target_positions"], batch["labels"])):
        assert len(set(places.tolist())) == 85, row
        assert (np.diff(places) > 0).all()
        assert np.isin(labels, ORDINARY).all()
        np.testing.assert_array_equal(ids[places], labels)


def test_short_rows_have_their_share_and_empty_ones_nothing():
    batch = prepared(features(3, 60, lengths=[33, 3, 0]), segments=1, one_in=4)
    # 36 of 60 tokens, then 6: 15 of 60 are asked for
    assert batch["weights"].sum(axis=1).tolist() == [9, 1, 0]
    assert (batch["target_positions"][batch["weights"] == 0] == 0).all()


def test_spans_are_whole_within_their_windows():
    """Of 120 tokens 20 are chosen, in spans of at most 3: no run of chosen tokens is longer than two spans that touch."""
    eligible = np.ones((200, 120), bool)
    positions, chosen = (x.numpy() for x in permutation.targets(keys(200), eligible, np.full(200, 20), 20, 3))
    assert chosen.all()
    runs = [np.diff(np.flatnonzero(np.diff(row, prepend=-2, append=999) != 1)) for row in positions]
    assert {int(run) for row in runs for run in row} <= {1, 2, 3, 4, 5, 6}


def test_lengths_of_spans_follow_the_law():
    lengths = permutation.span_lengths(keys(400), 50, 5).numpy().ravel()
    law = 1 / np.arange(1, 6) / (1 / np.arange(1, 6)).sum()
    counts = np.bincount(lengths, minlength=6)[1:]
    sigma = np.sqrt(len(lengths) * law * (1 - law))
    assert (np.abs(counts - len(lengths) * law) < 3 * sigma).all()


def test_single_tokens_are_spread_evenly():
    """With spans of one token and windows of 5 each place is as likely as the others."""
    eligible = np.ones((4000, 40), bool)
    positions = permutation.targets(keys(4000), eligible, np.full(4000, 8), 8, 1)[0].numpy()
    counts = np.bincount(positions.ravel(), minlength=40)
    assert (np.abs(counts - 800) < 3.5 * np.sqrt(4000 * 0.2 * 0.8)).all()


def test_special_tokens_are_never_predicted():
    given = features(20, 60)
    ids = given["token_ids"].numpy()
    ids[:, ::3] = SEP  # as between documents
    batch = prepared(given | {"token_ids": tf.constant(ids)}, segments=1)
    assert (batch["weights"] == 1).all()
    assert np.isin(batch["labels"], ORDINARY).all()


def test_orders_are_uniform():
    """Each of three predicted tokens is the first in a third of the orders; two of them stand either way round."""
    order = permutation.ranks(keys(9000), 30).numpy()
    assert order.min() >= 1
    assert all(len(set(row)) == 30 for row in order.tolist()[:100])
    counts = np.bincount(order[:, [3, 11, 29]].argmin(axis=1))
    assert (np.abs(counts - 3000) < 3 * np.sqrt(9000 * 2 / 9)).all()
    ahead = (order[:, :, None] < order[:, None, :]).mean(axis=0)[np.triu_indices(30, 1)]
    assert np.abs(ahead - 0.5).max() < 4.5 * 0.5 / np.sqrt(9000)  # the largest of 435


def test_context_is_zero_in_the_order():
    batch = prepared(features(6, 48), segments=2)
    for row in range(6):
        for i in range(2):
            part = slice(24 * i, 24 * i + 24)
            ids, order = batch["token_ids"][row, part], batch["order"][row, part]
            asked = set(batch["target_positions"][row, 4 * i : 4 * i + 4].tolist())
            placed = set(np.flatnonzero(np.isin(ids, [CLS, SEP])).tolist())
            assert set(np.flatnonzero(order).tolist()) == asked | placed
            assert not asked & placed


def test_a_row_depends_on_its_key_alone():
    whole = prepared(features(6, 48))
    part = {name: x[2:4] for name, x in features(6, 48).items()}
    for name, value in prepared(part).items():
        np.testing.assert_array_equal(value, whole[name][2:4])
    other = prepared(features(6, 48, step=4))
    assert (other["target_positions"] != whole["target_positions"]).any(axis=1).all()
    assert (prepared(features(6, 48), seed=2)["order"] != whole["order"]).any(axis=1).all()


def test_the_input_pipeline_gives_the_same():
    """As a graph with rows of several batches."""
    given = features(6, 48)
    made = Permutation.without_model(TOKENIZER, Settings(), 1)
    dataset = tf.data.Dataset.from_tensor_slices(given).batch(6).map(made.prepare, num_parallel_calls=2).prefetch(1)
    expected = made.prepare(given)
    for name, value in next(iter(dataset)).items():
        np.testing.assert_array_equal(value, expected[name])


@pytest.fixture(scope="module")
def program():
    changes = {"hidden": 12, "attention.heads": 2, "feedforward.width": 10, "blocks.layers": 2, "initializer": 0.3}
    encoder = XLNET.encoder(XLNET.spec.derive(changes | {"embeddings.vocabulary": TOKENIZER.size, "dropout": 0.0}))
    return Permutation(encoder, TOKENIZER, settings={"memory": 10})


def test_no_prediction_sees_what_it_predicts(program):
    """The token at a predicted place changes none of the logits there, of both segments."""
    batch = program.prepare(features(2, 48))
    parts = {name: np.asarray(batch[name]) for name in program.cut}
    for part in ({name: np.split(x, 2, axis=1)[i] for name, x in parts.items()} for i in range(2)):
        inputs = {
            name: part[name] for name in ("token_ids", "padding_mask", "segment_ids", "order", "target_positions")
        }
        plain = program.model(inputs)["lm_logits"].numpy()
        for p in range(part["target_positions"].shape[1]):
            ids = inputs["token_ids"].copy()
            at = np.arange(2), part["target_positions"][:, p]
            ids[at] = np.where(ids[at] == ORDINARY[0], ORDINARY[1], ORDINARY[0])
            other = program.model(inputs | {"token_ids": ids})["lm_logits"].numpy()
            np.testing.assert_array_equal(other[:, p], plain[:, p])
            assert np.abs(other - plain).max() > 1e-4


def test_the_second_segment_reads_the_first(program):
    """Its loss is that with the text of the first as memory, without <sep> <cls>; at most ten tokens of it."""
    batch = {name: np.asarray(x) for name, x in program.prepare(features(2, 48)).items()}
    parts = [{name: np.split(batch[name], 2, axis=1)[i] for name in program.cut} for i in range(2)]
    given = [{name: part[name] for name in permutation.ARRAYS[:-2]} for part in parts]
    given = [each | {"backward": part["backward"][:, 0]} for each, part in zip(given, parts)]
    first = program.model(given[0])
    memory = tuple(layer[:, 12:22] for layer in first["memory"])
    logits = [first["lm_logits"], program.model(given[1] | {"memory": memory})["lm_logits"]]
    expected = 0.0
    for each, part in zip(logits, parts):
        nats = -tf.nn.log_softmax(each).numpy()
        expected += (np.take_along_axis(nats, part["labels"][..., None], -1)[..., 0] * part["weights"]).sum()
    assert float(program.losses(batch, training=False)["lm"]) == pytest.approx(expected, rel=1e-5)
    assert float(program.counts(batch)["lm"]) == batch["weights"].sum() == 2 * 2 * 4


def test_what_a_run_says(program):
    assert program.remarks(1024) == ["3 of every 512 tokens (0.6%) make room for <sep> and <cls>"]
    other = Permutation.without_model(tokenizer("unigram"), Settings(segments=1))
    assert other.remarks(128)[1].startswith(
        "the tokenizer packs texts as '[CLS] $A [SEP]', where this model learns <cls>"
    )


def test_lengths_and_predictions():
    assert Permutation.lengths(Settings(), 1024) == (512,)
    assert Permutation.record_length(Settings(), 512) == 1024
    assert Permutation.predictions(Settings(), 1024) == 170
    assert Permutation.predictions(Settings(segments=1), 512, 256.0) == 42.5


@pytest.mark.parametrize(
    ("settings", "length", "message"),
    [
        ({"one_in": 0}, 48, "one_in 0, expected at least 1: one token of so many is predicted"),
        ({"longest": 0}, 48, "longest 0, expected a span of at least 1 token"),
        ({"segments": 0}, 48, "segments 0, expected at least 1 in a row"),
        ({"memory": -1}, 48, "memory -1, expected at least 0 tokens"),
        ({"predictions": 0}, 48, "predictions 0, expected at least 1"),
        (
            {"predictions": 22},
            48,
            "predictions 22 of segments of 24 tokens, 3 of which are <sep> and <cls>: expected 1 to 21",
        ),
        ({"segments": 12}, 48, "one token in 6 of segments of 4 tokens, 3 of which are"),
        ({"segments": 5}, 48, "rows of 48 tokens are no 5 segments of one length: make records with --length 45"),
    ],
)
def test_bad_settings_are_one_line(settings, length, message):
    with pytest.raises(InputError, match=message):
        Permutation.lengths(Settings(**settings), length)


def test_models_and_tokenizers_that_cannot():
    import kerasbert as kb

    with pytest.raises(InputError, match="Encoder has no query stream, which this objective predicts tokens with"):
        Permutation(kb.build("bert/tiny", **tiny.SPEC), TOKENIZER)
    pieces = [*"[PAD] [UNK] [CLS] [SEP] [MASK] a b".split()]
    without = WordPiece(pieces)
    without.cls_id = None
    with pytest.raises(
        InputError, match="the tokenizer has no <cls>, which ends a row: take XLNet's tokenizer, or learn"
    ):
        Permutation(XLNET.encoder(XLNET.spec), without)

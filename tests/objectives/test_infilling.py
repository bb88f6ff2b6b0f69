"""BART's noises and MASS': by hand, relations, statistics."""

import time

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.data import encode, joins, write_records
from kerasbert.errors import InputError
from kerasbert.layers import random
from kerasbert.objectives import infilling, mass
from kerasbert.objectives.infilling import Infilling, Settings, poisson
from kerasbert.objectives.mass import Mass
from tests import tiny

TOKENIZER = tiny.tokenizer()
CLS, SEP, MASK, PAD = TOKENIZER.cls_id, TOKENIZER.sep_id, TOKENIZER.mask_id, TOKENIZER.pad_id
LENGTH = 64


def features(rows: int, length: int = LENGTH, lengths=None, sentences: int = 8, step: int = 3):
    """Rows of [CLS] 1000 1001 1002 ... [SEP]: a token says where it stood. Sentences of so many tokens."""
    total = np.full(rows, length) if lengths is None else np.asarray(lengths)
    place = np.arange(length)
    ids = np.where(place < total[:, None] - 1, 1000 + place - 1, PAD)
    ids[:, 0], ids[np.arange(rows), total - 1] = CLS, SEP
    starts = np.tile((place % sentences == 1).astype(int), (rows, 1))
    borders = joins._grouped(starts, joins.BORDER_GROUP, 1)
    found = {"token_ids": ids, "segment_lengths": np.stack([total, 0 * total], 1), "row": np.arange(rows)}
    found |= {"step": np.full(rows, step), joins.BORDERS: borders}
    return {name: tf.constant(x, tf.int32) for name, x in found.items()}


def prepared(given, seed: int = 1, kind=Infilling, **settings):
    program = kind.without_model(TOKENIZER, kind.settings_class(**settings), seed)
    return {name: np.asarray(x) for name, x in program.prepare(given).items()}


def real(batch, row):
    return batch["token_ids"][row][batch["padding_mask"][row] == 1].tolist()


QUIET = {"rate": 0.0, "permutation": 0.0}


def test_nothing_is_changed_where_nothing_is_asked_for():
    given = features(4, lengths=[64, 40, 3, 2])
    batch = prepared(given, **QUIET)
    np.testing.assert_array_equal(batch["token_ids"], given["token_ids"])
    np.testing.assert_array_equal(batch["labels"], given["token_ids"])
    assert batch["padding_mask"].sum(1).tolist() == batch["weights"].sum(1).tolist() == [64, 40, 3, 2]
    assert (batch["decoder_token_ids"][:, 0] == SEP).all()
    np.testing.assert_array_equal(batch["decoder_token_ids"][:, 1:], given["token_ids"][:, :-1])


def test_infilling_by_hand(monkeypatch):
    """Ten tokens, lengths 2, 0, 5, 3: the first and 1 of 5 make three; slots 1, 4, 9 of seven tokens and three spans."""
    monkeypatch.setattr(infilling, "poisson", lambda *_: tf.constant([[2, 0, 5, *[3] * 7]]))
    picked = tf.constant([[1, 4, 9, *[15] * 7]]), tf.constant([[True] * 3 + [False] * 7]), None
    monkeypatch.setattr(infilling, "tokens", lambda *_: picked)
    batch = prepared(features(1, 12), permutation=0.0)
    text = [CLS, 1000, MASK, 1003, 1004, MASK, 1005, 1006, 1007, 1008, MASK, SEP]
    assert batch["token_ids"][0].tolist() == text
    assert batch["dropped"].tolist() == [0]


def test_insertions_beyond_the_row_are_dropped_and_counted(monkeypatch):
    """Four insertions before the two tokens that are left out: one more than there is room for."""
    monkeypatch.setattr(infilling, "poisson", lambda *_: tf.constant([[0, 0, 0, 0, 1, 1, 1, 1]]))
    batch = prepared(features(1, 8), permutation=0.0)
    assert batch["dropped"].tolist() == [4]
    assert batch["padding_mask"].sum() == 8
    assert (batch["token_ids"] == MASK).sum() == 2
    assert batch["token_ids"][0, -1] == SEP
    short = prepared(features(1, 8, lengths=[7]), permutation=0.0)  # of 7 tokens one place is free
    assert short["padding_mask"].sum() == 8
    assert short["dropped"].tolist() == [3]


def test_infilling_takes_30_percent_and_never_outgrows():
    rows, length = 3000, 128
    batch = prepared(features(rows, length), permutation=0.0)
    assert batch["dropped"].sum() == 0
    wanted = round(0.3 * 126)
    spans = (batch["token_ids"] == MASK).sum(1)
    assert (batch["padding_mask"].sum(1) == length - wanted + spans).all()  # exactly 30% are gone in every row
    kept = batch["token_ids"] >= 1000
    assert (kept.sum(1) == 126 - wanted).all()
    order = np.where(kept, batch["token_ids"], 0)
    assert all((np.diff(row[row > 0]) > 0).all() for row in order)  # what stays keeps its order
    np.testing.assert_array_equal(batch["labels"], features(rows, length)["token_ids"])
    # every token is as likely to stay, but near the ends, which spans do not cross
    stays = np.stack([np.isin(np.arange(1000, 1126), row) for row in order]).mean(0)
    p = 1 - wanted / 126
    assert np.abs(stays[15:-15] - p).max() < 0.05
    assert stays[[0, -1]].max() < 0.9


def test_lengths_are_poissons():
    draws = np.asarray(poisson(random.key(1, np.arange(2000)), 3.0, 40))
    assert abs(draws.mean() - 3) < 3 * (3 / draws.size) ** 0.5
    assert abs(draws.var() - 3) < 0.1
    p = np.exp(-3)
    assert abs((draws == 0).mean() - p) < 3 * (p * (1 - p) / draws.size) ** 0.5


def test_short_rows_never_outgrow_either():
    lengths = np.tile(np.arange(2, 65), 20)
    given = features(len(lengths), lengths=lengths)
    batch = prepared(given)
    for row, total in enumerate(lengths):
        tokens = real(batch, row)
        assert (tokens[0], tokens[-1]) == (CLS, SEP)
        assert len([t for t in tokens if t >= 1000]) == total - 2 - round(0.3 * (total - 2))
        assert (batch["token_ids"][row][len(tokens) :] == PAD).all()
    assert batch["dropped"].sum() < 0.01 * len(lengths)


def test_sentences_change_places_and_stay_whole():
    given = features(4000, 26, sentences=6)  # four sentences of 6 tokens
    batch = prepared(given, rate=0.0)
    sentences = batch["token_ids"][:, 1:25].reshape(-1, 4, 6)
    assert (np.diff(sentences, axis=2) == 1).all()
    orders, found = np.unique((sentences[:, :, 0] - 1000) // 6, axis=0, return_counts=True)
    assert len(orders) == 24
    expected = 4000 / 24
    assert (((found - expected) ** 2 / expected).sum() - 23) < 3 * (2 * 23) ** 0.5
    assert (batch["token_ids"][:, 0] == CLS).all()
    assert (batch["token_ids"][:, 25] == SEP).all()
    some = prepared(given, rate=0.0, permutation=0.25)
    same = (some["token_ids"] == given["token_ids"].numpy()).all(1).mean()
    p = 0.75 + 0.25 / 24
    assert abs(same - p) < 3 * (p * (1 - p) / 4000) ** 0.5


def test_rotation_deletion_and_masking():
    given = features(300, 22)
    batch = prepared(given, **QUIET, rotation=1.0)
    inner = batch["token_ids"][:, 1:21] - 1000
    assert (np.diff(inner, axis=1) % 20 == 1).all()
    assert len(np.unique(inner[:, 0])) == 20
    batch = prepared(given, **QUIET, deletion=0.25)
    assert (batch["padding_mask"].sum(1) == 22 - 5).all()
    tokens = batch["token_ids"][:, 1:16]
    assert (np.diff(tokens, axis=1) > 0).all()
    assert (batch["token_ids"][:, 16] == SEP).all()
    batch = prepared(given, **QUIET, masking=0.25)
    masked = batch["token_ids"] == MASK
    assert (masked.sum(1) == 5).all()
    np.testing.assert_array_equal(np.where(masked, given["token_ids"], batch["token_ids"]), given["token_ids"])
    everything = prepared(features(300), rotation=0.5, deletion=0.1, masking=0.1)
    assert (everything["token_ids"][:, 0] == CLS).all()
    assert (np.take_along_axis(everything["token_ids"], everything["padding_mask"].sum(1)[:, None] - 1, 1) == SEP).all()


@pytest.mark.parametrize("kind", [Infilling, Mass])
def test_a_rows_noise_is_its_own(kind):
    given = features(16, lengths=np.arange(49, 65))
    whole = prepared(given, kind=kind)
    part = prepared({name: x[5:9] for name, x in given.items()}, kind=kind)
    assert all((whole[name][5:9] == part[name]).all() for name in whole)
    later = prepared(given | {"step": given["step"] + 1}, kind=kind)
    assert (later["token_ids"] != whole["token_ids"]).any(1).all()
    assert (prepared(given, seed=2, kind=kind)["token_ids"] != whole["token_ids"]).any(1).all()


def test_mass_by_hand():
    """A fragment of four of eight tokens; what it reads of itself, and where."""
    given = features(40, 10)
    batch = prepared(given, kind=Mass, mask=1.0, random=0.0)
    begins = batch["decoder_position_ids"][:, 0]
    assert set(begins) == {1, 2, 3, 4, 5}
    row = np.flatnonzero(begins == 3)[0]
    assert batch["token_ids"][row].tolist() == [CLS, 1000, 1001, MASK, MASK, MASK, MASK, 1006, 1007, SEP]
    assert batch["labels"][row].tolist() == [1002, 1003, 1004, 1005]
    assert batch["decoder_token_ids"][row].tolist() == [MASK, 1002, 1003, 1004]
    assert batch["decoder_position_ids"][row].tolist() == [3, 4, 5, 6]
    assert (batch["weights"] == 1).all()


def test_mass_masks_half_and_80_10_10():
    lengths = np.tile(np.arange(4, 65), 60)
    given = features(len(lengths), lengths=lengths)
    batch = prepared(given, kind=Mass)
    wanted = np.array([round(0.5 * (n - 2)) for n in lengths])
    np.testing.assert_array_equal(batch["weights"].sum(1), wanted)
    seen = np.take_along_axis(batch["token_ids"], batch["decoder_position_ids"], 1)[batch["weights"] == 1]
    labels = batch["labels"][batch["weights"] == 1]
    for share, expected in (((seen == MASK).mean(), 0.8), ((seen == labels).mean(), 0.1)):
        assert abs(share - expected) < 3 * (expected * (1 - expected) / len(labels)) ** 0.5
    rows, columns = np.nonzero(batch["weights"])
    places = batch["decoder_position_ids"][rows, columns]
    np.testing.assert_array_equal(labels, given["token_ids"].numpy()[rows, places])
    untouched = np.ones(given["token_ids"].shape, bool)
    untouched[rows, places] = False
    np.testing.assert_array_equal(batch["token_ids"][untouched], given["token_ids"].numpy()[untouched])
    assert (batch["labels"][batch["weights"] == 0] == PAD).all()


def test_records_tell_where_sentences_begin(tmp_path, monkeypatch):
    monkeypatch.setattr(encode, "_in_graph", encode._one_by_one)  # no graph to trace for each
    lines = ["The happy cat. A bad film.", "the sad dog", "A film! The cat? The dog."]
    (tmp_path / "corpus.txt").write_text("\n".join(lines) + "\n")
    made = {}
    for borders in (False, True):
        out = tmp_path / str(borders)
        made[borders] = write_records(
            [tmp_path / "corpus.txt"], TOKENIZER, out, length=18, packing="doc", sentence_borders=borders
        )
    assert list(made[True].features) == ["token_ids", "segment_lengths", joins.BORDERS]
    assert made[True].manifest["settings"]["splitting"] == 1
    data = made[True].dataset(made[True].examples, seed=0, shuffle=False)
    found = next(iter(data))
    starts, ids = (np.asarray(x) for x in (infilling.units.sentences(found), found["token_ids"]))
    pieces = np.array(TOKENIZER.vocabulary, object)[ids]
    expected = [TOKENIZER.vocabulary[TOKENIZER.encode(line)[0]] for line in ("The", "A", "the", "A", "The", "The")]
    assert pieces[starts].tolist() == expected
    assert starts[0, 1]
    Infilling.check(Settings(), made[True])
    with pytest.raises(
        InputError, match="do not tell where sentences begin, .* --sentence-borders, or --set objective.perm"
    ):
        Infilling.check(Settings(), made[False])
    Infilling.check(Settings(permutation=0.0), made[False])
    stream = write_records([tmp_path / "corpus.txt"], TOKENIZER, tmp_path / "stream", length=8, packing="stream")
    with pytest.raises(
        InputError, match=r"takes rows of one text behind a \[CLS\]: make them again with --packing doc"
    ):
        Mass.check(mass.Settings(), stream)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Settings, {"rate": 1.0}, "rate 1.0, expected a share of at least 0 and at most 1"),
        (Settings, {"rotation": 1.5}, "rotation 1.5, expected a share"),
        (Settings, {"mean": 0.1}, "mean 0.1, expected a mean length of spans of 0.5 to 20"),
        (mass.Settings, {"rate": 0.0}, "rate 0.0, expected a share above 0 and at most 1"),
        (
            mass.Settings,
            {"mask": 0.9, "random": 0.2},
            "mask 0.9 and random 0.2, expected shares whose sum is at most 1",
        ),
    ],
)
def test_bad_settings(kind, settings, message):
    with pytest.raises(InputError, match=message):
        kind(**settings)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "settings"), [(Infilling, {"permutation": 0.0}), (Infilling, {}), (Mass, {})])
def test_tokens_a_second_of_processor_time(kind, settings):
    program = kind.without_model(TOKENIZER, kind.settings_class(**settings), 1)
    rows = 2**18 // 512
    given = features(rows, 512, sentences=24)
    function = tf.function(program.prepare, autograph=False)
    function(given)
    begin, count = time.process_time(), 20
    for step in range(count):
        function(given | {"step": tf.fill([rows], step)})
    speed = count * rows * 512 / (time.process_time() - begin)
    print(f"{kind.__name__} {settings}: {speed / 1e6:.1f}M tokens a CPU-second")
    assert speed > 5e6

"""T5's span corruption: by hand, put together again, its rates, and the arithmetic of the released code."""

import math
import time

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert import registry
from kerasbert.errors import InputError
from kerasbert.layers import random
from kerasbert.objectives import span_corruption
from kerasbert.objectives.span_corruption import Settings, SpanCorruption, segmentation
from tests import tiny

SENTINELS = 40
TOKENIZER = tiny.tokenizer().extended([f"<extra_id_{i}>" for i in reversed(range(SENTINELS))])
FIRST = TOKENIZER.size - 1  # <extra_id_0>
ORDINARY = np.setdiff1d(np.arange(TOKENIZER.size), TOKENIZER.special_ids)


def objective(seed: int = 1, **settings):
    return SpanCorruption.without_model(TOKENIZER, Settings(**settings), seed)


def features(rows: int, length: int, lengths=None, step: int = 3):
    rng = np.random.default_rng(0)
    total = np.full(rows, length) if lengths is None else np.asarray(lengths)
    ids = np.where(np.arange(length) < total[:, None], rng.choice(ORDINARY, (rows, length)), TOKENIZER.pad_id)
    found = {"token_ids": ids, "segment_lengths": np.stack([total, 0 * total], 1), "row": np.arange(rows)}
    return {name: tf.constant(x, tf.int32) for name, x in (found | {"step": np.full(rows, step)}).items()}


def prepared(given, **settings):
    return {name: np.asarray(x) for name, x in objective(**settings).prepare(given).items()}


def again(source, target):
    """The row that a source and a target were made of; both without padding."""
    assert source[-1] == target[-1] == TOKENIZER.sep_id
    is_sentinel = np.isin(target[:-1], TOKENIZER.sentinel_ids)
    spans = np.split(target[:-1], np.flatnonzero(is_sentinel))[1:]
    by_name = {span[0]: span[1:] for span in spans}
    assert list(by_name) == list(TOKENIZER.sentinel_ids[: len(spans)])
    assert [token for token in source if token in by_name] == list(by_name)
    return [t for token in source[:-1] for t in by_name.get(token, [token])]


def test_by_hand(monkeypatch):
    """8 tokens of which 2 + 1 are left out: places 2, 3 and 6."""
    monkeypatch.setitem(span_corruption.CHOICES, "spans", lambda *_: (tf.constant([[2, 6]]), tf.constant([[4, 7]])))
    given = features(1, 8) | {"token_ids": tf.constant([[50, 51, 52, 53, 54, 55, 56, 57]])}
    batch = prepared(given, rate=0.4, mean=2.0)
    end = TOKENIZER.sep_id
    assert batch["token_ids"].tolist() == [[50, 51, FIRST, 54, 55, FIRST - 1, 57, end]]
    assert batch["padding_mask"].tolist() == [[1] * 8]
    assert batch["labels"].tolist() == [[FIRST, 52, 53, FIRST - 1, 56, end]]
    assert batch["decoder_token_ids"].tolist() == [[TOKENIZER.pad_id, FIRST, 52, 53, FIRST - 1, 56]]
    assert batch["weights"].tolist() == [[1.0] * 6]


def test_lengths_are_the_released_codes():
    lengths = {n: SpanCorruption.lengths(Settings(), n) for n in (568, 284, 141)}
    assert lengths == {568: (512, 114), 284: (256, 58), 141: (128, 29)}
    assert [SpanCorruption.record_length(Settings(), n) for n in (512, 256, 128)] == [568, 284, 141]


@pytest.mark.parametrize("length", [141, 96])
def test_rows_are_full_and_give_the_text_again(length):
    given = features(50, length)
    batch = prepared(given)
    assert (batch["padding_mask"] == 1).all()
    assert (batch["weights"] == 1).all()
    assert (batch["token_ids"].shape[1], batch["labels"].shape[1]) == SpanCorruption.lengths(Settings(), length)
    for row in range(50):
        assert again(batch["token_ids"][row], batch["labels"][row]) == given["token_ids"][row].numpy().tolist()


@pytest.mark.parametrize("select", ["spans", "tokens"])
def test_short_rows_give_the_text_again(select):
    lengths = np.arange(1, 101)
    given = features(100, 100, lengths)
    batch = prepared(given, select=select)
    for row, total in enumerate(lengths):
        source = batch["token_ids"][row][batch["padding_mask"][row] == 1]
        target = batch["labels"][row][batch["weights"][row] == 1]
        assert again(source, target) == given["token_ids"][row, :total].numpy().tolist()
        settings = Settings(select=select)
        spans = np.isin(target, TOKENIZER.sentinel_ids).sum()
        assert len(target) == settings.noise(total) + spans + 1
        assert spans == settings.spans(total) if select == "spans" else spans <= settings.spans(total)
        assert (batch["token_ids"][row][batch["padding_mask"][row] == 0] == TOKENIZER.pad_id).all()


def left_out(length: int, rows: int, **settings):
    """Which tokens of full rows are left out: bool [B, S]."""
    draw = span_corruption.spans_of_tokens if settings else span_corruption.spans
    key, total = random.key(1, np.arange(rows)), tf.fill([rows], length)
    begins, ends = (np.asarray(x)[..., None] for x in draw(key, total, length, Settings(**settings)))
    place = np.arange(length)
    return ((begins <= place) & (place < ends)).any(1)


def test_a_share_of_15_percent_in_spans_of_3_on_average():
    length, rows = 284, 2000
    lost = left_out(length, rows)
    assert (lost.sum(1) == 43).all()  # round(42.6), in every row
    assert abs(43 / length - 0.15) < 3 * (0.15 * 0.85 / length / rows) ** 0.5 + 0.5 / length  # a whole number of tokens
    edges = np.diff(np.pad(lost, [(0, 0), (1, 1)]).astype(int), axis=1)
    assert ((edges == 1).sum(1) == 14).all()  # round(43 / 3)
    runs = np.argwhere(edges == -1)[:, 1] - np.argwhere(edges == 1)[:, 1]
    # every segmentation of 43 into 14 is as likely: a span has k tokens with C(42 - k, 12) / C(42, 13)
    law = np.array([math.comb(42 - k, 12) / math.comb(42, 13) for k in range(1, 31)])
    mean, square = (law * np.arange(1, 31) ** power @ np.ones(30) for power in (1, 2))
    assert mean == pytest.approx(43 / 14, abs=1e-3)
    assert abs(runs.mean() - 3) < 3 * ((square - mean**2) / len(runs)) ** 0.5 + 1 / 14  # 43 are no multiple of 3
    for k in range(1, 7):
        p = law[k - 1]
        assert abs((runs == k).mean() - p) < 3 * (p * (1 - p) / len(runs)) ** 0.5
    # a row begins with what is kept and ends with what is not, as in the released code
    assert not lost[:, 0].any()
    assert lost[:, -1].all()


def test_tokens_are_left_out_one_by_one():
    lost = left_out(80, 2000, select="tokens")
    assert (lost.sum(1) == 12).all()
    p = 12 / 80
    assert np.abs((lost.mean(0) - p) / (p * (1 - p) / 2000) ** 0.5).max() < 4
    pair = p * 11 / 79  # neighbours are no likelier than other pairs
    assert abs((lost[:, 1:] & lost[:, :-1]).mean() - pair) < 3 * (pair * (1 - pair) / 2000 / 79) ** 0.5 * 1.2


def test_a_prefix_and_the_rest_of_the_row():
    lengths = [1, 2, 3, *[20] * 997]
    given = features(1000, 20, lengths)
    batch = prepared(given, select="prefix")
    sources, targets = batch["padding_mask"].sum(1), batch["weights"].sum(1).astype(int)
    assert batch["token_ids"].shape == batch["labels"].shape == (1000, 20)
    assert sources[:2].tolist() == [1, 2]
    for row, (n, m) in enumerate(zip(sources, targets)):
        source, target = batch["token_ids"][row, :n].tolist(), batch["labels"][row, :m].tolist()
        assert source.pop() == target.pop() == TOKENIZER.sep_id
        assert source + target == given["token_ids"][row, : lengths[row]].numpy().tolist()
        assert (batch["decoder_token_ids"][row, 1:m] == batch["labels"][row, : m - 1]).all()
    # borders 1 ... 19 are as likely as each other: chi-square with 18 degrees, 3 sigma
    counts = np.bincount(sources[3:] - 1, minlength=20)[1:]
    assert len(counts) == 19
    assert ((counts - 997 / 19) ** 2 / (997 / 19)).sum() < 18 + 3 * 6
    assert SpanCorruption.without_model(tiny.tokenizer(), Settings(select="prefix"), 1).prepare(given)


def test_a_rows_noise_is_its_own():
    given = features(16, 96)
    whole = prepared(given)
    part = prepared({name: x[5:9] for name, x in given.items()})
    assert all((whole[name][5:9] == part[name]).all() for name in whole)
    later = prepared(given | {"step": given["step"] + 1})
    assert (later["token_ids"] != whole["token_ids"]).any(1).all()
    other = SpanCorruption.without_model(TOKENIZER, Settings(), 2).prepare(given)
    assert (np.asarray(other["token_ids"]) != whole["token_ids"]).any(1).all()


def test_segmentations_are_as_likely_as_each_other():
    """5 items in 3 segments: six ways."""
    count = 6000
    key = random.key(1, np.arange(count))
    ends = segmentation(key, tf.fill([count], 5), tf.fill([count], 3), 5, 3).numpy()
    assert (ends[:, -1] == 5).all()
    ways, found = np.unique(ends, axis=0, return_counts=True)
    assert len(ways) == 6
    assert np.abs(found - 1000).max() < 4 * (1000 * 5 / 6) ** 0.5


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"rate 1\.5, expected a share between 0 and 1"):
        Settings(rate=1.5)
    with pytest.raises(InputError, match=r"mean 0\.5, expected a mean length of spans of at least 1"):
        Settings(mean=0.5)
    with pytest.raises(InputError, match=r"no way to select 'span'\. Nearest: 'spans'"):
        Settings(select="span")
    with pytest.raises(
        InputError, match="rows of 568 tokens lose up to 85 spans, and the tokenizer has 40 sentinels: make"
    ):
        objective(mean=1.0).prepare(features(1, 568))
    from kerasbert.testing import battery

    subject = battery.Subject("gpt2", tmp_path)
    with pytest.raises(
        InputError, match=r"the tokenizer has no sentinels .* kerasbert vocab --kind unigram --sentinels 100"
    ):
        SpanCorruption(subject.encoder(), subject.tokenizer)
    with pytest.raises(InputError, match="GPT2 is no encoder-decoder, and this objective is for those"):
        SpanCorruption(subject.encoder(), TOKENIZER)


@pytest.mark.slow
def test_records_too_long_for_the_model_are_refused_with_the_length_that_fits(tmp_path):
    from kerasbert.data import write_records

    data = tmp_path / "data"
    write_records([tiny.corpus(tmp_path / "corpus.txt")], TOKENIZER, data, length=24, packing="stream")
    changes = {"embeddings.positions": 12, "blocks.layers": 1, "hidden": 8, "attention.heads": 2}
    message = "records have 24 tokens, of which the model reads 22 and 6, the model 10 positions: .* with --length 10$"
    with pytest.raises(InputError, match=message):
        kb.pretrain(
            "bart/base", data, steps=1, batch=2, objective="span_corruption", changes=changes, out=tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_five_million_tokens_a_second_of_processor_time():
    """568 tokens a row, in the pipeline's portions; FACTS: 9 to 12M on one core of 2.1 GHz."""
    program = SpanCorruption.without_model(TOKENIZER, Settings(), 1)
    rows = 2**18 // 568
    given = features(rows, 568)
    function = tf.function(program.prepare, autograph=False)
    function(given)
    begin, count = time.process_time(), 40
    for step in range(count):
        function(given | {"step": tf.fill([rows], step)})
    speed = count * rows * 568 / (time.process_time() - begin)
    print(f"{speed / 1e6:.1f}M tokens a CPU-second")
    assert speed > 5e6
    assert registry.objective("span_corruption") is SpanCorruption

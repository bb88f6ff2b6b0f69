"""Gap sentences: importance beside a count in Python, rows by hand, what is drawn."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.data import joins, write_records
from kerasbert.errors import InputError
from kerasbert.objectives.gap_sentences import GapSentences, Settings, importance
from tests import tiny

TOKENIZER = tiny.tokenizer()
CLS, SEP, MASK, PAD = TOKENIZER.cls_id, TOKENIZER.sep_id, TOKENIZER.mask_id, TOKENIZER.pad_id
# three sentences: the second has most in common with the others
TEXT = [[20, 21, 22, 23], [20, 21, 24, 25, 26], [24, 25, 26]]
ALL = {"least": 0.34, "rate": 0.34, "noise": 0.0, "kept": 0.0, "target": 1.0}


def features(texts, length=24, cut=0):
    """Rows of [CLS] sentences [SEP]; `cut`: without the mark of so many first sentences, as where a row begins within one."""
    ids, borders = np.full((len(texts), length), PAD), np.zeros((len(texts), length), int)
    total = np.zeros(len(texts), int)
    for i, sentences in enumerate(texts):
        row = [CLS]
        for number, sentence in enumerate(sentences):
            borders[i, len(row)] = number >= cut
            row += sentence
        row.append(SEP)
        ids[i, : len(row)], total[i] = row, len(row)
    found = {"token_ids": ids, "segment_lengths": np.stack([total, 0 * total], 1), "row": np.arange(len(texts))}
    found |= {"step": np.full(len(texts), 3), joins.BORDERS: joins._grouped(borders, joins.BORDER_GROUP, 1)}
    return {name: tf.constant(x, tf.int32) for name, x in found.items()}


def prepared(given, seed=1, **settings):
    program = GapSentences.without_model(TOKENIZER, Settings(**{**ALL, **settings}), seed)
    return {name: np.asarray(x) for name, x in program.prepare(given).items()}


def source(batch, row=0):
    return batch["token_ids"][row][batch["padding_mask"][row] == 1].tolist()


def written(batch, row=0):
    return batch["labels"][row][batch["weights"][row] == 1].tolist()


def flat(sentences):
    return [*itertools.chain(*sentences)]


def by_counting(sentences, unique):
    """ROUGE1-F1 of each sentence with the others (Lin, 2004)."""
    found = []
    for i, sentence in enumerate(sentences):
        own, rest = collections.Counter(sentence), collections.Counter(flat(sentences[:i] + sentences[i + 1 :]))
        if unique:
            own, rest = collections.Counter(set(own)), collections.Counter(set(rest))
        found.append(2 * (own & rest).total() / max(1, own.total() + rest.total()))
    return found


@pytest.mark.parametrize("unique", [False, True])
def test_importance_is_rouge_1(unique):
    draw = np.random.default_rng(0)
    texts = [
        [draw.integers(5, 30, draw.integers(1, 9)).tolist() for _ in range(draw.integers(1, 12))] for _ in range(40)
    ]
    length = 100
    ids, sentence = np.full((40, length), 7), np.zeros((40, length), int)
    for i, text in enumerate(texts):
        numbers = np.repeat(np.arange(len(text)), [len(each) for each in text])
        ids[i, 1 : 1 + len(numbers)], sentence[i, 1 : 1 + len(numbers)] = flat(text), numbers + 1
    found = importance(tf.constant(ids, tf.int32), tf.constant(sentence, tf.int32), unique).numpy()
    for row, text in zip(found, texts):
        np.testing.assert_allclose(row[: len(text)], by_counting(text, unique), rtol=1e-6)
        assert not row[len(text) :].any()


def test_the_sentence_that_says_most_of_the_rest_is_written():
    batch = prepared(features([TEXT]))
    assert source(batch) == [CLS, *TEXT[0], MASK, *TEXT[2], SEP]
    assert written(batch) == [*TEXT[1], SEP]
    assert batch["decoder_token_ids"][0, :6].tolist() == [PAD, *TEXT[1]]
    assert batch["cut"].tolist() == [0]


def test_several_sentences_stand_in_the_order_of_the_text():
    batch = prepared(features([TEXT, TEXT[::-1]]), least=0.67, rate=0.67)
    assert source(batch) == [CLS, *TEXT[0], MASK, MASK, SEP]
    assert written(batch) == [*TEXT[1], *TEXT[2], SEP]
    assert source(batch, 1) == [CLS, MASK, MASK, *TEXT[0], SEP]
    assert written(batch, 1) == [*TEXT[2], *TEXT[1], SEP]


def test_rows_of_one_sentence_of_none_and_those_that_begin_within_one():
    batch = prepared(features([[TEXT[0]], [], TEXT], cut=1), select="lead")
    assert (source(batch), written(batch)) == ([CLS, MASK, SEP], [*TEXT[0], SEP])
    assert (source(batch, 1), written(batch, 1)) == ([CLS, SEP], [SEP])
    assert (source(batch, 2), written(batch, 2)) == ([CLS, MASK, *TEXT[1], *TEXT[2], SEP], [*TEXT[0], SEP])


def test_what_is_kept_stands_in_the_source_and_is_written():
    batch = prepared(features([TEXT]), kept=1.0)
    assert source(batch) == [CLS, *TEXT[0], *TEXT[1], *TEXT[2], SEP]
    assert written(batch) == [*TEXT[1], SEP]


def test_what_the_target_has_no_room_for_is_cut_and_counted():
    batch = prepared(features([TEXT]), least=0.67, rate=0.67, target=0.3)  # 7 of 24
    assert written(batch) == [*TEXT[1], TEXT[2][0], SEP]
    assert batch["cut"].tolist() == [2]
    (said,) = GapSentences.without_model(TOKENIZER, Settings(target=0.3), 1).remarks(24)
    assert "at most 7 are written" in said


def test_shares_and_noise_are_drawn_for_each_row():
    texts = [[[20 + i, 60 + i % 7] for i in range(10)]] * 400
    batch = prepared(features(texts), least=0.2, rate=0.6, select="random")
    taken = (batch["token_ids"] == MASK).sum(1)
    assert set(taken) == {2, 3, 4, 5}
    np.testing.assert_allclose(np.bincount(taken)[2:] / 400, 0.25, atol=0.08)
    places = np.stack([~np.isin(20 + np.arange(10), row) for row in batch["token_ids"]]).mean(0)
    np.testing.assert_allclose(places, 0.35, atol=0.1)
    # sentences that are alike in importance: noise decides between them
    quiet, noisy = (prepared(features(texts), noise=noise)["token_ids"] for noise in (0.0, 0.2))
    assert (quiet == quiet[0]).all()
    assert len({row.tobytes() for row in noisy}) > 10
    again = prepared({name: x[5:9] for name, x in features(texts).items()}, noise=0.2)["token_ids"]
    np.testing.assert_array_equal(again, noisy[5:9])


def test_pegasus_own_mask_is_taken_where_the_vocabulary_has_it():
    pieces = [*TOKENIZER.vocabulary[:-1], "<mask_1>"]
    program = GapSentences.without_model(type(TOKENIZER)(pieces), Settings(**ALL), 1)
    found = program.prepare(features([TEXT]))["token_ids"].numpy()[0]
    assert len(pieces) - 1 in found
    assert MASK not in found


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"select": "principle"}, "principal"),
        ({"least": 0.5, "rate": 0.3}, "not the larger"),
        ({"least": 0.0}, "above 0"),
        ({"noise": 1.5}, "noise 1.5"),
        ({"kept": -0.1}, "kept -0.1"),
        ({"target": 0.0}, "target 0.0"),
    ],
)
def test_settings_that_cannot_be(settings, said):
    with pytest.raises(InputError, match=said):
        Settings(**settings)


def test_records_without_borders_are_refused(tmp_path):
    (tmp_path / "corpus.txt").write_text("One two three.\nFour five.\n\n" * 20)
    records = write_records([tmp_path / "corpus.txt"], TOKENIZER, tmp_path / "records", length=24, packing="doc")
    with pytest.raises(InputError, match="--sentence-borders"):
        GapSentences.check(Settings(), records)

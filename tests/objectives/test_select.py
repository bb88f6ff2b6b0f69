"""Units, and which of them are selected. Rendering and rates: test_masked_lm, the books: test_books."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.layers import random
from kerasbert.objectives import select as selects
from kerasbert.objectives import units
from kerasbert.objectives.masked_lm import MaskedLM, mask_tokens
from kerasbert.objectives.select import FOURGRAMS, NGRAMS, SPANS, select
from kerasbert.text import load_tokenizer
from tests.data import corpus
from tests.support import shared

LAWS = {"ngrams": NGRAMS, "fourgrams": FOURGRAMS, "spans": SPANS}
UNITS = ("words", *LAWS)


def keys(rows, seed=1):
    return random.key(seed, np.arange(rows))


def world(rows=200, length=64, seed=0):
    """Eligible tokens with gaps, words of one to several tokens, budgets of 1 to 12."""
    rng = np.random.default_rng(seed)
    eligible = rng.random((rows, length)) < 0.93
    eligible[:, 0] = False
    return eligible, rng.random((rows, length)) < 0.6, rng.integers(1, 13, rows).astype("int32")


def run(name, eligible, begins, count, most=12, key=None):
    key = keys(len(eligible)) if key is None else key
    found = select(name)(key, tf.constant(eligible), tf.constant(count), most, lambda: tf.constant(begins))
    return tuple(x.numpy() for x in found)


def cut(starts, eligible):
    """The units of one row, as lists of columns, by a plain loop."""
    found = []
    for column in np.flatnonzero(eligible):
        if starts[column]:
            found.append([])
        found[-1].append(int(column))
    return found


def starts_of(name, eligible, begins, key):
    eligible, begins = tf.constant(eligible), tf.constant(begins)
    if name == "words":
        return selects.divide(eligible, begins).numpy()
    return selects.tile(key, eligible, begins, LAWS[name]).numpy()


@pytest.mark.parametrize("name", UNITS)
def test_the_loop_of_the_papers_selects_the_same(name):
    """Units in the order that the keys give, one after the other, as in the released create_masked_lm_predictions."""
    eligible, begins, count = world()
    key = keys(200)
    positions, chosen, _ = run(name, eligible, begins, count)
    starts = starts_of(name, eligible, begins, key)
    columns, _ = selects.shuffled(key, tf.constant(eligible), tf.constant(starts))
    skipped = 0
    for row in range(200):
        parts = {part[0]: part for part in cut(starts[row], eligible[row])}
        taken = []
        for part in [parts[column] for column in columns.numpy()[row] if column in parts]:
            left = count[row] - len(taken)
            if name == "spans":
                taken += part[:left]
            elif len(part) <= left:
                taken += part
            else:
                skipped += left > 0
        assert sorted(taken) == positions[row][chosen[row]].tolist()
    assert skipped > 20 or name == "spans"


def test_units_by_hand():
    # columns:            0      1     2     3     4      5     6     7     8
    eligible = np.array([[False, True, True, True, False, True, True, True, False]])
    begins = np.array([[True, False, False, True, True, False, True, False, True]])
    assert np.flatnonzero(selects.divide(tf.constant(eligible), tf.constant(begins))[0]).tolist() == [1, 3, 5, 6]
    # words: 1 2 | 3 | 5 | 6 7; a law of two words at a time, which the special token in the middle cannot stop
    row = tf.constant(np.repeat(eligible, 50, 0)), tf.constant(np.repeat(begins, 50, 0))
    two = {tuple(np.flatnonzero(row)) for row in selects.tile(keys(50), *row, (0.0, 1.0, 0.0))}
    assert two == {(1, 5), (1, 3, 5, 6)}  # the pairs begin with the first word or with the second
    three = {tuple(np.flatnonzero(row)) for row in selects.tile(keys(50), *row, (0.0, 0.0, 1.0))}
    assert three == {(1, 5, 6), (1, 5), (1, 3, 5)}


@pytest.mark.parametrize("seed", range(8))
def test_words_that_do_not_fit_are_passed_over(seed):
    # one word of three tokens and two of one: with a budget of two the long one never fits
    eligible = np.array([[False, True, True, True, True, True, False]])
    begins = np.array([[False, True, False, False, True, True, False]])
    positions, chosen, first = run("words", eligible, begins, np.array([2], "int32"), 3, keys(1, seed))
    assert positions[0][chosen[0]].tolist() == [4, 5]
    positions, chosen, first = run("words", eligible, begins, np.array([3], "int32"), 3, keys(1, seed))
    assert positions[0][chosen[0]].tolist() in ([1, 2, 3], [4, 5])
    assert first[0][chosen[0]].tolist() == ([0, 0, 0] if chosen[0].sum() == 3 else [0, 1])


@pytest.mark.parametrize("name", UNITS)
def test_relations(name):
    eligible, begins, count = world(seed=3)
    positions, chosen, first = run(name, eligible, begins, count)
    assert positions.dtype == first.dtype == np.int32
    starts = starts_of(name, eligible, begins, keys(200))
    for row in range(200):
        assert len(set(positions[row].tolist())) == 12
        assert (positions[row] >= 0).all()
        assert (positions[row] < 64).all()
        taken = positions[row][chosen[row]]
        assert (np.diff(taken) > 0).all()
        assert eligible[row][taken].all()
        assert len(taken) <= count[row]
        if name == "spans":
            assert len(taken) == min(count[row], eligible[row].sum())
        # a unit's tokens stand side by side and are told by its first
        for place in np.flatnonzero(chosen[row]):
            leader = first[row][place]
            assert first[row][leader] == leader
            assert positions[row][place] - positions[row][leader] == place - leader
            new = starts[row][positions[row][place]]
            if name == "spans":  # those that touch are one
                new = place == 0 or positions[row][place - 1] != positions[row][place] - 1
            assert (leader == place) == new
        if name != "spans":  # whole
            for part in cut(starts[row], eligible[row]):
                assert len(set(part) & set(taken.tolist())) in (0, len(part))


@pytest.mark.parametrize("name", UNITS)
def test_a_row_depends_on_its_key_alone(name):
    eligible, begins, count = world()
    every = run(name, eligible, begins, count)
    for part in (slice(7, 8), slice(50, 99, 3)):
        some = run(name, eligible[part], begins[part], count[part], key=keys(200)[part])
        for whole, alone in zip(every, some, strict=True):
            np.testing.assert_array_equal(whole[part], alone)
    other = run(name, eligible, begins, count, key=keys(200, seed=2))
    assert (other[0] != every[0]).any(1).mean() > 0.8


@pytest.mark.parametrize("name", UNITS)
def test_rows_without_words_or_without_a_budget(name):
    eligible = np.array([[False] * 8, [False, True, True, False, False, True, False, False], [True] * 8])
    begins, count = np.ones((3, 8), bool), np.array([3, 4, 0], "int32")
    positions, chosen, _ = run(name, eligible, begins, count, 4)
    assert chosen.sum(1).tolist() == [0, 3, 0]
    assert positions[1][chosen[1]].tolist() == [1, 2, 5]


def chi_square(lengths, law):
    """Pearson's statistic of lengths 1 .. n against a law, and its limit at p = 0.001."""
    limits = {2: 13.82, 3: 16.27, 9: 27.88}
    counts = np.bincount(lengths, minlength=len(law) + 1)[1:]
    assert len(counts) == len(law)
    expected = np.asarray(law) * counts.sum()
    return ((counts - expected) ** 2 / expected).sum(), limits[len(law) - 1]


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_groups_of_words_follow_their_law(law):
    rows, length = 500, 512
    begins = np.random.default_rng(0).random((rows, length)) < 0.7
    every = tf.ones((rows, length), tf.bool)
    starts = selects.tile(keys(rows), every, tf.constant(begins), law).numpy()
    words = selects.divide(every, tf.constant(begins)).numpy().cumsum(1) - 1
    # the first group began before the row; the next 25 end within every row, so none is left out because it is long
    lengths = np.stack([np.diff(words[row][starts[row]])[1:26] for row in range(rows)]).ravel()
    found, limit = chi_square(lengths, law)
    assert found < limit
    mean = float(np.arange(1, len(law) + 1) @ law)
    assert abs(lengths.mean() - mean) < 3 * lengths.std() / len(lengths) ** 0.5
    # the test can fail: with a fifth more of single words it does
    off = np.asarray(law) * np.where(np.arange(len(law)) == 0, 1.2, 1.0)
    found, limit = chi_square(lengths, off / off.sum())
    assert found > limit


def test_the_laws_are_the_papers():
    np.testing.assert_allclose(NGRAMS, [6 / 11, 3 / 11, 2 / 11])
    assert FOURGRAMS == (0.4, 0.3, 0.2, 0.1)
    assert len(SPANS) == 10
    assert sum(SPANS) == pytest.approx(1)
    assert np.arange(1, 11) @ SPANS == pytest.approx(3.797, abs=5e-4)  # "mean = 3.8"
    np.testing.assert_allclose(np.array(SPANS[1:]) / SPANS[:-1], 0.8)


@pytest.mark.parametrize("name", UNITS)
def test_every_word_is_as_likely(name):
    """Words of one token, the same budget everywhere: no place inside of a row is preferred.

    At its edges groups are cut: short n-grams fit more often into what is left of the budget, and the first word of a row
    is often where a span begins, which the budget never cuts off.
    """
    rows, length, count = 6000, 130, 19
    eligible = np.ones((rows, length), bool)
    eligible[:, [0, -1]] = False
    positions, chosen, _ = run(name, eligible, np.ones((rows, length), bool), np.full(rows, count, "int32"), count)
    hits = np.bincount(positions[chosen], minlength=length)[1:-1]
    p = count / (length - 2)
    assert hits.sum() == rows * count
    z = (hits - rows * p) / (rows * p * (1 - p)) ** 0.5
    assert np.abs(z if name == "words" else z[4:-2]).max() < 4
    assert np.abs(hits / rows / p - 1).max() < 0.15


def test_where_words_begin():
    tokenizer = corpus.tokenizer()
    given = {"token_ids": tf.constant([[2, 5, 6, 3]])}
    assert units.begins("words", given, tokenizer).numpy().tolist() == [[True] * 4]
    with pytest.raises(InputError, match="no kind of unit 'word'. Nearest: 'words'"):
        units.begins("word", given, tokenizer)


@pytest.mark.parametrize(
    ("folder", "text", "words"),
    [
        ("bert-base-uncased", "Hypatia of Alexandria", ["h", "##yp", "##ati", "##a"]),
        ("gpt2-roberta-bpe", " Hypatia of Alexandria", None),
        ("t5-base", "Hypatia of Alexandria", None),
    ],
)
def test_where_words_begin_in_every_kind_of_vocabulary(folder, text, words):
    tokenizer = load_tokenizer(shared(f"data/vocab/{folder}"))
    ids = tokenizer.encode(text)
    if words:
        assert [tokenizer.vocabulary[i] for i in ids][: len(words)] == words
    begins = units.begins("words", {"token_ids": tf.constant([ids])}, tokenizer).numpy()[0]
    assert begins.sum() == 3
    # the pieces of each word, put together, are the word
    numbers = begins.cumsum()
    for number, word in enumerate(text.split(), 1):
        pieces = [i for i, of in zip(ids, numbers) if of == number]
        assert tokenizer.decode(pieces).strip().lower() == word.lower()


def features(rows=300, length=64):
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 205, (rows, length))
    ids[:, 0], ids[:, -1] = 2, 3
    lengths = np.tile([length, 0], (rows, 1))
    some = {"token_ids": ids, "segment_lengths": lengths, "row": np.arange(rows), "step": np.zeros(rows)}
    return {name: tf.constant(value, tf.int32) for name, value in some.items()}


@pytest.mark.parametrize("name", UNITS)
def test_a_span_is_rendered_as_one(name):
    """One draw of 80/10/10 for a unit; the random tokens of a unit differ."""
    tokenizer, given = corpus.tokenizer(), features(3000)
    settings = MaskedLM(select=name, render="span")
    batch = {k: v.numpy() for k, v in mask_tokens(given, settings, tokenizer=tokenizer, seed=1).items()}
    kinds, mixed = [], 0
    ids = given["token_ids"].numpy()
    for row in range(3000):
        taken = batch["mlm_positions"][row][batch["mlm_weights"][row] == 1]
        # neighbours may be of two units, but not of two spans: look at spans alone
        for run_ in np.split(taken, np.flatnonzero(np.diff(taken) > 1) + 1) if len(taken) else []:
            seen, was = batch["token_ids"][row][run_], ids[row][run_]
            kind = np.where(seen == tokenizer.mask_id, 0, np.where(seen == was, 2, 1))
            kinds.append(kind[0])
            mixed += len(set(kind.tolist())) > 1
    kinds = np.array(kinds)
    if name == "spans":
        # a random token is the right one by chance, 1 in 200
        assert mixed < 0.1 * len(kinds) * 0.05
        for kind, share in enumerate((0.8, 0.1, 0.1)):
            assert abs((kinds == kind).mean() - share) < 3 * (share * (1 - share) / len(kinds)) ** 0.5 + 0.001
    token = mask_tokens(given, MaskedLM(select=name), tokenizer=tokenizer, seed=1)
    np.testing.assert_array_equal(token["mlm_positions"], batch["mlm_positions"])
    # words of one token are rendered alike either way
    assert (token["token_ids"].numpy() != batch["token_ids"]).any() == (name != "words")


def test_bad_render():
    with pytest.raises(InputError, match="no way to render 'spans'. Nearest: 'span'"):
        MaskedLM(render="spans")


@functools.cache
def piped(name):
    return tf.function(
        lambda given: mask_tokens(given, MaskedLM(select=name), tokenizer=corpus.tokenizer(), seed=1), autograph=False
    )


@pytest.mark.parametrize("name", UNITS)
def test_a_pipeline_gives_fixed_shapes_and_the_same(name):
    given = features(16)
    eager = mask_tokens(given, MaskedLM(select=name), tokenizer=corpus.tokenizer(), seed=1)
    graph = piped(name)(given)
    for key, value in eager.items():
        np.testing.assert_array_equal(value, graph[key])
        assert graph[key].shape.is_fully_defined()

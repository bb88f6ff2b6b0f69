"""Which lengths a file for phones has."""

import itertools
import random

import pytest

from kerasbert.mobile import model_and_texts
from kerasbert.mobile.tflite import buckets


def padded(sizes, seen):
    return sum(min(size for size in sizes if size >= min(tokens, max(sizes))) for tokens in seen)


@pytest.mark.parametrize("seed", range(5))
def test_no_other_lengths_pad_texts_less(seed):
    draw = random.Random(seed)
    sizes, seen = (12, 20, 37), [draw.randint(3, 45) for _ in range(30)]
    found = buckets.denser(sizes, seen, 2)
    candidates = set(range(4, 37, 4)) - set(sizes)
    least = min(padded({*sizes, *more}, seen) for n in range(3) for more in itertools.combinations(candidates, n))
    assert set(sizes) <= set(found)
    assert padded(found, seen) == least
    assert len(found) <= len(sizes) + 2


def test_lengths_that_save_nothing_are_not_added():
    assert buckets.denser((16, 32), [16] * 9, 6) == (16, 32)
    assert buckets.denser((32,), [], 6) == (32,)


def test_texts_say_which_lengths_a_file_has_unless_they_are_given():
    by_default = (8, 16, 24, 32, 40, 48, 64, 68, 80, 84, 96, 100, 112, 116, 128)
    assert buckets.choose(512, "kerasbert", None, None) == by_default
    assert buckets.choose(512, "kerasbert", None, None, 20) == (8, 16, 20)
    short = buckets.choose(512, "kerasbert", None, None, 128, [5, 6, 9, 11, 21])
    assert short == (8, 12, 16, 24, 32, 48, 64, 68, 80, 84, 96, 100, 112, 116, 128)
    assert buckets.choose(512, "kerasbert", None, None, 32, [5, 6, 9, 11, 21]) == (8, 12, 16, 24, 32)
    assert buckets.choose(512, "kerasbert", None, [7, 30], 128, [5, 6]) == (7, 30)
    assert buckets.choose(512, "mediapipe", 64, None, 128, [5, 6]) == (64,)
    assert buckets.choose(512, "kerasbert", None, "any", 128, [5, 6]) == (128,)
    longest = buckets.choose(512, "kerasbert", 500, None, 128, [])
    assert longest == (*by_default, *range(144, 240, 16), *range(256, 500, 32), 500)


@pytest.mark.parametrize("seen", [(), range(3, 129), [5, 6, 9, 11, 21] * 20, [90, 95, 101, 128]])
def test_lengths_stay_in_their_budget_and_leave_no_gap(seen):
    chosen = buckets.choose(512, "kerasbert", None, None, 128, sorted(seen))
    assert len(chosen) <= buckets.BUDGET
    assert max(high - low for low, high in itertools.pairwise([0, *chosen])) <= 16
    long = [
        size for size in chosen if size >= 64
    ]  # the first text behind a multiple of 16 does not cost what the next one does
    assert all(size + 4 in long for size in (64, 80, 96, 112))
    longer = buckets.choose(512, "kerasbert", 512, None, 128, sorted(seen))
    assert len(longer) <= buckets.BUDGET + len(buckets.LONGER)


def test_a_run_remembers_how_long_its_texts_are(classifier):
    lengths, told = model_and_texts.token_lengths(classifier, None, [], model_and_texts.MADE, 16)
    assert told == "the rows that it was trained with"
    assert len(lengths) == 33
    assert lengths == sorted(lengths)
    assert 3 <= lengths[0] < lengths[-1] <= 16
    assert model_and_texts.token_lengths(None, None, [], model_and_texts.MADE, 16) == ([], "")

"""Documents of a shard: the same whatever order they come in, duplicates once, languages by their exponent."""

import hashlib
import random

import numpy as np
import pytest

from kerasbert.data import spool
from kerasbert.data.languages import language_repeats


def made(number, language=0, count=3):
    digest = hashlib.sha256(str(number).encode()).digest()
    lengths = np.arange(1, count + 1)
    ids = np.arange(number, number + lengths.sum())
    (data,) = spool.entries([digest], language, np.array([count]), lengths, ids)
    return data


def assert_same(one, two):
    for field in ("ids", "bounds", "firsts"):
        np.testing.assert_array_equal(getattr(one, field), getattr(two, field))
    assert one.digests == two.digests


def test_documents_stand_in_the_order_of_their_hash():
    entries = [made(number, count=1 + number % 4) for number in range(50)]
    documents, different, duplicates = spool.gather(b"".join(entries))
    assert (different, duplicates) == (50, 0)
    assert documents.digests == sorted(data[: spool.DIGEST] for data in entries)
    random.Random(0).shuffle(entries)
    assert_same(spool.gather(b"".join(entries))[0], documents)
    # the first segment of each is one token: the number it was made from
    starts = documents.bounds[documents.firsts[:-1]]
    names = [hashlib.sha256(str(number).encode()).digest() for number in documents.ids[starts]]
    assert names == documents.digests


def test_entries_made_together_are_those_made_one_by_one():
    counts = np.array([2, 1, 3])
    lengths, ids = np.array([1, 2, 3, 1, 1, 2]), np.arange(10)
    digests = [bytes([number]) * 32 for number in range(3)]
    together = list(spool.entries(digests, 5, counts, lengths, ids))
    parts = (([1, 2], ids[:3]), ([3], ids[3:6]), ([1, 1, 2], ids[6:]))
    for data, digest, (some, tokens) in zip(together, digests, parts, strict=True):
        assert [data] == list(spool.entries([digest], 5, np.array([len(some)]), np.array(some), tokens))
        numbers = np.frombuffer(data, np.int32)[8:].tolist()
        assert numbers == [5, len(some), len(tokens), *some, *tokens]


def test_an_entry_says_its_language_and_its_tokens():
    assert spool.measure(made(7, language=3, count=4)) == (3, 10)


def test_exact_duplicates_are_taken_once():
    entries = [made(number) for number in (1, 2, 1, 3, 2, 1)]
    documents, different, duplicates = spool.gather(b"".join(entries))
    assert (different, duplicates) == (3, 3)
    assert_same(documents, spool.gather(b"".join(entries[:2] + entries[3:4]))[0])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_text_of_two_languages_counts_for_the_first(order):
    data = b"".join(made(1, language) for language in order)
    assert len(spool.gather(data, {0: 2.0, 1: 0.0})[0].digests) == 2


def test_no_documents():
    documents, *counts = spool.gather(b"")
    assert (documents.digests, counts) == ([], [0, 0])


@pytest.mark.parametrize("repeats", [0.0, 0.3, 1.0, 2.25])
def test_documents_are_repeated_by_their_hash(repeats):
    n = 4000
    entries = b"".join(made(number, count=1) for number in range(n))
    documents, different, _ = spool.gather(entries, {0: repeats})
    assert different == n
    share = repeats % 1
    assert abs(len(documents.digests) - n * repeats) <= 3 * (n * share * (1 - share)) ** 0.5
    # 2.25: everybody twice at least, nobody more than three times; each copy has a hash and so a place of its own
    counts = np.bincount(documents.ids, minlength=n)
    assert counts.min() == int(repeats)
    assert counts.max() == int(np.ceil(repeats))
    assert len(set(documents.digests)) == len(documents.digests)
    assert documents.digests == sorted(documents.digests)


def test_language_shares_are_smoothed():
    # shares 0.9 and 0.1: square roots 0.9487 and 0.3162, so 0.75 and 0.25 of the same number of tokens
    assert language_repeats({0: 900, 1: 100}, 0.5) == {0: 0.833333, 1: 2.5}
    assert language_repeats({0: 900, 1: 100}, 1.0) == {0: 1.0, 1: 1.0}
    assert language_repeats({0: 900, 1: 100}, 0.0) == {0: 0.555556, 1: 5.0}

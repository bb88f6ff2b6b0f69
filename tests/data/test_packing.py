import random

import numpy as np
import pytest

from kerasbert.data.packing import Documents, _cut, pack_full, pack_pairs, packing
from kerasbert.errors import InputError

CLS, SEP, PAD = 2, 3, 0


def make(documents):
    """Documents from lists of segments, each a list of ids."""
    segments = [segment for document in documents for segment in document]
    return Documents(
        ids=np.array([token for segment in segments for token in segment], np.int32),
        bounds=np.cumsum([0, *map(len, segments)]),
        firsts=np.cumsum([0, *map(len, documents)]),
        digests=[bytes([number]) * 32 for number in range(len(documents))],
    )


def rows(spans, length):
    return spans.render(length=length, cls_id=CLS, sep_id=SEP, pad_id=PAD)


def random_documents(count, segments, words, seed):
    rng = random.Random(seed)
    ids = iter(range(10, 10**9))  # every token is used once, so an example tells where it came from
    return [
        [[next(ids) for _ in range(rng.randint(*words))] for _ in range(rng.randint(*segments))] for _ in range(count)
    ]


def test_full_sentences_by_hand():
    documents = make([[[10, 11], [12]], [[20, 21, 22], [23]], [[30, 31, 32, 33, 34, 35, 36, 37]]])
    spans = pack_full(documents, length=8, seed=0, dupe_factor=1, sep_id=SEP)
    assert rows(spans, 8).tolist() == [
        # two segments, a separator for the border; the next segment would need 7 places of 6
        [CLS, 10, 11, 12, SEP, 0, 0, 0, 5, 0],
        # it starts without a separator; after it there is no room for the third document
        [CLS, 20, 21, 22, 23, SEP, 0, 0, 6, 0],
        # a segment longer than the room, in pieces
        [CLS, 30, 31, 32, 33, 34, 35, SEP, 8, 0],
        [CLS, 36, 37, SEP, 0, 0, 0, 0, 4, 0],
    ]


def test_full_sentences_marks_a_border_with_a_separator():
    spans = pack_full(make([[[10]], [[20], [21]]]), length=8, seed=0, dupe_factor=1, sep_id=SEP)
    assert rows(spans, 8).tolist() == [[CLS, 10, SEP, 20, 21, SEP, 0, 0, 6, 0]]


def test_full_sentences_uses_every_token_once():
    documents = random_documents(50, (1, 9), (1, 40), seed=1)
    table = rows(pack_full(make(documents), length=32, seed=0, dupe_factor=1, sep_id=SEP), 32)
    used = table[:, :32][table[:, :32] >= 10]
    np.testing.assert_array_equal(used, make(documents).ids)


def test_pairs_follow_or_come_from_another_document():
    documents = random_documents(200, (2, 10), (2, 12), seed=2)
    flat = make(documents)
    spans = pack_pairs(flat, length=48, seed=3, dupe_factor=1, sep_id=SEP)
    owner = np.repeat(np.arange(200), [sum(map(len, document)) for document in documents])
    cut = 0
    for (a0, a1), (b0, b1), label in zip(spans.a, spans.b, spans.next_label):
        total = a1 - a0 + b1 - b0
        assert a0 < a1
        assert b0 < b1
        assert total <= 45
        assert (owner[a0] == owner[b0]) == (label == 0)
        if label == 0:
            assert b0 == a1 if total < 45 else b0 >= a1
            cut += b0 > a1
    assert cut  # tokens were taken from both ends of the border at least once


def test_pairs_use_every_token_when_nothing_is_cut():
    """What followed a before a random next sentence is used again, so a parts and true b parts cover the document."""
    documents = random_documents(100, (2, 10), (2, 8), seed=4)
    flat = make(documents)
    spans = pack_pairs(flat, length=200, seed=0, dupe_factor=1, sep_id=SEP)
    used = np.zeros(len(flat.ids), int)
    for (a0, a1), (b0, b1), label in zip(spans.a, spans.b, spans.next_label):
        used[a0:a1] += 1
        used[b0:b1] += label == 0
    assert set(used) == {1}


def test_half_of_the_pairs_are_random_and_a_tenth_is_short():
    # Long documents, for those of one segment and the ends of documents are exceptions; segments of one token meet the
    # target exactly.
    documents = random_documents(6, (40_000, 40_000), (1, 1), seed=5)
    spans = pack_pairs(make(documents), length=64, seed=6, dupe_factor=1, sep_id=SEP)
    n = len(spans.a)
    assert n > 5000
    assert abs(spans.next_label.mean() - 0.5) < 3 * 0.5 / n**0.5
    total = (spans.a[:, 1] - spans.a[:, 0] + spans.b[:, 1] - spans.b[:, 0])[spans.next_label == 0]
    share = 0.1 * 59 / 60  # a "short" target is uniform in 2 .. 61, and 61 is the full length
    assert abs((total < 61).mean() - share) < 3 * (share * (1 - share) / len(total)) ** 0.5
    assert total.min() == 2


def test_a_document_of_one_segment_gets_a_random_next():
    spans = pack_pairs(make([[[10, 11]], [[20]]]), length=16, seed=0, dupe_factor=1, sep_id=SEP)
    assert spans.next_label.tolist() == [1, 1]
    assert rows(spans, 8).tolist() == [
        [CLS, 10, 11, SEP, 20, SEP, 0, 0, 4, 2, 1],
        [CLS, 20, SEP, 10, 11, SEP, 0, 0, 3, 3, 1],
    ]


def test_a_pair_depends_on_its_document_seed_and_copy_only():
    documents = random_documents(30, (2, 10), (2, 12), seed=7)
    one = pack_pairs(make(documents), length=32, seed=1, dupe_factor=1, sep_id=SEP)
    two = pack_pairs(make(documents), length=32, seed=1, dupe_factor=2, sep_id=SEP)
    other = pack_pairs(make(documents), length=32, seed=2, dupe_factor=1, sep_id=SEP)
    n = len(one.a)
    np.testing.assert_array_equal(two.a[:n], one.a)
    np.testing.assert_array_equal(two.b[:n], one.b)
    assert two.a[n:].tolist() != one.a.tolist()
    assert other.a.tolist() != one.a.tolist()


def authors_truncation(a, b, room, rng):
    """BERT's loop, token by token."""
    a, b = list(a), list(b)
    while len(a) + len(b) > room:
        longer = a if len(a) > len(b) else b
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()
    return a, b


def test_truncation_equals_the_loop_in_lengths_and_in_distribution():
    rng = random.Random(8)
    for _ in range(500):
        la, lb, room = rng.randint(1, 60), rng.randint(1, 60), rng.randint(2, 60)
        a, b = authors_truncation(range(la), range(lb), room, rng)
        a0, a1, b0, b1 = _cut(rng, (0, la), (0, lb), room)
        assert (a1 - a0, b1 - b0) == (len(a), len(b))
    fronts = [_cut(rng, (0, 30), (0, 5), 15)[0] for _ in range(4000)]
    loop = [authors_truncation(range(30), range(5), 15, rng)[0][0] for _ in range(4000)]
    assert abs(np.mean(fronts) - 10) < 3 * (20 * 0.25 / 4000) ** 0.5  # binomial(20, 1/2)
    assert abs(np.var(fronts) - 5) < 0.5
    assert abs(np.mean(loop) - 10) < 3 * (20 * 0.25 / 4000) ** 0.5


def test_bad_packings():
    with pytest.raises(InputError, match=r"no packing 'pair'\. Nearest: 'pairs'\. All: kerasbert data --help"):
        packing("pair", 128)
    with pytest.raises(InputError, match="length 4 with packing 'pairs', expected 5 to 65535"):
        packing("pairs", 4)
    with pytest.raises(InputError, match="dupe_factor 2 with packing 'full' repeats"):
        packing("full", 8, dupe_factor=2)

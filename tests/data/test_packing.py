import random

import numpy as np
import pytest

from kerasbert.data.packing import (
    Documents,
    _cut,
    best_fit,
    pack_best_fit,
    pack_full,
    pack_pairs,
    pack_sentences,
    packing,
)
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


def test_a_stream_by_hand():
    documents = make([[[10, 11], [12]], [[20, 21, 22], [23]], [[30]]])
    stretches = packing("stream", 4).pack(documents, length=4, seed=0, dupe_factor=1, sep_id=SEP)
    assert rows(stretches, 4).tolist() == [
        # one separator between documents, none at their ends; no [CLS]
        [10, 11, 12, SEP, 4, 0],
        [20, 21, 22, 23, 4, 0],
        [SEP, 30, 0, 0, 2, 0],
    ]
    assert rows(stretches.slice(1, 2), 4).tolist() == [[20, 21, 22, 23, 4, 0]]


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
    for (a0, a1), (b0, b1), label in zip(spans.a, spans.b, spans.label):
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
    for (a0, a1), (b0, b1), label in zip(spans.a, spans.b, spans.label):
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
    assert abs(spans.label.mean() - 0.5) < 3 * 0.5 / n**0.5
    total = (spans.a[:, 1] - spans.a[:, 0] + spans.b[:, 1] - spans.b[:, 0])[spans.label == 0]
    share = 0.1 * 59 / 60  # a "short" target is uniform in 2 .. 61, and 61 is the full length
    assert abs((total < 61).mean() - share) < 3 * (share * (1 - share) / len(total)) ** 0.5
    assert total.min() == 2


def test_a_document_of_one_segment_gets_a_random_next():
    spans = pack_pairs(make([[[10, 11]], [[20]]]), length=16, seed=0, dupe_factor=1, sep_id=SEP)
    assert spans.label.tolist() == [1, 1]
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


def test_doc_sentences_end_with_their_document():
    documents = make([[[10, 11], [12]], [[20, 21, 22], [23]], [[30, 31, 32, 33, 34, 35, 36, 37]]])
    spans = packing("doc", 8).pack(documents, length=8, seed=0, dupe_factor=1, sep_id=SEP)
    assert rows(spans, 8).tolist() == [
        [CLS, 10, 11, 12, SEP, 0, 0, 0, 5, 0],
        [CLS, 20, 21, 22, 23, SEP, 0, 0, 6, 0],
        [CLS, 30, 31, 32, 33, 34, 35, SEP, 8, 0],
        [CLS, 36, 37, SEP, 0, 0, 0, 0, 4, 0],
    ]
    together = make(random_documents(40, (1, 9), (1, 40), seed=1))
    spans = packing("doc", 32).pack(together, length=32, seed=0, dupe_factor=1, sep_id=SEP)
    used = rows(spans, 32)[:, :32]
    np.testing.assert_array_equal(used[used >= 10], together.ids)
    owner = np.searchsorted(together.bounds[together.firsts], spans.a[:, 0], side="right")
    assert (spans.a[:, 1] <= together.bounds[together.firsts][owner]).all()


def test_a_sentence_pair_is_one_segment_each():
    documents = random_documents(200, (1, 10), (2, 12), seed=2)
    flat = make(documents)
    spans = pack_sentences(flat, length=48, seed=3, dupe_factor=1, sep_id=SEP)
    whole = set(zip(flat.bounds[:-1].tolist(), flat.bounds[1:].tolist()))
    place = {begin: number for number, begin in enumerate(flat.bounds[:-1].tolist())}
    owner = np.repeat(np.arange(200), [len(document) for document in documents])
    for a, b, label in zip(spans.a.tolist(), spans.b.tolist(), spans.label):
        assert {tuple(a), tuple(b)} <= whole
        if label == 0:
            assert place[b[0]] == place[a[0]] + 1
            assert owner[place[a[0]]] == owner[place[b[0]]]
        else:
            assert owner[place[a[0]]] != owner[place[b[0]]]
    follows = [label for (a, _), label in zip(spans.a.tolist(), spans.label) if place[a] + 1 not in flat.firsts]
    assert abs(np.mean(follows) - 0.5) < 3 * 0.5 / len(follows) ** 0.5
    # every segment is an a, or the b that follows one
    used = {place[a] for a in spans.a[:, 0].tolist()} | {
        place[b] for b, label in zip(spans.b[:, 0].tolist(), spans.label) if label == 0
    }
    assert used == set(range(len(place)))


def test_best_fit_by_hand():
    # Room for 6 tokens. The first document gives a full piece and a rest of 2; with their special tokens the rests and
    # documents have 4, 6, 3 and 4. The 6 and the first 4 open rows, the other 4 fills the second, the 3 fits nowhere.
    documents = make([[[10, 11, 12, 13], [14, 15, 16, 17]], [[20, 21], [22, 23]], [[30]], [[40, 41]]])
    pieces = pack_best_fit(documents, length=8, seed=0, dupe_factor=1, sep_id=SEP)
    assert rows(pieces, 8).tolist() == [
        [CLS, 10, 11, 12, 13, 14, 15, SEP, 8, 0, 1],
        [CLS, 16, 17, SEP, CLS, 40, 41, SEP, 8, 0, 2],
        [CLS, 20, 21, 22, 23, SEP, 0, 0, 6, 0, 1],
        [CLS, 30, SEP, 0, 0, 0, 0, 0, 3, 0, 1],
    ]
    part = pieces.slice(1, 3)
    assert len(part) == 2
    np.testing.assert_array_equal(rows(part, 8), rows(pieces, 8)[1:3])


def plain_best_fit(sizes, capacity):
    """Best-fit decreasing as it is told: every bin is looked at for every item."""
    space, inside = [], []
    for item in sorted(range(len(sizes)), key=lambda item: -sizes[item]):
        fitting = [number for number, left in enumerate(space) if left >= sizes[item]]
        if not fitting:
            space.append(capacity)
            inside.append([])
            fitting = [len(space) - 1]
        best = min(fitting, key=lambda number: space[number])
        space[best] -= sizes[item]
        inside[best].append(item)
    return sorted(space)


@pytest.mark.parametrize("seed", range(5))
def test_best_fit_fills_as_the_plain_algorithm(seed):
    sizes = np.random.default_rng(seed).integers(3, 33, 400)
    found = best_fit(sizes, 32)
    left = 32 - np.bincount(found, weights=sizes)
    assert (left >= 0).all()
    assert sorted(left) == plain_best_fit(sizes.tolist(), 32)
    first = [int(np.flatnonzero(found == row)[0]) for row in range(found.max() + 1)]
    assert first == sorted(first)


def test_packed_rows_hold_every_token_once_and_hardly_any_padding():
    documents = make(random_documents(250, (1, 9), (1, 40), seed=1))
    table = rows(pack_best_fit(documents, length=64, seed=0, dupe_factor=1, sep_id=SEP), 64)
    ids = table[:, :64]
    assert sorted(ids[ids >= 10]) == sorted(documents.ids)
    np.testing.assert_array_equal((ids != PAD).sum(1), table[:, 64])
    np.testing.assert_array_equal((ids == CLS).sum(1), table[:, 66])
    np.testing.assert_array_equal((ids == SEP).sum(1), table[:, 66])
    assert (ids == PAD).mean() < 0.01


def test_kept_tokens_are_those_that_some_example_holds():
    documents = make(random_documents(40, (1, 6), (1, 30), seed=9))
    for pack in (pack_pairs, pack_sentences):
        for copies in (1, 3):
            spans = pack(documents, length=24, seed=0, dupe_factor=copies, sep_id=SEP)
            ids = rows(spans, 24)[:, :24]
            assert spans.kept() == len(set(ids[ids >= 10].tolist()))
    assert pack_full(documents, length=24, seed=0, dupe_factor=1, sep_id=SEP).slice(0, 0).kept() == 0

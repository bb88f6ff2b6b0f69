"""What is asked about a pair: ALBERT's order, StructBERT's place; RoBERTa's separators."""

import numpy as np
import pytest

from kerasbert import text
from kerasbert.data import write_records
from kerasbert.data.packing import pack_order, pack_pairs, pack_place, packing
from kerasbert.data.writer import separators
from kerasbert.errors import InputError
from kerasbert.text.template import parse_template
from tests.data import corpus
from tests.data.test_packing import CLS, PAD, SEP, make, random_documents, rows


def packed(pack, documents, length=48, seed=3, copies=1):
    return pack(make(documents), length=length, seed=seed, dupe_factor=copies, sep_id=SEP)


def owners(documents):
    return np.repeat(np.arange(len(documents)), [sum(map(len, document)) for document in documents])


def test_order_by_hand():
    # room for 4 tokens: both segments fill it
    one = [CLS, 10, 11, SEP, 12, 13, SEP, 4, 3, 0], [CLS, 12, 13, SEP, 10, 11, SEP, 4, 3, 1]
    found = [rows(packed(pack_order, [[[10, 11], [12, 13]]], 7, seed), 7).tolist() for seed in range(40)]
    whole = [tuple(table[0]) for table in found if len(table) == 1 and table[0][7:9] == [4, 3]]
    assert set(whole) == {tuple(one[0]), tuple(one[1])}


def test_neighbours_in_order_or_swapped():
    documents = random_documents(200, (2, 10), (2, 12), seed=2)
    spans, owner = packed(pack_order, documents), owners(documents)
    used = np.zeros(len(owner), int)
    for (a0, a1), (b0, b1), label in zip(spans.a, spans.b, spans.label):
        (x0, x1), (y0, y1) = ((b0, b1), (a0, a1)) if label else ((a0, a1), (b0, b1))
        assert x0 < x1 <= y0 < y1
        assert owner[x0] == owner[y1 - 1]
        assert x1 == y0 or x1 - x0 + y1 - y0 == 45
        used[x0:x1] += 1
        used[y0:y1] += 1
    assert used.max() == 1  # nothing twice


def test_half_of_the_pairs_are_swapped():
    spans = packed(pack_order, random_documents(40, (200, 400), (2, 12), seed=5))
    n = len(spans.label)
    assert n > 1500
    assert set(spans.label) == {0, 1}
    assert abs(spans.label.mean() - 0.5) < 3 * 0.5 / n**0.5


def test_a_segment_alone_is_cut_for_the_order_and_a_token_alone_left_out():
    spans = packed(pack_order, [[[10, 11, 12, 13]], [[20]]], length=16)
    ((a, b),) = zip(spans.a.tolist(), spans.b.tolist())
    assert sorted(a + b)[0] == 0
    assert sorted(a + b)[-1] == 4
    assert sorted([a, b])[0][1] == sorted([a, b])[1][0]
    assert (a < b) == (spans.label[0] == 0)


def test_places():
    documents = random_documents(250, (2, 10), (2, 12), seed=2)
    spans, owner = packed(pack_place, documents), owners(documents)
    for (a0, a1), (b0, b1), label in zip(spans.a, spans.b, spans.label):
        assert (owner[a0] != owner[b0]) == (label == 2)
        if label == 0:
            assert b0 >= a1
        if label == 1:
            assert b1 <= a0
        if label < 2 and a1 - a0 + b1 - b0 < 45:
            assert b0 == a1 if label == 0 else b1 == a0


def test_the_three_places_are_as_likely():
    # documents of one-token segments: nothing but a document's last token ever stands alone
    documents = random_documents(6, (30_000, 30_000), (1, 1), seed=5)
    spans = packed(pack_place, documents, length=64, seed=6)
    n = len(spans.label)
    counts = np.bincount(spans.label)
    assert n > 3000
    assert len(counts) == 3
    assert np.abs(counts / n - 1 / 3).max() < 3 * (2 / 9 / n) ** 0.5


def test_a_document_of_one_segment_has_its_place_elsewhere():
    spans = packed(pack_place, [[[10, 11]], [[20]]], length=16)
    assert spans.label.tolist() == [2, 2]


@pytest.mark.parametrize("pack", [pack_order, pack_place])
def test_pairs_depend_on_document_seed_and_copy_alone(pack):
    documents = random_documents(30, (2, 10), (2, 12), seed=7)
    one, two, other = (packed(pack, documents, 32, seed, copies) for seed, copies in ((1, 1), (1, 2), (2, 1)))
    n = len(one)
    for part in ("a", "b", "label"):
        np.testing.assert_array_equal(getattr(two, part)[:n], getattr(one, part))
    assert two.a[n:].tolist() != one.a.tolist()
    assert other.a.tolist() != one.a.tolist()


def roberta():
    """A byte-level tokenizer of letters with RoBERTa's templates."""
    specials = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
    wordpiece = corpus.tokenizer()
    names = {"[CLS]": "<s>", "[SEP]": "</s>", "[PAD]": "<pad>", "[UNK]": "<unk>", "[MASK]": "<mask>"}

    class Roberta(text.WordPiece):
        """Its template alone."""

        def __init__(self, vocabulary):
            text.base.Tokenizer.__init__(self, vocabulary, specials, ("<s> $A </s>", "<s> $A </s> </s> $B </s>"))

    return Roberta([names.get(piece, piece) for piece in wordpiece.vocabulary])


def test_separators_of_the_template():
    assert separators(corpus.tokenizer()) == 1
    assert separators(roberta()) == 2


@pytest.mark.parametrize(
    "pair", ["$A [SEP] $B [SEP] [CLS]", "[CLS] $A $B [SEP]", "[CLS] $A [SEP] $B", "[CLS] $B [SEP] $A [SEP]"]
)
def test_other_templates_are_refused(pair):
    tokenizer = corpus.tokenizer()
    tokenizer.template = ("[CLS] $A [SEP]", pair)
    tokenizer.pair = parse_template(pair, {"[CLS]": 2, "[SEP]": 3})
    with pytest.raises(InputError, match=r"template for pairs is .*, expected cls \$A sep \.\.\. \$B sep"):
        separators(tokenizer)


def test_two_separators_by_hand():
    spans = pack_pairs(make([[[10, 11]], [[20]]]), length=9, seed=0, dupe_factor=1, sep_id=SEP)
    table = spans.render(length=10, cls_id=CLS, sep_id=SEP, pad_id=PAD, separators=2).tolist()
    assert table == [
        [CLS, 10, 11, SEP, SEP, 20, SEP, 0, 0, 0, 4, 3, 1],
        [CLS, 20, SEP, SEP, 10, 11, SEP, 0, 0, 0, 3, 4, 1],
    ]
    with pytest.raises(InputError, match="length 5 with packing 'pairs', expected 6 to 65535"):
        packing("pairs", 5, separators=2)


def test_records_of_a_template_with_two_separators(tmp_path, monkeypatch):
    monkeypatch.setattr("kerasbert.data.encode.importlib.util.find_spec", lambda name: None)  # our class has no graph
    source = corpus.write(tmp_path / "a.txt", corpus.documents(60))
    tokenizer = roberta()
    monkeypatch.setattr(type(tokenizer), "encode", lambda self, line: [self._ids[word] for word in line.split()])
    monkeypatch.setattr(type(tokenizer), "settings", lambda self: {})
    monkeypatch.setattr(type(tokenizer), "save", lambda self, folder: None)
    records = write_records([source], tokenizer, tmp_path / "out", length=32)
    for row in records.rows(records.shards[0]):
        ids, first, second = row[:32], row[32], row[33]
        assert ids[0] == tokenizer.cls_id
        assert (ids == tokenizer.sep_id).sum() == 3
        assert ids[first - 1] == ids[first] == ids[first + second - 1] == tokenizer.sep_id
        assert (ids[first + second :] == tokenizer.pad_id).all()
        assert (ids[: first + second] != tokenizer.pad_id).all()
    full = records.rows(records.shards[0])
    assert (full[:, 32] + full[:, 33]).max() == 32

"""Words and entities that records bring along: found in the text, kept beside the tokens, whatever the packing."""

import numpy as np
import pytest
import tensorflow as tf

from kerasbert import registry
from kerasbert.data import Records, encode, joins, write_records
from kerasbert.data.packing import PACKINGS
from kerasbert.errors import InputError
from kerasbert.objectives.units import joined
from kerasbert.text import WordPiece
from tests.support import shared

# two words and an entity that holds one of them; every other character stands alone
WORDS, ENTITIES = ("甲乙", "丙丁戊"), ("丙丁戊己", "New York")
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"甲乙丙丁戊己庚辛", "new", "##er", "york", "in"]


def tokenizer():
    return WordPiece(PIECES)


def texts(count=60):
    rng = np.random.default_rng(0)
    parts = ["甲乙", "丙丁戊己", " New York ", "庚", "辛", " in "]
    for number in range(count):
        lines = ["".join(rng.choice(parts, rng.integers(1, 9))) + " in" * (number + 1) for _ in range(4)]
        yield "\n".join(lines)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "corpus.txt").write_text("\n\n".join(texts()))
    (tmp_path / "words.txt").write_text("\n".join(WORDS) + "\n")
    (tmp_path / "entities.tsv").write_text("".join(f"{entity}\tkind\t3\n" for entity in ENTITIES))
    return tmp_path


def make(files, out, **settings):
    settings = {"length": 21, "shards": 2} | settings
    return write_records([files / "corpus.txt"], tokenizer(), files / out, **settings)


@pytest.mark.parametrize(
    ("text", "entries", "expected"),
    [
        ("研究生命科学", ["研究", "研究生", "生命", "科学"], [(0, 3), (4, 6)]),
        ("a newer New York", ["new", "New York", "ork"], [(8, 16)]),
        ("甲乙甲乙", ["甲乙"], [(0, 2), (2, 4)]),
        ("甲乙丙", ["甲"], []),
        ("甲乙", ["甲乙丙", "甲乙"], [(0, 2)]),
        ("", ["甲乙"], []),
    ],
)
def test_forward_maximum_matching_by_hand(text, entries, expected):
    assert joins.Lexicon(entries)(text) == expected


def test_a_lexicons_columns_are_ignored(tmp_path):
    (tmp_path / "a").write_text("\ufeff研究生 37 n\nNew York\tplace 4\n甲\n\n")
    assert joins.Lexicon.read(tmp_path / "a").entries == {"研究生", "New York"}
    (tmp_path / "b").write_text("a\n甲\n")
    with pytest.raises(InputError, match=r"lexicon .*b has no entry of two characters or more"):
        joins.Lexicon.read(tmp_path / "b")
    (tmp_path / "c").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"cannot read the lexicon .*c: .* Expected UTF-8"):
        joins.Lexicon.read(tmp_path / "c")


def blanks(text):
    """A segmenter: what stands between blanks."""
    ends = [i for i, c in enumerate(text + " ") if c == " "]
    return [(begin, end) for begin, end in zip([0, *(end + 1 for end in ends)], ends) if end > begin]


def test_a_segmenter_is_a_function_or_a_registered_name(monkeypatch):
    monkeypatch.setattr(registry.SEGMENTERS, "rows", {})
    registry.register_segmenter("blanks", blanks)
    for source in ("blanks", "tests.data.test_joins:blanks"):
        found = joins.find(source)
        assert found("甲乙 丙").tolist() == [[0, 2], [3, 4]]
        assert (found.name, len(found.sha256)) == (source, 64)
    with pytest.raises(InputError, match=r"no lexicon file or segmenter 'blank'. Nearest registered: 'blanks'"):
        joins.find("blank")
    with pytest.raises(InputError, match=r"cannot import the segmenter tests.data.test_joins:none"):
        joins.find("tests.data.test_joins:none")


@pytest.mark.parametrize("spans", [[(0, 2), (1, 3)], [(2, 1)], [(0, 9)], [(-1, 2)]])
def test_spans_that_cannot_be_are_refused(spans):
    with pytest.raises(InputError, match="segmenter mine gave .* expected .* ascend and do not overlap"):
        joins.Segmenter("mine", "", lambda text: spans)("甲乙丙丁")


def test_marks_by_hand():
    units = [joins.Segmenter("", "", joins.Lexicon(WORDS)), joins.Segmenter("", "", joins.Lexicon(ENTITIES))]
    texts = ["甲乙庚", "丙丁戊己", "newer New York"]
    ids, counts, starts = encode._one_by_one(tokenizer(), True)(texts)
    marked = joins.mark(ids.copy(), counts, starts, texts, units)
    # ##er is of its word by its piece, not by a unit
    assert (marked >> joins.BITS).tolist() == [0, 1, 0, 0, 3, 3, 2, 0, 0, 0, 2]
    np.testing.assert_array_equal(marked & (1 << joins.BITS) - 1, ids)


def test_the_graph_marks_what_python_marks():
    lines = "\n".join(texts()).split("\n")
    units = [joins.find("tests.data.test_joins:blanks"), joins.Segmenter("", "", joins.Lexicon(ENTITIES))]
    one, two = (kind(tokenizer(), True)(lines) for kind in (encode._one_by_one, encode._in_graph))
    for mine, theirs in zip(one, two, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    marked = joins.mark(one[0].copy(), *one[1:], lines, units)
    encoded = encode.batch_encoder(tokenizer(), units)(lines)
    np.testing.assert_array_equal(encoded[0], marked)
    assert len(np.unique(marked >> joins.BITS)) == 4


@pytest.mark.parametrize("packing", [name for name in PACKINGS if name != "translations"])  # of one text
def test_every_packing_keeps_the_marks_with_their_tokens(files, packing, monkeypatch):
    monkeypatch.setattr(encode, "_in_graph", encode._one_by_one)  # no graph to trace for each
    plain = make(files, "plain", packing=packing)
    both = make(files, "both", packing=packing, words=files / "words.txt", entities=files / "entities.tsv")
    assert "joins" not in plain.features
    assert list(both.features) == [*plain.features, "joins"]
    assert both.features["joins"] == (3,)
    for mine, theirs in zip(both.shards, plain.shards, strict=True):
        np.testing.assert_array_equal(both.rows(mine)[:, :-3], plain.rows(theirs))
    assert {k: v for k, v in both.manifest.items() if k in ("counts", "unigram", "dtype")} == {
        k: v for k, v in plain.manifest.items() if k in ("counts", "unigram", "dtype")
    }
    features = next(iter(both.dataset(8, seed=0)))
    ids = features["token_ids"].numpy()
    expected = {"words": "乙丁戊", "entities": ["丁", "戊", "己", "york"]}
    for level, pieces in expected.items():
        wanted = np.isin(ids, [PIECES.index(piece) for piece in pieces])
        np.testing.assert_array_equal(joined(features, level), wanted)
        assert wanted.any()


def test_a_changed_lexicon_is_a_change_of_the_records(files):
    given = {"words": files / "words.txt"}
    made = make(files, "records", **given)
    assert "entities" not in made.manifest["settings"]
    assert make(files, "records", **given).reused
    with pytest.raises(InputError, match=r"records of other inputs. Changed: words \(.*before, now None\)"):
        make(files, "records")
    (files / "words.txt").write_text("甲乙\n")
    with pytest.raises(InputError, match=r"Changed: words \("):
        make(files, "records", **given)
    assert Records(files / "records").verify().features["joins"] == (3,)


def test_eight_tokens_to_a_number_by_hand():
    row = np.array([[2, 5 + (1 << 28), 6 + (3 << 28), 7 + (4 << 28), 0, 0, 0, 0, 8 + (6 << 28), 3]])
    found = joins.take_off(row.copy(), 9, True, True)
    assert found.tolist() == [[2, 5, 6, 7, 0, 0, 0, 0, 8, 3, 1 * 4 + 3 * 16, 2, 8 + 256]]
    assert joins.take_off(row.copy(), 9, False, True).tolist() == [[*found[0, :10], 8 + 256]]
    ids, packed = found[:, :10], found[:, 10:12]
    features = {"token_ids": tf.constant(ids[:, :9], tf.int32), "joins": tf.constant(packed, tf.int32)}
    assert np.flatnonzero(joined(features, "words")[0]).tolist() == [1, 2]
    assert np.flatnonzero(joined(features, "entities")[0]).tolist() == [2, 8]


def test_the_command(files, capsys):
    from kerasbert import cli

    tokenizer().save(files / "tokenizer")
    line = [
        "data",
        files / "corpus.txt",
        "--tokenizer",
        files / "tokenizer",
        "--length",
        21,
        "--out",
        files / "records",
    ]
    assert cli.main([*map(str, line), "--words", str(files / "words.txt")]) == 0
    assert Records(files / "records").features["joins"] == (3,)
    assert cli.main([*map(str, line), "--words", "nothing", "--overwrite"]) == 2
    assert "error: no lexicon file or segmenter 'nothing'" in capsys.readouterr().err


@pytest.mark.slow
def test_chinese_news_and_a_real_lexicon(tmp_path):
    """HowNet's words over news: the marked tokens, put together again, are entries."""
    from kerasbert.text import load_tokenizer

    lexicon = joins.Lexicon.read(shared("data/kbert/kgs/HowNet.spo"))
    pieces = load_tokenizer(shared("data/vocab/bert-base-chinese"))
    records = write_records(
        [shared("data/zh/CLUECorpusSmall/train.txt")],
        pieces,
        tmp_path / "records",
        packing="full",
        words=shared("data/kbert/kgs/HowNet.spo"),
    )
    features = next(iter(records.dataset(256, seed=0)))
    ids, goes_on = features["token_ids"].numpy(), joined(features, "words").numpy()
    units = [[]]
    for token, same in zip(ids[:, 1:].ravel().tolist(), goes_on[:, 1:].ravel().tolist(), strict=True):
        if not same:
            units.append([])
        units[-1].append(token)
    words = {"".join(pieces.vocabulary[token] for token in unit) for unit in units if len(unit) > 1}
    plain = {word for word in words if not word.isascii() and "#" not in word and "[UNK]" not in word}
    assert len(plain) > 300
    # a row may end within a word
    assert len(plain & lexicon.entries) / len(plain) > 0.9
    assert 0.02 < goes_on.mean() < 0.2

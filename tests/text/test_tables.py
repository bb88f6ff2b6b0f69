"""The tables against `tokenizers` and tensorflow-text, code point by code point."""

import pytest
from tokenizers import normalizers, pre_tokenizers

from kerasbert.text import WordPiece, tables
from kerasbert.text.normalize import TABLES, Normalizer, inside, parse_ranges
from kerasbert.text.wordpiece import SPECIALS
from tests.golden import make_text_tables

CODE_POINTS = make_text_tables.CODE_POINTS


def differing(codes: list[int], lowercase: bool, strip_accents: bool, split_cjk: bool) -> list[str]:
    """Those of the code points whose words differ from Hugging Face's."""
    ours = Normalizer(lowercase, strip_accents, split_cjk)
    theirs = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=split_cjk, strip_accents=strip_accents, lowercase=lowercase
    )
    split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    wrong = []
    for code in codes:
        text = f"a{chr(code)}b"
        if [word for word, _ in ours.words(text)] != [word for word, _ in split(theirs.normalize_str(text))]:
            wrong.append(f"U+{code:04X}")
    return wrong


def test_code_points_of_the_first_two_planes_are_hugging_faces():
    assert (
        differing([code for code in CODE_POINTS if code < 0x20000], lowercase=True, strip_accents=True, split_cjk=True)
        == []
    )


@pytest.mark.parametrize(
    ("lowercase", "strip_accents", "split_cjk"),
    [
        pytest.param(True, True, True, marks=pytest.mark.slow),
        pytest.param(True, False, False, marks=pytest.mark.full),
        pytest.param(False, True, False, marks=pytest.mark.full),
        pytest.param(False, False, True, marks=pytest.mark.full),
    ],
)
def test_every_code_point_is_hugging_faces_whatever_the_settings(lowercase, strip_accents, split_cjk):
    assert differing(CODE_POINTS, lowercase, strip_accents, split_cjk) == []


@pytest.mark.full
def test_the_tables_are_what_the_script_writes():
    for name, text in make_text_tables.tables().items():
        assert getattr(tables, name).split() == text.split(), f"{name}: run tests/golden/make_text_tables.py again"


@pytest.mark.slow
def test_code_points_on_which_tensorflow_text_and_hugging_face_differ():
    """The list in wordpiece_graph.py is exact: nothing missing, nothing too much (tensorflow-text 2.20, tokenizers 0.23).

    Punctuation newer than Hugging Face's tables (Unicode 8: U+061D ARABIC END OF TEXT MARK ... U+1E95F ADLAM INITIAL
    QUESTION MARK), the ideographs of extension E that Hugging Face's range leaves out (U+2B820-2B91F), and the other way
    round U+166D CANADIAN SYLLABICS CHI SIGN and U+111C9 SHARADA SANDHI MARK, which are no punctuation any more.
    """
    import tensorflow as tf
    import tensorflow_text

    from kerasbert.text import wordpiece_graph

    codes = [code for code in CODE_POINTS if not inside(code, TABLES.drop)]
    plain = tensorflow_text.FastWordpieceTokenizer(["[UNK]", "zz"], token_out_type=tf.int32)
    parts = plain.tokenize(tf.constant([f"a{chr(code)}b" for code in codes])).row_lengths().numpy()
    theirs = dict(zip(codes, parts.tolist()))  # 1 a letter, 2 a blank, 3 a word of its own
    ours = {
        code: 2
        if inside(code, TABLES.space)
        else 3
        if inside(code, TABLES.punctuation) or inside(code, TABLES.cjk)
        else 1
        for code in codes
    }
    bounds = parse_ranges(wordpiece_graph.CONTESTED_LETTERS)
    assert [code for code in codes if (ours[code], theirs[code]) == (1, 3)] == [
        code for code in codes if inside(code, bounds)
    ]
    assert [code for code in codes if (ours[code], theirs[code]) == (3, 1)] == sorted(
        wordpiece_graph.CONTESTED_PUNCTUATION
    )
    assert all(ours[code] == theirs[code] for code in codes if 2 in (ours[code], theirs[code]))


@pytest.mark.parametrize(
    ("lowercase", "step"),
    [
        pytest.param(True, 25, marks=pytest.mark.slow),
        pytest.param(True, 1, marks=pytest.mark.full),
        pytest.param(False, 1, marks=pytest.mark.full),
    ],
)
def test_every_code_point_in_the_graph(lowercase, step):
    """Beyond the first two planes, where letters and ideographs are, every `step`-th."""
    import tensorflow as tf

    from kerasbert.text.wordpiece_graph import WordPieceGraph

    pieces = [chr(code) for code in CODE_POINTS if code % 11 == 0 and chr(code).isprintable()]  # known and unknown ones
    tokenizer = WordPiece(
        [*dict.fromkeys([*SPECIALS, "a", "b", "##b", *pieces, *("##" + piece for piece in pieces)])],
        lowercase=lowercase,
    )
    graph = WordPieceGraph(tokenizer)
    tokenize = tf.function(graph.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
    wrong = []
    chosen = [code for code in CODE_POINTS if code < 0x20000 or code % step == 0]
    for first in range(0, len(chosen), 16_384):
        codes = chosen[first : first + 16_384]
        texts = [f"a{chr(code)}b" for code in codes]
        for code, text, *found in zip(codes, texts, *(part.to_list() for part in tokenize(tf.constant(texts)))):
            expected = tokenizer.tokenize(text)
            if found != [expected.ids, expected.starts, expected.ends]:
                wrong.append(f"U+{code:04X}")
    assert wrong == []

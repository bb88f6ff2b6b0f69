"""Sentence trees: figure 2 of the paper, nested, overlapping and truncated ones, pairs, words given one by one."""

import numpy as np
import pytest

from kerasbert.answers import find
from kerasbert.errors import InputError
from kerasbert.text import WordPiece
from kerasbert.text.knowledge import KnowledgeGraph
from kerasbert.text.tree import with_knowledge

PIECES = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] tim cook ceo apple is visiting beijing capital china is_a city now in the".split()
)
FIGURE = [("Tim Cook", "CEO", "Apple"), ("Beijing", "capital", "China"), ("Beijing", "is_a", "City")]


def tokenizer(triples=FIGURE, pieces=PIECES, **settings):
    # the paper writes is_a as one token: an added one here, as WordPiece sets the line apart
    added = [{"content": "is_a", "piece": True}] if "is_a" in pieces else []
    return with_knowledge(WordPiece(pieces, added=added, **settings), KnowledgeGraph(triples))


def chinese(triples, branches=2):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"甲乙丙丁戊己庚辛壬癸"]
    return with_knowledge(WordPiece(pieces), KnowledgeGraph(triples, branches))


def row(tokenizer, *parts, length=128):
    return find("classification").rows(tokenizer, parts, length)[0]


def shown(tokenizer, found):
    return "".join(tokenizer.vocabulary[i] for i in found.token_ids).replace("[CLS]", "^").replace("[SEP]", "$")


def numbers(found, name):
    return list(found.values[name])


def test_figure_2_by_hand():
    from kerasbert.layers import visibility

    found = row(tokenizer(), "Tim Cook is visiting Beijing now")
    words = [PIECES[i] for i in found.token_ids]
    # the figure ends without [SEP]
    assert words == "[CLS] tim cook ceo apple is visiting beijing capital china is_a city now [SEP]".split()
    assert numbers(found, "position_ids") == [0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 6, 7, 6, 7]
    assert numbers(found, "branch_ids") == [0, 0, 0, 1, 1, 0, 0, 0, 2, 2, 3, 3, 0, 0]
    assert numbers(found, "entity_ids") == [0, 1, 1, 1, 1, 0, 0, 2, 2, 2, 2, 2, 0, 0]
    assert numbers(found, "segment_ids") == [0] * 14
    assert (found.length, found.truncated, found.values["padding_mask"]) == (14, False, 1)
    assert list(map(tuple, found.triples)) == FIGURE
    matrix = visibility.tree(*(np.array([numbers(found, name)]) for name in ("branch_ids", "entity_ids")))[0]
    expected = (
        "11100111000011",  # [CLS]
        "11111111000011",  # Tim
        "11111111000011",  # Cook
        "01111000000000",  # CEO
        "01111000000000",  # Apple
        "11100111000011",  # is
        "11100111000011",  # visiting
        "11100111111111",  # Beijing
        "00000001110000",  # capital
        "00000001110000",  # China
        "00000001001100",  # is_a
        "00000001001100",  # City
        "11100111000011",  # now
        "11100111000011",  # [SEP]
    )
    wanted = [list(map(int, line)) for line in expected]
    np.testing.assert_array_equal(np.array(matrix).astype(int), wanted)
    assert not matrix[4][9]  # Apple(4) does not see China(9)


@pytest.mark.parametrize(
    ("text", "triples", "expected", "entities"),
    [
        # nested: the longest name alone, not the one inside it
        ("甲乙丙", [("甲乙", "丁", "戊"), ("甲乙丙", "己", "庚"), ("乙丙", "辛", "壬")], "^甲乙丙己庚$", [0, 1, 1, 1, 1, 1, 0]),
        # overlapping: the one that begins first
        ("甲乙丙", [("甲乙", "丁", "戊"), ("乙丙", "辛", "壬")], "^甲乙丁戊丙$", [0, 1, 1, 1, 1, 0, 0]),
        # twice, side by side: two entities, each with its branch
        ("甲乙甲乙", [("甲乙", "丁", "戊")], "^甲乙丁戊甲乙丁戊$", [0, 1, 1, 1, 1, 2, 2, 2, 2, 0]),
        # at most n = 2 branches, the first different ones of the file
        (
            "甲乙",
            [("甲乙", "丙", each) for each in "丁丁戊己"],
            "^甲乙丙丁丙戊$",
            [0, 1, 1, 1, 1, 1, 1, 0],
        ),
        # one character is no name; a triple that the text says already is inserted too
        ("甲乙丙丁", [("甲", "辛", "壬"), ("甲乙", "丙", "丁")], "^甲乙丙丁丙丁$", [0, 1, 1, 1, 1, 0, 0, 0]),
        ("丙丁", [("甲乙", "丙", "丁")], "^丙丁$", [0, 0, 0, 0]),
        ("", [("甲乙", "丙", "丁")], "^$", [0, 0]),
    ],
)  # fmt: skip
def test_nested_and_overlapping_entities(text, triples, expected, entities):
    made = chinese(triples)
    found = row(made, text)
    assert shown(made, found) == expected
    assert numbers(found, "entity_ids") == entities


@pytest.mark.parametrize(
    ("length", "expected", "truncated"),
    [
        (13, "^甲乙己庚辛壬丙丁辛壬$", False),
        (12, "^甲乙己庚辛壬丙丁辛壬$", False),
        (11, "^甲乙己庚辛壬丙丁$", False),  # the last branch goes, whole
        (10, "^甲乙己庚辛壬丙丁$", False),
        (9, "^甲乙己庚辛壬丙$", True),  # then the text loses its end, as the released code cuts the tree
        (8, "^甲乙己庚辛壬$", True),
        (7, "^甲乙己庚丙$", True),  # a branch that does not fit is left out whole
        (6, "^甲乙己庚$", True),
        (5, "^甲乙丙$", True),
        (2, "^$", True),
    ],
)
def test_branches_are_inserted_before_the_tree_is_cut(length, expected, truncated):
    made = chinese([("甲乙", "己", "庚"), ("甲乙", "辛", "壬"), ("丙丁", "辛", "壬")])
    found = row(made, "甲乙丙丁", length=length)
    assert (shown(made, found), found.truncated) == (expected, truncated)
    assert max(numbers(found, "position_ids")) < length
    kept = expected.count("己") + expected.count("辛")
    assert (len(found.triples), found.lost) == (kept, 3 - kept)
    assert set(numbers(found, "branch_ids")) == set(range(kept + 1))


def test_a_long_branch_does_not_end_those_behind_it():
    made = chinese([("甲乙", "己庚辛", "壬癸戊甲"), ("甲乙", "己", "庚"), ("丙丁", "辛", "壬")])
    found = row(made, "甲乙丙丁", length=10)
    assert (shown(made, found), found.truncated, found.lost) == ("^甲乙己庚丙丁辛壬$", False, 1)


def test_a_text_that_fills_the_length_has_triples():
    """Branches had only what the text left free: nothing, of 241 of 698 reviews at 128 tokens."""
    made = chinese([("甲乙", "己", "庚")])
    found = row(made, "甲乙丙" * 40, length=32)
    assert len(found.triples) == 6
    assert shown(made, found) == f"^{'甲乙己庚丙' * 6}$"


@pytest.mark.parametrize(
    ("settings", "texts"),
    [
        (
            {},
            {"I read Frankenstein": 1, "FRANKENSTEIN": 1, "frankensteins": 0, "\u00c9mile": 1, "emile": 1, "China": 2},
        ),
        ({"lowercase": False}, {"I read Frankenstein": 0, "frankenstein": 1, "emile": 0, "\u00c9mile": 1, "china": 2}),
        ({"strip_accents": False}, {"Frankenstein": 1, "emile": 0, "\u00e9MILE": 1, "CHINA": 2}),
    ],
)
def test_entities_are_found_as_the_tokenizer_reads_them(settings, texts):
    """An uncased tokenizer reads "Frankenstein" and "frankenstein" alike; two subjects that are one have common branches."""
    graph = [
        ("frankenstein", "is", "city"),
        ("\u00c9mile", "is", "city"),
        ("China", "is", "now"),
        ("china", "is", "now"),
    ]
    graph += [("china", "is", "city"), ("CHINA", "is", "the")]
    made = tokenizer(graph, **settings)
    assert {each: len(row(made, each).triples) for each in texts} == texts


def test_a_pair_has_branches_in_both_texts():
    made = chinese([("甲乙", "己", "庚"), ("丙丁", "辛", "壬")])
    found = row(made, "甲乙", "戊丙丁")
    assert shown(made, found) == "^甲乙己庚$戊丙丁辛壬$"
    assert numbers(found, "segment_ids") == [0] * 6 + [1] * 6
    assert numbers(found, "position_ids") == [0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 8, 7]
    assert numbers(found, "branch_ids") == [0, 0, 0, 1, 1, 0, 0, 0, 0, 2, 2, 0]
    assert numbers(found, "entity_ids") == [0, 1, 1, 1, 1, 0, 0, 2, 2, 2, 2, 0]
    short = row(made, "甲乙", "戊丙丁", length=7)
    assert (shown(made, short), short.truncated) == ("^甲乙$戊丙$", True)


def test_branches_are_no_words_of_a_text_that_is_tagged():
    made = chinese([("甲乙", "己", "庚"), ("丙丁", "辛", "壬")])
    kind = find("tags")
    for text in ("甲乙丙丁", ("甲", "乙", "丙", "丁")):
        (found,) = kind.rows(made, (text,), 32)
        assert shown(made, found) == "^甲乙己庚丙丁辛壬$"
        assert found.about.tokens.tolist() == [1, 2, 5, 6]
        labels = np.eye(3)[[0, 1, 2, 0, 0, 1, 2, 0, 0, 0]]
        answer = kind.decode((text,), [found], [labels], ("O", "B-X", "I-X"))
        assert answer.labels == ("B-X", "I-X", "B-X", "I-X")
        whole = answer.words == ("甲", "乙", "丙", "丁")
        assert whole
        assert [entity.text.replace(" ", "") for entity in answer.entities] == ["甲乙", "丙丁"]


def test_windows_of_a_long_text_have_branches_where_there_is_room():
    made = chinese([("甲乙", "己", "庚")])
    rows = find("tags").rows(made, ("丙丁戊甲乙甲乙",), 7)
    # four of the five tokens of a window, two of them new
    assert [shown(made, each) for each in rows] == ["^丙丁戊甲$", "^戊甲乙甲$", "^乙己庚甲乙$"]
    rows = find("tags").rows(made, ("丙丁戊辛甲乙",), 9)
    assert [shown(made, each) for each in rows] == ["^丙丁戊辛甲乙$"]
    rows = find("tags").rows(made, ("丙丁戊辛壬丙甲乙",), 9)
    assert [shown(made, each) for each in rows] == ["^丙丁戊辛壬丙$", "^辛壬丙甲乙己庚$"]
    words = np.concatenate([each.about.words for each in rows])
    assert sorted(words) == list(range(8))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("New", "York", "is"), "New York is"),
        (("腹", "痛", "3", "天"), "腹痛3天"),
        (("서울", "대학교"), "서울 대학교"),
        ((), ""),
    ],
)
def test_words_are_text_again(words, text):
    from kerasbert.text.tree import as_text

    found, places = as_text(words)
    assert found == text
    assert [found[place : place + len(word)] for place, word in zip(places, words)] == list(words)


def test_the_tokenizer_gives_what_the_network_reads():
    arrays = chinese([("甲乙", "己", "庚")])(["甲乙", "丙"])
    assert {name: value.tolist() for name, value in arrays.items()} == {
        "token_ids": [[2, 5, 6, 10, 11, 3], [2, 7, 3, 0, 0, 0]],
        "padding_mask": [[1] * 6, [1, 1, 1, 0, 0, 0]],
        "segment_ids": [[0] * 6] * 2,
        "position_ids": [[0, 1, 2, 3, 4, 3], [0, 1, 2, 0, 0, 0]],
        "branch_ids": [[0, 0, 0, 1, 1, 0], [0] * 6],
        "entity_ids": [[0, 1, 1, 1, 1, 0], [0] * 6],
    }


def test_an_entity_longer_than_the_length_is_refused():
    made = chinese([("甲乙", "己", "庚"), ("丙丁戊己庚辛", "壬", "癸")])
    made.knowledge.check(10, "g.spo")
    with pytest.raises(
        InputError, match=r"^g.spo: '丙丁戊己庚辛' and its branch have 8 tokens, a text of length 9 holds 7: "
    ):
        made.knowledge.check(9, "g.spo")
    with pytest.raises(
        InputError,
        match=r"^g.spo: the entity '丙丁戊己庚辛' has 6 tokens, a text of length 7 holds 5: take the triple out",
    ):
        made.knowledge.check(7, "g.spo")

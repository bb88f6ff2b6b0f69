"""A tree is one tree: Python's, the graph's, for texts, pairs and tags, of real and of odd texts."""

import random

import numpy as np
import pytest
import tensorflow as tf

from kerasbert import inputs, text
from kerasbert.answers import find
from kerasbert.inputs import BRANCHES, ENTITIES, POSITIONS, TEXT
from kerasbert.text.graph import graph_tokenizer
from kerasbert.text.knowledge import KnowledgeGraph
from kerasbert.text.tree import with_knowledge
from tests.support import shared
from tests.text.test_tree import FIGURE, chinese, tokenizer

TREE = (*TEXT, POSITIONS, BRANCHES, ENTITIES)
ODD = [
    "",
    " ",
    "甲乙",
    "甲乙\u0301甲乙",
    "a甲乙b 甲乙c",
    "\x00甲\x00乙",
    "甲 乙",
    "甲乙" * 40,
    "\U0001f600甲乙",
    "乙甲乙丙丁戊己",
]


def check(made, texts, length, pairs=None):
    kind, packer = find("classification"), graph_tokenizer(made)
    strings = [tf.constant(each) for each in ([texts] if pairs is None else [texts, pairs])]
    rows = [kind.rows(made, parts, length)[0] for parts in zip(texts, *([] if pairs is None else [pairs]))]
    wanted = inputs.arrays(TREE, rows, length, pad_id=made.pad_id)
    found = packer.pack(*strings, length=length)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    return rows


def random_graph(draw, letters="甲乙丙丁戊", count=30):
    names = ["".join(draw.choices(letters, k=draw.randint(2, 4))) for _ in range(count)]
    return [(name, draw.choice(["己", "庚辛", "\u200d"]), draw.choice(["壬", "癸壬", "\u200d"])) for name in names]


@pytest.mark.parametrize("length", [2, 7, 64])
def test_the_graph_makes_pythons_trees_of_random_texts(length):
    draw = random.Random(0)
    made = chinese(random_graph(draw))
    texts = ["".join(draw.choices("甲乙丙丁戊 a", k=draw.randint(0, 24))) for _ in range(40)] + ODD
    rows = check(made, texts, length)
    assert length < 64 or max(len(row.triples) for row in rows) > 2
    if length > 2:
        check(made, texts, length, texts[::-1])


@pytest.mark.parametrize("settings", [{}, {"lowercase": False}, {"strip_accents": False}])
@pytest.mark.parametrize("length", [6, 40])
def test_the_graph_folds_case_and_accents_as_python_does(settings, length):
    graph = [*FIGURE, ("\u00c9mile", "is", "city"), ("TIM COOK", "now", "in"), ("\u0130\u0131", "is", "the")]
    texts = [
        "tim cook is in BEIJING",
        "\u00e9mile, EMILE \u00c9MILE",
        "\u0130\u0131 i\u0131 \u0131\u0131",
        "Tim  Cook",
        "",
    ]
    rows = check(tokenizer(graph, **settings), texts, length)
    assert length < 40 or sum(len(row.triples) for row in rows) >= (1 if settings == {"lowercase": False} else 6)


@pytest.mark.parametrize("triples", [[], [("zz", "y", "x")], FIGURE])
def test_the_figures_text_and_graphs_that_find_nothing(triples):
    check(tokenizer(triples), ["Tim Cook is visiting Beijing now", "Tim Cookies", "in Beijing", "x"], 20)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bpe", "unigram", "word_bpe"])
def test_every_kind_of_tokenizer_makes_one_tree(kind):
    from kerasbert.testing.battery import tokenizer as tiny

    made = with_knowledge(tiny(kind), KnowledgeGraph([("happy cat", "is", "good"), ("old river", "runs", "very old")]))
    texts = [
        "the happy cat sees",
        "a happy  cat",
        "an old river, the happy cat",
        "happy catalogue",
        "",
        "Ünïcödé old river",
    ]
    rows = check(made, texts, 40)
    assert [len(row.triples) for row in rows] == [1, 0, 2, 0, 0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("length", [64, 128])
def test_500_texts_with_hownet(length):
    made = with_knowledge(text.WordPiece(_pieces()), KnowledgeGraph.read(shared("data/kbert/kgs/HowNet.spo")))
    rows = check(made, reviews(500), length)
    assert sum(len(row.triples) for row in rows) > 2 * length  # longer rows keep more branches


def reviews(count):
    lines = shared("data/kbert/chnsenticorp/dev.tsv").read_text(encoding="utf-8").split("\n")[1 : count + 1]
    return [line.split("\t")[1] for line in lines]


def _pieces():
    characters = sorted({c for line in reviews(1200) for c in line if "一" <= c <= "龥"})
    return [*"[PAD] [UNK] [CLS] [SEP] [MASK]".split(), *characters, *"0123456789，。！"]

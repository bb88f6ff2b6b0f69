"""A graph: its file, its compact form, damaged ones; the sorted lexicon finds what the set finds."""

import random

import pytest

from kerasbert import text
from kerasbert.errors import InputError
from kerasbert.text import knowledge
from kerasbert.text.knowledge import KnowledgeGraph
from kerasbert.text.lexicon import Lexicon, SortedLexicon, Strings
from kerasbert.text.tree import with_knowledge
from tests.support import shared
from tests.text.test_tree import chinese

TRIPLES = [("New York", "is in", "America"), *(("甲乙", *each) for each in ("丙丁", "戊己", "丙丁", "庚辛"))]


def test_a_file_by_hand(tmp_path):
    path = tmp_path / "g.spo"
    path.write_bytes(
        "\ufeff甲乙\t丙\t丁\r\n\nNew York\t is in \tAmerica\n甲\t丙\t丁\n甲乙\t戊\t己\n甲乙\t庚\t辛".encode()
    )
    graph = KnowledgeGraph.read(path)
    assert (list(graph.subjects), list(graph.rows)) == (["New York", "甲乙"], ["is in\tAmerica", "丙\t丁\t戊\t己"])
    assert (len(graph), graph.unseen) == (3, 1)
    assert graph("甲乙 in New York") == [(0, 2, 1), (6, 14, 0)]
    assert graph.told() == [
        "graph: 3 triples of 2 entities, at most 2 of each",
        "graph: 1 triples of entities of one character are left out: texts are not searched for them",
    ]
    assert len(KnowledgeGraph.read(path, branches=3)) == 4
    path.write_text("")
    assert len(KnowledgeGraph.read(path)) == 0


def test_a_file_is_parsed_once_until_it_changes(tmp_path):
    path = tmp_path / "g.spo"
    path.write_text("New York\tis in\tAmerica\n")
    first = knowledge.graph_of(path)
    assert knowledge.graph_of(str(path)) is knowledge.graph_of(first) is first
    path.write_text("New York\tis in\tAmerica\nBoston\tis in\tAmerica\n")
    assert len(knowledge.graph_of(path)) == 2
    with pytest.raises(InputError, match=r"cannot read the graph .*none\.spo: No such file"):
        knowledge.graph_of(tmp_path / "none.spo")


def test_the_compact_form_is_the_graph():
    graph = KnowledgeGraph(TRIPLES)
    content = graph.to_bytes()
    assert content.startswith(b"kerasbert knowledge 1 2 2 14\n")
    again = KnowledgeGraph.from_bytes(content)
    assert (list(again.subjects), list(again.rows), again.branches) == (list(graph.subjects), list(graph.rows), 2)
    assert (again.to_bytes(), again.digest) == (content, graph.digest)
    assert KnowledgeGraph(TRIPLES[::-1]).digest != graph.digest  # other branches come first
    empty = KnowledgeGraph()
    assert KnowledgeGraph.from_bytes(empty.to_bytes())("甲乙") == []


@pytest.mark.parametrize("branches", [1, 2, knowledge.MOST_BRANCHES])
def test_numbers_of_the_compact_form_are_read_up_to_their_edge(branches):
    content = KnowledgeGraph(TRIPLES, branches=branches).to_bytes()
    assert KnowledgeGraph.from_bytes(content).branches == branches
    head, body = content.split(b"\n", 1)
    *name, _, count, size = head.split(b" ")
    numbers = [(0, int(count), int(size)), (knowledge.MOST_BRANCHES + 1, int(count), int(size))]
    numbers += [(branches, int(count) + more, int(size) + other) for more, other in ((1, 0), (-1, 0), (0, 1), (0, -1))]
    for wrong in numbers:
        with pytest.raises(InputError, match="^knowledge.bin is damaged"):
            KnowledgeGraph.from_bytes(b" ".join([*name, *(b"%d" % each for each in wrong)]) + b"\n" + body)
    for end in range(len(content)):
        with pytest.raises(InputError, match="^knowledge.bin is damaged"):
            KnowledgeGraph.from_bytes(content[:end])


@pytest.mark.parametrize("triple", [("a\tb", "c", "d"), ("ab", "c"), ("ab", "c", ""), ("ab", "c", "d" * 1001)])
def test_triples_that_no_file_could_hold_are_refused(triple):
    with pytest.raises(InputError, match="^triple 1 has "):
        KnowledgeGraph([triple])


def test_branches_are_bounded():
    with pytest.raises(InputError, match=r"^branches must be 1 to 64, of an entity. Received: 0"):
        KnowledgeGraph(branches=0)


@pytest.mark.slow
def test_a_damaged_file_is_refused_or_finds_something_else():
    """Never another error than InputError or a wrong letter, never an endless search."""
    content, draw, refused = KnowledgeGraph(TRIPLES).to_bytes(), random.Random(0), 0
    for _ in range(200):
        damaged = bytearray(content)
        for _ in range(draw.randint(1, 3)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        damaged = bytes(damaged[: draw.choice([len(damaged), draw.randrange(len(damaged))])])
        try:
            made = with_knowledge(chinese([]), KnowledgeGraph.from_bytes(damaged))
            made(["甲乙丙 in New York", "甲乙"], length=16)
        except (InputError, UnicodeDecodeError):
            refused += 1
    assert refused > 100
    for wrong in (
        b"",
        b"kerasbert knowledge 2 2 0 0\n",
        b"kerasbert knowledge 1 2 999999999 9\n",
        content[:-1],
        content + b"x",
    ):
        with pytest.raises(InputError, match=r"^knowledge.bin is damaged: write the model or the file again"):
            KnowledgeGraph.from_bytes(wrong)


def test_it_stands_beside_a_tokenizer(tmp_path):
    made = chinese(TRIPLES)
    knowledge.save(made, tmp_path / "with")
    knowledge.save(with_knowledge(made, None), tmp_path / "without")
    again = text.load_tokenizer(tmp_path / "with")
    assert again.knowledge.graph.digest == made.knowledge.graph.digest
    assert text.load_tokenizer(tmp_path / "without").knowledge is None
    memory = {path.name: path.read_bytes() for path in (tmp_path / "with").iterdir()}
    assert text.load_tokenizer(memory).knowledge.graph.digest == made.knowledge.graph.digest
    assert again.digest() == made.digest() == with_knowledge(made, None).digest()  # the ids of a text are the same


def test_the_sorted_lexicon_finds_what_the_set_finds():
    draw = random.Random(0)
    for _ in range(200):
        entries = sorted({"".join(draw.choices("甲乙丙ab ", k=draw.randint(2, 4))) for _ in range(draw.randint(0, 12))})
        found, plain = SortedLexicon(draw.choice([entries, Strings.of(entries)])), Lexicon(entries)
        for _ in range(10):
            words = "".join(draw.choices("甲乙丙ab ", k=draw.randint(0, 12)))
            assert [(begin, end) for begin, end, _ in found(words)] == plain(words)
            assert all(entries[number] == words[begin:end] for begin, end, number in found(words))


def test_hownet():
    graph = KnowledgeGraph.read(shared("data/kbert/kgs/HowNet.spo"))
    assert (len(graph), len(graph.subjects), graph.unseen) == (
        52426,
        45124,
        0,
    )  # 52,576 triples, at most two of each entity
    assert list(graph.subjects) == sorted(graph.subjects)


def test_the_most_branches_of_an_entity():
    assert len(KnowledgeGraph(TRIPLES, branches=knowledge.MOST_BRANCHES)) == 4
    assert len(KnowledgeGraph(TRIPLES, branches=1)) == 2
    for wrong in (0, -1, knowledge.MOST_BRANCHES + 1, True, 1.0):
        with pytest.raises(InputError, match="branches must be 1 to"):
            KnowledgeGraph(TRIPLES, branches=wrong)


@pytest.mark.parametrize(
    ("text", "begin", "end", "expected"),
    [
        ("new york", 0, 3, True),
        ("new york", 4, 8, True),
        ("new york", 1, 3, False),
        ("new york", 0, 2, False),
        ("newer", 0, 3, False),
        ("(new)", 1, 4, True),
        ("a", 0, 1, True),
    ],
)
def test_a_name_stands_apart(text, begin, end, expected):
    from kerasbert.text.lexicon import apart

    assert apart(text, begin, end) is expected

"""Readers of pairs: STS with and without a header, anchors with negatives, NLI. By hand."""

import dataclasses

import pytest

from kerasbert import registry
from kerasbert.errors import InputError
from kerasbert.tasks.pairs import read_nli, read_pairs, read_sts

STS, PAIRS, NLI = (registry.task(name) for name in ("sts", "pairs", "nli_pairs"))


def file(tmp_path, content, name="x.csv"):
    (tmp_path / name).write_text(content)
    return tmp_path / name


def test_sts_without_a_header_begins_with_its_first_line(tmp_path):
    wanted = {"sentence1": "a", "sentence2": "b", "score": "1.5"}
    assert read_sts(file(tmp_path, "a,b,1.5\nc,d,2\n"), STS) == [
        (1, wanted),
        (2, {"sentence1": "c", "sentence2": "d", "score": "2"}),
    ]
    assert read_sts(file(tmp_path, "sentence1,sentence2,score\na,b,1.5\n"), STS) == [(2, wanted)]
    # one known name is enough for a header, three columns are needed for none
    assert read_sts(file(tmp_path, "sentence1,sentence2,other\na,b,c\n"), STS)[0][0] == 2
    assert len(read_sts(file(tmp_path, "id,sentence1,sentence2,score\n7,a,b,1.5\n"), STS)) == 1
    for content in ("a,b\nc,d\n", "a,b,c,d\ne,f,g,h\n"):
        with pytest.raises(InputError, match="has no column 'sentence1'"):
            read_sts(file(tmp_path, content), STS)


def test_a_negative_stands_behind_its_positive(tmp_path):
    content = "anchor,positive,negative\na,b,c\nd,e,\n"
    assert read_pairs(file(tmp_path, content), PAIRS) == [
        (2, {"anchor": "a", "positive": ["b", "c"]}),
        (3, {"anchor": "d", "positive": "e"}),
    ]
    assert read_pairs(file(tmp_path, "anchor,positive\na,b\n"), PAIRS) == [(2, {"anchor": "a", "positive": "b"})]


def test_nli_takes_contradictions_in_turn(tmp_path):
    rows = [
        "p,e1,entailment",
        "p,c1,contradiction",
        "p,n1,neutral",
        "p,e2,0",
        "p,e3,entailment",
        "p,c2,2",
        "q,e4,0",
        "r,c3,2",
    ]
    assert read_nli(file(tmp_path, "\n".join(["premise,hypothesis,label", *rows])), NLI) == [
        (2, {"anchor": "p", "positive": ["e1", "c1"]}),
        (5, {"anchor": "p", "positive": ["e2", "c2"]}),
        (6, {"anchor": "p", "positive": ["e3", "c1"]}),
        (8, {"anchor": "q", "positive": "e4"}),
    ]
    with pytest.raises(InputError, match="has no row with the label entailment in its 1 rows: is it NLI"):
        read_nli(file(tmp_path, "premise,hypothesis,label\np,h,neutral\n"), NLI)
    other = dataclasses.replace(NLI, text="one", text_b="two")
    assert read_nli(file(tmp_path, "premise,hypothesis,label\np,h,0\n"), other) == [(2, {"one": "p", "two": "h"})]

"""Readers of pairs: STS with and without a header, anchors with negatives and scores, NLI, texts alone. By hand."""

import dataclasses
import json

import pytest

from kerasbert import registry
from kerasbert.errors import InputError
from kerasbert.tasks.pairs import read_nli, read_sts
from kerasbert.tasks.tables import in_memory
from kerasbert.tasks.task import find_task, read_rows
from kerasbert.training.splits import split

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


def rows_of(task, path):
    return read_rows(task, path).texts


@pytest.mark.parametrize("loss", ["ranking", "triplet"])
def test_negatives_stand_behind_their_positive_in_every_form_of_table(tmp_path, loss):
    """One a column, numbered columns in their order, a list in json; rows in memory, other names of the columns."""
    task, wanted = PAIRS.optioned({"loss": loss}), [("a", ("b", "c", "d")), ("e", ("f", "g"))]
    numbered = "negative_10,anchor,negative_2,positive\nd,a,c,b\n,e,g,f\n"
    assert rows_of(task, file(tmp_path, numbered)) == wanted
    assert rows_of(task, file(tmp_path, "anchor\tpositive\tnegative\ne\tf\tg\n", "x.tsv")) == wanted[1:]
    listed = [
        {"anchor": "a", "positive": "b", "negatives": ["c", "d"]},
        {"anchor": "e", "positive": "f", "negative": "g"},
    ]
    assert rows_of(task, file(tmp_path, "\n".join(map(json.dumps, listed)), "x.jsonl")) == wanted
    assert rows_of(task, in_memory(listed)) == wanted
    assert rows_of(task, in_memory({"anchor": ["e"], "positive": ["f"], "negative": ["g"]})) == wanted[1:]
    other = find_task(task, text="query", text_b="answer")
    assert rows_of(other, file(tmp_path, "query,answer,negative\ne,f,g\n")) == wanted[1:]


def test_each_of_several_positives_is_learnt_and_none_is_a_negative(tmp_path, capsys):
    """As FlagEmbedding's files have them; a tuple in memory says what a dict says."""
    rows = [{"query": "a", "pos": ["b", "c"], "neg": ["d"]}, {"query": "e", "pos": ["f"], "neg": ["g", "h"]}]
    task = find_task(PAIRS, text="query", text_b="pos")
    wanted = [("a", ("b", "d")), ("a", ("c", "d")), ("e", ("f", "g", "h"))]
    path = file(tmp_path, "\n".join(map(json.dumps, rows)), "x.jsonl")
    assert rows_of(task, path) == rows_of(task, in_memory(rows)) == wanted
    assert "x.jsonl: 1 of 2 rows have several texts in 'pos': a row is learnt of each" in capsys.readouterr().err
    assert rows_of(PAIRS, in_memory([("a", ["b", "d"])])) == [("a", "b"), ("a", "d")]
    held = split(PAIRS, {"train": [{"anchor": str(i), "positive": "b", "negative": "c"} for i in range(20)]})
    assert set(read_rows(PAIRS, held.apart()["dev"]).texts) == {(i, ("b", "c")) for i, _ in held.dev.texts}
    assert len(held.dev.texts) == 2
    scored = dataclasses.replace(task, label="score").optioned({"loss": "margin_mse"})
    path = file(tmp_path, json.dumps(rows[0] | {"score": [3, 1]}), "y.jsonl")
    with pytest.raises(InputError, match="y.jsonl, line 1 has several texts in 'pos' and one label"):
        read_rows(scored, path)


def test_a_row_without_negatives_is_a_pair_where_the_loss_takes_it(tmp_path):
    path = file(tmp_path, "anchor,positive,negative\na,b,c\nd,e,\n")
    assert rows_of(PAIRS, path) == [("a", ("b", "c")), ("d", "e")]
    with pytest.raises(
        InputError, match="x.csv, line 3: no negative; the loss triplet learns from .*positive and negative"
    ):
        read_rows(PAIRS.optioned({"loss": "triplet"}), path)


def test_scores_of_a_cross_encoder_are_margins(tmp_path):
    """A margin, a list of margins, a list of scores with the positive's first (MarginMSE)."""
    task = dataclasses.replace(PAIRS, label="score").optioned({"loss": "margin_mse"})
    row = {"anchor": "a", "positive": "b", "negatives": ["c", "d"]}
    rows = [row | {"score": [2.0, 1.0]}, row | {"score": [9.0, 7.0, 8.0]}, row | {"negatives": ["c"], "score": 1.5}]
    lines = "\n".join(map(json.dumps, rows))
    assert read_rows(task, file(tmp_path, lines, "x.jsonl")).targets == [[2, 1], [2, 1], [1.5]]
    table = 'anchor,positive,negative,score\na,b,c,"[3, 1]"\na,b,c,-2\n'
    assert read_rows(task, file(tmp_path, table)).targets == [[2], [-2]]
    for score, message in (
        ("[1, 2, 3]", r"line 2: 3 scores beside 1 negative\(s\), expected 1 margins or 2 scores, the positive's first"),
        ("high", "line 2: 'high' is not a number"),
        ("[1", r"line 2: '\[1' is not a number"),
    ):
        with pytest.raises(InputError, match=message):
            read_rows(task, file(tmp_path, f'anchor,positive,negative,score\na,b,c,"{score}"\n'))


def test_labels_of_the_contrastive_loss_are_0_and_1(tmp_path):
    task = dataclasses.replace(STS, label="label", reader="").optioned({"loss": "contrastive"})
    path = file(tmp_path, "sentence1,sentence2,label\na,b,1\nc,d,0\ne,f,0.5\n")
    with pytest.raises(
        InputError, match="line 4: label 0.5; the loss contrastive learns from two texts and a label, 1"
    ):
        read_rows(task, path)
    assert read_rows(task, file(tmp_path, "sentence1,sentence2,label\na,b,1\nc,d,0\n")).targets.tolist() == [1, 0]


def test_simcse_reads_texts_alone_and_is_judged_by_scored_pairs(tmp_path):
    task = find_task("simcse")
    texts = file(tmp_path, "a b\n\n c, d\n", "x.txt")
    assert read_rows(task, texts).texts == [("a b", "a b"), ("c, d", "c, d")]
    assert read_rows(task, file(tmp_path, "id,text\n1,a b\n2,\n")).texts == [("a b", "a b")]
    scored = file(tmp_path, "sentence1,sentence2,score\na,b,2\n", "dev.csv")
    assert read_rows(task, scored).texts == [("a", "b")]
    assert split(task, {"train": texts, "dev": scored}).dev.targets.tolist() == [2]
    with pytest.raises(InputError, match="texts alone do not say which epoch is best: pass --dev FILE with pairs"):
        split(task, file(tmp_path, "".join(f"text {i}\n" for i in range(20)), "y.txt"))
    with pytest.raises(InputError, match="has no column 'text', nor sentence1, sentence2, score. It has: id, words"):
        read_rows(task, file(tmp_path, "id,words\n1,a b\n"))


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

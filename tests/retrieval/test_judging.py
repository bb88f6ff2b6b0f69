"""Metrics of a search: by hand, beside scikit-learn and trec_eval, of an index; what cannot be judged is refused."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.retrieval import judging
from tests import tiny

TEXTS = ["the cat sees a dog", "old river", "a film", "the house"]


def test_by_hand():
    found = [["a", "x", "b", "y"], ["x", "y"], []]
    grades = [{"a": 2, "b": 1, "c": 1, "y": 0}, {"q": 1, "y": 3}, {"z": 1}]
    log = np.log2
    first = (2 + 1 / log(4)) / (2 + 1 / log(3) + 1 / log(4))
    second = (3 / log(3)) / (3 + 1 / log(3))
    wanted = {
        "ndcg@3": (first + second) / 3,
        "mrr@3": (1 + 1 / 2) / 3,
        "recall@3": (2 / 3 + 1 / 2) / 3,
        "map@100": ((1 + 2 / 3) / 3 + (1 / 2) / 2) / 3,
        "recall@100": (2 / 3 + 1 / 2) / 3,
    }
    assert judging.metrics(found, grades, 3) == pytest.approx(wanted, abs=1e-12)
    assert judging.metrics([["a"]], [{"a": 1}], 1) == dict.fromkeys(judging.metrics([["a"]], [{"a": 1}], 1), 1.0)


def drawn(seed=0, queries=30, texts=200):
    """Rankings of 120 of the texts, and grades of some texts."""
    draw = np.random.default_rng(seed)
    names = [f"t{i}" for i in range(texts)]
    found = [[names[i] for i in draw.permutation(texts)[:120]] for _ in range(queries)]
    relevant = [{names[i]: int(draw.integers(0, 4)) for i in draw.choice(texts, 25, False)} for _ in range(queries)]
    return names, found, [grades | {"t0": 1} for grades in relevant]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ndcg_is_scikit_learns():
    metrics = pytest.importorskip("sklearn.metrics")
    names, found, relevant = drawn()
    for top in (1, 10, 50):
        ranks = [{name: len(row) - i for i, name in enumerate(row)} for row in found]
        scores = [[rank.get(name, -1) for name in names] for rank in ranks]
        gains = [[grades.get(name, 0) for name in names] for grades in relevant]
        assert judging.metrics(found, relevant, top)[f"ndcg@{top}"] == pytest.approx(
            metrics.ndcg_score(gains, scores, k=top), abs=1e-12
        )


@pytest.mark.full  # by hand: pip install pytrec_eval
def test_all_are_trec_evals():
    library = pytest.importorskip("pytrec_eval")
    _, found, relevant = drawn(1)
    measures = {"ndcg_cut.10", "recall.10,100", "map_cut.100", "recip_rank"}
    asked = library.RelevanceEvaluator({str(i): grades for i, grades in enumerate(relevant)}, measures)
    run = {str(i): {name: float(len(row) - rank) for rank, name in enumerate(row)} for i, row in enumerate(found)}
    theirs = list(asked.evaluate(run).values())
    names = {"ndcg@10": "ndcg_cut_10", "recall@10": "recall_10", "recall@100": "recall_100", "map@100": "map_cut_100"}
    ours = judging.metrics(found, relevant, 10)
    for name, their in names.items():
        assert ours[name] == pytest.approx(np.mean([each[their] for each in theirs]), abs=1e-12)
    whole = judging.metrics(found, relevant, 120)["mrr@120"]
    assert whole == pytest.approx(np.mean([each["recip_rank"] for each in theirs]), abs=1e-12)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    encoder = kb.build("bert/tiny", **tiny.SPEC)
    encoder.tokenizer = tiny.tokenizer()
    place = tmp_path_factory.mktemp("judged")
    kb.save(encoder, place / "run")
    kb.Index.build(place / "run", TEXTS, place / "index")
    return place / "index"


def test_an_index_is_judged_by_a_table(index, tmp_path, capsys):
    table = tmp_path / "relevant.csv"
    table.write_text("query,id,score\nthe cat sees a dog,0,2\nthe cat sees a dog,1,1\na film,2,1\nold river,3,1\n")
    found = kb.Index(index).evaluate(table, top=2)
    assert (found["queries"], found["texts"]) == (3, 4)
    queries = {"the cat sees a dog": {"0": 2, "1": 1}, "a film": ["2"], "old river": {"3": 1.0}}
    assert kb.Index(index).evaluate(queries, top=2) == found
    assert kb.Index(index).evaluate(queries | {"a film": "2"}, top=2) == found
    with pytest.raises(InputError, match="'12'"):  # and not the texts 1 and 2
        kb.Index(index).evaluate({"a film": "12"}, top=2)
    hits = [[hit.id for hit in kb.Index(index).search(query, 4)] for query in queries]
    assert found["metrics"] == judging.metrics(hits, [{"0": 2, "1": 1}, {"2": 1}, {"3": 1}], 2)
    assert found["metrics"]["mrr@2"] >= 2 / 3  # a text finds itself
    assert main(["search", str(index), "--relevant", str(table), "--top", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert main(["search", str(index), "--relevant", str(table)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3 queries, 4 texts"
    assert [line.split("\t")[0] for line in lines[1:]] == ["ndcg@10", "mrr@10", "recall@10", "map@100", "recall@100"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("query,text\na film,b\n", "line 2: no column 'id'"),
        ("query,id,score\na film,2,high\n", "line 2: score is 'high', expected a number of at least 0"),
        ("query,id,score\na film,2,-1\n", "line 2: score is '-1', expected a number"),
        ("query,id\na film,2\na film,2\n", "line 3: the text '2' is relevant to this query already"),
        ("query,id,score\na film,2,0\n", "no text is relevant to the query 'a film'"),
        ("query,id\na film,9\n", "the index holds no text '9', which is to be relevant to 'a film'"),
        ("text,id\na film,9\n", "query"),
    ],
)
def test_what_cannot_be_judged_by(index, tmp_path, capsys, table, message):
    path = tmp_path / "relevant.csv"
    path.write_text(table)
    assert main(["search", str(index), "--relevant", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert message in line


def test_how_the_command_is_called(index, tmp_path, capsys):
    plain = tmp_path / "queries.txt"
    plain.write_text("a film\n")
    for arguments, message in (
        ([str(index), "--relevant", str(plain)], "is plain text, expected a table with the columns query, id"),
        ([str(index), "a film", "--relevant", str(plain)], "--relevant FILE goes with an index and no QUERY"),
        ([str(index.parent / "run"), "--relevant", str(plain)], "--relevant FILE goes with an index and no QUERY"),
        ([str(index)], "search takes at least one QUERY, or of an index --relevant FILE"),
    ):
        assert main(["search", *arguments]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(InputError, match="there is no query to judge by"):
        kb.Index(index).evaluate({})

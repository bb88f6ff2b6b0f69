"""Hard negatives: ranks, margins and scores by hand, no false ones, the command, beside sentence-transformers' own."""

import dataclasses
import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.retrieval import mining
from kerasbert.tasks.base import Task
from kerasbert.tasks.model import TaskModel
from tests import tiny
from tests.checkpoints.theirs import parity

CORPUS = sorted(set(tiny.sentences(60, seed=3)))
PAIRS = [(f"the {text}", text) for text in CORPUS[:12]] + [(f"the {CORPUS[0]}", CORPUS[20])]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    import keras

    keras.utils.set_random_seed(0)
    folder = tmp_path_factory.mktemp("mining")
    model = kb.build("bert/tiny", **tiny.SPEC | {"embeddings.vocabulary": tiny.tokenizer().size})
    model.tokenizer = tiny.tokenizer()
    kb.save(model, folder / "model")
    kb.Index.build(folder / "model", CORPUS, folder / "index")
    return kb.Index(folder / "index")


def mined(index, **options):
    return {row["anchor"]: row["negatives"] for row in mining.mine(index, PAIRS, **options)[0]}


def test_the_nearest_that_are_no_positives(index):
    found = mined(index, negatives=4)
    for anchor, _ in PAIRS:
        known = {anchor, *(text for each, text in PAIRS if each == anchor)}
        near = [hit.text for hit in index.search(anchor, top=len(CORPUS)) if hit.text not in known]
        assert found[anchor] == near[:4]
        assert mined(index, negatives=2, range_min=3)[anchor] == near[3:5]


def test_a_margin_and_a_score_leave_out_what_may_be_positives(index):
    anchor, positives = PAIRS[0][0], [CORPUS[0], CORPUS[20]]
    scores = {hit.text: hit.score for hit in index.search(anchor, top=len(CORPUS))}
    near = [text for text in scores if text not in positives]
    limit = min(scores[text] for text in positives)
    margin = limit - scores[near[5]] - 1e-6  # the sixth is the first that is far enough
    assert mined(index, negatives=3, margin=margin, range_max=50)[anchor] == near[5:8]
    assert mined(index, negatives=3, max_score=scores[near[2]] + 1e-6, range_max=50)[anchor] == near[2:5]
    rows, told = mining.mine(index, PAIRS, max_score=-1.0)
    assert (rows, told[-1]) == ([], "13 pairs without a negative are left out")


def test_known_negatives_come_first_and_options_are_checked(index):
    rows, _ = mining.mine(index, [(PAIRS[0][0], (CORPUS[0], "mine"))], negatives=1)
    assert rows[0]["negatives"][0] == "mine"
    assert len(rows[0]["negatives"]) == 2
    wrong = [
        ({"negatives": 0}, "negatives must be a whole number of at least 1. Received: 0"),
        ({"range_min": -1}, "range_min must be a whole number of at least 0"),
        ({"range_min": 4, "range_max": 6}, "from range_min 4 to range_max 6 are 2 texts, expected at least 3"),
        ({"margin": "x"}, "margin must be a difference of cosines"),
    ]
    for options, expected in wrong:
        with pytest.raises(InputError, match=expected):
            mining.mine(index, PAIRS, **options)
    with pytest.raises(InputError, match="there is no pair"):
        mining.mine(index, [])
    for pair in ("ab", ("a",), ("a", ()), (("a", "b"), "c")):
        with pytest.raises(InputError, match=r"pair 0 is .*, expected \(anchor, positive\)"):
            mining.mine(index, [pair])


def test_the_command_writes_what_finetune_reads(index, tmp_path, capsys):
    from kerasbert.tasks.task import find_task, read_rows

    data, out = tmp_path / "pairs.jsonl", tmp_path / "mined.jsonl"
    data.write_text("".join(json.dumps({"q": anchor, "positive": text}) + "\n" for anchor, text in PAIRS))
    command = [
        "mine",
        str(index.path),
        "--data",
        str(data),
        "--text-column",
        "q",
        "--negatives",
        "2",
        "--out",
        str(out),
    ]
    assert main(command) == 0
    assert "13 rows of 26 negatives" in capsys.readouterr().err
    rows = read_rows(find_task("pairs"), out).texts
    assert [(anchor, texts[0]) for anchor, texts in rows] == PAIRS
    assert all(len(texts) == 3 for _, texts in rows)
    assert main(command) == 2
    assert "exists already" in capsys.readouterr().err
    assert main([*command, "--overwrite", "--max-score", "-1"]) == 2
    assert "no negative is found for any pair" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == 0


def test_a_cross_encoder_scores_what_vectors_learn_of_it(index, tmp_path, capsys):
    """The scores of the positive and of each negative, as `--loss margin_mse` and `kl` read them."""
    from kerasbert.tasks.task import find_task, read_rows

    task = Task("relevance", "regression", text="query", text_b="passage", label="score")
    judge = TaskModel(index.model.encoder if hasattr(index.model, "encoder") else index.model, task)
    judge.build()
    rows, _ = mining.mine(index, PAIRS, negatives=2, cross_encoder=judge)
    for row in rows:
        pairs = [(row["anchor"], text) for text in (row["positive"], *row["negatives"])]
        assert row["scores"] == pytest.approx([answer.value for answer in kb.predict(judge, pairs)], abs=1e-5)
    mining.write(tmp_path / "rows.jsonl", rows)
    read = read_rows(
        dataclasses.replace(find_task("pairs"), label="scores").optioned({"loss": "kl"}), tmp_path / "rows.jsonl"
    )
    assert read.targets[0] == pytest.approx([rows[0]["scores"][0] - each for each in rows[0]["scores"][1:]])
    with pytest.raises(InputError, match="cross_encoder needs a model of pairs with one score .* received an encoder"):
        mining.mine(index, PAIRS, cross_encoder=index.model)
    (tmp_path / "pairs.jsonl").write_text(json.dumps({"anchor": "a", "positive": CORPUS[0]}) + "\n")
    command = ["mine", str(index.path), "--data", str(tmp_path / "pairs.jsonl"), "--out", str(tmp_path / "out.jsonl")]
    assert main([*command, "--cross-encoder", str(index.path.parent / "model")]) == 2
    assert "--cross-encoder needs a model of pairs with one score" in capsys.readouterr().err
    assert main(["search", str(index.path), "a cat", "--rerank", str(index.path.parent / "model")]) == 2
    assert "--rerank needs a model of pairs with one score" in capsys.readouterr().err


@pytest.mark.full  # CI does not install datasets, which theirs needs
@parity
def test_the_negatives_are_those_of_sentence_transformers(index):
    pytest.importorskip("datasets")
    from sentence_transformers.util import mine_hard_negatives

    pairs = PAIRS[1:12]  # theirs keeps an anchor's rows together
    data = __import__("datasets").Dataset.from_dict(
        {"anchor": [a for a, _ in pairs], "positive": [p for _, p in pairs]}
    )
    model = kb.sentence_transformer(index.model)
    for options, theirs in (
        ({"negatives": 3}, {"num_negatives": 3}),
        ({"negatives": 2, "range_min": 4, "range_max": 20}, {"num_negatives": 2, "range_min": 4, "range_max": 20}),
        ({"negatives": 2, "margin": 0.001}, {"num_negatives": 2, "absolute_margin": 0.001}),
        ({"negatives": 2, "max_score": 0.99}, {"num_negatives": 2, "max_score": 0.99}),
    ):
        found = mine_hard_negatives(data, model, corpus=CORPUS, verbose=False, **theirs)
        expected: dict[str, list[str]] = {}
        for row in found:
            expected.setdefault(row["anchor"], []).append(row["negative"])
        ours = {row["anchor"]: row["negatives"] for row in mining.mine(index, pairs, **options)[0]}
        assert ours == expected, options
    assert np.isfinite(index.vectors).all()

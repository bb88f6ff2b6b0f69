"""SuperGLUE's files by hand, in the official layout, and those of its server."""

import json

import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.answers import Choice, Classification
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.tasks.glue_files import check_submission, submission
from kerasbert.tasks.superglue import TASKS, read
from kerasbert.testing import battery
from tests import tiny

PLACES = [(8, 9), (0, 2), (23, 24)]
PASSAGE = {"text": "Ann met Bo.\n@highlight\nBo left", "entities": [{"start": a, "end": b} for a, b in PLACES]}
QUERY = {"idx": 4, "query": "@placeholder met Bo", "answers": [{"start": 0, "end": 2, "text": "Ann"}]}
SPAN = {"span1_text": "Ann", "span1_index": 0, "span2_text": "she", "span2_index": 4}
ASKED = [
    {"question": "Who ate?", "idx": 5, "answers": [{"text": "Ann", "idx": 7, "label": 1}, {"text": "Bo", "idx": 8, "label": 0}]},
    {"question": "What?", "idx": 6, "answers": [{"text": "Bread", "idx": 9, "label": 0}]},
]  # fmt: skip
ROWS = {
    "boolq": {"passage": "Snow is cold.", "question": "is snow cold", "label": True},
    "cb": {"premise": "a", "hypothesis": "b", "label": "neutral"},
    "copa": {"premise": "I fell.", "choice1": "It was wet.", "choice2": "I ran.", "question": "cause", "label": 1},
    "multirc": {"passage": {"text": "Ann ate.", "questions": ASKED}},
    "record": {"passage": PASSAGE, "qas": [QUERY]},
    "rte": {"premise": "a", "hypothesis": "b", "label": "not_entailment"},
    "wic": {"word": "bank", "sentence1": "a bank", "sentence2": "the bank", "label": False, "start1": 2},
    "wsc": {"text": "Ann saw Bo because she looked .", "target": SPAN, "label": True},
}
ROWS = {name: row | {"idx": 3} for name, row in ROWS.items()}
INPUTS = {
    "boolq": [("Snow is cold.", "is snow cold", "true")],
    "cb": [("a", "b", "neutral")],
    "copa": [("I fell. What was the cause of this?", ["It was wet.", "I ran."], "1")],
    "multirc": [("Ann ate.", "Who ate? Ann", "1"), ("Ann ate.", "Who ate? Bo", "0"), ("Ann ate.", "What? Bread", "0")],
    "record": [("Ann met Bo. Bo left", ["Ann met Bo", "Bo met Bo"], "0")],
    "rte": [("a", "b", "not_entailment")],
    "wic": [("bank: a bank", "the bank", "false")],
    "wsc": [("Ann saw Bo because she looked .", "Ann saw Bo because Ann looked .", "true")],
}


def task(name):
    return registry.task(f"superglue/{name}")


def written(folder, *rows, name="test.jsonl"):
    (folder / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder / name


def without_labels(value):
    """As the test files are: no label, no answers of a query, whose list MultiRC's questions keep."""
    if not isinstance(value, dict):
        return [without_labels(each) for each in value] if isinstance(value, list) else value
    secret = {"label"} if "question" in value else {"label", "answers"}
    return {key: without_labels(each) for key, each in value.items() if key not in secret}


@pytest.mark.parametrize("name", TASKS)
def test_inputs_by_hand(name, tmp_path):
    found = read(written(tmp_path, ROWS[name]), task(name))
    assert [(line, row["text"], row["text_b"], row["label"]) for line, row in found] == [
        (1, *each) for each in INPUTS[name]
    ]
    assert set(task(name).labels) >= ({row["label"] for _, row in found} if task(name).kind != "choice" else set())
    bare = read(written(tmp_path, without_labels(ROWS[name])), task(name))
    assert [row for _, row in bare] == [{"text": one, "text_b": other} for one, other, _ in INPUTS[name]]


def answer(name, value):
    if name in ("copa", "record"):
        return Choice(value, "", 1.0, (0.0, 1.0))
    return Classification(value, 1.0, {value: 1.0})


@pytest.mark.parametrize(
    ("name", "said", "file", "line"),
    [
        ("boolq", ["true"], "BoolQ", {"idx": 3, "label": "true"}),
        ("cb", ["contradiction"], "CB", {"idx": 3, "label": "contradiction"}),
        ("copa", [1], "COPA", {"idx": 3, "label": 1}),
        ("record", [1], "ReCoRD", {"idx": 4, "label": "Bo"}),
        ("rte", ["entailment"], "RTE", {"idx": 3, "label": "entailment"}),
        ("wic", ["false"], "WiC", {"idx": 3, "label": "false"}),
        ("wsc", ["false"], "WSC", {"idx": 3, "label": "False"}),
        (
            "multirc",
            ["wrong", "right", "right"],
            "MultiRC",
            {
                "idx": 3,
                "passage": {
                    "questions": [
                        {"idx": 5, "answers": [{"idx": 7, "label": 0}, {"idx": 8, "label": 1}]},
                        {"idx": 6, "answers": [{"idx": 9, "label": 1}]},
                    ]
                },
            },
        ),
    ],
)
def test_the_servers_files_by_hand(name, said, file, line, tmp_path):
    source = written(tmp_path, without_labels(ROWS[name]))
    path, content = submission(tmp_path / "out", task(name), source, [answer(name, value) for value in said])
    assert path == tmp_path / "out" / f"{file}.jsonl"
    assert [json.loads(each) for each in content.splitlines()] == [line]


def test_diagnostics_are_answered_by_rtes_model(tmp_path):
    source = written(tmp_path, {"sentence1": "a", "sentence2": "b", "logic": "x", "idx": 0}, name="AX-b.jsonl")
    assert read(source, task("rte"))[0][1] == {"text": "a", "text_b": "b"}
    assert submission(tmp_path, task("rte"), source, ())[0].name == "AX-b.jsonl"
    assert submission(tmp_path, task("cb"), source, ())[0].name == "CB.jsonl"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("boolq", {"passage": None}, r"line 1: no row of superglue/boolq \(None stands where a text is expected"),
        ("copa", {"choice2": 3}, "3 stands where a text is expected"),
        ("copa", {"question": "why"}, r"line 1: no row of superglue/copa \(it has no 'why'\)"),
        ("wsc", {"target": SPAN | {"span2_index": 9}}, "span2_index is 9, expected the number of one of 7"),
        ("record", {"qas": [QUERY | {"answers": [{"text": "Cy"}]}]}, "none of the answers of the query 4 is an entity"),
        ("multirc", {"passage": []}, "line 1: no row of superglue/multirc"),
    ],
)
def test_rows_of_another_task_are_refused(name, changes, message, tmp_path):
    with pytest.raises(InputError, match=message):
        read(written(tmp_path, ROWS[name] | changes), task(name))
    with pytest.raises(InputError, match="test.jsonl, line 1: no row of superglue/rte .it has no 'premise'"):
        read(written(tmp_path, {"a": 1}), task("rte"))


def test_other_tasks_have_no_file_of_a_server():
    with pytest.raises(InputError, match="is for GLUE's tasks .* and SuperGLUE's, the model's task is swag"):
        check_submission(registry.task("swag"))
    for name in TASKS:
        check_submission(task(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["multirc", "record"])
def test_a_run_and_its_file_for_the_server(name, tmp_path, capsys):
    encoder = kb.build("bert/tiny", **tiny.SPEC)
    encoder.tokenizer = tiny.tokenizer()
    kb.save(encoder, tmp_path / "bert")
    (tmp_path / "data").mkdir()
    for split, count in (("train", 8), ("val", 4)):
        written(tmp_path / "data", *[ROWS[name]] * count, name=f"{split}.jsonl")
    source = written(tmp_path / "data", *[without_labels(ROWS[name] | {"idx": i}) for i in range(3)])
    about = {"steps": 1, "length": 24, "quiet": True, "batch": 4}
    with battery.eagerly():
        kb.finetune(tmp_path / "bert", f"superglue/{name}", tmp_path / "data", out=tmp_path / "run", **about)
        assert (
            main(["predict", str(tmp_path / "run"), "--data", str(source), "--submission", str(tmp_path / "out")]) == 0
        )
    path = tmp_path / "out" / f"{TASKS[name][1]}.jsonl"
    assert capsys.readouterr().out == f"{path}\n"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 3
    if name == "record":
        assert {line["label"] for line in lines} <= {"Ann", "Bo"}
    else:
        answers = [answer for line in lines for asked in line["passage"]["questions"] for answer in asked["answers"]]
        assert [answer["idx"] for answer in answers] == [7, 8, 9] * 3

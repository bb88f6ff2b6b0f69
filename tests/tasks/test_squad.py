"""Files in SQuAD's format, and what is said of wrong ones."""

import json
from pathlib import Path

import pytest

from kerasbert import registry
from kerasbert.errors import InputError
from kerasbert.tasks import squad
from kerasbert.tasks.task import read_rows, split_files
from tests.support import shared

CONTEXT = "The cat sees a dog. The dog sees the cat."


def question(name="q1", text="who?", answers=(("cat", 4),), **more):
    return {"id": name, "question": text, "answers": [{"text": t, "answer_start": s} for t, s in answers]} | more


def write(path: Path, *questions, context=CONTEXT, indent=None):
    content = {"version": "1", "data": [{"title": "x", "paragraphs": [{"context": context, "qas": list(questions)}]}]}
    path.write_text(json.dumps(content, indent=indent))
    return path


def rows(path, task="squad"):
    task = registry.task(task)
    found = read_rows(task, path)
    return found, task.how.told(path, found)


def test_rows_of_a_file(tmp_path):
    path = write(tmp_path / "x.json", question(), question("q2", answers=[("a dog", 13), ("dog", 15)]), indent=1)
    task = registry.task("squad")
    (line, first), (other, second) = squad.read(path, task)
    lines = path.read_text().split("\n")
    assert '"q1"' in lines[line - 1]
    assert '"q2"' in lines[other - 1]
    assert first["context"] == second["context"] == CONTEXT
    found, told = rows(path)
    assert found.texts == [("who?", CONTEXT)] * 2
    assert [target.golds for target in found.targets] == [("cat",), ("a dog", "dog")]
    assert [CONTEXT[target.start : target.end] for target in found.targets] == ["cat", "a dog"]
    assert told == []


def test_a_wrong_place_is_mended_where_the_text_stands_once(tmp_path):
    path = write(tmp_path / "x.json", question(answers=[("a dog", 3)]), question("q2"), question("q3"))
    found, told = rows(path)
    assert CONTEXT[found.targets[0].start : found.targets[0].end] == "a dog"
    assert told == [
        f"{path}: 1 of 3 answers do not stand at their offset; they stand once in their context, and that place is taken"
    ]


@pytest.mark.parametrize("answer", [("dog", 3), ("bird", 0), ("cat", -5)])
def test_an_answer_without_a_place_is_refused_in_training_alone(tmp_path, answer):
    path = write(tmp_path / "x.json", question(), question("q2", answers=[answer]))
    found = read_rows(registry.task("squad"), path)
    assert found.targets[1].golds == answer[:1]
    pattern = rf"x.json, line 1, question 'q2': the answer '{answer[0]}' does not stand at its offset, nor once"
    with pytest.raises(InputError, match=pattern):
        registry.task("squad").how.told(path, found)


def test_a_second_answer_may_have_the_place(tmp_path):
    found, told = rows(write(tmp_path / "x.json", question(answers=[("bird", 0), ("a dog", 13)])))
    assert (found.targets[0].golds, found.targets[0].start, told) == (("bird", "a dog"), 13, [])


def test_tables_and_rows_in_memory_have_answers_in_many_forms(tmp_path):
    task = registry.task("span")
    forms = ["a dog", ["a dog"], {"text": ["a dog"], "answer_start": [13]}, [{"text": "a dog", "answer_start": 13}]]
    forms.append({"text": "a dog", "answer_start": 13})
    lines = [json.dumps({"question": "who?", "context": CONTEXT, "answers": form}) for form in forms]
    (tmp_path / "x.jsonl").write_text("\n".join(lines) + "\n")
    targets = read_rows(task, tmp_path / "x.jsonl").targets
    assert [(target.golds, target.start, target.end) for target in targets] == [(("a dog",), 13, 18)] * len(forms)
    (tmp_path / "x.csv").write_text(f'question,context,answers\nwho?,"{CONTEXT}",dog\n')
    found, told = rows(tmp_path / "x.csv", "span")
    assert (found.targets[0].start, len(told)) == (15, 1)
    assert "the first place is taken" in told[0]
    (tmp_path / "y.jsonl").write_text(json.dumps({"question": "who?", "context": CONTEXT, "answers": {"x": 3}}) + "\n")
    with pytest.raises(
        InputError, match=r"y.jsonl, line 1: the answer is .+, expected a text, or text and answer_start"
    ):
        read_rows(task, tmp_path / "y.jsonl")


@pytest.mark.parametrize("held", [lambda rows: rows, lambda rows: {"version": "1", "data": rows}])
def test_a_json_array_of_questions_is_a_table(tmp_path, held):
    """As datasets writes its rows with lines=False."""
    row = {"question": "who?", "context": CONTEXT, "answers": {"text": ["a dog"], "answer_start": [13]}}
    (tmp_path / "x.json").write_text(json.dumps(held([row, row])))
    found, told = rows(tmp_path / "x.json")
    assert [(target.golds, target.start) for target in found.targets] == [(("a dog",), 13)] * 2
    assert not told


def test_a_question_without_an_answer_is_of_version_2(tmp_path):
    path = write(tmp_path / "x.json", question("q1", answers=(), is_impossible=True))
    found, told = rows(path, "squad2")
    assert (found.targets[0].golds, found.targets[0].start, told) == ((), -1, [])
    with pytest.raises(InputError, match=r"line 1, question 'q1' has no answer: drop it, or train with --task squad2"):
        rows(path)


@pytest.mark.parametrize(("part", "change"), [("question", {"text": " "}), ("context", {})])
def test_an_empty_question_or_context_is_refused(tmp_path, part, change):
    path = write(tmp_path / "x.json", question(**change), context=" " if part == "context" else CONTEXT)
    with pytest.raises(InputError, match=rf"x.json, line 1, question 'q1': the {part} is empty"):
        rows(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not a json file in SQuAD's format"),
        ("[]", "is not in SQuAD's format"),
        ('{"data": [{"paragraphs": [{"context": "x"}]}]}', "KeyError: 'qas'"),
        ('{"data": [{"paragraphs": [{"context": "x", "qas": [{"question": 3, "id": "a"}]}]}]}', "question 'a'"),
        ('{"data": []}', "has no questions"),
        (
            '{"data": [{"paragraphs": [{"context": "x", "qas": [{"question": "y", "id": "a", "answers": ["z"]}]}]}]}',
            "question 'a': answers are",
        ),
    ],
)
def test_another_format_is_named(tmp_path, content, said):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(InputError, match=said):
        rows(tmp_path / "x.json")


def test_a_file_without_answers_is_predicted_alone(tmp_path):
    asked = question()
    del asked["answers"]
    path = write(tmp_path / "x.json", asked)
    assert read_rows(registry.task("squad"), path, targets=False).texts == [("who?", CONTEXT)]
    with pytest.raises(InputError, match="holds no answers"):
        read_rows(registry.task("squad"), path)


def test_the_files_of_a_folder_are_found_by_their_names():
    folder = shared("data/squad")
    for task, version in (("squad", "1.1"), ("squad2", "2.0")):
        files = split_files(folder, task=registry.task(task))
        assert {split: path.name for split, path in files.items()} == {
            "train": f"train_slice-v{version}.json",
            "dev": f"dev_slice-v{version}.json",
        }


@pytest.mark.parametrize(
    ("task", "name", "count", "absent", "moved"),
    [
        ("squad", "squad/train_slice-v1.1.json", 5146, 0, 0),
        ("squad2", "squad/dev_slice-v2.0.json", 2453, 0, 0),
        ("xquad", "xquad/xquad.ar.json", 769, 0, 0),
        ("cmrc2018", "zh/cmrc2018/cmrc2018_dev_first_half.json", 1493, 0, 3),
    ],
)
def test_the_files_beside_the_project(task, name, count, absent, moved):
    task = registry.task(task)
    found = read_rows(task, shared(f"data/{name}"))
    assert len(found.texts) == count
    where = [target.where for target in found.targets]
    assert (where.count("absent"), where.count("moved")) == (absent, moved)
    for (_, context), target in zip(found.texts, found.targets):
        if target.start >= 0:
            assert context[target.start : target.end] in target.golds


def test_most_of_xquads_paragraphs_stand_in_our_training_slice():
    """Zero-shot is measured on the other 50."""
    trained = {
        context for _, context in read_rows(registry.task("squad"), shared("data/squad/train_slice-v1.1.json")).texts
    }
    asked = {context for _, context in read_rows(registry.task("xquad"), shared("data/xquad/xquad.en.json")).texts}
    assert (len(asked), len(asked & trained)) == (155, 105)

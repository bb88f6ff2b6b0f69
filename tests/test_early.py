"""Mistakes in what is given are told before TensorFlow is imported, which takes seconds: all of them in one fresh process."""

import json

import pytest

from tests.support import python

PROGRAM = """
import contextlib, io, json, sys
from kerasbert.cli import main
for line in sys.stdin:
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        status = main(json.loads(line))
    print(json.dumps([status, said.getvalue(), sorted({"tensorflow", "keras"} & set(sys.modules))]))
"""
MODEL = {"format": 1, "family": "bert", "name": "bert/tiny", "spec": {}}
TASK = {"name": "classification", "kind": "classification", "text": "text", "label": "label"}

CASES = {
    "predict none x": "no model directory",
    "predict empty x": "is no model directory (no model.json)",
    "predict encoder x": "the model has no task",
    "predict model --data none.tsv": "no file",
    "predict model --data fields.tsv": "line 2: 3 fields, expected 2",
    "predict model --data column.tsv": "has no column 'text'. Nearest: 'txt'",
    "predict model --data bytes.tsv": "line 1: byte 0xff is not UTF-8",
    "predict model --data rows.tsv --text-column no": "has no column 'no'",
    "predict model --pair a b": "--pair gives two texts, the model reads one",
    "predict pairs a": "text 1 has 0 tabs, expected one",
    "predict model x --set task.beams=3": "no option of a classification 'beams'",
    "predict model x --length 1": "length must be at least 3. Received: 1",
    "predict model x --batch 0": "batch must be a whole number of at least 1. Received: 0",
    "predict model x --ensemble none": "no model directory",
    "evaluate none --data rows.tsv": "no model directory",
    "evaluate encoder --data rows.tsv": "the model has no task",
    "evaluate model --data none": "no file or folder",
    "evaluate model --data empty": "holds no train or dev file",
    "evaluate model --data fields.tsv": "line 2: 3 fields, expected 2",
    "evaluate model --data column.tsv": "has no column 'text'",
    "evaluate model --data rows.tsv --label-column no": "has no column 'no'",
    "evaluate model --data rows.tsv --set task.beams=3": "no option of a classification 'beams'",
    "finetune model --task classification --data rows.tsv --out run --batch 0": "batch must be a whole number of at least 1",
    "finetune model --task classification --data rows.tsv --out run --epochs 0": "epochs must be a whole number of at least 1",
    "finetune model --task classification --data rows.tsv --out run --learning-rate nan": "must be a number of at least 0",
    "finetune model --task classification --data rows.tsv --out run --warmup -3": "warmup must be a whole number of at least 0",
    "finetune model --task classification --data rows.tsv --out run --length 2": "length must be a whole number of at least 3",
    "pretrain bert/tiny --data rows.tsv --out run --steps 3 --accumulate 0": "must be a whole number of at least 1",
    "pretrain bert/tiny --data rows.tsv --out run --steps 3 --save-every -1": "must be a whole number of at least 0",
    "encode none x": "no model directory",
    "encode model x --pooling max": "no pooling 'max'. Expected one of: mean, first, last, pooled",
}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Command -> [status, what it said, what was imported]."""
    place = tmp_path_factory.mktemp("early")
    pair = {**TASK, "text_b": "text_b", "inputs": "pair"}
    for name, task in {"model": TASK, "encoder": None, "pairs": pair}.items():
        (place / name).mkdir()
        (place / name / "model.json").write_text(json.dumps(MODEL | {"task": task, "labels": ["neg", "pos"]}))
    (place / "empty").mkdir()
    (place / "rows.tsv").write_text("text\tlabel\na\tpos\n")
    (place / "fields.tsv").write_text("text\tlabel\na\tpos\tx\n")
    (place / "column.tsv").write_text("txt\tlabel\na\tpos\n")
    (place / "bytes.tsv").write_bytes(b"text\xff\xfe\n")
    files = {"none", "none.tsv", *(path.name for path in place.iterdir())}
    lines = [[str(place / word) if word in files else word for word in case.split()] for case in CASES]
    (place / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    program = f"import sys; sys.stdin = open({str(place / 'lines')!r})\n{PROGRAM}"
    return dict(zip(CASES, map(json.loads, python("-c", program).stdout.splitlines()), strict=True))


@pytest.mark.parametrize(("case", "message"), CASES.items(), ids=list(CASES))
def test_a_mistake_is_one_line_without_tensorflow(told, case, message):
    status, said, imported = told[case]
    assert status == 2
    assert message in said
    assert said.count("\n") == 1
    assert imported == []

"""The command line: every mistake is one line on stderr and exit status 2, and nothing is left half-written."""

import json
import os
import shutil

import pytest

from kerasbert import cli, registry
from tests import make_index, tiny
from tests.support import often, python, start


def run(capsys, *arguments) -> tuple[int, str, str]:
    try:
        status = cli.main([str(argument) for argument in arguments])
    except SystemExit as leave:
        status = leave.code
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def place(tmp_path):
    """A corpus, a tokenizer and a labelled file."""
    tiny.corpus(tmp_path / "corpus.txt")
    tiny.tokenizer().save(tmp_path / "tokenizer")
    tiny.labelled(tmp_path / "train.tsv", 20)
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "letter.txt").write_text("dear")
    (tmp_path / "nomask").mkdir()
    (tmp_path / "nomask" / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n")
    return tmp_path


def data(place, out="records", **changes):
    options = {"--tokenizer": place / "tokenizer", "--length": 24, "--out": place / out} | changes
    return ["data", place / "corpus.txt", *(str(x) for pair in options.items() for x in pair)]


MISTAKES = {
    "no such file": (lambda p: ["data", p / "absent.txt", *data(p)[2:]], "absent.txt"),
    "empty corpus": (lambda p: ["data", p / "empty.txt", *data(p)[2:]], "empty"),
    "no mask": (lambda p: data(p, **{"--tokenizer": p / "nomask"}), r"has no \[MASK\]"),
    "no tokenizer": (lambda p: data(p, **{"--tokenizer": p / "absent"}), "absent"),
    "packing": (lambda p: data(p, **{"--packing": "pair"}), "no packing 'pair'. Nearest: 'pairs'"),
    "length": (lambda p: data(p, **{"--length": "x"}), "--length must be a whole number. Received: 'x'"),
    "files and languages": (lambda p: data(p, **{"--language": "en"}), "give FILES, or --language NAME FILE..."),
    "a language alone": (lambda p: ["data", *data(p)[2:], "--language", "en"], "no files given"),
    "runner": (lambda p: data(p, **{"--runner": "bean"}), "no runner 'bean'. Nearest: 'beam'"),
    "taken": (lambda p: data(p, out="taken"), "taken"),
    "model": (lambda p: ["show", "bert/bse"], "no model 'bert/bse'. Nearest: 'bert/base'"),
    "field": (lambda p: ["show", "bert/base", "--set", "hiden=3"], "no spec field 'hiden'. Nearest: 'hidden'"),
    "set": (lambda p: ["show", "bert/base", "--set", "hidden"], "has no '=', expected FIELD=VALUE"),
    "command": (lambda p: ["pretran"], "no command 'pretran'. Nearest: 'pretrain'. See kerasbert --help"),
    "kind": (lambda p: ["vocab", p / "corpus.txt", "--kind", "bqe", "--out", p / "v"], "no tokenizer kind 'bqe'"),
    "task": (
        lambda p: ["finetune", p, "--task", "glue/sst-2", "--data", p / "train.tsv", "--out", p / "o"],
        "no task 'glue/sst-2'. Nearest: 'glue/sst2'",
    ),
    "no model": (
        lambda p: ["finetune", p / "no", "--task", "classification", "--data", p / "train.tsv", "--out", p / "o"],
        "no model directory",
    ),
    "records": (lambda p: ["pretrain", "bert/tiny", "--data", p / "no", "--steps", 1, "--out", p / "o"], "no records"),
    "no checkpoint": (lambda p: ["import", p / "no", "--out", p / "o"], "no"),
    "plugin": (lambda p: ["list", "models", "--plugin", p / "no.py"], "no plug-in file"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_one_line_and_leave_nothing(capsys, place, name, monkeypatch):
    monkeypatch.setattr(registry, "PLUGINS", {})  # of other tests: a name may then be a plug-in's
    make, text = MISTAKES[name]
    before = sorted(place.rglob("*"))
    status, out, err = run(capsys, *make(place))
    assert status == 2, err
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1, err
    import re

    assert re.search(text, err), err
    assert sorted(place.rglob("*")) == before


def test_a_traceback_only_with_debug(capsys):
    from kerasbert.errors import InputError

    with pytest.raises(InputError, match="no model 'bert/x'"):
        cli.main(["show", "bert/x", "--debug"])


def test_records_are_reused_refused_and_checked(capsys, place):
    assert run(capsys, *data(place))[1].splitlines()[0].endswith("written by 1 process")
    assert run(capsys, *data(place))[1].splitlines()[0].endswith("unchanged, reused")
    status, _, err = run(capsys, *data(place, **{"--length": 16}))
    assert (status, "length" in err) == (2, True)
    other = tiny.tokenizer()
    pieces = list(other.vocabulary)
    pieces[-1] = "##zz"
    type(other)(pieces).save(place / "records" / "tokenizer")
    training = [
        "pretrain",
        "bert/tiny",
        "--data",
        place / "records",
        "--steps",
        1,
        "--batch",
        4,
        "--out",
        place / "run",
    ]
    status, _, err = run(capsys, *training)
    assert (status, "were made with another tokenizer" in err) == (2, True), err
    tiny.tokenizer().save(place / "records" / "tokenizer")
    shard = next((place / "records").glob("shard*"))
    shard.write_bytes(shard.read_bytes()[:-7])
    status, _, err = run(capsys, *training)
    assert (status, f"{shard.name} is truncated" in err) == (2, True), err
    assert not (place / "run").exists()


def test_a_vocabulary_is_learned_from_the_files_and_makes_records(capsys, place):
    status, out, _ = run(capsys, "vocab", place / "corpus.txt", "--size", 80, "--out", place / "vocabulary")
    assert (status, "pieces" in out) == (0, True)
    learned = (place / "vocabulary" / "vocab.txt").read_text().split("\n")
    assert set(tiny.WORDS) <= set(learned)  # each occurs often: no word is left in pieces
    assert run(capsys, *data(place, **{"--tokenizer": place / "vocabulary"}))[0] == 0
    status, _, err = run(capsys, "vocab", place / "corpus.txt", "--out", place / "vocabulary")
    assert (status, "exists already" in err) == (2, True)
    status, _, err = run(capsys, "vocab", place / "absent.txt", "--out", place / "other")
    assert (status, "absent.txt" in err, (place / "other").exists()) == (2, True, False), err


@pytest.mark.parametrize(("kind", "size", "asset"), [("bpe", 290, "merges.txt"), ("unigram", 60, "spiece.model")])
def test_other_kinds_of_vocabulary_make_records_too(capsys, place, kind, size, asset):
    out = place / kind
    status, printed, _ = run(capsys, "vocab", place / "corpus.txt", "--kind", kind, "--size", size, "--out", out)
    assert (status, "pieces" in printed, (out / asset).exists()) == (0, True, True)
    assert run(capsys, *data(place, **{"--tokenizer": out}))[0] == 0
    status, _, err = run(capsys, "vocab", place / "corpus.txt", "--kind", kind, "--size", 7, "--out", place / "small")
    assert (status, err.count("\n"), (place / "small").exists()) == (2, 1, False), err


def test_show_and_list(capsys):
    shown = json.loads(run(capsys, "show", "bert/base", "--json")[1])
    assert (shown["name"], shown["parameters"], shown["spec"]["hidden"]) == ("bert/base", 109482240, 768)
    differ = json.loads(run(capsys, "show", "bert/base", "--diff", "bert/base-cased", "--json")[1])["diff"]
    assert differ == {"embeddings.vocabulary": {"bert/base": 30522, "bert/base-cased": 28996}}
    changed = json.loads(run(capsys, "show", "bert/tiny-uncased", "--set", "blocks.layers=1", "--json")[1])
    assert (changed["parameters"], changed["spec"]["blocks"]["layers"]) == (4385920 - 198272, 1)
    listed = {row["name"]: row for row in json.loads(run(capsys, "list", "models", "--json")[1])}
    assert listed["bert/tiny"]["parameters"] == 4385920
    assert listed["albert/base"]["sizes"] == ["base", "large", "xlarge", "xxlarge"]
    assert (listed["albert/base"]["objective"], listed["albert/base"]["tokenizer"]) == ("albert", "unigram")
    assert {row["name"] for row in json.loads(run(capsys, "list", "tasks", "--json")[1])} >= {"glue/sst2", "regression"}


def test_the_index_is_what_the_families_say():
    """Names, Specs and tasks; `python -m tests.make_index` writes it anew."""
    index = json.loads(make_index.PATH.read_text())
    counts = [row.pop("parameters") for row in index["models"]]
    made = json.loads(json.dumps(make_index.content(counted=False)))
    assert all(counts)
    assert not any(row.pop("parameters") for row in made["models"])
    assert made == index, "run python -m tests.make_index"


@pytest.mark.full
def test_the_index_counts_parameters_right():
    """Each size is counted again."""
    assert make_index.rows() == json.loads(make_index.PATH.read_text())["models"]


REFUSED = {
    "show bert/bas": "no model 'bert/bas'. Nearest: 'bert/base'",
    "show bert/base --diff bert/lrge": "no model 'bert/lrge'. Nearest: 'bert/large'",
    "show bert/base --set hiden=3": "no spec field 'hiden'. Nearest: 'hidden'",
    "check-tpu bert/bas": "no model 'bert/bas'",
    "pretrain bert/bas --data x --steps 1 --out y": "no model 'bert/bas'",
    "pretrain bert/base --data x --steps 1 --out y --optimizer adam": "no optimizer 'adam'. Nearest: 'adamw'",
    "finetune x --task nope --data x --out y": "no task 'nope'",
    "import x --model bert/bas --out y": "no model 'bert/bas'",
    "list tasks": "",
    "list models": "",
    "show roberta/base": "",
}


def test_no_command_loads_tensorflow_to_refuse_a_name():
    """3 s each before; all of them in one process that never imports it."""
    program = f"""
import sys
from kerasbert import cli, registry
for line in {list(REFUSED)}:
    print("status", cli.main(line.split()), file=sys.stderr)
print({{"tensorflow", "keras", "numpy"}} & set(sys.modules), file=sys.stderr)
"""
    lines = python("-c", program).stderr.splitlines()
    assert lines.pop() == "set()"
    for said in REFUSED.values():
        if said:
            assert said in lines.pop(0)
        assert lines.pop(0) == f"status {2 if said else 0}"


def test_evaluate_and_predict_print_json(capsys, classifier):
    found = json.loads(run(capsys, "evaluate", classifier, "--data", classifier.parent / "dev.tsv", "--json")[1])
    assert {"task", "metrics"} <= found.keys()
    lines = run(capsys, "predict", classifier, "the happy cat", "a sad dog", "--json")[1].splitlines()
    assert [json.loads(line)["label"] for line in lines] == ["pos", "neg"]


def test_export_checkpoint_replaces_when_it_is_asked_to(capsys, classifier, tmp_path):
    """It advised --out and --overwrite and had neither."""
    command = ["export-checkpoint", classifier, tmp_path / "hf"]
    assert run(capsys, *command)[0] == 0
    status, _, err = run(capsys, *command)
    assert (status, "exists already. Choose another place or pass --overwrite" in err) == (2, True), err
    assert run(capsys, *command, "--overwrite")[0] == 0


def test_a_wrong_label_is_named(capsys, classifier, tmp_path):
    (tmp_path / "dev.tsv").write_text("text\tlabel\nthe cat\tmaybe\n")
    status, _, err = run(capsys, "evaluate", classifier, "--data", tmp_path / "dev.tsv")
    assert (status, "line 2: label 'maybe' is unknown. Expected one of: neg, pos" in err) == (2, True)


def limited(place, size, command):
    """Run a command where no file grows above `size` bytes -> its status and what it said, which goes into a pipe."""
    os.mkfifo(place / "said")
    program = "import os, resource, sys; pipe = os.open(sys.argv[1], os.O_WRONLY); os.dup2(pipe, 1); os.dup2(pipe, 2); "
    program += "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2); sys.dont_write_bytecode = True; "
    program += "from kerasbert.cli import main; sys.exit(main(sys.argv[3:]))"
    child = start("-c", program, place / "said", size, *command)
    said = (place / "said").read_text()
    (place / "said").unlink()
    return child.wait(), said


@pytest.mark.parametrize("size", often([0, 2000, 20000], 2000))
def test_a_disk_that_fills_up_is_one_line_and_leaves_no_half_files(pretrained, place, size):
    """Records, a run, a SavedModel: the file size limit stands in for a full disk (both end a write with an error)."""
    training = [
        "pretrain",
        str(pretrained),
        "--data",
        str(pretrained.parent / "records-pairs"),
        "--steps",
        "1",
        "--quiet",
    ]
    commands = [
        [str(x) for x in data(place, out="out")],
        [*training, "--batch", "8", "--out", str(place / "out")],
        ["export", str(pretrained), str(place / "out")],
        ["export-checkpoint", str(pretrained), str(place / "out")],
    ]
    for command in commands:
        status, said = limited(place, size, command)
        lines = [line for line in said.splitlines() if line.startswith("error: ")]
        if status == 0:  # small enough for this limit
            assert size == 20000, command
            shutil.rmtree(place / "out")
            continue
        assert (status, len(lines)) == (2, 1), (command, said[-2000:])
        assert "Traceback" not in said
        assert not (place / "out" / "weights.safetensors").exists()
        if command[0] != "pretrain":
            assert not (place / "out").exists()
        assert [path.name for path in place.iterdir() if path.name.startswith(".out")] == []
        shutil.rmtree(place / "out", ignore_errors=True)


def test_an_unknown_selection_is_named(capsys, place):
    given = ["--data", tiny.records(place), "--steps", 1, "--out", place / "run", "--select", "word"]
    status, _, error = run(capsys, "pretrain", "bert/tiny", *given)
    assert status == 2
    assert "no select function 'word'. Nearest: 'words'" in error
    assert not (place / "run").exists()

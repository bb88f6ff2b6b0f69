"""What `import` says of what came in: family, size, task and labels, tokenizer, and what of the checkpoint is left out."""

import json

import numpy as np
import pytest

from kerasbert.checkpoints import save_model, summary
from kerasbert.checkpoints.directory import Weights
from kerasbert.cli import main
from kerasbert.registry import family
from tests.checkpoints.reference import CONFIG, hf_shapes, random_tensors, write_hf

CLASSIFIER = CONFIG | {"architectures": ["BertForSequenceClassification"]}
NAMES = {"id2label": {"0": "no", "1": "so", "2": "yes"}}
BARE = "an encoder without a task and with the heads of its pretraining (mlm, nsp): finetune teaches it one"
READ = "tokenizer: wordpiece, 13 tokens"
UNREAD = "no tokenizer, so that it reads no text: name the folder or the file of one with --tokenizer"


@pytest.mark.parametrize(
    ("labels", "config", "options", "said"),
    [
        (0, CONFIG, [], [BARE, READ]),
        (3, CLASSIFIER | NAMES, [], ["task classification, 3 labels: no, so, yes", READ]),
        (3, CLASSIFIER | NAMES, ["--pair"], ["task classification of two texts, 3 labels: no, so, yes", READ]),
        (12, CLASSIFIER, [], [f"12 labels: {', '.join(f'LABEL_{i}' for i in range(10))} and 2 more", READ]),
        (0, CONFIG, ["without a tokenizer"], [BARE, UNREAD]),
        (0, CONFIG, ["--ignore", "spare.*"], [BARE, READ]),
    ],
)
def test_an_import_says_what_came_in(tmp_path, capsys, labels, config, options, said):
    tensors = random_tensors(hf_shapes(labels))
    more, words = {}, options
    if options == ["without a tokenizer"]:
        more, words = {"vocabulary": None}, []
    if "--ignore" in options:
        tensors["spare.weight"] = np.ones((2, 3), "float32")
    folder = write_hf(tmp_path / "theirs", tensors, config, **more)
    assert main(["import", str(folder), "--out", str(tmp_path / "ours"), *words]) == 0
    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 'ours'}\n"
    *left, task, tokenizer = err.splitlines()
    assert task.startswith("bert: 2 layers, width 6, ")
    assert task.endswith(f"; {said[0]}") or (labels == 12 and said[0] in task), task
    assert tokenizer == said[1]
    assert left == ([f"not used: spare.* ({folder.name})"] if "--ignore" in options else [])


def test_the_heads_of_a_pretraining_are_named_and_not_counted(tmp_path):
    """By hand: the numbers of the encoder alone."""
    weights = Weights(family("bert").spec, {"a/kernel": np.zeros((3, 4), "float32"), "b": np.zeros(5, "float32")})
    save_model(tmp_path / "run", encoder=weights, name="bert/base", heads={"mlm": {"bias": np.zeros(7, "float32")}})
    first, second = summary.about(tmp_path / "run")["told"]
    told = (
        "17 parameters; an encoder without a task and with the heads of its pretraining (mlm): finetune teaches it one"
    )
    assert first == f"bert/base: 12 layers, width 768, {told}"
    assert second == UNREAD


def test_show_says_it_of_a_directory_with_its_spec(tmp_path, capsys):
    weights = Weights(family("bert").spec.derive({"hidden": 24}), {"a/kernel": np.zeros((3, 4), "float32")})
    save_model(tmp_path / "run", encoder=weights, name="bert/base")
    assert main(["show", str(tmp_path / "run")]) == 0
    first, second, *fields = capsys.readouterr().out.splitlines()
    assert [first, second] == summary.about(tmp_path / "run")["told"]
    assert "  hidden: 24" in fields
    assert main(["show", "bert/base", "--diff", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["  hidden: 768 | 24"]
    assert main(["show", str(tmp_path / "run"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["kind"], shown["parameters"], shown["spec"]["hidden"]) == ("encoder", 12, 24)

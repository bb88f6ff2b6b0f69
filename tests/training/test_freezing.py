"""Frozen weights: what is chosen, what is said, that they stay and that the rest learns."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import cli
from kerasbert.checkpoints import read_tensors
from kerasbert.checkpoints.safetensors import Safetensors
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.testing.battery import eagerly
from kerasbert.training.freezing import freeze, told
from kerasbert.training.recipe import read_recipe
from tests import tiny
from tests.support import forked
from tests.training.adapting import FAMILIES

QUICK = {"batch": 20, "learning_rate": 1e-2, "length": 8}


def moved(before, after) -> set[str]:
    """Names of the weights that differ between two model directories, of those that both have."""
    one, other = read_tensors(before), read_tensors(after)
    shared = [name for name in one.names() if name in other.names()]
    return {name for name in shared if not np.array_equal(one.read(name), other.read(name))}


def test_patterns_are_searched_in_the_names_and_all_or_nothing_is_refused():
    encoder = kb.build("bert/tiny", **{**tiny.SPEC, "blocks.layers": 2, "embeddings.vocabulary": 100})
    every = sum(int(np.prod(weight.shape)) for weight in encoder.weights)
    frozen = freeze(encoder, ["^embeddings/", r"^block_0/.*kernel$"])
    assert {id(v) for v in frozen} == {
        id(v)
        for name, v in names(encoder).items()
        if name.startswith("embeddings/") or (name.startswith("block_0/") and name.endswith("kernel"))
    }
    left = sum(int(np.prod(weight.shape)) for weight in encoder.trainable_variables)
    assert told(encoder) == [f"trained: {left:,} of {every:,} weights ({left / every:.3%})"]
    assert freeze(encoder, ["^embeddings/"]) == []  # frozen already
    with pytest.raises(InputError, match=r"freeze: 'encoder/blok_1/' is in no weight's name. Nearest: 'block_1'"):
        freeze(encoder, ["encoder/blok_1/"])
    with pytest.raises(
        InputError, match=r"freeze: block, pooler leaves no weight to train, expected one: freeze fewer"
    ):
        freeze(encoder, ["block", "pooler"])
    with pytest.raises(InputError, match=r"freeze: '\(' is not a regular expression: "):
        freeze(encoder, ["("])
    for variable in frozen:
        variable.trainable = True
    assert told(encoder) == []
    freeze(encoder, ["encoder"])
    assert {name for name, v in names(encoder).items() if v.trainable} == {"pooler/kernel", "pooler/bias"}


@pytest.mark.slow
def test_a_run_leaves_frozen_weights_as_they_are_and_says_what_it_trains(pretrained, tmp_path, capsys):
    path, out = tiny.labelled(tmp_path / "my.tsv", 60), tmp_path / "run"
    settings = {"steps": 3, "optimizer_options": {"layer_decay": 0.9, "ema": 0.5}, "freeze": ["^embed", "block_0"]}
    encoder = kb.load(pretrained)
    with eagerly():
        kb.finetune(encoder, "classification", path, out=out, **settings, **QUICK)
    shared = set(names(encoder))
    still = {name for name in shared if name.startswith(("embeddings/", "block_0/"))}
    assert moved(pretrained, out) | {"block_1/attention/key/bias"} == shared - still  # its gradient is rounding
    assert all(variable.trainable for variable in encoder.weights)  # the caller's encoder can be trained again
    trained = [variable for name, variable in names(encoder).items() if name not in still]
    slots = Safetensors(out / "checkpoints" / "step_3" / "optimizer.safetensors").names()
    assert len(slots) == 3 * (len(trained) + 2)  # two moments and an average, of the head's two weights too
    said = capsys.readouterr().err
    assert "trained: " in said
    assert json.loads((out / "run.json").read_text())["settings"]["freeze"] == settings["freeze"]
    with pytest.raises(InputError, match=r"freeze is \['\^embed', 'block_0'\] there, \['block_0'\] asked for"):
        kb.finetune(encoder, "classification", path, out=out, **(settings | {"freeze": ["block_0"]}), **QUICK)
    # a rule of the optimizer that is about frozen weights alone finds nothing to do, which is said before a run is begun
    rule = {"optimizer_options": {"not_decayed": ["block_0"]}}
    with pytest.raises(InputError, match="not_decayed: 'block_0' is in no weight's path"):
        kb.finetune(encoder, "classification", path, out=tmp_path / "no", **(settings | rule), **QUICK)
    assert not (tmp_path / "no").exists()


def test_the_command_line_takes_a_pattern_several_times(pretrained, tmp_path, capsys):
    path = tiny.labelled(tmp_path / "my.tsv", 40)
    line = ["finetune", str(pretrained), "--task", "classification", "--data", str(path), "--out", str(tmp_path / "no")]
    assert cli.main([*line, "--freeze", "encoder", "--freeze", "bloc_1"]) == 2
    assert "error: freeze: 'bloc_1' is in no weight's name. Nearest: 'block_1'" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
    with pytest.raises(InputError, match="freeze: 'bloc_1' is in no weight's name"):  # one pattern is a list of one
        kb.finetune(pretrained, "classification", path, out=tmp_path / "no", freeze="bloc_1")


def test_recipes_say_it_too(tmp_path):
    path = tmp_path / "recipe.yaml"
    text = "model: bert/tiny\ndata: records\nsteps: 9\nout: run\nfinetune: {task: t, freeze: [encoder], unfreeze: 2}\n"
    path.write_text(text)
    assert read_recipe(path).finetune == {"task": "t", "freeze": ["encoder"], "unfreeze": 2}
    path.write_text(text.replace("[encoder]", "[3]"))
    with pytest.raises(
        InputError, match=r"recipe.yaml:5: finetune.freeze must be a list of texts or null. Received: \[3\]"
    ):
        read_recipe(path)


@pytest.mark.full
def test_four_families_are_the_same_after_a_stop_and_on_two_replicas(tmp_path):
    for part in ("whole", "half", "rest", "two"):
        forked("-m", "tests.training.adapting", tmp_path, part)
    for family in FAMILIES:
        start, whole, resumed, two = (tmp_path / f"{family}-{name}" for name in ("start", "whole", "half", "two"))
        assert moved(whole, resumed) == set()
        changed, every = moved(start, whole), set(read_tensors(start).names())
        assert {name for name in every if name.startswith("embeddings/")} == {
            n for n in every - changed if "embeddings" in n
        }
        assert {name for name in every - changed if "/kernel" in name and name.startswith("block")} == set(), family
        one, other = read_tensors(whole), read_tensors(two)
        for name in one.names():
            np.testing.assert_allclose(one.read(name), other.read(name), atol=2e-5, err_msg=f"{family} {name}")
        told = json.loads((whole / "dev.json").read_text())["layers"]["shares"]
        assert max(told) > min(told)
        assert kb.load(whole).task.layers == "mix"

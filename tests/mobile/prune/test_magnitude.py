"""Masks hold while a model is trained: under AdamW with momentum, after a resume, on two replicas."""

import json

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert.checkpoints import read_tensors
from kerasbert.errors import InputError
from kerasbert.layers.naming import names, values
from kerasbert.mobile import prune
from kerasbert.tasks.model import TaskObjective
from kerasbert.tasks.task import Task
from kerasbert.testing.battery import Subject, eagerly
from kerasbert.training.config import TrainConfig
from kerasbert.training.optimizers import adamw, averaged, make_optimizer
from kerasbert.training.step import Compilation, StepCore
from tests.mobile.prune.conftest import SETTINGS
from tests.models.cover import families
from tests.support import forked

ONE = {"blocks.layers": 1}


def tensors(directory) -> dict:
    found = read_tensors(directory)
    return {name: found.read(name) for name in found.names()}


def zeros(weights, mask) -> bool:
    """Whether every weight that is gone is zero."""
    return all((weights[name][~mask[name].numpy()] == 0).all() for name in mask)


def core_of(subject, pruner, steps, optimizer=None, **settings):
    """A step core, its model, and a function that makes an update with random gradients."""
    program = TaskObjective(subject.encoder(), Task("opinions", labels={"0": "no", "1": "yes"}))
    optimizer = optimizer or adamw(learning_rate=1e-2, steps=100)
    core = StepCore(program, optimizer, tf.distribute.get_strategy(), **settings)
    pruner.install(program.model, steps)
    generator = np.random.default_rng(0)

    def update(step):
        pruner.begin(step)
        gradients = [tf.constant(generator.normal(size=v.shape), tf.float32) for v in core.variables]
        core.update(gradients, tf.constant(1.0))

    return core, program.model, update


def test_momentum_does_not_bring_a_weight_back(tmp_path):
    subject = Subject("bert", tmp_path, **ONE)
    pruner = prune.Magnitude(0.5, schedule="constant", begin=1)
    core, model, update = core_of(subject, pruner, 6)
    before = {}
    with eagerly():
        for step in range(4):
            update(step)
            if step >= 1:
                assert zeros(values(model), pruner.masks)
                before = before or pruner.tensors()
    after = pruner.tensors()
    assert len(after) == 6
    for name, mask in after.items():
        assert mask.mean() == 0.5
        np.testing.assert_array_equal(mask, before[name])
    # there was something to hold back: an update's momentum, and gradients since
    name = "block_0/attention/query/kernel"
    index = core.optimizer._get_variable_index(names(model)[name])
    momentum = core.optimizer._momentums[index].value.numpy()
    assert np.abs(momentum[after[name] == 0]).min() > 0


def test_without_the_constraint_weights_come_back(tmp_path):
    subject = Subject("bert", tmp_path, **ONE)
    pruner = prune.Magnitude(0.5, schedule="constant")
    _, model, update = core_of(subject, pruner, 6)
    for variable in pruner.weights.values():
        variable.constraint = None
    with eagerly():
        update(0)
    assert not zeros(values(model), pruner.masks)


def test_the_moving_average_is_pruned_too(tmp_path):
    subject = Subject("bert", tmp_path, **ONE)
    pruner = prune.Magnitude(0.5, schedule="constant")
    settings = TrainConfig(steps=9, batch=8, learning_rate=1e-2, optimizer_options={"ema": 0.5})
    core, model, update = core_of(subject, pruner, 9, make_optimizer(settings))
    with eagerly():
        for step in range(2):
            update(step)
        with averaged(core.optimizer):
            assert zeros(values(model), pruner.masks)


@pytest.mark.slow
def test_a_compiled_update_is_projected_too(tmp_path):
    subject = Subject("bert", tmp_path, **ONE)
    pruner = prune.Magnitude(structure="2:4")
    _, model, update = core_of(subject, pruner, 3, compilation=Compilation(update=True))
    for step in range(2):
        update(step)
    after = values(model)
    assert zeros(after, pruner.masks)
    assert all(
        (np.count_nonzero(after[name].reshape(-1, 4, after[name].shape[1]), axis=1) == 2).all() for name in pruner.masks
    )


def test_pruning_while_fine_tuning(finetuned, files, tmp_path):
    run = finetuned("bert", **ONE)
    with eagerly():
        model = prune.magnitude(run, files, out=tmp_path / "p", sparsity=0.75, frequency=1, steps=6, **SETTINGS)
    found = prune.sparsity_of(tmp_path / "p")
    assert set(found["kernels"].values()) == {0.75}
    assert found["parameters"] - found["nonzero"] >= 0.75 * (4 * 16 * 16 + 2 * 16 * 24)
    assert (
        np.count_nonzero(tensors(tmp_path / "p")["embeddings/tokens/table"])
        == model.encoder.embeddings.tokens.count_params()
    )
    # the evaluation of update 4 does not count: the final sparsity comes before update 4
    told = json.loads((tmp_path / "p" / "run.json").read_text())["settings"]
    assert told["constraint"]["end"] == 4
    assert told["keep_head"]
    assert (
        json.loads((tmp_path / "p" / "checkpoints" / "step_6" / "manifest.json").read_text())["state"]["evaluation"][
            "step"
        ]
        == 6
    )


def test_the_head_is_kept(finetuned, files, tmp_path):
    run = finetuned("bert", **ONE)
    with eagerly():
        prune.magnitude(run, files, out=tmp_path / "p", sparsity=0.0, steps=1, **SETTINGS | {"learning_rate": 0.0})
    before, after = tensors(run), tensors(tmp_path / "p")
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])


class Stop(Exception):
    """Stands for a killed process."""


@pytest.mark.parametrize("at", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_resumed_run_is_the_same_to_the_bit(finetuned, files, tmp_path, monkeypatch, at):
    """Killed between two masks, and right before one is made."""
    arguments = {"sparsity": 0.6, "frequency": 2, "begin": 0, "end": 3, "steps": 5, "save_every": at, "scope": "global"}
    arguments |= SETTINGS
    run = finetuned("bert", **ONE)
    with eagerly():
        prune.magnitude(run, files, out=tmp_path / "whole", **arguments)
        step, made = StepCore.step, []

        def killed(self, batch):
            if len(made) == at:
                raise Stop
            made.append(1)
            return step(self, batch)

        monkeypatch.setattr(StepCore, "step", killed)
        with pytest.raises(Stop):
            prune.magnitude(run, files, out=tmp_path / "cut", **arguments)
        monkeypatch.setattr(StepCore, "step", step)
        begins = []
        begin = prune.Magnitude.begin
        monkeypatch.setattr(prune.Magnitude, "begin", lambda self, at: begins.append(at) or begin(self, at))
        prune.magnitude(run, files, out=tmp_path / "cut", **arguments)
    assert begins[0] == at
    whole, cut = ((tmp_path / name / "weights.safetensors").read_bytes() for name in ("whole", "cut"))
    assert whole == cut
    assert prune.sparsity_of(tmp_path / "cut")["sparsity"] == pytest.approx(0.6, abs=1e-3)


@pytest.mark.slow
def test_two_replicas_prune_as_one(files, tmp_path, finetuned):
    run = finetuned("bert", dropout=0.0)
    found = []
    for strategy in ("cpu", "cpu:2"):
        out = tmp_path / strategy.replace(":", "")
        forked("-m", "tests.mobile.prune.worker", strategy, run, files["train"], files["dev"], out)
        found.append(tensors(out))
    one, two = found
    for name in one:
        np.testing.assert_array_equal(one[name] == 0, two[name] == 0)
        np.testing.assert_allclose(one[name], two[name], atol=1e-5)


@pytest.mark.parametrize("name", families("prune"))
def test_every_family_is_pruned(name, tmp_path):
    subject = Subject(name, tmp_path)
    pruner = prune.Magnitude(structure="2:4")
    _, model, update = core_of(subject, pruner, 3)
    with eagerly():
        for step in range(2):
            update(step)
    weights, found = values(model), pruner.tensors()
    assert zeros(weights, pruner.masks)
    layers = 1 if subject.spec.blocks.share == "all" else subject.spec.blocks.layers
    networks = getattr(getattr(subject.spec, "bottleneck", None), "networks", 1)
    maps = [name for name in weights if "/attention/" in name and name.endswith("/kernel") and "/position" not in name]
    # three in a layer with a gate
    wide = [name for name in weights if "/feedforward" in name and name.endswith("/kernel")]
    assert len(maps) >= 4 * layers
    assert len(wide) >= 2 * layers * networks
    assert len(found) == len(maps) + len(wide)
    for name in found:
        assert (np.count_nonzero(weights[name].reshape(-1, 4, weights[name].shape[1]), axis=1) == 2).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sparsity": 1.0}, r"sparsity must be in \[0, 1\), such as 0.5. Received: 1.0"),
        ({"sparsity": -0.1}, r"sparsity must be in \[0, 1\)"),
        ({}, r"sparsity must be in \[0, 1\), such as 0.5. Received: None"),
        ({"structure": "2x4"}, "no structure '2x4'. Nearest: '2:4'. All: none, 4x1, 2:4"),
        ({"sparsity": 0.5, "scope": "globl"}, "no scope 'globl'. Nearest: 'global'. All: layer, global"),
        ({"sparsity": 0.5, "schedule": "cubic"}, "no schedule of pruning 'cubic'.*All: polynomial, constant"),
        ({"sparsity": 0.5, "schedule": "constant", "end": 5}, "end and frequency do not go with the constant schedule"),
        ({"structure": "2:4", "frequency": 5}, "end and frequency do not go with 2:4: masks are made once"),
        ({"sparsity": 0.8, "structure": "2:4"}, "2:4 takes half of every four weights at once"),
    ],
)
def test_bad_settings(arguments, message):
    with pytest.raises(InputError, match=message):
        prune.Magnitude(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"patterns": ["blok_0"]},
            "pattern 'blok_0' is in no trained kernel's name, such as 'embeddings/tokens/table'",
        ),
        ({"patterns": ["("]}, r"pattern '\(' is not a regular expression"),
        ({"end": 6}, "end of pruning must be from 0 to 5, of 6 updates. Received: 6"),
    ],
)
def test_what_does_not_fit_the_model_is_told_before_anything_is_written(finetuned, files, tmp_path, arguments, message):
    with pytest.raises(InputError, match=message):
        prune.magnitude(finetuned("bert"), files, out=tmp_path / "p", sparsity=0.5, steps=6, **arguments, **SETTINGS)
    assert not (tmp_path / "p").exists()


def test_a_head_for_other_labels_is_not_kept(finetuned, files, tmp_path):
    other = Task("opinions", labels={"neg": "no", "pos": "yes"})
    with pytest.raises(InputError, match="has the labels neg, pos, expected no, yes: leave keep_head out"):
        kb.finetune(finetuned("bert"), other, files, out=tmp_path / "p", keep_head=True)
    with pytest.raises(InputError, match="keep_head needs the directory of a fine-tuned model"):
        kb.finetune(kb.load(finetuned("bert")), "classification", files, out=tmp_path / "p", keep_head=True)


def test_kernels_that_a_structure_does_not_fit_stay_dense(tmp_path, capsys):
    encoder = Subject("bert", tmp_path, **{"feedforward.width": 18}).encoder()
    chosen, left = prune.Magnitude(structure="2:4").choose(encoder)
    assert left == ["block_0/feedforward/outer/kernel", "block_1/feedforward/outer/kernel"]
    assert len(chosen) == 10
    prune.Magnitude(structure="2:4").describe(encoder, 10)
    assert "2 kernels stay dense, their inputs are no multiple of 4: block_0/" in capsys.readouterr().err
    with pytest.raises(InputError, match="structure '4x1' fits none of the 2 kernels, expected a multiple of 4 inputs"):
        prune.Magnitude(0.5, structure="4x1", patterns=["outer/kernel"]).choose(encoder)


def test_a_run_with_another_sparsity_is_another_run(finetuned, files, tmp_path):
    with eagerly():
        prune.magnitude(finetuned("bert", **ONE), files, out=tmp_path / "p", sparsity=0.5, steps=2, **SETTINGS)
    with pytest.raises(InputError, match="constraint.sparsity is 0.5 there, 0.6 asked for"):
        prune.magnitude(finetuned("bert", **ONE), files, out=tmp_path / "p", sparsity=0.6, steps=2, **SETTINGS)

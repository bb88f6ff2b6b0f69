"""Training with rounding: every family, the file's own numbers, resume, replicas, and what it is good for."""

import json

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints import read_tensors
from kerasbert.errors import InputError
from kerasbert.layers.naming import names, values
from kerasbert.mobile import compress, quantize
from kerasbert.mobile.compression import reference
from kerasbert.mobile.quantize.aware_training import attach, rounded
from kerasbert.mobile.quantize.fake import PerChannel
from kerasbert.mobile.runtime import load as load_file
from kerasbert.tasks.label import LabelModel, LabelProgram
from kerasbert.tasks.task import Task
from kerasbert.training.optimizers import adamw
from kerasbert.training.step import StepCore
from tests import tiny as world
from tests.mobile.prune.conftest import SETTINGS
from tests.models.battery import Subject, eagerly
from tests.support import python

WIDE = {"hidden": 64, "blocks.layers": 1}  # matrices that are large enough for the converter
TASK = Task("opinions", labels={"0": "no", "1": "yes"})


def tensors(directory) -> dict:
    found = read_tensors(directory)
    return {name: found.read(name) for name in found.names()}


def uneven(subject, seed=2):
    """A model whose norms scale unevenly, so that it matters what is rounded."""
    model = LabelModel(subject.encoder(), TASK, name="label_model")
    model.build()
    generator = np.random.default_rng(seed)
    for name, weight in names(model).items():
        if name.endswith("gamma"):
            weight.assign(generator.uniform(0.1, 2, weight.shape))
        if name.endswith("kernel"):
            weight.assign(generator.normal(0, 2 / weight.shape[0] ** 0.5, weight.shape))
    return model


@pytest.mark.parametrize(
    "name",
    [
        "bert",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("albert", "mobilebert", "megatron-bert", "electra")),
    ],
)
def test_the_model_computes_what_its_file_computes(name, tmp_path):
    """Layers that share weights, NoNorm, pre-norm and a projection behind the embeddings included."""
    model, texts = uneven(Subject(name, tmp_path, hidden=64)), world.sentences(30, 5)
    compress(model, out=tmp_path / "x.tflite", lengths=[16, 24], texts=texts, min_agreement=0)
    file = load_file(tmp_path / "x.tflite", cache=False).outputs(texts)
    with eagerly():
        plain = reference(model, "classification", texts, 24)
        attach(model, PerChannel())
        rounded_ = reference(model, "classification", texts, 24)
    from_float, from_rounded = np.abs(plain - file).max(), np.abs(rounded_ - file).max()
    assert from_float > 5e-3
    assert from_rounded < 0.1 * from_float


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.families())
def test_every_family_is_trained(name, tmp_path):
    """Two updates; every weight but the keys' biases and what nobody reads receives a gradient."""
    subject = Subject(name, tmp_path, hidden=64, dropout=0.1)
    program = LabelProgram(subject.encoder(), TASK)
    core = StepCore(program, adamw(learning_rate=1e-3, steps=10), tf.distribute.get_strategy())
    quantizer = quantize.Aware()
    told = quantizer.describe(program.model.encoder, 2)
    quantizer.install(program.model, 2)
    found = [name for name, _ in rounded(program.model)]
    shared = subject.spec.blocks.share == "all"
    for part in ("query", "key", "value", "output"):
        count = sum(f"attention/{part}" in name for name in found)
        assert count == (1 if shared else subject.spec.blocks.layers)
    assert "embeddings/tokens" in found
    assert len(found) == len(set(found)) >= told["matrices"]
    before = values(program.model)
    batch = subject.inputs(rows=4) | {"row": np.arange(4, dtype="int32"), "label": np.array([0, 1, 1, 0], "int32")}
    batch = {name: tf.constant(x) for name, x in batch.items()} | {"label_weight": tf.ones(4)}
    with eagerly():
        for step in range(2):
            quantizer.begin(step)
            assert np.isfinite(float(core.step(batch)["loss"]))
    after = values(program.model)
    assert all(
        (before[f"{name}/kernel"] != after[f"{name}/kernel"]).any() for name in found if "embeddings/t" not in name
    )


def test_training_from_a_run(finetuned, files, tmp_path):
    run = finetuned("bert", **WIDE)
    with eagerly():
        model = quantize.aware(run, files, out=tmp_path / "q", delay=1, steps=4, **SETTINGS)
    told = json.loads((tmp_path / "q" / "run.json").read_text())["settings"]
    assert told["projection"] == {"kind": "quantization_aware", "per": "channel", "delay": 1, "matrices": 8}
    assert told["keep_head"]
    # what comes back is a float model, and so is what stands in the directory
    assert all(layer.quantizer is None for _, layer in rounded(model))
    assert tensors(tmp_path / "q").keys() == tensors(run).keys()
    assert all((value == tensors(tmp_path / "q")[name]).all() for name, value in values(model).items())
    texts = world.sentences(8, 3)
    with eagerly():
        logits = [kb.predict(made, texts)[0].score for made in (model, quantize.simulated(tmp_path / "q"))]
    assert logits[0] != logits[1]


def test_before_the_delay_nothing_is_rounded(finetuned, files, tmp_path):
    """The first update is that of fine-tuning, the second is not."""
    run = finetuned("bert", **WIDE)
    settings = SETTINGS | {"warmup": 0, "schedule": "constant", "patience": None}
    with eagerly():
        kb.finetune(run, "classification", files, out=tmp_path / "f", steps=2, save_every=1, keep_head=True, **settings)
        quantize.aware(run, files, out=tmp_path / "q", steps=2, delay=1, save_every=1, **settings)
    for step, same in ((1, True), (2, False)):
        one, other = (read_tensors_of(tmp_path / name / "checkpoints" / f"step_{step}") for name in ("f", "q"))
        assert all((one[name] == other[name]).all() for name in one) == same


def read_tensors_of(checkpoint) -> dict:
    from kerasbert.training.checkpoints import Checkpoints

    newest = next(found for found in [Checkpoints(checkpoint.parents[1]).at(int(checkpoint.name.split("_")[1]))])
    found = newest.tensors("weights")
    return {name: found.read(name) for name in found.names()}


class Stop(Exception):
    """Stands for a killed process."""


@pytest.mark.parametrize("at", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_resumed_run_is_the_same_to_the_bit(finetuned, files, tmp_path, monkeypatch, at):
    """Killed before rounding begins, and after."""
    arguments = {"delay": 2, "steps": 4, "save_every": at} | SETTINGS
    run = finetuned("bert", **WIDE)
    with eagerly():
        quantize.aware(run, files, out=tmp_path / "whole", **arguments)
        step, made = StepCore.step, []

        def killed(self, batch):
            if len(made) == at:
                raise Stop
            made.append(1)
            return step(self, batch)

        monkeypatch.setattr(StepCore, "step", killed)
        with pytest.raises(Stop):
            quantize.aware(run, files, out=tmp_path / "cut", **arguments)
        monkeypatch.setattr(StepCore, "step", step)
        quantize.aware(run, files, out=tmp_path / "cut", **arguments)
    whole, cut = ((tmp_path / name / "weights.safetensors").read_bytes() for name in ("whole", "cut"))
    assert whole == cut


@pytest.mark.slow
def test_two_replicas_train_as_one(files, tmp_path, finetuned):
    run = finetuned("bert", **WIDE)
    found = []
    for strategy in ("cpu", "cpu:2"):
        out = tmp_path / strategy.replace(":", "")
        python("-m", "tests.mobile.quantize.worker", strategy, "channel", run, files["train"], files["dev"], out)
        found.append(tensors(out))
    one, two = found
    for name in one:
        np.testing.assert_allclose(one[name], two[name], atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"per": "chanel"}, "no kind of quantization 'chanel'. Nearest: 'channel'. All: channel"),
        ({"delay": -1}, "delay must be a whole number of at least 0. Received: -1"),
        ({"delay": 2.5}, "delay must be a whole number of at least 0. Received: 2.5"),
        ({"delay": 4, "steps": 4}, "delay must be from 0 to 3, of 4 updates. Received: 4"),
    ],
)
def test_bad_settings(finetuned, files, tmp_path, arguments, message):
    with pytest.raises(InputError, match=message):
        quantize.aware(finetuned("bert", **WIDE), files, out=tmp_path / "q", **SETTINGS | arguments)
    assert not (tmp_path / "q").exists()


def test_a_model_without_large_matrices_is_refused(finetuned, files, tmp_path):
    run = finetuned("bert", **{"blocks.layers": 1})
    with pytest.raises(InputError, match="the model has no matrix of 1024 weights, expected one: the int8 file would"):
        quantize.aware(run, files, out=tmp_path / "q", **SETTINGS)


def test_a_model_without_a_task_is_refused(files, tmp_path):
    from kerasbert.checkpoints import save_model

    subject = Subject("bert", tmp_path, hidden=64)
    save_model(tmp_path / "e", encoder=subject.encoder(), name=subject.name, tokenizer=subject.tokenizer)
    with pytest.raises(InputError, match="is not fine-tuned: give the task to train it for, or fine-tune it first"):
        quantize.aware(tmp_path / "e", files, out=tmp_path / "q")

"""Training with rounding: every family, the file's own numbers, resume, replicas, and what it is good for."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert.checkpoints import read_tensors, save_model
from kerasbert.checkpoints.safetensors import Safetensors
from kerasbert.errors import InputError
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.naming import names, values
from kerasbert.mobile import compress, quantize
from kerasbert.mobile.distill import distill
from kerasbert.mobile.judging.comparison import reference
from kerasbert.mobile.quantize.aware_training import attach, attach_ranges, read_ranges, rounded
from kerasbert.mobile.quantize.fake_quantization import PerChannel
from kerasbert.mobile.runtime import load as load_file
from kerasbert.tasks.model import TaskModel, TaskObjective
from kerasbert.tasks.task import Task
from kerasbert.testing.battery import Subject, eagerly
from kerasbert.training.optimizers import adamw
from kerasbert.training.step import StepCore
from tests import tiny as world
from tests.mobile.prune.conftest import SETTINGS
from tests.models.cover import families
from tests.support import by_hand, forked, often

WIDE = {"hidden": 64, "blocks.layers": 1}  # matrices that are large enough for the converter
TASK = Task("opinions", labels={"0": "no", "1": "yes"})


def tensors(directory) -> dict:
    found = read_tensors(directory)
    return {name: found.read(name) for name in found.names()}


def uneven(subject, seed=4):
    """A model whose norms scale unevenly, so that it matters where the file rounds."""
    model = TaskModel(subject.encoder(), TASK, name="label_model")
    model.build()
    generator = np.random.default_rng(seed)
    gain = 0.7 if subject.family.name == "mobilebert" else 2  # without norms numbers grow
    for name, weight in names(model).items():
        if name.endswith("gamma"):
            weight.assign(generator.uniform(0.1, 2, weight.shape))
        if name.endswith(("beta", "bias")):  # as trained: where they are zero the converter leaves the norm alone
            weight.assign(generator.normal(0, 0.3, weight.shape))
        if name.endswith("kernel"):
            weight.assign(generator.normal(0, gain / weight.shape[0] ** 0.5, weight.shape))
    return model


def distances(model, folder) -> tuple[float, float]:
    """Mean difference of probability between the int8 file and the float model, and the rounded one."""
    texts = world.sentences(30, 5)
    compress(model, out=folder / "x.tflite", lengths=[24], texts=texts, min_agreement=0, overwrite=True)
    file = load_file(folder / "x.tflite", cache=False).outputs(texts)
    with eagerly():
        plain = reference(model, texts, 24)
        attach(model, PerChannel())
        return tuple(np.abs(found - file).mean() for found in (plain, reference(model, texts, 24)))


@pytest.mark.parametrize(
    "name",
    [
        "bert",
        *often(("albert", "mobilebert", "megatron-bert", "electra"), "electra"),
    ],
)
def test_the_model_computes_what_its_file_computes(name, tmp_path):
    """Layers that share weights, NoNorm, pre-norm and a projection behind the embeddings included.

    Not to the bit: a number in the middle between two steps may go to the other one, and others after it.
    """
    plain, ours = distances(uneven(Subject(name, tmp_path, hidden=64)), tmp_path)
    assert plain > 1e-3
    assert ours < 0.2 * plain


@pytest.mark.parametrize("name", families("aware"))
def test_every_family_is_trained(name, tmp_path):
    """Two updates change every kernel that is rounded."""
    subject = Subject(name, tmp_path, hidden=64, dropout=0.1)
    program = TaskObjective(subject.encoder(), TASK)
    core = StepCore(program, adamw(learning_rate=1e-3, steps=10), tf.distribute.get_strategy())
    quantizer = quantize.Aware()
    quantizer.install(program.model, 2)
    found = [name for name, _ in rounded(program.model)]
    shared = subject.spec.blocks.share == "all"
    for part in ("query", "key", "value", "output"):
        count = sum(re.search(rf"attention/{part}\b", name) is not None for name in found)  # not query_global
        assert count == (1 if shared else subject.spec.blocks.layers)
    assert "embeddings/tokens" in found
    assert len(found) == len(set(found))
    before = values(program.model)
    batch = subject.inputs(rows=4) | {"row": np.arange(4, dtype="int32"), "label": np.array([0, 1, 1, 0], "int32")}
    batch = {name: tf.constant(x) for name, x in batch.items()} | {"label_weight": tf.ones(4)}
    with eagerly():
        for step in range(2):
            quantizer.begin(step)
            assert np.isfinite(float(core.step(batch)["loss"]))
    after = values(program.model)
    kernels = [f"{name}/kernel" for name in found if f"{name}/kernel" in before]
    assert all((before[kernel] != after[kernel]).any() for kernel in kernels)


def test_training_from_a_run(finetuned, files, tmp_path):
    run = finetuned("bert", **WIDE)
    with eagerly():
        model = quantize.aware(run, files, out=tmp_path / "q", delay=1, steps=4, **SETTINGS)
    told = json.loads((tmp_path / "q" / "run.json").read_text())["settings"]
    assert told["constraint"] == {"kind": "quantization_aware", "per": "channel", "delay": 1}
    assert told["keep_head"]
    # what comes back is a float model, and so is what stands in the directory
    assert all(layer.quantizer is None for _, layer in rounded(model))
    assert tensors(tmp_path / "q").keys() == tensors(run).keys()
    assert all((value == tensors(tmp_path / "q")[name]).all() for name, value in values(model).items())
    texts = world.sentences(8, 3)
    with eagerly():
        logits = [kb.predict(made, texts)[0].score for made in (model, quantize.simulated(tmp_path / "q"))]
    assert logits[0] != logits[1]


@pytest.mark.slow
@pytest.mark.parametrize("per", ["channel", *by_hand(["tensor"])])
def test_a_student_is_rounded_while_its_teacher_teaches(finetuned, files, tmp_path, per):
    """The model teaches itself: its layers are those of the plain run until they are rounded."""
    run = finetuned("bert", **WIDE)
    taught = {
        "losses": {"soft": 1.0, "hidden": 1.0},
        "quiet": True,
        "steps": 3,
        "batch": 8,
        "log_every": 1,
        "warmup": 0,
    }
    taught |= {"learning_rate": 1e-8}
    with eagerly():
        for name, constraint in (("plain", None), ("rounded", quantize.Aware(per, delay=1))):
            distill(run, run, files, out=tmp_path / name, constraint=constraint, **taught)
    logs = {}
    for name in ("plain", "rounded"):
        lines = map(json.loads, (tmp_path / name / "metrics.jsonl").read_text().splitlines())
        logs[name] = [line["hidden"] for line in lines if "hidden" in line]
    assert logs["rounded"][0] == logs["plain"][0]
    assert logs["rounded"][1] != logs["plain"][1]  # both have seen the same, and their weights hardly move
    assert (read_ranges(tmp_path / "rounded") is None) == (per == "channel")


def test_before_the_delay_nothing_is_rounded(finetuned, files, tmp_path):
    """The first update is that of fine-tuning, the second is not."""
    run = finetuned("bert", **WIDE)
    settings = SETTINGS | {"warmup": 0, "save_every": 1, "steps": 2}
    with eagerly():
        kb.finetune(run, "classification", files, out=tmp_path / "float", keep_head=True, **settings)
        quantize.aware(run, files, out=tmp_path / "rounded", delay=1, **settings)
    for step, same in ((1, True), (2, False)):
        folders = [tmp_path / name / "checkpoints" / f"step_{step}" for name in ("float", "rounded")]
        one, other = (Safetensors(folder / "weights.safetensors") for folder in folders)
        assert all((one.read(name) == other.read(name)).all() for name in one.names()) == same


class Stop(Exception):
    """Stands for a killed process."""


@pytest.mark.slow
@pytest.mark.parametrize(("per", "at"), [("channel", 1), *by_hand([("tensor", 3)])])
def test_a_resumed_run_is_the_same_to_the_bit(finetuned, files, tmp_path, monkeypatch, per, at):
    """Killed before rounding begins, and after; the ranges that were learned go on too."""
    arguments = {"per": per, "delay": 2, "steps": 5, "save_every": at} | SETTINGS
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
    for file in ("weights.safetensors", *(["quantization.json"] if per == "tensor" else [])):
        whole, cut = ((tmp_path / name / file).read_bytes() for name in ("whole", "cut"))
        assert whole == cut


@pytest.mark.slow
def test_two_replicas_train_as_one(files, tmp_path, finetuned):
    """The same weights, and ranges of the whole batch."""
    run = finetuned("bert", **WIDE, dropout=0.0)
    found = []
    for strategy in ("cpu", "cpu:2"):
        out = tmp_path / strategy.replace(":", "")
        forked("-m", "tests.mobile.quantize.worker", strategy, run, files["train"], files["dev"], out)
        found.append((tensors(out), read_ranges(out)))
    (one, ranges), (two, others) = found
    start = tensors(run)
    # a single weight whose gradient is nearly 0 is moved by its rounding, as far as the others, by Adam; all of a key's bias,
    # which softmax does not see
    for name in (name for name in one if not name.endswith("key/bias")):
        apart, moved = (float(np.linalg.norm(one[name] - other[name])) for other in (two, start))
        assert apart <= 5e-3 * moved, name  # 6e-4 at most, measured
    assert len(ranges) == len(others) == 7
    for name in ranges:
        np.testing.assert_allclose(ranges[name], others[name], rtol=1e-5)


def test_ranges_are_kept_beside_the_best_weights(finetuned, files, tmp_path):
    run = finetuned("bert", **WIDE)
    with eagerly():
        model = quantize.aware(run, files, out=tmp_path / "q", per="tensor", delay=1, steps=3, **SETTINGS)
    ranges = read_ranges(tmp_path / "q")
    assert ranges.keys() == {name for name, layer in rounded(model) if isinstance(layer, Linear)}
    assert all((found[:, 0] < 0).all() and (found[:, 1] > 0).all() for found in ranges.values())
    # keys and values read the same tensor (queries, in the last layer, its first token)
    one, two = (ranges[f"block_0/attention/{part}"] for part in ("key", "value"))
    np.testing.assert_array_equal(one[0], two[0])
    # a directory that is a plain model all the same
    assert tensors(tmp_path / "q").keys() == tensors(run).keys()
    (tmp_path / "q" / "quantization.json").write_text("{")
    with pytest.raises(InputError, match="quantization.json is damaged"):
        read_ranges(tmp_path / "q")
    with pytest.raises(InputError, match="quantization.json has no range of .*: it is of another model. Train"):
        attach_ranges(model, {})


@pytest.mark.full
def test_the_static_file_computes_with_the_ranges(hard, files, tmp_path):
    """Its products are int8 from end to end, and it says what the rounded model says."""
    from kerasbert.mobile.tflite import repack

    out, texts = tmp_path / "q", world.sentences(60, 5)
    quantize.aware(hard, files, out=out, per="tensor", steps=40, **SETTINGS | {"learning_rate": 2e-3})
    compress(out, "static_int8", tmp_path / "x.tflite", lengths=[16], texts=texts, min_agreement=0.9)
    data = (tmp_path / "x.tflite").read_bytes()
    model = repack.read(data)
    s = repack.schema()
    for graph in model.subgraphs:
        products = [
            [graph.tensors[int(index)].type for index in (operator.inputs[0], operator.outputs[0])]
            for operator in graph.operators
            if model.operatorCodes[operator.opcodeIndex].builtinCode == s.BuiltinOperator.FULLY_CONNECTED
        ]
        # the head's two labels stay float
        assert products.count([s.TensorType.INT8] * 2) == len(products) - 1 == 13
    file = load_file(tmp_path / "x.tflite", cache=False).outputs(texts)
    ours = reference(quantize.simulated(out), texts, 16)
    assert (file.argmax(1) == ours.argmax(1)).mean() >= 0.95


@pytest.fixture(scope="module")
def hard(tmp_path_factory, files):
    """A model that knows the task and is hard to quantize: one value of each head is 3,000 times the others.

    The output matrix takes it back, so that the float model does not notice (as of channels with outliers: Dettmers et
    al., 2022, section 4).
    """
    folder = tmp_path_factory.mktemp("hard")
    encoder = Subject("bert", folder, hidden=64, dropout=0.0).encoder(scale=0.05)
    settings = SETTINGS | {"learning_rate": 2e-3}
    model = kb.finetune(encoder, "classification", files, out=folder / "easy", steps=60, **settings)
    found = names(model)
    for name, variable in found.items():
        rows = np.zeros(64, bool)
        rows[::32] = True
        if name.endswith(("attention/value/kernel", "attention/value/bias")):
            variable.assign(variable.value.numpy() * np.where(rows, 3000, 1).astype("float32"))
        if name.endswith("attention/output/kernel"):
            variable.assign(variable.value.numpy() / np.where(rows, 3000, 1).astype("float32")[:, None])
    at = {"name": "bert/tiny", "heads": model.heads, "tokenizer": model.tokenizer, "labels": model.labels}
    save_model(folder / "hard", encoder=model.encoder, task=model.task.to_json(), **at)
    return folder / "hard"


@pytest.mark.full
def test_training_with_rounding_beats_rounding_afterwards(hard, files, tmp_path):
    """In agreement with the float model, on the same graph and the same texts."""
    texts = world.sentences(200, 9)

    def agreement(run):
        float_, int8 = (kb.predict(model, texts) for model in (kb.load(run), quantize.simulated(run)))
        return np.mean([one.label == other.label for one, other in zip(float_, int8, strict=True)])

    before = agreement(hard)
    quantize.aware(hard, files, out=tmp_path / "q", steps=60, **SETTINGS | {"learning_rate": 2e-3})
    after = agreement(tmp_path / "q")
    assert before < 0.95
    assert after > before + 0.03, (before, after)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"per": "chanel"}, "no kind of quantization 'chanel'. Nearest: 'channel'. All: channel, tensor"),
        ({"per": "tensor", "delay": 0}, "delay must be a whole number of at least 1. Received: 0"),
        ({"delay": -1}, "delay must be a whole number of at least 0. Received: -1"),
        ({"delay": 2.5}, "delay must be a whole number of at least 0. Received: 2.5"),
        ({"delay": 4, "steps": 4}, "delay must be below the number of updates, 4. Received: 4"),
    ],
)
def test_bad_settings(finetuned, files, tmp_path, arguments, message):
    with pytest.raises(InputError, match=message):
        quantize.aware(finetuned("bert", **WIDE), files, out=tmp_path / "q", **SETTINGS | arguments)
    assert not (tmp_path / "q").exists()


def test_a_model_without_large_matrices_is_refused(finetuned, files, tmp_path):
    run = finetuned("bert", **{"blocks.layers": 1})
    with pytest.raises(
        InputError, match="the model has no matrix of 1024 weights, expected one: its int8 file would be a float"
    ):
        quantize.aware(run, files, out=tmp_path / "q", **SETTINGS)


def test_a_model_without_a_task_is_refused(files, tmp_path):
    subject = Subject("bert", tmp_path, hidden=64)
    save_model(tmp_path / "e", encoder=subject.encoder(), name=subject.name, tokenizer=subject.tokenizer)
    with pytest.raises(InputError, match="is not fine-tuned: give the task to train it for, or fine-tune it first"):
        quantize.aware(tmp_path / "e", files, out=tmp_path / "q")

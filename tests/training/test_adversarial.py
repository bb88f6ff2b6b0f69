"""SMART, FreeLB, virtual adversarial training and R-Drop against their definitions, in float64 with differences for gradients."""

import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.layers import random
from kerasbert.layers.naming import names, values
from kerasbert.models.bert import Encoder
from kerasbert.spec import Spec
from kerasbert.tasks.base import Task
from kerasbert.testing.battery import eagerly
from kerasbert.training import adversarial, perturbed
from kerasbert.training.config import FinetuneConfig
from kerasbert.training.step import StepCore
from tests import tiny
from tests.support import forked

LABELS = {"0": "bad", "1": "fair", "2": "good"}
SPEC = Spec().derive(
    {
        "hidden": 6,
        "embeddings.vocabulary": 11,
        "embeddings.positions": 5,
        "attention.heads": 2,
        "feedforward.width": 7,
        "blocks.layers": 1,
        "dropout": 0.0,
        "attention.dropout": 0.0,
    }
)
MASK = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]])
BATCH = {
    "token_ids": np.array([[2, 7, 4, 9], [2, 5, 6, 0], [2, 10, 0, 0], [0, 0, 0, 0]], "int32"),
    "segment_ids": np.zeros((4, 4), "int32"),
    "padding_mask": MASK.astype("int32"),
    "label": np.array([2, 0, 1, 0], "int32"),
    "label_weight": np.array([1, 1, 1, 0], "float32"),  # the last row fills up the batch
    "row": np.arange(4, dtype="int32"),
}
REAL = 3  # rows that count


def made(name, task="classification", spec=SPEC, rate=0.0, accumulate=1, **settings):
    """A program with large weights, its step core, and the batch as tensors."""
    keras.utils.set_random_seed(3)
    encoder = Encoder(spec)
    encoder.build()
    labels = LABELS if task == "classification" else {}
    way = adversarial.way(name, {f"adversarial.{key}": value for key, value in settings.items()})
    program = perturbed.objective(encoder, Task("own", task, labels=labels), way)
    draw = np.random.default_rng(5)
    for weight in program.model.trainable_variables:
        weight.assign(draw.normal(1.0 if weight.path.endswith("gamma") else 0.0, 0.5, weight.shape))
    optimizer = keras.optimizers.SGD(rate)
    core = StepCore(program, optimizer, tf.distribute.get_strategy(), clip=0.0, accumulate=accumulate)
    program.begin(optimizer, 20)
    batch = BATCH | ({} if labels else {"label": np.array([0.3, -1.0, 0.8, 0.0], "float32")})
    return program, core, {key: tf.constant(value) for key, value in batch.items()}


def norm(x, weights, name):
    """The layer norm of a name."""
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-12) * weights[f"{name}/gamma"] + weights[f"{name}/beta"]


def forward(weights, change):
    """BERT of one layer in float64 (Devlin et al., 2019): the logits [4, C] with `change` added to the word embeddings."""

    def linear(x, name):
        return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]

    words = weights["embeddings/tokens/table"][BATCH["token_ids"]] + change
    x = words + weights["embeddings/positions/table"][:4] + weights["embeddings/segments/table"][0]
    x = norm(x, weights, "embeddings/norm")
    q, k, v = (
        linear(x, f"block_0/attention/{each}").reshape(4, 4, 2, 3).swapaxes(1, 2) for each in ("query", "key", "value")
    )
    scores = q @ k.swapaxes(2, 3) / np.sqrt(3) + np.where(MASK, 0.0, -100.0)[:, None, None]
    read = softmax(scores) @ v
    x = norm(x + linear(read.swapaxes(1, 2).reshape(4, 4, 6), "block_0/attention/output"), weights, NORMS[0])
    inner = linear(x, "block_0/feedforward/inner")
    inner = inner * (1 + np.vectorize(math.erf)(inner / np.sqrt(2))) / 2
    x = norm(x + linear(inner, "block_0/feedforward/outer"), weights, NORMS[1])
    return linear(np.tanh(linear(x[:, 0], "pooler")), "heads/classifier")


NORMS = "block_0/attention_norm", "block_0/feedforward_norm"


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def nats(logits):
    """The cross-entropy of each row that counts."""
    return -np.log(softmax(logits)[np.arange(4), BATCH["label"]])[:REAL]


def kl(one, other):
    p, q = softmax(one), softmax(other)
    return (p * np.log(p / q)).sum(-1)[:REAL]


def slope(function, x, step=1e-5):
    """The gradient of a number by an array, by central differences."""
    found = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        moved = np.zeros_like(x)
        moved[at] = step
        found[at] = (function(x + moved) - function(x - moved)) / (2 * step)
    return found


def rows(x):
    """The norm of each row, [B, 1, 1]."""
    return np.sqrt((x**2).sum((1, 2), keepdims=True))


def check(program, core, batch, loss, weights):
    """The step's loss and gradients are those of a number of the weights.

    Args:
        loss: weights -> float.
    """
    gradients, logs = core._backward(batch)
    assert float(logs["loss"]) == pytest.approx(loss(weights), rel=1e-4)
    named = dict(zip((name_of(program, each) for each in core.variables_of_model), gradients))
    for name in ("heads/classifier/kernel", "block_0/attention/query/kernel", "embeddings/positions/table"):
        wanted = slope(lambda value, name=name: loss(weights | {name: value}), weights[name])
        np.testing.assert_allclose(named[name], wanted, atol=2e-4 * np.abs(wanted).max())


def name_of(program, variable):
    return next(name for name, each in names(program.model).items() if each is variable)


def float64(program):
    return {name: value.astype("float64") for name, value in values(program.model).items()}


def begun(program, batch, draw=random.normal):
    """What the step draws for the word embeddings in its first update."""
    with random.scope(random.key(0, "dropout", tf.constant(0)), batch["row"]):
        return np.asarray(program.drawn(batch, draw), "float64")


def changed(program, batch):
    """What the step adds to the word embeddings in its first update."""
    with random.scope(random.key(0, "dropout", tf.constant(0)), batch["row"]):
        return np.asarray(program.perturbed(batch)[perturbed.CHANGE], "float64")


def test_freelb_is_algorithm_1():
    program, core, batch = made("freelb", steps=3, step_size=0.4, radius=0.5)
    weights, start = float64(program), changed(program, batch)
    # uniform in [-radius, radius] / sqrt(numbers), of real tokens alone
    bound = 0.5 / np.sqrt(6 * MASK.sum(1))[:, None, None]
    uniform = (start / bound)[MASK > 0]
    assert not start[MASK == 0].any()
    assert np.abs(uniform).max() <= 1 + 1e-6
    assert uniform.min() < -0.7 < 0.7 < uniform.max()
    places, change = [], start
    for _ in range(3):
        places.append(change)
        g = slope(lambda x: nats(forward(weights, x)).mean(), change)
        change = change + 0.4 * np.divide(g, rows(g), where=rows(g) > 0, out=np.zeros_like(g))
        change = change * np.minimum(1, 0.5 / np.maximum(rows(change), 1e-30))
    assert rows(places[2])[:REAL].max() == pytest.approx(0.5)  # it is projected
    check(
        program,
        core,
        batch,
        lambda weights: np.mean([nats(forward(weights, each)).mean() for each in places]),
        weights,
    )


def test_smart_is_algorithm_1():
    settings = {"weight": 2.0, "proximal": 0.5, "steps": 2, "step_size": 0.1, "radius": 0.12, "noise": 0.05}
    program, core, batch = made("smart", **settings)
    weights, draw = float64(program), np.random.default_rng(8)
    for mean in program.earlier:
        mean.assign_add(draw.normal(0, 0.3, mean.shape))
    earlier = {name_of(program, each): np.asarray(mean) for each, mean in zip(program.weights, program.earlier)}
    old, clean = forward(earlier, 0), forward(weights, 0)

    def far(one, other):
        return kl(one, other) + kl(other, one)

    change = 0.05 * begun(program, batch)
    for _ in range(2):
        g = slope(lambda x: far(clean, forward(weights, x)).mean(), change) * MASK[..., None]
        change = change + 0.1 * g / np.maximum(np.abs(g).max((1, 2), keepdims=True), 1e-30)
        change = np.clip(change, -0.12, 0.12)
    assert (np.abs(change) == 0.12).any()
    np.testing.assert_allclose(changed(program, batch), change, atol=2e-4)

    def loss(weights):
        own = forward(weights, 0)
        return (nats(own) + 2.0 * far(own, forward(weights, change)) + 0.5 * far(own, old)).mean()

    check(program, core, batch, loss, weights)


def test_smarts_weights_of_before_follow_at_the_papers_pace():
    program, core, batch = made("smart", rate=0.1)  # of 20 updates two are the first tenth
    mean = [np.asarray(each) for each in program.earlier]
    for beta in (0.99, 0.99, 0.999):
        with eagerly():
            core.step(batch)
        mean = [beta * old + (1 - beta) * np.asarray(new) for old, new in zip(mean, program.weights)]
    assert max(np.abs(old - np.asarray(new)).max() for old, new in zip(mean, program.weights)) > 0.05
    for wanted, found in zip(mean, program.earlier):
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_virtual_adversarial_training_is_algorithm_1_on_normalised_embeddings():
    program, core, batch = made("vat", weight=1.5, steps=2, noise=0.1, radius=0.4)
    weights, clean = float64(program), forward(float64(program), 0)
    scale, d = weights["embeddings/tokens/table"].std(0), begun(program, batch)
    for _ in range(2):
        d = d / rows(d)
        g = slope(lambda r: kl(clean, forward(weights, scale * r)).sum(), 0.1 * d) * MASK[..., None]
        d = np.where(rows(g) > 0, g, 0.0)
        d[REAL:] = 1.0  # of no weight
    change = 0.4 * scale * d / rows(d)
    np.testing.assert_allclose(changed(program, batch)[:REAL], change[:REAL], atol=2e-4)

    def loss(weights):
        return (nats(forward(weights, 0)) + 1.5 * kl(clean, forward(weights, change))).mean()

    check(program, core, batch, loss, weights)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_r_drop_is_equation_4(task, monkeypatch):
    program, _, batch = made("r_drop", task, SPEC.derive({"dropout": 0.1}), weight=0.7)
    draw = np.random.default_rng(2)
    one, other = (draw.normal(size=(4, 3 if task == "classification" else 1)) for _ in range(2))
    passes = iter([one, other])
    monkeypatch.setattr(program, "read", lambda *_: ({}, tf.constant(next(passes), tf.float32)))
    sums, counts = program.losses(batch), program.counts(batch)
    loss = sum(scale * float(sums[name] / counts[name]) for name, scale in program.scales.items())
    if task == "classification":
        wanted = nats(one) + nats(other) + 0.7 / 2 * (kl(one, other) + kl(other, one))
    else:
        label = np.asarray(batch["label"])
        wanted = ((one[:, 0] - label) ** 2 + (other[:, 0] - label) ** 2 + 0.7 * (one - other)[:, 0] ** 2)[:REAL]
    assert loss == pytest.approx(wanted.mean(), rel=1e-5)


def test_r_drops_passes_drop_other_numbers_out_and_freelbs_the_same():
    spec = SPEC.derive({"dropout": 0.3})
    _, core, batch = made("r_drop", spec=spec)
    assert float(core._backward(batch)[1]["consistency"]) > 0.01
    _, core, batch = made("freelb", spec=spec, step_size=1e-9, radius=1e-7)
    _, alone, _ = made(None, spec=spec)
    for one, other in zip(core._backward(batch)[0], alone._backward(batch)[0]):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_numbers_are_apart_by_their_squared_difference():
    program, _, batch = made("smart", "regression", proximal=0.0)
    one, other = tf.constant([[1.0], [2.0], [3.0], [4.0]]), tf.constant([[1.5], [1.0], [3.0], [9.0]])
    assert float(program.apart(batch, one, other)) == pytest.approx(1.25)  # the last row fills up the batch
    assert set(program.scales) == {"label", "smoothness"}


@pytest.mark.slow
def test_any_split_of_the_batch_and_a_stop_give_the_same_weights(pretrained, tmp_path):
    tiny.labelled(tmp_path / "train.tsv", 40)
    tiny.labelled(tmp_path / "dev.tsv", 10, seed=1)
    done = forked("-m", "tests.training.adversarial_worker", pretrained, tmp_path)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("stopped") == 0.0
    assert set(found) == set(adversarial.WAYS)
    for name, distances in found.items():
        assert distances["split"] <= 2e-6, name
        assert distances["plain"] > 1e-3, name  # the way changes what is learnt


REFUSED = [
    ({"adversarial": "smrt"}, "no adversarial 'smrt'. Nearest: 'smart'. All: smart, freelb, vat, r_drop"),
    ({"changes": {"adversarial.steps": 2}}, "adversarial.steps is a setting of --adversarial, which is not given"),
    (
        {"adversarial": "freelb", "changes": {"adversarial.step": 2}},
        "adversarial 'freelb' has no setting 'step'. Nearest: 'steps'",
    ),
    (
        {"adversarial": "freelb", "changes": {"adversarial.steps": 1}},
        "adversarial.steps must be at least 2. Received: 1",
    ),
    (
        {"adversarial": "vat", "changes": {"adversarial.radius": 0}},
        "adversarial.radius must be more than 0. Received: 0",
    ),
    (
        {"adversarial": "vat", "changes": {"adversarial.radius": "far"}},
        "adversarial.radius must be float. Received: 'far'",
    ),
    (
        {"adversarial": "smart", "precision": "mixed_bfloat16"},
        "adversarial 'smart' changes word embeddings by less than mixed_bfloat16 resolves, expected --precision float32",
    ),
]


@pytest.mark.parametrize(("settings", "line"), REFUSED)
def test_what_does_nothing_is_refused(settings, line):
    with pytest.raises(InputError) as error:
        FinetuneConfig(out="run", **settings)
    assert line in str(error.value)


def test_models_and_tasks_that_cannot_are_refused():
    with pytest.raises(InputError, match="r_drop compares passes with other dropout, and the model has none"):
        made("r_drop")
    with pytest.raises(
        InputError, match="adversarial is for answers of labels or numbers, received a vector: leave it"
    ):
        made("freelb", "vector")
    encoder = Encoder(SPEC)
    encoder.build()
    encoder.embeddings = None
    with pytest.raises(InputError, match="adversarial changes word embeddings, and Encoder has none: take r_drop"):
        perturbed.objective(encoder, Task("own", labels=LABELS), adversarial.way("vat", {}))


def test_a_run_says_how_it_was_trained(pretrained, tmp_path, capsys):
    tiny.labelled(tmp_path / "train.tsv", 20)
    tiny.labelled(tmp_path / "dev.tsv", 10, seed=1)
    line = f"finetune {pretrained} --task classification --data {tmp_path} --steps 1 --batch 10 --length 12"
    with eagerly():
        main(f"{line} --out {tmp_path / 'run'} --adversarial smart --set adversarial.weight=3".split())
    capsys.readouterr()
    settings = json.loads((tmp_path / "run/run.json").read_text())["settings"]
    assert settings["adversarial"] == {"name": "smart", **vars(adversarial.Smart(weight=3.0))}
    record = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[0])
    assert {"label", "smoothness", "proximity"} <= set(record)
    with pytest.raises(InputError, match="adversarial is of one task, received several: leave it out"):
        kb.finetune_tasks(pretrained, {"classification": tmp_path}, out=tmp_path / "two", adversarial="vat")

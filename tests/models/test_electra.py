"""ELECTRA: the generator's samples, the labels of what was replaced, one set of embeddings, the same on any replicas."""

import json
import math
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints import read_tensors
from kerasbert.layers import backend, random
from kerasbert.layers.naming import names
from kerasbert.models.electra import ElectraPretraining, substitute
from kerasbert.objectives.masked_lm import MaskedLM
from kerasbert.tasks.load import load
from tests import tiny
from tests.support import forked

SMALL = {
    "hidden": 40,
    "embeddings.vocabulary": 61,
    "embeddings.positions": 24,
    "attention.heads": 5,
    "feedforward.width": 52,
    "blocks.layers": 2,
}
TOKENIZER = types.SimpleNamespace(size=61, mask_id=4, special_ids=(0, 1, 2, 3, 4))


def program(size="small", seed=1, **changes):
    keras.utils.set_random_seed(seed)
    family, spec = registry.find(f"electra/{size}")
    encoder = family.encoder(spec.derive(SMALL | changes))
    encoder.build()
    return ElectraPretraining(encoder, TOKENIZER)


def features(rows=8, length=20, seed=0):
    generator = np.random.default_rng(seed)
    total = generator.integers(length // 2, length + 1, rows).astype("int32")
    ids = generator.integers(5, 61, (rows, length)).astype("int32")
    ids[:, 0], ids[np.arange(rows), total - 1] = 2, 3
    ids[np.arange(length) >= total[:, None]] = 0
    count = np.arange(rows, dtype="int32")
    found = {"token_ids": ids, "segment_lengths": np.stack([total, 0 * total], 1), "row": count, "example": count}
    return {name: tf.constant(value) for name, value in found.items()} | {
        "step": tf.zeros(rows, tf.int32),
        "epoch": tf.zeros(rows, tf.int32),
    }


def run(made, batch, seed=0, training=False):
    with random.scope(random.key(seed, "test"), batch["row"]):
        return made.model(batch, training=training)


@pytest.fixture(scope="module")
def small():
    return program(initializer=0.3)


@pytest.fixture(scope="module")
def batch(small):
    return small.prepare(features())


@pytest.mark.parametrize(
    ("size", "width", "heads", "inner"), [("small", 64, 1, 256), ("base", 256, 4, 1024), ("large", 256, 4, 1024)]
)
def test_the_generator_is_the_fraction_of_table_6(size, width, heads, inner):
    spec = registry.find(f"electra/{size}")[1]
    made = spec.of_generator()
    assert (made.hidden, made.attention.heads, made.head_size, made.feedforward.width) == (width, heads, 64, inner)
    assert (made.blocks, made.embeddings.width) == (spec.blocks, spec.embeddings.width or spec.hidden)
    half = spec.derive({"generator.share": 0.5}).of_generator()
    assert (half.hidden, half.feedforward.width) == (spec.hidden // 2, spec.feedforward.width // 2)


def test_the_arithmetic_is_of_both_networks():
    from kerasbert.training.flops import update_flops

    spec = registry.find("electra/base")[1]
    both = sum(update_flops(part, 512.0, 1.0, count) for part, count in ElectraPretraining.networks(spec, 77.0))
    # the paper's own code counts 6.4e19 for 766,000 updates of 256 sequences (table 1)
    assert both * 256 * 766_000 == pytest.approx(6.4e19, rel=0.1)


def test_labels_by_hand():
    inputs = {
        "token_ids": tf.constant([[2, 4, 11, 4, 3, 0], [2, 20, 21, 22, 4, 3]]),
        "mlm_positions": tf.constant([[1, 2, 3], [4, 0, 0]]),
        "mlm_labels": tf.constant([[10, 11, 12], [23, 0, 0]]),
        "mlm_weights": tf.constant([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]),
    }
    # of the first row's samples the third is the token that stood there; the second row's unused places change nothing
    ids, replaced = substitute(inputs, tf.constant([[30, 31, 12], [40, 50, 51]]))
    assert ids.numpy().tolist() == [[2, 30, 31, 12, 3, 0], [2, 20, 21, 22, 40, 3]]
    assert replaced.numpy().astype(int).tolist() == [[0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0]]


def test_losses_by_hand(small, batch):
    outputs = run(small, batch)
    sums = {name: float(value) for name, value in small.sums(outputs, batch).items()}
    real = batch["padding_mask"].numpy() > 0
    chosen = batch["mlm_weights"].numpy() > 0
    p = 1 / (1 + np.exp(-outputs["rtd_logits"].numpy().astype("float64")))
    replaced = outputs["replaced"].numpy()
    assert sums["rtd"] == pytest.approx(-np.log(np.where(replaced, p, 1 - p))[real].sum(), rel=1e-5)
    assert sums["rtd/accuracy"] == ((p > 0.5) == replaced)[real].sum()
    assert sums["rtd/replaced"] == replaced.sum() == replaced[real].sum() > 0
    same = outputs["sampled"].numpy() == batch["mlm_labels"].numpy()
    assert sums["mlm/sampled_original"] == same[chosen].sum()
    assert small.scales == {"mlm": 1.0, "rtd": 50.0}
    counts = {name: float(value) for name, value in small.counts(batch).items()}
    assert counts == {"mlm": chosen.sum(), "rtd": real.sum()}


def test_labels_are_exactly_where_the_sample_differs(small, batch):
    original = features()["token_ids"].numpy()
    outputs = run(small, batch)
    corrupted, replaced = outputs["corrupted_ids"].numpy(), outputs["replaced"].numpy()
    np.testing.assert_array_equal(replaced, corrupted != original)
    # every selected place holds its sample, whether the generator saw [MASK] or not, and no other place changed
    selected = np.zeros(original.shape, bool)
    rows, places = np.nonzero(batch["mlm_weights"].numpy())
    positions = batch["mlm_positions"].numpy()[rows, places]
    selected[rows, positions] = True
    np.testing.assert_array_equal(corrupted[rows, positions], outputs["sampled"].numpy()[rows, places])
    np.testing.assert_array_equal(corrupted[~selected], original[~selected])


def test_special_tokens_and_padding_are_never_replaced(small):
    for seed in range(3):
        given = features(rows=32, seed=seed)
        batch = small.prepare(given)
        special = given["token_ids"].numpy() < 5
        assert not run(small, batch, seed)["replaced"].numpy()[special].any()


def test_85_of_100_selected_tokens_are_masked_and_the_others_kept(small):
    given = features(rows=2000, seed=5)
    made = small.prepare(given)
    chosen = made["mlm_weights"].numpy() > 0
    seen = np.take_along_axis(made["token_ids"].numpy(), made["mlm_positions"].numpy(), 1)[chosen]
    labels = made["mlm_labels"].numpy()[chosen]
    masked = seen == 4
    np.testing.assert_array_equal(seen[~masked], labels[~masked])
    n = len(seen)
    assert abs(masked.sum() - 0.85 * n) <= 3 * math.sqrt(n * 0.85 * 0.15)


def test_samples_follow_the_softmax():
    logits = np.array([2.0, 1.0, 0.0, -1.0, -30.0], "float32")
    rows, places = 500, 200
    keys = random.key(3, "x", np.arange(rows))
    drawn = np.asarray(random.sample(np.broadcast_to(logits, (rows, places, 5)), keys))
    p, n = np.exp(logits) / np.exp(logits).sum(), rows * places
    found = np.bincount(drawn.ravel(), minlength=5)
    assert (np.abs(found - n * p) <= 3 * np.sqrt(n * p * (1 - p)) + 1e-3).all(), found / n
    # neighbours, in a row and in a column, are drawn independently
    for one, other in ((drawn[:, 1:], drawn[:, :-1]), (drawn[1:], drawn[:-1])):
        same, expected = (one == other).mean(), (p**2).sum()
        # pairs that share a token vary together
        variance = expected * (1 - expected) + 2 * ((p**3).sum() - expected**2)
        assert abs(same - expected) <= 3 * math.sqrt(variance / one.size)


def test_a_flat_softmax_over_a_large_vocabulary_favours_no_part_of_it():
    drawn = np.asarray(random.sample(np.zeros((20, 50, 30522), "float32"), random.key(0, np.arange(20)))).ravel()
    counts = np.bincount(drawn // 3053, minlength=10)
    assert (np.abs(counts - 100) <= 3 * math.sqrt(1000 * 0.1 * 0.9)).all(), counts


def test_argmax_for_a_tpu_is_the_plain_one():
    x = np.random.default_rng(0).integers(0, 4, (5, 7, 9)).astype("float32")
    plain = backend.argmax(tf.constant(x))
    with backend.as_tpu():
        np.testing.assert_array_equal(backend.argmax(tf.constant(x)), plain)
    np.testing.assert_array_equal(plain, x.argmax(-1))


def test_no_gradient_goes_through_the_samples(small, batch):
    variables = {name: variable.value for name, variable in names(small.model).items()}
    with tf.GradientTape(persistent=True) as tape:
        sums = small.sums(run(small, batch), batch)
    of_rtd, of_mlm = (tape.gradient(sums[loss], list(variables.values())) for loss in ("rtd", "mlm"))
    for name, rtd, mlm in zip(variables, of_rtd, of_mlm):
        shared = name.startswith("embeddings/") and "projection" not in name
        found = (rtd is not None, mlm is not None)
        assert found == ((True, True) if shared else (False, True) if "generator/" in name else (True, False)), name


def test_embeddings_are_one_set_and_weights_are_listed_once(small):
    listed = [id(variable) for variable in small.model.trainable_variables]
    assert len(set(listed)) == len(listed)
    assert {id(variable) for variable in names(small.model).values()} == set(listed)
    tables = [name for name in names(small.model) if name.endswith("/table")]
    assert tables == [f"embeddings/{part}/table" for part in ("tokens", "positions", "segments")]
    generator = {name.split("/")[2] for name in names(small.model) if name.startswith("heads/generator/")}
    assert generator == {"projection", "block_0", "block_1", "mlm"}


def test_no_projection_where_the_widths_agree():
    made = program(size="base", **{"generator.share": 1.0})
    assert not [name for name in names(made.model) if "projection" in name]


def test_a_row_alone_is_the_row_in_its_batch(small, batch):
    whole = run(small, batch, training=True)
    part = {name: value[3:5] for name, value in batch.items()}
    alone = run(small, part, training=True)
    np.testing.assert_array_equal(alone["sampled"], whole["sampled"][3:5])
    np.testing.assert_allclose(alone["rtd_logits"], whole["rtd_logits"][3:5], atol=1e-5)
    other = run(small, batch, seed=1)
    assert (other["sampled"].numpy() != whole["sampled"].numpy()).mean() > 0.5


@pytest.mark.slow
def test_pairs_are_taken_and_their_labels_are_not_asked_for():
    keras.utils.set_random_seed(0)
    family, spec = registry.find("electra/small")
    encoder = family.encoder(spec.derive(SMALL))
    made = ElectraPretraining(encoder, TOKENIZER, features=["next_label"])
    assert set(made.model.heads) == {"generator", "rtd"}
    assert set(made.scales) == {"mlm", "rtd"}


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("electra")
    data = tiny.records(folder, "full")
    kb.pretrain(
        "electra/small", data, steps=30, out=folder / "run", batch=16, changes=tiny.SPEC, learning_rate=3e-3, quiet=True
    )
    return folder


@pytest.mark.slow
def test_both_losses_fall(pretrained):
    lines = [json.loads(line) for line in (pretrained / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["mlm"] < 3.5 < math.log(75)  # of 75 pieces
    assert lines[-1]["rtd"] < 0.6 < math.log(2)
    assert 0.05 < lines[-1]["rtd/replaced"] < 0.16


@pytest.mark.slow
def test_the_generator_lives_in_the_run_and_nowhere_else(pretrained, tmp_path):
    heads = {name.split("/")[1] for name in read_tensors(pretrained / "run").names() if name.startswith("heads/")}
    assert heads == {"generator", "rtd"}
    encoder = load(pretrained / "run")
    assert not [name for name in names(encoder) if "heads" in name]
    kb.finetune(
        pretrained / "run",
        task="classification",
        data=tiny.labelled(tmp_path / "train.tsv"),
        out=tmp_path / "tuned",
        steps=2,
        batch=8,
        quiet=True,
    )
    tuned = read_tensors(tmp_path / "tuned").names()
    assert {name.rpartition("/")[0] for name in tuned if name.startswith("heads/")} == {
        "heads/classifier",
        "heads/classifier/inner",
    }
    for target in ("hf", "tf1"):
        kb.export_checkpoint(pretrained / "run", tmp_path / target, target)
        back = kb.import_checkpoint(tmp_path / target, target, model="electra")
        assert set(back.heads) == {"rtd"}
        assert back.spec == encoder.spec
        for name, variable in names(back).items():
            np.testing.assert_array_equal(variable.value, names(encoder)[name].value)


@pytest.mark.slow
def test_pretraining_goes_on_from_its_own_run(pretrained, tmp_path):
    kb.pretrain(pretrained / "run", pretrained / "records-full", steps=1, out=tmp_path / "more", batch=8, quiet=True)
    one, other = (read_tensors(folder / name) for folder, name in ((pretrained, "run"), (tmp_path, "more")))
    name = "heads/generator/mlm/transform/kernel"
    # one update of at most the learning rate a weight
    assert 0 < np.abs(one.read(name) - other.read(name)).max() < 2e-4


WORKER = """
import sys, json, numpy as np, tensorflow as tf
from kerasbert.training.strategy import strategy as make
settings = json.loads(sys.argv[2])
devices = make(settings["strategy"])
from kerasbert.layers.naming import values
from kerasbert.training.optimizers import make_optimizer
from kerasbert.training.step import StepCore, distribute
from kerasbert.training.config import TrainConfig
from tests.models.test_electra import features, program
with devices.scope():
    made = program(**{"initializer": 0.1})
    optimizer = make_optimizer(TrainConfig(6, 8, 1e-3, warmup=1))
core = StepCore(made, optimizer, devices, accumulate=settings["accumulate"], clip=0.5)
for step in range(6):
    batch = made.prepare(features(seed=step) | {"step": tf.fill([8], step)})
    logs = core.step(distribute({name: value.numpy() for name, value in batch.items()}, devices))
np.savez(sys.argv[1], **values(made.model), **{f"log/{name}": float(value) for name, value in logs.items()})
"""


@pytest.mark.full  # the battery compares two replicas, and any accumulation
def test_two_replicas_with_accumulation_equal_one(tmp_path):
    found = []
    for number, settings in enumerate(({"strategy": "cpu", "accumulate": 1}, {"strategy": "cpu:2", "accumulate": 2})):
        out = tmp_path / f"{number}.npz"
        forked("-c", WORKER, out, json.dumps(settings))
        found.append(dict(np.load(out)))
    one, two = found
    assert one["log/rtd/replaced"] == pytest.approx(two["log/rtd/replaced"], abs=1e-7)
    assert max(np.abs(one[name] - two[name]).max() for name in one if not name.startswith("log/")) <= 1e-6


@pytest.mark.parametrize(("name", "rate"), [("small", 0.15), ("base", 0.15), ("large", 0.25)])
def test_large_masks_a_quarter(name, rate):
    """Clark et al., 2020, table 6, and the released configure_pretraining.py."""
    family, spec = registry.find(f"electra/{name}")
    masking = MaskedLM(**registry.objective(family.objective).defaults_of(spec))
    assert (masking.rate, masking.mask, masking.random) == (rate, 0.85, 0.0)

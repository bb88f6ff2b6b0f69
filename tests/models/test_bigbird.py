"""BigBird: counts, refused settings, blocks against all scores. Parity: tests/checkpoints/test_parity_bigbird.py."""

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert import mobile, models, registry
from kerasbert.errors import InputError
from kerasbert.layers import block_sparse
from kerasbert.layers.naming import names
from kerasbert.mobile.runtime import load
from kerasbert.models.bigbird import BIGBIRD
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import find_task
from kerasbert.testing import battery, world

SIZES = {
    "hidden": 16,
    "attention.heads": 2,
    "feedforward.width": 24,
    "blocks.layers": 2,
    "embeddings.vocabulary": 50,
    "embeddings.positions": 40,
    "sparse.block": 2,
    "sparse.random": 1,
    "dropout": 0.0,
}


def tiny(**changes):
    """A built encoder with weights far from zero."""
    model = BIGBIRD.encoder(BIGBIRD.spec.derive(SIZES | changes))
    model.build()
    generator = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(generator.normal(0, 0.3, weight.shape))
    model.model_name = "bigbird/base"
    return model


def given(length=31, rows=2):
    ids = np.random.default_rng(0).integers(5, 50, (rows, length)).astype("int32")
    mask = (np.arange(length) < length - 4 * np.arange(rows)[:, None]).astype("int32")
    return {"token_ids": ids, "padding_mask": mask}


@pytest.mark.parametrize(("size", "count"), [("base", 127_468_800), ("large", 359_123_968)])
def test_the_released_sizes(size, count):
    assert models.parameters(BIGBIRD.encoder, registry.find(f"bigbird/{size}")[1]) == count


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sparse.block": 0}, "sparse.block must be at least 1. Received: 0"),
        ({"sparse.random": -1}, "sparse.random must be at least 0. Received: -1"),
        ({"sparse.plan": "any"}, "sparse.plan must be one of drawn, first, full. Received: 'any'"),
        ({"attention.causal": True}, "attention.causal needs sparse.plan 'full'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        BIGBIRD.spec.derive(changes)


@pytest.mark.parametrize("changes", [{}, {"sparse.plan": "first", "sparse.block": 3, "blocks.norm": "pre"}])
def test_blocks_give_what_all_scores_give(changes):
    """With padding and with packed pieces, and of some tokens alone."""
    model = tiny(**changes)
    pieces = given()["padding_mask"] * np.repeat([1, 2, 3], [9, 15, 7]).astype("int32")
    for told in (
        given(),
        given(model.spec.sparse.limit + 1),
        {"token_ids": given()["token_ids"], "packed_ids": pieces},
    ):
        real = np.asarray(told.get("padding_mask", pieces)) > 0
        over_blocks, every = (np.asarray(model(told, attention=each)["sequence"]) for each in (False, True))
        np.testing.assert_allclose(over_blocks[real], every[real], atol=2e-6)
        for queries, picked in (("first", [[0], [0]]), (np.array([[7, 1], [0, 10]], "int32"), None)):
            some = model(told, queries=queries)["sequence"]
            wanted = np.take_along_axis(over_blocks, np.array(picked or queries)[..., None], axis=1)
            np.testing.assert_allclose(some, wanted, atol=2e-6)
    found = model(given(), queries=np.array([[7, 1], [0, 10]], "int32"), attention=True)
    assert [tuple(each.shape) for each in found["attention"]] == [(2, 2, 31, 31), (2, 2, 2, 31)]
    whole = np.asarray(model(given(), attention=True)["attention"][1])
    np.testing.assert_allclose(found["attention"][1][0], whole[0][:, [7, 1]], atol=1e-6)


def test_a_graph_of_rows_of_any_length():
    model = tiny(**{"embeddings.positions": 1026, "sparse.block": 32})
    graph = tf.function(
        lambda told: model(told)["sequence"],
        input_signature=[{name: tf.TensorSpec([None, None], "int32") for name in given()}],
    )
    for length in (9, 224, 225, 1010, 1025):  # the last two with the released code's plan and without
        real = given(length)["padding_mask"] > 0
        found, expected = (np.asarray(each) for each in (graph(given(length)), model(given(length))["sequence"]))
        np.testing.assert_allclose(found[real], expected[real], atol=5e-6)


def test_a_token_sees_its_neighbours_both_ends_and_what_is_drawn():
    """Appendix D, of one layer: what changes where a token changes."""
    model = tiny(**{"blocks.layers": 1, "sparse.block": 1, "attention.heads": 1})
    ids = given(20, 1)["token_ids"]
    drawn = block_sparse.plans(model.spec.sparse, 1, 40, 0)[0][0, :18, 0]
    before = np.asarray(model({"token_ids": ids})["sequence"])[0]
    seen = np.zeros((20, 20), bool)
    for key in range(20):
        other = ids.copy()
        other[0, key] = 5 + (ids[0, key] - 4) % 45
        seen[:, key] = np.abs(np.asarray(model({"token_ids": other})["sequence"])[0] - before).max(-1) > 1e-6
    expected = np.abs(np.subtract.outer(np.arange(20), np.arange(20))) <= 1
    expected[[0, -1]] = expected[:, [0, -1]] = True
    expected[np.arange(1, 19), drawn] = True
    np.testing.assert_array_equal(seen, expected)
    assert expected[1:-1].sum(1).max() == 6


def test_the_gradient_over_blocks_is_that_of_all_scores():
    model, told = tiny(), given()
    weights = [weight.value for weight in model.trainable_weights]
    found = []
    for attention in (False, True):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(told, attention=attention)["sequence"][0] ** 2 * 0.1)
        found.append(
            [tf.convert_to_tensor(each) if each is not None else None for each in tape.gradient(loss, weights)]
        )
    for one, other in zip(*found, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_allclose(one, other, atol=1e-4)


def test_every_layer_draws_its_own_plan():
    plans = [block_sparse.plans(BIGBIRD.spec.sparse, 12, 4096, seed) for seed in range(2)]
    assert [each.shape for each in plans[0]] == [(12, 62, 3)] * 2
    assert (plans[0][0] != plans[1][0]).any()
    assert all((np.sort(each, -1)[..., 1:] > np.sort(each, -1)[..., :-1]).all() for each in plans[0])
    assert plans[0][0].max() < 10  # up to block 2r + 4
    assert plans[0][1].max() < 16  # up to token 1,024


def test_choices_are_read_by_the_pooler_and_labels_by_a_layer_of_their_own():
    """As their classes do."""
    model = tiny()
    for task, inner in (("glue/sst2", True), ("glue/stsb", True), ("swag", False)):
        made = TaskModel(model, find_task(task))
        made.build()
        assert ("heads/classifier/inner/kernel" in names(made)) == inner
        vector = model(given())["sequence"][:, 0] if inner else model(given())["pooled"]
        value = next(iter(made(given()).values()))
        np.testing.assert_allclose(np.ravel(value), np.ravel(made.heads["classifier"](vector)), atol=1e-6)


def test_flops_and_memory_count_the_blocks_that_are_attended():
    spec = BIGBIRD.spec
    assert [spec.seen(0, length) for length in (704, 705, 4096)] == [704, 640, 640]
    assert spec.derive({"sparse.plan": "full"}).seen(0, 4096) == 4096


def padded(model, texts: list[str], length: int) -> dict[str, np.ndarray]:
    """Rows of texts, filled up to a length."""
    packed = [model.tokenizer.pack(text) for text in texts]
    rows = {name: np.zeros((len(texts), length), "int32") for name in ("token_ids", "padding_mask", "segment_ids")}
    for row, each in enumerate(packed):
        rows["token_ids"][row, : len(each[0])] = each[0]
        rows["padding_mask"][row, : len(each[0])] = 1
    return rows


@pytest.mark.slow
def test_pretraining_and_tasks_over_blocks_and_a_file_for_a_phone(tmp_path):
    """Rows of 24 tokens, of which 11 would have full attention."""
    subject = battery.Subject("bigbird", tmp_path, **{"sparse.block": 1, "dropout": 0.0})
    assert subject.spec.sparse.limit < battery.LENGTH
    program = subject.program(subject.encoder())
    batch = subject.batch(program)
    battery.check_gradients(subject, program, batch)
    battery.check_two_steps(program, batch)
    files = {
        "train": world.labelled(tmp_path / "train.tsv", 200),
        "dev": world.labelled(tmp_path / "dev.tsv", 40, seed=1),
    }
    model = kb.finetune(
        subject.encoder(scale=0.1),
        "classification",
        files,
        out=tmp_path / "run",
        steps=60,
        batch=20,
        length=24,
        learning_rate=3e-3,
        quiet=True,
    )
    assert kb.evaluate(model, files["dev"])["metrics"]["accuracy"] > 0.75
    texts = world.first_column(files["dev"])
    texts += [" ".join(text.split()[:4]) for text in texts[:10]]  # of 8 tokens at most, which see all
    short = [len(model.tokenizer.pack(text)[0]) <= 8 for text in texts]
    assert 10 <= sum(short) < len(texts)
    logits = [
        np.asarray(model(padded(model, [text], 8 if few else 24))["logits"][0]) for text, few in zip(texts, short)
    ]
    expected = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    for scheme, tolerance in (("none", 1e-5), ("dynamic_int8", 0.1)):
        path = tmp_path / f"{scheme}.tflite"
        mobile.compress(model, scheme, path, texts=texts, lengths=[8, 24], min_agreement=0.5)
        np.testing.assert_allclose(load(path).outputs(texts), expected, atol=tolerance)

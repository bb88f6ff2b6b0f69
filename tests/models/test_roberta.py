"""RoBERTa, XLM-R, Megatron-BERT and XLM: what they change in BERT."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert import models, registry
from kerasbert.layers.naming import names
from tests.models.test_bert import SMALL, inputs

COUNTS = {  # transformers' base models
    "roberta/base": 124645632,
    "roberta/large": 355359744,
    "megatron-bert/345m": 333640704,
    "megatron-bert/3.9b": 3858731520,
    "xlm-roberta/base": 278043648,
    "xlm-roberta/large": 559890432,
}


def small(family, **changes):
    keras.utils.set_random_seed(1)
    return kb.build(family, **SMALL | {"initializer": 0.3} | changes)


@pytest.mark.parametrize("name", COUNTS)
def test_parameters(name):
    family, spec = registry.find(name)
    assert models.parameters(family.encoder, spec) == COUNTS[name]


def test_bert_xlarge_is_the_albert_papers():
    """Lan et al., 2020, table 2: 24 layers of 2,048, 1.27 billion without the pooler."""
    family, spec = registry.find("bert/xlarge")
    assert round(models.parameters(family.encoder, spec.derive({"pooler": False})) / 1e9, 2) == 1.27


def test_positions_count_from_the_offset():
    encoder = small("roberta/base", **{"embeddings.positions": 21})
    assert encoder.spec.longest == 19
    given = inputs(length=19)
    explicit = given | {"position_ids": np.tile(np.arange(19, dtype="int32"), (2, 1))}
    np.testing.assert_array_equal(encoder(given)["sequence"], encoder(explicit)["sequence"])
    before = np.asarray(encoder(given)["sequence"])
    table = names(encoder)["embeddings/positions/table"]
    rows = table.value.numpy()
    rows[:2] = 7  # the rows that are never read
    table.assign(rows)
    np.testing.assert_array_equal(encoder(given)["sequence"], before)
    rows[2] = 7
    table.assign(rows)
    assert np.abs(np.asarray(encoder(given)["sequence"]) - before).max() > 0.1
    with pytest.raises(ValueError, match="token_ids has length 20, expected at most 19"):
        encoder(inputs(length=20))


def test_one_segment_takes_every_token():
    encoder = small("roberta/base")
    given = inputs()
    assert given["segment_ids"].max() == 1
    zeros = given | {"segment_ids": np.zeros_like(given["segment_ids"])}
    np.testing.assert_array_equal(encoder(given)["sequence"], encoder(zeros)["sequence"])


def test_pre_norm_by_hand():
    """One layer whose sublayers are zero: the embeddings pass it untouched and are normalised once, at the end."""
    encoder = small("megatron-bert/345m", **{"blocks.layers": 1})
    weights = names(encoder)
    assert "embeddings/norm/gamma" not in weights
    for name in ("attention/output", "feedforward/outer"):
        for leaf in ("kernel", "bias"):
            weights[f"block_0/{name}/{leaf}"].assign(np.zeros(weights[f"block_0/{name}/{leaf}"].shape))
    got = encoder(inputs())
    x = np.asarray(got["hidden"][0])
    centred = x - x.mean(-1, keepdims=True)
    np.testing.assert_allclose(got["sequence"], centred / x.std(-1, keepdims=True), atol=1e-5)
    np.testing.assert_array_equal(got["hidden"][-1], got["sequence"])


def test_megatrons_kernels_before_the_residual_sums_start_smaller():
    """Shoeybi et al., 2020, 4.2: by 1/sqrt(2 L). The standard error of a ratio of two deviations of n numbers is 1/sqrt(n)."""
    for name, smaller in (("megatron-bert/345m", 1 / np.sqrt(2 * 8)), ("bert/base", 1.0)):
        weights = names(small(name, **{"blocks.layers": 8, "initializer": 0.02}))
        for layer in (0, 7):
            block = f"block_{layer}"
            for output, other in (("attention/output", "attention/query"), ("feedforward/outer", "feedforward/inner")):
                a, b = (weights[f"{block}/{part}/kernel"].numpy() for part in (output, other))
                assert a.std() / b.std() == pytest.approx(smaller, rel=3 / np.sqrt(a.size)), (name, output)
                assert abs(a.mean()) < 3 * a.std() / np.sqrt(a.size)


@pytest.mark.parametrize("name", ["roberta/base", "megatron-bert/345m", "xlm/mlm-tlm-xnli15-1024"])
def test_the_first_token_alone_is_the_same(name):
    encoder = small(name)
    whole, first = encoder(inputs()), encoder(inputs(), queries="first")
    assert first["sequence"].shape == (2, 1, 40)
    np.testing.assert_allclose(first["sequence"], whole["sequence"][:, :1], atol=1e-5)


@pytest.mark.parametrize("name", ["roberta/base", "megatron-bert/345m", "xlm/mlm-tlm-xnli15-1024"])
def test_every_weight_receives_a_gradient(name):
    encoder = small(name)
    given = inputs(length=15, rows=8)
    if "xlm/" in name:
        given["language_ids"] = np.arange(120, dtype="int32").reshape(8, 15) % 15
    with tf.GradientTape() as tape:
        outputs = encoder(given)
        loss = sum(tf.reduce_sum(outputs[part] ** 3) for part in ("sequence", "pooled") if part in outputs)
    variables = {name: variable.value for name, variable in names(encoder).items()}
    found = dict(zip(variables, tape.gradient(loss, list(variables.values()))))
    dead = [n for n, g in found.items() if g is None or not np.abs(tf.convert_to_tensor(g)).max() > 1e-6]
    assert [n for n in dead if not n.endswith("key/bias")] == []


def test_languages_are_added():
    encoder = small("xlm/mlm-tlm-xnli15-1024")
    assert names(encoder)["embeddings/languages/table"].shape == (15, 40)
    given = inputs()
    languages = [np.full((2, 9), language, "int32") for language in (0, 14)]
    none, first, last = (
        np.asarray(encoder(given | more)["hidden"][0]) for more in ({}, *({"language_ids": ids} for ids in languages))
    )
    assert min(np.abs(one - other).max() for one, other in ((none, first), (first, last))) > 0.1
    assert "embeddings/languages/table" not in names(small("xlm/mlm-en-2048"))


def test_translations_share_their_positions():
    """Rows by hand: a source of 3 tokens and its translation, each from position 0, each with its language."""
    objective = registry.objective("xlm")
    encoder = small("xlm/mlm-tlm-xnli15-1024")
    from tests import tiny

    program = objective(encoder, tiny.tokenizer())
    one = tf.constant([5, 5], tf.int32)
    batch = program.prepare(
        {
            "token_ids": tf.constant([[2, 9, 3, 11, 12, 3, 0, 0], [2, 9, 10, 11, 12, 13, 14, 3]]),
            "segment_lengths": tf.constant([[3, 3], [8, 0]]),
            "languages": tf.constant([[4, 7], [2, 2]]),
            **dict.fromkeys(("example", "epoch", "row", "step"), one),
        }
    )
    assert batch["position_ids"].numpy().tolist()[0][:6] == [0, 1, 2, 0, 1, 2]
    assert batch["position_ids"].numpy().tolist()[1] == list(range(8))
    assert batch["language_ids"].numpy().tolist()[0][:6] == [4, 4, 4, 7, 7, 7]
    assert set(batch["language_ids"].numpy()[1]) == {2}


def test_packed_rows_of_xlm_keep_positions_of_their_own():
    """A row of two pieces: the second begins at position 0 again, as `--packing packed` means it."""
    from tests import tiny

    program = registry.objective("xlm")(small("xlm/mlm-en-2048"), tiny.tokenizer())
    batch = program.prepare(
        {
            "token_ids": tf.constant([[2, 9, 10, 3, 2, 11, 3, 0]]),
            "segment_lengths": tf.constant([[7, 0]]),
            "pieces": tf.constant([2]),
            **dict.fromkeys(("example", "epoch", "row", "step"), tf.constant([5], tf.int32)),
        }
    )
    assert batch["position_ids"].numpy().tolist()[0][:7] == [0, 1, 2, 3, 0, 1, 2]

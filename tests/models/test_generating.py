"""T5, GPT-2, BART: counts, names, what they start with, what is refused. Parity: tests/checkpoints/test_parity_generate.py."""

import json
import math
import types

import keras
import numpy as np
import pytest

import kerasbert as kb
from kerasbert import models, registry
from kerasbert.checkpoints import save_model
from kerasbert.errors import InputError
from kerasbert.layers.buckets import buckets
from kerasbert.layers.naming import names
from kerasbert.testing import battery
from tests.support import shared

COUNTS = {  # transformers' T5ForConditionalGeneration, GPT2Model, BartModel
    "t5/small": 60506624,
    "t5/base": 222903552,
    "t5/large": 737668096,
    "t5/3b": 2851598336,
    "t5/11b": 11307321344,
    "t5/v1.1-small": 76961152,  # with its own output table
    "t5/v1.1-base": 247577856,
    "t5/v1.1-large": 783150080,
    "gpt2/small": 124439808,
    "gpt2/medium": 354823168,
    "gpt2/large": 774030080,
    "gpt2/xl": 1557611200,
    "bart/base": 139420416,
    "bart/large": 406291456,
}


def test_the_index_has_the_papers_counts():
    index = {row["name"]: row for row in registry.shipped()["models"]}
    assert {name: index[name]["parameters"] for name in COUNTS} == COUNTS
    kinds = {name.partition("/")[0]: row["kind"] for name, row in index.items()}
    assert {name: kinds[name] for name in ("bert", "gpt2", "t5", "bart")} == {
        "bert": "encoder",
        "gpt2": "decoder",
        "t5": "seq2seq",
        "bart": "seq2seq",
    }


def test_counts_are_the_references():
    reference = json.loads(shared("papers/reference_counts.json").read_text())
    assert {name: reference[name]["parameters"] for name in COUNTS} == COUNTS


@pytest.mark.parametrize("name", ["t5/v1.1-small", "gpt2/small", "bart/base"])
def test_weights_are_counted(name):
    family, spec = registry.find(name)
    assert models.parameters(family.encoder, spec) == COUNTS[name]


def tiny(name: str, **changes):
    """A built model of one layer a stack."""
    family, spec = registry.find(name)
    spec = spec.derive(battery.tiny(spec, 60) | {"blocks.layers": 1} | changes)
    keras.utils.set_random_seed(0)
    model = family.encoder(spec)
    model.build()
    model.model_name = name
    return model


def of_attention(prefix: str, *leaves: str) -> list[str]:
    return [f"{prefix}/{part}/{leaf}" for part in ("query", "key", "value", "output") for leaf in leaves]


def test_weight_names_are_public():
    blocks = {"encoder": ["attention"], "decoder": ["attention", "cross_attention"]}
    t5 = ["embeddings/tokens/table", "output/table"]
    for stack, sublayers in blocks.items():
        for sublayer in sublayers:
            t5 += of_attention(f"{stack}/block_0/{sublayer}", "kernel") + [f"{stack}/block_0/{sublayer}_norm/gamma"]
        t5 += [f"{stack}/block_0/feedforward/{part}/kernel" for part in ("gate", "linear", "outer")]
        t5 += [f"{stack}/block_0/feedforward_norm/gamma", f"{stack}/norm/gamma", f"{stack}/relative/table"]
    assert sorted(names(tiny("t5/v1.1-small"))) == sorted(t5)
    bart = ["embeddings/tokens/table"]
    for stack, sublayers in blocks.items():
        bart += [f"{stack}/positions/table", *(f"{stack}/embeddings_norm/{leaf}" for leaf in ("gamma", "beta"))]
        for sublayer in sublayers:
            bart += of_attention(f"{stack}/block_0/{sublayer}", "kernel", "bias")
        bart += [
            f"{stack}/block_0/feedforward/{part}/{leaf}" for part in ("inner", "outer") for leaf in ("kernel", "bias")
        ]
        norms = [*sublayers, "feedforward"]
        bart += [f"{stack}/block_0/{part}_norm/{leaf}" for part in norms for leaf in ("gamma", "beta")]
    assert sorted(names(tiny("bart/base"))) == sorted(bart)


def test_both_stacks_may_have_their_own_number_of_layers():
    found = names(tiny("t5/small", **{"decoder.layers": 3}))
    assert {name.split("/")[1] for name in found if name.startswith("decoder/block")} == {
        "block_0",
        "block_1",
        "block_2",
    }
    assert {name.split("/")[1] for name in found if name.startswith("encoder/block")} == {"block_0"}
    with pytest.raises(InputError, match=r"decoder\.layers must be at least 1 or None\. Received: 0"):
        registry.find("t5/small")[1].derive({"decoder.layers": 0})
    with pytest.raises(InputError, match="feedforward.width must be one number for both stacks"):
        registry.find("bart/base")[1].derive({"blocks.layers": 2, "feedforward.width": (2, 4)})


def test_buckets_by_hand():
    """32 buckets: 16 a side, 8 of them exact; then 8 * log(d / 8) / log(16) more, of which the last is for 128 and on."""
    both = buckets(32, 128, both_sides=True)
    assert both[:9].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert [both[d] for d in (11, 12, 16, 64, 91, 128)] == [8, 9, 10, 14, 15, 15]
    behind = buckets(32, 128, both_sides=False)
    assert [behind[d] for d in (15, 16, 32, 113, 128)] == [15, 16, 21, 31, 31]


def deviation(variable) -> float:
    return float(np.std(variable.value.numpy()))


def test_t5_starts_without_the_root_of_the_heads_size():
    """Standard deviations of mesh tensorflow's initialisation: within 10% on 64 x 48 numbers."""
    sizes = {"hidden": 64, "attention.heads": 6, "attention.head_size": 8, "feedforward.width": 96}
    found = names(tiny("t5/v1.1-small", **sizes, **{"embeddings.vocabulary": 90}))
    block = "decoder/block_0/cross_attention"
    expected = {
        "embeddings/tokens/table": 1.0,
        "output/table": 64**-0.5,
        f"{block}/query/kernel": (64 * 8) ** -0.5,
        f"{block}/key/kernel": 64**-0.5,
        f"{block}/output/kernel": 48**-0.5,
        "encoder/block_0/feedforward/gate/kernel": 64**-0.5,
        "encoder/block_0/feedforward/outer/kernel": 96**-0.5,
    }
    for name, wanted in expected.items():
        cut = 0.88  # of a normal distribution that is cut off at two deviations
        assert abs(deviation(found[name]) / (cut * wanted) - 1) < 0.1, name


def test_gpt2s_residual_kernels_start_smaller():
    found = names(
        tiny("gpt2/small", **{"hidden": 64, "blocks.layers": 8, "feedforward.width": 64, "attention.heads": 2})
    )
    for part in ("attention/output", "feedforward/outer"):
        ratio = deviation(found[f"block_3/{part}/kernel"]) / deviation(found["block_3/attention/query/kernel"])
        assert abs(ratio * math.sqrt(16) - 1) < 0.1, part


def test_the_missing_target_and_a_long_one_are_named():
    model = tiny("bart/base")
    ids = np.zeros((1, 5), "int32")
    with pytest.raises(ValueError, match=r"decoder_token_ids is missing, expected int \[B, T\]"):
        model({"token_ids": ids})
    with pytest.raises(ValueError, match="decoder_token_ids has length 33, expected at most 32"):
        model({"token_ids": ids, "decoder_token_ids": np.zeros((1, 33), "int32")})


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A model directory of a Transformer."""
    subject = battery.Subject("transformer", tmp_path_factory.mktemp("transformer"))
    run = subject.folder / "run"
    save_model(run, encoder=subject.encoder(), name="transformer/base", tokenizer=subject.tokenizer)
    return run


def refused(what: str):
    return pytest.raises(InputError, match=f"^transformer is an encoder-decoder \\(seq2seq\\): {what}")


def test_what_reads_one_stack_refuses_two_in_one_line(directory, tmp_path):
    from kerasbert import mobile

    with refused("it writes texts and gives no classification, take the task generation"):
        kb.finetune(directory, "classification", {"train": "train.tsv"}, out=tmp_path / "run")
    with refused("it writes texts and gives no vector, take the task generation"):
        kb.encode(directory, ["a text"])
    with refused("it writes texts and gives no vector"):
        kb.export(directory, tmp_path / "saved")
    with refused("it writes texts and gives no vector"):
        mobile.compress(directory, out=tmp_path / "file.tflite")
    with pytest.raises(InputError, match="T5 has no token_head, and this objective predicts tokens: choose another"):
        registry.objective("masked_lm")(tiny("t5/small"), battery.tokenizer("wordpiece"))
    assert not list(tmp_path.iterdir())
    loaded = kb.load(directory)
    assert loaded({name: np.ones((1, 3), "int32") for name in ("token_ids", "decoder_token_ids")})[
        "sequence"
    ].shape == (
        1,
        3,
        16,
    )


def test_a_t5_that_is_given_a_text_alone_decodes_it_behind_its_start_token():
    model, draw = tiny("t5/small"), np.random.default_rng(0)
    ids, mask = draw.integers(2, 60, (2, 7)).astype("int32"), (np.arange(7) < np.array([[7], [4]])).astype("int32")
    text = {"token_ids": ids, "padding_mask": mask}
    for pad in (0, 5):
        model.tokenizer = types.SimpleNamespace(pad_id=pad) if pad else None  # None: as all of T5's have it
        shifted = np.concatenate([np.full((2, 1), pad, "int32"), ids[:, :-1]], axis=1)
        expected = model(text | {"decoder_token_ids": shifted})["sequence"]
        np.testing.assert_array_equal(model(text)["sequence"], expected)


@pytest.mark.full
def test_a_t5_classifies_in_a_saved_model_and_on_the_phone(tmp_path):
    import tensorflow as tf

    from kerasbert import mobile
    from kerasbert.mobile.runtime import load
    from kerasbert.testing import world

    subject = battery.Subject("t5", tmp_path)
    data = {
        "train": world.labelled(tmp_path / "train.tsv", 40),
        "dev": world.labelled(tmp_path / "dev.tsv", 10, seed=1),
    }
    with battery.eagerly():
        model = kb.finetune(
            subject.encoder(), "classification", data, out=tmp_path / "run", steps=2, batch=20, length=16, quiet=True
        )
        texts = world.first_column(data["dev"])
        expected = [list(answer.scores.values()) for answer in kb.predict(model, texts)]
    serve = tf.saved_model.load(str(kb.export(model, tmp_path / "saved", length=16))).signatures["serving_default"]
    np.testing.assert_allclose(serve(text=tf.constant(texts))["probabilities"], expected, atol=1e-5)
    mobile.compress(model, "none", tmp_path / "file.tflite", texts=texts, lengths=[16])
    np.testing.assert_allclose(load(tmp_path / "file.tflite").outputs(texts), expected, atol=1e-5)


def test_an_objective_may_be_another_familys():
    assert registry.family("gpt2").objective_or(None) == "causal_lm"
    assert registry.family("gpt2").objective_or("masked_lm") == "masked_lm"


@pytest.mark.parametrize("name", ["t5/small", "bart/base"])
def test_lora_adapts_both_stacks(name):
    targets = ("attention.query", "cross_attention.value")
    adapted = {
        weight.path.partition("/")[2].rpartition("/")[0]
        for weight in tiny(name, **{"lora.rank": 2, "lora.targets": targets}).weights
        if "lora" in weight.path
    }
    assert adapted == {
        "encoder/block_0/attention/query",
        "decoder/block_0/attention/query",
        "decoder/block_0/cross_attention/value",
    }
    with pytest.raises(InputError, match=r"no linear map 'attention\.querry'\. Nearest: 'attention\.query'"):
        tiny(name, **{"lora.rank": 2, "lora.targets": ("attention.querry",)})


def test_t5s_distances_are_of_the_positions_that_are_given():
    """0, 1, ... given are those that hold without, for all tokens and for some."""
    model = kb.build("t5/small", **battery.tiny(registry.find("t5/small")[1], 40, 16))
    draw = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(draw.normal(size=weight.shape) * 0.5)
    ids, target = draw.integers(2, 40, (3, 5)), draw.integers(2, 40, (3, 4))
    inputs, usual = {"token_ids": ids, "decoder_token_ids": target}, np.arange(5)[None] + np.zeros((3, 1), "int32")
    plain = np.asarray(model(inputs)["sequence"])
    np.testing.assert_allclose(model(inputs | {"position_ids": usual})["sequence"], plain, atol=1e-6)
    queries = np.array([[3, 0], [1, 2], [0, 0]], "int32")
    given = inputs | {"decoder_position_ids": usual[:, :4]}
    some = np.asarray(model(given, queries=queries)["sequence"])
    np.testing.assert_allclose(some, np.take_along_axis(plain, queries[..., None], axis=1), atol=1e-6)
    assert np.abs(np.asarray(model(inputs | {"position_ids": usual * 0})["sequence"]) - plain).max() > 1e-3

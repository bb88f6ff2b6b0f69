"""Longformer: counts, refused settings, global tokens by task, a RoBERTa made longer. Parity: test_parity_longformer.py."""

import dataclasses
import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import answers, inputs, models, registry
from kerasbert.checkpoints import load_encoder
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.layers.window import GLOBAL, LOCAL
from kerasbert.models.longformer import LONGFORMER, extended, with_copied_projections
from kerasbert.testing import battery
from kerasbert.training.flops import update_flops
from kerasbert.training.preflight import kept_numbers
from tests.support import shared

SIZES = {"hidden": 16, "attention.heads": 2, "feedforward.width": 24, "blocks.layers": 2, "embeddings.vocabulary": 50}


def tiny(name="longformer/base", **changes):
    """A built encoder with weights far from zero."""
    family, spec = registry.find(name)
    small = {"embeddings.positions": 34} | ({"window.size": 8} if hasattr(spec, "window") else {})
    model = family.encoder(spec.derive(SIZES | small | changes))
    model.build()
    generator = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(generator.normal(0, 0.3, weight.shape))
    model.model_name = name
    return model


def given(rows=2, length=30, seed=0):
    ids = np.random.default_rng(seed).integers(5, 50, (rows, length)).astype("int32")
    mask = (np.arange(length) < length - 4 * np.arange(rows)[:, None]).astype("int32")
    return {"token_ids": ids, "padding_mask": mask}


@pytest.mark.parametrize(("size", "count"), [("base", 148659456), ("large", 434600960)])
def test_the_count_is_the_references(size, count):
    reference = json.loads(shared("papers/reference_counts.json").read_text())[f"longformer/{size}"]["parameters"]
    family, spec = registry.find(f"longformer/{size}")
    assert models.parameters(family.encoder, spec) == reference == count


def test_weight_names_are_public():
    maps = {f"block_0/attention/{name}/{leaf}" for name in (*LOCAL, *GLOBAL, "output") for leaf in ("kernel", "bias")}
    assert {name for name in names(tiny()) if name.startswith("block_0/attention/")} == maps


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"window.size": 5}, "window.size must be even, half of it to each side. Received: 5"),
        ({"window.size": 0}, "window.size must be at least 2. Received: 0"),
        ({"window.size": (4, 4, 8)}, "window.size has 3 values, expected one per layer: 2"),
        ({"window.size": 34}, "window.size is 34, expected at most 32, the longest sequence"),
        ({"window.size": 4, "window.global_tokens": 33}, "window.global_tokens is 33, expected at most 32"),
        ({"window.size": (4, 8), "blocks.share": "all"}, "window.size must be one number where layers share weights"),
        ({"window.size": 4, "window.dilation": 0}, "window.dilation must be at least 1. Received: 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changes, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        LONGFORMER.spec.derive(SIZES | {"embeddings.positions": 34} | changes)


def test_equal_windows_are_one():
    small = {"embeddings.positions": 34}
    assert LONGFORMER.spec.derive(SIZES | small | {"window.size": (8, 8)}).window.size == 8
    assert LONGFORMER.spec.derive(SIZES | small | {"window.size": (8, 4)}).window.size == (8, 4)


def test_a_window_per_layer_and_dilation_reach_the_layers():
    blocks = tiny(**{"window.size": (4, 8), "window.dilation": (1, 2)}).blocks
    assert [(block.attention.window, block.attention.dilation) for block in blocks] == [(4, 1), (8, 2)]


@pytest.mark.parametrize("changes", [{}, {"blocks.norm": "pre"}, {"attention.causal": True}])
def test_attention_in_full_gives_what_the_bands_give(changes):
    model = tiny(**{"window.size": (4, 6), "window.global_tokens": 3} | changes)
    told, mask = given(), np.zeros((2, 30), "int32")
    mask[0, :2] = 1
    for more in ({}, {"global_mask": mask}):
        banded, full = model(told | more), model(told | more, attention=True)
        np.testing.assert_allclose(banded["sequence"], full["sequence"], atol=1e-5)
        assert [tuple(weights.shape) for weights in full["attention"]] == [(2, 2, 30, 30)] * 2


def test_any_token_may_be_global_where_none_are_counted():
    few, any_token = (tiny(**{"window.size": 4, "window.global_tokens": count}) for count in (3, 0))
    mask = np.zeros((2, 30), "int32")
    mask[:, :2] = 1
    told = given() | {"global_mask": mask}
    np.testing.assert_allclose(any_token(told)["sequence"], few(told)["sequence"], atol=1e-5)
    mask[:, 20] = 1
    assert (
        np.abs(
            any_token(told)["sequence"] - few(given() | {"global_mask": mask * (np.arange(30) < 3)})["sequence"]
        ).max()
        > 1e-3
    )
    with pytest.raises(InputError, match="global_mask marks token 20, expected the first 3 of a row alone"):
        few(told)
    with pytest.raises(InputError, match=r"global_mask has shape \(2, 29\), expected that of token_ids, \(2, 30\)"):
        few(given() | {"global_mask": mask[:, :29]})


def test_projected_attention_layers_see_no_padding():
    model = tiny(**{"window.size": 4, "pals.width": 4, "pals.heads": 2})
    told = given()
    other = told | {"token_ids": np.where(told["padding_mask"] == 1, told["token_ids"], 7).astype("int32")}
    one, two = (model(each)["sequence"][1, :26] for each in (told, other))
    np.testing.assert_array_equal(one, two)


def test_the_question_and_the_choice_are_marked_alike_on_a_phone_and_in_a_graph():
    rows = {
        "roberta": ([0, 7, 8, 2, 2, 9, 9, 2], [1, 1, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1, 1, 1]),
        "bert": ([0, 7, 8, 2, 9, 2], [1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1]),
        "no question": ([0, 2, 2, 9, 2], [1, 0, 0, 0, 0], [0, 0, 0, 1, 1]),
        "one text": ([0, 7, 8, 2], [1, 0, 0, 0], [0, 0, 0, 0]),
    }
    for ids, question, choice in rows.values():
        padded = np.array([ids + [1] * 3], "int32")
        batch = {"token_ids": padded, "padding_mask": (np.arange(len(ids) + 3) < len(ids))[None].astype("int32")}
        for made, expected in ((inputs.QUESTION_MASK, question), (inputs.CHOICE_MASK, choice)):
            assert made.make({"token_ids": ids}).tolist() == expected
            assert np.asarray(made.graph(batch)).tolist() == [expected + [0] * 3]


def test_global_tokens_are_those_of_the_task():
    spec = LONGFORMER.spec
    found = {
        name: LONGFORMER.settings_for(spec.derive({"window.global_tokens": 7}), answers.find(name)).window.global_tokens
        for name in ("classification", "regression", "multi_label", "span", "choice", "tags", "vector")
    }
    assert found == {
        "classification": 1,
        "regression": 1,
        "multi_label": 1,
        "span": 65,
        "choice": 0,
        "tags": 7,
        "vector": 7,
    }


def test_flops_and_memory_count_the_width_that_is_attended():
    spec = LONGFORMER.spec
    full = registry.family("roberta").spec.derive({"embeddings.positions": 4098})
    assert (spec.seen(0, 4096), spec.seen(0, 100), full.seen(0, 4096)) == (770, 101, 4096)
    attention = 3 * 12 * 4 * 768 * 4096.0  # per key and token: scores and values
    maps = 3 * 12 * 2 * 2 * 768 * 768 * 4096.0
    counts = [update_flops(each, 4096.0, 1.0, 0.0) for each in (spec, full)]
    assert counts[0] - counts[1] == pytest.approx(attention * (770 - 4096) + maps)
    kept = [kept_numbers(each, 1, 4096, 0.0) for each in (spec, full)]
    assert kept[1] - kept[0] == 4096 * 12 * 12 * (4096 - 770)


def test_a_roberta_made_longer_computes_what_it_computed(tmp_path):
    roberta = tiny("roberta/base", **{"embeddings.positions": 18})
    longer = extended(roberta, length=40, size=32)
    told = given(length=14)
    real = told["padding_mask"] == 1
    np.testing.assert_allclose(longer(told)["sequence"][real], roberta(told)["sequence"][real], atol=1e-5)
    table, had = (names(model)["embeddings/positions/table"].numpy() for model in (longer, roberta))
    np.testing.assert_array_equal(table, np.concatenate([had[:2], had[2:], had[2:], had[2:10]]))
    for block in longer.blocks:
        for ours, theirs in zip(LOCAL, GLOBAL):
            np.testing.assert_array_equal(
                getattr(block.attention, theirs).kernel, getattr(block.attention, ours).kernel
            )
    with pytest.raises(InputError, match="the model is a longformer, expected a RoBERTa or XLM-R"):
        extended(longer)
    with pytest.raises(InputError, match="length 8 is less than the 16 that the model has: give more"):
        extended(roberta, length=8)


def test_a_robertas_checkpoint_is_imported_as_a_longformer(tmp_path, capsys):
    roberta = tiny("roberta/base", **{"embeddings.positions": 18})
    roberta.tokenizer = None
    from kerasbert.checkpoints import save_model

    save_model(tmp_path / "ours", encoder=roberta, name="roberta")
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "theirs")
    assert main(["import", str(tmp_path / "theirs"), "--model", "longformer", "--out", str(tmp_path / "long")]) in (
        0,
        None,
    )
    made, info = load_encoder(tmp_path / "long")
    assert (info.family, made.spec.window.size, made.spec.longest) == ("longformer", 512, 4096)
    told = given(length=14)
    real = told["padding_mask"] == 1
    np.testing.assert_allclose(made(told)["sequence"][real], roberta(told)["sequence"][real], atol=1e-5)
    with pytest.raises(InputError, match="is not longformer/base: hidden 16 instead of 768"):
        kb.import_checkpoint(tmp_path / "theirs", model="longformer/base")


def test_projections_are_copied_on_request():
    model = tiny()
    copied = with_copied_projections(model)
    assert copied is model
    np.testing.assert_array_equal(model.blocks[1].attention.value_global.bias, model.blocks[1].attention.value.bias)


@pytest.mark.slow
def test_a_span_is_learnt_with_a_global_question(tmp_path):
    """The mask reaches training, prediction and the spec of the run."""
    subject = battery.Subject("longformer", tmp_path)
    model = subject.encoder()
    rows = [
        {
            "question": "who runs",
            "context": "the cat runs . the dog sees the film",
            "answer": {"text": ["cat"], "answer_start": [4]},
        }
    ] * 8
    for split in ("train", "dev"):
        lines = [
            json.dumps({"id": str(i), "question": row["question"], "context": row["context"], "answers": row["answer"]})
            for i, row in enumerate(rows)
        ]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    with battery.eagerly():
        made = kb.finetune(model, "squad", tmp_path, out=tmp_path / "run", steps=2, batch=4, length=32, quiet=True)
        found = kb.predict(made, [("who runs", rows[0]["context"])])
    assert made.spec.window.global_tokens == 32
    assert made.encoder.spec.window == dataclasses.replace(model.spec.window, global_tokens=32)
    assert found[0].text in rows[0]["context"]
    assert [each.name for each in made.kind.reads(LONGFORMER)] == [
        "token_ids",
        "padding_mask",
        "segment_ids",
        "question_mask",
        "global_mask",
    ]

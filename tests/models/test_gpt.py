"""GPT: counts, names of weights, what it starts with. Parity: tests/checkpoints/test_parity_papers.py."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import models, registry
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.models.gpt import with_task_tokens
from kerasbert.testing import battery, world
from tests.models.test_generating import deviation, of_attention, tiny
from tests.support import shared


def test_the_count_is_the_references():
    index = {row["name"]: row for row in registry.shipped()["models"]}
    reference = json.loads(shared("papers/reference_counts.json").read_text())["gpt/base"]["parameters"]
    family, spec = registry.find("gpt/base")
    assert models.parameters(family.encoder, spec) == index["gpt/base"]["parameters"] == reference == 116534784
    assert (index["gpt/base"]["kind"], index["gpt/base"]["tokenizer"]) == ("decoder", "word_bpe")


def test_weight_names_are_public_and_only_blocks_have_norms():
    expected = ["embeddings/tokens/table", "embeddings/positions/table"]
    expected += of_attention("block_0/attention", "kernel", "bias")
    expected += [f"block_0/feedforward/{part}/{leaf}" for part in ("inner", "outer") for leaf in ("kernel", "bias")]
    expected += [f"block_0/{part}_norm/{leaf}" for part in ("attention", "feedforward") for leaf in ("gamma", "beta")]
    assert sorted(names(tiny("gpt/base"))) == sorted(expected)


def test_all_kernels_start_alike_and_embeddings_are_plain_sums():
    sizes = {"hidden": 64, "blocks.layers": 4, "feedforward.width": 64, "attention.heads": 2, "dropout": 0.0}
    model = tiny("gpt/base", **sizes)
    found = names(model)
    for part in ("attention/output", "feedforward/outer", "attention/query"):
        assert abs(deviation(found[f"block_3/{part}/kernel"]) / (0.88 * 0.02) - 1) < 0.1, part
    ids = np.array([[5, 2, 5]], "int32")
    expected = found["embeddings/tokens/table"].numpy()[ids] + found["embeddings/positions/table"].numpy()[:3]
    np.testing.assert_array_equal(model({"token_ids": ids})["hidden"][0], expected)


def test_texts_stand_between_start_and_extract_tokens(tmp_path):
    tokenizer = battery.tokenizer("word_bpe")
    model = tiny("gpt/base", **{"embeddings.vocabulary": tokenizer.size})
    with pytest.raises(InputError, match="the model's tokenizer is of kind None, expected word_bpe, GPT's"):
        with_task_tokens(model)
    model.tokenizer = tokenizer
    made = with_task_tokens(model)
    size = tokenizer.size
    one, two = tokenizer.encode("the cat"), tokenizer.encode("sad film")
    assert made.tokenizer.pack("the cat")[0] == [size, *one, size + 2]
    assert made.tokenizer.pack("the cat", "sad film")[0] == [size, *one, size + 1, *two, size + 2]
    before, after = names(model), names(made)
    table = "embeddings/tokens/table"
    np.testing.assert_array_equal(after[table].numpy()[:size], before[table].numpy())
    assert np.abs(after[table].numpy()[size:]).min() > 0
    assert after[table].shape == (size + 3, 16)
    assert all((after[name].numpy() == before[name].numpy()).all() for name in before if name != table)
    with pytest.raises(InputError, match="the model's tokenizer has _classify_ already"):
        with_task_tokens(made)


@pytest.mark.slow
def test_a_model_with_task_tokens_is_finetuned_and_loaded(tmp_path):
    tokenizer = battery.tokenizer("word_bpe")
    model = tiny("gpt/base", **{"embeddings.vocabulary": tokenizer.size})
    model.tokenizer = tokenizer
    made = with_task_tokens(model)
    files = {
        "train": world.labelled(tmp_path / "train.tsv", 20),
        "dev": world.labelled(tmp_path / "dev.tsv", 10, seed=1),
    }
    with battery.eagerly():
        kb.finetune(made, "classification", files, out=tmp_path / "run", steps=1, batch=10, length=20, quiet=True)
    loaded = kb.load(tmp_path / "run")
    assert loaded.tokenizer.pack("the cat")[0] == made.tokenizer.pack("the cat")[0]
    assert kb.predict(loaded, ["the happy cat"])[0].label in ("neg", "pos")

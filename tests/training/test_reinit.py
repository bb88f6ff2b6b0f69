"""Fine-tuning whose last layers start as new (Zhang et al., 2021)."""

import keras
import numpy as np
import pytest

import kerasbert as kb
from kerasbert.checkpoints.directory import built
from kerasbert.errors import InputError
from kerasbert.layers.naming import values
from kerasbert.registry import family
from kerasbert.training import initial_encoder
from kerasbert.training.config import FinetuneConfig
from tests import tiny


def encoder(name="bert", layers=3):
    """One whose weights are far from what a new one has."""
    kind = family(name)
    keras.utils.set_random_seed(0)
    made = built(kind, kind.spec.derive(tiny.SPEC | {"blocks.layers": layers}), name)
    for variable in made.trainable_variables:
        variable.assign(np.full(variable.shape, 7.0, "float32"))
    return made


def test_the_last_layers_and_the_pooler_are_new_and_of_the_seed():
    one, again, other = (
        values(initial_encoder.renewed(encoder(), 2, "bert", FinetuneConfig(out="run", seed=seed)))
        for seed in (1, 1, 2)
    )
    new = {name for name in one if not (one[name] == 7.0).all()}
    assert new == {name for name in one if name.startswith(("block_1/", "block_2/", "pooler/"))}
    assert all((one[name] == again[name]).all() for name in one)
    assert any((one[name] != other[name]).any() for name in new)
    assert 0.01 < one["block_2/attention/query/kernel"].std() < 0.03  # the Spec's initializer


@pytest.mark.parametrize(("name", "layers"), [("bert", 3), ("albert", 1)])
def test_more_layers_than_there_are_of_their_own_are_refused(name, layers):
    config = FinetuneConfig(out="run")
    with pytest.raises(
        InputError, match=rf"reinit is {layers + 1}, and {name} has {layers} layers with weights of their"
    ):
        initial_encoder.renewed(encoder(name), layers + 1, name, config)


def test_what_contradicts_it_is_refused(tmp_path):
    for name, value in {"keep_head": True, "lora": 4, "adapters": 8}.items():
        with pytest.raises(InputError, match=f"reinit starts layers as new ones, and {name} .*: leave one out"):
            FinetuneConfig(out="run", reinit=1, **{name: value})
    with pytest.raises(InputError, match="reinit is of one task, received several: leave it out"):
        kb.finetune_tasks("model", {"classification": tmp_path}, out=tmp_path / "two", reinit=1)


@pytest.mark.slow
def test_a_run_tells_it_and_begins_with_new_layers(pretrained, tmp_path):
    tiny.labelled(tmp_path / "train.tsv", 20)
    tiny.labelled(tmp_path / "dev.tsv", 10, seed=1)
    settings = {"steps": 1, "batch": 10, "length": 12, "learning_rate": 0.0, "quiet": True}
    model = kb.finetune(pretrained, "classification", tmp_path, out=tmp_path / "run", reinit=1, **settings)
    before, after = values(kb.load(pretrained)), values(model.encoder)
    changed = {name.partition("/")[0] for name in before if (before[name] != after[name]).any()}
    last = max(name.partition("/")[0] for name in before if name.startswith("block_"))
    assert changed == {last, "pooler"}
    with pytest.raises(InputError, match="reinit"):
        kb.finetune(pretrained, "classification", tmp_path, out=tmp_path / "run", **settings)

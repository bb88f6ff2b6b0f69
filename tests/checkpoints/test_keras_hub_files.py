"""KerasHub presets that we write, read back by our own reader; `test_keras_hub.py` has KerasHub read them."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints import read_model_json, read_tensors
from kerasbert.errors import InputError
from kerasbert.spec import differences
from tests.checkpoints import presets

# what their backbones have in another form: paths of the Spec that come back as others
MOVED = {
    "roberta": {"embeddings.positions", "embeddings.offset", "embeddings.segments", "pooler"},
    "bart": {"embeddings.positions", "embeddings.offset"},
    "electra": {"pooler"},
}
MOVED |= {"xlm-roberta": MOVED["roberta"], "electra, E = H": MOVED["electra"]}


def written(tmp_path, case, **more):
    """The weights of a model, and the directory of what its preset is read as."""
    arrays = presets.directory(tmp_path / "run", case, **more)
    kb.export_checkpoint(tmp_path / "run", tmp_path / "preset", "keras_hub")
    family = presets.MODELS[case][0]
    kb.import_checkpoint(tmp_path / "preset", "keras_hub", model=family, out=tmp_path / "back", build=False)
    return arrays, tmp_path / "back"


@pytest.mark.parametrize("case", presets.MODELS)
def test_what_is_written_is_read_back(case, tmp_path):
    arrays, back = written(tmp_path, case)
    spec = read_model_json(back).spec
    assert set(differences(presets.spec_of(case), spec)) == MOVED.get(case, set())
    tensors = read_tensors(back)
    moved = {"embeddings/positions/table", "encoder/positions/table", "decoder/positions/table"}
    moved |= {"embeddings/segments/table", "pooler/kernel", "pooler/bias"}
    kept = [name for name in arrays if case not in MOVED or name not in moved]
    assert len(kept) > 10
    for name in kept:
        np.testing.assert_array_equal(tensors.read(name), arrays[name], err_msg=name)
    config = json.loads((tmp_path / "preset/config.json").read_text())
    assert config["registered_name"] == f"keras_hub>{config['class_name']}"


@pytest.mark.parametrize("case", ["roberta", "bart"])
def test_what_they_have_in_another_form_computes_the_same(case, tmp_path, capsys):
    _, back = written(tmp_path, case)
    inputs = presets.inputs_of(case)
    ours, theirs = kb.load(tmp_path / "run"), kb.load(back)
    assert ours.spec.embeddings.offset == 2
    assert theirs.spec.embeddings.offset == 0
    seen = inputs["decoder_padding_mask" if case == "bart" else "padding_mask"].astype(bool)
    outputs = [np.asarray(model(inputs)["sequence"])[seen] for model in (ours, theirs)]
    np.testing.assert_allclose(*outputs, atol=1e-6)
    assert ("has no pooler: it is left out" in capsys.readouterr().err) == (case == "roberta")


def test_a_pooler_that_only_their_backbone_has_is_zero(tmp_path, capsys):
    _, back = written(tmp_path, "electra")
    assert "it has no pooler and their backbone has: that one is 0" in capsys.readouterr().err
    assert not read_tensors(back).read("pooler/kernel").any()


@pytest.mark.parametrize("case", ["bert", "albert", "electra"])
def test_segments_that_only_their_backbone_has_are_zero(tmp_path, capsys, case):
    _, back = written(tmp_path, case, changes={"embeddings.segments": 0})
    assert "it has no segments and their backbone has: it gets one of zeros" in capsys.readouterr().err
    table = read_tensors(back).read("embeddings/segments/table")
    assert len(table) == 1
    assert not table.any()


def heads(**shapes):
    """Heads of ones."""
    return {"heads": {head: {"bias": np.ones(shape, "float32")} for head, shape in shapes.items()}}


def test_heads_of_pretraining_are_left_out_and_told(tmp_path, capsys):
    _, back = written(tmp_path, "gpt2", **heads(lm=301))
    assert "run: a preset is a backbone: the heads lm are left out" in capsys.readouterr().err
    assert not [name for name in read_tensors(back).names() if name.startswith("heads/")]


@pytest.mark.parametrize(
    ("case", "more", "expected"),
    [
        (
            "bert",
            {"task": {"kind": "classification", "inputs": "text"}, **heads(classifier=2)},
            "the head classifier of",
        ),
        (
            "bert",
            {"changes": {"feedforward.activation": "gelu"}},
            "computes gelu_tanh, .*run gelu, .*--set feedforward.act",
        ),
        ("bert", {"changes": {"epsilon": 1e-5}}, "cannot say epsilon=1e-05"),
        ("bert", {"changes": {"blocks.norm": "pre"}}, "the weight norm/beta has no name"),
        ("distilbert", {"changes": {"embeddings.segments": 2}}, "cannot say embeddings.segments=2"),
        ("roberta", {"changes": {"embeddings.segments": 2}}, "cannot say embeddings.segments=2"),
        ("albert", {"changes": {"embeddings.projected": None, "embeddings.width": 20}}, "embeddings.width=20"),
        ("deberta-v3", {"changes": {"relative.buckets": 0}}, "cannot say relative.buckets=0"),
        ("deberta-v3", {"changes": {"relative.distance": 16}}, "cannot say embeddings.positions=32"),
        ("deberta-v3", {"changes": {"relative.terms": ("c2p",)}}, "cannot say relative.terms="),
        ("bart", {"changes": {"decoder.layers": 1}}, "cannot say decoder.layers=1"),
        ("t5", {"changes": {"output.scaled": False}}, "cannot say output.scaled=False"),
        ("t5 v1.1", {"changes": {"relative.buckets": 16}}, "cannot say relative.buckets=16"),
        ("gpt2", {"changes": {"adapters.width": 4}}, "has adapters"),
        ("xlnet", {"changes": {"distances.clamp": 4}}, "cannot say distances.clamp=4"),
    ],
)
def test_what_their_backbones_do_not_compute_is_refused(case, more, expected, tmp_path):
    presets.directory(tmp_path / "run", case, **more)
    with pytest.raises(InputError, match=expected):
        kb.export_checkpoint(tmp_path / "run", tmp_path / "preset", "keras_hub")
    assert not (tmp_path / "preset").exists()


def test_a_family_without_a_backbone_there_is_refused(tmp_path):
    from kerasbert.checkpoints import save_model
    from kerasbert.checkpoints.directory import Weights
    from kerasbert.checkpoints.plans import shapes_of

    family = registry.family("mpnet")
    spec = family.spec.derive({"blocks.layers": 1, "hidden": 8, "attention.heads": 2, "feedforward.width": 8})
    arrays = {name: np.zeros(shape, "float32") for name, shape in shapes_of(family, spec).items()}
    save_model(tmp_path / "run", name="mpnet", encoder=Weights(spec, arrays))
    with pytest.raises(InputError, match="no checkpoint format of mpnet 'keras_hub'"):
        kb.export_checkpoint(tmp_path / "run", tmp_path / "preset", "keras_hub")


def test_the_same_model_gives_the_same_bytes_and_nothing_is_overwritten(tmp_path):
    presets.directory(tmp_path / "run", "bert", tokenizer=presets.TOKENIZERS["bert"])
    for name in ("one", "two"):
        kb.export_checkpoint(tmp_path / "run", tmp_path / name, "keras_hub")
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert len(files) == 6
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    with pytest.raises(InputError, match="one"):
        kb.export_checkpoint(tmp_path / "run", tmp_path / "one", "keras_hub")

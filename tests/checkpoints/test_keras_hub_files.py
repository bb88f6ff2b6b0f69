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
    assert "run: a preset has no place for the heads lm: they are left out" in capsys.readouterr().err
    assert not [name for name in read_tensors(back).names() if name.startswith("heads/")]


@pytest.mark.parametrize(
    ("case", "more", "expected"),
    [
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


def imported(tmp_path, out):
    """The weights of what the preset is read as."""
    kb.import_checkpoint(tmp_path / "preset", out=tmp_path / out, build=False)
    tensors = read_tensors(tmp_path / out)
    return {name: tensors.read(name) for name in tensors.names()}


def rewritten(tmp_path, write):
    """Have `write(folder, {path: array})` write the weights of a preset anew."""
    import h5py

    found = {}
    with h5py.File(tmp_path / "preset/model.weights.h5") as file:
        file.visititems(lambda path, item: found.update({path: item[()]}) if hasattr(item, "shape") else None)
    (tmp_path / "preset/model.weights.h5").unlink()
    write(tmp_path / "preset", found)


def in_shards(folder, arrays, lost=False):
    """Two files and their list, as Keras writes them, where a layer may lie in both."""
    import h5py

    names, map = ("model_00000.weights.h5", "model_00001.weights.h5"), {}
    for number, name in enumerate(names[: 1 if lost else 2]):
        with h5py.File(folder / name, "w") as file:
            for path in sorted(arrays)[number::2]:
                file[path] = arrays[path]
    for number, path in enumerate(sorted(arrays)):
        map.setdefault(f"/{path.rpartition('/')[0]}", []).append(names[number % 2])
    (folder / "model.weights.json").write_text(json.dumps({"metadata": {}, "weight_map": map}))


def test_weights_in_shards_are_read(tmp_path):
    written(tmp_path, "gpt2")
    whole = imported(tmp_path, "whole")
    rewritten(tmp_path, in_shards)
    parts = imported(tmp_path, "parts")
    assert parts.keys() == whole.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(parts[name], array, err_msg=name)


def test_a_shard_that_is_not_there_is_told(tmp_path):
    written(tmp_path, "gpt2")
    rewritten(tmp_path, lambda folder, arrays: in_shards(folder, arrays, lost=True))
    with pytest.raises(
        InputError, match="lacks model_00001.weights.h5, which model.weights.json names: download every file"
    ):
        imported(tmp_path, "parts")
    (tmp_path / "preset/model.weights.json").write_text('{"weight_map": {}}')
    with pytest.raises(InputError, match="model.weights.json names no files of weights"):
        imported(tmp_path, "parts")


def test_weights_of_two_bytes_are_read(tmp_path):
    """HDF5 has no bfloat16: Keras writes two bytes and says so beside them."""
    written(tmp_path, "gpt2")
    whole = imported(tmp_path, "whole")

    def halved(folder, arrays):
        import h5py

        with h5py.File(folder / "model.weights.h5", "w") as file:
            for path, array in arrays.items():
                upper = (np.ascontiguousarray(array).view("uint32") >> 16).astype("uint16")
                file.create_dataset(path, data=upper.view("V2")).attrs["dtype"] = "bfloat16"

    rewritten(tmp_path, halved)
    for name, array in imported(tmp_path, "halves").items():
        np.testing.assert_allclose(array, whole[name], rtol=2**-7, err_msg=name)


QUANTIZED = {"class_name": "QuantizedDTypePolicy", "config": {"mode": "int8"}}


@pytest.mark.parametrize(
    ("dtype", "told"),
    [
        (
            {"class_name": "DTypePolicyMap", "config": {"policy_map": {"pooled_dense": QUANTIZED}}},
            "QuantizedDTypePolicy",
        ),
        ("int8_from_float32", "int8_from_float32"),
    ],
)
def test_a_quantized_preset_is_refused(tmp_path, dtype, told):
    written(tmp_path, "gpt2")
    config = json.loads((tmp_path / "preset/config.json").read_text())
    config["config"]["dtype"] = dtype
    (tmp_path / "preset/config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=rf"config.json has a quantized dtype \({told}\)"):
        imported(tmp_path, "ours")


def test_what_an_unknown_task_and_its_preprocessor_say_is_told(tmp_path, capsys):
    written(tmp_path, "bert")
    about = {
        "name": "x",
        "dtype": "float32",
        "truncate": "waterfall",
        "sequence_length": 24,
        "tokenizer": {"config": {}},
    }
    (tmp_path / "preset/preprocessor.json").write_text(json.dumps({"class_name": "P", "config": about}))
    task = {"backbone": {"config": {}}, "preprocessor": None, "num_classes": 3, "activation": "linear", "dropout": 0.3}
    (tmp_path / "preset/task.json").write_text(json.dumps({"class_name": "MyTextClassifier", "config": task}))
    (tmp_path / "preset/task.weights.h5").write_bytes(b"")
    capsys.readouterr()
    imported(tmp_path, "ours")
    expected = "not used: the head of MyTextClassifier, num_classes, dropout (task.json); "
    assert expected + "truncate, sequence_length (preprocessor.json)" in capsys.readouterr().err


def test_a_task_without_a_head_is_a_backbone(tmp_path, capsys):
    written(tmp_path, "gpt2")
    task = {"class_name": "GPT2CausalLM", "config": {"backbone": {"config": {}}, "preprocessor": None, "name": "x"}}
    (tmp_path / "preset/task.json").write_text(json.dumps(task))
    capsys.readouterr()
    imported(tmp_path, "ours")
    assert "not used" not in capsys.readouterr().err


@pytest.mark.parametrize("activation", ["swish", "gelu_tanh"])
def test_activations_of_xlnet(tmp_path, activation):
    _, back = written(tmp_path, "xlnet", changes={"feedforward.activation": activation})
    assert read_model_json(back).spec.feedforward.activation == activation

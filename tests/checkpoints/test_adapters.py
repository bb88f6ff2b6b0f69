"""Adapters: which weights they hold, what a base must be, how LoRA is merged; `training/test_adapted` trains them."""

import hashlib
import json
import types

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints import adapters, read_model_json, read_tensors, save_model, source
from kerasbert.checkpoints.adapters import Adapter, adapts, digest, merge, read_adapter, write_adapter
from kerasbert.checkpoints.directory import ModelInfo, ModelParts, Weights
from kerasbert.checkpoints.plans import shapes_of
from kerasbert.errors import InputError
from tests.checkpoints import presets

BASE = presets.spec_of("bert")
LORA = BASE.derive({"lora.rank": 2, "lora.alpha": 6.0})
WIDE = BASE.derive({"adapters.width": 4})


@pytest.mark.parametrize(
    ("spec", "name", "pooler", "expected"),
    [
        (LORA, "block_0/attention/query/lora_a", False, True),
        (LORA, "block_0/attention/query/lora_b", False, True),
        (LORA, "block_0/attention/query/kernel", False, False),
        (LORA, "block_0/attention_norm/gamma", False, False),
        (LORA, "heads/classifier/kernel", False, True),
        (LORA, "pooler/kernel", False, False),
        (LORA, "pooler/kernel", True, True),
        (WIDE, "block_0/attention_norm/gamma", False, True),
        (WIDE, "block_0/feedforward_norm/beta", False, True),
        (WIDE, "block_0/attention_adapter/down/kernel", False, True),
        (WIDE, "block_0/attention/query/kernel", False, False),
        (WIDE, "block_0/attention/query/bias", False, False),
    ],
)
def test_which_weights_adapt(spec, name, pooler, expected):
    assert adapts(spec, name, pooler) is expected


def test_a_digest_is_of_names_and_numbers():
    weights = {"b": np.float32([1, 2]), "a": np.float32([[0.5]])}
    by_hand = hashlib.sha256(b"a" + b"\x00\x00\x00\x3f" + b"b" + b"\x00\x00\x80\x3f\x00\x00\x00\x40").hexdigest()
    assert digest(weights) == digest(dict(reversed(weights.items()))) == by_hand
    assert digest(weights, {"b": None}) == digest({"a": weights["a"]})
    assert digest({"a": weights["a"]}) != digest({"c": weights["a"]})


def test_lora_is_merged_by_hand():
    """kernel + alpha / rank * A B, alpha / rank = 3; what has no LoRA stays."""
    values = {
        "x/kernel": np.float32([[1, 0], [0, 1]]),
        "x/lora_a": np.float32([[1, 0], [2, 1]]),
        "x/lora_b": np.float32([[1, 1], [0, 2]]),
        "x/bias": np.float32([7, 7]),
        "y/kernel": np.float32([[5]]),
    }
    found = {name: read() for name, read in merge(values, values.__getitem__, LORA).items()}
    assert sorted(found) == ["x/bias", "x/kernel", "y/kernel"]
    assert found["x/kernel"].tolist() == [[1 + 3 * 1, 3 * 1], [3 * 2, 1 + 3 * 4]]
    assert (found["x/kernel"].dtype, found["x/bias"].tolist(), found["y/kernel"].tolist()) == ("float32", [7, 7], [[5]])


def arrays_of(spec):
    draw = np.random.default_rng(0)
    return {n: draw.normal(0, 0.2, s).astype("float32") for n, s in shapes_of(registry.family("bert"), spec).items()}


def parts(spec, **more):
    return ModelParts(Weights(spec, arrays_of(spec)), "bert/base", **more)


@pytest.fixture
def written(tmp_path):
    """An adapter, and what it is for."""
    head = {"kernel": np.ones((20, 2), "float32")}
    about = {"task": {"kind": "classification", "inputs": "text"}, "labels": ["a", "b"]}
    write_adapter(tmp_path, parts(LORA, heads={"classifier": head}, **about), pooler=False)
    return tmp_path, ModelInfo("bert", "bert/base", BASE)


def test_what_is_written_is_read(written):
    folder, base = written
    adapter = read_adapter(folder, base)
    arrays = arrays_of(LORA)
    own = {name for name in arrays if name.endswith(("lora_a", "lora_b"))}
    assert set(adapter.arrays) == own | {"heads/classifier/kernel"}
    for name in own:
        np.testing.assert_array_equal(adapter.arrays[name], arrays[name])
    assert (adapter.info.spec, adapter.info.labels, adapter.path) == (LORA, ("a", "b"), folder)
    assert adapter.info.task == {"kind": "classification", "inputs": "text"}
    others = {name: value for name, value in arrays.items() if name not in own}
    adapter.check(others, "bert/base")
    with pytest.raises(
        InputError, match="adapts another model than mine .* expected the bert/base that it was trained"
    ):
        adapter.check(others | {"pooler/bias": others["pooler/bias"] + 1}, "mine")
    Adapter(adapter.info, adapter.arrays, None, folder).check({}, "of others")  # whose files say nothing of a base


def test_names_that_do_not_fit_are_listed(written):
    folder, base = written
    adapter, shapes = read_adapter(folder, base), shapes_of(registry.family("bert"), LORA)
    adapter.check_names(shapes)
    adapter.check_names(shapes | {"heads/classifier/kernel": (20, 2)})
    with pytest.raises(
        InputError, match=r"1 tensors that nothing takes: heads/classifier/kernel \[20, 2\]; 0 missing: none"
    ):
        adapter.check_names(shapes | {"heads/classifier/kernel": (20, 3)})
    with pytest.raises(InputError, match="0 tensors that nothing takes: none; 1 missing: x/lora_a"):
        adapter.check_names(shapes | {"x/lora_a": (1,), "x/kernel": (1,)})


def changed(folder, **changes):
    path = folder / source.ADAPTER
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": 2}, "has format 2, expected 1: use the version that wrote it"),
        ({"files": {}}, "is damaged: copy it again"),
        ({"base": None}, "is damaged: copy it again"),
        ({"files": {adapters.WEIGHTS: {"sha256": "0"}}}, "is not the file that was written: copy the directory again"),
        ({"family": "roberta"}, "adapts a roberta, received the base bert/base: expected bert/base"),
    ],
)
def test_another_adapter_is_refused(changes, said, written):
    folder, base = written
    changed(folder, **changes)
    with pytest.raises(InputError, match=said):
        read_adapter(folder, base)


def test_a_base_of_other_sizes_is_refused_and_of_other_dropout_not(written):
    folder, _ = written
    for changes, said in (
        ({"dropout": 0.3}, None),
        ({"attention.dropout": 0.0, "pooler": False}, None),
        ({"feedforward.width": 34}, "adapts a model with feedforward.width 33, received a base with 34: expected bert"),
    ):
        base = ModelInfo("bert", "bert/base", BASE.derive(changes))
        if said is None:
            assert read_adapter(folder, base).info.spec == LORA
        else:
            with pytest.raises(InputError, match=said):
                read_adapter(folder, base)
    (folder / adapters.WEIGHTS).unlink()
    with pytest.raises(InputError, match="is not the file that was written"):
        read_adapter(folder, ModelInfo("bert", "bert/base", BASE))


def test_a_model_without_an_adapter_is_refused(tmp_path):
    with pytest.raises(InputError, match="bert/base has no LoRA and no adapters, expected one that has"):
        write_adapter(tmp_path, parts(BASE))


def test_a_directory_is_merged_once_and_keeps_the_rest(tmp_path):
    head, about = {"kernel": np.ones((20, 2), "float32")}, {"task": {"kind": "classification", "inputs": "text"}}
    save_model(tmp_path / "run", **vars(parts(LORA, heads={"classifier": head}, labels=["a", "b"], **about)))
    (tmp_path / "run/run.json").write_text("{}")
    merged = adapters.merged_directory(tmp_path / "run")
    info, tensors = read_model_json(merged), read_tensors(merged)
    assert (info.spec, info.labels, info.name, info.task) == (BASE, ("a", "b"), "bert/base", about["task"])
    arrays, at = arrays_of(LORA), "block_1/attention/query"
    wanted = arrays[f"{at}/kernel"] + 3.0 * arrays[f"{at}/lora_a"].astype("float64") @ arrays[f"{at}/lora_b"]
    np.testing.assert_allclose(tensors.read(f"{at}/kernel"), wanted, atol=1e-7)
    np.testing.assert_array_equal(tensors.read("heads/classifier/kernel"), head["kernel"])
    assert (merged / "run.json").read_text() == "{}"
    assert adapters.merged_directory(tmp_path / "run") == merged
    save_model(tmp_path / "plain", **vars(parts(BASE)))
    assert adapters.merged_directory(tmp_path / "plain") == tmp_path / "plain"
    with pytest.raises(kb.InputError, match="is no model directory|no model directory"):
        adapters.merged_directory(tmp_path / "absent")


def test_what_model_json_would_say_of_a_bare_encoder():
    encoder = types.SimpleNamespace(spec=BASE, model_name="bert/base")
    family = types.SimpleNamespace(name="bert")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapters.registry, "family_of", lambda _: family)
        patch.setattr(adapters.registry, "plugin_of", lambda _: {"file": "x"})
        assert adapters.base_info(encoder) == ModelInfo("bert", "bert/base", BASE, plugin={"file": "x"})
        encoder.model_name = ""
        assert adapters.base_info(encoder).name == "bert"

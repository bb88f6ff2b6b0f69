"""LoRA and adapters through training: what is frozen stays to the bit, runs resume, adapters leave and return alone."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.checkpoints import read_tensors
from kerasbert.checkpoints.adapters import adapts
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.testing.battery import eagerly
from tests import tiny as world
from tests.support import python

WAYS = {"lora": {"lora": 2, "changes": {"lora.alpha": 8.0}}, "adapters": {"adapters": 3}}
FAMILIES = "bert", "albert", "electra", "mobilebert"
TEXTS = ["the happy cat", "a bad film", "good river stone"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapted")
    return {"train": world.labelled(folder / "train.tsv", 40), "dev": world.labelled(folder / "dev.tsv", 20, seed=1)}


def train(base, data, out, way, **settings):
    """A few updates, without graphs."""
    settings = {"steps": 4, "batch": 10, "learning_rate": 1e-2, "length": 12, "quiet": True, **WAYS[way], **settings}
    with eagerly():
        return kb.finetune(base, "classification", data, out=out, **settings)


def scores(model):
    with eagerly():
        return [answer.scores for answer in kb.predict(model, TEXTS)]


def tensors(folder, prefix=""):
    found = read_tensors(folder)
    return {name: found.read(name) for name in found.names() if name.startswith(prefix)}


@pytest.fixture(scope="module")
def runs(pretrained, data, tmp_path_factory):
    """A run of each way."""
    folder = tmp_path_factory.mktemp("runs")
    return {way: (folder / way, train(pretrained, data, folder / way, way)) for way in WAYS}


@pytest.mark.parametrize("way", WAYS)
def test_the_base_stays_to_the_bit_and_the_rest_is_trained(pretrained, runs, way):
    run, model = runs[way]
    before, after = tensors(pretrained), tensors(run)
    own = {name for name in after if adapts(model.spec, name)}
    assert own == {
        name for name in after if name not in before or (name.endswith(("gamma", "beta")) and way == "adapters")
    }
    frozen = after.keys() - own
    assert len(frozen) > 25
    assert [name for name in sorted(frozen) if (before[name] != after[name]).any()] == []
    assert [name for name in own if name in before and (before[name] == after[name]).all()] == []
    assert any(after[name].any() for name in own if name.endswith(("lora_b", "up/kernel")))


@pytest.mark.parametrize("way", WAYS)
def test_an_adapter_alone_goes_onto_its_base_and_onto_no_other(pretrained, runs, way, tmp_path):
    run, model = runs[way]
    base = kb.load(pretrained)
    loaded = kb.load(run / "adapter", base=base)
    kb.save(model, tmp_path / "again", adapter=True)
    again = kb.load(tmp_path / "again", base=pretrained)
    lent, mine = names(base), names(loaded.encoder)
    shared = [name for name in lent if mine[name].value is lent[name].value]
    assert set(lent) - set(shared) == {name for name in lent if adapts(model.spec, name)}
    expected = scores(model)
    for one in (loaded, again, kb.load(run)):
        assert scores(one) == expected
    assert one.task == model.task
    assert (run / "adapter" / "adapter.safetensors").stat().st_size < (run / "weights.safetensors").stat().st_size / 2
    with pytest.raises(
        InputError, match=r"holds an adapter alone of bert/tiny: give its base \(base=DIR, --base DIR\)"
    ):
        kb.load(run / "adapter")
    lent["block_0/attention/query/bias"].assign_add(np.full(16, 1e-3, "float32"))
    with pytest.raises(InputError, match=r"adapts another model than bert/tiny \(its weights have another digest\)"):
        kb.load(run / "adapter", base=base)
    with pytest.raises(InputError, match=r"the base .* is adapted itself"):
        kb.load(run / "adapter", base=run)
    wider = kb.build("bert/tiny", **world.SPEC | {"feedforward.width": 8, "embeddings.vocabulary": 74})
    with pytest.raises(InputError, match=r"adapts a model with .* received a base with"):
        kb.load(run / "adapter", base=wider)


def test_adapters_over_one_base_share_it_and_are_switched(pretrained, runs):
    base = kb.load(pretrained)
    models = {way: kb.load(run / "adapter", base=base) for way, (run, _) in runs.items()}
    weights = [names(model.encoder) for model in models.values()]
    assert weights[0]["embeddings/tokens/table"].value is weights[1]["embeddings/tokens/table"].value
    for way in ("lora", "adapters", "lora"):
        expected = scores(runs[way][1])
        assert scores(models[way]) == expected


def test_lora_merged_is_as_large_as_the_base_and_answers_alike(pretrained, runs):
    _, model = runs["lora"]
    merged = kb.merged(model)
    assert merged.spec == kb.load(pretrained).spec.derive({"pooler": merged.spec.pooler})
    assert names(merged.encoder).keys() == tensors(pretrained).keys() - {
        n for n in tensors(pretrained) if n[:6] == "heads/"
    }
    for one, other in zip(scores(model), scores(merged), strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    assert kb.merged(merged) is merged


def test_what_is_refused(pretrained, runs, data, tmp_path):
    def error(base, text, **settings):
        with pytest.raises(InputError, match=text):
            kb.finetune(base, "classification", data, out=tmp_path / "no", **settings)
        assert not (tmp_path / "no").exists()

    error(
        runs["lora"][0], r"bert/tiny is adapted already \(lora.rank 2, adapters.width 0\): leave lora.rank out", lora=4
    )
    error(pretrained, "lora.rank is 17, expected at most 16", lora=17)
    error(pretrained, "no linear map 'attention.qery'", lora=2, changes={"lora.targets": "attention.qery"})
    error(pretrained, "lora must be a whole number of at least 1. Received: 0", lora=0)
    error(pretrained, "lora.rank is 0, no adaptation", changes={"lora.alpha": 3})
    with pytest.raises(InputError, match="lora and adapters adapt a trained model: fine-tune with them"):
        kb.pretrain(runs["lora"][0], pretrained.parent / "records-pairs", steps=1, out=tmp_path / "no")
    error(pretrained, "cannot change hidden of trained weights: dropout may change, lora", changes={"hidden": 3})


@pytest.mark.full  # test_freezing.py does it in CI
def test_every_family_resumes_and_is_the_same_on_two_replicas(data, tmp_path):
    """LoRA and adapters at once, in a process of its own: two replicas are chosen before TensorFlow is used."""
    done = python("-m", "tests.training.adapted_worker", tmp_path, data["train"], data["dev"], *FAMILIES)
    found = json.loads(done.stdout.splitlines()[-1])
    assert list(found) == list(FAMILIES)
    for name, numbers in found.items():
        assert numbers["resumed"] == 0.0, name
        assert numbers["replicas"] < 1e-4, name
        assert (numbers["frozen"], numbers["idle"]) == ([], []), name
        assert numbers["alone"], name


@pytest.mark.full
def test_adapted_models_go_to_servers_phones_and_others(runs, tmp_path):
    """LoRA is merged on the way and costs nothing; adapters stay in the graph, and nobody else's format has them."""
    import kerasbert.mobile as mobile

    kb.export(runs["adapters"][0], tmp_path / "saved_model")  # it compares what it wrote with the model
    sizes = {}
    for way, (run, _) in runs.items():
        report = mobile.compress(run, "float32", tmp_path / f"{way}.tflite", lengths=[12], texts=TEXTS)
        assert report["max_difference"] < 1e-4
        sizes[way] = report["bytes"]
    assert sizes["adapters"] - sizes["lora"] > 4 * 4 * (2 * 16 * 3)  # four adapters in float32
    kb.export_checkpoint(runs["lora"][0], tmp_path / "hf")
    back = kb.load(tmp_path / "hf")
    for one, other in zip(scores(back), scores(runs["lora"][1]), strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    with pytest.raises(
        InputError,
        match=r"bert/tiny has adapters .adapters.width=3., which BertForSequenceClassification has no place for: keep the model",
    ):
        kb.export_checkpoint(runs["adapters"][0], tmp_path / "no")
    with pytest.raises(InputError, match="has adapters, expected LoRA alone"):
        kb.export_checkpoint(runs["adapters"][0], tmp_path / "no", "peft")


@pytest.mark.slow
def test_what_compresses_an_adapted_model_starts_from_the_merged_one(runs, data, tmp_path):
    from kerasbert.mobile.prune import magnitude

    for way, (run, _) in runs.items():
        with eagerly():
            settings = {"steps": 2, "batch": 10, "length": 12, "quiet": True}
            model = magnitude(run, data, sparsity=0.5, out=tmp_path / way, **settings)
        assert (model.spec.lora.rank, model.spec.adapters.width) == (0, 3 if way == "adapters" else 0)
        kernel = np.asarray(names(model.encoder)["block_0/attention/query/kernel"].value)
        assert 0.4 < (kernel == 0).mean() < 0.6

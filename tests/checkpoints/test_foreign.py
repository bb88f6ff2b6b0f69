"""Checkpoints as others leave them: classes of other names, classifiers of pairs, what a format cannot say."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import checkpoints, registry
from kerasbert.layers.heads import token_head
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import Task
from tests.checkpoints.reference import CONFIG, hf_shapes, mlm_logits, random_tensors, write_hf

SIZES = {"hidden": 8, "attention.heads": 2, "feedforward.width": 12, "blocks.layers": 1}
SIZES |= {"embeddings.vocabulary": 20, "embeddings.positions": 16}
TASK = Task("x", labels={"0": "no", "1": "yes"})


def encoder(name, seed=0, **changes):
    """A tiny encoder of a family, every weight N(0, 0.5)."""
    made = kb.build(name, **(SIZES | changes))
    rng = np.random.default_rng(seed)
    for variable in made.weights:
        variable.assign(rng.normal(0, 0.5, variable.shape))
    return made


def saved(folder, made, name, heads=None, task=None):
    """The model directory of an encoder with these heads."""
    labels = tuple(task.labels.values()) if task else None
    parts = {"task": task.to_json() if task else None, "labels": labels, "heads": heads or {}}
    checkpoints.save_model(folder, encoder=made, name=name, **parts)
    return folder


def masked_lm(made, seed=1):
    """A built masked-LM head of an encoder's class with random weights."""
    head = token_head(made.token_head, made.spec)
    head.build((None, None, made.spec.hidden))
    rng = np.random.default_rng(seed)
    for variable in head.weights:
        variable.assign(rng.normal(0, 0.5, variable.shape))
    return head


@pytest.mark.parametrize("name", ["roberta/base", "xlm-roberta/base", "electra/base"])
def test_a_token_head_that_is_gelu_whatever_the_blocks_have(name):
    """By numpy: RobertaLMHead and ElectraGeneratorPredictions name gelu, not hidden_act."""
    more = {"embeddings.width": 8} if name.startswith("electra") else {}
    made = encoder(name, **{"feedforward.activation": "relu", "epsilon": 1e-12} | more)
    head = masked_lm(made)
    weights = {
        f"{part}/{leaf}": np.asarray(getattr(getattr(head, part), leaf).value.numpy(), "float64")
        for part, leaf in (("transform", "kernel"), ("transform", "bias"), ("norm", "gamma"), ("norm", "beta"))
    }
    weights["bias"] = head.bias.value.numpy()
    x, table = np.random.default_rng(2).normal(size=(1, 3, 8)), made.embeddings.tokens.table.value.numpy()
    expected = mlm_logits(weights, table, x)
    np.testing.assert_allclose(head(x.astype("float32"), table), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["BertForSequenceClassification", "CamembertForSequenceClassification"])
def test_a_classifier_of_pairs_says_so_on_import_and_keeps_it(tmp_path, kind):
    config = CONFIG | {"architectures": [kind], "id2label": {"0": "no", "1": "so", "2": "yes"}}
    tensors = random_tensors(hf_shapes(labels=3))
    if kind.startswith("Camembert"):
        config |= {"model_type": "camembert", "pad_token_id": 1}
        names = [("bert.pooler.", "classifier."), ("classifier.", "classifier.out_proj."), ("bert.", "roberta.")]
        tensors = {
            next(new + name.removeprefix(old) for old, new in names if name.startswith(old)): value
            for name, value in tensors.items()
        }
    folder = write_hf(tmp_path / "theirs", tensors, config, vocabulary=None)
    assert kb.import_checkpoint(folder).task["inputs"] == "text"
    made = kb.import_checkpoint(folder, pair=True, out=tmp_path / "ours")
    assert made.task == {"kind": "classification", "inputs": "pair"}
    assert kb.load(tmp_path / "ours").task.text_b
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "back")
    assert kb.import_checkpoint(tmp_path / "back").task == made.task
    assert kb.import_checkpoint(tmp_path / "back", pair=False).task["inputs"] == "text"


def test_pair_without_a_classifier_is_refused(tmp_path):
    with pytest.raises(kb.InputError, match=r"holds no classifier, expected one that reads pairs: leave pair out"):
        kb.import_checkpoint(write_hf(tmp_path, random_tensors(hf_shapes())), pair=True)


def test_a_dry_run_refuses_what_the_import_refuses(tmp_path):
    config = CONFIG | {"architectures": ["BertForSequenceClassification"]}
    config |= {"problem_type": "ranking"}
    multi = write_hf(tmp_path / "multi", random_tensors(hf_shapes(labels=2)), config)
    tensors = random_tensors(hf_shapes())
    untied = tensors | {"cls.predictions.decoder.weight": np.ones((13, 6), "float32")}
    tensors["bert.pooler.dense.bias"] = np.full(6, np.nan, "float32")
    for folder, message in (
        (multi, "problem_type is 'ranking'"),
        (write_hf(tmp_path / "untied", untied), "untied weights have no place here"),
        (write_hf(tmp_path / "nan", tensors), "not finite"),
    ):
        for dry_run in (False, True):
            with pytest.raises(kb.InputError, match=message):
                kb.import_checkpoint(folder, dry_run=dry_run)


def test_the_command_says_by_its_status_that_a_dry_run_does_not_fit(tmp_path, capsys):
    from kerasbert.cli import main

    tensors = random_tensors(hf_shapes())
    tensors["qa_other.bias"] = np.zeros(2, "float32")
    assert main(["import", str(write_hf(tmp_path, tensors)), "--dry-run"]) == 2
    printed = capsys.readouterr()
    assert "extra: qa_other.bias [2]" in printed.out
    assert printed.err.startswith("error: ")
    assert "does not fit the model. 1 extra" in printed.err


def released(folder, tensors):
    """A TF1 checkpoint with further tensors."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(folder / "bert_model.ckpt"))
    tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()} | tensors
    names = sorted(tensors)
    values = [tf.constant(tensors[name]) for name in names]
    prefix = str(folder / "bert_model.ckpt")
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values)
    return folder


def test_a_classifier_of_the_released_electra_has_no_hidden_layer(tmp_path):
    """finetune/classification/classification_tasks.py: the labels stand on the first token as it is."""
    made = encoder("electra/base", **{"embeddings.width": 6})
    kb.export_checkpoint(saved(tmp_path / "run", made, "electra"), tmp_path / "tf1", "tf1")
    kernel = np.random.default_rng(3).normal(size=(8, 2)).astype("float32")
    head = {"task_specific/sst/dense/kernel": kernel, "task_specific/sst/dense/bias": np.ones(2, "float32")}
    released(tmp_path / "tf1", head)
    kb.import_checkpoint(tmp_path / "tf1", "tf1", model="electra", out=tmp_path / "ours")
    model, inputs = kb.load(tmp_path / "ours"), {"token_ids": np.array([[2, 7, 9, 3]])}
    expected = np.asarray(made(inputs)["sequence"])[:, 0] @ kernel + 1
    np.testing.assert_allclose(model(inputs)["logits"], expected, rtol=0, atol=1e-5)
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "back", "tf1")
    again = kb.import_checkpoint(tmp_path / "back", "tf1", model="electra")
    np.testing.assert_array_equal(again.heads["classifier"]["kernel"], kernel)
    with pytest.raises(
        kb.InputError, match="ElectraForSequenceClassification has inner/kernel, inner/bias in the head"
    ):
        kb.export_checkpoint(tmp_path / "ours", tmp_path / "hf")


@pytest.mark.parametrize("name", ["bert/base", "albert/base"])
def test_a_model_without_pooler_comes_back_from_tf1(tmp_path, name):
    more = {"embeddings.width": 6} if name.startswith("albert") else {}
    made = encoder(name, **{"pooler": False} | more)
    run, family = saved(tmp_path / "run", made, name, {"mlm": masked_lm(made)}), name.partition("/")[0]
    kb.export_checkpoint(run, tmp_path / "tf1", "tf1")
    again = kb.import_checkpoint(tmp_path / "tf1", "tf1", model=family, out=tmp_path / "again")
    assert again.spec == made.spec
    one, other = (checkpoints.read_tensors(tmp_path / folder) for folder in ("run", "again"))
    assert one.names() == other.names()
    assert all((one.read(tensor) == other.read(tensor)).all() for tensor in one.names())


def test_what_tf1_cannot_say_is_refused(tmp_path):
    generator = encoder("electra/base", **{"embeddings.width": 6})
    run = saved(tmp_path / "generator", generator, "electra", {"mlm": masked_lm(generator)})
    with pytest.raises(kb.InputError, match="the released code has no place for the heads mlm"):
        kb.export_checkpoint(run, tmp_path / "tf1", "tf1")
    narrow = {"bottleneck.width": 8, "embeddings.width": 4}
    for change in ({"bottleneck.norm": "layer_norm"}, {"bottleneck.pooled": True}):
        ((path, value),) = change.items()
        mobile = saved(tmp_path / path, encoder("mobilebert/base", **narrow | change), "mobilebert")
        with pytest.raises(kb.InputError, match=f"this checkpoint format cannot say {path}={value!r}"):
            kb.export_checkpoint(mobile, tmp_path / "tf1", "tf1")
    assert not (tmp_path / "tf1").exists()


@pytest.mark.parametrize("target", ["hf", "tf1"])
def test_a_classifier_without_pooler_is_not_exported_as_if_it_had_one(tmp_path, target):
    made = encoder("bert/base", pooler=False)
    model = TaskModel(made, TASK)
    model.build()
    run = saved(tmp_path / "run", made, "bert", model.heads, TASK)
    with pytest.raises(
        kb.InputError, match=r"reads a pooled vector and this model was fine-tuned without a pooler .*: fine-"
    ):
        kb.export_checkpoint(run, tmp_path / "out", target)


def test_layer_norms_of_our_own_mobilebert_are_not_taken_for_theirs(tmp_path):
    """transformers has 1e-5 in two places whatever layer_norm_eps says: ours, with 1e-12 everywhere, is refused."""
    narrow = {"bottleneck.width": 8, "embeddings.width": 4, "bottleneck.norm": "layer_norm"}
    with pytest.raises(kb.InputError, match="cannot say bottleneck.epsilon=None"):
        kb.export_checkpoint(saved(tmp_path / "a", encoder("mobilebert/base", **narrow), "mobilebert"), tmp_path / "b")


def test_embeddings_of_albert_are_projected_where_e_is_h_too(tmp_path):
    made = encoder("albert/base", **{"embeddings.width": 8, "embeddings.projected": True})
    assert made.embeddings.projection is not None
    kb.export_checkpoint(saved(tmp_path / "run", made, "albert"), tmp_path / "hf")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["embedding_size"] == 8
    assert kb.import_checkpoint(tmp_path / "hf").spec == made.spec
    with pytest.raises(kb.InputError, match="cannot say .*embeddings.projected=True"):
        kb.export_checkpoint(tmp_path / "run", tmp_path / "tf1", "tf1")
    plain = encoder("albert/base", **{"embeddings.width": 8})
    assert plain.embeddings.projection is None
    with pytest.raises(kb.InputError, match="cannot say embeddings.width=8"):
        kb.export_checkpoint(saved(tmp_path / "plain", plain, "albert"), tmp_path / "hf2")
    kb.export_checkpoint(tmp_path / "plain", tmp_path / "tf1", "tf1")
    assert kb.import_checkpoint(tmp_path / "tf1", "tf1", model="albert").embeddings.projection is None


def test_other_families_of_theirs_that_are_ours():
    """camembert and data2vec-text compute what RoBERTa computes, under classes of their own names."""
    dialect = registry.family("roberta").names["hf"]
    assert {"camembert", "data2vec-text"} <= set(dialect.model_types)
    assert dialect.class_of("CamembertForMaskedLM") == "RobertaForMaskedLM"
    assert dialect.class_of("CamembertForTokenClassification") == "RobertaForTokenClassification"
    assert dialect.class_of("RobertaForCausalLM") == "RobertaForCausalLM"  # its attention is another

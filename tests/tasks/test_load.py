"""Models in directories and files: what is kept, which heads are taken, what is refused."""

import types

import keras
import numpy as np
import pytest

import kerasbert as kb
from kerasbert import checkpoints, registry
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.tasks import load
from kerasbert.tasks.base import Task, find
from kerasbert.tasks.model import TaskModel
from tests import tiny

SIZES = tiny.SPEC | {"embeddings.vocabulary": tiny.tokenizer().size}


def encoder(name="bert/tiny", **changes):
    made = kb.build(name, **SIZES | changes)
    made.tokenizer = tiny.tokenizer()
    return made


def classifier(**task):
    model = TaskModel(encoder(), Task("t", labels={"a": "no", "b": "yes"}, **task))
    model.build()
    model.heads["classifier"].kernel.assign(np.arange(32.0).reshape(16, 2))
    return model


def same(one, other):
    one, other = names(one), names(other)
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(np.asarray(value), np.asarray(other[name]), err_msg=name)


def test_a_task_is_kept_with_its_head_labels_and_tokenizer(tmp_path):
    model = classifier(length=9)
    kb.save(model, tmp_path / "run")
    back = kb.load(tmp_path / "run")
    same(model, back)
    assert (back.labels, back.task.length, back.task.kind) == (("no", "yes"), 9, "classification")
    assert back.tokenizer.digest() == tiny.tokenizer().digest()
    assert back.directory == tmp_path / "run"
    with pytest.raises(InputError, match="exists already|holds"):
        kb.save(model, tmp_path / "run")
    kb.save(encoder(), tmp_path / "run", overwrite=True)
    assert not isinstance(kb.load(tmp_path / "run"), TaskModel)


def test_what_is_not_saved(tmp_path):
    bare = kb.build("bert/tiny", **SIZES)
    with pytest.raises(InputError, match="the model has no tokenizer: give tokenizer="):
        kb.save(bare, tmp_path / "a")
    with pytest.raises(InputError, match="save takes an encoder or a task's model, received Sequential"):
        kb.save(keras.Sequential(), tmp_path / "a")
    size = tiny.tokenizer().size
    small = kb.build("bert/tiny", **SIZES | {"embeddings.vocabulary": size - 1})
    with pytest.raises(InputError, match=f"the tokenizer has {size} pieces, expected at most {size - 1}"):
        kb.save(small, tmp_path / "a", tokenizer=tiny.tokenizer())
    assert not (tmp_path / "a").exists()
    kb.save(bare, tmp_path / "b", tokenizer=tiny.tokenizer())  # as many pieces as rows
    assert kb.load(tmp_path / "b").tokenizer.size == size


def test_an_adapter_alone_holds_no_other_weights(tmp_path):
    model = encoder(**{"lora.rank": 2})
    kb.save(model, tmp_path / "adapter", adapter=True)
    held = checkpoints.safetensors.Safetensors(tmp_path / "adapter/adapter.safetensors").names()
    assert held
    assert all(name.endswith(("lora_a", "lora_b")) or name.startswith("pooler/") for name in held)


def write_lm(path, value=0.0):
    """A GPT-2 with a number that is added to each logit."""
    made = kb.build("gpt2/small", **SIZES)
    parts = {"heads": {"lm": {"bias": np.full(SIZES["embeddings.vocabulary"], value, "float32")}}}
    checkpoints.save_model(path, encoder=made, name="gpt2", tokenizer=tiny.tokenizer(), **parts)
    return path


def test_numbers_that_a_task_would_leave_out_are_not_left_out_in_silence(tmp_path):
    writes = find("generation")
    load.check_left_out(write_lm(tmp_path / "zero"), writes)
    path = write_lm(tmp_path / "one", 1.0)
    with pytest.raises(
        InputError, match="holds heads/lm/bias, which is added to the output and is not zero: a generation"
    ):
        load.check_left_out(path, writes)
    load.check_left_out(path, find("classification"))  # reads no such head
    with pytest.raises(InputError, match="holds heads/lm/bias"):
        load.held_task(path, writes)


def test_what_a_directory_or_a_model_says_of_its_task(tmp_path):
    kb.save(classifier(), tmp_path / "run")
    kind = find("classification")
    task, family = load.held_task(tmp_path / "run", kind)
    assert (task["kind"], family.name) == ("classification", "bert")
    kb.save(encoder(), tmp_path / "bare")
    assert load.held_task(tmp_path / "bare", kind) == ({}, registry.family("bert"))
    model = encoder()
    assert load.held_task(model, kind) == ({}, registry.family("bert"))
    model.generation = {"all": {"beams": 2}}
    assert load.held_task(model, kind)[0] == {"generation": model.generation}
    assert load.held_task(types.SimpleNamespace(encoder=model), kind)[0] == {"generation": model.generation}
    checkpoints.save_model(tmp_path / "writes", encoder=model, name="bert", generation=model.generation)
    assert load.held_task(tmp_path / "writes", kind)[0] == {"generation": model.generation}


def test_a_task_that_needs_no_fine_tuning_takes_the_heads_of_pretraining(tmp_path):
    kb.save(encoder(), tmp_path / "bare")
    with pytest.raises(InputError, match="has no head mlm, which fill-mask needs: expected a run of pretraining"):
        kb.load(tmp_path / "bare", task="fill-mask")
    head = {
        "transform/kernel": np.eye(16, dtype="float32"),
        "transform/bias": np.zeros(16, "float32"),
        "norm/gamma": np.ones(16, "float32"),
        "norm/beta": np.zeros(16, "float32"),
        "bias": np.arange(SIZES["embeddings.vocabulary"], dtype="float32"),
    }
    about = {"name": "bert", "tokenizer": tiny.tokenizer(), "heads": {"mlm": head}}
    checkpoints.save_model(tmp_path / "run", encoder=encoder(), **about)
    model = kb.load(tmp_path / "run", task="fill-mask")
    np.testing.assert_array_equal(model.heads["mlm"].bias, head["bias"])
    assert (model.task.kind, model.directory) == ("tokens", tmp_path / "run")
    assert not isinstance(kb.load(tmp_path / "run"), TaskModel)


def test_options_of_other_files_are_refused(tmp_path):
    kb.save(encoder(), tmp_path / "bare")
    with pytest.raises(InputError, match="labels are of a .keras file, which has none, and .* has its own"):
        kb.load(tmp_path / "bare", labels="a,b")
    with pytest.raises(InputError, match="precision bfloat16 is for models of kerasbert: x.keras"):
        kb.load("x.keras", precision="bfloat16")
    with pytest.raises(InputError, match="precision"):
        kb.load(tmp_path / "bare", precision="float16")
    (tmp_path / "x.keras").write_bytes(b"PK")
    with pytest.raises(InputError, match="Keras cannot read .*x.keras: "):
        kb.load(tmp_path / "x.keras")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Keras' own
def test_a_file_of_keras_with_labels(tmp_path):
    keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]).save(tmp_path / "own.keras")
    assert kb.load(tmp_path / "own.keras", labels="a, b").labels == ["a", "b"]
    assert not hasattr(kb.load(tmp_path / "own.keras"), "labels")
    keras.Sequential([keras.Input((3,)), keras.layers.Lambda(lambda x: x)]).save(tmp_path / "lambda.keras")
    with pytest.raises(InputError, match="holds a lambda, whose code Keras does not run from a file"):
        kb.load(tmp_path / "lambda.keras")

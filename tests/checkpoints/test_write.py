"""A model directory under the names of others: which class, heads and unit; each format has tests of its own."""

import dataclasses
import types

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints import save_model, write
from kerasbert.checkpoints.directory import ModelInfo, Weights
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.errors import InputError
from kerasbert.spec import Spec
from tests.checkpoints import presets
from tests.checkpoints.test_forms import Stored

BERT = registry.family("bert").names["hf"]
SPEC: Spec = presets.spec_of("bert")
INFO = ModelInfo("bert", "bert", SPEC)
CLASSIFIER = ("heads/classifier/kernel", "heads/classifier/bias")


def heads(*names):
    return Stored(**{name: np.ones(2, "float32") for name in names})


@pytest.mark.parametrize(
    ("names", "task", "expected"),
    [
        ((), None, "BertModel"),
        (CLASSIFIER, "classification", "BertForSequenceClassification"),
        (CLASSIFIER, "regression", "BertForSequenceClassification"),
        (CLASSIFIER, "tags", "BertForTokenClassification"),
        (CLASSIFIER, "choice", "BertForMultipleChoice"),
        (("heads/span/kernel",), "span", "BertForQuestionAnswering"),
        (("heads/mlm/bias",), None, "BertForMaskedLM"),
        (("heads/mlm/bias", "heads/nsp/bias"), None, "BertForPreTraining"),
        (("heads/nsp/bias",), None, "BertForNextSentencePrediction"),
    ],
)
def test_the_class_with_exactly_the_heads(names, task, expected):
    info = dataclasses.replace(INFO, task=task and {"kind": task})
    assert write.class_of(BERT, info, heads(*names)) == expected


def test_heads_that_no_class_has():
    with pytest.raises(InputError, match="no class of theirs has exactly the heads classifier, mlm: export a model"):
        write.class_of(BERT, INFO, heads(*CLASSIFIER, "heads/mlm/bias"))
    with pytest.raises(InputError, match="no class of theirs for span has exactly the heads classifier"):
        write.class_of(BERT, dataclasses.replace(INFO, task={"kind": "span"}), heads(*CLASSIFIER))


@pytest.mark.parametrize(
    ("changes", "names", "said"),
    [
        ({"adapters.width": 4}, (), r"bert has adapters \(adapters.width=4\), which theirs has no place for"),
        ({}, ("heads/strange/kernel",), "theirs has no place for the heads strange: export a model without them"),
        ({}, CLASSIFIER[:1], "theirs has bias in the head 'classifier', this model has not"),
        ({"pooler": False}, CLASSIFIER, "theirs reads a pooled vector and this model was fine-tuned without a pooler"),
    ],
)
def test_what_their_class_would_compute_otherwise_is_refused(changes, names, said):
    info = dataclasses.replace(INFO, spec=SPEC.derive(changes))
    theirs = "BertForSequenceClassification" if "pooler" in changes else "theirs"
    with pytest.raises(InputError, match=said.replace("theirs", theirs)):
        write._check_heads(BERT, info, SPEC, heads(*names), theirs)
    write._check_heads(BERT, INFO, SPEC, heads(*CLASSIFIER), "BertForSequenceClassification")


def test_a_regression_answers_in_the_unit_of_its_targets():
    tensors = Stored(
        **{
            "heads/classifier/kernel": np.float32([[2.0]]),
            "heads/classifier/bias": np.float32([0.5]),
            "x": np.float32([3]),
        }
    )
    task = {"mean": 10.0, "std": 4.0}
    found = {name: write.in_units(tensors, task, name).tolist() for name in tensors.names()}
    assert found == {"heads/classifier/kernel": [[8.0]], "heads/classifier/bias": [12.0], "x": [3.0]}
    for same in ({}, {"mean": 0.0, "std": 1.0}):
        assert write.in_units(tensors, same, "heads/classifier/bias").tolist() == [0.5]
    assert write.in_units(tensors, {"mean": 1.0}, "heads/classifier/bias").tolist() == [1.5]
    assert write.in_units(tensors, {"std": 2.0}, "heads/classifier/bias").tolist() == [1.0]


def test_more_and_fewer_tensors():
    tensors = heads("heads/a/x", "heads/b/x", "y")
    more = write.With(tensors, {"z": np.zeros((3, 1))})
    assert (more.names(), more.shape("z"), more.shape("y")) == (["heads/a/x", "heads/b/x", "y", "z"], (3, 1), (2,))
    assert (more.read("z").tolist(), more.read("y").tolist()) == ([[0], [0], [0]], [1, 1])
    fewer = write.Without(tensors, ("heads/a/", "heads/c/"))
    assert (fewer.names(), fewer.shape("y"), fewer.read("y").tolist()) == (["heads/b/x", "y"], (2,), [1, 1])


def test_a_class_that_writes_gets_a_bias_of_zeros_where_the_task_is_to_write():
    bart = registry.family("bart")
    info = ModelInfo(
        "bart", "bart", bart.spec.derive({"embeddings.vocabulary": 7}), {"kind": "generation", "options": {}}
    )
    dialect = bart.names["hf"]
    found = write._with_lm_head(dialect, info, heads("y"))
    assert found.read(write.LM_BIAS).tolist() == [0.0] * 7
    held = heads("heads/lm/bias")
    assert write._with_lm_head(dialect, info, held) is held
    plain = heads("y")
    assert write._with_lm_head(dialect, dataclasses.replace(info, task=None), plain) is plain
    assert write._with_lm_head(BERT, info, plain) is plain


def test_names_forms_and_beginnings_that_are_left_out(tmp_path):
    shapes = {"block_0/attention/query/kernel": (2, 3), "pooler/bias": (3,), "embeddings/norm/gamma": (3,)}
    write_safetensors(tmp_path / "x", shapes, lambda name: np.ones(shapes[name], "float32"))
    sources, found = write._tensors(BERT, Safetensors(tmp_path / "x"), ("pooler/",))
    query = "bert.encoder.layer.0.attention.self.query.weight"
    assert sources[query] == ("block_0/attention/query/kernel", True)
    assert sources["bert.embeddings.LayerNorm.weight"] == ("embeddings/norm/gamma", False)
    assert (found[query], found["bert.embeddings.LayerNorm.weight"]) == ((3, 2), (3,))
    assert not [name for name in found if "pooler" in name]


def test_formats_that_a_family_has_not():
    assert write.dialect_of("hf", INFO) is BERT
    with pytest.raises(InputError, match="no checkpoint format of bert 'hff'. Nearest: 'hf'"):
        write.dialect_of("hff", INFO)
    bare = next(name for name, family in registry.families().items() if not family.names)
    with pytest.raises(InputError, match=f"{bare} has no format of other libraries: keep the model directory"):
        write.dialect_of("hf", ModelInfo(bare, bare, SPEC))


def saved(path, **task):
    head = {"kernel": np.ones((20, 2), "float32"), "bias": np.ones(2, "float32")}
    spec = SPEC
    about = {"task": {"kind": "classification", "inputs": "text", **task}, "labels": ["a", "b"]}
    save_model(
        path, name="bert", encoder=Weights(spec, presets.arrays_of("bert", spec)), heads={"classifier": head}, **about
    )
    return path


def test_heads_that_read_something_else_stay_here(tmp_path):
    info, tensors = write.read_model(saved(tmp_path / "plain"))
    assert (info.labels, tensors.shape("heads/classifier/bias")) == (("a", "b"), (2,))
    with pytest.raises(InputError, match="their classes read the first token, the head of .* the pooling 'max'"):
        write.read_model(saved(tmp_path / "pooled", options={"pooling": "max"}))
    with pytest.raises(InputError, match="their classes read the last layer, the head of .* reads layers 'mix'"):
        write.read_model(saved(tmp_path / "mixed", layers="mix"))


def test_padding_changes_its_place_where_theirs_is_fixed():
    """A RoBERTa of another tokenizer: rows of the two ids are exchanged, in the table and in the tokenizer."""
    tokenizer = presets.TOKENIZERS["bert"]  # pads with 0
    info = ModelInfo("roberta", "roberta", presets.spec_of("roberta", **{"embeddings.vocabulary": 5}))
    dialect = registry.family("roberta").names["hf"]
    assert write._order(dialect, info, {"pad_token_id": 1}, tokenizer).tolist() == [1, 0, 2, 3, 4]
    assert write._order(dialect, info, {"pad_token_id": 1}, types.SimpleNamespace(pad_id=1)) is None
    assert write._order(BERT, INFO, {}, tokenizer) is None


def test_a_model_without_its_pooler_says_so_and_the_vocabulary_has_no_file_of_ours(tmp_path):
    spec = SPEC.derive({"pooler": False})
    arrays = {name: value for name, value in presets.arrays_of("bert", SPEC).items() if not name.startswith("pooler/")}
    save_model(tmp_path / "run", name="bert", encoder=Weights(spec, arrays), tokenizer=presets.TOKENIZERS["bert"])
    found = write.named("hf", tmp_path / "run", classes=True)
    assert (found.kind, found.config["add_pooling_layer"]) == ("BertModel", False)
    np.testing.assert_array_equal(
        found.read("bert.embeddings.word_embeddings.weight"), arrays["embeddings/tokens/table"]
    )
    kernel = "bert.encoder.layer.1.output.dense.weight"
    np.testing.assert_array_equal(found.read(kernel), arrays["block_1/feedforward/outer/kernel"].T)
    assert found.read(kernel).flags.c_contiguous
    plain = write.named("tf1", tmp_path / "run", classes=False)
    assert (plain.kind, plain.order) == (None, None)
    write.write_vocabulary(tmp_path, presets.TOKENIZERS["bert"])
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["vocab.txt"]
    with pytest.raises(kb.InputError, match="no checkpoint format"):
        write.named("nothing", tmp_path / "run", classes=False)

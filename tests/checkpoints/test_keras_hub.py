"""KerasHub presets, live: what we import computes what they compute."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.errors import InputError
from kerasbert.text.bpe import ALPHABET, SPECIALS

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # keras_hub's own imports
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

SIZE = {"num_layers": 3, "num_heads": 5, "hidden_dim": 40, "intermediate_dim": 67, "max_sequence_length": 32}
PRESETS = {
    family.names["keras_hub"].fixed["class_name"]: name
    for name, family in registry.families().items()
    if "keras_hub" in family.names
}


@pytest.fixture(scope="module")
def keras_hub():
    return pytest.importorskip("keras_hub")


def make(keras_hub, name, folder, seed=0, vocabulary=101, embedding=11):
    """A preset on disk with random weights large enough that a swapped matrix shows."""
    more = {"vocab_size" if name == "ElectraBackbone" else "vocabulary_size": vocabulary}
    if name in ("AlbertBackbone", "ElectraBackbone"):
        more["embedding_dim"] = embedding
    model = getattr(keras_hub.models, name)(**SIZE, **more)
    rng = np.random.default_rng(seed)
    model.set_weights([rng.normal(0, 0.2, weight.shape).astype("float32") for weight in model.weights])
    model.save_to_preset(str(folder))
    return model


def inputs(length=9, rows=3):
    rng = np.random.default_rng(1)
    mask = np.ones((rows, length), "int32")
    for row in range(rows):
        mask[row, length - row :] = 0
    ids = np.where(mask, rng.integers(6, 101, (rows, length)), 1)
    return ids.astype("int32"), mask, np.sort(rng.integers(0, 2, (rows, length)), axis=1).astype("int32")


@pytest.mark.parametrize(("name", "embedding"), [*((name, 11) for name in PRESETS), ("ElectraBackbone", 40)])
def test_every_backbone(keras_hub, tmp_path, name, embedding):
    theirs = make(keras_hub, name, tmp_path / "preset", embedding=embedding)
    ids, mask, segments = inputs()
    names = {"token_ids": ids, "padding_mask": mask, "segment_ids": segments}
    expected = theirs({part: names[part] for part in (tensor.name for tensor in theirs.inputs)})
    encoder = kb.import_checkpoint(tmp_path / "preset", "keras_hub", out=tmp_path / "ours")
    assert encoder.tokenizer is None
    got, real = encoder(names), mask.astype(bool)
    if isinstance(expected, dict):
        np.testing.assert_allclose(got["pooled"], expected["pooled_output"], atol=1e-5)
        expected = expected["sequence_output"]
    np.testing.assert_allclose(np.asarray(got["sequence"])[real], np.asarray(expected)[real], atol=1e-5)
    assert kb.load(tmp_path / "ours").spec == encoder.spec


def test_the_table_of_a_dry_run_and_what_does_not_fit(keras_hub, tmp_path):
    make(keras_hub, "BertBackbone", tmp_path / "preset")
    table = str(kb.import_checkpoint(tmp_path / "preset", "keras_hub", dry_run=True))
    assert "block_2/attention/query/kernel" in table
    assert table.endswith("55 weights assigned, 0 missing, 0 extra, 0 misshaped")
    config = json.loads((tmp_path / "preset/config.json").read_text())
    config["config"]["num_layers"] = 2
    (tmp_path / "preset/config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="16 extra: layers/transformer_encoder_2/_feedforward_intermediate_dense"):
        kb.import_checkpoint(tmp_path / "preset", "keras_hub")
    config["class_name"] = "GemmaBackbone"
    (tmp_path / "preset/config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="holds a GemmaBackbone, expected one of"):
        kb.import_checkpoint(tmp_path / "preset", "keras_hub")


def test_tokenizers_come_along(keras_hub, tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s"]
    make(keras_hub, "BertBackbone", tmp_path / "bert")
    keras_hub.models.BertTokenizer(vocabulary=pieces, lowercase=True).save_to_preset(str(tmp_path / "bert"))
    assert kb.import_checkpoint(tmp_path / "bert", "keras_hub").tokenizer.encode("The cats") == [5, 6, 7]


def test_a_byte_level_tokenizer_comes_along(keras_hub, tmp_path):
    known = [*SPECIALS.values(), *sorted(ALPHABET), "ab"]
    theirs = keras_hub.models.RobertaTokenizer(vocabulary={p: i for i, p in enumerate(known)}, merges=["a b"])
    make(keras_hub, "RobertaBackbone", tmp_path / "preset", vocabulary=len(known))
    theirs.save_to_preset(str(tmp_path / "preset"))
    text = "abba, baab"
    ours = kb.import_checkpoint(tmp_path / "preset", "keras_hub").tokenizer.encode(text)
    assert ours == np.asarray(theirs(text)).tolist()

"""KerasHub presets, live: what we import computes what they compute, and they what we wrote."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.errors import InputError
from kerasbert.text.bpe import ALPHABET, SPECIALS
from tests.checkpoints import presets

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # keras_hub's own imports
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

SIZE = {"num_layers": 3, "num_heads": 5, "hidden_dim": 40, "intermediate_dim": 67, "max_sequence_length": 32}
BACKBONES = dict.fromkeys(
    family.names["keras_hub"].fixed["class_name"]
    for family in registry.families().values()
    if "keras_hub" in family.names
)
UNBOUNDED = ("T5Backbone", "XLNetBackbone")  # which have no max_sequence_length
T5_1_1 = {"tie_embedding_weights": False, "use_gated_activation": True}
OPTIONS = {
    "T5Backbone": [
        {"use_gated_activation": False, "num_layers": 1},
        {"activation": "gelu_approximate", "key_value_dim": 6, "num_layers": 2, **T5_1_1},
    ],
    "BartBackbone": [{"num_layers": 2}],
    "XLNetBackbone": [{"activation": "relu"}, {}],
    "DebertaV3Backbone": [{"bucket_size": 8}, {"bucket_size": 12}],
    "AlbertBackbone": [{"embedding_dim": 11}, {"embedding_dim": 40}],
    "ElectraBackbone": [{"embedding_dim": 11}, {"embedding_dim": 40}],
}


@pytest.fixture(scope="module")
def keras_hub():
    return pytest.importorskip("keras_hub")


def make(keras_hub, name, folder, seed=0, vocabulary=101, **options):
    """A preset on disk with random weights large enough that a swapped matrix shows."""
    more = {"vocab_size" if name == "ElectraBackbone" else "vocabulary_size": vocabulary}
    if options.get("activation") == "gelu_approximate":
        options["activation"] = keras_hub.src.utils.keras_utils.gelu_approximate
    size = {key: value for key, value in SIZE.items() if key != "max_sequence_length" or name not in UNBOUNDED}
    model = getattr(keras_hub.models, name)(**size | more | options)
    rng = np.random.default_rng(seed)
    model.set_weights([rng.normal(0, 0.2, weight.shape).astype("float32") for weight in model.weights])
    model.save_to_preset(str(folder))
    return model


def theirs_of(inputs, model):
    """Our inputs under their names, for a model of theirs."""
    named = dict(inputs)
    if "decoder_token_ids" in named:
        named |= {f"encoder_{name}": named[name] for name in ("token_ids", "padding_mask")}
    named.setdefault("segment_ids", np.zeros_like(named["token_ids"]))
    return {name: named[name] for name in (tensor.name for tensor in model.inputs)}


def check(encoder, model, inputs):
    """Equal vectors of all tokens that are no padding, and of texts where both have them."""
    got, expected = encoder(inputs), model(theirs_of(inputs, model))
    real = inputs.get("decoder_padding_mask", inputs["padding_mask"]).astype(bool)
    if isinstance(expected, dict):
        if "pooled_output" in expected and "pooled" in got:
            np.testing.assert_allclose(got["pooled"], expected["pooled_output"], atol=1e-5)
        expected = expected.get("sequence_output", expected.get("decoder_sequence_output"))
    np.testing.assert_allclose(np.asarray(got["sequence"])[real], np.asarray(expected)[real], atol=1e-5)


@pytest.mark.parametrize(
    ("name", "options"), [(name, options) for name in BACKBONES for options in OPTIONS.get(name, [{}])]
)
def test_every_backbone(keras_hub, tmp_path, name, options):
    theirs = make(keras_hub, name, tmp_path / "preset", **options)
    encoder = kb.import_checkpoint(tmp_path / "preset", "keras_hub", out=tmp_path / "ours")
    assert encoder.tokenizer is None
    case = next(each for each, (family, _) in presets.MODELS.items() if family == encoder.model_name)
    inputs = {key: value % 101 for key, value in presets.inputs_of(case).items()}
    check(encoder, theirs, inputs)
    assert kb.load(tmp_path / "ours").spec == encoder.spec


@pytest.mark.parametrize("case", [case for case in presets.MODELS if case not in ("kbert", "t5", "mt5")])
def test_they_compute_what_we_wrote(keras_hub, tmp_path, case):
    presets.directory(tmp_path / "run", case)
    kb.export_checkpoint(tmp_path / "run", tmp_path / "preset", "keras_hub")
    theirs = keras_hub.models.Backbone.from_preset(str(tmp_path / "preset"))
    check(kb.load(tmp_path / "run"), theirs, presets.inputs_of(case))


@pytest.mark.parametrize("case", presets.TOKENIZERS)
def test_their_tokenizers_and_preprocessors_give_our_ids(keras_hub, tmp_path, case):
    tokenizer = presets.TOKENIZERS[case]
    presets.directory(tmp_path / "run", case, tokenizer=tokenizer)
    kb.export_checkpoint(tmp_path / "run", tmp_path / "preset", "keras_hub")
    theirs = keras_hub.tokenizers.Tokenizer.from_preset(str(tmp_path / "preset"))
    for text in presets.TEXTS:
        assert np.asarray(theirs(text)).tolist() == tokenizer.encode(text)
    if case in ("electra", "t5", "bart", "gpt2"):  # whose preprocessors are of tasks that write, or not there
        return
    pack = keras_hub.models.TextClassifierPreprocessor.from_preset(str(tmp_path / "preset"), sequence_length=24)
    for text in presets.TEXTS:
        ids, ours = np.asarray(pack([text])["token_ids"])[0].tolist(), tokenizer.pack(text)[0]
        assert ids == [*ours, *[tokenizer.pad_id] * (24 - len(ours))]


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


def test_special_tokens_within_texts_come_along(keras_hub, tmp_path):
    """BertTokenizer with special_tokens_in_strings, in and out."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "[", "]", "sep"]
    make(keras_hub, "BertBackbone", tmp_path / "bert", vocabulary=len(pieces))
    about = {"lowercase": True, "special_tokens_in_strings": True}
    theirs = keras_hub.models.BertTokenizer(vocabulary=pieces, **about)
    theirs.save_to_preset(str(tmp_path / "bert"))
    ours = kb.import_checkpoint(tmp_path / "bert", "keras_hub", out=tmp_path / "run").tokenizer
    kb.export_checkpoint(tmp_path / "run", tmp_path / "back", "keras_hub")
    back = keras_hub.models.BertTokenizer.from_preset(str(tmp_path / "back"))
    for text in ("The cats [SEP] the", "[SEP][MASK]cat", "[sep] the", "the[CLS]"):
        assert ours.encode(text) == np.asarray(theirs(text)).tolist() == np.asarray(back(text)).tolist(), text


def test_a_byte_level_tokenizer_comes_along(keras_hub, tmp_path):
    known = [*SPECIALS.values(), *sorted(ALPHABET), "ab"]
    theirs = keras_hub.models.RobertaTokenizer(vocabulary={p: i for i, p in enumerate(known)}, merges=["a b"])
    make(keras_hub, "RobertaBackbone", tmp_path / "preset", vocabulary=len(known))
    theirs.save_to_preset(str(tmp_path / "preset"))
    text = "abba, baab"
    ours = kb.import_checkpoint(tmp_path / "preset", "keras_hub").tokenizer.encode(text)
    assert ours == np.asarray(theirs(text)).tolist()

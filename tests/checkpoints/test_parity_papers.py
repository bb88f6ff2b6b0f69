"""The Transformer against Marian, GPT against OpenAIGPT, MASS against numpy: as in test_parity_generate.py."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.checkpoints import save_model
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.errors import InputError
from kerasbert.layers.heads import tied_logits
from tests.checkpoints import test_parity_decoding as decoding
from tests.checkpoints.test_parity_generate import alone, batch, compare, named
from tests.checkpoints.theirs import close, make, parity, run, same_after_export, transformers
from tests.models.test_generating import tiny

MARIAN = {"max_position_embeddings": 15, "scale_embedding": True}
MARIAN_SIZES = [
    {"vocab_size": 61, "d_model": 15, "layers": (2, 3), "heads": 3, "width": 23, "activation_function": "swish"},
    {"vocab_size": 47, "d_model": 14, "layers": (1, 1), "heads": 2, "width": 9, "activation_function": "relu"},
    {"vocab_size": 83, "d_model": 25, "layers": (3, 1), "heads": 5, "width": 31, "activation_function": "gelu"},
]


def marian(vocab_size, d_model, layers, heads, width, **more):
    """A configuration in their words, both stacks alike but for their layers."""
    ids = {"pad_token_id": vocab_size - 1, "decoder_start_token_id": vocab_size - 1}
    config = MARIAN | ids | {"vocab_size": vocab_size, "d_model": d_model} | more
    for stack, count in zip(("encoder", "decoder"), layers):
        config |= {f"{stack}_layers": count, f"{stack}_attention_heads": heads, f"{stack}_ffn_dim": width}
    return config


GPT_SIZES = [
    {"vocab_size": 61, "n_positions": 17, "n_embd": 15, "n_layer": 2, "n_head": 3},
    {"vocab_size": 47, "n_positions": 12, "n_embd": 14, "n_layer": 1, "n_head": 2, "afn": "swish"},
    {"vocab_size": 83, "n_positions": 31, "n_embd": 25, "n_layer": 3, "n_head": 5},
]
CASES = [
    *(("MarianMTModel", marian(**size)) for size in MARIAN_SIZES),
    *(("OpenAIGPTLMHeadModel", size) for size in GPT_SIZES),
    ("OpenAIGPTModel", GPT_SIZES[0] | {"afn": "relu"}),
]


def fixed_positions(their) -> None:
    """Sines and cosines, with which they fill what they read."""
    for name, module in their.named_modules():
        if name.endswith("embed_positions"):
            module.weight.data = module.create_weight()


@parity
@pytest.mark.parametrize(("kind", "config"), named(CASES))
def test_logits_and_back_again(kind, config, tmp_path):
    their = make(kind, config, seed=len(str(config)))
    fixed_positions(their)
    if hasattr(their, "final_logits_bias"):
        their.final_logits_bias.normal_(0, 0.2)
    inputs = batch(config["vocab_size"], two=getattr(their.config, "is_encoder_decoder", False))
    model = same_after_export(their, inputs, tmp_path)
    compare(model, their, inputs)
    alone(model, inputs)
    if kind == "MarianMTModel":
        assert model.spec.output.bias
        x = model(inputs)["sequence"]
        np.testing.assert_allclose(tied_logits(model.scaled(x), model.output_rows), model.logits(x), rtol=0, atol=1e-5)
    written = json.loads((tmp_path / "back" / "config.json").read_text())
    keys = {"pad_token_id", "decoder_start_token_id", "scale_embedding"} & set(config)
    assert {key: written[key] for key in keys} == {key: config[key] for key in keys}


@parity
def test_a_marian_without_a_head_whose_file_holds_the_positions(tmp_path):
    config = marian(**MARIAN_SIZES[1]) | {"scale_embedding": False}
    their = make("MarianModel", config, seed=3)
    fixed_positions(their)
    their.save_pretrained(tmp_path)
    assert "encoder.embed_positions.weight" in Safetensors(tmp_path / "model.safetensors").names()
    model, inputs = kb.import_checkpoint(tmp_path), batch(47, two=True)
    assert (model.spec.embeddings.scaled, model.spec.output.bias) == (False, False)
    compare(model, their, inputs)


def folder_of(path, config, **files):
    """A folder of theirs whose configuration is what matters."""
    (path / "config.json").write_text(json.dumps(config))
    write_safetensors(path / "model.safetensors", {"a": (1,)}, lambda name: np.zeros(1, "float32"), {"format": "pt"})
    for name, content in files.items():
        (path / name.replace("_", ".")).write_text(content)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation_function": "mish"}, "has the activation 'mish', expected one of gelu"),
        ({"decoder_vocab_size": 60}, "has decoder_vocab_size 60, expected 61: no such model here"),
        ({"share_encoder_decoder_embeddings": False}, "has share_encoder_decoder_embeddings False, expected True"),
        ({"decoder_attention_heads": 5}, "has decoder_attention_heads 5, expected 3"),
        ({"normalize_before": True}, "has normalize_before True, expected False"),
    ],
)
def test_a_marian_that_is_none_of_ours_is_refused(change, message, tmp_path):
    folder_of(tmp_path, {"model_type": "marian", **marian(**MARIAN_SIZES[0]), **change})
    with pytest.raises(InputError, match=message):
        kb.import_checkpoint(tmp_path)


@parity
def test_gpts_classifier_reads_the_last_real_token(tmp_path):
    their = make("OpenAIGPTForSequenceClassification", GPT_SIZES[0] | {"num_labels": 3, "pad_token_id": 0})
    inputs = batch(61, two=False)
    encoder = same_after_export(their, inputs, tmp_path)
    assert {name: value.shape for name, value in encoder.heads["classifier"].items()} == {"kernel": (15, 3)}
    close(kb.load(tmp_path / "ours")(inputs)["logits"], run(their, inputs).logits)


@parity
def test_gpts_own_tokenizer_comes_along(tmp_path):
    """Of transformers' class to a model directory and back: the same ids."""
    their = make("OpenAIGPTLMHeadModel", GPT_SIZES[0], seed=1)
    pieces = ["<unk>", *"lower", *(f"{c}</w>" for c in "lower!"), "lo", "low", "low</w>"]
    merges = [("l", "o"), ("lo", "w"), ("lo", "w</w>")]
    tokenizer = transformers().OpenAIGPTTokenizer({piece: i for i, piece in enumerate(pieces)}, merges)
    their.save_pretrained(tmp_path / "theirs")
    tokenizer.save_pretrained(tmp_path / "theirs")
    kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "ours")
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "back")
    back = transformers().AutoTokenizer.from_pretrained(tmp_path / "back")
    ours = kb.load(tmp_path / "ours").tokenizer
    assert ours.kind == "word_bpe"
    for text in ("Low lower!", "Löw xlow", ""):  # of nothing ours gives a row of one padding token
        found = tokenizer(text)["input_ids"]
        assert ours.pack(text)[0] == (found or [ours.pad_id])
        assert found == back(text)["input_ids"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"afn": "gelu_new"}, "has the activation 'gelu_new', expected one of gelu, relu, swish, silu"),
        (
            {"architectures": ["OpenAIGPTDoubleHeadsModel"]},
            "OpenAIGPTDoubleHeadsModel reads the place of a classification",
        ),
        ({"n_head": 4}, "hidden 15 is not a multiple of attention.heads 4"),
    ],
)
def test_a_gpt_that_is_none_of_ours_is_refused(change, message, tmp_path):
    folder_of(tmp_path, {"model_type": "openai-gpt", **GPT_SIZES[0], **change})
    with pytest.raises(InputError, match=message):
        kb.import_checkpoint(tmp_path)


def test_what_their_formats_cannot_say_is_refused(tmp_path):
    model = tiny("gpt/base", **{"feedforward.activation": "gelu"})
    save_model(tmp_path / "ours", encoder=model, name="gpt/base")
    with pytest.raises(InputError, match="this checkpoint format cannot say .*feedforward.activation='gelu'"):
        kb.export_checkpoint(tmp_path / "ours", tmp_path / "back")
    model = tiny("transformer/base", **{"attention.value_size": 5})
    save_model(tmp_path / "wide", encoder=model, name="transformer/base")
    with pytest.raises(InputError, match="this checkpoint format cannot say attention.value_size=5"):
        kb.export_checkpoint(tmp_path / "wide", tmp_path / "back")


WRITTEN = {
    "marian": ("MarianMTModel", marian(**MARIAN_SIZES[0] | {"layers": (2, 2)}) | {"eos_token_id": None}),
    "gpt": ("OpenAIGPTLMHeadModel", GPT_SIZES[2]),
}


@parity
@pytest.mark.parametrize(("name", "setting"), [("marian", "greedy"), ("marian", "beams"), ("gpt", "beams")])
def test_texts_are_transformers(name, setting, tmp_path, monkeypatch):
    """As in test_parity_decoding.py, numbers added to Marian's logits among them."""

    def made(kind, config, seed):
        their = make(kind, config, seed)
        fixed_positions(their)
        if hasattr(their, "final_logits_bias"):
            their.final_logits_bias.normal_(0, 0.2)
        return their

    monkeypatch.setitem(decoding.KINDS, name, WRITTEN[name])
    monkeypatch.setattr(decoding, "make", made)
    decoding.test_texts_are_transformers(name, setting, tmp_path)

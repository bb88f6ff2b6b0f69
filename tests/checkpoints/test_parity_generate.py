"""The families that generate against transformers: every hidden state and the logits, in and out, padding on both sides.

Three random configurations each, of odd sizes, every weight N(0, 0.2); within 1e-5.
"""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.errors import InputError
from kerasbert.inputs import SHIFTED
from kerasbert.tasks.predict import task_logits
from tests.checkpoints.theirs import close, make, parity, run, same_after_export

T5 = "T5ForConditionalGeneration"
T5_SIZES = [
    {"vocab_size": 61, "d_model": 15, "d_kv": 4, "d_ff": 23, "num_layers": 2, "num_heads": 3, "num_decoder_layers": 3},
    {"vocab_size": 47, "d_model": 21, "d_kv": 7, "d_ff": 11, "num_layers": 1, "num_heads": 3},
    {"vocab_size": 83, "d_model": 10, "d_kv": 3, "d_ff": 31, "num_layers": 3, "num_heads": 5, "num_decoder_layers": 1},
]
# few buckets, so that distances of 12 tokens fall in all of them
RELATIVE = ({}, {"relative_attention_num_buckets": 6, "relative_attention_max_distance": 9}, {})
GPT2_SIZES = [
    {"vocab_size": 61, "n_positions": 17, "n_embd": 15, "n_layer": 2, "n_head": 3, "n_inner": 23},
    {"vocab_size": 47, "n_positions": 12, "n_embd": 14, "n_layer": 1, "n_head": 2},
    {"vocab_size": 83, "n_positions": 31, "n_embd": 20, "n_layer": 3, "n_head": 5, "n_inner": 7},
]
BART = {"max_position_embeddings": 15, "scale_embedding": False, "pad_token_id": 1}
BART_SIZES = [
    {"vocab_size": 61, "d_model": 15, "layers": (2, 3), "heads": 3, "width": 23},
    {"vocab_size": 47, "d_model": 14, "layers": (1, 1), "heads": 2, "width": 9},
    {"vocab_size": 83, "d_model": 20, "layers": (3, 1), "heads": 5, "width": 31},
]


def bart(vocab_size, d_model, layers, heads, width):
    """A configuration in their words, both stacks alike but for their layers."""
    config = BART | {"vocab_size": vocab_size, "d_model": d_model}
    for stack, count in zip(("encoder", "decoder"), layers):
        config |= {f"{stack}_layers": count, f"{stack}_attention_heads": heads, f"{stack}_ffn_dim": width}
    return config


CASES = [
    *((T5, size | more) for size, more in zip(T5_SIZES, RELATIVE)),
    *((T5, size | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}) for size in T5_SIZES),
    ("T5Model", T5_SIZES[0] | {"feed_forward_proj": "gated-silu"}),
    ("MT5ForConditionalGeneration", T5_SIZES[0]),
    ("UMT5ForConditionalGeneration", T5_SIZES[0] | RELATIVE[1]),
    ("UMT5Model", T5_SIZES[2]),
    *(("GPT2LMHeadModel", size) for size in GPT2_SIZES),
    ("GPT2Model", GPT2_SIZES[0] | {"activation_function": "gelu"}),
    *(("BartForConditionalGeneration", bart(**size)) for size in BART_SIZES),
    ("BartModel", bart(**BART_SIZES[0]) | {"activation_function": "relu"}),
    ("MBartForConditionalGeneration", bart(**BART_SIZES[0]) | {"scale_embedding": True}),
    ("PegasusForConditionalGeneration", bart(**BART_SIZES[2]) | {"pad_token_id": 0, "scale_embedding": True}),
]


def named(cases):
    return [pytest.param(kind, config, id=f"{kind}-{i}") for i, (kind, config) in enumerate(cases)]


def batch(vocabulary: int, two: bool, seed: int = 0) -> dict:
    """Random ids; of the source row i has i padded places, of the target 3 - i."""
    rng = np.random.default_rng(seed)

    def side(length, padded):
        ids = rng.integers(3, vocabulary, (4, length)).astype("int32")
        mask = (np.arange(length) < length - np.array(padded)[:, None]).astype("int32")
        return np.where(mask, ids, 0).astype("int32"), mask

    one, other = side(12, [0, 1, 2, 5]), side(9, [3, 2, 1, 0])
    source = dict(zip(("token_ids", "padding_mask"), one))
    return source | (dict(zip(("decoder_token_ids", "decoder_padding_mask"), other)) if two else {})


def compare(model, their, inputs: dict) -> None:
    """Hidden states, and logits where their class has them, at the real positions."""
    expected, got = run(their, inputs, output_hidden_states=True), model(inputs)
    two = "decoder_token_ids" in inputs
    real = inputs["decoder_padding_mask" if two else "padding_mask"].astype(bool)
    pairs = list(zip(got["hidden"], expected.decoder_hidden_states if two else expected.hidden_states, strict=True))
    for ours, other in pairs:
        close(np.asarray(ours)[real], other[real])
    if two:
        real_source = inputs["padding_mask"].astype(bool)
        for ours, other in zip(got["encoder_hidden"], expected.encoder_hidden_states, strict=True):
            close(np.asarray(ours)[real_source], other[real_source])
    if "logits" in expected:
        # sums of 21 products of numbers of size 5
        more = model.heads.get("lm", {"bias": 0.0})["bias"]
        close((np.asarray(model.logits(got["sequence"])) + more)[real], expected.logits[real])


def alone(model, inputs: dict) -> None:
    """Each row without its padding gives what it gives in the batch."""
    together = np.asarray(model.logits(model(inputs)["sequence"]))
    for i in range(4):
        masks = {name: inputs[name][i].astype(bool) for name in inputs if name.endswith("padding_mask")}
        of = {name: masks["decoder_padding_mask" if name.startswith("decoder") else "padding_mask"] for name in inputs}
        row = {name: value[i][of[name]][None] for name, value in inputs.items()}
        count = row["decoder_token_ids" if len(masks) == 2 else "token_ids"].shape[1]
        np.testing.assert_allclose(model.logits(model(row)["sequence"])[0], together[i, :count], rtol=0, atol=1e-4)


@parity
@pytest.mark.parametrize(("kind", "config"), named(CASES))
def test_logits_and_back_again(kind, config, tmp_path):
    their = make(kind, config, seed=len(str(config)))
    if hasattr(their, "final_logits_bias"):  # a buffer, zero in released models
        their.final_logits_bias.normal_(0, 0.2)
    inputs = batch(config["vocab_size"], two=getattr(their.config, "is_encoder_decoder", False))
    model = same_after_export(their, inputs, tmp_path)
    compare(model, their, inputs)
    alone(model, inputs)


@parity
def test_two_different_tables_untie_the_output_and_equal_ones_do_not(tmp_path):
    """As transformers reads it: a fresh v1.1 shares its table whatever the configuration says."""
    their = make(T5, CASES[3][1], seed=1)
    their.save_pretrained(tmp_path / "tied")
    tied = kb.import_checkpoint(tmp_path / "tied")
    assert (tied.spec.output.own, tied.spec.output.scaled) == (False, False)
    tensors = Safetensors(tmp_path / "tied" / "model.safetensors")
    values = {name: tensors.read(name) for name in tensors.names()}
    own = np.random.default_rng(3).normal(0, 0.2, values["shared.weight"].shape).astype("float32")
    config = json.loads((tmp_path / "tied" / "config.json").read_text())
    for name, head in (("copied", values["shared.weight"]), ("own", own)):
        folder = tmp_path / name
        folder.mkdir()
        content = values | {"lm_head.weight": head}
        shapes = {each: value.shape for each, value in content.items()}
        write_safetensors(folder / "model.safetensors", shapes, content.__getitem__, {"format": "pt"})
        # as the released v1.1 says it, of before transformers 5
        released = {key: value for key, value in config.items() if key not in ("scale_decoder_outputs", "is_gated_act")}
        (folder / "config.json").write_text(json.dumps(released | {"tie_word_embeddings": False}))
    assert kb.import_checkpoint(tmp_path / "copied").spec == tied.spec
    theirs = type(their).from_pretrained(tmp_path / "own").eval()
    assert theirs.lm_head.weight is not theirs.shared.weight
    inputs = batch(61, two=True)
    model = same_after_export(theirs, inputs, tmp_path / "again")
    assert (model.spec.output.own, model.spec.output.scaled) == (True, False)
    compare(model, theirs, inputs)
    assert json.loads((tmp_path / "again" / "back" / "config.json").read_text())["tie_word_embeddings"] is False


def test_stacks_that_differ_in_more_than_layers_are_refused(tmp_path):
    config = {"model_type": "bart", **bart(**BART_SIZES[0]), "decoder_ffn_dim": 24}
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_safetensors(
        tmp_path / "model.safetensors", {"a": (1,)}, lambda name: np.zeros(1, "float32"), {"format": "pt"}
    )
    with pytest.raises(InputError, match="has decoder_ffn_dim 24, expected 23: no such model here"):
        kb.import_checkpoint(tmp_path)


@parity
def test_gpt2s_classifier_reads_the_last_real_token(tmp_path):
    their = make("GPT2ForSequenceClassification", GPT2_SIZES[0] | {"num_labels": 3, "pad_token_id": 0})
    inputs = batch(61, two=False)
    encoder = same_after_export(their, inputs, tmp_path)
    assert {name: value.shape for name, value in encoder.heads["classifier"].items()} == {"kernel": (15, 3)}
    close(kb.load(tmp_path / "ours")(inputs)["logits"], run(their, inputs).logits)


@parity
@pytest.mark.parametrize("size", [0, 2])
@pytest.mark.parametrize("kind", ["tags", "span"])
def test_gpt2s_labels_of_tokens_and_ends_of_answers(kind, size, tmp_path):
    name = "GPT2ForTokenClassification" if kind == "tags" else "GPT2ForQuestionAnswering"
    config = GPT2_SIZES[size]
    their = make(name, config | ({"num_labels": 3} if kind == "tags" else {}))
    inputs = batch(config["vocab_size"], two=False)
    same_after_export(their, inputs, tmp_path)
    model, real = kb.load(tmp_path / "ours"), inputs["padding_mask"].astype(bool)
    assert model.task.kind == kind
    got, expected = np.asarray(task_logits(model, inputs))[real], run(their, inputs)
    if kind == "tags":
        close(got, expected.logits[real])
        return
    for i, logits in enumerate((expected.start_logits, expected.end_logits)):
        close(got[:, i], logits[real])


@parity
def test_barts_classifier_reads_the_decoders_last_real_token(tmp_path):
    """Theirs reads the vector at the source's last </s>; its decoder is given the source, that </s> first."""
    labels = {"id2label": {0: "a", 1: "b", 2: "c"}, "label2id": {"a": 0, "b": 1, "c": 2}, "eos_token_id": 2}
    their = make("BartForSequenceClassification", bart(**BART_SIZES[0]) | labels | {"pad_token_id": 1})
    inputs = batch(BART_SIZES[0]["vocab_size"], two=False)
    ids, mask = inputs["token_ids"], inputs["padding_mask"]
    ids[:] = np.where(ids < 4, 4, ids)
    ids[np.arange(len(ids)), mask.sum(axis=1) - 1] = 2
    ids[mask == 0] = 1
    their.save_pretrained(tmp_path / "theirs")
    kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "ours")
    model, read = kb.load(tmp_path / "ours"), {name: inputs[name] for name in ("token_ids", "padding_mask")}
    close(model(read | {"decoder_token_ids": SHIFTED.graph(read)})["logits"], run(their, inputs).logits)
    made = SHIFTED.make({"token_ids": ids[1, : mask[1].sum()].tolist()})
    assert made == SHIFTED.graph(read)[1, : mask[1].sum()].numpy().tolist()
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "back", target="hf")
    again = type(their).from_pretrained(tmp_path / "back").eval()
    close(run(again, inputs).logits, run(their, inputs).logits)


@parity
def test_barts_answers_are_read_by_the_decoder(tmp_path):
    their = make("BartForQuestionAnswering", bart(**BART_SIZES[0]) | {"eos_token_id": 2})
    inputs = batch(BART_SIZES[0]["vocab_size"], two=False)
    ids, mask = inputs["token_ids"], inputs["padding_mask"]
    ids[np.arange(len(ids)), mask.sum(axis=1) - 1] = 2  # which starts the decoder
    same_after_export(their, inputs, tmp_path)
    model, read = kb.load(tmp_path / "ours"), {name: inputs[name] for name in ("token_ids", "padding_mask")}
    assert model.task.kind == "span"
    got, expected = task_logits(model, read | {"decoder_token_ids": SHIFTED.graph(read)}), run(their, inputs)
    for i, logits in enumerate((expected.start_logits, expected.end_logits)):
        close(np.asarray(got)[mask.astype(bool)][:, i], logits[mask.astype(bool)])


OFTEN = [("T5", 0), ("UMT5", 2)]
RARELY = [(family, number) for family in ("T5", "MT5", "UMT5") for number in range(3)]


@parity
@pytest.mark.parametrize(
    ("family", "number"),
    OFTEN + [pytest.param(*case, marks=pytest.mark.full) for case in RARELY if case not in OFTEN],
)
def test_t5s_classifier_and_answers_are_read_by_the_decoder(family, number, tmp_path):
    """Theirs reads the decoder's vector at the source's </s>; the decoder is given the source, the start token first."""
    rng = np.random.default_rng(number)
    sizes = {name: int(rng.integers(4, 30)) for name in ("d_model", "d_kv", "d_ff")}
    sizes |= {name: int(rng.integers(1, 4)) for name in ("num_layers", "num_decoder_layers", "num_heads")}
    buckets = {"relative_attention_num_buckets": int(rng.choice([4, 8])), "relative_attention_max_distance": 9}
    feedforward = {"feed_forward_proj": str(rng.choice(["relu", "gated-gelu", "gated-silu"]))}
    config = {"vocab_size": int(rng.integers(20, 90)), "decoder_start_token_id": 0} | sizes | buckets | feedforward
    inputs = batch(config["vocab_size"], two=False, seed=number)
    real = inputs["padding_mask"].astype(bool)
    inputs["token_ids"][np.arange(4), real.sum(axis=1) - 1] = 1
    for kind, labels in (("classification", {"num_labels": int(rng.integers(2, 5))}), ("span", {})):
        name = "SequenceClassification" if labels else "QuestionAnswering"
        their = make(f"{family}For{name}", config | labels, seed=number)
        same_after_export(their, inputs, tmp_path / kind)
        model, expected = kb.load(tmp_path / kind / "ours"), run(their, inputs)
        assert (model.task.kind, registry.family_of(model.encoder).name) == (kind, family.lower())
        got = np.asarray(task_logits(model, inputs))
        if labels:
            close(got, expected.logits)
            continue
        for i, logits in enumerate((expected.start_logits, expected.end_logits)):
            close(got[real][:, i], logits[real])


def test_an_activation_that_is_none_is_refused(tmp_path):
    config = {"model_type": "t5", **T5_SIZES[0], "relative_attention_num_buckets": 6, "layer_norm_epsilon": 1e-6}
    (tmp_path / "config.json").write_text(json.dumps(config | {"feed_forward_proj": "gated-mish"}))
    write_safetensors(
        tmp_path / "model.safetensors", {"a": (1,)}, lambda name: np.zeros(1, "float32"), {"format": "pt"}
    )
    with pytest.raises(InputError, match="has the activation 'gated-mish', expected one of gelu"):
        kb.import_checkpoint(tmp_path)


def test_the_kinds_of_families():
    kinds = {name: family.kind for name, family in registry.families().items()}
    assert kinds["t5"] == "seq2seq"
    assert kinds["bert"] == "encoder"

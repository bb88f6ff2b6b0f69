"""What models write against transformers' generate, greedily and by beams, on 50 random prompts: T5, T5 v1.1, BART, mBART,
Pegasus, GPT-2 and two stacks of BERT's kin.

Random weights, N(0, 0.2). Two texts may differ where their scores are 1e-4 apart at most: a tie, which rounding decides. There
may be two of them. The numpy form gives what the graph gives.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert.answers.beam_search import search
from kerasbert.answers.decoding import Decoding
from kerasbert.layers.beam_search import generate
from tests.checkpoints.test_parity_generate import BART_SIZES, GPT2_SIZES, T5, T5_SIZES, bart
from tests.checkpoints.theirs import make
from tests.steps import Steps

PROMPTS, NEW = 50, 12
ONE = {"pad_token_id": 0, "eos_token_id": None}
SCALED = {"scale_embedding": True}
# as many layers in both stacks: transformers' cache counts those of the encoder
KINDS = {
    "t5": (T5, T5_SIZES[0] | {"num_decoder_layers": 2, "decoder_start_token_id": 0} | ONE),
    "t5-v1.1": (T5, T5_SIZES[2] | {"feed_forward_proj": "gated-gelu", "num_decoder_layers": 3} | ONE),
    "bart": ("BartForConditionalGeneration", bart(**BART_SIZES[0] | {"layers": (2, 2)}) | ONE),
    "mbart": ("MBartForConditionalGeneration", bart(**BART_SIZES[2] | {"layers": (2, 2)}) | ONE | SCALED),
    "pegasus": ("PegasusForConditionalGeneration", bart(**BART_SIZES[2] | {"layers": (2, 2)}) | ONE | SCALED),
    "gpt2": ("GPT2LMHeadModel", GPT2_SIZES[2] | ONE),
}
BERTS = {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 29}
for _kind, _family in {"bert": "bert2bert", "roberta": "roberta2roberta", "bert-generation": "bert-generation"}.items():
    _half = BERTS | {"max_position_embeddings": 31, "model_type": _kind}
    _halves = {"encoder": _half, "decoder": _half | {"is_decoder": True, "add_cross_attention": True}}
    KINDS[_family] = ("EncoderDecoderModel", {"vocab_size": 61} | _halves | ONE)
SETTINGS = {
    "greedy": {},
    "greedy with penalties": {"min_new_tokens": 5, "repetition_penalty": 1.4},
    "beams": {"beams": 4},
    "longer": {"beams": 4, "length_penalty": 2.0, "min_new_tokens": 4},
    "shorter, forced": {
        "beams": 3,
        "length_penalty": -0.5,
        "repetition_penalty": 1.3,
        "forced_bos_token_id": 5,
        "forced_eos_token_id": 6,
    },
}


PLAIN = ("greedy", "beams")  # the others go the same ways, and farther
KIN = ("bert2bert", "roberta2roberta", "bert-generation", "mbart", "pegasus")  # of two stacks, as BART
pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning")]


@functools.cache
def pair(name, folder):
    """Their model, ours, and the token that ends texts: the one that most of their texts have, so that many end early."""
    kind, config = KINDS[name]
    their = make(kind, config, seed=7)
    for weight, value in their.named_parameters():
        if name in KIN and weight.lower().replace("_", "").endswith("norm.weight"):
            value.data += 1.0  # with numbers around 0 all texts would be one token
        elif weight == "decoder.lm_head.bias" and name == "roberta2roberta":
            value.data[1] = -99.0  # the padding, from which they count positions, is not generated
    their.save_pretrained(folder / name)
    inputs = prompts(config["vocab_size"])
    texts, _ = theirs(their, inputs, Decoding(max_new_tokens=NEW, repetition_penalty=1.4), None)
    many = [(texts[:, 2:] == token).any(axis=1).sum() for token in range(config["vocab_size"])]
    return their, Steps(kb.import_checkpoint(folder / name)), int(np.argmax(many)), inputs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("decoding")


def prompts(vocabulary: int, longest: int = 9, seed: int = 0) -> dict:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, longest + 1, PROMPTS)
    ids = rng.integers(4, vocabulary, (PROMPTS, longest)).astype("int32")
    mask = (np.arange(longest) < lengths[:, None]).astype("int32")
    return {"token_ids": ids * mask, "padding_mask": mask}


def theirs(model, inputs, decoding: Decoding, end: int | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Their new tokens and the scores of beams. A decoder's prompts are padded at the left, by a token that occurs in them."""
    import torch

    ids, mask, two = inputs["token_ids"], inputs["padding_mask"], model.config.is_encoder_decoder
    if not two:
        lengths = mask.sum(axis=1)
        ids = np.stack([np.r_[np.repeat(row[0], len(row) - n), row[:n]] for row, n in zip(ids, lengths)])
        mask = mask[:, ::-1].copy()
    settings = {
        "max_new_tokens": decoding.max_new_tokens,
        "min_new_tokens": decoding.min_new_tokens or None,
        "num_beams": decoding.beams,
        "length_penalty": decoding.length_penalty,
        "repetition_penalty": float(decoding.repetition_penalty),
        "do_sample": False,
        "eos_token_id": end,
        "pad_token_id": 0,
        "decoder_start_token_id": 0,
        "forced_bos_token_id": decoding.forced_bos_token_id,
        "forced_eos_token_id": decoding.forced_eos_token_id,
    }
    model.generation_config = type(model.generation_config)(**settings)
    tensors = {"input_ids": torch.tensor(ids).long(), "attention_mask": torch.tensor(mask).long()}
    with torch.no_grad():
        out = model.generate(**tensors, return_dict_in_generate=True, output_scores=True)
    new = out.sequences[:, 1 if two else ids.shape[1] :].numpy()
    new = np.pad(new, ((0, 0), (0, decoding.max_new_tokens - new.shape[1])))
    return new, out.sequences_scores.numpy() if decoding.beams > 1 else None


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        pytest.param(name, each, marks=pytest.mark.full if each in PLAIN or name in KIN else pytest.mark.slow)
        for name in KINDS
        for each in SETTINGS
    ],
)
def test_texts_are_transformers(name, setting, folder):
    their, steps, end, inputs = pair(name, folder)
    asked = dict(SETTINGS[setting])
    if name == "gpt2":
        asked.pop("forced_bos_token_id", None)  # theirs forces the first token of the text, the prompt's
    decoding = Decoding(max_new_tokens=NEW, **asked)
    expected, scores = theirs(their, inputs, decoding, end)
    write = functools.partial(generate, steps.model, decoding=decoding, start_id=0, end_id=end)
    out = tf.function(write, autograph=False)(inputs)
    ids, score = out["token_ids"].numpy(), out["score"].numpy()
    after = np.cumsum(ids == end, axis=1) - (ids == end) > 0  # where their beams repeat the end
    assert (ids[after] == 0).all()
    assert after[:, -1].sum() >= 5 or decoding.length_penalty > 1 or decoding.forced  # some end early
    same = (ids == np.where(after, 0, expected)).all(axis=1)
    if scores is not None:
        np.testing.assert_allclose(score, scores, rtol=0, atol=1e-4)
    assert same.sum() >= PROMPTS - 2
    one_by_one(steps, inputs, decoding, end, ids, score)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in KINDS if name not in KIN])
def test_the_numpy_form_draws_the_same_tokens(name, folder):
    _, steps, end, inputs = pair(name, folder)
    decoding = Decoding(max_new_tokens=NEW, temperature=1.3, top_k=12, top_p=0.95, seed=4)
    write = functools.partial(generate, steps.model, decoding=decoding, start_id=0, end_id=end)
    out = tf.function(write, autograph=False)(inputs)
    one_by_one(steps, inputs, decoding, end, out["token_ids"].numpy(), out["score"].numpy())


def one_by_one(steps, inputs, decoding, end, ids, score, rows=6):
    """The numpy form, a text at a time and without padding, gives what the graph gives for all of them."""
    for row in range(rows):
        length = inputs["padding_mask"][row].sum()
        prompt = steps.start({name: x[row : row + 1, :length] for name, x in inputs.items()}, decoding)
        text, total = search(steps, prompt, decoding, end_id=end, row=row)
        assert text == ids[row, : len(text)].tolist()
        assert (ids[row, len(text) :] == 0).all()
        assert abs(total - score[row]) < 1e-4

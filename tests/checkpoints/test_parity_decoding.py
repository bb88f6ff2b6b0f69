"""What models write against transformers' generate: T5, T5 v1.1, BART and GPT-2, greedily and by beams, on 50 random prompts.

Random weights, N(0, 0.2). Two texts may differ where their scores are 1e-4 apart at most: a tie, which rounding decides. There
may be two of them. The numpy form gives what the graph gives.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert.answers.decoding import Decoding
from kerasbert.answers.search import search
from kerasbert.layers.search import generate
from tests.checkpoints.test_parity_generate import BART_SIZES, GPT2_SIZES, T5, T5_SIZES, bart
from tests.checkpoints.theirs import make, parity
from tests.steps import Steps

END, PROMPTS, NEW = 3, 50, 12
# as many layers in both stacks: transformers' cache counts those of the encoder
KINDS = {
    "t5": (
        T5,
        T5_SIZES[0] | {"num_decoder_layers": 2, "eos_token_id": END, "pad_token_id": 0, "decoder_start_token_id": 0},
    ),
    "t5-v1.1": (
        T5,
        T5_SIZES[2]
        | {
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
            "num_decoder_layers": 3,
            "eos_token_id": END,
        },
    ),
    "bart": (
        "BartForConditionalGeneration",
        bart(**BART_SIZES[0] | {"layers": (2, 2)}) | {"eos_token_id": END, "pad_token_id": 0},
    ),
    "gpt2": ("GPT2LMHeadModel", GPT2_SIZES[2] | {"eos_token_id": END, "pad_token_id": 0}),
}
SETTINGS = {
    "greedy": {},
    "penalties": {"min_new_tokens": 5, "repetition_penalty": 1.4},
    "beams": {"beams": 4},
    "longer": {"beams": 4, "length_penalty": 2.0, "min_new_tokens": 4},
    "shorter": {"beams": 3, "length_penalty": -0.5, "repetition_penalty": 1.3},
}


@functools.cache
def pair(name, folder):
    kind, config = KINDS[name]
    their = make(kind, config, seed=7)
    with __import__("torch").no_grad():  # so that some texts end early
        table = their.get_output_embeddings().weight
        table[END] *= 2
    their.save_pretrained(folder / name)
    return their, kb.import_checkpoint(folder / name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("decoding")


def prompts(vocabulary: int, longest: int = 9, seed: int = 0) -> dict:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, longest + 1, PROMPTS)
    ids = rng.integers(4, vocabulary, (PROMPTS, longest)).astype("int32")
    mask = (np.arange(longest) < lengths[:, None]).astype("int32")
    return {"token_ids": ids * mask, "padding_mask": mask}


def theirs(model, inputs, decoding: Decoding) -> tuple[np.ndarray, np.ndarray]:
    """Their new tokens and scores. A decoder's prompts are padded at the left, by a token that occurs in them."""
    import torch

    ids, mask = inputs["token_ids"], inputs["padding_mask"]
    two = model.config.is_encoder_decoder
    if not two:
        lengths = mask.sum(axis=1)
        ids = np.stack([np.r_[np.repeat(row[0], len(row) - n), row[:n]] for row, n in zip(ids, lengths)])
        mask = mask[:, ::-1].copy()
    config = {
        "max_new_tokens": decoding.max_new_tokens,
        "min_new_tokens": decoding.min_new_tokens or None,
        "num_beams": decoding.beams,
        "length_penalty": decoding.length_penalty,
        "repetition_penalty": float(decoding.repetition_penalty),
        "do_sample": False,
        "eos_token_id": END,
        "pad_token_id": 0,
        "decoder_start_token_id": 0,
        "forced_eos_token_id": None,
    }
    model.generation_config = type(model.generation_config)(**{k: v for k, v in config.items() if v is not None})
    with torch.no_grad():
        out = model.generate(
            torch.tensor(ids).long(),
            attention_mask=torch.tensor(mask).long(),
            return_dict_in_generate=True,
            output_scores=True,
        )
    new = out.sequences[:, 1 if two else ids.shape[1] :].numpy()
    new = np.pad(new, ((0, 0), (0, decoding.max_new_tokens - new.shape[1])))
    if decoding.beams > 1:
        return new, out.sequences_scores.numpy()
    return new, np.array([score.max(dim=-1).values.sum() for score in out.scores][:0])


@parity
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", KINDS)
def test_texts_are_transformers(name, setting, folder):
    their, model = pair(name, folder)
    inputs, decoding = prompts(model.spec.embeddings.vocabulary), Decoding(max_new_tokens=NEW, **SETTINGS[setting])
    expected, scores = theirs(their, inputs, decoding)
    out = tf.function(lambda given: generate(model, given, decoding, start_id=0, end_id=END))(inputs)
    ids, score = np.asarray(out["token_ids"]), np.asarray(out["score"])
    after = np.cumsum(ids == END, axis=1) - (ids == END) > 0  # where their beams repeat the end
    assert (ids[after] == 0).all()
    same = (ids == np.where(after, 0, expected)).all(axis=1)
    lengths = (~after).sum(axis=1)
    print(name, setting, "equal", same.sum(), "lengths", np.bincount(lengths))
    if decoding.beams > 1:
        assert np.abs(score - scores).max() < 1e-4
    assert same.sum() >= PROMPTS - 2
    one_by_one(model, inputs, decoding, ids, score)


def one_by_one(model, inputs, decoding, ids, score, rows=12):
    """The numpy form, a text at a time, gives what the graph gives for all of them."""
    steps = Steps(model, decoding)
    for row in range(rows):
        first, column, prompt = steps.start({k: v[row : row + 1] for k, v in inputs.items()})
        text, total = search(steps, first, column, decoding, end_id=END, row=row, prompt=prompt)
        assert text == ids[row, : len(text)].tolist()
        assert (ids[row, len(text) :] == 0).all()
        assert abs(total - score[row]) < 1e-4

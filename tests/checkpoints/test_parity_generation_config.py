"""Texts of imported models that write, by their generation_config.json, against transformers' generate; and back."""

import json
from pathlib import Path

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.answers.generation import text_of
from tests.checkpoints.theirs import make
from tests.support import often

KINDS_OF_WARNINGS = ("DeprecationWarning", "FutureWarning", "UserWarning")
pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}") for kind in KINDS_OF_WARNINGS]

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *(a + b for a in "bdfgklm" for b in ("a", "e", "i", "o", "u", "an")),
]
V, END = len(WORDS), 3
IDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": END}
BART = {"vocab_size": V, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 40}
BART |= {
    f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("attention_heads", 2), ("ffn_dim", 24))
}
T5 = {
    "vocab_size": V,
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 24,
    "num_layers": 2,
    "num_heads": 2,
    "decoder_start_token_id": 0,
}
KINDS = {
    "bart": ("BartForConditionalGeneration", BART | IDS | {"decoder_start_token_id": END, "forced_eos_token_id": END}),
    "marian": ("MarianMTModel", BART | IDS | {"decoder_start_token_id": 0, "forced_eos_token_id": None}),
    # which starts with a language
    "mbart": ("MBartForConditionalGeneration", BART | IDS | {"decoder_start_token_id": 9, "scale_embedding": True}),
    "pegasus": ("PegasusForConditionalGeneration", BART | IDS | {"decoder_start_token_id": 0, "scale_embedding": True}),
    "t5": ("T5ForConditionalGeneration", T5 | IDS),
    "mt5": ("MT5ForConditionalGeneration", T5 | IDS | {"feed_forward_proj": "gated-gelu"}),
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": V, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40} | IDS),
}
SEEDS = {"bart": 1, "marian": 5}  # of models whose texts differ
CASES = {
    "greedy": {},
    "forced": {"forced_bos_token_id": 2, "forced_eos_token_id": END, "min_new_tokens": 4},
    "no_repeat": {"no_repeat_ngram_size": 2, "min_new_tokens": 6, "repetition_penalty": 1.2},
    "beams": {
        "num_beams": 4,
        "length_penalty": 2.0,
        "min_length": 6,
        "early_stopping": True,
        "no_repeat_ngram_size": 1,
    },
    "never": {"num_beams": 3, "length_penalty": 1.5, "early_stopping": "never", "num_return_sequences": 3},
    "suppressed": {"suppress_tokens": [9, 12, 20], "begin_suppress_tokens": [5, 6, 7], "min_new_tokens": 5},
    "bad words": {"bad_words_ids": [[0], [11, 12], [9, 13, 14], [25]], "num_beams": 2, "min_new_tokens": 5},
}


def texts(count=6, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(WORDS[i] for i in rng.integers(5, V, rng.integers(2, 8))) for _ in range(count)]


def written(name: str, folder: Path) -> Path:
    """The folder of a random model with its tokenizer, whose texts depend on the source."""
    import torch

    kind, config = KINDS[name]
    model = make(kind, config, seed=SEEDS.get(name, 7))
    with torch.no_grad():
        for weight, value in model.named_parameters():
            if not value.requires_grad:  # the sines of Pegasus
                continue
            norm = "norm" in weight or "ln_" in weight
            cross = "encoder_attn" in weight or "EncDecAttention" in weight
            # larger scores would reach the masked places, whose constant is bounded: T5's are not divided, the tokens of
            # Pegasus and mBART are scaled
            scale = 1 if name in ("t5", "mt5", "pegasus", "mbart") else 3
            value.copy_(value.sign().abs() if norm and weight.endswith("weight") else value * scale * (1 + 2 * cross))
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer", "do_lower_case": true}')
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Kind -> the folder of its random model."""
    return {name: written(name, tmp_path_factory.mktemp(name)) for name in KINDS}


def generated(folder, tokenizer, rows, name):
    """transformers' texts of each row, by the folder's own settings, a text at a time."""
    import torch
    import transformers

    model = getattr(transformers, KINDS[name][0]).from_pretrained(folder).eval()
    found = []
    for row in rows:
        ids = tokenizer.encode(row) if name == "gpt2" else tokenizer.pack(row)[0]
        with torch.no_grad():
            out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long))
        new = out[:, len(ids) :] if name == "gpt2" else out[:, 1:]
        found.append([text_of(tokenizer, each.tolist()) for each in new])
    return found


def settings(case, folder, name):
    """The case written into the folder; a decoder's settings count its prompt, so it gets new tokens alone."""
    asked = {"max_new_tokens": 12} | CASES[case]
    if name == "gpt2":
        asked = {"min_new_tokens" if key == "min_length" else key: value for key, value in asked.items()}
        asked.pop("forced_bos_token_id", None)
    start = {"decoder_start_token_id": KINDS[name][1]["decoder_start_token_id"]} if name != "gpt2" else {}
    (folder / "generation_config.json").write_text(json.dumps(IDS | start | asked))


def ours(answers):
    return [[each.text for each in answer.sequences] or [answer.text] for answer in answers]


SOME = {
    "bart": ("forced", "beams", "bad words"),
    "marian": ("never", "suppressed"),
    "mbart": (),
    "pegasus": (),
    "t5": ("no_repeat", "beams", "suppressed"),
    "mt5": (),
    "gpt2": ("no_repeat", "never", "bad words"),
}


@pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param(name, case, marks=pytest.mark.slow if case in SOME[name] else pytest.mark.full)
        for name in KINDS
        for case in CASES
    ],
)
def test_the_texts_are_theirs_and_come_back(folders, name, case, tmp_path, capsys):
    folder, rows = folders[name], texts()
    settings(case, folder, name)
    kb.import_checkpoint(folder, out=tmp_path / "run", build=False)
    model = kb.load(tmp_path / "run", task="translation")
    if name == "gpt2":
        model.task = model.task.optioned({"separator": ""})
    expected = generated(folder, model.tokenizer, rows, name)
    assert ours(kb.predict(model, rows)) == expected
    assert len({text for row in expected for text in row}) > 1
    kb.export_checkpoint(tmp_path / "run", tmp_path / "back")
    assert generated(tmp_path / "back", model.tokenizer, rows, name) == expected


@pytest.mark.parametrize(
    ("name", "case"),
    often([("bart", "beams"), ("t5", "never"), ("gpt2", "no_repeat")], ("gpt2", "no_repeat")),
)
def test_served_and_on_the_phone(folders, name, case, tmp_path):
    """A SavedModel (which `export` compares) and a .tflite, whose search is in numpy, write the same."""
    from kerasbert import mobile
    from kerasbert.mobile.runtime import load

    folder, rows = folders[name], texts()
    settings(case, folder, name)
    kb.import_checkpoint(folder, out=tmp_path / "run", build=False)
    model = kb.load(tmp_path / "run", task="translation")
    if name == "gpt2":
        model.task = model.task.optioned({"separator": ""})
    expected = ours(kb.predict(model, rows))
    kb.export(model, tmp_path / "served")
    mobile.compress(model, quantize="float32", out=tmp_path / "m.tflite", texts=rows)
    assert ours(load(tmp_path / "m.tflite", cache=False)(rows)) == expected

"""What models write by generation_config.json with odd keys, 40 prompts and five decodings, against transformers' generate.

`python -m tests.checkpoints.test_odd_generation [t5 bart ...] [--all]` counts: equal (every text), told (by the key's name; with
the same texts, or with others) or refused, not run by transformers itself, and off. Each decoding gets drawn keys; with `--all`
every one.
"""

import collections
import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.answers.generation import text_of
from kerasbert.errors import InputError
from tests.checkpoints import theirs
from tests.checkpoints.test_parity_generation_config import END, IDS, KINDS, ours, texts, written

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning", "UserWarning")
]
NAMES, PROMPTS, DRAWN = ("gpt2", "bart", "t5", "mt5", "mbart", "pegasus"), 40, 2
DECODINGS: dict[str, dict[str, object]] = {
    "greedy": {"max_new_tokens": 9},
    "beams": {"max_new_tokens": 9, "num_beams": 4},
    "longer": {"max_new_tokens": 9, "num_beams": 3, "length_penalty": 2.0},
    "ngrams": {"max_new_tokens": 9, "no_repeat_ngram_size": 2},
    "lengths": {"num_beams": 2, "min_length": 5, "max_length": 10},
}
ODD: tuple[dict[str, object], ...] = (
    {"repetition_penalty": 1.7},
    {"encoder_no_repeat_ngram_size": 2},
    {"encoder_repetition_penalty": 1.5},
    {"bad_words_ids": [[9], [11, 12], [END], [END, 9]]},
    {"forced_bos_token_id": 7},
    {"forced_eos_token_id": 9},
    {"forced_eos_token_id": [END]},
    {"forced_eos_token_id": [END, 9]},
    {"suppress_tokens": [8, 9, END]},
    {"begin_suppress_tokens": [END, 7]},
    {"num_beam_groups": 2, "diversity_penalty": 0.5},
    {"early_stopping": "never", "length_penalty": -1.0},
    {"early_stopping": True},
    {"renormalize_logits": True},
    {"decoder_start_token_id": 9},
    {"decoder_start_token_id": None},
    {"decoder_start_token_id": None, "bos_token_id": None},
    {"eos_token_id": [END, 9]},
    {"eos_token_id": 9},
    {"eos_token_id": None},
    {"pad_token_id": 9},
    {"exponential_decay_length_penalty": [3, 1.2]},
    {"sequence_bias": [[[9], 4.0]]},
    {"max_new_tokens": None, "max_length": None},
    {"min_new_tokens": 8},
    {"min_length": 30},
    {"stop_strings": ["ba"]},
    {"do_sample": True, "top_k": 1},
    {"num_return_sequences": 2},
    {"dola_layers": "low"},
    {"guidance_scale": 1.5},
    {"length_penalty": 0.0},
    {"length_penalty": None, "repetition_penalty": None, "suppress_tokens": None, "bad_words_ids": None},
)


def their_texts(model, folder: Path, tokenizer, rows: list[str]) -> list[list[str]]:
    """Of each row, of all at once; a decoder's are padded at the left."""
    import torch

    two = model.config.is_encoder_decoder
    ids = [tokenizer.pack(row)[0] if two else tokenizer.encode(row) for row in rows]
    most = max(map(len, ids))
    places = [[0] * (most - len(row)) for row in ids]
    given = [row + pad if two else pad + row for row, pad in zip(ids, places, strict=True)]
    masks = [[1] * len(row) + pad if two else pad + [1] * len(row) for row, pad in zip(ids, places, strict=True)]
    model.generation_config = type(model.generation_config).from_pretrained(folder)
    with torch.no_grad():
        out = model.generate(torch.tensor(given), attention_mask=torch.tensor(masks)).tolist()
    new = [text_of(tokenizer, each[1 if two else most :]) for each in out]
    each = len(new) // len(rows)
    return [new[i * each : (i + 1) * each] for i in range(len(rows))]


def tried(name: str, folder: Path, asked: dict[str, object], model, place: Path) -> tuple[str, object]:
    """(equal, told and what of it, refused, unrun or off, why) of one generation_config.json."""
    (folder / "generation_config.json").write_text(json.dumps(asked))
    with contextlib.redirect_stderr(io.StringIO()) as told:
        try:
            kb.import_checkpoint(folder, out=place / "run", build=False)
            run = kb.load(place / "run", task="translation")
        except InputError as error:
            return "refused", error
    lines = [line for line in told.getvalue().splitlines() if not line.startswith("writes by")]
    lines = [line for line in lines if not line.endswith("(config.json)")]  # which is the same in all
    rows = texts(PROMPTS)
    if name == "gpt2":
        run.task = run.task.optioned({"separator": ""})
    try:
        expected = their_texts(model, folder, run.tokenizer, rows)
    except Exception as error:  # theirs, of any kind
        return ("told, unrun", lines) if lines else ("unrun", f"{type(error).__name__} {error}")
    got = ours(kb.predict(run, rows))
    different = [(mine, other) for mine, other in zip(got, expected, strict=True) if mine != other]
    if lines:
        return ("told, other texts" if different else "told, same texts"), lines
    return ("off", f"{len(different)}: {different[0]}") if different else ("equal", "")


def cases(name: str, whole: bool) -> Iterator[tuple[str, dict[str, object]]]:
    """(decoding, whole content) of a kind."""
    rng = np.random.default_rng([*name.encode()])
    config = KINDS[name][1]
    start = {"decoder_start_token_id": config["decoder_start_token_id"]} if "decoder_start_token_id" in config else {}
    of_decoder = {"min_length": "min_new_tokens", "max_length": "max_new_tokens"} if name == "gpt2" else {}
    for decoding, lengths in DECODINGS.items():  # a decoder's lengths count its prompt
        usual = {of_decoder.get(key, key): value for key, value in lengths.items()}
        for odd in ({}, *ODD) if whole else ({}, *(ODD[i] for i in rng.choice(len(ODD), DRAWN, replace=False))):
            yield decoding, IDS | start | usual | odd


def counted(name: str, whole: bool = False) -> tuple[collections.Counter, list]:
    """How many came out how, and those that are off."""
    count, wrong = collections.Counter(), []
    with tempfile.TemporaryDirectory() as made:
        folder = written(name, Path(made))
        model = getattr(theirs.transformers(), KINDS[name][0]).from_pretrained(folder).eval()
        for decoding, asked in cases(name, whole):
            with tempfile.TemporaryDirectory() as place:
                state, why = tried(name, folder, asked, model, Path(place))
            count[state] += 1
            if state == "off":
                wrong.append((name, decoding, asked, str(why)))
                print(*wrong[-1], flush=True)
    return count, wrong


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_no_key_is_passed_over(name):
    count, wrong = counted(name)
    assert not wrong
    assert count["equal"] >= len(DECODINGS)


def main() -> None:
    """Print the counts of each kind."""
    for name in [name for name in sys.argv[1:] if name != "--all"] or NAMES:
        print(name, dict(counted(name, "--all" in sys.argv)[0]), flush=True)


if __name__ == "__main__":
    main()

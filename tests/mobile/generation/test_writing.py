"""The steps of a text on the phone, on programs in numpy: what is handed on, what grows, what beams share."""

import numpy as np
import pytest

from kerasbert import answers, inputs
from kerasbert.answers.beam_search import search
from kerasbert.answers.decoding import Decoding
from kerasbert.export.bundle import Bundle, Reads, Signature
from kerasbert.mobile.generation.programs import doubling
from kerasbert.mobile.runtime.writing import Writer
from tests import tiny

SIZE, END = 12, 1
RANDOM = np.random.default_rng(4).normal(size=(SIZE, SIZE, SIZE)).astype("float32")


class Programs:
    """Signatures in numpy: a token's logits follow from the one before it, which the state holds, and from the source."""

    def __init__(self):
        self.ran, self.live = [], 0

    def run(self, name, given):
        self.ran.append(name)
        self.live += 1
        role, _, length = name.rpartition("_")
        if role == "encode":
            return {"source": np.array([given["token_ids"].sum()], "float32")}
        if role == "prefill":
            state = np.full((1, 1, int(length), 1), -1, "float32")
            state[0, 0, :, 0] = given["token_ids"][0]
            return {"state": state}
        column, state = int(given["column"][0]), given["state"].copy()
        assert state.shape == (1, 1, int(length), 1)
        state[0, 0, column, 0] = given["token_ids"][0]
        before = int(state[0, 0, column - 1, 0]) if column else 0
        logits = RANDOM[before, int(given["token_ids"][0])] + given.get("source", np.zeros(1)) * np.arange(SIZE) / 100
        return {"logits": logits[None].astype("float32"), "state": state}

    def done(self, name, outputs):
        self.live -= 1
        for each in outputs.values():
            each[...] = np.nan  # whoever reads it now is wrong

    def made(self, name, arrays):
        return {part: values.copy() for part, values in arrays.items()}

    def put(self, made, part, values):
        made[part] = values

    def shape(self, name, part):
        return (1, 1, int(name.rpartition("_")[2]), 1)

    def width(self, name, part):
        return SIZE

    def read(self, name, part, given):
        return given.copy()


def writer(role, places=(2, 4, 8), **options):
    outputs = {"logits": "logits", "state": "state"}
    axis, reads = ("S", {"source": "source"}) if role == "encode" else ("P", {"state": "state"})
    signatures = [Signature(role, f"{role}_8", {axis: 8}, reads)]
    signatures += [Signature("decode_step", f"decode_step_{n}", {"T": n}, outputs) for n in places]
    bundle = Bundle("generation", {}, tuple(signatures), (Reads("token_ids", "token_ids"),))
    kind = answers.find("generation").configured(
        {"start": "pad" if role == "encode" else "", "target_length": 6, **options}
    )
    tokenizer = tiny.tokenizer()
    tokenizer.sep_id = END
    return Writer(bundle, Programs(), kind, tokenizer)


@pytest.mark.parametrize(
    "options", [{}, {"beams": 4}, {"temperature": 1.5, "seed": 3}], ids=["greedy", "beams", "drawn"]
)
@pytest.mark.parametrize("role", ["encode", "prefill"])
def test_steps_are_those_of_the_whole_text(role, options):
    """Through three buckets; outputs that nobody needs are given back, each once, and none before it was read."""
    at = writer(role, **options)
    for number, ids in enumerate(([5, 3], [7], [2, 9, 4])):
        arrays = {"token_ids": np.array([ids + [0] * (8 - len(ids))], "int32")}
        found = at.write(inputs.row(ids, [0] * len(ids)), arrays, 8, number)
        prompt, source = ([0], sum(ids)) if role == "encode" else (ids, 0)
        told = {**options, **({"row": number} if "seed" in options else {})}
        wanted, score = expected(prompt, source, told)
        assert found[1 : 1 + len(wanted)].astype(int).tolist() == wanted
        assert set(found[1 + len(wanted) :]) <= {END}
        assert found[0] == pytest.approx(score, abs=1e-5)
        assert at.programs.live == 0
    assert {name for name in at.programs.ran if name.startswith("decode")} >= {"decode_step_4", "decode_step_8"}
    assert ("prefill_8" in at.programs.ran) == (role == "prefill")


def expected(prompt, source, told):
    row = told.pop("row", 0)
    texts = [[]]

    def step(token_ids, column, origin):
        nonlocal texts
        texts = [[*texts[at], int(token)] for token, at in zip(token_ids, origin)]
        whole = [[*prompt[:-1], *ids] for ids in texts]
        logits = [RANDOM[ids[-2] if len(ids) > 1 else 0, ids[-1]] + source * np.arange(SIZE) / 100 for ids in whole]
        return np.array(logits, "float32"), None

    return search(step, prompt, Decoding(6, **told), end_id=END, row=row)


def test_a_prompt_of_one_token_is_not_read_first():
    at = writer("prefill")
    at.write(inputs.row([7], [0]), {"token_ids": np.array([[7] + [0] * 7], "int32")}, 8)
    assert "prefill_8" not in at.programs.ran


def test_following_ids_by_hand():
    at = writer("encode")
    arrays = {"token_ids": np.array([[5, 3, 0, 0, 0, 0, 0, 0]], "int32")}
    found = list(at.follow(inputs.row([5, 3], [0, 0]), arrays, 8, [4, 2, 9]))
    added = 8 * np.arange(SIZE) / 100
    np.testing.assert_allclose(found, [RANDOM[0, 0] + added, RANDOM[0, 4] + added, RANDOM[4, 2] + added], rtol=1e-6)


def test_logits_that_are_no_numbers_are_refused(monkeypatch):
    monkeypatch.setitem(globals(), "RANDOM", np.full_like(RANDOM, np.nan))
    with pytest.raises(ValueError, match="logits that are not finite"):
        writer("encode").write(inputs.row([5], [0]), {"token_ids": np.zeros((1, 8), "int32")}, 8)


def test_buckets_double():
    assert (doubling(16), doubling(17), doubling(513)[-2:]) == ((16,), (16, 17), (512, 513))

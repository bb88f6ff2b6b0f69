"""XLNet against transformers' at random: one stream, memory, two streams, rows written backward, heads, and back again."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.checkpoints.safetensors import write_safetensors
from kerasbert.errors import InputError
from kerasbert.tasks.predict import task_logits
from kerasbert.testing.battery import tokenizer
from tests.checkpoints.theirs import close, make, parity, run, same_after_export, same_hidden_states, transformers

SIZES = [
    {"vocab_size": 61, "d_model": 18, "n_layer": 3, "n_head": 3, "d_inner": 23},
    {"vocab_size": 47, "d_model": 14, "n_layer": 1, "n_head": 7, "d_inner": 9, "ff_activation": "relu", "clamp_len": 3},
    {"vocab_size": 83, "d_model": 30, "n_layer": 2, "n_head": 5, "d_inner": 41, "layer_norm_eps": 1e-3},
]
named = pytest.mark.parametrize("config", SIZES, ids=lambda config: f"{config['d_model']}x{config['n_layer']}")


def batch(vocabulary, rows=3, length=9, seed=0):
    """Random tokens of three segments; row i has i padded places at its right."""
    generator = np.random.default_rng(seed)
    mask = (np.arange(length) < length - np.arange(rows)[:, None]).astype("int32")
    segments = np.sort(generator.integers(0, 3, (rows, length)), axis=1)
    return {
        "token_ids": generator.integers(0, vocabulary, (rows, length)).astype("int32"),
        "padding_mask": mask,
        "segment_ids": segments.astype("int32"),
    }


def both(config, folder, kind="XLNetModel"):
    """Their model, and ours of its checkpoint."""
    their = make(kind, config, seed=config["d_model"])
    their.save_pretrained(folder)
    return their, kb.import_checkpoint(folder)


@parity
@named
def test_one_stream(config, tmp_path):
    same_hidden_states(make("XLNetModel", config), batch(config["vocab_size"]), tmp_path)


@parity
@named
def test_memory(config, tmp_path):
    """Two rows that follow one another: what the second sees of the first, and what the layers leave."""
    import torch

    their, ours = both(config, tmp_path)
    first, second = (batch(config["vocab_size"], length=length, seed=length) for length in (7, 5))
    first["padding_mask"][:] = 1
    left = run(their, first, use_mems=True)
    mine = ours(first)
    for one, other in zip(mine["memory"], left.mems, strict=True):
        close(np.asarray(one), other.transpose(0, 1))
    given = tuple(np.random.default_rng(1).normal(size=(3, 6, config["d_model"])).astype("float32") for _ in left.mems)
    expected = run(their, second, mems=[torch.tensor(x).transpose(0, 1) for x in given], use_mems=True)
    real = second["padding_mask"] == 1
    close(np.asarray(ours({**second, "memory": given})["sequence"])[real], expected.last_hidden_state[real])


def two_streams(config, places=3, seed=4):
    """Inputs, and in their words: an order of the tokens and the places that are predicted."""
    import torch

    inputs = batch(config["vocab_size"])
    generator = np.random.default_rng(seed)
    rows, length = inputs["token_ids"].shape
    targets = np.sort(np.stack([generator.choice(6, places, replace=False) for _ in range(rows)]), axis=1)
    order = np.stack([1 + generator.permutation(length) for _ in range(rows)]) * generator.integers(
        0, 2, (rows, length)
    )
    for row, at in enumerate(targets):
        order[row, at] = 1 + length + generator.permutation(places)
    hidden = (order[:, None, :] != 0) & (order[:, :, None] <= order[:, None, :])
    mapping = np.eye(length)[targets]
    theirs = {"perm_mask": torch.tensor(hidden).float(), "target_mapping": torch.tensor(mapping).float()}
    return inputs, {"order": order.astype("int32"), "target_positions": targets.astype("int32")}, ~hidden, theirs


@parity
@named
def test_two_streams(config, tmp_path):
    their, ours = both(config, tmp_path)
    inputs, mine, visible, theirs = two_streams(config)
    expected = run(their, inputs, output_hidden_states=True, **theirs)
    found = ours(inputs | mine)
    close(found["sequence"], expected.last_hidden_state)
    matrix = {"visible_matrix": visible.astype("int32"), "target_positions": mine["target_positions"]}
    close(ours(inputs | matrix)["sequence"], expected.last_hidden_state)
    real = inputs["padding_mask"] == 1
    content = ours(inputs | {"order": mine["order"]})
    for one, other in zip(content["memory"], expected.hidden_states[::2]):  # h and g in turn
        close(np.asarray(one)[real], other[real])
    expected = run(their, inputs, perm_mask=theirs["perm_mask"])
    close(np.asarray(content["sequence"])[real], expected.last_hidden_state[real])


@parity
@named
def test_two_streams_with_memory(config, tmp_path):
    import torch

    their, ours = both(config, tmp_path)
    inputs, mine, _, theirs = two_streams(config)
    given = [np.random.default_rng(i).normal(size=(3, 4, config["d_model"])) for i in range(config["n_layer"])]
    mems = [torch.tensor(x.astype("float32")).transpose(0, 1) for x in given]
    expected = run(their, inputs, mems=mems, use_mems=True, **theirs)
    memory = tuple(x.astype("float32") for x in given)
    close(ours(inputs | mine | {"memory": memory})["sequence"], expected.last_hidden_state)


@parity
@pytest.mark.parametrize("mode", [{"bi_data": True}, {"attn_type": "uni"}, {"attn_type": "uni", "bi_data": True}])
def test_rows_written_backward_and_left_to_right(mode, tmp_path):
    """Of theirs the second half of a batch is backward."""
    config = SIZES[0] | mode
    their, ours = both(config, tmp_path)
    assert ours.spec.attention.causal == ("attn_type" in mode)
    inputs = batch(61, rows=4)
    del inputs["padding_mask"]  # with one theirs cannot be called left to right
    backward = {"backward": np.array([False, False, True, True])} if "bi_data" in mode else {}
    expected = run(their, inputs).last_hidden_state
    close(ours(inputs | backward)["sequence"], expected)
    if backward:
        plain = np.asarray(ours(inputs)["sequence"])
        close(plain[:2], expected[:2])
        assert np.abs(plain[2:] - expected[2:].numpy()).max() > 1e-3


@parity
@named
def test_logits_and_back_again(config, tmp_path):
    their = make("XLNetLMHeadModel", config, seed=2)
    inputs, mine, _, theirs = two_streams(config)
    encoder = same_after_export(their, inputs, tmp_path)
    from kerasbert.models.xlnet import XLNetLM

    head = XLNetLM(config["vocab_size"])
    head.build(None)
    head.bias.assign(encoder.heads["lm"]["bias"])
    logits = head(encoder(inputs | mine)["sequence"], encoder.embeddings.tokens.table)
    close(logits, run(their, inputs, **theirs).logits)


@parity
@pytest.mark.parametrize(
    "kind", ["SequenceClassification", "TokenClassification", "QuestionAnsweringSimple", "MultipleChoice"]
)
def test_heads_of_tasks(kind, tmp_path):
    more = {"num_labels": 3} if kind in ("SequenceClassification", "TokenClassification") else {}
    their = make(f"XLNetFor{kind}", SIZES[0] | more, seed=5)
    inputs = batch(61)
    if kind != "TokenClassification":  # theirs reads the last place, real or not
        inputs["padding_mask"][:] = 1
    same_after_export(their, inputs, tmp_path)
    expected, found = run(their, inputs), kb.load(tmp_path / "ours")(inputs)
    real = inputs["padding_mask"] == 1
    if kind == "QuestionAnsweringSimple":
        for number, name in enumerate(("start", "end")):
            close(task_logits(kb.load(tmp_path / "ours"), inputs)[..., number], expected[f"{name}_logits"])
    elif kind == "TokenClassification":
        close(np.asarray(found["logits"])[real], expected.logits[real])
    else:
        close(np.asarray(found["logits"]).reshape(expected.logits.shape), expected.logits)


@parity
def test_the_last_real_token_is_read(tmp_path):
    """Rows of theirs are padded at the left, ours at the right."""
    their = make("XLNetForSequenceClassification", SIZES[0] | {"num_labels": 3}, seed=5)
    inputs = batch(61)
    same_after_export(their, inputs, tmp_path)
    left = {name: np.stack([np.roll(row, i) for i, row in enumerate(value)]) for name, value in inputs.items()}
    close(kb.load(tmp_path / "ours")(inputs)["logits"], run(their, left).logits)


TEXTS = ("The cat sees.", "\u00c9t\u00e9 ``quoted'' text", "house  river stone \u00fcber", "Zebra \u4e2d", "")


@parity
def test_its_own_tokenizer_comes_along(tmp_path):
    """Of transformers' class to a model directory and back: the same ids and segments, <sep> <cls> last, padded at the left."""
    pieces = [("<unk>", 0.0), *((name, 0.0) for name in "<s> </s> <cls> <sep> <pad> <mask> <eod> <eop>".split())]
    learned = tokenizer("unigram", "xlnet")
    own = [(p, s) for p, s in zip(learned.vocabulary, learned.model.scores) if not p.startswith("<")]
    letters = [(c, -9.0 - i / 10) for i, c in enumerate('"ETUZdhqrtuxz') if c not in dict(own)]
    peer = transformers().XLNetTokenizer([*pieces, *own, *letters])
    their = make("XLNetModel", SIZES[0] | {"vocab_size": len(pieces + own + letters)}, seed=1)
    their.save_pretrained(tmp_path / "theirs")
    peer.save_pretrained(tmp_path / "theirs")
    kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "ours")
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "back")
    back, ours = transformers().AutoTokenizer.from_pretrained(tmp_path / "back"), kb.load(tmp_path / "ours").tokenizer
    assert ours.template == ("$A <sep> <cls>:2", "$A <sep> $B:1 <sep>:1 <cls>:2")
    for text in TEXTS:
        for pair in (None, "the old film"):
            expected = peer(text, pair, return_token_type_ids=True)
            assert ours.pack(text, pair) == (expected["input_ids"], expected["token_type_ids"]), text
            assert back(text, pair)["input_ids"] == expected["input_ids"], text
    assert back.padding_side == "left"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attn_type": "both"}, "attention.causal must be bool. Received: 'both'"),
        ({"same_length": True}, "has same_length True, expected False: no such model here"),
        ({"summary_type": "first"}, "has summary_type 'first', expected 'last'"),
        ({"d_model": 9}, "hidden must be even, half sines and half cosines. Received: 9"),
        ({"clamp_len": -2}, "has clamp_len -2, expected at least 0"),
    ],
)
def test_what_is_none_of_ours_is_refused(change, message, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "xlnet", **SIZES[0], **change}))
    write_safetensors(
        tmp_path / "model.safetensors", {"a": (1,)}, lambda name: np.zeros(1, "float32"), {"format": "pt"}
    )
    with pytest.raises(InputError, match=message):
        kb.import_checkpoint(tmp_path)

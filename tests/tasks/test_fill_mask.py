"""Fill-mask: rows around masks, the text filled in, the command."""

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import answers, inputs
from kerasbert.cli import main
from kerasbert.testing.battery import eagerly
from kerasbert.text.bpe import ALPHABET, BytePairEncoding
from tests import tiny

KIND = answers.find("tokens")


def rows(text, length=32):
    return KIND.rows(tiny.tokenizer(), (text,), length)


def test_masks_become_mask_tokens_however_they_are_spelled():
    tokenizer = tiny.tokenizer()
    row, other = rows("the [MASK] sees a <mask>.")
    assert tokenizer.decode(row.token_ids) == "the [MASK] sees a [MASK] ."
    assert (row.values["positions"], other.values["positions"]) == ([2], [5])
    assert [row.token_ids[2], row.token_ids[5]] == [tokenizer.mask_id] * 2
    assert row.token_ids == other.token_ids
    assert not row.truncated
    whole = tokenizer.pack("the cat sees a dog.")
    assert [len(part) for part in whole] == [row.length, len(row.values["segment_ids"])]


def test_every_mask_of_a_long_text_has_a_row_with_what_stands_around_it():
    words = ["cat"] * 40
    words[0] = words[20] = words[22] = words[39] = "[MASK]"
    found = rows(" ".join(words), length=10)
    assert [row.length for row in found] == [10] * 4
    assert [row.values["positions"] for row in found] == [[1], [5], [5], [8]]
    assert all(row.truncated for row in found)
    mask = tiny.tokenizer().mask_id
    seen = [[i for i, token in enumerate(row.token_ids) if token == mask] for row in found]
    assert seen == [[1], [5, 7], [3, 5], [8]]


def test_decoding_by_hand():
    tokenizer = tiny.tokenizer()
    text = "The  [MASK] r[MASK]s"
    found = rows(text)
    values = np.zeros((2, tokenizer.size + 3), "float32")
    values[0, tokenizer.vocabulary.index("dog")], values[0, tokenizer.vocabulary.index("cat")] = 0.5, 0.25
    values[1, tokenizer.vocabulary.index("##e")], values[1, 0] = 0.75, 0.125
    values[1, -1] = 1.0  # a row of the table that no piece has
    answer = KIND.configured({"top": 2}).decode((text,), found, values, ())
    assert answer.text == "The  dog res"
    assert [[(each.token, each.score) for each in mask] for mask in answer.tokens] == [
        [("dog", 0.5), ("cat", 0.25)],
        [("##e", 0.75), ("[PAD]", 0.125)],
    ]
    assert answer.to_json()["tokens"][0][0] == {"token": "dog", "score": 0.5, "id": tokenizer.vocabulary.index("dog")}
    assert "truncated" not in answer.to_json()


def test_byte_bpe_reads_the_blank_before_a_mask_as_part_of_it():
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *ALPHABET, "Ġa", "Ġb"]
    tokenizer = BytePairEncoding(pieces, [("Ġ", "a"), ("Ġ", "b")])
    (row,) = KIND.rows(tokenizer, ("a [MASK] b",), 16)
    assert [tokenizer.vocabulary[i] for i in row.token_ids] == ["<s>", "a", "<mask>", "Ġb", "</s>"]
    values = np.zeros((1, len(pieces)), "float32")
    values[0, pieces.index("Ġa")] = 1
    answer = KIND.decode(("a [MASK] b",), [row], values, ())
    assert (answer.text, answer.tokens[0][0].token) == ("a a b", " a")


@pytest.mark.parametrize(
    ("text", "length", "message"),
    [
        ("a cat", 32, r"'a cat' has no mask, expected \[MASK\]"),
        ("[MASK]", 2, "length is 2, expected at least 3: a mask and"),
    ],
)
def test_what_cannot_be_filled_in(text, length, message):
    with pytest.raises(kb.InputError, match=message):
        rows(text, length)


@eagerly()
def test_a_pretrained_run_fills_masks(pretrained, capsys):
    texts = ["the [MASK] sees", "a [MASK] is [MASK] " + "very " * 60 + "<mask>"]
    one, other = kb.fill_mask(pretrained, texts, top=3)
    assert [[len(mask) for mask in answer.tokens] for answer in (one, other)] == [[3], [3] * 3]
    assert (one.truncated, other.truncated) == (False, True)
    model = kb.load(pretrained, task="fill-mask")
    (explained,) = kb.explain(model, texts[:1], steps=32)
    best = explained.answer.tokens[0][0].score
    assert explained.score == pytest.approx(np.log(best / (1 - best)), abs=1e-4)
    assert abs(explained.error) < 1e-5
    alone = kb.predict(model, texts[1:])[0]
    assert (alone.text, [len(mask) for mask in alone.tokens]) == (other.text, [5] * 3)
    # the head's numbers are those of pretraining's own model
    from kerasbert.objectives.bert import PretrainingModel

    batch = inputs.arrays(inputs.TEXT, rows(texts[0]), 8)
    whole = PretrainingModel(model.encoder, {"mlm": model.heads["mlm"]}, {"mlm": (None, None, 16)})
    whole.build()
    logits = np.asarray(whole({**batch, "mlm_positions": np.array([[2]])})["mlm_logits"])[0, 0]
    expected = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    np.testing.assert_allclose(
        [each.score for each in one.tokens[0]], [expected[each.id] for each in one.tokens[0]], rtol=1e-5
    )
    assert one.tokens[0][0].id == expected.argmax()
    assert main(["fill-mask", str(pretrained), texts[0], "--top", "3"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        one.text,
        "\t".join(f"{each.token} {each.score:.4f}" for each in one.tokens[0]),
    ]
    assert main(["fill-mask", str(pretrained), "a cat"]) == 2
    assert "has no mask" in capsys.readouterr().err


def test_models_without_the_head_are_refused(classifier):
    with pytest.raises(kb.InputError, match="has no head mlm, which fill-mask needs"):
        kb.fill_mask(classifier, ["a [MASK]"])
    with pytest.raises(kb.InputError, match="the model fills no masks"):
        kb.fill_mask(kb.load(classifier), ["a [MASK]"])
    with pytest.raises(kb.InputError, match="top must be"):
        kb.fill_mask(classifier, ["a [MASK]"], top=0)


def test_the_generator_of_an_electra_fills_masks(tmp_path):
    """The run holds it as a head of the discriminator; here it is an encoder of its own."""
    from kerasbert.checkpoints import save_model
    from kerasbert.models.electra import ElectraPretraining
    from kerasbert.tasks.predict import task_logits

    tokenizer = tiny.tokenizer()
    changes = tiny.SPEC | {"embeddings.vocabulary": tokenizer.size, "embeddings.width": 12, "generator.share": 0.5}
    encoder = kb.build("electra/small", **changes)
    objective = ElectraPretraining(encoder, tokenizer)
    rng = np.random.default_rng(0)
    for variable in objective.model.weights:
        if variable.dtype == "float32":
            variable.assign(rng.normal(0, 0.3, variable.shape))
    save_model(tmp_path, encoder=encoder, name="electra/small", heads=objective.model.heads, tokenizer=tokenizer)
    model = kb.load(tmp_path, task="fill-mask")
    batch = inputs.arrays(inputs.TEXT, rows("the [MASK] sees <mask>")[:1], 8)
    positions = np.array([[2], [4]])
    given = {"mlm_positions": positions.T, "mlm_labels": positions.T, "mlm_weights": np.ones((1, 2), "float32")}
    both = {name: np.repeat(array, 2, 0) for name, array in batch.items()}
    expected = objective.model({**batch, **given})["mlm_logits"][0]
    np.testing.assert_allclose(task_logits(model, {**both, "positions": positions}), expected, atol=1e-5)
    assert kb.fill_mask(tmp_path, ["the [MASK] sees"])[0].text.startswith("the")

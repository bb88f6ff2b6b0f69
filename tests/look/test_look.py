"""`kerasbert look`: its numbers against numpy, its page, its mistakes."""

import dataclasses
import json
import math

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import checkpoints, registry
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.layers import naming
from kerasbert.look import early, numbers, page
from kerasbert.look import surface as around
from kerasbert.look.looking import look
from kerasbert.look.masked import masked
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import find_task
from kerasbert.testing import battery
from tests import tiny
from tests.test_run_report import check_page

SENTENCES = ("the cat sees the river", "an old river runs", "house. The River is new", "very sad dog, good river")


@pytest.fixture(scope="module")
def encoder():
    model = kb.build(
        "bert/tiny", **tiny.SPEC | {"blocks.layers": 2}, **{"embeddings.vocabulary": tiny.tokenizer().size}
    )
    model.tokenizer = tiny.tokenizer()
    rng = np.random.default_rng(0)
    for variable in model.weights:
        variable.assign(rng.normal(0, 0.3, variable.shape))
    return model


@pytest.fixture(scope="module")
def found(encoder):
    return look(encoder, "river", SENTENCES)


def states(encoder, sentence):
    """Hidden states [L + 1, S, H] and ids of a sentence, without padding."""
    ids = np.array([[encoder.tokenizer.cls_id, *encoder.tokenizer.encode(sentence), encoder.tokenizer.sep_id]])
    return np.stack([layer.numpy()[0] for layer in encoder({"token_ids": ids})["hidden"]]), ids[0]


def by_hand_attention(encoder, hidden):
    """softmax(q k / sqrt(D)) of each block from its kernels: [L, N, S, S]."""
    values, layers = naming.values(encoder), []
    for i, x in enumerate(hidden[:-1]):
        q, k = (
            x @ values[f"block_{i}/attention/{name}/kernel"] + values[f"block_{i}/attention/{name}/bias"]
            for name in ("query", "key")
        )
        heads = []
        for at in (slice(0, 8), slice(8, 16)):
            scores = np.exp(q[:, at] @ k[:, at].T / math.sqrt(8))
            heads.append(scores / scores.sum(-1, keepdims=True))
        layers.append(heads)
    return np.array(layers)


def test_the_word_by_layer_is_what_numpy_says(encoder, found):
    river = encoder.tokenizer.vocabulary.index("river")
    vectors = []
    for sentence in SENTENCES:
        hidden, ids = states(encoder, sentence)
        vectors.append(hidden[:, list(ids).index(river)])
    for number, layer in enumerate(found["layers"]):
        for i, one in enumerate(vectors):
            for j, other in enumerate(vectors):
                a, b = one[number], other[number]
                expected = float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))
                assert layer["cosines"][i][j] == pytest.approx(expected, abs=1e-5)
        of = np.array(vectors)[:, number]
        centred = of - of.mean(0)
        lengths, axes = np.linalg.eigh(centred.T @ centred)
        expected = np.abs(centred @ axes[:, [-1, -2]])
        np.testing.assert_allclose(np.abs(layer["map"]), expected, atol=1e-4)
        assert layer["share"] == pytest.approx(lengths[-2:].sum() / lengths.sum(), abs=1e-5)


def test_blocks_are_what_numpy_says(encoder, found):
    for i, block in enumerate(found["blocks"]):
        distances, angles = [], []
        for sentence in SENTENCES:
            hidden, _ = states(encoder, sentence)
            for before, after in zip(hidden[i].astype("float64"), hidden[i + 1].astype("float64")):
                distances.append(math.dist(before, after))
                cosine = before @ after / math.sqrt((before @ before) * (after @ after))
                angles.append(math.degrees(math.acos(cosine)))
        assert block["distance"] == pytest.approx(np.mean(distances), rel=1e-5)
        assert block["angle"] == pytest.approx(np.mean(angles), rel=1e-4)


def test_heads_are_what_numpy_says(encoder, found):
    shares, entropies = [], []
    for sentence in SENTENCES:
        hidden, ids = states(encoder, sentence)
        weights, size = by_hand_attention(encoder, hidden), len(ids)
        each = [
            np.mean([weights[..., i, i - 1] for i in range(1, size)], 0),
            np.mean([weights[..., i, i + 1] for i in range(size - 1)], 0),
            np.mean([weights[..., i, size - 1] for i in range(size)], 0),
            np.mean([weights[..., i, i] for i in range(size)], 0),
        ]
        shares.append(each)
        entropies.append(-(weights * np.log(weights)).sum(-1).mean(-1))
    about = found["attention"]
    for name, expected in zip(numbers.PATTERNS, np.mean(shares, 0), strict=True):
        np.testing.assert_allclose(about["patterns"][name], expected, atol=1e-5)
    np.testing.assert_allclose(about["entropy"], np.mean(entropies, 0), atol=1e-5)
    drawn = about["drawn"]
    at = drawn["layer"] - 1, drawn["head"] - 1
    assert drawn["entropy"] == np.min(about["entropy"]) == about["entropy"][at[0]][at[1]]
    np.testing.assert_allclose(
        drawn["weights"], by_hand_attention(encoder, states(encoder, SENTENCES[0])[0])[at], atol=1e-5
    )


def test_patterns_by_hand():
    weights = np.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.0, 0.5, 0.5]])[None, None]
    expected = [(0.3 + 0.5) / 2, (0.2 + 0.4) / 2, (0.7 + 0.4 + 0.5) / 3, (0.1 + 0.3 + 0.5) / 3]
    np.testing.assert_allclose(numbers.patterns(weights, np.array([False, False, True]))[:, 0, 0], expected)
    assert numbers.entropy(np.full((1, 1, 4, 4), 0.25))[0, 0] == pytest.approx(math.log(4))


def test_a_fine_tuned_model_is_looked_at_by_its_encoder(encoder, found):
    model = TaskModel(encoder, find_task("glue/sst2"))
    model.build()
    assert look(model, "river", SENTENCES)["layers"] == found["layers"]


def test_the_layers_that_a_task_reads_are_those_of_its_mix(encoder, found):
    model = TaskModel(encoder, dataclasses.replace(find_task("glue/sst2"), layers="mix"))
    model.build()
    model.heads["mix"].scalars.assign(np.log([1.0, 3.0, 6.0]))
    model.heads["mix"].gamma.assign([0.5])
    about = look(model, "river", SENTENCES)
    assert about["mix"] == {"gamma": 0.5, "shares": pytest.approx([0.1, 0.3, 0.6])}
    parts = "".join(page.mix(about))
    assert "Most is read of layer 2, 60%, where even shares are 33%; the sum is multiplied by 0.50" in parts
    assert (found["mix"], page.mix(found)) == (None, [])


def test_the_command_writes_a_page_without_network_and_all_numbers(encoder, found, tmp_path, capsys):
    kb.save(encoder, tmp_path / "model")
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join([*SENTENCES, "", "the dog runs"]) + "\n")
    out = tmp_path / "page.html"
    given = ["--word", "River", "--sentences", str(lines), "--out", str(out)]
    assert main(["look", str(tmp_path / "model"), *given, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(told["layers"][2]["cosines"], found["layers"][2]["cosines"], atol=1e-6)
    text = out.read_text()
    view = check_page(text)
    assert "River in 4 sentences" in view.text
    assert text.count("<svg") == 3 * 2 + 2 * 2 + 5 + 1 + 2  # words, blocks with legends, heads, one head, lengths
    widths = [int(attrs["width"]) for tag, attrs, _ in view.elements if tag == "svg"]
    assert max(widths) <= 368  # 400 pixels less the margins of the page
    out.write_text("mine")
    assert main(["look", str(tmp_path / "model"), *given]) == 2


def test_hostile_texts_are_harmless(found):
    bad = "<script>alert(1)</script>"
    about = found | {"word": bad, "sentences": [bad] * 4}
    about["attention"]["drawn"]["pieces"] = [bad] * len(about["attention"]["drawn"]["pieces"])
    assert bad not in "".join([*page.words(about), *page.attention(about)])


def test_a_family_without_attention_weights_is_told_by_name(tmp_path):
    model = battery.Subject("elmo", tmp_path).encoder()
    about = look(model, "river", SENTENCES)
    assert about["attention"] is None
    assert "elmo has no attention weights" in "".join(page.attention(about))


def test_what_has_no_layers_to_compare_is_refused_by_name(tmp_path):
    with pytest.raises(InputError, match="average has no layers whose states could be looked at"):
        look(battery.Subject("average", tmp_path).encoder(), "river", SENTENCES)


def test_two_stacks_are_refused():
    family, spec = registry.find("t5/small")
    model = family.encoder(spec)
    with pytest.raises(InputError, match="t5 has two stacks"):
        look(model, "river", SENTENCES)


def test_a_sentence_that_is_truncated_before_the_word_is_left_out(encoder, capsys):
    long = " ".join(["the cat"] * 40) + " river"
    about = look(encoder, "river", (*SENTENCES[:3], long))
    assert about["sentences"] == list(SENTENCES[:3])
    assert len(about["masked"]["sentences"] if about["masked"] else SENTENCES[:3]) == 3
    assert "1 of 4 sentences are left out: the tokens of 'river' are not found in 'the cat" in capsys.readouterr().err
    with pytest.raises(InputError, match="are not found in 1 of 3 sentences: 'the cat.*truncated to 32 tokens"):
        look(encoder, "river", (*SENTENCES[:2], long))


def test_what_is_asked_is_checked(tmp_path):
    assert early.asked(None, None) == early.asked("bank", None) == ("bank", early.SHIPPED["bank"])
    assert early.asked("apple", None) == ("apple", early.SHIPPED["apple"])
    assert all(early.place(word, each) for word, sentences in early.SHIPPED.items() for each in sentences)
    with pytest.raises(InputError, match="bank or apple has sentences that ship"):
        early.asked("river", None)
    many = tmp_path / "many.txt"
    many.write_text("a river\n" * 25)
    with pytest.raises(InputError, match="0 of 25 sentences of .* hold the word 'iver', expected 3 or more"):
        early.asked("iver", many)


def test_what_of_a_file_is_not_drawn_is_said(tmp_path, capsys):
    many = tmp_path / "many.txt"
    many.write_text("\n".join(f"river {i}" for i in range(300)) + "\nno such word\n")
    word, held = early.asked("river", many)
    assert (word, len(held), held[-1]) == ("river", 24, "river 23")
    assert "300 of 301 sentences of" in (said := capsys.readouterr().err)
    assert "hold the word 'river', the first 24 are drawn" in said
    table = tmp_path / "table.csv"
    table.write_text('id,text\n1,"the river, here"\n2,a river\n3,rivers\n4,River!\n')
    assert early.asked("river", table)[1] == ("the river, here", "a river", "River!")
    assert "3 of 4 sentences of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "lines", "held"),
    [
        ("银行", ["我去银行取钱", "银行在河边", "她在银行工作", "没有"], 3),  # no blanks between words
        ("ねこ", ["ねこがいる", "白いねこ", "ねこ"], 3),
        ("ธนาคาร", ["ไปธนาคาร", "ธนาคารกลาง", "ธนาคาร"], 3),
        (
            "caf\u00e9",
            ["un caf\u00e9", "le cafe\u0301 noir", "Caf\u00c9!"],
            3,
        ),  # one letter, or a letter and its accent
        ("bank", ["我的bank账户", "a bank", "bank?", "banks", "bank_1"], 3),
        ("बैंक", ["यह बैंक है", "बैंक", "वह बैंक", "बैंकों में"], 3),  # a vowel sign goes on with the word
    ],
)
def test_words_of_other_languages(tmp_path, word, lines, held):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(lines), "utf-8")
    assert len(early.asked(word, path)[1]) == held


def test_the_probability_of_a_masked_token_is_that_of_the_head(encoder, found):
    model = TaskModel(encoder, find_task("fill-mask"))
    model.build()
    rng = np.random.default_rng(1)
    for variable in model.heads["mlm"].weights:
        variable.assign(rng.normal(0, 0.3, variable.shape))
    got = masked(model, SENTENCES)
    every = []
    for sentence, tokens in zip(SENTENCES, got["sentences"]):
        _, ids = states(encoder, sentence)
        assert [token["piece"] for token in tokens] == [encoder.tokenizer.vocabulary[i] for i in ids[1:-1]]
        for place, token in enumerate(tokens, 1):
            hidden_away = np.where(np.arange(len(ids)) == place, encoder.tokenizer.mask_id, ids)[None]
            states_there = encoder({"token_ids": hidden_away})["sequence"][:, place : place + 1]
            logits = model.heads["mlm"](states_there, encoder.embeddings.tokens.table).numpy()[0, 0]
            shares = np.exp(logits) / np.exp(logits).sum()
            assert token["log_probability"] == pytest.approx(math.log(shares[ids[place]]), abs=1e-4)
            assert token["best_probability"] == pytest.approx(shares.max(), abs=1e-5)
            every.append(math.log(shares[ids[place]]))
    assert got["perplexity"] == pytest.approx(math.exp(-np.mean(every)), rel=1e-4)
    parts = "".join(page.masked({"masked": got}))
    assert f"pseudo-perplexity {got['perplexity']:.2f}" in parts
    assert parts.count("<small>") == len(every)
    assert masked(encoder, SENTENCES) is None
    assert found["masked"] is None
    assert "has no head that fills masks" in "".join(page.masked(found))


def test_a_directory_is_loaded_once(encoder, tmp_path, monkeypatch):
    model, loaded, load = TaskModel(encoder, find_task("fill-mask")), [], checkpoints.load_encoder
    model.build()
    parts = checkpoints.ModelParts(encoder, "bert/tiny", model.heads, encoder.tokenizer)
    folder, bare = tmp_path / "model", tmp_path / "bare"
    for each in (folder, bare):
        each.mkdir()
    checkpoints.write_model(folder, parts)  # as pretraining leaves it: an encoder with heads
    monkeypatch.setattr(checkpoints, "load_encoder", lambda path: loaded.append(path) or load(path))
    about = look(folder, "river", SENTENCES)
    assert loaded == [folder]
    assert about["masked"]["perplexity"] == pytest.approx(masked(model, SENTENCES)["perplexity"], rel=1e-5)
    checkpoints.write_model(bare, dataclasses.replace(parts, heads=None))
    assert look(bare, "river", SENTENCES)["masked"] is None


def test_the_token_table_is_what_numpy_says(encoder, found):
    rows = encoder.embeddings.tokens.table.numpy().astype("float64")
    river, size = encoder.tokenizer.vocabulary.index("river"), len(rows)
    cosine = {
        i: rows[i] @ rows[river] / math.sqrt(rows[i] @ rows[i] * (rows[river] @ rows[river]))
        for i in range(size)
        if i != river
    }
    best = sorted(cosine, key=lambda i: -cosine[i])[:8]
    about = found["table"]
    assert [each["piece"] for each in about["near"]] == [encoder.tokenizer.vocabulary[i] for i in best]
    np.testing.assert_allclose([each["cosine"] for each in about["near"]], [cosine[i] for i in best], atol=1e-5)
    np.testing.assert_allclose(about["norms"][0], np.linalg.norm(rows[: -(-size // 10)], axis=1).mean(), rtol=1e-5)
    assert len(about["norms"]) == 10

    def mean(vectors):
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return (unit @ unit.T)[~np.eye(len(unit), dtype=bool)].mean()

    assert about["anisotropy"] == pytest.approx(mean(rows), abs=1e-6)
    white = numbers.whitened(rows)
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(white.shape[1]), atol=1e-6)
    assert about["whitened"] == pytest.approx(mean(white), abs=1e-6)
    assert "tokens near river" in "".join(page.table(found))
    assert "has no table of tokens" in "".join(page.table({"family": "elmo", "table": None}))


def test_directions_have_the_lengths_of_filters_and_lie_at_right_angles_to_the_way():
    rng = np.random.default_rng(0)
    shapes = {"embeddings/tokens/table": (5, 3), "block_0/ffn/in/kernel": (3, 4), "block_0/ffn/in/bias": (4,)}
    own, way = ({name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()} for _ in range(2))
    found = around._random(own, 1)
    for one, other in zip(found["embeddings/tokens/table"], own["embeddings/tokens/table"], strict=True):
        assert np.sqrt((one**2).sum()) == pytest.approx(np.sqrt((other**2).sum()), rel=1e-5)
    for one, other in zip(found["block_0/ffn/in/kernel"].T, own["block_0/ffn/in/kernel"].T, strict=True):
        assert np.sqrt((one**2).sum()) == pytest.approx(np.sqrt((other**2).sum()), rel=1e-5)
    assert not found["block_0/ffn/in/bias"].any()
    flat = [
        np.concatenate([each[name].ravel() for name in shapes]).astype("float64")
        for each in (around._beside(found, way), way, found)
    ]
    assert flat[0] @ flat[1] == pytest.approx(0, abs=1e-5)
    assert flat[0] @ flat[0] == pytest.approx(flat[1] @ flat[1], rel=1e-5)
    rest = flat[2] - flat[1] * (flat[2] @ flat[1]) / (flat[1] @ flat[1])
    np.testing.assert_allclose(flat[0], rest * np.sqrt((flat[1] @ flat[1]) / (rest @ rest)), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_the_centre_of_the_surface_is_what_evaluate_says(classifier, monkeypatch):
    """And x = 1 is the loss of the encoder that the run began with, under the trained head."""
    monkeypatch.setattr(around, "POINTS", 3)
    model = kb.load(classifier)
    before = [weight.numpy() for weight in model.weights]
    found = around.surface(str(classifier), model)
    assert all(np.array_equal(one, other.numpy()) for one, other in zip(before, model.weights))
    evaluated = kb.evaluate(classifier, None)["metrics"]["loss"]
    middle = len(found["at"]) // 2
    losses = np.array(found["losses"])
    assert found["centre"] == pytest.approx(evaluated, abs=1e-6)
    assert losses[middle, middle] == pytest.approx(evaluated, abs=1e-6)
    assert found["start"]
    assert losses.std() > 1e-5
    start = kb.load(json.loads((classifier / "run.json").read_text())["start"])
    for one, other in zip(model.encoder.weights, start.weights, strict=True):
        one.assign(other)
    rows = [line.split("\t") for line in (classifier.parent / "dev.tsv").read_text().splitlines()[1:]]
    assert losses[middle, -1] == pytest.approx(
        kb.evaluate(model, [tuple(row) for row in rows])["metrics"]["loss"], abs=1e-5
    )
    assert "as evaluate says" in "".join(page.surface({"surface": found}))

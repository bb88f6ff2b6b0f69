"""Model directories with a tokenizer of their own, out to transformers' AutoTokenizer and models and in again."""

import json
import random

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry, text
from kerasbert.checkpoints import save_model
from kerasbert.errors import InputError
from kerasbert.text.added import AddedToken
from kerasbert.text.wordpiece import SPECIALS
from tests import tiny
from tests.checkpoints.theirs import transformers as peer
from tests.text.kinds import small_unigram, with_added

transformers = pytest.fixture(scope="module")(peer)
THEIRS = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's and transformers' own
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
TOKENS = [AddedToken("@USER", normalized=True), AddedToken("[E1]", special=True, lstrip=True)]


def directory(path, family, tokenizer, heads=("mlm",)):
    """A model directory with random weights of every scale that a test could confuse."""
    pieces = tokenizer.size if tokenizer else 50
    changes = tiny.SPEC | {"embeddings.vocabulary": pieces + 3, "embeddings.positions": 66, "dropout": 0.0}
    changes["feedforward.width"] = 64
    encoder = registry.family(family).encoder(registry.family(family).spec.derive(changes))
    encoder.build()
    draw = np.random.default_rng(0)
    for variable in encoder.weights:
        variable.assign(draw.normal(0, 0.3, variable.shape))
    shapes = {
        "classifier": {"kernel": (16, 2), "bias": (2,)},
        "mlm": {
            "transform/kernel": (16, 16),
            "transform/bias": (16,),
            "norm/gamma": (16,),
            "norm/beta": (16,),
            "bias": (pieces + 3,),
        },
    }
    made = {
        head: {name: draw.normal(0, 0.3, shape).astype("float32") for name, shape in shapes[head].items()}
        for head in heads
    }
    task = {"kind": "classification", "inputs": "text"} if "classifier" in made else None
    labels = ["no", "yes"] if task else None
    save_model(path, encoder=encoder, name=family, heads=made, tokenizer=tokenizer, task=task, labels=labels)
    return path


def texts(count=63):
    """Texts with rare characters, blanks and added tokens."""
    draw = random.Random(5)
    items = ["@USER", " [E1]", "the cat", "é", "中国", "film", "  ", "!", "xyz", "@user"]
    return ["", *(" ".join(draw.choices(items, k=draw.randint(1, 12))) for _ in range(count - 1))]


def tokenizer_of(kind):
    """Vocabularies whose padding id is 0, as ours are."""
    return with_added(small_unigram() if kind == "unigram" else tiny.tokenizer(), TOKENS)


@pytest.mark.parametrize(("family", "kind"), [("roberta", "wordpiece"), ("xlm-roberta", "unigram")])
def test_the_padding_piece_changes_places_with_the_one_of_the_id_that_positions_count_from(family, kind, tmp_path):
    tokenizer = tokenizer_of(kind)
    assert tokenizer.pad_id == 0
    directory(tmp_path / "run", family, tokenizer)
    kb.export_checkpoint(tmp_path / "run", tmp_path / "hf")
    config = json.loads((tmp_path / "hf/config.json").read_text())
    encoder = kb.import_checkpoint(tmp_path / "hf")
    assert config["pad_token_id"] == encoder.tokenizer.pad_id == 1
    ours = kb.import_checkpoint(tmp_path / "hf", out=tmp_path / "back") and kb.load(tmp_path / "back")
    first = kb.load(tmp_path / "run")
    table, other = first.embeddings.tokens.table.numpy(), ours.embeddings.tokens.table.numpy()
    order = [1, 0, *range(2, len(table))]
    np.testing.assert_array_equal(other, table[order])
    bias = encoder.heads["mlm"]["bias"]
    np.testing.assert_array_equal(bias, kb.checkpoints.read_tensors(tmp_path / "run").read("heads/mlm/bias")[order])
    for one in texts():
        ids = tokenizer.pack(one)[0]
        assert encoder.tokenizer.pack(one)[0] == [order[i] for i in ids]


@pytest.mark.parametrize(("family", "kind"), [("roberta", "wordpiece"), ("xlm-roberta", "unigram")])
class TestTheirAnswers:
    pytestmark = THEIRS

    def test_transformers_answers_as_the_model_directory(self, transformers, family, kind, tmp_path):
        import torch

        directory(tmp_path / "run", family, tokenizer_of(kind), heads=("classifier",))
        kb.export_checkpoint(tmp_path / "run", tmp_path / "hf")
        kb.import_checkpoint(tmp_path / "hf", out=tmp_path / "back")
        theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hf").eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
        rows = texts()
        batch = tokenizer(rows, padding=True, truncation=True, max_length=64, return_tensors="pt")
        with torch.no_grad():
            expected = torch.softmax(theirs(**batch).logits, -1).numpy()
        for run in ("run", "back"):
            found = np.array([[one.scores[name] for name in ("no", "yes")] for one in kb.predict(tmp_path / run, rows)])
            np.testing.assert_allclose(found, expected, atol=1e-6)


def test_xlm_without_a_tokenizer_pads_as_its_class(tmp_path):
    directory(tmp_path / "run", "xlm", None, heads=())
    kb.export_checkpoint(tmp_path / "run", tmp_path / "hf")
    assert json.loads((tmp_path / "hf/config.json").read_text())["pad_token_id"] == 2


def test_numbers_of_languages_travel(tmp_path):
    directory(tmp_path / "run", "xlm", None, heads=())
    kb.export_checkpoint(tmp_path / "run", tmp_path / "hf")
    config = json.loads((tmp_path / "hf/config.json").read_text())
    config |= {"lang2id": {"de": 0, "en": 1}, "id2lang": {"0": "de", "1": "en"}}
    (tmp_path / "hf/config.json").write_text(json.dumps(config))
    # XLM's own tokenizer: fastBPE after Moses
    (tmp_path / "hf/vocab.json").write_text(json.dumps({"<s>": 0, "</s>": 1, "<pad>": 2, "<unk>": 3, "the</w>": 4}))
    (tmp_path / "hf/merges.txt").write_text("t he</w> 10\nth e</w> 9\n")
    with pytest.raises(InputError, match=r"2 of 2 merges end words with </w>: fastBPE as in XLM.*--tokenizer none"):
        kb.import_checkpoint(tmp_path / "hf")
    encoder = kb.import_checkpoint(tmp_path / "hf", out=tmp_path / "back", tokenizer="none")
    assert encoder.tokenizer is None
    assert json.loads((tmp_path / "back/tokenizer/languages.json").read_text()) == {"de": 0, "en": 1}
    assert getattr(kb.load(tmp_path / "back"), "tokenizer", None) is None
    kb.export_checkpoint(tmp_path / "back", tmp_path / "again")
    again = json.loads((tmp_path / "again/config.json").read_text())
    assert (again["lang2id"], again["id2lang"]) == (config["lang2id"], config["id2lang"])
    config["lang2id"] = {"de": 0, "en": "x"}
    (tmp_path / "hf/config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"lang2id must number languages from 0, each its own.* Received"):
        kb.import_checkpoint(tmp_path / "hf", tokenizer="none")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("vocab.txt", "BertJapaneseTokenizer"),
        ("vocab.txt", "BertweetTokenizer"),
        ("vocab.txt", "SomeTokenizer"),
        ("tokenizer.json", "BertJapaneseTokenizer"),
    ],
)
def test_classes_with_code_of_their_own_are_refused_by_name(name, given, tmp_path):
    tokenizer = tiny.tokenizer()
    tokenizer.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    if name == "tokenizer.json":
        text.save_hf(tokenizer, tmp_path / name)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": given}))
    with pytest.raises(InputError, match=f"tokenizer_class is '{given}'"):
        text.load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "given", ["BertTokenizer", "BertTokenizerFast", "ElectraTokenizer", "DistilBertTokenizerFast", None]
)
def test_ordinary_classes_pass(given, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIALS, "a"]) + "\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": given}))
    assert text.load_tokenizer(tmp_path).size == 6


@pytest.mark.parametrize("given", ["PreTrainedTokenizerFast", "CamembertTokenizer", "XLMRobertaTokenizerFast", "Mine"])
def test_a_tokenizer_json_speaks_for_itself(given, tmp_path):
    text.save_hf(small_unigram(), tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": given}))
    assert text.load_tokenizer(tmp_path).size == small_unigram().size

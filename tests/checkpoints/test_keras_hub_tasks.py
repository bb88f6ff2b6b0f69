"""KerasHub's classifiers and masked LMs, live: what we import answers as theirs, and theirs as what we wrote."""

import contextlib
import io

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.answers.base import softmax
from kerasbert.answers.multi_label import sigmoid
from kerasbert.layers.heads import MaskedLM, token_head
from kerasbert.tasks.predict import outputs
from tests.checkpoints import presets

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # keras_hub's own imports
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

NAMES = {
    "Bert": "bert",
    "Albert": "albert",
    "Roberta": "roberta",
    "XLMRoberta": "xlm-roberta",
    "DistilBert": "distilbert",
    "DebertaV3": "deberta-v3",
}
OWN = {"Albert": {"embedding_dim": 11}, "DebertaV3": {"bucket_size": 8}}
PLAIN = ("Bert", "Albert")  # whose labels read the pooler of the backbone
TEXTS = [*presets.TEXTS, "the cats the mat the cat the the mats the cat the cat"]
PAIRS = [("the cats", "The mat, the cat"), ("zzz", "the"), ("the cat the cat the cat the cat", "cats")]
HEADS = [  # of a seed each
    {"num_classes": 3, "hidden_dim": None, "activation": None, "dropout": 0.3},
    {"num_classes": 2, "hidden_dim": 7, "activation": "softmax", "dropout": 0.0},
    {"num_classes": 7, "hidden_dim": 11, "activation": "sigmoid"},
    {"num_classes": 1, "hidden_dim": None, "activation": "sigmoid"},
    {"num_classes": 1, "hidden_dim": None, "activation": "linear"},
]


@pytest.fixture(scope="module")
def keras_hub():
    return pytest.importorskip("keras_hub")


def tokenizer_of(keras_hub, case, folder):
    """One of theirs, by way of our file of the same."""
    with contextlib.redirect_stderr(io.StringIO()):
        presets.directory(folder / "pieces", case, tokenizer=presets.TOKENIZERS[case])
        kb.export_checkpoint(folder / "pieces", folder / "pieces-theirs", "keras_hub")
    return keras_hub.tokenizers.Tokenizer.from_preset(str(folder / "pieces-theirs"))


def make(keras_hub, name, kind, folder, seed, length=24, **options):
    """A task of theirs with random weights, on disk."""
    draw = np.random.default_rng([seed, *name.encode()])
    heads = int(draw.integers(1, 5))
    size = {"num_heads": heads, "hidden_dim": heads * int(draw.integers(12, 15)), "num_layers": 1 + seed % 3}
    size |= {"intermediate_dim": int(draw.integers(5, 60)), "max_sequence_length": 24 + seed, "vocabulary_size": 301}
    tokenizer = tokenizer_of(keras_hub, NAMES[name], folder)
    pack = getattr(keras_hub.models, f"{name}{kind}Preprocessor")(tokenizer, sequence_length=length)
    backbone = getattr(keras_hub.models, f"{name}Backbone")(**size, **OWN.get(name, {}))
    options = {key: value for key, value in options.items() if key != "hidden_dim" or name not in PLAIN}
    task = getattr(keras_hub.models, f"{name}{kind}")(backbone, preprocessor=pack, **options)
    for weight in task.weights:
        weight.assign(draw.normal(0, 0.2, weight.shape).astype("float32"))
    task.save_to_preset(str(folder / "theirs"))
    return task


def answered(directory, texts, activation):
    """The outputs of our model as theirs are."""
    found = np.asarray(outputs(kb.load(directory), texts))
    found = found.reshape(len(texts), -1)
    if found.shape[1] == 1:  # a regression's activation is the model's own
        return found
    return {"softmax": softmax, "sigmoid": sigmoid}.get(activation, lambda x: x)(found)


@pytest.mark.parametrize(("name", "seed"), [(name, seed) for name in NAMES for seed in range(3)])
def test_their_classifiers(keras_hub, tmp_path, name, seed, capsys):
    """In and back."""
    number = (seed + [*NAMES].index(name)) % len(HEADS)
    options, length = HEADS[number], 19
    theirs = make(keras_hub, name, "TextClassifier", tmp_path, seed, length, **options)
    capsys.readouterr()
    kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "ours", build=False)
    told = "not used: task/optimizer/* (theirs)" + "; dropout (task.json)" * (options.get("dropout") == 0.3)
    assert capsys.readouterr().err.replace("; unsplittable_tokens (tokenizer.json)", "") == f"{told}\n"
    expected = theirs.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(answered(tmp_path / "ours", TEXTS, options["activation"]), expected, atol=1e-5)
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "back", "keras_hub")
    again = keras_hub.models.TextClassifier.from_preset(str(tmp_path / "back"))
    assert type(again) is type(theirs)
    assert again.preprocessor.sequence_length == length
    found = again.predict(TEXTS, verbose=0)  # of a classification logits
    found = softmax(found) if options["activation"] == "softmax" else found
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_their_classifiers_of_pairs(keras_hub, tmp_path, name):
    theirs = make(keras_hub, name, "TextClassifier", tmp_path, 1, 14, num_classes=4)
    kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "ours", build=False, pair=True)
    expected = theirs.predict(tuple(list(column) for column in zip(*PAIRS)), verbose=0)
    np.testing.assert_allclose(answered(tmp_path / "ours", PAIRS, None), expected, atol=1e-5)


@pytest.mark.parametrize(("name", "seed"), [(name, seed) for name in NAMES for seed in range(3)])
def test_their_masked_lms(keras_hub, tmp_path, name, seed, capsys):
    """In and back; logits by our layer, with their norm's epsilon and activation, which ours has not in every family."""
    theirs = make(keras_hub, name, "MaskedLM", tmp_path, seed)
    capsys.readouterr()
    encoder = kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "ours")
    assert ("its predictions differ slightly" in capsys.readouterr().err) == (name not in ("Roberta", "XLMRoberta"))
    assert encoder.task is None
    inputs = {key: value % 301 for key, value in presets.inputs_of(NAMES[name]).items()}
    places = np.array([[0, 3, 5], [1, 2, 0], [4, 4, 1]], "int32")

    def answers(model):
        return np.asarray(model({key.name: (inputs | {"mask_positions": places})[key.name] for key in model.inputs}))

    def ours(layer):
        layer.build((None, None, encoder.spec.hidden))
        for weight in layer.weights:
            weight.assign(encoder.heads["mlm"][weight.path.partition("/")[2]])
        x = np.take_along_axis(np.asarray(encoder(inputs)["sequence"]), places[:, :, None], 1)
        return np.asarray(layer(x, encoder.embeddings.tokens.table))

    expected = answers(theirs)
    width = encoder.spec.embeddings.width or encoder.spec.hidden
    activation = "gelu_tanh" if name == "Albert" else "gelu"
    np.testing.assert_allclose(ours(MaskedLM(301, width, activation, 1e-5, name="mlm")), expected, atol=1e-5)
    own = np.abs(ours(token_head(type(encoder).token_head, encoder.spec)) - expected).max()
    assert own <= (1e-5 if name in ("Roberta", "XLMRoberta") else 5e-4)
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "back", "keras_hub")
    again = keras_hub.models.MaskedLM.from_preset(str(tmp_path / "back"))
    np.testing.assert_allclose(answers(again), expected, atol=1e-5)
    assert np.asarray(again.preprocessor(["the cats"])[0]["token_ids"]).shape == (1, 24 + seed)

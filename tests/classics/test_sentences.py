"""Skip-Thought's and Quick-Thoughts' encoders: sizes, names, what a sentence's vector is, expansion, a run and what follows."""

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert import mobile, models, registry
from kerasbert import spec as specs
from kerasbert.checkpoints.vectors import WordVectors
from kerasbert.classics.skip_thought import expanded, expansion
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.mobile.runtime import load
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import find_task
from kerasbert.testing import battery, world
from kerasbert.training.flops import family_flops
from tests.training.stopping import ends_the_same

BOTH = {"directions": ("uni", "bi")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("sentences")


def gru(width, units):
    return 3 * units * (width + units + 1)


def test_sizes_are_the_papers():
    sizes = {
        "skip-thought/uni": 20000 * 620 + gru(620, 2400),
        "skip-thought/bi": 20000 * 620 + 2 * gru(620, 1200),
        "skip-thought/combine": 2 * 20000 * 620 + gru(620, 2400) + 2 * gru(620, 1200),
        "quick-thoughts/uni": 2 * (50000 * 620 + gru(620, 1200)),
        "quick-thoughts/bi": 2 * (50000 * 620 + 2 * gru(620, 600)),
        "quick-thoughts/combine": 4 * 50000 * 620 + 2 * gru(620, 1200) + 4 * gru(620, 600),
    }
    for name, count in sizes.items():
        family, spec = registry.find(name)
        assert models.parameters(family.encoder, spec) == count
        assert spec.hidden == (4800 if name.endswith("combine") else 2400)  # the papers' numbers of a vector
        assert (family.longest(spec), family.has_blocks) == (None, False)
    family, spec = registry.find("skip-thought/uni")
    read, written = 2 * 3 * 2400 * (620 + 2400), 2 * 3 * 2400 * (620 + 2400) + 2 * 2400 * 20000
    assert family_flops(family, spec, 100, 8, 150) == 3 * (100 * read + 150 * written + 8 * 2 * 2 * 3 * 2400**2)


def test_names_of_weights_are_public(folder):
    of = {name: list(names(battery.Subject(name, folder).encoder())) for name in ("skip-thought", "quick-thoughts")}
    assert of["skip-thought"] == [
        "embeddings/uni/table",
        *(f"block_0/uni_forward/{part}" for part in ("kernel", "recurrent_kernel", "bias")),
    ]
    assert [name for name in of["quick-thoughts"] if name.endswith(("table", "bias"))] == [
        "embeddings/uni_f/table",
        "embeddings/uni_g/table",
        "block_0/uni_f_forward/bias",
        "block_0/uni_g_forward/bias",
    ]
    both = names(battery.Subject("skip-thought", folder, **BOTH).encoder())
    assert [name for name in both if name.endswith("recurrent_kernel")] == [
        f"block_0/{each}/recurrent_kernel" for each in ("uni_forward", "bi_forward", "bi_backward")
    ]


def test_a_sentences_vector_is_the_last_state_of_each_direction(folder):
    subject = battery.Subject("skip-thought", folder, **BOTH)
    model, inputs = subject.encoder(), subject.inputs()
    found, mask = np.asarray(model(inputs)["sequence"]), inputs["padding_mask"]
    vectors = np.asarray(model.sentences(model.embed(inputs), mask))
    classifier = TaskModel(model, find_task("glue/sst2"))
    assert classifier.readout == "last"
    for row in range(3):
        real = 9 - row
        np.testing.assert_allclose(vectors[row], found[row, real - 1], atol=1e-6)
        alone = {"token_ids": inputs["token_ids"][row : row + 1, :real]}
        np.testing.assert_allclose(model(alone)["sequence"][0, -1], vectors[row], atol=1e-6)
        # from right to left it is the same GRU on the tokens the other way round
        turned = model({"token_ids": alone["token_ids"][:, ::-1]})["sequence"][0, -1]
        forward, backward = (layer for layer in model.readers.cells if layer.name.startswith("bi"))
        kept = [weight.numpy() for weight in backward.weights]
        for one, other in zip(backward.weights, forward.weights, strict=True):
            one.assign(other)
        same = model(alone)["sequence"][0, -1]
        np.testing.assert_allclose(same[12:], turned[8:12], atol=1e-6)
        for one, other in zip(backward.weights, kept, strict=True):
            one.assign(other)


def test_pieces_of_a_row_are_read_alone(folder):
    subject = battery.Subject("quick-thoughts", folder, directions=("bi",))
    model, ids = subject.encoder(), subject.inputs(rows=1)["token_ids"]
    packed = np.asarray(model({"token_ids": ids, "packed_ids": np.array([[1, 1, 1, 1, 2, 2, 2, 0, 0]])})["sequence"])
    for begin, end in ((0, 4), (4, 7)):
        alone = model({"token_ids": ids[:, begin:end]})["sequence"]
        np.testing.assert_allclose(packed[:, begin:end], alone, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": 9, "directions": ("bi",)}, "hidden must be a multiple of 2, its parts. Received: 9"),
        ({"directions": ()}, "directions must be uni, bi or both, each once"),
        ({"directions": ("uni", "uni")}, "directions must be uni, bi or both, each once"),
        ({"directions": ("tri",)}, "directions"),
        ({"recurrence.layers": 2}, "one layer of reset_before_gru: .* Received: 2 of reset_before_gru"),
        ({"recurrence.cell": "lstm"}, "Received: 1 of lstm"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        specs.derive(registry.family("skip-thought").spec, changes).validate()
    if changes.get("hidden"):
        with pytest.raises(InputError, match="hidden must be a multiple of 4"):
            specs.derive(registry.family("quick-thoughts").spec, {**changes, "hidden": 6}).validate()


def test_a_vocabulary_is_expanded_by_a_linear_map():
    """Kiros et al., section 2.2: a map that there is is found again; without one the squares are least."""
    generator = np.random.default_rng(0)
    vectors, wanted, true = (generator.normal(size=shape) for shape in ((40, 6), (5, 6), (6, 4)))
    np.testing.assert_allclose(expansion(vectors @ true, vectors, wanted), wanted @ true, atol=1e-6)
    table = generator.normal(size=(40, 4))
    normal = np.linalg.solve(vectors.T @ vectors, vectors.T @ table)
    np.testing.assert_allclose(expansion(table, vectors, wanted), wanted @ normal, atol=1e-6)
    with pytest.raises(InputError, match="expansion has 5 words for a map of vectors of 6 numbers, expected at least"):
        expansion(table[:5], vectors[:5], wanted)
    with pytest.raises(InputError, match=r"rows of 40 words and vectors \(39, 6\) of them"):
        expansion(table, vectors[:39], wanted)


def test_an_encoder_gets_the_words_of_word_vectors(folder):
    subject = battery.Subject("skip-thought", folder, **BOTH)
    encoder, tokenizer = subject.encoder(), subject.tokenizer
    known, new = [word for word in world.WORDS if word in tokenizer.vocabulary], ["vivid", "sea", "don't know"]
    generator = np.random.default_rng(0)
    true = generator.normal(size=(6, 16)).astype("float32")
    table = generator.normal(size=(len(known) + len(new), 6)).astype("float32")
    for reader, part in (("uni", true[:, :8]), ("bi", true[:, 8:])):
        own = names(encoder)[f"embeddings/{reader}/table"]
        rows = own.numpy()
        rows[[tokenizer.vocabulary.index(word) for word in known]] = table[: len(known)] @ part
        own.assign(rows)
    made = expanded(encoder, WordVectors([*known, *new], table))
    assert made.tokenizer.size == tokenizer.size + 2 == made.spec.embeddings.vocabulary  # a phrase is no word
    assert made.tokenizer.encode("vivid sea") == [tokenizer.size, tokenizer.size + 1]
    found = made.embed({"token_ids": np.array([[tokenizer.size, tokenizer.size + 1]])})[0]
    np.testing.assert_allclose(found, table[[-3, -2]] @ true, atol=1e-4)
    np.testing.assert_array_equal(made(subject.inputs())["sequence"], encoder(subject.inputs())["sequence"])
    encoder.tokenizer = battery.tokenizer("bpe")
    with pytest.raises(InputError, match="expanded has a tokenizer 'bpe', expected wordpiece"):
        expanded(encoder, WordVectors(known, table[: len(known)]))


def pretrained(name, folder):
    """A short run."""
    subject = battery.Subject(name, folder)
    changes = {"hidden": 16, "embeddings.width": 8}
    run = folder / f"run-{name}"
    settings = {"steps": 2, "batch": 8, "evaluate_every": 2, "quiet": True, "out": run, "changes": changes}
    with battery.eagerly():
        kb.pretrain(f"{name}/uni", subject.records().directory, **settings)
    return run


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:Even though the `tf.config")
def test_a_run_gives_vectors_of_texts(folder, tmp_path):
    run = pretrained("quick-thoughts", folder)
    lines = (run / "metrics.jsonl").read_text()
    assert "held_out/context" in lines
    model = kb.load(run)
    texts = ["the happy cat", "a bad film sees the river"]
    inputs = model.tokenizer(texts)
    last = inputs["padding_mask"].sum(1) - 1
    expected = np.asarray(model(inputs)["sequence"])[range(2), last]
    np.testing.assert_allclose(kb.encode(run, texts, pooling="last"), expected, atol=1e-6)
    np.testing.assert_allclose(kb.encode(run, texts), expected, atol=1e-6)
    mean = [np.asarray(model(inputs)["sequence"])[i, : last[i] + 1].mean(0) for i in range(2)]
    np.testing.assert_allclose(kb.encode(run, texts, pooling="mean"), mean, atol=1e-6)
    kb.export(model, tmp_path / "serving")
    served = tf.saved_model.load(str(tmp_path / "serving")).signatures["serving_default"](text=tf.constant(texts))
    np.testing.assert_allclose(served["vector"], expected, atol=1e-5)
    assert "float32: the sentence's, as it was learned." in (tmp_path / "serving/MODEL_CARD.md").read_text()
    mobile.compress(run, "none", tmp_path / "vectors.tflite", texts=texts, lengths=[16])
    np.testing.assert_allclose(load(tmp_path / "vectors.tflite").outputs(texts), expected, atol=1e-5)
    rows = ["anchor\tpositive", *(f"{text}\t{text}" for text in world.sentences(16, 3))]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n")
    options = {"task.pooling": "last"}
    with battery.eagerly():
        tuned = kb.finetune(
            run, "pairs", {"train": tmp_path / "pairs.tsv", "dev": tmp_path / "pairs.tsv"}, out=tmp_path / "vectors",
            steps=2, batch=8, length=12, changes=options, quiet=True,
        )  # fmt: skip
    answer = kb.predict(tuned, texts[:1])[0]
    assert len(answer.values) == 16
    assert tuned.task.options["pooling"] == "last"


@pytest.mark.full
@pytest.mark.parametrize("name", ["skip-thought", "quick-thoughts"])
def test_pretrained_stopped_and_begun_again(name, folder, tmp_path):
    """The weights after a kill and a resume are those of a run without one, to the bit."""
    records = battery.Subject(name, folder).records().directory
    ends_the_same(f"{name}/combine", records, tmp_path, changes={"hidden": 16, "embeddings.width": 8})

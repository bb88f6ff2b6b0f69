"""Tags: spans judged as seqeval does, batches, a run from CoNLL files; as transformers trains; the same everywhere."""

import dataclasses
import json
import random
import warnings

import numpy as np
import pytest
from seqeval import metrics as seqeval
from seqeval.scheme import IOB2, IOBES

import kerasbert as kb
from kerasbert.answers.schemes import mended
from kerasbert.errors import InputError
from kerasbert.tasks.base import Task, find
from kerasbert.tasks.batches import encode_texts
from kerasbert.tasks.task import find_labels, read_rows
from tests import tiny
from tests.checkpoints.theirs import make as theirs_of
from tests.checkpoints.theirs import parity
from tests.support import often
from tests.text.kinds import small_bpe, small_unigram

NOUNS = ("cat", "dog", "film", "house", "river", "stone")
NER = Task("ner", kind="tags", text="words", label="tags", reader="conll", metric="f1")


def labelled(task, names):
    return dataclasses.replace(task, labels={name: name for name in names})


def judged(corpus, predicted, names, asked="metrics"):
    """Metrics, or details, where a word is a token of its own, whose logits say the predicted label."""
    how = find("tags")
    encoded = encode_texts(tiny.tokenizer(), [(("cat",) * len(tags),) for tags in corpus], 16, kind=how)
    targets = [np.array([names.index(tag) for tag in tags], "int32") for tags in corpus]
    outputs = []
    said = [np.array([names.index(tag) for tag in tags], int) for tags in predicted]
    for row, owner in zip(encoded.rows, encoded.owners):
        output = np.random.default_rng(0).normal(size=(row.length, len(names))).astype("float32")
        output[row.about.tokens] = 9 * np.eye(len(names))[said[owner][row.about.words]]
        outputs.append(output)
    return getattr(how, asked)(labelled(NER, names), outputs, targets, encoded)


def test_spans_are_judged_as_seqeval_does_on_200_random_corpora():
    draw, other = random.Random(0), 0
    for number in range(200):
        tags = "BIES" if number % 2 else "BI"
        names = ["O", *(f"{tag}-{kind}" for kind in ("PER", "LOC", "x-y")[: 1 + number % 3] for tag in tags)]
        corpus = [draw.choices(names, k=draw.randrange(1, 25)) for _ in range(4)]
        predicted = [[tag if draw.random() < 0.7 else draw.choice(names) for tag in tags] for tags in corpus]
        found = judged(corpus, predicted, names)
        for name, theirs in (("f1", seqeval.f1_score), ("precision", seqeval.precision_score)):
            assert found[name] == theirs(corpus, predicted)
        assert found["recall"] == seqeval.recall_score(corpus, predicted)
        assert found["accuracy"] == seqeval.accuracy_score(corpus, predicted)
        if number % 20 == 0:
            report = seqeval.classification_report(corpus, predicted, output_dict=True, zero_division=0)
            theirs = {kind: list(map(float, report[kind].values())) for kind in list(report)[:-3]}
            assert {
                kind: list(row.values()) for kind, row in judged(corpus, predicted, names, "details")["labels"].items()
            } == {kind: pytest.approx(row) for kind, row in theirs.items()}
        other += found["f1"] != seqeval.f1_score(corpus, predicted, mode="strict", scheme=(IOB2, IOBES)[number % 2])
    assert other > 150


def test_constant_predictions_are_judged_without_a_warning():
    names = ["B-X", "I-X", "O"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert judged([["O", "B-X"]], [["O", "O"]], names)["f1"] == 0.0
        assert judged([["O", "O"]], [["B-X", "I-X"]], names)["f1"] == 0.0
        nothing = judged([["O", "O"]], [["O", "O"]], names)
        assert (nothing["f1"], nothing["precision"], nothing["accuracy"]) == (0.0, 0.0, 1.0)
        assert judged([[]], [[]], names)["accuracy"] == 0.0
    assert judged([["O", "O"]], [["I-X", "I-X"]], names)["mended"] == 1.0
    by_tag = judged([["DET", "NOUN"]], [["DET", "DET"]], ["DET", "NOUN"], "details")["labels"]
    assert by_tag["DET"] == {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "words": 1}
    assert "f1" not in judged([["DET", "NOUN"]], [["DET", "DET"]], ["DET", "NOUN"])


def test_loss_and_a_word_without_a_token_by_hand():
    how, names = find("tags"), ["B-X", "O"]
    encoded = encode_texts(tiny.tokenizer(), [(("cat", "\u200b", "\u200b", "zoe"),)], 16, kind=how)
    outputs = [np.log(np.array([[1, 1], [1, 3], [3, 1], [1, 1], [1, 1], [1, 1]], "float32"))]
    found = how.metrics(labelled(NER, names), outputs, [np.array([0, 1, 0, 0])], encoded)
    assert found["loss"] == pytest.approx(-(np.log(1 / 4) + np.log(3 / 4)) / 2)
    assert (found["accuracy"], found["without_token"]) == (0.5, 2.0)  # wrong, O, O for a span, right


def test_a_batch_weighs_the_first_token_of_each_word_once():
    how = find("tags").configured({"stride": 2})
    encoded = encode_texts(tiny.tokenizer(), [(("zoe", "cat", "abc", "the", "dog"),), "", "cat"], 7, kind=how)
    assert encoded.owners.tolist() == [0, 0, 0, 1, 2]
    targets = [np.array([1, 2, 3, 4, 5]), np.zeros(0, int), np.array([6])]
    batch = how.batch(NER, encoded.rows, [targets[i] for i in encoded.owners], 6, 7)
    # z ##o ##e cat a | ##e cat a ##b ##c | a ##b ##c the dog
    assert batch["label"].tolist() == [
        [0, 1, 0, 0, 2, 0, 0],
        [0, 0, 0, 3, 0, 0, 0],
        [0, 0, 0, 0, 4, 5, 0],
        [0] * 7,
        [0, 6, 0, 0, 0, 0, 0],
        [0] * 7,
    ]
    assert batch["label_weight"].tolist() == [[float(tag > 0) for tag in row] for row in batch["label"].tolist()]


def test_labels_and_the_metric_come_from_the_rows():
    how, lines = find("tags"), [1, 5]
    task = how.with_labels(NER, "x", lines, [["O", "B-X"], ["I-X"]])
    assert (list(task.labels), task.metric) == (["B-X", "I-X", "O"], "f1")
    assert how.with_labels(NER, "x", lines, ["DET NOUN", ["NOUN"]]).metric == "accuracy"
    with pytest.raises(InputError, match=r"x, line 5: tag 'PER' is none of O, B-TYPE, I-TYPE, E-TYPE, S-TYPE"):
        how.with_labels(NER, "x", lines, [["O", "B-X"], ["I-X", "PER"]])
    with pytest.raises(InputError, match=r"x has one tag only in column 'tags': 'O'; expected at least two"):
        how.with_labels(NER, "x", lines, [["O"], ["O"]])
    with pytest.raises(InputError, match="no metric 'f1' for tags that are not of BIO or IOBES. All: accuracy, loss"):
        how.check_metric(labelled(NER, ["DET", "NOUN"]))


@pytest.mark.parametrize(
    ("text", "tags", "message"),
    [
        ((("the", "cat"),), ["O"], r"x.conll, line 3: 1 tags of 2 words, expected one each: 'the cat'"),
        ("don't", "O", r"x.conll, line 3: 1 tags of 3 words, .*: \"don ' t\". Give the words as a list"),
        ((("cat",),), ["B-Y"], r"x.conll, line 3: tag 'B-Y' of the word 'cat' is unknown. Expected one of: B-X, O"),
        ((("cat", "dog"),), ["O", " "], r"x.conll, line 3: tag 2 is empty, expected a tag for every word"),
    ],
)
def test_wrong_tags_are_named(tmp_path, text, tags, message):
    with pytest.raises(InputError, match=message):
        find("tags").targets(labelled(NER, ["B-X", "O"]), tmp_path / "x.conll", [3], [tags], [text])


def columns(path, count, seed):
    """Nouns are spans, and `old` before them belongs to them; a word that is no piece of the vocabulary is one too."""
    draw, lines = random.Random(seed), []
    for _ in range(count):
        inside = False
        for word in draw.choices([*tiny.WORDS, "abc"], k=draw.randint(2, 30)):
            tag = "I-N" if inside and word in NOUNS else "B-N" if word in (*NOUNS, "old") else "O"
            inside = word == "old"
            lines.append(f"{word}\t{tag}")
        lines.append("")
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def run(pretrained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tags")
    columns(folder / "train.conll", 160, 0), columns(folder / "dev.conll", 30, 1)
    settings = {"epochs": 4, "batch": 20, "learning_rate": 1e-2, "length": 16, "quiet": True}
    kb.finetune(pretrained, "ner", folder, out=folder / "run", **settings)
    return folder / "run"


@pytest.mark.slow
def test_a_run_from_columns_answers_raw_texts_and_words(run, capsys):
    from kerasbert.cli import main

    found = kb.evaluate(run, run.parent)
    assert found["metrics"]["f1"] > 0.9
    assert found["truncated"] == 0
    model = kb.load(run)
    assert model.heads["classifier"].kernel.path.endswith("heads/classifier/kernel")
    text = "the cat  very " + "good " * 30 + "stone"
    raw, words, empty, dicts = kb.predict(model, [text, ["the", "abc", "stone"], "", {"words": "the dog"}])
    assert (raw.labels[1], raw.labels[-1], len(raw.words)) == ("B-N", "B-N", 34)
    assert [text[each.start : each.end] for each in raw.entities] == [each.text for each in raw.entities]
    assert [each.text for each in raw.entities] == ["cat", "stone"]
    assert (words.labels, empty.words, dicts.labels) == (("O", "O", "B-N"), (), ("O", "B-N"))
    assert main(["predict", str(run), "the dog"]) == 0
    assert capsys.readouterr().out.startswith("dog\tN\t")
    rows = [{"words": ["the", "cat"], "tags": ["O", "B-N"]}, {"words": ("dog",), "tags": ["B-N"]}]
    assert kb.evaluate(model, rows)["metrics"]["f1"] == 1.0


def batches(task, encoded, targets, count, batch):
    """Batches of `batch` rows, padded to 24 tokens."""
    order = np.random.default_rng(0).permutation(len(encoded.rows))
    for step in range(count):
        chosen = [int(order[(step * batch + i) % len(order)]) for i in range(batch)]
        arrays = encoded.arrays(chosen, 24)
        rows, wanted = [encoded.rows[i] for i in chosen], [targets[encoded.owners[i]] for i in chosen]
        yield arrays | task.how.batch(task, rows, wanted, batch, arrays["token_ids"].shape[1])


@parity
def test_20_updates_lose_what_transformers_loses(tmp_path):
    """The same weights and head, the same batches of windows, no dropout, AdamW without decay of biases and norms."""
    import tensorflow as tf
    import torch

    from kerasbert.tasks.model import TaskObjective
    from kerasbert.training.optimizers import AdamW

    sizes = {"vocab_size": tiny.tokenizer().size, "hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 40}
    sizes |= {"num_hidden_layers": 2, "max_position_embeddings": 32, "num_labels": 3}
    sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    theirs = theirs_of("BertForTokenClassification", sizes).train()
    theirs.bert.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | {"add_pooling_layer": False}
    (tmp_path / "config.json").write_text(json.dumps(config))
    task = labelled(NER, ["B-N", "I-N", "O"])
    ours = TaskObjective(kb.import_checkpoint(tmp_path), task)
    head = ours.model.heads["classifier"]
    kernel = theirs.classifier.weight.detach().numpy().copy()
    head.kernel.assign(kernel.T)
    head.bias.assign(theirs.classifier.bias.detach().numpy())

    words = [tuple(random.Random(i).choices([*tiny.WORDS, "abc"], k=1 + 3 * i % 40)) for i in range(60)]
    targets = [np.array([len(word) % 3 for word in each]) for each in words]
    encoded = encode_texts(tiny.tokenizer(), [(each,) for each in words], 24, kind=find("tags"))
    assert len(encoded.rows) > 70
    groups = {True: [], False: []}
    for name, parameter in theirs.named_parameters():
        groups["bias" not in name and "LayerNorm" not in name].append(parameter)
    groups = [{"params": each, "weight_decay": 0.1 * decayed} for decayed, each in groups.items()]
    optimizers = AdamW(1e-3, weight_decay=0.1, epsilon=1e-5), torch.optim.AdamW(groups, lr=1e-3, eps=1e-5)
    names = {"input_ids": "token_ids", "attention_mask": "padding_mask", "token_type_ids": "segment_ids"}
    losses = []
    for batch in batches(task, encoded, targets, 20, 8):
        with tf.GradientTape() as tape:
            loss = ours.losses(batch)["label"] / ours.counts(batch)["label"]
        variables = ours.model.trainable_variables
        gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
        optimizers[0].apply([tf.convert_to_tensor(each) for each in gradients], variables)
        labels = torch.tensor(np.where(batch["label_weight"] > 0, batch["label"], -100)).long()
        theirs.zero_grad()
        other = theirs(**{name: torch.tensor(batch[own]).long() for name, own in names.items()}, labels=labels).loss
        other.backward()
        optimizers[1].step()
        losses.append((float(loss), float(other.detach())))
    assert max(abs(one - two) for one, two in losses) < 1e-4
    assert np.abs(head.kernel.numpy().T - kernel).max() > 5e-3  # they have been updated


def texts_of():
    """Raw texts, short and of several windows, empty and odd ones, and what is no UTF-8."""
    draw = random.Random(5)
    pieces = [
        *tiny.WORDS,
        "abc",
        "Zoë",
        "don't",
        "U.S.",
        "東京",
        "\u200b",
        "\ufe0f",
        "the\u00a0cat",
        "été,",
        "👩\u200d💻",
    ]
    texts = ["", " \t", "cat", "\u200b"] + [" ".join(draw.choices(pieces, k=k)) for k in (3, 9, 25, 60, 60)]
    raw = [b"the \xff\xfe cat \xe4\xb8", b"\xed\xa0\x80"]
    return texts + raw


TOKENIZERS = {"wordpiece": tiny.tokenizer, "bpe": small_bpe, "unigram": small_unigram}
NAMES = ["O", "B-X", "I-X", "E-X", "S-Y", "I-Y", "B-Y"]


def random_model(**options):
    """A BERT whose vocabulary is large enough for each of the tokenizers, its labels of many kinds of sequences."""
    import keras

    from kerasbert.tasks.model import TaskModel

    keras.utils.set_random_seed(3)
    size = max(make().size for make in TOKENIZERS.values())
    encoder = kb.build("bert/tiny", **{**tiny.SPEC, "blocks.layers": 2, "embeddings.vocabulary": size})
    generator = np.random.default_rng(3)
    model = TaskModel(encoder, dataclasses.replace(labelled(NER, NAMES), length=16, options={"stride": 5, **options}))
    model.build()
    for weight in model.weights:
        if "/crf/" in weight.path:
            weight.assign(generator.normal(0, 1.5, weight.shape))
        elif weight.path.endswith(("kernel", "table")):
            scale = 6.0 if "classifier" in weight.path else 1.5
            weight.assign(generator.normal(0, scale / encoder.spec.hidden**0.5, weight.shape))
    encoder.tokenizer = model.tokenizer = tiny.tokenizer()
    return model


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """(model, runner) of one .tflite; tests give both another tokenizer, which says nothing of the network."""
    from kerasbert import mobile
    from kerasbert.mobile.golden import verify
    from kerasbert.mobile.runtime import load

    model, out = random_model(), tmp_path_factory.mktemp("tags-phone") / "x.tflite"
    texts = [text for text in texts_of() if isinstance(text, str)]
    report = mobile.compress(model, "float32", out, lengths="any", texts=texts, golden=out.with_suffix(".golden"))
    assert report["agreement"] == 1.0
    runner = load(out, cache=False)
    assert verify(runner, out.with_suffix(".golden")) == (report["golden_texts"], "")
    assert (runner.bundle.options, runner.bundle.parts) == ({"stride": 5}, ("words",))
    return model, runner


@pytest.mark.parametrize("name", often(TOKENIZERS, "bpe"))
def test_the_graph_and_the_phone_answer_as_python_does(name, converted, tmp_path):
    """Texts of several windows, entities by every rule of repair, words without a token, what is no UTF-8."""
    model, runner = converted
    model.tokenizer = model.encoder.tokenizer = runner.tokenizer = TOKENIZERS[name]()
    agree_everywhere(model, runner, tmp_path)


TAGGED = {"IOB1": "cat I-X\ndog I-X\nsees O\nthe O\n\nold I-X\nfilm B-X\n", "IOB2": "cat B-X\ndog I-X\nsees O\nthe O\n"}


@pytest.mark.parametrize("scheme", TAGGED)
def test_what_is_legal_is_read_off_the_training_tags(tmp_path, scheme):
    """Of IOB1, the tags of CoNLL-2003's files, a CRF with `legal` answered no entity."""
    path = tmp_path / "train.conll"
    path.write_text(TAGGED[scheme] * 9)
    task = find_labels(NER.optioned({"crf": True, "legal": True}), path)
    assert task.options["scheme"] == scheme
    told = task.how.told(path, read_rows(task, path))
    assert told == ([f"{path}: the tags are in IOB1"] if scheme == "IOB1" else [])
    given = dataclasses.replace(NER, labels=task.labels)
    assert given.how.fitted(given, path, read_rows(task, path).targets).options == {"scheme": scheme}
    again = NER.how.continued(NER, {"labels": task.labels, "options": {"scheme": scheme}})
    assert (again.labels, again.options) == (task.labels, {"scheme": scheme})
    model = random_model(crf=True)
    model = type(model)(model.encoder, task)
    model.build()
    names, table = list(task.labels), np.array(model.task.options["transitions"])
    assert (table[-2, names.index("I-X")] == 0) == (scheme == "IOB1")  # the first label of a sentence
    assert (table[-2, names.index("B-X")] == 0) == (scheme == "IOB2")
    with pytest.raises(InputError, match="no scheme of tags 'IOB3'. Nearest: 'IOB"):
        (wrong := NER.optioned({"scheme": "IOB3"})).how.check_metric(wrong)


@pytest.mark.full
def test_a_crf_decodes_the_same_everywhere(tmp_path):
    """One path through the windows of a text, legal ones alone; the transitions travel with the files."""
    from kerasbert import mobile
    from kerasbert.mobile.runtime import load

    model, out = random_model(crf=True, legal=True), tmp_path / "x.tflite"
    texts = [text for text in texts_of() if isinstance(text, str)]
    words = [text.split() for text in texts if text.split()]
    rows = {"dev": {"words": words, "tags": [[NAMES[len(word) % 7] for word in each] for each in words]}}
    report = mobile.compress(model, "float32", out, lengths="any", data=rows)
    assert (report["agreement"], report["accuracy"]["keras"]) == (1.0, report["accuracy"]["tflite"])
    assert report["accuracy"]["keras"] == kb.evaluate(model, rows)["metrics"]["accuracy"]
    runner = load(out, cache=False)
    assert np.shape(runner.bundle.options["transitions"]) == (9, 7)
    expected = agree_everywhere(model, runner, tmp_path)
    assert sum(mended(answer["labels"]) for answer in expected) == 0
    model.task = model.task.optioned({"legal": False})
    assert sum(mended(answer.labels) for answer in kb.predict(model, texts)) > 0
    model.task = model.task.optioned({"crf": False})
    plain = kb.predict(model, texts)[8]
    same = [one == two for one, two in zip(expected[8]["labels"], plain.labels, strict=True)]
    assert 0.1 < np.mean(same) < 0.9


def agree_everywhere(model, runner, tmp_path):
    """The answers of `texts_of`, of which the phone's and the SavedModel's are the same."""
    import tensorflow as tf

    texts = texts_of()
    expected = [answer.to_json() for answer in kb.predict(model, texts)]
    assert len({label for answer in expected for label in answer["labels"]}) > 3
    assert sum(len(answer["entities"]) for answer in expected) > 20
    same([answer.to_json() for answer in runner(texts)], expected)
    words = [["the", "abc", "dog", "été"], []]
    same([answer.to_json() for answer in runner(words)], [answer.to_json() for answer in kb.predict(model, words)])

    kb.export(model, tmp_path / "saved")
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    raw = [text if isinstance(text, bytes) else text.encode() for text in texts]
    served = {name: value.numpy() for name, value in serve(text=tf.constant(raw)).items()}
    same(find("tags").unserved(served, NAMES), expected)
    assert all(value.shape[0] == 0 for value in serve(text=tf.zeros([0], tf.string)).values())
    return expected


def same(received, expected):
    """Answers are equal, scores to 1e-5."""
    for one, other in zip(received, expected, strict=True):
        assert one["scores"] == pytest.approx(other["scores"], abs=1e-5)
        for entity, wanted in zip(one["entities"], other["entities"], strict=True):
            assert entity == wanted | {"score": pytest.approx(wanted["score"], abs=1e-5)}
        assert one | {"scores": [], "entities": []} == other | {"scores": [], "entities": []}

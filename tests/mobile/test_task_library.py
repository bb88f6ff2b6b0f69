"""Files of `--target task_library`: what is refused, what the metadata says, and what the Task Library's own readers answer."""

import dataclasses
import random

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.mobile import compress, mediapipe, targets
from kerasbert.mobile.runtime import load
from kerasbert.tasks.load import build
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import find_task
from kerasbert.text import WordPiece
from kerasbert.text.wordpiece import SPECIALS
from tests.mobile.conftest import WORDS, make_run
from tests.mobile.task_library import Readers, whole_words
from tests.mobile.test_mediapipe import Reader

START, END = "##able", "film"  # the pieces at which the answers of `span_model` begin and end


def span_model(positions=400, lowercase=True, **options):
    """A random BERT whose answers begin at START and end at END: what the head reads stands in their vectors."""
    import keras

    keras.utils.set_random_seed(3)
    tokenizer = WordPiece([*SPECIALS, *WORDS, "who", "?", ",", ".", "café", "cafe"], lowercase=lowercase)
    sizes = {"hidden": 16, "attention.heads": 2, "feedforward.width": 32, "blocks.layers": 1}
    sizes |= {"embeddings.positions": positions, "embeddings.vocabulary": tokenizer.size}
    encoder = build("bert/tiny", **sizes)
    encoder.tokenizer = tokenizer
    task = dataclasses.replace(find_task("squad").optioned({"max_answer": 32} | options), length=min(positions, 384))
    model = TaskModel(encoder, task)
    model.build()
    generator = np.random.default_rng(3)
    for weight in model.weights:
        if weight.path.endswith("kernel"):
            weight.assign(generator.normal(0, 0.1, weight.shape))
        elif weight.path.endswith("table"):
            values = generator.normal(0, 0.3, weight.shape)
            if weight.shape[0] == tokenizer.size:
                for number, piece in enumerate((START, END)):
                    values[tokenizer.vocabulary.index(piece), number] = 9
            weight.assign(values)
    kernel = next(weight for head in model.heads.values() for weight in head.weights if weight.shape[-1] == 2)
    kernel.assign(np.eye(16, 2) * 8 + generator.normal(0, 0.1, (16, 2)))
    return model


def contexts(count, longest=250):
    """Questions and contexts of which each holds one answer: words with START in one, END in one, commas and blanks between."""
    draw, rows = random.Random(5), []
    words = [word for word in WORDS if word not in ("un", END) and not word.startswith("##")]
    for _ in range(count):
        text = draw.choices(words, k=draw.randint(0, longest))
        answer = ["unable" + draw.choice(("", ",", "s")), *draw.choices(words, k=draw.randint(0, 20))]
        answer += [draw.choice((END, END + "s", END + ".", "(" + END + ")"))]
        place = draw.randint(0, len(text))
        context = draw.choice((" ", "  ")).join([*text[:place], *answer, *text[place:]])
        rows.append((" ".join(draw.choices(words, k=draw.randint(1, 70))) + " ?", context))
    return rows


def named_outputs(blob):
    """Names of the outputs in the metadata and in the signature, in the order of the subgraph's."""
    from kerasbert.mobile.tflite import repack

    model = repack.read(blob)
    entry = next(entry for entry in model.metadata if entry.name == mediapipe.BUFFER_NAME)
    (graph,) = Reader(bytes(model.buffers[entry.buffer].data)).children(3)
    named = {part.tensorIndex: part.name.decode() for part in model.signatureDefs[0].outputs}
    shapes = [list(model.subgraphs[0].tensors[i].shape) for i in model.subgraphs[0].outputs]
    return [part.text(0) for part in graph.children(3)], [named[i] for i in model.subgraphs[0].outputs], shapes


@pytest.fixture(scope="session")
def readers(tmp_path_factory):
    return Readers(tmp_path_factory.mktemp("task-library"))


@pytest.fixture(scope="module")
def spans(tmp_path_factory):
    """(model, path, report) of a file of spans."""
    model, path = span_model(), tmp_path_factory.mktemp("spans") / "x.tflite"
    return model, path, compress(model, "float32", path, target="task_library", texts=contexts(20))


def test_whole_words_by_hand():
    text = "a  very unlikeable film, he said"
    assert whole_words(text, 10, 18) == "unlikeable"
    assert whole_words(text, 10, 23) == "unlikeable film,"
    assert whole_words(text, 0, 1) == "a"
    assert whole_words(text, 1, 4) == "very"
    assert whole_words(text, 28, 32) == "said"
    assert whole_words(text, 0, 32) == "a very unlikeable film, he said"


def test_offsets_of_the_readers_tokenizer():
    reader = mediapipe.Tokenizer([*SPECIALS, "un", "##able", "film", ",", "é"], lowercase=False, strip_accents=False)
    found = reader.tokenize("Unable\tFILM, é" + "x" * 101 + "\0film")
    assert found.ids == [5, 6, 7, 8, 1]
    assert found.starts == [0, 2, 7, 11, 13]
    assert found.ends == [2, 6, 11, 12, 115]
    assert found.ids == reader.encode("Unable\tFILM, é" + "x" * 101)


@pytest.mark.parametrize(
    ("change", "settings", "said"),
    [
        ({"lowercase": False}, {}, "not an uncased WordPiece, which comes nearest to what the Task Library applies"),
        ({"question": 32}, {}, "reads 32 tokens of a question, expected 64: the Task Library reads as many"),
        ({"positions": 64}, {}, "has 64 positions, expected at least 384: the Task Library's BertQuestionAnswerer"),
        ({}, {"length": 128}, "length is 128, expected 384: the Task Library's BertQuestionAnswerer"),
        ({}, {"lengths": [384]}, "target task_library takes one --length, expected no --lengths"),
        ({}, {"target": "mediapipe"}, "answers with span, expected a classification or vectors of one text: MediaPipe"),
        ({}, {"target": "tasklib"}, "tasklib.*task_library"),
    ],
)
def test_what_the_task_library_would_read_wrongly_is_refused(change, settings, said, tmp_path):
    with pytest.raises(InputError, match=said):
        compress(span_model(**change), out=tmp_path / "x.tflite", **{"target": "task_library"} | settings)
    assert not list(tmp_path.iterdir())


def test_tokenizers_and_kinds_that_it_lacks_are_refused(tmp_path):
    from tests.text import kinds

    model = span_model()
    for tokenizer in (kinds.small_bpe(), kinds.small_unigram()):
        model.tokenizer = model.encoder.tokenizer = tokenizer
        with pytest.raises(InputError, match="not an uncased WordPiece"):
            targets.check(model, "task_library")
    pairs = kb.load(make_run(tmp_path / "pairs", text_b="second"))
    with pytest.raises(InputError, match="for pairs of texts, expected .* or spans: the Task Library has no other"):
        targets.check(pairs, "task_library")
    tags = kb.load(make_run(tmp_path / "tags", kind="tags", labels={"O": "O", "B-X": "B-X", "I-X": "I-X"}))
    with pytest.raises(InputError, match="answers with tags, expected .* or spans: the Task Library has no other"):
        targets.check(tags, "task_library")


@pytest.mark.slow
def test_a_span_file_has_the_outputs_that_the_reader_names_and_ours_reads_it_too(spans):
    model, path, report = spans
    assert (report["target"], report["lengths"], report["agreement"]) == ("task_library", [384], 1)
    told, own, shapes = named_outputs(path.read_bytes())
    assert told == own
    assert dict(zip(told, shapes)) == {
        "start_logits": [1, 384],
        "end_logits": [1, 384],
        "logits": [1, 384, 2],
    }
    rows = contexts(20)
    for ours, wanted in zip(load(path, cache=False)(rows), kb.predict(model, rows), strict=True):
        assert (ours.text, ours.start, ours.end) == (wanted.text, wanted.start, wanted.end)
        assert ours.score == pytest.approx(wanted.score, abs=1e-4)


@pytest.mark.slow
def test_longer_and_accented_contexts_are_told(tmp_path):
    texts = [("who ?", "a good film " * 200), ("who ?", "the unable CAFÉ film"), ("who ?", "the unable cafe film")]
    report = compress(
        span_model(), "float32", tmp_path / "x.tflite", target="task_library", texts=texts, min_agreement=0
    )
    assert (report["windows"], report["other_ids"]) == (1, 1)
    from kerasbert.mobile.judging.comparison import losses

    said = " ".join(losses(report))
    assert "1 of these texts (33.3%) get other ids from the Task Library, which lower-cases ASCII alone" in said
    assert "take more than one row of 384 tokens, of which the Task Library reads the first" in said


@pytest.mark.slow
def test_the_question_answerer_gives_our_best_answer_in_whole_words(spans, readers):
    _, path, _ = spans
    rows = contexts(100)
    ours = load(path, cache=False)(rows)
    assert max(len(context.split()) for _, context in rows) > 200
    found = readers("BertQuestionAnswerer", path, rows)
    assert [answers[0][0] for answers in found] == [
        whole_words(context, answer.start, answer.end) for answer, (_, context) in zip(ours, rows)
    ]
    assert len({answer.text for answer in ours}) > 50
    assert sum(answer.text != whole_words(row[1], answer.start, answer.end) for answer, row in zip(ours, rows)) > 50
    outputs = load(path, cache=False).outputs(rows)
    for logits, answers in zip(outputs, found):
        _, start, end, score = answers[0]
        assert score == pytest.approx(logits[start, 0] + logits[end, 1], abs=1e-3)


@pytest.mark.slow
def test_the_question_answerer_reads_the_first_row_and_keeps_accents(spans, readers):
    """Where it must answer otherwise, as the README says."""
    _, path, _ = spans
    late = ("who ?", "very " * 500 + "unable film")
    accents = ("who ?", "the unable CAFÉ film")
    ours = [answer.text for answer in load(path, cache=False)([late, accents])]
    theirs = readers("BertQuestionAnswerer", path, [late, accents])
    assert ours == ["able film", "able CAFÉ film"]
    assert all("unable" not in text for text, *_ in theirs[0])  # or no answer at all
    assert theirs[1][0][0] == "unable CAFÉ film"


@pytest.mark.slow
def test_the_classifier_gives_our_labels_and_scores(run, readers, tmp_path):
    path = tmp_path / "x.tflite"
    compress(run, "float32", path, target="task_library", length=32)
    told, own, _ = named_outputs(path.read_bytes())
    assert (told, own) == (["probability"], ["probabilities"])
    draw = random.Random(2)
    texts = [" ".join(draw.choices(WORDS[:12], k=draw.randint(1, 40))) for _ in range(100)] + ["A GOOD Film!", "x"]
    for answer, scores in zip(load(path, cache=False)(texts), readers("BertNLClassifier", path, texts), strict=True):
        assert max(scores, key=scores.__getitem__) == answer.label
        assert scores == pytest.approx(answer.scores, abs=1e-3)


@pytest.mark.slow
def test_the_embedder_gives_the_keras_vectors(run, readers, tmp_path):
    encoder, path = kb.load(run).encoder, tmp_path / "x.tflite"
    compress(encoder, "float32", path, target="task_library", length=32)
    draw = random.Random(3)
    texts = [" ".join(draw.choices(WORDS[:12], k=draw.randint(1, 40))) for _ in range(60)]
    expected = kb.encode(encoder, texts, pooling="mean", length=32)
    np.testing.assert_allclose(readers("TextEmbedder", path, texts), expected, atol=1e-3)

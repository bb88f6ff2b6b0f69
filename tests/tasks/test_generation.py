"""Texts that are written: rows and targets by hand, losses, files, what is refused."""

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import answers, inputs, registry
from kerasbert.answers.generation import NUMBER, PLACE, WRITTEN, Generation
from kerasbert.checkpoints import read_tensors, save_model
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.mobile.pipeline.compression import compress
from kerasbert.tasks.base import find
from kerasbert.tasks.batches import encode_texts, training_batches
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import find_task, read_rows
from kerasbert.testing import battery
from kerasbert.text import WordPiece
from tests import tiny

TINY = {name: value for name, value in tiny.SPEC.items() if name != "embeddings.positions"}
TINY |= {"embeddings.vocabulary": 80, "attention.head_size": 8}
ROWS = [("the cat runs", "runs cat"), ("sad", "happy dog sees the old house")]


def kind(**options):
    return answers.find("generation").configured(options)


def ids(text):
    return tiny.tokenizer().encode(text)


def test_rows_of_two_stacks_by_hand():
    tokenizer = tiny.tokenizer()
    (row,) = kind(prefix="very ", target_length=8).rows(tokenizer, ROWS[0], 32)
    pad, cls, sep = tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id
    assert row.token_ids == [cls, *ids("very the cat runs"), sep]
    assert row.about.target == [cls, *ids("runs cat"), sep]
    assert row.values[WRITTEN.name] == [pad, cls, *ids("runs cat")]
    (other,) = kind(prefix="very ").rows(tokenizer, ROWS[0][:1], 32)
    assert kind().prompt(row, 0).values == kind().prompt(other, 0).values
    assert WRITTEN.name not in other.values


def test_rows_of_a_decoder_alone_by_hand():
    tokenizer = tiny.tokenizer()
    how = kind(start="", separator=" . ", target_length=4)
    (row,) = how.rows(tokenizer, ROWS[1], 7)
    assert row.token_ids == [*ids("sad . happy dog sees"), tokenizer.sep_id]  # the target keeps its end
    assert row.about.cut
    assert not row.truncated
    assert row.about.prompt == 2
    (asked,) = how.rows(tokenizer, ROWS[1][:1], 7)
    assert asked.token_ids == ids("sad .")
    assert how.prompt(row, 0).token_ids == asked.token_ids
    (long,) = how.rows(tokenizer, ("the cat runs",), 7)
    assert long.truncated
    assert long.token_ids == ids("the cat .")
    with pytest.raises(InputError, match="4 tokens have no room for a source beside 4 of a target: raise --length"):
        how.rows(tokenizer, ("the cat",), 4)
    with pytest.raises(InputError, match=r"the separator '\\n' has no token"):
        kind(start="").rows(tokenizer, ("the cat",), 100)


def test_a_source_that_is_gone_on_from_loses_its_beginning():
    """What is written follows its end, in Python and in a SavedModel; what a target is separated from loses its end."""
    from kerasbert.text.graph import graph_tokenizer

    texts, graph = ["the cat runs", "a dog"], graph_tokenizer(tiny.tokenizer())
    for separator, rows in (("", ["cat runs", "a dog"]), (".", ["the .", "a ."])):
        options = {"start": "", "separator": separator, "target_length": 5}
        found = [kind(**options).rows(tiny.tokenizer(), (text,), 7)[0] for text in texts]
        assert [row.token_ids for row in found] == [ids(row) for row in rows]
        assert [row.truncated for row in found] == [True, separator == "."]
        packed, cut = find("generation").configured(options)._prompts(graph, texts, 7)
        assert packed["token_ids"].numpy().tolist() == [ids(row) for row in rows]
        assert cut.numpy().tolist() == [True, separator == "."]
        said = "2 of 2 texts (100.0%) have more than 7 tokens and are truncated"
        where = "" if separator else " at their beginning"
        assert kind(**options).cut(2, 2, 7) == f"{said}{where} (--length)"


def test_rows_of_an_encoder_alone_by_hand():
    tokenizer = tiny.tokenizer()
    how = kind(start="", masked=True, target_length=3, prefix="very ")
    (row,) = how.rows(tokenizer, ROWS[1], 9)
    cls, sep, mask = tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id
    assert row.token_ids == [cls, *ids("very sad"), sep, *ids("happy dog"), sep]
    assert row.about.target == [*ids("happy dog"), sep]
    assert (row.values[WRITTEN.name], row.values[PLACE.name]) == ([mask] * 3, 4)
    assert row.about.cut
    (asked,) = how.rows(tokenizer, ROWS[1][:1], 9)
    assert asked.token_ids == [cls, *ids("very sad"), sep]
    prompt = how.prompt(row, 5)
    assert prompt.values == {**how.prompt(asked, 5).values}
    assert set(prompt.values) == {*inputs.NAMES, NUMBER.name}
    (long,) = how.rows(tokenizer, ("the cat runs",), 8)
    assert long.truncated
    assert long.token_ids == [cls, *ids("very the cat"), sep]
    with pytest.raises(InputError, match="5 tokens have no room for a source beside 3 of a target: raise --length"):
        how.rows(tokenizer, ("the cat",), 5)
    tokenizer.mask_id = None
    with pytest.raises(InputError, match="the tokenizer has no mask token, at which an encoder writes"):
        how.rows(tokenizer, ("the cat",), 9)


def test_batches_of_an_encoder_by_hand():
    """What is learnt at a [MASK] is the token of its place."""
    task = find_task("generation").optioned({"start": "", "masked": True, "target_length": 8})
    how, tokenizer = task.how, tiny.tokenizer()
    encoded = encode_texts(tokenizer, ROWS, 32, kind=how, declared=(*inputs.TEXT, *how.targets_read))
    (batch,) = [next(training_batches(encoded, [b for _, b in ROWS], batch=3, longest=32, seed=0, task=task))]
    assert batch["label"].shape == batch["label_weight"].shape == batch[WRITTEN.name].shape == (3, 8)
    for i, row in enumerate(sorted(encoded.rows, key=lambda row: row.length)):
        count = len(row.about.target)
        assert batch["label"][i, :count].tolist() == row.about.target
        assert batch["label_weight"][i].tolist() == [1.0] * count + [0.0] * (8 - count)
        begin = batch[PLACE.name][i]
        assert batch["token_ids"][i, begin : begin + count].tolist() == row.about.target
        assert set(batch[WRITTEN.name][i, :count]) == {tokenizer.mask_id}
    assert not batch["label_weight"][2].any()


@pytest.mark.parametrize("options", [{"start": "pad"}, {"start": ""}, {"start": "", "temperature": 0.7}])
def test_batches_by_hand(options):
    """What is learnt at a place is the token that follows it, of the target alone; also where a call draws tokens."""
    task = find_task("generation").optioned({"target_length": 8, "separator": ".", **options})
    how, tokenizer, start = task.how, tiny.tokenizer(), options["start"]
    declared = (*inputs.TEXT[:2], *how.answers.inputs, *how.targets_read)
    encoded = encode_texts(tokenizer, ROWS, 32, kind=how, declared=declared)
    (batch,) = [next(training_batches(encoded, [b for _, b in ROWS], batch=3, longest=32, seed=0, task=task))]
    read = batch["token_ids" if start == "" else WRITTEN.name]
    assert batch["label"].shape == read.shape == batch["label_weight"].shape
    assert len(read) == 3
    asked = [row.values.get(NUMBER.name) for row in how.prompts(encoded.rows)]
    assert asked == [*range(len(encoded.rows))]
    for i, row in enumerate(sorted(encoded.rows, key=lambda row: row.length)):
        places = np.flatnonzero(batch["label_weight"][i])
        assert batch["label"][i, places].tolist() == list(row.about.target)
        assert read[i, places[1:]].tolist() == list(row.about.target)[:-1]
    assert not batch["label_weight"][2].any()
    assert encoded.told("train: ", 32) == []


def test_targets_that_are_cut_are_told():
    encoded = encode_texts(tiny.tokenizer(), ROWS, 32, kind=find("generation").configured({"target_length": 5}))
    (line,) = encoded.told("train: ", 32)
    assert line == "train: 1 of 2 targets (50.0%) have more than 5 tokens and are cut (--set task.target_length=N)"
    assert [row.about.cut for row in encoded.rows] == [False, True]


def test_what_is_written_ends_at_its_end():
    tokenizer = tiny.tokenizer()
    (row,) = kind().rows(tokenizer, ("the cat",), 32)
    output = np.array([-1.5, *ids("happy dog"), tokenizer.sep_id, *ids("sad")], "float32")
    assert kind().decode(("the cat",), [row], [output], ()) == Generation("happy dog", -1.5)
    other = output.copy()
    other[1] += 1
    assert kind().agreement([output, output], [output, other]) == pytest.approx(0.875)
    assert Generation("a", 0.0, True).to_json() == {"text": "a", "score": 0.0, "truncated": True}


def test_languages_of_targets_by_hand():
    """What the decoder reads and learns: mBART starts with the language, mBART-50 is forced to write it first."""
    tokenizer, (source, target) = tiny.tokenizer(), ROWS[0]
    cls, end, happy = tokenizer.cls_id, tokenizer.sep_id, tokenizer._ids["happy"]
    written = ids(target)

    def row(length=64, **options):
        (found,) = kind(target_length=length, **options).rows(tokenizer, (source, target), 32)
        return found.values["decoder_token_ids"], list(found.about.target), found.about.cut

    assert row(start="sep") == ([end, cls, *written], [cls, *written, end], False)
    assert row(start="happy") == ([happy, *written], [*written, end], False)
    assert row(start="happy", length=2) == ([happy, written[0]], [written[0], end], True)
    assert row(start="sep", forced_bos_token_id=happy) == ([end, happy, *written], [happy, *written, end], False)
    bare = WordPiece(tokenizer.vocabulary, template=("$A [SEP]", "$A $B [SEP]"))
    (found,) = kind(start="sep", forced_bos_token_id=happy).rows(bare, (source, target), 32)
    assert list(found.about.target) == [*written, end]
    with pytest.raises(
        InputError, match="start is 'ro_RO', which the tokenizer has not: expected pad, cls, sep or a piece"
    ):
        row(start="ro_RO")


def test_what_cannot_write_is_refused(tmp_path):
    encoder = kb.build("nezha/base", **tiny.SPEC)
    encoder.tokenizer = tiny.tokenizer()
    with pytest.raises(
        InputError, match="nezha is an encoder that writes no text, .* expected one such as bert, roberta"
    ):
        kb.finetune(encoder, "generation", ROWS * 20, out=tmp_path / "run")
    model = kb.build("t5/small", **TINY)
    model.tokenizer = tiny.tokenizer()
    with pytest.raises(InputError, match="row 1: source is empty, expected a text to write from"):
        kb.finetune(model, "generation", [ROWS[0], (" ", "x")] * 20, out=tmp_path / "run")
    other = kb.build("transformer/base", **tiny.SPEC)
    other.tokenizer = tiny.tokenizer()
    with pytest.raises(
        InputError,
        match="transformer is an encoder-decoder .seq2seq.: it writes texts and gives no classification, take",
    ):
        kb.finetune(other, "classification", ROWS * 20, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("t5", {"masked": True}, "masked is True and t5 is of kind 'seq2seq': leave it out"),
        ("bert", {"masked": False}, "masked is False and bert is of kind 'encoder': leave it out"),
        ("bert", {"separator": "."}, "separator is given and bert is an encoder, which has its special tokens between"),
    ],
)
def test_options_of_another_kind_of_model_are_refused(family, options, message):
    task = find_task("generation").optioned(options)
    with pytest.raises(InputError, match=message):
        task.how.of_family(task, registry.family(family))


def test_an_encoder_goes_on_with_the_head_of_pretraining(tmp_path, capsys):
    """Without one it says that a new one starts at random; a second task goes on with the first one's."""
    encoder = kb.build("bert/tiny", **tiny.SPEC | {"embeddings.vocabulary": tiny.tokenizer().size})
    encoder.tokenizer = tiny.tokenizer()
    changes, about = {"task.target_length": 8}, {"steps": 1, "learning_rate": 1e-30, "length": 24}
    rows = {"train": ROWS * 4, "dev": ROWS}
    with battery.eagerly():
        kb.finetune(encoder, "generation", rows, out=tmp_path / "first", changes=changes, **about)
    assert "the model has no head mlm, which pretraining learns: a new one starts at random" in capsys.readouterr().err
    with battery.eagerly():
        kb.finetune(tmp_path / "first", "generation", rows, out=tmp_path / "second", changes=changes, seed=7, **about)
    assert "starts at random" not in capsys.readouterr().err
    first, second = (read_tensors(tmp_path / name) for name in ("first", "second"))
    heads = [name for name in first.names() if name.startswith("heads/mlm/")]
    assert len(heads) == 5
    for name in heads:
        np.testing.assert_allclose(first.read(name), second.read(name), rtol=0, atol=1e-25)  # the updates are smaller


def test_a_number_that_is_added_to_each_logit_is_not_left_out_in_silence(tmp_path):
    """Marian's final_logits_bias; BART's is zero."""
    model = kb.build("t5/small", **TINY)
    about = {
        "encoder": model,
        "tokenizer": tiny.tokenizer(),
        "name": "t5/small",
        "task": None,
        "labels": None,
        "plugin": None,
    }
    for name, value in (("zero", 0.0), ("one", 1.0)):
        save_model(tmp_path / name, heads={"lm": {"bias": np.full(80, value, "float32")}}, **about)
    assert kb.load(tmp_path / "zero", task="translation").task.options["start"] == "pad"
    assert kb.load(tmp_path / "one") is not None
    for learn in (
        lambda: kb.load(tmp_path / "one", task="translation"),
        lambda: kb.finetune(tmp_path / "one", "translation", ROWS * 20, out=tmp_path / "run"),
    ):
        with pytest.raises(InputError, match="holds heads/lm/bias, which is added to the output and is not zero"):
            learn()


def test_several_models_have_no_mean_text():
    model = kb.build("t5/small", **TINY)
    model.tokenizer = tiny.tokenizer()
    task = find_task("generation")
    with pytest.raises(InputError, match="answers with generation, of which there is no mean: give one model"):
        kb.predict([TaskModel(model, task), TaskModel(model, task)], ["the cat"])


def test_mediapipe_has_no_texts_that_are_written(tmp_path):
    model = kb.build("t5/small", **TINY)
    model.tokenizer = tiny.tokenizer()
    task = TaskModel(model, find_task("generation"))
    other = kb.build("transformer/base", **tiny.SPEC)
    other.tokenizer = tiny.tokenizer()
    for refused, message in (
        (task, "the model answers with generation, expected a classification or vectors of one text: MediaPipe has no"),
        (other, "transformer is an encoder-decoder .seq2seq.: it writes texts and gives no vector, take the task"),
    ):
        with pytest.raises(InputError, match=message):
            compress(refused, "none", tmp_path / "x.tflite", target="mediapipe", length=16)


EDGES = {  # option of a call -> what is taken at the edge, what is not
    "max_tokens": ([3, 4, 8], [2, 0, -1, 9]),
    "temperature": ([0.01, 1.0, 9.0], [0.0, -1.0, np.inf, np.nan]),
    "top_k": ([0, 1, 500], [-1]),
    "top_p": ([0.01, 1.0], [0.0, -0.1, 1.01, np.nan]),
}


@pytest.mark.parametrize("options", [{}, {"temperature": 0.7}, {"top_k": 5, "top_p": 0.9}])
def test_what_a_call_may_say_at_the_edges(options):
    """Its own value, and the numbers that the message names."""
    found = find("generation").configured({"target_length": 8, "min_new_tokens": 2, **options}).call_options
    assert {*found} == ({*EDGES} if options else {"max_tokens"})
    own = {name: option.own for name, option in found.items()}
    wanted = {"max_tokens": 8, "temperature": 1.0, "top_k": 0, "top_p": 1.0} | options
    assert own == {name: wanted[name] for name in own}
    for name, option in found.items():
        right, wrong = EDGES[name]
        dtype = np.asarray(option.own).dtype
        assert [bool(option.fits(np.asarray(value, dtype))) for value in [option.own, *right]] == [True] * (
            1 + len(right)
        )
        assert [bool(option.fits(np.asarray(value, dtype))) for value in wrong] == [False] * len(wrong)


def test_options_of_a_call_are_checked(tmp_path, capsys):
    how = kind(beams=4, target_length=7)
    assert (how.decoding.beams, how.decoding.max_new_tokens) == (4, 7)
    with pytest.raises(InputError, match="no option of a generation 'beam'. Nearest: 'beams'"):
        kind(beam=4)
    with pytest.raises(InputError, match="beams is 2 and temperature, top_k or top_p is given"):
        kind(beams=2, top_k=3)
    encoder = kb.build("bert/tiny", **tiny.SPEC)
    encoder.tokenizer = tiny.tokenizer()
    kb.save(encoder, tmp_path / "bert")
    tiny.labelled(tmp_path / "rows.tsv")
    finetune = ["finetune", tmp_path / "bert", "--out", tmp_path / "run", "--task"]
    (tmp_path / "pairs.tsv").write_text("source\ttarget\n" + "".join(f"cat {i}\tchat {i}\n" for i in range(20)))
    for task, wrong, message in (
        ("classification", ["--prefix", "x: "], "no option of a classification 'prefix'"),
        (
            "translation",
            ["--set", "task.separator=x"],
            "separator is given and bert is an encoder, which has its special",
        ),
        ("translation", ["--set", "task.beams=0"], "beams must be a whole number of at least 1. Received: 0"),
    ):
        rows = tmp_path / ("pairs.tsv" if task == "translation" else "rows.tsv")
        assert main([*map(str, finetune), task, "--data", str(rows), *wrong]) == 2
        assert message in capsys.readouterr().err
    model = TaskModel(encoder, find_task("classification").optioned({}))
    with pytest.raises(InputError, match="no option of a classification 'prefix'"):
        kb.predict(model, ["the cat"], options={"prefix": "x: "})
    model = kb.build("t5/small", **TINY)
    for options, message in (({"beams": 81}, "beams is 81, expected at most the vocabulary's 80 tokens"),):
        with pytest.raises(InputError, match=message):
            TaskModel(model, find_task("generation").optioned(options))
    gpt2 = kb.build("gpt2/small", **{**tiny.SPEC, "embeddings.vocabulary": 80})
    with pytest.raises(InputError, match="target_length is 64, expected at most the model's 32 positions"):
        TaskModel(gpt2, find_task("generation"))


def test_glue_becomes_text(tmp_path):
    """Raffel et al., 2020, appendix D."""
    rows = {
        "sst2": ("sentence\tlabel\na film\t1\n", ("a film", "positive"), "sst2 sentence: "),
        "rte": ("sentence1\tsentence2\tlabel\na\tb\tentailment\n", ("sentence1: a sentence2: b", "entailment"), "rte "),
        "stsb": ("sentence1\tsentence2\tscore\na\tb\t3.27\n", ("sentence1: a sentence2: b", "3.2"), "stsb "),
        "mnli": ("sentence1\tsentence2\tgold_label\na\tb\tneutral\n", ("hypothesis: b premise: a", "neutral"), "mnli "),
    }
    for name, (content, wanted, prefix) in rows.items():
        path = tmp_path / f"{name}.tsv"
        path.write_text(content)
        task = find_task(f"text_to_text/{name}")
        assert (read_rows(task, path).texts, task.options["prefix"]) == ([wanted], prefix)
        assert read_rows(task, path, targets=False).texts
    path.write_text(rows["mnli"][0].replace("neutral", "maybe"))
    with pytest.raises(InputError, match=r"mnli.tsv, line 2: label 'maybe', expected one of entailment, neutral"):
        read_rows(task, path)

"""K-BERT: who sees whom in one layer, an empty graph, every BERT's weights, the whole way to a phone."""

import json
import re

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints import load_encoder, save_model
from kerasbert.errors import InputError
from kerasbert.testing import world
from kerasbert.testing.battery import Subject, eagerly
from kerasbert.text.knowledge import KnowledgeGraph
from kerasbert.text.tree import with_knowledge
from tests.support import close, once

STILL = {"dropout": 0.0, "attention.dropout": 0.0}
TEXT, PLAIN = "the happy cat sees a film", "a dog runs"


def bert(folder, **changes):
    return Subject("bert", folder, **STILL, **changes)


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    return Subject("kbert", tmp_path_factory.mktemp("kbert"), **STILL, **{"blocks.layers": 1})


def test_it_is_berts_spec_and_weights(subject):
    kbert, plain = registry.family("kbert"), registry.family("bert")
    assert (kbert.spec, kbert.sizes, kbert.names) == (plain.spec, plain.sizes, plain.names)
    assert [each.name for each in kbert.inputs[3:]] == ["position_ids", "branch_ids", "entity_ids"]
    assert registry.with_tree(plain) is kbert
    with pytest.raises(
        InputError, match=r"^roberta reads no knowledge graph, expected kbert or a family of BERT's encoder"
    ):
        registry.with_tree(registry.family("roberta"))


def test_a_branch_changes_its_entity_and_itself_alone_in_one_layer(subject):
    """Two branches of one entity, one of another: each token is changed, and who changes is read off the matrix by hand."""
    encoder, tokenizer = subject.encoder(), subject.tokenizer
    inputs = tokenizer([TEXT])
    words = [tokenizer.vocabulary[i] for i in inputs["token_ids"][0]]
    shown = "[CLS] the happy cat sees good river runs house sees a film sees new [SEP]"
    assert " ".join(words) == shown
    assert inputs["branch_ids"][0].tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2, 0, 0, 0, 3, 3, 0]
    trunk = {0, 1, 2, 3, 9, 10, 11, 14}
    changes = {
        (4, 5, 6): {2, 3, 4, 5, 6},
        (7, 8): {2, 3, 7, 8},
        (12, 13): {11, 12, 13},
        (2, 3): trunk | {4, 5, 6, 7, 8},
        (0, 1, 9, 10, 14): trunk,
        (11,): trunk | {12, 13},
    }
    before = np.asarray(encoder(inputs)["sequence"])[0]
    for place, expected in ((place, seen) for places, seen in changes.items() for place in places):
        ids = inputs["token_ids"].copy()
        ids[0, place] = tokenizer.vocabulary.index("stone")
        after = np.asarray(encoder(inputs | {"token_ids": ids})["sequence"])[0]
        assert set(np.flatnonzero((after != before).any(-1)).tolist()) == expected, words[place]


def test_an_empty_graph_and_a_text_without_entities_equal_bert_to_the_bit(subject):
    encoder = subject.encoder()
    plain = registry.family("bert").encoder(subject.spec)
    plain.build()
    for ours, theirs in zip(plain.weights, encoder.weights, strict=True):
        ours.assign(theirs)
    texts = [TEXT, PLAIN, "", ("the happy cat", "a film")]
    empty = with_knowledge(subject.tokenizer, KnowledgeGraph())
    trees, rows = empty(texts, length=16), with_knowledge(empty, None)(texts, length=16)
    assert rows.keys() == {"token_ids", "padding_mask", "segment_ids"}
    for name, value in rows.items():
        np.testing.assert_array_equal(trees[name], value)
    assert not np.stack([trees["branch_ids"], trees["entity_ids"]]).any()
    real = rows["padding_mask"] == 1
    np.testing.assert_array_equal(
        np.asarray(encoder(trees)["sequence"])[real], np.asarray(plain(rows)["sequence"])[real]
    )
    found, expected = encoder(subject.tokenizer([PLAIN])), plain(with_knowledge(subject.tokenizer, None)([PLAIN]))
    np.testing.assert_array_equal(found["pooled"], expected["pooled"])


def test_vectors_need_a_graph(subject):
    encoder = subject.encoder()
    vectors = kb.encode(encoder, [TEXT, PLAIN])
    assert vectors.shape == (2, 16)
    encoder.tokenizer = with_knowledge(encoder.tokenizer, None)
    with pytest.raises(
        InputError, match=r"sentence trees and got a tokenizer without one: it needs a knowledge graph, which"
    ):
        kb.encode(encoder, [TEXT])


def test_a_kind_that_makes_no_trees_is_refused(subject):
    from kerasbert.tasks.base import find

    for name in ("span", "tokens"):
        with pytest.raises(
            InputError, match=f"^kbert reads sentence trees, which a {name} does not make of its texts: take"
        ):
            find(name).reads(subject.family)


def spo(path, lines=None):
    graph = world.knowledge()
    said = [triple for number in range(len(graph.subjects)) for triple in graph.triples(number)]
    path.write_text("".join("\t".join(line) + "\n" for line in (said if lines is None else lines)), encoding="utf-8")
    return path


def trained(folder):
    """A BERT that was fine-tuned with a graph."""
    source = bert(folder)
    run = folder / "bert"
    save_model(run, encoder=source.encoder(), name="bert/tiny", tokenizer=source.tokenizer)
    files = {"train": world.labelled(folder / "train.tsv", 40), "dev": world.labelled(folder / "dev.tsv", 20, seed=1)}
    with eagerly():
        kb.finetune(
            run,
            "classification",
            files,
            out=folder / "run",
            graph=spo(folder / "world.spo"),
            steps=2,
            batch=20,
            length=16,
            quiet=True,
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return once(tmp_path_factory, "kbert", trained)[0]


@eagerly()
def test_a_bert_becomes_kbert_and_keeps_its_graph(folder, capsys):
    from kerasbert.cli import main

    encoder, info = load_encoder(folder / "run")
    assert (info.family, info.name) == ("kbert", "kbert/tiny")
    assert encoder.tokenizer.knowledge.graph.digest == world.knowledge().digest
    answered = kb.predict(folder / "run", [TEXT])[0]
    assert main(["predict", str(folder / "run"), TEXT, PLAIN, "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    inserted = [["happy cat", "sees", "good river"], ["happy cat", "runs", "house"], ["film", "sees", "new"]]
    assert (first["triples"], second["triples"]) == (inserted, [])
    assert [list(triple) for triple in answered.triples] == inserted
    assert first["score"] == pytest.approx(answered.score, abs=1e-6)
    assert main(["predict", str(folder / "run"), TEXT, "--json", "--length", "11"]) == 0
    assert json.loads(capsys.readouterr().out)["triples"] == inserted[:2]  # what was inserted, not what was found
    assert main(["evaluate", str(folder / "run"), "--data", str(folder / "dev.tsv"), "--json"]) == 0


def finetuned(folder, tmp_path, *options):
    from kerasbert.cli import main

    command = ["finetune", str(folder / "bert"), "--task", "classification", "--data", str(folder / "train.tsv")]
    return main([*command, "--steps", "1", "--out", str(tmp_path / "out"), "--quiet", *map(str, options)])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("happy cat\tis\tgood\nsad dog\tis\n", r"g.spo, line 2 has 2 columns, expected 3: subject, predicate, object with tabs"),
        ("happy cat is good\n", r"g.spo, line 1 has 1 column, expected 3"),
        ("happy cat\t\tgood\n", r"g.spo, line 1 has an empty predicate"),
        ("happy cat\tis\tgood\n" + " ".join(["dog"] * 40) + "\tis\tnew\n", "g.spo: the entity 'dog dog .* has 40 tokens, a text"),
        (b"happy cat\tis\tgood\nsad dog\tis\t\xff\xfe\n", r"g.spo, line 2 is not UTF-8 \(byte 29 of the file\): save"),
        (None, r"no file .*g.spo. Check the path"),
    ],
)  # fmt: skip
def test_a_bad_graph_is_one_line(folder, tmp_path, capsys, content, said):
    path = tmp_path / "g.spo"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert finetuned(folder, tmp_path, "--graph", path, "--length", "24") == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1
    assert re.match(rf"error: .*{said}", errors[0]), errors
    assert not (tmp_path / "out").exists()


def test_a_kbert_without_a_graph_is_a_bert_and_a_graph_without_its_model_is_one_line(folder, tmp_path, capsys):
    from kerasbert.cli import main

    source = Subject("kbert", tmp_path, **STILL)
    save_model(
        tmp_path / "kbert",
        encoder=source.encoder(),
        name="kbert/tiny",
        tokenizer=with_knowledge(source.tokenizer, None),
    )
    command = ["finetune", str(tmp_path / "kbert"), "--task", "classification", "--data", str(folder / "train.tsv")]
    with eagerly():
        assert main([*command, "--steps", "1", "--batch", "8", "--length", "16", "--out", str(tmp_path / "out")]) == 0
    told = capsys.readouterr().err
    assert "graph: without a triple a K-BERT is a BERT (--graph FILE gives it triples)" in told
    assert re.search(r"train: triples inserted: 0; texts without any: \d+ of \d+", told)
    assert kb.predict(tmp_path / "out", [TEXT])[0].triples == ()
    assert main(["pretrain", "kbert/tiny", "--graph", "g.spo", "--data", "x", "--steps", "1", "--out", "y"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: records hold no texts, in which a graph is found: pretrain without --graph"
    )


def test_an_empty_graph_trains_as_bert_does(folder, tmp_path):
    (tmp_path / "empty.spo").write_text("")
    settings = {"steps": 2, "batch": 8, "length": 16, "quiet": True}
    files = (folder / "train.tsv", folder / "dev.tsv")
    with eagerly():
        plain = kb.finetune(folder / "bert", "classification", files, out=tmp_path / "plain", **settings)
        settings["graph"] = tmp_path / "empty.spo"
        tree = kb.finetune(folder / "bert", "classification", files, out=tmp_path / "tree", **settings)
    assert (plain.encoder.model_name, tree.encoder.model_name) == ("bert/tiny", "kbert/tiny")
    for ours, theirs in zip(tree.weights, plain.weights, strict=True):
        close(ours.value.numpy(), theirs.value.numpy(), share=1e-6)  # each pads to lengths of its own

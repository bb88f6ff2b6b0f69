"""Models that write, converted: the phone says what Python says."""

import dataclasses
import hashlib
import json
import re

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.export import bundle as bundles
from kerasbert.mobile import compress
from kerasbert.mobile.cli import main
from kerasbert.mobile.generation import agreement, compression, programs
from kerasbert.mobile.golden import verify
from kerasbert.mobile.pipeline import ledger
from kerasbert.mobile.pipeline.benchmark import benchmark
from kerasbert.mobile.runtime import interpreters, load
from kerasbert.mobile.tflite import repack
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import find_task
from kerasbert.testing import battery
from tests import tiny
from tests.support import often

TEXTS = [*tiny.sentences(47, 3), "the cat " * 40, "a", "?"]
FAMILIES = {
    # buckets of sources or prompts, buckets of steps: of three or more the middle ones are derived
    "t5": ({"length": 72}, [16, 32, 64, 72], [16, 20]),
    "umt5": ({"length": 72}, [16, 32, 64, 72], [16, 20]),
    "bart": ({"length": 24}, [16, 24], [16, 20]),
    "gpt2": ({"length": 40}, [16, 20], [16, 32, 40]),
    "transformer": ({"length": 24}, [16, 24], [16, 20]),
    "gpt": ({"length": 40}, [16, 20], [16, 32, 40]),
    "unilm": ({"length": 40}, [16, 20], [16, 32, 40]),
    "bert2bert": ({"length": 24}, [16, 24], [16, 20]),
}


def writer(family, folder, **options):
    """A tiny model of random weights that writes."""
    subject = battery.Subject(family, folder, hidden=32)
    changes = {"blocks.layers": 1, "embeddings.positions": 48}
    subject.spec = subject.spec.derive(changes)
    separated = {} if subject.family.kind == "encoder" else {"separator": " :"}
    encoder, task = (
        subject.encoder(),
        find_task("generation").optioned({"target_length": 20, **separated, **options}),
    )
    model = TaskModel(encoder, task.how.of_family(task, subject.family))
    model.build()
    return model


WRITINGS = {"t5": [{}, {"beams": 3}], "bart": [{"beams": 4, "repetition_penalty": 1.3, "min_new_tokens": 4}]}
WRITINGS |= {"transformer": [{}], "gpt": [{}], "umt5": [{}]}
WRITINGS["bert2bert"] = [{}, {"beams": 3}]
WRITINGS["unilm"] = [{"beams": 3, "repetition_penalty": 1.3}]
WRITINGS["gpt2"] = [{"temperature": 0.7, "top_k": 9, "seed": 2}]


@pytest.mark.parametrize("family", often((*FAMILIES,), "t5", "gpt2"))
def test_the_phone_writes_what_python_writes(family, tmp_path, monkeypatch, capfd):
    model, (settings, lengths, places) = writer(family, tmp_path), FAMILIES[family]
    converted, seen = programs.converted, {}

    def once(*arguments):
        """One conversion for all forms."""
        if not seen:
            seen["float"] = converted(*arguments)
        return seen["float"]

    monkeypatch.setattr(programs, "converted", once)
    out = tmp_path / "float.tflite"
    report = compress(model, "float32", out, texts=TEXTS[:8], golden=tmp_path / "x.golden", **settings)
    assert verify(load(out, cache=False), tmp_path / "x.golden") == (report["golden_texts"], "")
    assert (report["lengths"], report["places"], report["agreement"]) == (lengths, places, 1)
    assert len(repack.read(seen["float"]).subgraphs) == len(lengths) + len(places)
    capfd.readouterr()
    with load(out, cache=False) as closed:
        closed.generate(TEXTS[0])
    assert capfd.readouterr().err == ""  # litert wrote what it destroys, for the writer held the model
    with pytest.raises(InputError, match="is closed: load it again"):
        closed.stream(TEXTS[0])
    greedy = load(out, cache=False)
    _scored(model, greedy)
    for options in WRITINGS[family]:
        _streamed(greedy, options)
        model.task = model.task.optioned(options)
        _rewritten(out, out, options=dict(model.task.options))
        wanted, found = kb.predict(model, TEXTS, length=settings["length"]), load(out, cache=False)(TEXTS)
        np.testing.assert_allclose(
            [each.score for each in found], [each.score for each in wanted], rtol=1e-4, atol=1e-4
        )
        # of two beams that are no farther apart than float32 rounds, either may come first
        assert sum(one.text != other.text for one, other in zip(found, wanted)) <= (options.get("beams", 1) > 1)
        assert [each.truncated for each in found] == [each.truncated for each in wanted]
        assert greedy(TEXTS[:6], options=options) == found[:6]
        assert len({each.text for each in found}) > (10 if family in ("t5", "bart", "gpt2") else 1)

    # int8 and half precision, along what the float file writes
    runner, small = load(out, cache=False), tmp_path / "int8.tflite"
    for form, least in (("fp16", 0.99), ("dynamic_int8", 0.9)):
        _rewritten(out, small, compression.made(model, (), form))
        other, same = load(small, cache=False), []
        for text in TEXTS[:20]:
            (row,) = runner.kind.rows(runner.tokenizer, (text,), runner.bundle.longest)
            ids = runner._row(row)[1:].astype(int).tolist()
            same += list(runner.follow(row, ids).argmax(-1) == other.follow(row, ids).argmax(-1))
        assert np.mean(same) >= least
    assert small.stat().st_size < out.stat().st_size

    # a plain Interpreter, through numpy
    monkeypatch.setattr(interpreters, "_compiled", lambda *a: None)
    plain = load(small, cache=False)
    assert plain.model.name.endswith("Interpreter")
    monkeypatch.undo()
    assert plain(TEXTS[:4]) == load(small, cache=False)(TEXTS[:4])
    _damaged(out)


def _streamed(runner, options):
    """A text in pieces is the whole, with the options of a call."""
    for text in TEXTS[:6]:
        whole = runner.generate(text, **options)
        if options.get("beams", 1) > 1:
            with pytest.raises(InputError, match="a text is known at its end alone"):
                runner.stream(text, **options)
            continue
        stream = runner.stream(text, **options)
        pieces = list(stream)
        assert ("".join(pieces), stream.answer) == (whole.text, whole)
        assert len(pieces) > 3
        assert whole.text.startswith(runner.generate(text, **options, max_tokens=4).text.removesuffix("\ufffd"))


def _scored(model, runner):
    """Log-probabilities of a text's tokens are those of the Keras model, of a decoder alone."""
    if not runner.bundle.of("prefill") or runner.kind.masked:
        with pytest.raises(InputError, match="scores no texts, expected a file of a decoder alone"):
            runner.score("the cat")
        return
    for text in ("the cat sees the old house", "the cat " * 40):
        found, ids = runner.score(text), runner.tokenizer.encode(text)[: runner.bundle.longest]
        batch = {"token_ids": np.array([ids], "int32"), "padding_mask": np.ones((1, len(ids)), "int32")}
        logits = np.array(model.network.logits(model.network(batch)["sequence"]))[0].astype("float64")
        expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        expected = [row[token] for row, token in zip(expected, ids[1:])]
        np.testing.assert_allclose(found.log_probabilities, expected, rtol=0, atol=1e-4)
        assert found.truncated == (len(text) > 99)
    with pytest.raises(InputError, match="a text has 0 tokens, expected at least two"):
        runner.score("")
    with pytest.raises(InputError, match="text is a list, expected one text"):
        runner.score(["the cat"])


@pytest.mark.slow
def test_an_encoder_alone_writes_what_python_writes(tmp_path):
    """Through two buckets, by a CompiledModel, which leaves outputs that are inputs as it finds them."""
    model, out = writer("unilm", tmp_path, target_length=10), tmp_path / "x.tflite"
    report = compress(model, "float32", out, texts=TEXTS[:4], length=20)
    assert (report["lengths"], report["places"], report["agreement"]) == ([10], [16, 20], 1)
    wanted, found = kb.predict(model, TEXTS[:20], length=20), load(out, cache=False)(TEXTS[:20])
    assert [each.text for each in found] == [each.text for each in wanted]
    np.testing.assert_allclose([each.score for each in found], [each.score for each in wanted], rtol=0, atol=1e-4)


@pytest.mark.full
def test_the_command_line_on_a_file_that_writes(tmp_path, capsys):
    model, out = writer("gpt2", tmp_path), str(tmp_path / "x.tflite")
    kb.save(model, tmp_path / "run")
    (tmp_path / "rows.tsv").write_text("source\ttarget\n" + "".join(f"{text}\tthe dog\n" for text in TEXTS[:6]))
    options = ["--length", "36", "--lengths", "8", "--min-agreement", "0.8"]
    assert main(["compress", str(tmp_path / "run"), "--out", out, "--data", str(tmp_path / "rows.tsv"), *options]) == 0
    assert re.search(r"judged on 6 rows of rows.tsv .*\nagainst the Keras model: agreement ", capsys.readouterr().out)
    assert main(["run", out, TEXTS[0], "--json", "--no-cache"]) == 0
    assert json.loads(capsys.readouterr().out) == load(out, cache=False)(TEXTS[:1])[0].to_json()
    assert main(["inspect", out, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["signatures"] == ["prefill_8", "prefill_16", "decode_step_16", "decode_step_32", "decode_step_36"]
    assert benchmark(out, TEXTS[:2], rounds=1, cache=False)["p50_ms"] > 0
    assert main(["compress", str(tmp_path / "run"), "--out", f"{out}2", "--target", "mediapipe", "--length", "24"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    task, rows = ledger.labelled(tmp_path / "run", str(tmp_path / "rows.tsv"))
    assert ledger.measure(out, task, rows)["exact_match"] == 0


def _rewritten(file, out, flatbuffer=None, **changes):
    """A file with another bundle or flatbuffer."""
    bundle = bundles.read(file)
    data = flatbuffer or file.read_bytes()[: -len(bundle.to_zip())]
    out.write_bytes(data + dataclasses.replace(bundle, digest=hashlib.sha256(data).hexdigest(), **changes).to_zip())


def _damaged(file):
    """A bundle that says something else than the signatures is refused before anything runs."""
    bundle = bundles.read(file)
    first, *others, last = bundle.signatures
    renamed = {ours: "other" if ours == "key_0" else theirs for ours, theirs in last.outputs.items()}
    for signatures, text in (
        (
            (first, *others, dataclasses.replace(last, lengths={"T": 99})),
            "'key_0' is .*, expected float32 of 99 places",
        ),
        ((first, *others, dataclasses.replace(last, outputs=renamed)), "damaged .*different outputs"),
        ((dataclasses.replace(first, name="absent"), *others, last), "in the signature 'absent' 'signature' is absent"),
        ((dataclasses.replace(first, name=others[0].name), *others, last), "'(padding_mask|token_ids)' is "),
    ):
        other = file.with_name("other.tflite")
        _rewritten(file, other, signatures=signatures)
        with pytest.raises(InputError, match=text):
            load(other, cache=False)(["the cat"])


def test_what_such_files_do_not_have_is_refused(tmp_path):
    model = writer("t5", tmp_path)
    out = tmp_path / "x.tflite"
    for settings, text in (
        (
            {"target": "mediapipe", "length": 24},
            "generation, expected a classification or vectors of one text: MediaPipe",
        ),
        ({"quantize": "static_int8"}, "quantize is 'static_int8' and the model writes texts, expected float32"),
        ({"max_drop": 1.0}, "max_drop is given and the model writes texts"),
        ({"lengths": "any"}, "lengths is 'any' and the model writes texts"),
    ):
        with pytest.raises(InputError, match=text):
            compress(model, out=out, **settings)
    model.task = model.task.optioned({"beams": 2, "coverage_penalty": 0.2})
    with pytest.raises(InputError, match="coverage_penalty is 0.2, expected 0"):
        compress(model, out=out)
    with pytest.raises(InputError, match="length is 22, of which what is written takes 20: expected at least 3 more"):
        compress(writer("gpt2", tmp_path), out=out, length=22)
    assert not out.exists()


def test_a_file_that_disagrees_is_not_written():
    found = {"max_difference": 0.2, "mean_difference": 0.1, "agreement": 0.9, "fidelity": 0.99, "offset": 0.0}
    found |= {"texts": 5, "texts_from": "x.txt", "kind": "generation"}
    with pytest.raises(
        InputError, match="float32 file differs from the Keras model by 0.2 of a probability on 5 texts"
    ):
        agreement.check(found | {"quantize": "float32"}, None)
    with pytest.raises(InputError, match=r"agreement 0.9000, expected at least 0.985.*judged on 5 texts \(x.txt\)"):
        agreement.check(found | {"quantize": "dynamic_int8"}, None)
    agreement.check(found | {"quantize": "dynamic_int8"}, 0.9)
    with pytest.raises(InputError, match=r"fidelity 0.5000, expected at least 0.9"):
        agreement.check(found | {"quantize": "dynamic_int8", "fidelity": 0.5}, 0.9)

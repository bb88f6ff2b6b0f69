"""Models that write, converted: the phone says what Python says."""

import dataclasses
import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.export import bundle as bundles
from kerasbert.mobile import compress
from kerasbert.mobile.cli import main
from kerasbert.mobile.generation import agreement, programs
from kerasbert.mobile.pipeline.benchmark import benchmark
from kerasbert.mobile.runtime import interpreters, load
from kerasbert.mobile.tflite import repack
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import find_task
from kerasbert.testing import battery
from tests import tiny

TEXTS = [*tiny.sentences(47, 3), "the cat " * 40, "a", "?"]
FAMILIES = {
    # buckets of sources or prompts, buckets of steps: of three or more the middle ones are derived
    "t5": ({"length": 40}, [16, 32, 40], [16, 20]),
    "bart": ({"length": 24}, [16, 24], [16, 20]),
    "gpt2": ({"length": 40}, [16, 20], [16, 32, 40]),
}


def writer(family, folder, **options):
    """A tiny model of random weights that writes."""
    subject = battery.Subject(family, folder, hidden=32)
    changes = {"blocks.layers": 1, "embeddings.positions": 48}
    subject.spec = subject.spec.derive(changes)
    encoder, task = (
        subject.encoder(),
        find_task("generation").optioned({"target_length": 20, "separator": " :", **options}),
    )
    model = TaskModel(encoder, task.how.of_family(task, subject.family))
    model.build()
    return model


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_phone_writes_what_python_writes(family, tmp_path, monkeypatch, capsys):
    model, (settings, lengths, places) = writer(family, tmp_path), FAMILIES[family]
    converted, seen = programs.converted, {}
    # one conversion for all forms
    monkeypatch.setattr(programs, "converted", lambda *a: seen.setdefault("float", converted(*a)))
    out = tmp_path / "float.tflite"
    report = compress(model, "float32", out, texts=TEXTS[:8], **settings)
    assert (report["lengths"], report["places"], report["agreement"]) == (lengths, places, 1)
    assert len(repack.read(seen["float"]).subgraphs) == len(lengths) + len(places)
    for options in ({}, {"beams": 3, "repetition_penalty": 1.3}, {"temperature": 0.7, "top_k": 9, "seed": 2}):
        model.task = model.task.optioned(options)
        compress(model, "float32", out, texts=TEXTS[:2], overwrite=True, **settings)
        wanted, runner = kb.predict(model, TEXTS, length=settings["length"]), load(out, cache=False)
        found = runner(TEXTS)
        assert [each.text for each in found] == [each.text for each in wanted]
        np.testing.assert_allclose(
            [each.score for each in found], [each.score for each in wanted], rtol=1e-4, atol=1e-4
        )
        assert [each.truncated for each in found] == [each.truncated for each in wanted]
        assert len({each.text for each in found}) > 20
    model.task = model.task.optioned({"temperature": None, "top_k": None, "repetition_penalty": 1.0, "beams": 1})
    for form, least in (("fp16", 1), ("dynamic_int8", 0.9)):
        file = tmp_path / f"{form}.tflite"
        report = compress(model, form, file, texts=TEXTS[:8], min_agreement=least, **settings)
        assert report["agreement"] >= least
    sizes = {path.stem: path.stat().st_size for path in tmp_path.glob("*.tflite")}
    assert sizes["dynamic_int8"] < sizes["fp16"] < sizes["float"]

    # a plain Interpreter, through numpy
    monkeypatch.setattr(interpreters, "_compiled", lambda *a: None)
    plain = load(tmp_path / "dynamic_int8.tflite", cache=False)
    assert plain.model.name.endswith("Interpreter")
    monkeypatch.undo()
    runner = load(tmp_path / "dynamic_int8.tflite", cache=False)
    assert plain(TEXTS[:4]) == runner(TEXTS[:4])
    assert main(["run", str(tmp_path / "dynamic_int8.tflite"), TEXTS[0], "--json", "--no-cache"]) == 0
    assert json.loads(capsys.readouterr().out) == runner(TEXTS[:1])[0].to_json()
    assert main(["inspect", str(tmp_path / "dynamic_int8.tflite")]) == 0
    assert f"decode_step_{places[-1]}" in capsys.readouterr().out
    assert benchmark(tmp_path / "dynamic_int8.tflite", TEXTS[:2], rounds=1, cache=False)["p50_ms"] > 0
    _damaged(out)


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
        data = file.read_bytes()[: -len(bundle.to_zip())]
        other.write_bytes(data + dataclasses.replace(bundle, signatures=signatures).to_zip())
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
    with pytest.raises(InputError, match="length is 22, of which what is written takes 20: expected at least 4 more"):
        compress(writer("gpt2", tmp_path), out=out, length=22)
    assert not out.exists()


def test_a_file_that_disagrees_is_not_written():
    found = {"max_difference": 0.2, "agreement": 0.9}
    with pytest.raises(
        InputError, match="float32 file differs from the Keras model by 0.2 of a probability on 5 texts"
    ):
        agreement.check("float32", found, 5, None)
    with pytest.raises(InputError, match=r"next tokens agree .* on 0.9000 .* at least 0.985"):
        agreement.check("dynamic_int8", found, 5, None)
    agreement.check("dynamic_int8", found, 5, 0.9)

"""A task over a kind goes all the way: fine-tuning, a SavedModel, a .tflite, each answering what `kb.predict` answers."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

import kerasbert as kb
from kerasbert import registry
from kerasbert.export import graphs, saved_model, signatures
from kerasbert.testing.battery import Subject
from kerasbert.testing.case import LENGTH, Case
from kerasbert.testing.halves import Halves
from kerasbert.testing.kind_answers import check_same
from . import compress
from .runtime import load

if TYPE_CHECKING:
    from kerasbert.tasks.tables import Data


STEPS = 4


def check_kind_journey(
    task: str, folder: Path, data: "Data | None" = None, *, family: str = "bert", **fields: Any
) -> None:
    """What `kerasbert.testing.check_kind` computed without graphs, by the commands themselves; half a minute.

    Args:
        task, data, family, fields: as of `check_kind`.
        folder: Path, where a run, a SavedModel and a file are written.

    Raises:
        AssertionError: what is wrong; it names the method.
    """
    declared = dataclasses.replace(registry.task(task), **fields)
    halves = Halves(declared)
    case = Case(halves, declared, data, Subject(family, folder))
    if case.learns:
        rows = {"train": case.source, "dev": case.source}
        with case.blamed("fine-tuning"):
            settings = {"steps": STEPS, "batch": 4, "length": LENGTH, "quiet": True}
            kb.finetune(case.model.encoder, declared, rows, out=folder / "kind-run", **settings)
            case.model = kb.load(folder / "kind-run")
        with case.blamed("evaluating"):
            found = kb.evaluate(folder / "kind-run", case.source)["metrics"]
        assert np.isfinite(found[case.model.task.metric]), f"{case.training}.metrics gives {found}"
    with case.blamed("exporting a SavedModel"):
        kb.export(case.model, folder / "kind-serving")
    _check_saved_model(case, folder / "kind-serving")
    _check_file(case, folder / "kind.tflite")


def _check_saved_model(case: Case, folder: Path) -> None:
    serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
    strings = signatures.given(case.kind, graphs.text_names(case.model), case.texts)
    strings |= {name: tf.fill([len(case.texts)], value) for name, value in case.model.task.settings.items()}
    served = {name: value.numpy() for name, value in serve(**strings).items()}
    answered = case.kind.unserved(served, list(case.model.labels or ()))
    check_same(case, case.texts, served, answered, "the SavedModel")


def _check_file(case: Case, out: Path) -> None:
    """A float file's answers, by the phone's runtime."""
    lengths = {"lengths": [LENGTH // 2, LENGTH]} if case.kind.answers.reader == "answer" else {}
    with case.blamed("compressing"):
        compress(case.model, "float32", out, texts=case.texts, **lengths)
    with case.blamed("answering by the phone's runtime"):
        received = [answer.to_json() for answer in load(out, cache=False)(case.texts)]
    found = saved_model.difference([answer.to_json() for answer in case.said], received)
    assert not found, (
        f"a .tflite answers otherwise than kb.predict: {found}. {case.phone}.decode gets the file's outputs"
    )

"""What can be told of the commands that need TensorFlow from their options and files alone, before it is imported."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from kerasbert import registry
from kerasbert.checkpoints import source
from kerasbert.data.records import MANIFEST
from kerasbert.data.sources import check_files
from kerasbert.errors import InputError, no_file, unknown
from kerasbert.tasks import early_checks
from kerasbert.tasks.early_checks import check_positions
from kerasbert.tasks.exported_kind import READERS
from kerasbert.training import early, recipe
from kerasbert.training.strategy import check_strategy
from ..distill.recipes import find_recipe
from ..quantize.schemes import SCHEMES

STAGES = ("trim", "distill", "heads", "width", "layers", "prune", "aware", "finetune", "quantize")  # of a plan
PER = ("channel", "tensor")


def check_compress(run: Any, settings: Mapping[str, Any]) -> None:
    """Refuse what `compress` will refuse of its options and files.

    Args:
        settings: of `compress`, with `quantize`; those that are not given are absent.
    """
    SCHEMES.name(str(settings.get("quantize") or "float32"))
    targets = ("kerasbert", *READERS)
    if (target := settings.get("target")) and target not in targets:
        raise unknown("target", target, targets, ", ".join(targets))
    length, share = settings.get("length"), settings.get("min_agreement")
    if length is not None and length < 3:
        raise InputError(f"length must be at least 3. Received: {length}")
    if share is not None and not 0 <= share <= 1:
        raise InputError(f"min_agreement must be a share between 0 and 1, such as 0.985. Received: {share}")
    for name in ("texts", "calibration"):
        if isinstance(settings.get(name), str | os.PathLike):
            check_files([settings[name]])
    if source.check(run) == "model":
        check_positions(run, length)
        if not settings.get("task"):  # fill-mask is of a model without one
            _check_labelled(run, settings.get("data"))


def check_plan(path: str | os.PathLike) -> None:
    """Refuse a plan's file that is no YAML, or names stages that there are not."""
    if not os.path.isfile(path):
        raise InputError(f"no plan {path}, expected a file of YAML with model, data and stages")
    reader = recipe.Reader(path)
    root = reader.root()
    for node in getattr(dict(reader.items(root, "")).get("stages"), "value", ()):
        for name, _ in reader.items(node, "stages.") if node.id == "mapping" else ():
            if name not in STAGES:
                raise reader.error(node, str(unknown("stage", name, STAGES, ", ".join(STAGES))))


def check_distill(teacher: Any, student: str, data: str, settings: Mapping[str, Any]) -> None:
    """Refuse what `distill` will refuse of its options, its student and rows in small files."""
    names = ("recipe", "losses", "temperature", "layers")
    find_recipe(settings.get("recipe", "soft"), *(settings.get(name) for name in names[1:]))
    check_strategy("distill", settings.get("strategy", "auto"))
    if student != "half" and not student.isdecimal() and not os.path.isdir(student):
        try:
            registry.check_name("model", student)
        except InputError as error:
            raise InputError(
                f"no student {student!r}, expected 'half', a number of layers or a directory; {error}"
            ) from error
    _check_files(settings.get("unlabelled") or ())
    if not os.path.isfile(os.path.join(data, MANIFEST)):
        early.check_further(teacher, data)
        if not os.path.exists(data):
            raise no_file(data)


def check_share(name: str, share: float, run: Any, data: Any) -> None:
    """Refuse a share of heads, neurons or weights that is none, and rows that cannot be read."""
    if not 0 <= share < 1:
        raise InputError(f"--{name} must be a share between 0 and 1, such as 0.33. Received: {share}")
    _check_labelled(run, data)


def check_aware(run: Any, data: Any, per: str) -> None:
    """Refuse what `quantize.aware` will refuse."""
    if per not in PER:
        raise unknown("kind of quantization", per, PER, ", ".join(PER))
    early.check_further(run, data)


def check_trim(run: Any, texts: Iterable[str] | None, data: Any) -> None:
    """Refuse a corpus that is not there."""
    if (texts is None) == (data is None):
        raise InputError("give --texts FILE or --data PATH, one of them: the corpus whose pieces are kept")
    _check_files(texts or ())
    if data is not None:  # an encoder, which has no task, is trimmed to texts
        _check_labelled(run, data)


def check_ledger(artefacts: Iterable[str], task: str | None, data: Any) -> None:
    """Refuse artefacts and rows that are not there."""
    artefacts = list(artefacts)
    model = task or next((path for path in artefacts if os.path.isdir(path)), None)
    if model is None:
        raise InputError("no model directory among the artefacts: give one by --task, it says how the rows are read")
    _check_files([path for path in artefacts if not os.path.isdir(path)])
    for path in (model, *(path for path in artefacts if os.path.isdir(path))):
        source.check(path)
    _check_labelled(model, data)


def _check_labelled(run: Any, data: Any) -> None:
    """Refuse rows that a model cannot be measured on; of one file all count, so that there may be few."""
    found = early_checks.task_of(run, {}) if isinstance(run, str | os.PathLike) else None
    if found is not None and isinstance(data, str | os.PathLike):
        early_checks.check_rows(found, os.fspath(data), run=run)


def _check_files(paths: Iterable[str | os.PathLike]) -> None:
    """Refuse files that are not there; none at all are fine."""
    if paths := list(paths):
        check_files(paths)

"""What can be told of the commands that need TensorFlow from their options and files alone, before it is imported."""

import os
import re
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from kerasbert import registry
from kerasbert import spec as specs
from kerasbert.checkpoints import source
from kerasbert.cli.options import Keywords
from kerasbert.data.records import MANIFEST
from kerasbert.data.sources import check_texts
from kerasbert.errors import InputError, no_file, unknown
from kerasbert.export import bundle
from kerasbert.storage.json_view import JsonMap
from kerasbert.tasks import early_checks
from kerasbert.tasks.early_checks import LARGEST, check_positions
from kerasbert.tasks.exported_kind import READERS
from kerasbert.training import early, recipe
from kerasbert.training.strategy import check_devices, check_strategy
from .. import samples
from ..distill.recipes import DistillConfig, check_taught, find_recipe, layer_map, spread
from ..prune import masks
from ..quantize.schemes import SCHEMES

if TYPE_CHECKING:
    import keras

    from kerasbert.tasks.tables import Data


STAGES = ("trim", "distill", "heads", "width", "layers", "prune", "aware", "finetune", "quantize")  # of a plan
PER = ("channel", "tensor")
MAGNITUDE = (("sparsity",), ("structure", "none"), ("scope", "layer"), ("schedule",), ("end",), ("frequency",))


def check_compress(run: "str | os.PathLike | keras.Model", settings: Keywords) -> None:
    """Refuse what `compress` will refuse of its options and files.

    Args:
        settings: of `compress`, with `quantize`; those that are not given are absent.
    """
    _check_file(settings)
    source.check_tokenizer(run)
    if source.check(run) != "model":
        return
    lengths = settings.get("lengths")
    for length in (settings.get("length"), *(lengths if isinstance(lengths, list) else ())):
        check_positions(run, length)
    if settings.get("task"):  # fill-mask is of a model without one
        early_checks.check_head(run, settings["task"])
        return
    task = early_checks.task_of(run, settings.get("options") or {})
    for path in (settings.get(name) for name in ("texts", "calibration")):
        if isinstance(path, str | os.PathLike) and os.path.isfile(path) and os.path.getsize(path) <= LARGEST:
            samples.read(path, task)
    _check_labelled(run, settings.get("data"))


def _check_file(settings: JsonMap) -> None:
    """Refuse what says how a .tflite is made, and texts that are none."""
    SCHEMES.name(str(settings.get("quantize") or "float32"))
    targets = ("kerasbert", *READERS)
    if (target := settings.get("target")) and target not in targets:
        raise unknown("target", target, targets, ", ".join(targets))
    length, share, lengths = (settings.get(name) for name in ("length", "min_agreement", "lengths"))
    if short := [
        each for each in (length, *(lengths if isinstance(lengths, list) else ())) if each is not None and each < 3
    ]:
        raise InputError(f"length must be at least 3. Received: {short[0]}")
    if share is not None and not 0 <= share <= 1:
        raise InputError(f"min_agreement must be a share between 0 and 1, such as 0.985. Received: {share}")
    for name in ("texts", "calibration"):
        if isinstance(settings.get(name), str | os.PathLike):
            check_texts([settings[name]])


def check_stages(
    run: "str | os.PathLike | keras.Model",
    data: "Data | None",
    stages: Iterable[tuple[str, JsonMap]],
    strategy: str | None,
) -> None:
    """Refuse what the stages of a plan will refuse of their arguments and files."""
    check_strategy("a plan", strategy or "auto")
    check_devices(strategy or "auto")
    for name, settings in stages:
        if name == "trim":
            check_texts(list(settings["texts"]))
        elif name == "distill":
            _check_student(settings["student"], run, settings)
        elif name == "heads":
            check_share("heads", settings["share"], run, data)
        elif name == "prune":
            check_share("prune", settings["sparsity"], run, data)
        else:
            _check_file(settings)


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


def check_distill(teacher: str | os.PathLike, student: str, data: str, settings: Keywords) -> None:
    """Refuse what `distill` will refuse of its options, its student and rows in small files."""
    if not all(type(layer) is int and layer >= 0 for layer in settings.get("layers") or ()):
        raise InputError(f"layers must be numbers such as 2,4,6. Received: {settings['layers']}")
    names = ("recipe", "losses", "temperature", "layers")
    recipe = find_recipe(settings.get("recipe", "soft"), *(settings.get(name) for name in names[1:]))
    config = DistillConfig(**settings)
    check_strategy("distill", config.strategy)
    early.check_devices_and_batch(config)
    _check_student(student, teacher, settings)
    if not os.path.isfile(os.path.join(data, MANIFEST)):
        early.check_further(teacher, data, settings)
        if (found := early_checks.task_of(teacher, {})) is not None:
            check_taught(found.kind, found.how.taught, recipe.losses)
        if not os.path.exists(data):
            raise no_file(data)


def _check_student(
    student: str, teacher: "str | os.PathLike | keras.Model", settings: JsonMap = MappingProxyType({})
) -> None:
    """Refuse what is no student, or cannot learn from the teacher.

    Args:
        teacher: directory of the model that it learns from. settings: of `distill`: layers, changes.
    """
    changes, count = settings.get("changes") or {}, layers_of(teacher)
    if student == "half" or student.isdecimal():
        own = max(1, (count or 2) // 2) if student == "half" else int(student)
        if count is not None:
            spread(own, count)
        known = early_checks.tree_of(teacher)
    elif os.path.isdir(student):
        if source.check(student) == "model" and (wrong := set(changes) - set(early.DROPOUT)):
            raise InputError(f"cannot change {', '.join(wrong)} of trained weights: only dropout may change")
        own, known = layers_of(student), {}
    else:
        try:
            registry.check_name("model", student)
        except InputError as error:
            raise InputError(
                f"no student {student!r}, expected 'half', a number of layers or a directory; {error}"
            ) from error
        known = (registry.shipped_model(student) or {}).get("spec", {})
        own = changes.get("blocks.layers", specs.leaves(known).get("blocks.layers"))
    if known:
        specs.check_changes(known, changes)
    if settings.get("layers") and count is not None and type(own) is int:
        layer_map(own, count, settings["layers"])


def layers_of(model: object) -> int | None:
    """How many layers a model directory has; None of others, and where only loading tells."""
    found = early_checks.setting_of(model, "blocks.layers") if isinstance(model, str | os.PathLike) else None
    return found if type(found) is int else None


def check_share(
    name: str, share: float, run: "str | os.PathLike | keras.Model", data: "Data | None", length: int | None = None
) -> None:
    """Refuse a share of heads, neurons or weights that is none, and rows that cannot be read."""
    if not 0 <= share < 1 or (share == 0 and name in ("heads", "width")):
        raise InputError(f"--{name} must be a share between 0 and 1, such as 0.33. Received: {share}")
    if run is not None and source.check(run) == "model":
        check_positions(run, length)
    _check_labelled(run, data)


def check_layers(run: "str | os.PathLike | keras.Model", keep: Sequence[int]) -> None:
    """Refuse layers that a model directory has not, or one twice."""
    most = layers_of(run)
    if most is not None and (wrong := next((i for i in keep if i >= most), None)) is not None:
        raise InputError(f"no layer has number {wrong}, expected 0 to {most - 1}")
    if len(set(keep)) < len(keep):
        raise InputError(f"a layer is given twice: {', '.join(map(str, sorted(keep)))}")


def check_magnitude(run: str | os.PathLike, data: "Data", settings: Keywords) -> None:
    """Refuse what `prune.magnitude` will refuse of its options and rows."""
    masks.settled(*(settings.get(*each) for each in MAGNITUDE))
    for pattern in settings.get("patterns", ()):
        try:
            re.compile(pattern)
        except re.error as error:
            raise InputError(f"pattern {pattern!r} is not a regular expression: {error}") from error
    early.check_further(run, data, settings)


def check_aware(run: str | os.PathLike, data: "Data", settings: Keywords) -> None:
    """Refuse what `quantize.aware` will refuse."""
    per = settings.get("per", "channel")
    if per not in PER:
        raise unknown("kind of quantization", per, PER, ", ".join(PER))
    early.check_further(run, data, settings)


def check_trim(run: "str | os.PathLike | keras.Model", texts: Iterable[str] | None, data: "Data") -> None:
    """Refuse a corpus that is not there, or is no text."""
    if (texts is None) == (data is None):
        raise InputError("give --texts FILE or --data PATH, one of them: the corpus whose pieces are kept")
    if texts:
        check_texts(list(texts))
    if data is not None:  # an encoder, which has no task, is trimmed to texts
        _check_labelled(run, data)


def check_ledger(artefacts: Iterable[str], task: str | None, data: "Data") -> None:
    """Refuse artefacts and rows that are not there."""
    artefacts = list(artefacts)
    model = task or next((path for path in artefacts if os.path.isdir(path)), None)
    if model is None:
        raise InputError("no model directory among the artefacts: give one by --task, it says how the rows are read")
    found = early_checks.task_of(model, {})
    for path in artefacts:
        if os.path.isdir(path):
            other = early_checks.task_of(path, {})
            kind = other.kind if other is not None else None
        else:
            kind = bundle.read(path).kind
        if found is not None and kind is not None and kind != found.kind:
            raise InputError(
                f"{path} is of the kind {kind}, {model}, whose rows are read, of {found.kind}: leave it out"
            )
    _check_labelled(model, data)


def _check_labelled(run: "str | os.PathLike | keras.Model", data: "Data | None") -> None:
    """Refuse rows that a model cannot be measured on; of one file all count, so that there may be few."""
    found = early_checks.task_of(run, {}) if isinstance(run, str | os.PathLike) else None
    if found is not None and isinstance(data, str | os.PathLike):
        early_checks.check_rows(found, os.fspath(data), run=run)

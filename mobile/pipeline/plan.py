"""A plan of compression: distil, prune, trim, quantize, one stage after the other; killed and run again it goes on.

    model: runs/sst2
    data: glue/SST-2
    stages:
      - trim: {texts: [reviews.txt]}
      - distill: {student: tinybert/4x312, recipe: tinybert, epochs: 10}
      - distill: {epochs: 5}
      - heads: {share: 0.33}
      - prune: {sparsity: 0.5, epochs: 3}
      - quantize: {quantize: dynamic_int8}

Each stage takes the model directory that the one before wrote; the first takes `model`, the last (`quantize`) writes the
.tflite. From the first `distill` on the teacher is what that stage was given, and `prune` and `aware` (quantization-aware
training) go on imitating it.
"""

import dataclasses
import inspect
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from kerasbert import checkpoints, progress
from kerasbert.cli.options import Keywords
from kerasbert.errors import InputError, unknown
from kerasbert.options import checked, checked_fields, options
from kerasbert.storage import files, places
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.tasks import tables
from kerasbert.tasks.load import task_of
from kerasbert.tasks.task import answerable, read_rows, split_files
from kerasbert.training import model_files, recipe
from kerasbert.training.finetune import finetune
from kerasbert.training.runs import data_of
from kerasbert.training.splits import Split, split
from kerasbert.training.strategy import resolve
from kerasbert.training.strategy import strategy as find_strategy
from kerasbert.value_types import fits
from .. import prune
from ..distill import distill
from ..options import CompressConfig
from ..quantize.aware_training import FILE as RANGES
from ..quantize.aware_training import Aware
from ..quantize.schemes import SCHEMES, Scheme
from ..vocabulary.trimming import texts_of, trim
from . import ledger
from .compression import compress

FORMAT = 1
STATE = "plan.json"
# said by the plan as a whole, or by the stage before
GIVEN = {"run", "teacher", "model", "task", "data", "out", "cache", "strategy"}
GIVEN |= {"keep_head", "remove"}


@checked_fields
@dataclasses.dataclass(frozen=True)
class Plan:
    """What is done to a model.

    Args:
        model: directory of a fine-tuned model.
        data: train and dev files of its task, as for `finetune`; None for those that it was fine-tuned on.
        stages: (name in `stages()`, its arguments); "quantize" is the last, and put there where it is missing.
        strategy: of every stage that trains.
    Raises:
        InputError: no such stage or argument (the nearest is named), "quantize" that is not the last.
    """

    model: str | os.PathLike
    data: tables.Data | None
    stages: tuple[tuple[str, JsonMap], ...]
    strategy: str = "auto"

    def __post_init__(self) -> None:
        given = self.stages if isinstance(self.stages, list | tuple) else [None]
        pairs = [each for each in given if isinstance(each, list | tuple) and len(each) == 2]
        if len(pairs) < len(given) or not all(fits(each, str) and isinstance(more, Mapping) for each, more in pairs):
            raise InputError(f"stages are pairs such as ('prune', {{'sparsity': 0.5}}). Received: {self.stages!r:.60}")
        made, known = [(name, dict(given)) for name, given in self.stages], stages()
        for name, given in made:
            if name not in known:
                raise unknown("stage", name, known, ", ".join(known))
            for argument in given:
                if argument not in known[name]:
                    raise unknown(f"argument of {name}", argument, known[name], ", ".join(known[name]))
        if "quantize" not in [name for name, _ in made]:
            made.append(("quantize", {}))
        if [name for name, _ in made].index("quantize") != len(made) - 1:
            raise InputError("quantize is not the last stage: it writes the .tflite, which nothing else can read")
        taught = False
        for name, given in made:
            if name == "distill" and not taught and "student" not in given:
                raise InputError("the first distill names no student, expected one such as tinybert/4x312, half or 3")
            taught = taught or name == "distill"
            _constraint(name, dict(given))
        object.__setattr__(self, "stages", tuple(made))

    def rows(self) -> dict[str, tables.Source]:
        """Split -> file or table of the task's rows.

        Raises:
            InputError: none are given, and those of the fine-tuning are not there any more.
        """
        found: dict[str, tables.Source] = {}
        if self.data is None:
            found |= data_of(self.model)
        else:
            found |= split_files(self.data, task=ledger.find_task(self.model))
        if not found:
            raise InputError(
                f"no data, and {self.model} does not say where those of its fine-tuning lie: give train and dev rows (--data)"
            )
        return found

    def description(self) -> Json:
        """All that the result depends on: arguments, and the hashes of the files that they name."""
        named = _paths([given for _, given in self.stages])
        return {
            "format": FORMAT,
            "model": model_files.digest(self.model),
            "data": {split: tables.digest(source) for split, source in self.rows().items()},
            "stages": [[name, given] for name, given in self.stages],
            "files": {path: _digest(Path(path)) for path in named},
        }

    def recipe(self) -> Json:
        """The same for the file that is made: no path, the names of files alone."""
        named = set(_paths([given for _, given in self.stages]))
        stages = [{name: _bare(given, named)} for name, given in self.stages]
        return {"model": checkpoints.read_model_json(self.model).name, "stages": stages}


def stages() -> dict[str, dict[str, object]]:
    """Stage -> name -> type of what a plan may say about it."""
    taught = recipe.fields(distill)
    tuned = {name: kind for name, kind in recipe.fields(finetune).items() if not name.endswith("_column")}
    either = {name: kind for name, kind in tuned.items() if name in taught and name != "schedule"}
    found = {
        "trim": {"texts": Sequence[str], "size": int | None},
        "distill": taught,
        "heads": recipe.fields(prune.heads),
        "width": recipe.fields(prune.width),
        "layers": recipe.fields(prune.layers),
        "prune": either | recipe.fields(prune.Magnitude),
        "aware": either | recipe.fields(Aware),
        "finetune": tuned,
        "quantize": {"quantize": str}
        | {name: field.type for name, field in options(CompressConfig).items() if field.metadata["recipe"]},
    }
    return {
        name: {key: known[key] for key in known if key not in GIVEN or name == "trim"} for name, known in found.items()
    }


def read_plan(path: str | os.PathLike, **over: object) -> Plan:
    """A plan of a file of YAML; `model`, `data` and `strategy` may be given instead of what it says.

    Raises:
        InputError: with file and line: no YAML, an unknown stage or argument, a value of another type.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise InputError(f"plan is {path!r:.40}, expected a Plan or the file of one")
    reader = recipe.Reader(path)
    root, known = reader.root(), stages()
    values = reader.mapping(root, {"model": str, "data": str, "strategy": str, "stages": list}, "")
    values |= {name: value for name, value in over.items() if value is not None}
    for name in ("model", "stages"):
        if name not in values:
            raise reader.error(root, f"the plan has no {name}")
    made = []
    for node in dict(reader.items(root, ""))["stages"].value:
        pairs = list(reader.items(node, "stages.")) if node.id == "mapping" else ()
        if len(pairs) != 1:
            raise reader.error(node, "a stage must be one name with its arguments, such as `prune: {sparsity: 0.5}`")
        ((name, child),) = pairs
        if name not in known:
            raise reader.error(node, str(unknown("stage", name, known, ", ".join(known))))
        made.append((name, reader.mapping(child, known[name], f"{name}.")))
    with reader.at(root, "the plan"):
        return Plan(values["model"], values.get("data"), tuple(made), values.get("strategy", "auto"))


@checked
def run_plan(
    plan: Plan | str | os.PathLike,
    out: str | os.PathLike,
    *,
    work: str | os.PathLike | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Json:
    """Make every stage of a plan that is not made yet, then measure each artefact.

    Args:
        plan: a Plan, or a file of YAML.
        out: the .tflite.
        work: folder of the stages' directories and of the ledger; `<out>.plan` by default.
        overwrite: bool, begin anew in the place of another plan and of another file.

    Returns:
        what `compress` says of the file, and "work", "ledger": its rows, see `ledger.measure`.

    Raises:
        InputError: another plan's folder or file is there, or a stage cannot be made; what earlier stages made is kept.
    """
    plan = plan if isinstance(plan, Plan) else read_plan(plan)
    out, work = Path(out), Path(work or f"{out}.plan")
    data = plan.rows()
    strategy = resolve(plan.strategy)
    find_strategy(strategy)  # before TensorFlow computes anything, after which a CPU can no longer be divided
    known = split(ledger.find_task(plan.model), data, start=plan.model)  # before any work: the data fit the model
    state = _open(work, out, plan.description(), overwrite)
    with files.kept(work):
        return _go_on(plan, out, work, state, strategy, known, quiet)


def _go_on(plan: Plan, out: Path, work: Path, state: Json, strategy: str, known: Split, quiet: bool) -> Json:
    """`run_plan`, in the folder of its stages."""
    task, data = ledger.find_task(plan.model), known.apart() if known.held_out else plan.rows()
    artefacts = _directories(plan, work, state, strategy, data, quiet)
    if not (state["report"] and out.is_file() and files.sha256(out) == state["sha256"]):
        progress.say(f"stage {len(plan.stages)} of {len(plan.stages)}: quantize -> {out}", quiet=quiet)
        settings = _quantizing(plan, known, data, learned=(artefacts[-1] / RANGES).exists())
        state["report"] = compress(artefacts[-1], out=out, overwrite=True, recipe=plan.recipe(), **settings)
        state |= {"sha256": files.sha256(out), "rows": state["rows"][: len(artefacts)]}
        files.write_json(work / STATE, state)
    assert known.dev is not None  # `split` holds rows out
    for artefact in [*artefacts, out][len(state["rows"]) :]:
        progress.say(f"measure {artefact}", quiet=quiet)
        state["rows"].append(ledger.measure(artefact, task, known.dev))
        files.write_json(work / STATE, state)
    ledger.write(state["rows"], work)
    return state["report"] | {"work": str(work), "ledger": state["rows"]}


def _directories(
    plan: Plan, work: Path, state: Json, strategy: str, data: Mapping[str, tables.Source], quiet: bool
) -> list[Path]:
    """The model, and what each stage before the last made of it: now, or before this was killed."""
    teacher, artefacts = None, [Path(plan.model)]
    for number, (name, given) in enumerate(plan.stages[:-1], 1):
        made = work / f"{number}-{name}"
        if name == "distill":
            teacher = teacher or artefacts[-1]
        if number > state["made"]:
            progress.say(f"stage {number} of {len(plan.stages)}: {name} -> {made}", quiet=quiet)
            _make(name, dict(given), strategy, data, artefacts[-1], teacher, made, quiet)
            state["made"] = number
            files.write_json(work / STATE, state)
        artefacts.append(made)
    return artefacts


def _quantizing(plan: Plan, known: Split, data: Mapping[str, tables.Source], learned: bool) -> Keywords:
    """What `compress` is given for the last stage: what the plan says, and rows of its data.

    Args:
        learned: whether the model was trained with the ranges of its activations.
    """
    _, given = plan.stages[-1]
    settings: Keywords = {"data": data.get("dev") or known.apart()["dev"]}
    counted = SCHEMES.get(given.get("quantize") or "", Scheme()).calibrated and not learned
    if counted or given.get("embedding_codes") is not None:
        task = ledger.find_task(plan.model)
        rows = read_rows(task, data.get("train") or data["dev"], targets=False)
        settings["calibration"] = answerable(task, rows.texts)
    return {**settings, **given}


def _open(work: Path, out: Path, description: Json, overwrite: bool) -> Json:
    """The state of a plan in its folder: begun now, or where it was left."""
    description = json.loads(json.dumps(description))
    new = {"plan": description, "made": 0, "report": None, "sha256": None, "rows": []}
    if (work / STATE).is_file() and not overwrite:
        try:
            old = json.loads((work / STATE).read_text("utf-8"))
            differ = sorted(name for name in description if old["plan"].get(name) != description[name])
        except (ValueError, KeyError, AttributeError) as error:
            raise InputError(f"{work / STATE} is damaged ({error!r}): pass --overwrite to begin anew") from error
        if not differ:
            return old
        if any(path.name not in (STATE, places.MARK) for path in work.iterdir()):
            raise InputError(
                f"{work} holds another plan ({', '.join(differ)} differ): choose another --work or pass --overwrite"
            )
    empty = (work / STATE).is_file() and not overwrite  # it had made nothing
    places.check_file(out, overwrite, "tflite")
    with files.new_directory(work, overwrite or empty) as folder:
        files.write_json(folder / STATE, new)
    return new


def _make(
    name: str,
    given: Keywords,
    strategy: str,
    rows: Mapping[str, tables.Source],
    current: Path,
    teacher: Path | None,
    out: Path,
    quiet: bool,
) -> None:
    """One stage that writes a directory."""
    if name == "trim":
        texts = given.pop("texts", None)
        lines = None if texts is None else texts_of(current, texts)
        trim(current, lines, data=rows if texts is None else None, out=out, overwrite=True, **given)
        return
    if name in ("heads", "width", "layers"):
        data = () if name == "layers" else (rows,)
        getattr(prune, name)(current, *data, out=out, overwrite=True, **given)
        return
    given |= {"out": out, "strategy": strategy, "quiet": quiet}
    given |= {"changes": given.pop("set")} if "set" in given else {}
    if (constraint := _constraint(name, given)) is not None:
        given["constraint"] = constraint
    if name == "distill" or (constraint is not None and teacher is not None):
        distill(teacher, given.pop("student", current), rows, **given)
    else:
        task = task_of(checkpoints.read_model_json(current))
        finetune(current, task, rows, keep_head=True, **given)


def _constraint(name: str, given: Keywords) -> prune.Magnitude | Aware | None:
    """What a stage asks of the weights while they are trained, of its arguments, which are taken out; None for others."""
    made = {"prune": prune.Magnitude, "aware": Aware}.get(name)
    if made is None:
        return None
    return made(**{key: given.pop(key) for key in inspect.signature(made).parameters if key in given})


def _paths(value: object) -> list[str]:
    """The files and directories that a plan's arguments name."""
    if isinstance(value, Mapping):
        return sorted({path for inner in value.values() for path in _paths(inner)})
    if isinstance(value, list | tuple):
        return sorted({path for inner in value for path in _paths(inner)})
    return [value] if isinstance(value, str) and os.path.exists(value) else []


def _digest(path: Path) -> str:
    return model_files.digest(path) if path.is_dir() else files.sha256(path)


def _bare(value: object, paths: set[str]) -> object:
    """The arguments with names of files in the place of paths."""
    if isinstance(value, Mapping):
        return {name: _bare(inner, paths) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_bare(inner, paths) for inner in value]
    return Path(value).name if isinstance(value, str) and value in paths else value

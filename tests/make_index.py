"""Write kerasbert/shipped.json, which `list` and `show` read, and the README's table of models: python -m tests.make_index."""

import importlib
import json
import re
from collections.abc import Sequence
from typing import Any

import keras

from kerasbert import models, registry
from kerasbert import spec as specs
from kerasbert.keras_objects import Later
from kerasbert.layers.masked_writer import writes_at_masks
from kerasbert.registry import FORMATS, OPTIMIZERS, SCHEDULES, SELECTIONS
from kerasbert.tasks import base
from kerasbert.training.config import PRECISIONS
from tests.support import ROOT

PATH = ROOT / "kerasbert" / "shipped.json"
README = ROOT / "README.md"
TASKS = {"encoder": "all but generation", "decoder": "all", "seq2seq": "generation"}
FORMAT_NAMES = {"hf": "Hugging Face", "tf1": "TF1", "keras_hub": "KerasHub"}
OTHER_FORMATS = {
    "elmo": "AllenNLP",
    "average": "word vectors (in), model2vec, StaticEmbedding",
    "cove": "word vectors (in)",
    "taglm": "an ELMo (in)",
}
ARXIV = {
    **{"bert": "1810.04805", "albert": "1909.11942", "bart": "1910.13461", "distilbert": "1910.01108"},
    **{"electra": "2003.10555", "elmo": "1802.05365", "ernie": "1904.09223", "mobilebert": "2004.02984"},
    **{"ib-bert": "2004.02984", "kbert": "1909.07606", "roberta": "1907.11692", "xlm-roberta": "1911.02116"},
    **{"longformer": "2004.05150", "transformer": "1706.03762", "mass": "1905.02450", "megatron-bert": "1909.08053"},
    **{"reformer": "2001.04451", "sa-lstm": "1511.01432", "spanbert": "1907.10529", "structbert": "1908.04577"},
    **{"t5": "1910.10683", "tinybert": "1909.10351", "transformer-xl": "1901.02860", "ulmfit": "1801.06146"},
    **{"xlm": "1901.07291", "xlnet": "1906.08237", "taglm": "1705.00108", "quick-thoughts": "1803.02893"},
    **{"skip-thought": "1506.06726", "cove": "1708.00107", "modernbert": "2412.13663", "mpnet": "2004.09297"},
    **{
        "unilm": "1905.03197",
        "nezha": "1909.00204",
        "roformer": "2104.09864",
        "nomic-bert": "2402.01613",
        "eurobert": "2503.05500",
    },
    **{"macbert": "2004.13922", "bigbird": "2007.14062"},
    **{"mt5": "2010.11934", "umt5": "2304.09151"},
    **{"funnel": "2006.03236", "mbart": "2001.08210", "pegasus": "1912.08777"},
    **{"t5-encoder": "1910.10683", "mt5-encoder": "2010.11934", "umt5-encoder": "2304.09151"},
    **dict.fromkeys(("bert2bert", "roberta2roberta", "bert-generation"), "1907.12461"),
    **{"deberta": "2006.03654", "deberta-v2": "2006.03654", "deberta-v3": "2111.09543"},
}


def rows(counted: bool = True) -> list[dict[str, Any]]:
    """A row for each model; counting the parameters takes most of the time."""
    found = []
    for family in registry.families().values():
        if not family.encoder.__module__.startswith("kerasbert."):
            continue  # of a test's plug-in
        for size in family.sizes:
            spec = family.size(size)
            about = {"name": f"{family.name}/{size}", "kind": family.kind, "paper": family.paper}
            about |= {"tokenizer": family.tokenizer, "objective": family.objective}
            about["parameters"] = models.parameters(family.encoder, spec) if counted else None
            found.append(about | {"spec": specs.to_dict(spec)})
    return found


def content(counted: bool = True) -> dict[str, Any]:
    """What the index holds."""
    listed = rows(counted)
    families = [registry.family(name) for name in dict.fromkeys(row["name"].partition("/")[0] for row in listed)]
    return {
        "models": listed,
        "families": {family.name: module_of(family.name) for family in families},
        "aliases": {f"{f.name}/{alias}": f"{f.name}/{size}" for f in families for alias, size in f.aliases.items()},
        "objectives": sorted(n for n, o in registry.objectives().items() if _ours(o)),
        "tasks": sorted(n for n, task in registry.tasks().items() if _ours(task)),
        "languages": [f.name for f in families if any(each.setting == "language" for each in f.inputs)],
        "unbounded": [family.name for family in families if family.longest(family.spec) is None],
        "model_types": model_types(families),
        "keras_objects": objects(),
        "metrics": {kind: list(base.find(kind).metrics_known) for kind in base.OURS},
        "optimizers": [name for name, value in OPTIMIZERS.items() if _ours(value)],
        "schedules": [name for name, value in SCHEDULES.items() if _ours(value)],
        "precisions": list(PRECISIONS),
        "formats": {name: type(value).__module__ for name, value in FORMATS.items() if _ours(value)},
        "selects": [name for name, value in SELECTIONS.items() if _ours(value)],
    }


def model_types(families: Sequence[registry.Family]) -> dict[str, list[str]]:
    """model_type of Hugging Face -> the families that have it beside one of their own name."""
    found: dict[str, list[str]] = {}
    for family in families:
        for name in family.names["hf"].model_types if "hf" in family.names else ():
            found.setdefault(name, []).append(family.name)
    return dict(sorted(found.items()))


def objects() -> dict[str, str]:
    """Name by which Keras knows a class of ours -> "module:name"."""
    base.find("classification")
    importlib.import_module("kerasbert.tasks.model")
    known = keras.saving.get_custom_objects().items()
    found = {name: value for name, value in known if name.startswith("kerasbert>") and not isinstance(value, Later)}
    return {name: f"{each.__module__}:{each.__qualname__}" for name, each in sorted(found.items()) if _ours(each)}


def models_table() -> str:
    """The README's table of models, from what the families say of themselves: a row for those with tasks and formats alike."""
    found: dict[tuple[str, str], list[str]] = {}
    for family in sorted(registry.families().values(), key=lambda family: family.name):
        if not _ours(family.encoder):
            continue
        kind = "decoder" if family.kind == "seq2seq" and family.of_text else family.kind
        kind = "decoder" if writes_at_masks(family.encoder) else kind
        tasks = TASKS["encoder" if family.name == "transformer-xl" else kind]  # its generation was never tried
        formats = ", ".join(FORMAT_NAMES[name] for name in family.names) or OTHER_FORMATS.get(family.name, "-")
        name = (
            f"[`{family.name}`](https://arxiv.org/abs/{ARXIV[family.name]})"
            if family.name in ARXIV
            else f"`{family.name}`"
        )
        objective = f" ({family.objective})" if family.objective and family.objective != family.name else ""
        found.setdefault((tasks, formats), []).append(name + objective)
    lines = [
        "| models, with the pretraining objective where it has another name | tasks | checkpoints |",
        "|---|---|---|",
    ]
    rows = sorted(found.items(), key=lambda row: -len(row[1]))
    lines += [f"| {', '.join(names)} | {tasks} | {formats} |" for (tasks, formats), names in rows]
    return "\n".join(lines) + "\n"


def with_table(text: str) -> str:
    """A page with the table of models as it is now."""
    begin, end = "<!-- models: python -m tests.make_index -->\n", "<!-- end of models -->\n"
    return text[: text.index(begin) + len(begin)] + models_table() + text[text.index(end) :]


def module_of(family: str) -> str:
    """The module that registers a family of ours."""
    declared = re.compile(rf'register\([^"]*"{family}"')
    places = [*(ROOT / "kerasbert/models").glob("*.py"), *(ROOT / "kerasbert/classics").glob("*.py")]
    (found,) = (path for path in places if declared.search(path.read_text()))
    return f"kerasbert.{found.parent.name}.{found.stem}"


def _ours(value: Any) -> bool:
    """Whether it comes from the package, not from a plug-in that a test registered."""
    module = getattr(value, "__module__", None) or type(value).__module__
    return str(module).startswith("kerasbert.")


def main() -> None:
    """Write the index, a row a line, and the table."""
    made = content()
    lines = ",\n".join("  " + json.dumps(row) for row in made.pop("models"))
    rest = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in made.items())
    PATH.write_text(f'{{\n "models": [\n{lines}\n ],\n{rest}\n}}\n')
    README.write_text(with_table(README.read_text()))


if __name__ == "__main__":
    main()

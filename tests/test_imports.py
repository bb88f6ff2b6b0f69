"""The arrows between the parts, and where TensorFlow may be imported: read off the source, and tried in a fresh process."""

import ast
import functools
from pathlib import Path

import pytest

from tests.support import ROOT, python

# A part may import those on its own line and on the lines above it.
LAYERS = (
    {
        "__init__",
        "blanks",
        "children",
        "errors",
        "inputs",
        "lazy",
        "options",
        "poolings",
        "progress",
        "provenance",
        "signals",
        "storage",
        "truncation",
        "value_types",
        "within",
    },
    {"answers"},
    {"adaptation", "spec", "family", "registry", "text"},
    {"data", "layers", "checkpoints", "export.bundle", "report"},
    {"objectives"},
    {"models"},
    {"tasks"},
    {"retrieval", "training"},
    {"export", "run_report", "tpu_check"},
    {"look"},
    {"classics"},
    {"lab", "quickstart"},
    {"cli"},
    {"testing"},
    {"mobile"},
)
FREE = (  # of TensorFlow and Keras, wherever the import stands
    "kerasbert/__init__.py",
    "kerasbert/adaptation.py",
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "kerasbert/cli").glob("*.py"))),
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "kerasbert/answers").glob("*.py"))),
    "kerasbert/blanks.py",
    "kerasbert/children.py",
    "kerasbert/errors.py",
    "kerasbert/family.py",
    "kerasbert/inputs.py",
    "kerasbert/look/__init__.py",
    "kerasbert/look/early.py",
    "kerasbert/look/numbers.py",
    "kerasbert/poolings.py",
    "kerasbert/options.py",
    "kerasbert/progress.py",
    "kerasbert/provenance.py",
    *(f"kerasbert/storage/{name}.py" for name in "aside files json_view unused places zips".split()),
    *(f"kerasbert/{name}.py" for name in "truncation value_types within".split()),
    *(
        f"kerasbert/retrieval/{name}.py"
        for name in ("exact", "folder", "forms", "graph", "lexical", "passages", "vector_file")
    ),
    "kerasbert/spec.py",
    "kerasbert/registry.py",
    "kerasbert/tasks/answer_tables.py",
    "kerasbert/tasks/early_checks.py",
    "kerasbert/tasks/task.py",
    "kerasbert/training/config.py",
    "kerasbert/training/constraints.py",
    *(
        f"kerasbert/text/{name}.py"
        for name in (
            "__init__ added base bpe files hf hf_save languages normalize sentencepiece tables unigram viterbi wordpiece words"
        ).split()
    ),
    *(f"kerasbert/export/{name}.py" for name in "bundle client client_grpc client_rest load messages status".split()),
    *(f"kerasbert/export/server/{name}.py" for name in ("batching", "folders", "http", "json_arrays", "metrics")),
    *(f"kerasbert/export/server/{name}.py" for name in ("models", "rest", "rpc", "run", "said")),
    "mobile/__init__.py",
    "mobile/cli.py",
    "mobile/golden.py",
    "mobile/launch_times.py",
    "mobile/options.py",
    "mobile/commands/compress.py",
    "mobile/commands/distill.py",
    "mobile/prune/__init__.py",
    "mobile/vocabulary/__init__.py",
    "mobile/commands/prune.py",
    "mobile/prune/masks.py",
    "mobile/prune/schedule.py",
    "mobile/prune/slices.py",
    "mobile/vocabulary/trimming.py",
    "mobile/quantize/__init__.py",
    "mobile/commands/quantize_aware.py",
    "mobile/quantize/budget.py",
    "mobile/quantize/forms.py",
    "mobile/quantize/ranges.py",
    "mobile/tflite/weights.py",
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "mobile/runtime").rglob("*.py"))),
)
PHONE = (
    "answers",
    "blanks",
    "inputs",
    "options",
    "progress",
    "registry",
    "truncation",
    "value_types",
    "within",
    "text",
    "export.bundle",
    "errors",
    "storage",
    "__init__",
)
HEAVY = {
    "tensorflow",
    "keras",
    "tensorflow_text",
    "tf_keras",
    "keras_hub",
    "keras_nlp",
    "tensorflow_model_optimization",
}
LATE = {"tensorflow_text", "keras_hub", "keras_nlp", "tensorflow_model_optimization"}


def modules(folder: str) -> list[Path]:
    """Every source file below a folder of the tree."""
    return sorted((ROOT / folder).rglob("*.py"))


@functools.cache
def imports(path: Path, top: bool = False) -> frozenset[str]:
    """Dotted names that a file imports, anywhere or (with `top`) when it is itself imported; not those of types alone."""
    tree = ast.parse(path.read_text())
    inner = {
        id(node)
        for function in ast.walk(tree)
        if top and isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    unread = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for statement in block.body
        for node in ast.walk(statement)
    }
    found, left = set(), inner | unread
    for node in ast.walk(tree):
        if id(node) in left:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = imported_from(path, node)
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def imported_from(path: Path, node: ast.ImportFrom) -> str:
    """The module that a file imports names from; mobile/, which an install puts into kerasbert, imports itself relatively."""
    own = path.relative_to(ROOT).parts
    if own[0] != "mobile":
        assert node.level == 0, f"{path}: imports are absolute"
        return str(node.module)
    assert not str(node.module).startswith("kerasbert.mobile"), f"{path}: mobile imports itself relatively"
    if node.level == 0:
        return str(node.module)
    package = ("kerasbert", *own[: len(own) - node.level])
    return ".".join((*package, node.module) if node.module else package)


def part(name: str) -> str:
    """kerasbert.export.bundle.Bundle -> export.bundle; kerasbert.text.files.x -> text; kerasbert.load -> __init__."""
    pieces = name.split(".")[1:]
    if pieces[:2] == ["export", "bundle"]:
        return "export.bundle"
    known = {entry for layer in LAYERS for entry in layer}
    return pieces[0] if pieces and pieces[0] in known else "__init__"


def own_part(path: Path) -> str:
    """The part that a file belongs to."""
    dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return "mobile" if dotted.startswith("mobile") else part(dotted)


def level(name: str) -> int:
    """Place of a part in LAYERS."""
    return next(i for i, layer in enumerate(LAYERS) if name in layer)


@pytest.mark.parametrize("path", modules("kerasbert"), ids=lambda path: str(path.relative_to(ROOT)))
def test_parts_import_only_what_is_below_them(path):
    """ARCHITECTURE, section 3: spec, registry, text <- data, layers, checkpoints <- ... <- export <- mobile."""
    own = own_part(path)
    wrong = []
    for name in sorted(imports(path)):
        if name.split(".")[0] != "kerasbert":
            continue
        if level(part(name)) > level(own):
            wrong.append(f"{own} imports {name}")
    assert not wrong


# The rooms of mobile/, each with those that it may import on its own line and on the lines above.
ROOMS = (
    {
        "",
        "samples",
        "options",
        "quantize.schemes",
        "scheme_rules",
        "runtime",
        "golden",
        "launch_times",
        "native",
    },
    {"tflite", "mediapipe", "tensor_names"},
    {"model_and_texts", "targets", "distill"},
    {"prune", "quantize", "vocabulary"},
    {"judging"},
    {"generation"},
    {"pipeline"},
    {"commands", "cli"},
    {"kind_journey", "scheme_check"},
    {"testing"},
)
LARGEST = 1210  # lines of a room


def room(module: str) -> str:
    """kerasbert.mobile.tflite.repack -> tflite; kerasbert.mobile.samples -> samples."""
    inner = module.removeprefix("kerasbert.mobile").strip(".")
    return inner if inner in {name for floor in ROOMS for name in floor} else inner.partition(".")[0]


def test_rooms_of_mobile_import_what_is_below_them():
    """What edits a .tflite knows nothing of quantization, and neither of plans or commands."""
    floors = {name: number for number, floor in enumerate(ROOMS) for name in floor}
    inside = {module: arrows for module, arrows in graph().items() if module.startswith("kerasbert.mobile")}
    assert [
        f"{module} imports {name}"
        for module, arrows in inside.items()
        for name in sorted(arrows & inside.keys())
        if floors[room(name)] > floors[room(module)]
    ] == []


def test_no_room_of_mobile_is_large():
    """A folder of up to 1,200 lines can be known as a whole."""
    folders = [path.parent for path in (ROOT / "mobile").rglob("__init__.py") if path.parent != ROOT / "mobile"]
    lines = {path.name: sum(len(file.read_text().splitlines()) for file in path.glob("*.py")) for path in folders}
    assert {name: count for name, count in lines.items() if count > LARGEST} == {}


def graph() -> dict[str, set[str]]:
    """Module -> the modules of ours that it imports, inside functions too."""
    paths = {}
    for folder, top in (("kerasbert", "kerasbert"), ("mobile", "kerasbert.mobile")):
        for path in modules(folder):
            names = path.relative_to(ROOT / folder).with_suffix("").parts
            paths[".".join([top, *names]).removesuffix(".__init__")] = path
    arrows = {}
    for module, path in paths.items():
        arrows[module] = set()
        for name in imports(path):
            while name not in paths and "." in name:
                name = name.rpartition(".")[0]
            arrows[module] |= {name} & paths.keys() - {module}
    return arrows


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules of which each reaches the others: what no order of import could load one after the other."""
    reached = {}
    for start in arrows:
        found, waiting = set(), [start]
        while waiting:
            new = arrows[waiting.pop()] - found
            found |= new
            waiting += new
        reached[start] = found
    groups = {tuple(sorted(b for b in reached[a] if a in reached[b])) for a in arrows if a in reached[a]}
    return sorted(map(list, groups))


def test_no_files_import_each_other():
    """Neither two files nor a longer way round, whether the import stands above or inside a function."""
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "a"}, "d": {"a"}, "e": set()}) == [["a", "b", "c"]]
    arrows = graph()
    assert "kerasbert.data.stream" in arrows["kerasbert.data.records"]  # an import inside a function
    assert circles(arrows) == []


def test_the_core_names_what_came_before_transformers_in_one_table():
    """It is as a plug-in: `registry` and the index say where it stands, commands use it, nothing else knows it."""
    named = {
        path.relative_to(ROOT / "kerasbert")
        for path in modules("kerasbert")
        if "kerasbert.classics" in path.read_text("utf-8")
    }
    assert {path.parts[0] for path in named} == {"classics", "cli", "registry.py"}


def test_nothing_in_kerasbert_imports_mobile():
    """The phone's side is built on the rest, never the other way."""
    wrong = [
        f"{path.name}: {name}"
        for path in modules("kerasbert")
        for name in imports(path)
        if (name + ".").startswith("kerasbert.mobile.") or name.split(".")[0] == "mobile"
    ]
    assert not wrong


def test_the_runtime_imports_text_and_the_bundle_alone():
    """What is on a phone is small: `mobile.runtime` -> answers, inputs, text, export.bundle, and registry for a plug-in."""
    wrong = []
    for path in modules("mobile/runtime"):
        for name in imports(path):
            below = part(name) in PHONE
            if name.startswith("kerasbert.") and not below and not name.startswith("kerasbert.mobile.runtime"):
                wrong.append(f"{path.name}: {name}")
    assert not wrong


@pytest.mark.parametrize("path", FREE)
def test_files_without_tensorflow(path):
    """These never import it when they are imported; the command lines do so only inside of functions."""
    assert not {name.split(".")[0] for name in imports(ROOT / path, top=True)} & HEAVY


@pytest.mark.parametrize("folder", ["kerasbert/layers", "kerasbert/models", "kerasbert/classics"])
def test_layers_and_models_are_keras_ops(folder):
    """Only layers/backend.py and its parts may import TensorFlow there."""
    wrong = [
        f"{path.name}: {name}"
        for path in modules(folder)
        if not path.name.startswith("backend")
        and path.name != "word_vectors.py"
        and path.parent.name != "objectives"  # of classics/, as kerasbert/objectives
        for name in imports(path)
        if name.split(".")[0] in HEAVY - {"keras"}
    ]
    assert not wrong


def test_optional_libraries_are_imported_inside_functions():
    """Pretraining from records runs where tensorflow-text is not installed: a TPU VM."""
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in [*modules("kerasbert"), *modules("mobile")]
        for name in imports(path, top=True)
        if name.split(".")[0] in LATE
    ]
    assert not wrong


PARTICULAR = ("masked_lm", "bert", "boundary", "shuffle")  # objectives; training knows `objectives.base` alone


def test_training_and_commands_know_no_particular_objective():
    """Only papers and other objectives do."""
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in [*modules("kerasbert"), *modules("mobile"), *modules("tpu_scripts")]
        if path.parent.name not in ("objectives", "models")
        for name in imports(path)
        if name.startswith(tuple(f"kerasbert.objectives.{objective}" for objective in PARTICULAR))
    ]
    assert not wrong


LIGHT = ("", ".text", ".export.bundle", ".mobile", ".mobile.cli", ".mobile.runtime")


@pytest.mark.parametrize("module", [f"kerasbert{name}" for name in LIGHT])
def test_import_brings_no_tensorflow(module):
    """In a process of its own: the module and no part of TensorFlow or Keras."""
    program = f"import sys, {module}; print(sorted({HEAVY!r} & set(sys.modules)))"
    assert python("-c", program).stdout.strip() == "[]"


def test_the_top_imports_only_the_standard_library():
    """`import kerasbert` costs nothing and needs nothing."""
    program = "import sys, kerasbert; print({m.split('.')[0] for m in sys.modules} - sys.stdlib_module_names - set(sys.argv[1:]))"
    bare = python(
        "-c", "import sys; print(*{m.split('.')[0] for m in sys.modules} - sys.stdlib_module_names)"
    ).stdout.split()
    assert python("-c", program, *bare, "__main__").stdout.strip() == "{'kerasbert'}"

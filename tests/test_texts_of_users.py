"""One reader for the texts of users: nothing else opens a file as text, read off the source. No TensorFlow."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import kerasbert as kb
from kerasbert.cli import parser as kerasbert_parser
from kerasbert.cli.parser import commands_of
from kerasbert.inputs import listed
from kerasbert.mobile.cli import parser as mobile_parser
from tests.support import ROOT

OURS = "a file of ours, which this package wrote or brings"
FORMAT = "a format of others that is UTF-8 by its definition; what does not decode is refused with the file"
# file -> why it opens text by itself; anything else reads through kerasbert/data/reading.py
TEXT = {
    "kerasbert/checkpoints/json_files.py": FORMAT,
    "kerasbert/checkpoints/keras_hub_tokenizers.py": FORMAT,
    "kerasbert/cli/guides.py": OURS,
    "kerasbert/cli/tables.py": "it writes the table of answers",
    "kerasbert/export/beside.py": OURS,
    "kerasbert/export/saved_model.py": OURS,
    "kerasbert/export/serve_check.py": OURS,
    "kerasbert/export/server/batching.py": OURS,
    "kerasbert/lab/plan.py": OURS,
    "kerasbert/lab/recipes.py": OURS,
    "kerasbert/lab/twin.py": OURS,
    "kerasbert/lab/work.py": OURS,
    "kerasbert/provenance.py": "the kernel's /proc/cpuinfo",
    "kerasbert/quickstart/books.py": OURS,
    "kerasbert/quickstart/journey.py": OURS,
    "kerasbert/quickstart/samples.py": OURS,
    "kerasbert/table.py": OURS,
    "kerasbert/testing/world.py": OURS,
    "kerasbert/retrieval/folder.py": OURS,
    "kerasbert/retrieval/mining.py": OURS,
    "kerasbert/storage/places.py": OURS,
    "kerasbert/text/lexicon.py": "UTF-8 alone, and refused otherwise: `text` lies below `data`",
    "kerasbert/training/checkpoints.py": OURS,
    "kerasbert/training/on_task.py": OURS,
    "kerasbert/training/precision.py": "the kernel's /proc/cpuinfo",
    "kerasbert/training/recipe.py": "YAML, which is UTF-8",
    "kerasbert/training/runs.py": OURS,
    "mobile/launch_times.py": "the kernel's /proc/self/status",
    "mobile/native/android.py": OURS,
    "mobile/native/build.py": OURS,
    "mobile/native/npm.py": OURS,
    "mobile/native/page.py": OURS,
    "mobile/native/swift.py": OURS,
    "mobile/pipeline/ledger.py": OURS,
    "mobile/pipeline/plan.py": OURS,
    "mobile/quantize/aware_training.py": OURS,
    "mobile/testing.py": "the rows of a test's own data",
}
GIVEN = "a text that was given as bytes, not a file: every tokenizer and graph replaces what is not UTF-8"
# file -> why bytes that do not decode become replacement characters there
REPLACED = {
    "kerasbert/testing/tokenizers.py": "what invalid bytes must be read as",
    "kerasbert/answers/choice.py": GIVEN,
    "kerasbert/answers/tags.py": GIVEN,
    "kerasbert/blanks.py": GIVEN,
    "kerasbert/checkpoints/vector_text.py": "a line in an error message",
    "kerasbert/data/reading.py": "a line of the standard input, which is counted and told",
    "kerasbert/export/card_requests.py": "an answer for a reader",
    "kerasbert/export/client_grpc.py": "an answer of a server, which is UTF-8 of ours",
    "kerasbert/export/model_card.py": "the head of a README, of which the licence is read",
    "kerasbert/export/serve_check.py": "a damaged list of sums, whose lines are then missed",
    "kerasbert/export/server/examples.py": "an answer, of which json has no bytes",
    "kerasbert/export/server/rpc.py": "the sentence of a status, which gRPC sends as UTF-8",
    "kerasbert/export/server/loaded.py": "a sentence of TensorFlow's that quotes a caller's bytes",
    "kerasbert/export/server/json_arrays.py": "an answer, of which json has no bytes",
    "kerasbert/tasks/choice.py": GIVEN,
    "kerasbert/tasks/task.py": "a hash",
    "kerasbert/tasks/tokens.py": GIVEN,
    "kerasbert/text/base.py": GIVEN,
    "kerasbert/text/bert_words.py": GIVEN,
    "kerasbert/text/bpe.py": "pieces of bytes, of which a text may hold half a character",
    "kerasbert/text/bpe_graph.py": GIVEN,
    "kerasbert/text/graph.py": GIVEN,
    "kerasbert/text/metaspace_bpe.py": "pieces of bytes, of which a text may hold half a character",
    "kerasbert/text/train_bpe.py": "half of a surrogate pair",
    "kerasbert/text/unigram.py": "pieces of bytes, of which a text may hold half a character",
    "kerasbert/text/unigram_graph.py": GIVEN,
    "kerasbert/text/wordpiece_graph.py": GIVEN,
    "kerasbert/text/words_graph.py": GIVEN,
    "mobile/golden.py": GIVEN,
    "kerasbert/captured_output.py": "what a library printed",
    "mobile/tensor_names.py": "a name that only tools read",
    "mobile/runtime/stored_index.py": "half of a surrogate pair; a damaged file",
    "mobile/runtime/native/__init__.py": "a message of the C core",
}


def sources() -> list[Path]:
    return sorted(path for folder in ("kerasbert", "mobile") for path in (ROOT / folder).rglob("*.py"))


def calls(path: Path) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call))


def called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def constants(call: ast.Call) -> dict[str | int, object]:
    """Number or name of an argument -> its value, where it is a constant."""
    found: dict[str | int, object] = {i: getattr(each, "value", ...) for i, each in enumerate(call.args)}
    return found | {each.arg or "": getattr(each.value, "value", ...) for each in call.keywords}


def opens_text(call: ast.Call) -> tuple[bool, bool]:
    """Whether a call opens a file as text, and whether it names the encoding."""
    name, given = called(call), constants(call)
    if name in ("read_text", "write_text"):
        of_path = isinstance(call.func, ast.Attribute)  # a function of that name is something else
        place = 0 if name == "read_text" else 1
        return of_path, place in given or "encoding" in given
    if name == "TextIOWrapper":
        return True, 1 in given or "encoding" in given
    if name in ("open", "fdopen"):
        if isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") not in ("io", "codecs"):
            mode = given.get(0 if name == "open" else 1, given.get("mode", "r"))  # Path.open; os.fdopen
            if getattr(call.func.value, "id", "") == "os" and name == "open":
                return False, True
        else:
            mode = given.get(1, given.get("mode", "r"))
        return isinstance(mode, str) and "b" not in mode and set(mode) <= set("rwax+t"), "encoding" in given
    return False, True


def test_nothing_but_the_reader_opens_text():
    """Six commands read text by themselves: packed files and code pages gave answers on garbage, with status 0."""
    found, without = set(), []
    for path in sources():
        name = str(path.relative_to(ROOT))
        for call in calls(path):
            text, encoded = opens_text(call)
            if text:
                found.add(name)
                if not encoded:
                    without.append(f"{name}:{call.lineno}")
    assert without == [], "a file is opened as text without an encoding"
    assert found == TEXT.keys()


def test_bytes_are_replaced_only_where_it_is_said_why():
    found = set()
    for path in sources():
        for call in calls(path):
            name, given = called(call), constants(call)
            errors = given.get("errors", given.get(1) if name in ("decode", "encode") else None)
            if errors in ("replace", "ignore", "surrogateescape", "backslashreplace"):
                found.add((str(path.relative_to(ROOT)), errors))
    ignoring = {name for name, errors in found if errors != "replace"}
    # to show a word's bytes; to look at the head of a file; the head of a sentence; to hash texts
    shown = ("checkpoints/vector_text", "data/reading", "export/server/rpc", "tasks/token_cache", "testing/tokenizers")
    assert ignoring == {f"kerasbert/{name}.py" for name in shown}
    assert {name for name, errors in found if errors == "replace"} == REPLACED.keys()


@pytest.mark.parametrize(
    ("line", "text", "encoded"),
    [
        ("open(p)", True, False),
        ("open(p, 'rb')", False, False),
        ("open(p, encoding='utf-8')", True, True),
        ("p.open()", True, False),
        ("p.open('rb')", False, False),
        ("Path(p).read_text()", True, False),
        ("p.read_text('utf-8')", True, True),
        ("io.open(p, 'w')", True, False),
        ("os.open(p, os.O_RDONLY)", False, True),
        ("archive.open(entry)", False, False),
        ("read_text(p, file)", False, True),
    ],
)
def test_the_test_sees_what_opens_text(line, text, encoded):
    (call,) = (node for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Call) and called(node) != "Path")
    assert opens_text(call)[0] == text
    if text:
        assert opens_text(call)[1] == encoded


NO_FILES = {  # commands that read no text of a user
    "kerasbert": {
        "quickstart",
        "samples",
        "docs",
        "list",
        "show",
        "check-tpu",
        "report",
        "pretrain",
        "replay",
        "import",
        "export",
        "serve-check",
        "nearest",
        "serve",
        "static",
    },
    "kerasbert-mobile": {"verify", "inspect"},
}


@pytest.mark.parametrize(("name", "make"), [("kerasbert", kerasbert_parser), ("kerasbert-mobile", mobile_parser)])
def test_every_command_that_reads_texts_takes_their_encoding(name, make):
    without = {
        command for command, parser in commands_of(make()).items() if "--encoding" not in parser._option_string_actions
    }
    assert without <= NO_FILES[name] | {"export-checkpoint"}


LISTS = {  # parameters of lists of texts or paths: one by itself is a list of one
    "encode.texts predict.texts explain.texts fill_mask.texts zero_shot.texts search.texts similarity.texts",
    "similarity.others train_tokenizer.files write_records.files finetune.freeze finetune_tasks.freeze pretrain.freeze",
    "import_checkpoint.ignore",
}
OTHER = {  # lists of something else, or where one str means another thing
    "finetune.callbacks",
    "finetune_tasks.callbacks",
    "finetune_tasks.tasks",  # pairs of a task and its data
    "load.labels",  # one str is names with commas between them
    "grid.grid",  # values of options
    "predict.model",  # one is a model by itself, several answer together
    "pretrain.phases",
    # one str is names with commas between them
    *(
        f"{name}.{names}"
        for name in ("finetune", "finetune_tasks")
        for names in ("columns", "depths", "dims", "label_column", "label_names")
    ),
    "zero_shot.labels",  # one label has nothing to be compared with, and is refused
}


def test_every_public_list_of_texts_or_paths_is_known():
    """`kb.write_records("corpus.txt", ...)` took the path apart: "no file c". A new parameter has to be decided on."""
    found = set()
    for name in kb.__all__:
        if inspect.isfunction(public := getattr(kb, name)):
            signature = inspect.signature(public)
            found |= {
                f"{name}.{each.name}" for each in signature.parameters.values() if "Sequence[" in str(each.annotation)
            }
    assert found == {each for line in LISTS for each in line.split()} | OTHER


def test_one_text_is_a_list_of_one():
    path = Path("a.txt")
    assert (listed("abc"), listed(b"abc"), listed(path)) == (["abc"], [b"abc"], [path])
    assert listed(["a", "b"]) == ["a", "b"]
    assert listed(None) is None

"""Places where something of another user lies: what may not be replaced or read is told before the work."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from kerasbert.cli import outputs
from kerasbert.cli.parser import command_line, commands_of
from kerasbert.errors import InputError
from kerasbert.retrieval.folder import about
from kerasbert.storage import aside, files, places
from kerasbert.storage.aside import claimed
from kerasbert.training.checkpoints import Checkpoints

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root becomes another user"),
]
NOBODY = 65534
CLOSED = "what {} holds may not be deleted (Permission denied). Choose another place"


def told(call: Callable[..., object], *arguments: object, **options: object) -> str:
    """What a user who is not root is told of a call; "" where it does what it should."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            aside._claims.set(frozenset())  # those are the parent's
            call(*arguments, **options)
        except BaseException as error:
            os.write(
                writer, f"{'' if isinstance(error, InputError) else type(error).__name__} {error}".strip().encode()
            )
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as file:
        said = file.read()
    os.waitpid(child, 0)
    return said


def _entered() -> Path:
    """A folder for temporary files that another user may enter: TMPDIR may lie within one of root's alone."""
    for place in map(Path, (tempfile.gettempdir(), "/tmp", "/var/tmp")):
        if place.is_dir() and all(each.stat().st_mode & 0o001 for each in (place, *place.resolve().parents)):
            return place
    pytest.skip("no folder for temporary files that another user may enter")


@pytest.fixture(params=[0o1777, 0o777], ids=["sticky", "shared"])
def common(request) -> Iterator[Path]:
    """A folder where everybody may write, with an index and a file of vectors of root's. pytest's own is closed to others."""
    folder = Path(os.path.realpath(tempfile.mkdtemp(dir=_entered())))
    with files.new_directory(folder / "index") as new:
        (new / "index.json").write_text("{}")
    (folder / "x.tflite").write_bytes(b"1234TFL3 bundle.json")
    (folder / "empty").mkdir()
    folder.chmod(request.param)
    yield folder
    shutil.rmtree(folder)


def test_what_another_user_owns_is_not_replaced(common):
    """In /tmp that came after the work; elsewhere the folder that was replaced stayed as `.index.TOKEN.kerasbert-gone`."""
    sticky = bool(common.stat().st_mode & 0o1000)
    before = sorted(common.rglob("*"))
    owner = "it is another user's, and in {} only its owner may. Choose another place"
    said = told(places.check_folder, common / "index", True)
    reason = owner.format(common) if sticky else CLOSED.format(common / "index")
    assert said == f"cannot replace {common / 'index'}: {reason}"
    for call in ((places.check_file, common / "x.tflite", True, "tflite"), (places.check_folder, common / "empty")):
        assert told(*call) == (f"cannot replace {call[1]}: {owner.format(common)}" if sticky else "")
    assert told(places.check_folder, common / "mine", True) == ""
    assert sorted(common.rglob("*")) == before


def test_a_folder_within_that_is_closed_keeps_the_whole(common):
    os.chown(common / "index", NOBODY, NOBODY)
    assert told(places.check_folder, common / "index", True) == ""
    (common / "index" / "cache").mkdir(mode=0o700)
    reason = CLOSED.format(common / "index" / "cache")
    assert told(places.check_folder, common / "index", True) == f"cannot replace {common / 'index'}: {reason}"


def test_another_user_writes_there(common):
    """Its claim's file may be read, not written."""
    with claimed(common / "new"):
        assert f"{common / 'new'} is being written by another process" in told(claimed(common / "new").__enter__)
    assert told(claimed(common / "new").__enter__) == ""


def test_a_folder_that_is_closed_lacks_no_space(common):
    common.chmod(0o755)
    said = f"cannot write {common / 'x.json'}: Permission denied. Choose another place"
    assert told(files.write_json, common / "x.json", {}) == said


@pytest.mark.parametrize(
    "name", ["model/model.json", "model/weights.safetensors", "model/tokenizer", "model", "rows.csv"]
)
def test_what_may_not_be_read_is_told_first(common, name):
    """Weights came after TensorFlow's import; a folder that is closed was taken for one that is not there."""
    (common / "model" / "tokenizer").mkdir(parents=True)
    for each in ("model/model.json", "model/weights.safetensors", "rows.csv"):
        (common / each).write_text("x")
    module = type(
        "Module",
        (),
        {"add": staticmethod(lambda declare: declare("do", print, "does").add_argument("m", metavar="DIR"))},
    )
    command = commands_of(command_line("p", "d", {"do": "p do"}, [module]))["do"]
    for each, closed in ((common / name, 0o000), *(((common / name, 0o666),) if (common / name).is_dir() else ())):
        asked = command.parse_args([str(common / name.split("/")[0])])
        assert told(outputs.checked(command, asked).__enter__) == ""
        mode = each.stat().st_mode
        each.chmod(closed)
        assert told(outputs.checked(command, asked).__enter__) == f"cannot read {each}: Permission denied"
        each.chmod(mode)


def test_an_index_that_may_not_be_read_is_not_damaged(common):
    """It was told to be built again."""
    (common / "index" / "index.json").chmod(0o600)
    assert told(about, common / "index") == f"cannot read {common / 'index' / 'index.json'}: Permission denied"


def test_a_checkpoint_that_may_not_be_read_is_not_damaged(common):
    """The one before was taken, and the next save deleted it."""
    for step in (1, 2):
        Checkpoints(common / "run").save(step, {"weights": {"w": np.zeros(2, "float32")}}, {})
    newest = common / "run" / "checkpoints" / "step_2" / "weights.safetensors"
    newest.chmod(0o600)
    assert told(Checkpoints(common / "run").latest) == f"cannot read {newest}: Permission denied"

"""What Keras and TensorFlow import of others stays out until it is used, and is there then."""

import gc
import importlib
import os
import re
import sys
import tempfile
import types

import pytest

from kerasbert import light_imports
from kerasbert.cli.parser import failure
from kerasbert.errors import InputError
from kerasbert.storage import files
from tests.support import python


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A package with a module that is run later and one that asks for a library, and a finder that knows both."""
    sources = {
        "slow": "import sys\nsys.slow_runs.append(1)\nname = 'here'\n",
        "failing": "import sys\nsys.slow_runs.append(1)\nraise ImportError('no such library')\n",
        "asking": "try:\n    from jax import jit as _jit\nexcept ImportError:\n    _jit = None\n",
    }
    (tmp_path / "outer").mkdir()
    (tmp_path / "outer" / "__init__.py").touch()
    for name, source in sources.items():
        (tmp_path / "outer" / f"{name}.py").write_text(source)
    (tmp_path / "jax.py").write_text("def jit(x):\n    return x + 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "slow_runs", [], raising=False)
    monkeypatch.setattr(light_imports, "LATER", ("outer.slow", "outer.failing"))
    monkeypatch.setattr(light_imports, "WITHOUT_JAX", {"outer.asking": ""})
    monkeypatch.setattr(sys, "meta_path", [light_imports.Light(), *sys.meta_path])
    held = sys.modules.pop("jax", None)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("outer", "jax")]:
        del sys.modules[name]
    if held is not None:
        sys.modules["jax"] = held


def test_a_module_is_run_when_a_name_of_it_is_asked_for(modules):
    from outer import slow  # pyright: ignore[reportMissingImports]

    assert slow.__file__ == str(modules / "outer" / "slow.py")
    assert not hasattr(slow, "__warningregistry__")  # what goes through sys.modules asks for such names
    assert sys.slow_runs == []
    assert slow.name == "here"
    assert not hasattr(slow, "other")
    assert "name" in dir(slow)
    assert sys.slow_runs == [1]


def test_its_names_can_be_imported_and_listed(modules):
    from outer.slow import name  # pyright: ignore[reportMissingImports]

    assert name == "here"
    del sys.modules["outer.slow"]
    assert "name" in dir(importlib.import_module("outer.slow"))


def test_a_mistake_in_it_is_raised_each_time(modules):
    failing = importlib.import_module("outer.failing")
    for _ in range(2):
        with pytest.raises(ImportError, match="no such library"):
            _ = failing.name
    assert sys.slow_runs == [1, 1]


def test_jax_is_imported_by_the_first_call(modules):
    asking = importlib.import_module("outer.asking")
    assert "jax" not in sys.modules
    assert asking._jit(1) == 2
    assert "jax" in sys.modules


def test_jax_that_is_imported_already_is_taken_as_ever(modules):
    jax = importlib.import_module("jax")
    assert importlib.import_module("outer.asking")._jit is jax.jit


def test_where_a_library_needs_jax_or_jax_is_not_installed_nothing_changes(modules, monkeypatch):
    monkeypatch.setattr(light_imports, "WITHOUT_JAX", {"outer.asking": "outer.slow"})
    assert importlib.import_module("outer.asking")._jit is importlib.import_module("jax").jit
    del sys.modules["outer.asking"], sys.modules["jax"]
    (modules / "jax.py").unlink()
    importlib.invalidate_caches()
    monkeypatch.setattr(light_imports, "WITHOUT_JAX", {"outer.asking": ""})
    monkeypatch.setattr(light_imports, "_installed", lambda name: False)
    monkeypatch.setitem(sys.modules, "jax", None)
    assert importlib.import_module("outer.asking")._jit is None


@pytest.mark.slow
def test_training_is_imported_without_them_and_keras_has_what_it_had(tmp_path):
    """Each library is a file that says its name when it is imported; Keras does without it then."""
    for name in ("sklearn", "matplotlib", "jax"):
        (tmp_path / f"{name}.py").write_text(f"print('{name}')\nraise ImportError('a stand-in')\n")
    lines = [
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})",
        "import kerasbert.training.finetune, keras; print('begun')",
        "print(keras.wrappers.SKLearnClassifier.__name__, keras.visualization.plot_image_gallery.__name__)",
        "from tensorflow.lite.python.lite import _jit",
        "try: _jit(len)\nexcept ImportError as error: print(error)",
    ]
    said = python("-c", "\n".join(lines)).stdout.split()
    assert said[0] == "begun"
    assert {"sklearn", "matplotlib", "SKLearnClassifier", "plot_image_gallery"} <= set(said)
    assert said[-3:] == ["jax", "a", "stand-in"]


def test_a_library_that_somebody_forbids_is_not_installed(monkeypatch):
    class Forbids:
        def find_spec(self, name, path=None, target=None):
            if name == "forbidden":
                raise ModuleNotFoundError(name)

    monkeypatch.setattr(sys, "meta_path", [Forbids(), *sys.meta_path])
    monkeypatch.setitem(sys.modules, "nobody", None)
    assert [light_imports._installed(name) for name in ("forbidden", "nobody", "json")] == [False, False, True]


def test_no_garbage_is_looked_for_while_they_are_imported(modules, monkeypatch):
    (modules / "great.py").write_text("import gc, inner\nenabled = gc.isenabled()\n")
    (modules / "inner.py").write_text("import gc\nenabled = gc.isenabled()\nraise ImportError('no such library')\n")
    monkeypatch.setattr(light_imports, "UNCOLLECTED", ("great", "inner"))
    frozen = gc.get_freeze_count()
    with pytest.raises(ImportError, match="no such library"):
        importlib.import_module("great")
    (modules / "inner.py").write_text("import gc\nenabled = gc.isenabled()\n")
    importlib.invalidate_caches()
    great = importlib.import_module("great")
    assert (great.enabled, great.inner.enabled, gc.isenabled()) == (False, False, True)
    assert gc.get_freeze_count() == frozen  # of a process that does other things too
    for name in ("great", "inner"):
        del sys.modules[name]


@pytest.mark.parametrize(
    ("machine", "said", "found"), [("x86_64", None, "1"), ("x86_64", "0", "0"), ("arm64", None, None)]
)
def test_tensorflow_multiplies_by_onednn_on_x86_where_nobody_forbids_it(monkeypatch, machine, said, found):
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(os, "environ", {} if said is None else {light_imports.ONEDNN: said})
    seen = []
    for name in ("keras", "tensorflow"):
        light_imports._uncollected(types.ModuleType(name), lambda _: seen.append(os.environ.get(light_imports.ONEDNN)))
    assert seen == [said, found]


def test_a_command_looks_through_nothing_that_was_imported_and_nothing_at_its_end(tmp_path):
    (tmp_path / "great.py").write_text("held = [[] for _ in range(100_000)]\n")
    lines = [
        "import gc, sys",
        f"sys.path.insert(0, {str(tmp_path)!r})",
        "from kerasbert import light_imports",
        "from kerasbert.cli import main",
        "light_imports.UNCOLLECTED = ('great',)",
        "sys.argv = ['kerasbert', 'show', 'bert/tiny', '--json']",
        "assert main() == 0 and gc.isenabled() and gc.get_freeze_count() == 0",
        "import great",
        "print('frozen', gc.isenabled(), gc.get_freeze_count() > 100_000)",
        "class Late:",
        "    def __del__(self): print('looked through')",
        "late = Late()",
        "late.itself = late",
        "del late",
    ]
    assert python("-c", "\n".join(lines)).stdout.splitlines()[-1] == "frozen True True"


def test_without_a_place_for_temporary_files_tensorflow_is_not_imported(monkeypatch):
    """A container that is read only: its import takes seconds before it fails so, of `the current folder`."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nowhere/tmp", "/nowhere"])
    with pytest.raises(FileNotFoundError, match="No usable temporary directory") as raised:
        light_imports._uncollected(sys, lambda module: pytest.fail("it was run"))
    line = (
        "no folder for temporary files can be written, of ['/nowhere/tmp', '/nowhere']: free space there or name another "
        "by TMPDIR"
    )
    assert failure(raised.value) == (line, 2)
    with pytest.raises(InputError, match=f"^{re.escape(line)}$"), files.writing("out"):
        raise raised.value

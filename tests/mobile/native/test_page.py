"""The page of one file, without a browser: what is in it, and what is refused."""

import base64
import gzip
import json
import re
import shutil
import sys

import pytest

import kerasbert
from kerasbert.errors import InputError
from kerasbert.mobile.native import build, npm, page
from kerasbert.mobile.runtime import native
from tests.mobile.native.test_answers import made
from tests.mobile.native.tokenizers import SMALL, files

NAMES = {
    "core/dist/index.js": b'import { createWasmLib } from "@litertjs/wasm-utils";',
    "wasm-utils/dist/index.js": b"export { createWasmLib };",
    f"core/wasm/{page.INTERPRETER}.js": b"var ModuleFactory;",
    f"core/wasm/{page.INTERPRETER}.wasm": b"\0asm",
}


@pytest.fixture
def litert(tmp_path):
    """A folder such as npm's, with other contents."""
    for name, content in NAMES.items():
        path = tmp_path / "node_modules" / "@litertjs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path


def held(text: str, name: str) -> bytes:
    """What the page holds under an id."""
    found = re.search(f'id="{name}">([^<]*)<', text)
    assert found
    return gzip.decompress(base64.b64decode(found[1])) if found[1] else b""


def test_everything_is_in_the_page(litert):
    model = b"flatbuffer" + made("classification", files(SMALL["wordpiece"]())).to_zip()
    text = page.page(litert, b"core", model)
    assert {name: held(text, name) for name in ("core", "interpreter", "wasm", "model")} == {
        "core": b"core",
        "interpreter": b"var ModuleFactory;",
        "wasm": b"\0asm",
        "model": model,
    }
    imports = json.loads(re.search('type="importmap">(.*)</script>', text)[1])["imports"]
    scripts = {name: base64.b64decode(address.partition(",")[2]) for name, address in imports.items()}
    assert scripts["@litertjs/core"] == NAMES["core/dist/index.js"]
    assert scripts["kerasbert"] == (page.FOLDER / "kerasbert.js").read_bytes()
    asked = {
        name for script in scripts.values() for name in re.findall(rb'^import .* from "(.*)";', script, re.MULTILINE)
    }
    assert {name.decode() for name in asked} <= imports.keys()
    assert "/*" not in re.sub(r'base64,[^"]*|[ (]/\*.*?\*/', "", text)
    assert re.findall(r'(?:src|href)="', text) == []
    assert held(page.page(litert, b"core"), "model") == b""
    assert text == page.page(litert, b"core", model)


def test_bad_input_is_one_line(litert, tmp_path, monkeypatch, capsys):
    with pytest.raises(InputError, match="Expected a .tflite file written by kerasbert-mobile compress"):
        page.page(litert, b"core", b"no model")
    with pytest.raises(InputError, match="index.js is not there, expected LiteRT.js: npm install --prefix"):
        page.page(tmp_path / "none", b"core")
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)
    monkeypatch.setitem(sys.modules, "ziglang", None)
    with pytest.raises(InputError, match="no compiler for WebAssembly: pip install ziglang"):
        build.build(tmp_path / "x.wasm")
    arguments = ["page", "--litert", str(litert), "--out", str(tmp_path / "x.html")]
    for more, said in (
        ([], "no compiler for WebAssembly"),
        (["--model", str(tmp_path / "none")], "none: No such file or directory"),
    ):
        monkeypatch.setattr("sys.argv", arguments + more)
        assert page.main() == 2
        assert said in capsys.readouterr().err


def test_the_npm_package(tmp_path, monkeypatch, capsys):
    """One version; every file that it imports is in it; an existing folder is not overwritten."""
    monkeypatch.setattr(build, "build", lambda path: path.write_bytes(b"\0asm"))
    monkeypatch.chdir(tmp_path)
    for out, place in ((str(tmp_path / "a b"), f"'{tmp_path / 'a b'}'"), ("package", "./package")):
        monkeypatch.setattr("sys.argv", ["npm", "--out", out])
        assert npm.main() == 0
        assert f"npm install {place} @litertjs/core" in capsys.readouterr().out  # a bare name is of npm's registry
    settings = json.loads((tmp_path / "package" / "package.json").read_text())
    assert settings["version"] == kerasbert.__version__
    names = {path.name for path in (tmp_path / "package").iterdir() if not path.name.startswith(".")}
    assert names == {*npm.SCRIPTS, "kerasbert.wasm", "package.json"}
    told = [settings["imports"]["#platform"], *settings["exports"].values()]
    addresses = [each for one in told for each in (one.values() if isinstance(one, dict) else (one,))]
    for name in npm.SCRIPTS:
        text = (tmp_path / "package" / name).read_text()
        addresses += re.findall(r'(?:from|new URL\()\s*"(\./[^"]*)"', text)
        others = set(re.findall(r'^import .* from "([^."][^"]*)"', text, re.MULTILINE))
        assert {each for each in others if not each.startswith("node:")} <= {"#platform", *settings["peerDependencies"]}
    assert {address.removeprefix("./") for address in addresses} <= names
    exported = set(
        re.findall(r"^export (?:async )?(?:class|function) (\w+)", (page.FOLDER / "index.js").read_text(), re.MULTILINE)
    )
    typed = set(re.findall(r"^export (?:class|function) (\w+)", (page.FOLDER / "index.d.ts").read_text(), re.MULTILINE))
    assert typed - exported == {"CoreError"}  # of kerasbert.js, given on
    assert exported <= typed
    assert npm.main() == 2
    assert "exists" in capsys.readouterr().err


def test_every_function_of_the_header_is_exported(monkeypatch):
    """Those that ctypes calls, what tells an app the names of the signatures, and a runner, which a browser has of LiteRT.js."""
    runner = {name for name in build.exported() if name.startswith("kb_runner")}
    others = {"kb_model_settings", "kb_rows_result", "kb_detokenize"}
    others |= {name for name in build.exported() if name.startswith(("kb_index", "kb_writing"))}
    assert set(build.exported()) - runner == {*native._SIGNATURES, *others}
    assert {"kb_runner_open", "kb_runner_answer", "kb_runner_cancel"} < runner
    monkeypatch.setattr(shutil, "which", lambda name, **_: name)
    command = " ".join(build.command("x.wasm"))
    assert "--export=kb_answer " in command
    assert "--export=kb_index_nearest " in command
    assert "kb_index_open_file" not in command  # WebAssembly has no files
    assert "kb_runner" not in command
    assert "--export" not in " ".join(build.command("x.so"))

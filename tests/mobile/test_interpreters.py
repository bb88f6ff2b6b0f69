"""Interpreters other than the usual one: without CompiledModel, tflite-runtime, and versions that compute wrongly."""

import dataclasses

import numpy as np
import pytest

from kerasbert.errors import InputError
from tests.mobile.conftest import TEXTS
from tests.support import python


def test_plain_interpreter_gives_the_same(float_file):
    from ai_edge_litert.interpreter import Interpreter

    from kerasbert.mobile.runtime import load
    from kerasbert.mobile.runtime.interpreters import Plain

    runner = load(float_file[0], cache=False)
    plain = Plain(Interpreter, "plain", float_file[0], runner.bundle, 1)
    expected = runner.outputs(TEXTS)
    runner.model = plain
    np.testing.assert_allclose(runner.outputs(TEXTS), expected, atol=1e-6)


def test_a_size_that_is_found_while_it_is_computed_is_refused(any_file):
    """Of a file of any length: CompiledModel makes a buffer of one token, behind which the others were written."""
    from kerasbert.mobile.runtime import load
    from kerasbert.mobile.runtime.interpreters import Compiled

    class Late:
        def __getattr__(self, name):
            return lambda *_: {"logits": {"shape": [1, 1, 2]}} if name == "get_output_tensor_details" else 0

    model = Compiled.__new__(Compiled)
    model.model, model.bundle, model.output = Late(), load(any_file[0], cache=False).bundle, "logits"
    model.bundle = dataclasses.replace(model.bundle, kind="span", inputs=())
    model.signatures = {"any_length": {"inputs": []}}
    with pytest.raises(InputError, match="expected one that follows from 7 tokens: compress with --lengths"):
        model._prepare("any_length", 7)
    model.model = None


def test_a_delegate_that_is_none_is_one_line(int8_file, tmp_path):
    from kerasbert.mobile.runtime import load

    names = r"xnnpack \(the processor\), gpu, npu \(LiteRT's accelerators\) or the file of a TFLite delegate"
    with pytest.raises(InputError, match=rf"no delegate 'nnapi'\. All: {names}"):
        load(int8_file[0], delegate="nnapi")
    with pytest.raises(InputError, match=rf"no delegate .*none.so: expected {names}"):
        load(int8_file[0], delegate=str(tmp_path / "none.so"))
    for content, said in ((b"text", "file too short|invalid ELF|not a mach-o|not valid"),):
        (tmp_path / "text.so").write_bytes(content)
        with pytest.raises(InputError, match=f"text.so is no TFLite delegate that can be loaded: .*({said})"):
            load(int8_file[0], delegate=str(tmp_path / "text.so"))


def test_an_accelerator_without_a_library_is_refused(int8_file, tmp_path, monkeypatch):
    """LiteRT would leave all of the network to the processor, and say nothing."""
    import ai_edge_litert

    from kerasbert.mobile.runtime import load

    (tmp_path / "libLiteRtWebGpuAccelerator.so").write_bytes(b"text")  # nothing to load
    monkeypatch.setattr(ai_edge_litert, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(InputError, match="gpu does not run .*: LiteRT has no such accelerator here"):
        load(int8_file[0], delegate="gpu")


@pytest.mark.parametrize(
    ("delegate", "whole", "runs"),
    [("gpu", True, True), ("gpu", False, True), ("npu", True, True), ("npu", False, False)],
)
def test_what_an_accelerator_leaves_is_told_or_refused(float_file, monkeypatch, capsys, delegate, whole, runs):
    """A GPU leaves the look-up of embeddings to the processor, and says so; a neural processor takes all or nothing."""
    from kerasbert.mobile.runtime import interpreters, load

    class Accelerated(interpreters.Compiled):
        closed = 0

        def __init__(self, path, bundle, threads, place, accelerators):
            super().__init__(path, bundle, threads, place)
            monkeypatch.setattr(self, "model", Whole(self.model))

        def close(self):
            Accelerated.closed += 1

    class Whole:
        def __init__(self, model):
            self._model = model

        def __getattr__(self, name):
            return getattr(self._model, name)

        def is_fully_accelerated(self):
            return whole

    monkeypatch.setattr(interpreters, "Compiled", Accelerated)
    monkeypatch.setattr(interpreters.delegates, "registered", lambda _: True)
    if not runs:
        with pytest.raises(InputError, match=f"{delegate} does not run .*does not take the network"):
            load(float_file[0], cache=False, delegate=delegate)
        assert Accelerated.closed == 1
        return
    runner = load(float_file[0], cache=False, delegate=delegate)
    assert runner.model.name.endswith(f", {delegate}")
    assert runner(TEXTS) == load(float_file[0], cache=False, delegate="xnnpack")(TEXTS)
    said = f"{delegate} leaves some operators of {float_file[0]} to the processor\n"
    assert capsys.readouterr().err == ("" if whole else said)


DELEGATE = """
#include <stdint.h>
#include <string.h>
typedef struct Delegate {
  void *data; int (*prepare)(void *, struct Delegate *); void *calls[3]; int64_t flags; void *opaque;
} Delegate;
static Delegate made;
static int none(void *context, Delegate *delegate) { (void)context, (void)delegate; return 0; }
void *tflite_plugin_create_delegate(char **keys, char **values, size_t count, void (*report)(const char *)) {
  (void)keys, (void)values, (void)count, (void)report;
#ifdef ABSENT
  report("no such chip");
  return 0;
#endif
  memset(&made, 0, sizeof made);
  made.prepare = none;
  return &made;
}
void tflite_plugin_destroy_delegate(void *delegate) { (void)delegate; }
"""


@pytest.mark.slow
def test_the_delegate_of_a_library_takes_something_or_is_refused(int8_file, tmp_path, monkeypatch):
    import shutil
    import subprocess

    from kerasbert.mobile.runtime import load

    compiler = shutil.which("cc")
    assert compiler
    monkeypatch.chdir(tmp_path)
    (tmp_path / "delegate.c").write_text(DELEGATE)
    for flags, said in (([], "it takes none of its operators"), (["-DABSENT"], "can be loaded: no such chip")):
        out = tmp_path / f"d{len(flags)}.so"
        command = [compiler, "-shared", "-fPIC", *flags, "-include", "stddef.h", "-o", out, tmp_path / "delegate.c"]
        subprocess.run(command, check=True)
        for delegate in (str(out), out.name):
            with pytest.raises(InputError, match=f"{out.name} .*{said}"):
                load(int8_file[0], cache=False, delegate=delegate)


STAND_IN = """
import numpy as np
class Interpreter:
    def __init__(self, **k): pass
    def get_signature_list(self): return {f"length_{n}": None for n in (8, 12, 24)}
    def get_signature_runner(self, name): return Runner(int(name.split("_")[1]))
class Runner:
    def __init__(self, length): self.length = length
    def get_input_details(self):
        names = ("token_ids", "padding_mask", "segment_ids")
        return {name: {"shape_signature": np.array([1, self.length]), "dtype": np.int32} for name in names}
    def get_output_details(self):
        return {"probabilities": {"shape_signature": np.array([1, 3]), "dtype": np.float32}}
"""


def test_tflite_runtime_is_refused_for_int8(float_file, int8_file, tmp_path):
    """With only tflite-runtime installed (here: a stand-in), dynamic int8 is an error and float32 runs."""
    (tmp_path / "ai_edge_litert").mkdir()
    (tmp_path / "ai_edge_litert/__init__.py").write_text("raise ImportError('not here')")
    (tmp_path / "tflite_runtime").mkdir()
    (tmp_path / "tflite_runtime/__init__.py").write_text("")
    (tmp_path / "tflite_runtime/interpreter.py").write_text(STAND_IN)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from kerasbert.mobile.runtime import load\n"
        f"print(load({str(float_file[0])!r}).model.name)\n"
        f"load({str(int8_file[0])!r})\n"
    )
    done = python("-c", code, check=False)
    assert done.stdout == "tflite-runtime Interpreter\n"
    assert "only tflite-runtime is installed" in done.stderr


@pytest.mark.parametrize("installed", ["2.0.2", "2.1.2", "unknown"])
def test_a_litert_that_computes_int8_activations_wrongly_is_refused(float_file, tmp_path, monkeypatch, installed):
    """2.0.2 to 2.1.2 give other labels to a third of the texts or more; test_litert_versions.py runs 2.1.2."""
    import ai_edge_litert

    from kerasbert.export import bundle
    from kerasbert.mobile.runtime import load

    data, found = float_file[0].read_bytes(), bundle.read(float_file[0])
    front, path = data[: -len(found.to_zip())], tmp_path / "x.tflite"
    monkeypatch.setattr(ai_edge_litert, "__version__", installed)
    for kind in ("static_int8", "full_int8"):
        path.write_bytes(front + dataclasses.replace(found, quantization=kind, litert="2.1.3").to_zip())
        text = f"is {kind}, which ai-edge-litert {installed} computes wrongly, expected at least 2.1.3"
        with pytest.raises(InputError, match=text):
            load(path, cache=False)
    assert load(float_file[0], cache=False)(["a good film"])
    monkeypatch.setattr(ai_edge_litert, "__version__", "2.1.3")
    assert load(path, cache=False)(["a good film"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"threads": 0}, "threads is 0, expected 1 to 256"),
        ({"threads": 257}, "threads is 257, expected 1 to 256"),
        ({"windows": 0}, "windows is 0, expected at least 1"),
        ({"threads": 1}, "absent"),
        ({"threads": 256}, "absent"),
        ({"windows": 1}, "absent"),
        ({"windows": 10**9}, "absent"),
    ],
)
def test_numbers_at_their_edges_before_a_file_is_opened(given, said, tmp_path):
    """What may be given is taken: then the file is looked for, and is not there."""
    from kerasbert.mobile.runtime import load

    with pytest.raises(InputError, match=said):
        load(tmp_path / "absent.tflite", **given)

"""The interpreters that may be on a device, behind one method: run(length, inputs) -> output.

ai-edge-litert's CompiledModel comes first: with a weight cache all signatures share one set of packed weights (100 MB
for MiniLM with 17 fixed buckets; its plain Interpreter packs them for each: 260 MB). tflite-runtime comes last.
"""

import atexit
import os
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert.errors import InputError
from kerasbert.export.bundle import Bundle
from kerasbert.mobile.runtime import cache as caches
from kerasbert.mobile.runtime.quiet import captured

IN_MEMORY = ":memory"  # XNNPACK's name for a weight cache in an anonymous file


_OPEN: weakref.WeakSet = weakref.WeakSet()


def _leave() -> None:
    """Free the models, and let litert's static objects say goodbye unheard: they write to stderr after Python has ended."""
    for model in list(_OPEN):
        model.close()
    if sys.stderr is not None:
        sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


class Compiled:
    """ai-edge-litert's CompiledModel; buffers are made when a signature is first used or its length changes.

    Args:
        weight_cache: str, a file's path, ":memory" or "" for none.
    Raises:
        AttributeError: the file has a signature of any length, and this litert cannot resize.
    """

    name = "ai-edge-litert CompiledModel"

    def __init__(self, path: Path, bundle: Bundle, threads: int, weight_cache: str):
        from ai_edge_litert.compiled_model import CompiledModel, CpuOptions, Options

        if bundle.any_length and not hasattr(CompiledModel, "resize_input_tensor"):
            raise AttributeError("CompiledModel has no resize_input_tensor")
        options = CpuOptions(num_threads=threads, xnnpack_weight_cache_path=weight_cache)
        self.model = CompiledModel.from_file(str(path), options=Options(cpu_options=options))
        self.bundle = bundle
        self.signatures = self.model.get_signature_list()
        self.buffers: dict[str, tuple] = {}  # by signature
        if not _OPEN:
            atexit.unregister(_leave)
            atexit.register(_leave)
        _OPEN.add(self)

    def close(self) -> None:
        """Free the model; litert writes three lines to stderr about it."""
        with captured():
            self.buffers.clear()
            self.model = None

    def __del__(self):
        if getattr(self, "model", None) is not None:
            self.close()

    def _prepare(self, name: str, length: int) -> tuple:
        """Buffers of a signature; one of any length gets this length."""
        index = self.model.get_signature_index(name)
        if self.bundle.any_length:
            for place in range(len(self.signatures[name]["inputs"])):
                self.model.resize_input_tensor(place, [1, length], index)
        details = self.model.get_output_tensor_details(name)[self.bundle.output]
        inputs, outputs = self.model.create_input_buffers(index), self.model.create_output_buffers(index)
        named = dict(zip(self.signatures[name]["inputs"], inputs))
        return length, index, named, inputs, outputs, int(np.prod(details["shape"]))

    def run(self, length: int, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Inputs by the signature's names, int32 [1, length] -> float32 [outputs]."""
        name = self.bundle.signature(length)
        if name not in self.buffers:
            with captured():  # litert makes its default environment at the first write
                return self._compute(name, length, inputs)
        return self._compute(name, length, inputs)

    def _compute(self, name: str, length: int, inputs: dict[str, np.ndarray]) -> np.ndarray:
        if self.buffers.get(name, (0,))[0] != length:
            self.buffers[name] = self._prepare(name, length)
        _, index, named, buffers, outputs, size = self.buffers[name]
        for part, values in inputs.items():
            named[part].write(values)
        self.model.run_by_index(index, buffers, outputs)
        return outputs[0].read(size, np.float32)


class Plain:
    """A TFLite Interpreter: of ai-edge-litert without CompiledModel, or of tflite-runtime. It resizes by itself."""

    def __init__(self, interpreter: Any, name: str, path: Path, bundle: Bundle, threads: int):
        self.name = name
        self.model = interpreter(model_path=str(path), num_threads=threads)
        self.bundle = bundle
        self.runners: dict[str, Any] = {}

    def run(self, length: int, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Inputs by the signature's names, int32 [1, length] -> float32 [outputs]."""
        name = self.bundle.signature(length)
        if name not in self.runners:
            with captured():
                self.runners[name] = self.model.get_signature_runner(name)
                return self._compute(name, inputs)
        return self._compute(name, inputs)

    def _compute(self, name: str, inputs: dict[str, np.ndarray]) -> np.ndarray:
        return self.runners[name](**inputs)[self.bundle.output].reshape(-1)


def interpreter(path: Path, bundle: Bundle, threads: int, cache: Path | None) -> Compiled | Plain:
    """The best interpreter that is installed and opens the file.

    Args:
        path: the file.
        bundle: its Bundle.
        threads: int.
        cache: folder of weight caches, or None to write nothing.
    Raises:
        InputError: none is installed, none opens the file, or the only one computes this kind of file wrongly.
    """
    with captured() as log:
        try:
            return _litert(path, bundle, threads, cache)
        except ImportError:
            pass
        except (RuntimeError, ValueError, OSError) as error:
            raise _broken(path, error, log()) from error
        try:
            from tflite_runtime.interpreter import Interpreter
        except ImportError as error:
            raise InputError(
                "no interpreter for .tflite files is installed. Do: pip install 'kerasbert[device]'"
            ) from error
        if bundle.quantization in ("dynamic_int8", "static_int8"):  # static has some dynamic matrices
            raise InputError(
                f"{path} is {bundle.quantization} and only tflite-runtime is installed, which refuses such files or computes "
                "wrong numbers. Do: pip install ai-edge-litert, or compress with --quantize fp16"
            )
        try:
            return Plain(Interpreter, "tflite-runtime Interpreter", path, bundle, threads)
        except (RuntimeError, ValueError, OSError) as error:
            raise _broken(path, error, log()) from error


def _litert(path: Path, bundle: Bundle, threads: int, cache: Path | None) -> Compiled | Plain:
    """CompiledModel with the cache on disk, else in memory, else without; where it is missing or fails, Interpreter."""
    key = f"{bundle.digest[:32]}-{threads}"
    try:
        found = caches.find(cache, key) if cache and bundle.digest else None
        if found:
            return Compiled(path, bundle, threads, str(found))
        draft = caches.draft(cache) if cache and bundle.digest else None
        for place in (draft, IN_MEMORY if hasattr(os, "memfd_create") else None, ""):
            if place is None:
                continue
            try:
                model = Compiled(path, bundle, threads, str(place))
            except RuntimeError:
                continue
            if place is draft:
                caches.keep(draft, key)
            return model
    except (ImportError, TypeError, AttributeError):  # an older litert: no CompiledModel, or without these options
        pass
    from ai_edge_litert.interpreter import Interpreter

    return Plain(Interpreter, "ai-edge-litert Interpreter", path, bundle, threads)


def _broken(path: Path, error: Exception, log: str) -> InputError:
    reason = next(
        (line for line in [*str(error).splitlines(), *log.splitlines()] if line.strip()), type(error).__name__
    )
    return InputError(f"the interpreter cannot open {path}: {reason.strip()[:200]}. Write the file again")

"""The interpreters that may be on a device, behind one method: run(length, inputs) -> output.

ai-edge-litert's CompiledModel comes first: with a weight cache all signatures share one set of packed weights (100 MB
for MiniLM with 17 fixed buckets; its plain Interpreter packs them for each: 260 MB). tflite-runtime comes last.
Every file is opened by the plain Interpreter before (4 ms), which verifies the flatbuffer; CompiledModel.from_file maps
it unseen, and a damaged one is a segmentation fault. `operators.check` looks at what the verifier does not (18 ms for 14
buckets). Weights that were packed for the same bytes, by their sha256, say that they passed before.
"""

import atexit
import contextlib
import functools
import hashlib
import json
import operator
import struct
import sys
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert import __version__, answers
from kerasbert.errors import InputError, install
from kerasbert.export.bundle import Bundle
from .checks import operators
from .checks.signatures import check, output_of, shape_of
from .system import cache as caches
from .system import delegates, forks
from .system.quiet import unheard, unheard_from_now_on
from .writing.programs import Arrays, Buffers

if TYPE_CHECKING:
    from ai_edge_litert.interpreter import Interpreter, SignatureRunner


CHECKS = 3  # number of what `operators.check` and `check` look for: one more where they look for more
IN_MEMORY = ":memory"  # XNNPACK's name for a weight cache in an anonymous file

_OPEN: weakref.WeakSet = weakref.WeakSet()
_OPENING = forks.lock(1)  # so that a memory file that appears meanwhile is the model's that is being opened


def _leave() -> None:
    """Free the models, and let litert's static objects say goodbye unheard: they write after Python has ended."""
    for model in list(_OPEN):
        model.close()
    unheard_from_now_on()


@contextlib.contextmanager
def one_line(path: Path, doing: str) -> Iterator[None]:
    """What an interpreter raises about a file becomes an InputError of one line.

    Args:
        path: the file.
        doing: str, "open" or "run".
    """
    try:
        yield
    except InputError:
        raise
    except (RuntimeError, ValueError, OSError, LookupError, ArithmeticError, MemoryError, struct.error) as error:
        import traceback  # here: a launch does without

        with unheard():  # the frames hold buffers, and litert writes when the last one goes
            traceback.clear_frames(error.__traceback__)
        lines = [line.strip(" └") for line in str(error).splitlines()]
        reason = next((line for line in reversed(lines) if line), type(error).__name__)
        raise InputError(f"the interpreter cannot {doing} {path}: {reason[:200]}. Write the file again") from error


class Compiled:
    """ai-edge-litert's CompiledModel; buffers are made when a signature is first used or its length changes.

    Args:
        weight_cache: str, a file's path, ":memory" or "" for none.
        accelerators: names of LiteRT's HardwareAccelerators; a later one computes what those before it do not take.
    Raises:
        AttributeError: the file has a signature of any length, and this litert cannot resize.
    """

    name = "ai-edge-litert CompiledModel"

    def __init__(
        self, path: Path, bundle: Bundle, threads: int, weight_cache: str, accelerators: Sequence[str] = ("CPU",)
    ) -> None:
        from ai_edge_litert.compiled_model import CompiledModel, CpuOptions, HardwareAccelerator, Options

        if not _OPEN:
            atexit.unregister(_leave)
            atexit.register(_leave)
        if bundle.any_length and not hasattr(CompiledModel, "resize_input_tensor"):
            raise AttributeError("CompiledModel has no resize_input_tensor")
        computed_by = functools.reduce(operator.or_, (HardwareAccelerator[name] for name in accelerators))
        cpu = CpuOptions(num_threads=threads, xnnpack_weight_cache_path=weight_cache)
        self.model: Any = CompiledModel.from_file(str(path), options=Options(computed_by, cpu))
        self.bundle, self.output = bundle, output_of(bundle)
        self.signatures = self.model.get_signature_list()
        self.buffers: dict[str, tuple] = {}  # by signature
        _OPEN.add(self)

    @functools.cached_property
    def programs(self) -> Buffers:
        """Its signatures one by one, for a file that writes."""
        return Buffers(self.model)

    def close(self) -> None:
        """Free the model; litert writes three lines about it."""
        with unheard():
            self.buffers.clear()
            if programs := self.__dict__.pop("programs", None):
                programs.close()  # a writer may outlive it
            self.model = None

    def __del__(self) -> None:
        if getattr(self, "model", None) is not None:
            self.close()

    def _prepare(self, name: str, length: int) -> tuple:
        """Buffers of a signature; one of any length gets this length."""
        index, signature = self.model.get_signature_index(name), self.signatures[name]
        if self.bundle.any_length:
            shapes = {each.signature: list(shape_of(each, length)) for each in self.bundle.inputs}
            for place, part in enumerate(signature["inputs"]):
                self.model.resize_input_tensor(place, shapes[part], index)
        details = self.model.get_output_tensor_details(name)[self.output]
        if self.bundle.any_length and answers.find(self.bundle.kind).per_token and length not in details["shape"]:
            # it would write beyond a buffer that is made before
            raise InputError(
                f"{self.output} has a size that the file finds while it computes, expected one that follows from {length} "
                "tokens: compress with --lengths, such as --lengths 32 128"
            )
        inputs, outputs = self.model.create_input_buffers(index), self.model.create_output_buffers(index)
        named = dict(zip(signature["inputs"], inputs))
        output = outputs[signature["outputs"].index(self.output)]
        return length, index, named, inputs, outputs, output, int(np.prod(details["shape"]))

    def run(self, length: int, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Inputs by the signature's names, [1, length] or by their axes -> the kind's output, float32, flat."""
        name = self.bundle.signature(length)
        if name not in self.buffers:
            with unheard():  # litert makes its default environment at the first write
                return self._compute(name, length, inputs)
        return self._compute(name, length, inputs)

    def _compute(self, name: str, length: int, inputs: dict[str, np.ndarray]) -> np.ndarray:
        if self.buffers.get(name, (0,))[0] != length:
            self.buffers[name] = self._prepare(name, length)
        _, index, named, buffers, outputs, output, size = self.buffers[name]
        for part, values in inputs.items():
            named[part].write(values)
        self.model.run_by_index(index, buffers, outputs)
        return output.read(size, np.float32)


class Plain:
    """A TFLite Interpreter: of ai-edge-litert without CompiledModel, or of tflite-runtime. It resizes by itself."""

    def __init__(
        self, interpreter: "type[Interpreter]", name: str, path: Path, bundle: Bundle, threads: int, **more: Any
    ) -> None:
        self.name = name
        self.model: Any = interpreter(model_path=str(path), num_threads=threads, **more)
        self.bundle, self.output = bundle, output_of(bundle)
        self.runners: dict[str, SignatureRunner] = {}

    @functools.cached_property
    def programs(self) -> Arrays:
        """As those of a Compiled."""
        return Arrays(self.model)

    def close(self) -> None:
        """Free the model."""
        self.runners.clear()
        self.__dict__.pop("programs", None)
        self.model = None

    def run(self, length: int, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Inputs by the signature's names, [1, length] or by their axes -> the kind's output, float32, flat."""
        name = self.bundle.signature(length)
        if name not in self.runners:
            with unheard():
                self.runners[name] = self.model.get_signature_runner(name)
                return self._compute(name, inputs)
        return self._compute(name, inputs)

    def _compute(self, name: str, inputs: dict[str, np.ndarray]) -> np.ndarray:
        return self.runners[name](**inputs)[self.output].reshape(-1)


def interpreter(
    path: Path, bundle: Bundle, threads: int, cache: Path | None, digest: str, delegate: str = delegates.XNNPACK
) -> Compiled | Plain:
    """The best interpreter that is installed and opens the file.

    Args:
        path: the file.
        bundle: its Bundle.
        threads: int.
        cache: folder of weight caches, or None to write nothing.
        digest: str, hex sha256 of the bytes in front of the bundle.
        delegate: str, of `delegates`; another than XNNPACK packs no weights.
    Raises:
        InputError: none is installed, or it does not run the file by that delegate, the file is no valid flatbuffer or not what
            its bundle says, or the only interpreter computes this kind of file wrongly.
    """
    with unheard(), one_line(path, "open"):
        try:
            import ai_edge_litert
            from ai_edge_litert.interpreter import Interpreter
        except ImportError:
            if delegate != delegates.XNNPACK:
                raise delegates.refused(delegate, path, "ai-edge-litert is not installed") from None
            model = _tflite_runtime(path, bundle, threads)
            check(model.model, bundle, path)
            return model
        name = "ai-edge-litert Interpreter"
        key = caches.key(_seal(bundle, digest), threads, getattr(ai_edge_litert, "__version__", ""))
        found = caches.find(cache, key) if cache and delegate == delegates.XNNPACK else None
        if found is None:  # else these very bytes passed here, or nothing would have been packed
            plain = Plain(Interpreter, name, path, bundle, threads)
            operators.check(path)
            check(plain.model, bundle, path)
            del plain  # or its 4 MB add to the peak; opening it again takes a millisecond
        if delegate != delegates.XNNPACK:
            return _delegated(path, bundle, threads, delegate)
        model = _compiled(path, bundle, threads, cache, key, found)
        return model or Plain(Interpreter, name, path, bundle, threads)


def _delegated(path: Path, bundle: Bundle, threads: int, delegate: str) -> Compiled | Plain:
    """The file by another delegate than XNNPACK; what it leaves to the processor is told."""
    from ai_edge_litert.interpreter import Interpreter

    if delegate not in delegates.ACCELERATORS:
        return Plain(
            Interpreter,
            f"ai-edge-litert Interpreter, {delegate}",
            path,
            bundle,
            threads,
            **delegates.library(delegate, path),
        )
    model, accelerators = None, delegates.ACCELERATORS[delegate]
    with contextlib.suppress(RuntimeError, ImportError, TypeError, AttributeError):  # unheard, frames and all
        model = Compiled(path, bundle, threads, "", accelerators) if delegates.registered(delegate) else None
    whole = model is not None and model.model.is_fully_accelerated()
    if model is None or not (whole or "CPU" in accelerators):
        if model is not None:
            model.close()
        raise delegates.refused(delegate, path, "LiteRT has no such accelerator here, or it does not take the network")
    if not whole:
        print(f"{delegate} leaves some operators of {path} to the processor", file=sys.stderr)
    model.name = f"{model.name}, {delegate}"
    return model


def _seal(bundle: Bundle, digest: str) -> str:
    """Hex sha256 of all that the checks of a file read: its flatbuffer, what its bundle says of it, and which checks they are."""
    said = json.dumps([CHECKS, __version__, digest, bundle.to_json()], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()


def _tflite_runtime(path: Path, bundle: Bundle, threads: int) -> Plain:
    try:
        # what a Raspberry Pi may have instead of ai-edge-litert
        from tflite_runtime.interpreter import Interpreter  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError(f"no interpreter for .tflite files is installed. Do, {install('device')}") from error
    if bundle.quantization in ("dynamic_int8", "static_int8"):  # static has some dynamic matrices
        raise InputError(
            f"{path} is {bundle.quantization} and only tflite-runtime is installed, which refuses such files or computes "
            "wrong numbers. Do: pip install ai-edge-litert, or compress with --quantize fp16 --lengths any"
        )
    return Plain(Interpreter, "tflite-runtime Interpreter", path, bundle, threads)


def _compiled(
    path: Path, bundle: Bundle, threads: int, cache: Path | None, key: str, found: Path | None
) -> Compiled | None:
    """CompiledModel with weights packed by an earlier launch (`found`), else packed in memory, else unshared; None: it cannot."""
    places = [""]
    if caches.can_pack(path.stat().st_size):
        places = [*([str(found)] if found else []), IN_MEMORY, ""]
    for place in places:
        with _OPENING:
            before = caches.packed()
            try:
                model = Compiled(path, bundle, threads, place)
            except RuntimeError:
                continue
            except (ImportError, TypeError, AttributeError):  # an older litert: not there, or without these options
                return None
            if place == IN_MEMORY and cache:
                new = caches.packed() - before
                if len(new) == 1:
                    caches.keep(cache, key, *new)
            return model
    return None

"""What may compute a network in the place of the processor's kernels, by name. Nothing falls back unsaid.

LiteRT's CompiledModel knows accelerators: of graphics (WebGPU, OpenCL, Metal) and of neural processors (the makers' own
libraries, `ai-edge-litert-sdk-...`). An Interpreter takes a delegate of a library that has TFLite's external interface.
NNAPI and Core ML are delegates of TFLite's older libraries: neither of the two loads them by name.
"""

import contextlib
import ctypes
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kerasbert.errors import InputError, unknown

if TYPE_CHECKING:
    from ai_edge_litert.interpreter import Interpreter


XNNPACK = "xnnpack"
ACCELERATORS = {"gpu": ("GPU", "CPU"), "npu": ("NPU",)}
"""Name -> LiteRT's HardwareAccelerators. What a GPU does not take, such as positions of several lengths, the processor does."""
LIBRARIES = (".so", ".dylib", ".dll")


def check(delegate: str) -> None:
    """Refuse what is no delegate.

    Raises:
        InputError: what there is.
    """
    if delegate == XNNPACK or delegate in ACCELERATORS:
        return
    names = (
        f"{XNNPACK} (the processor), {', '.join(ACCELERATORS)} (LiteRT's accelerators) or the file of a TFLite delegate"
    )
    if not delegate.endswith(LIBRARIES):
        raise unknown("delegate", delegate, (XNNPACK, *ACCELERATORS), f"{names} ({', '.join(LIBRARIES)})")
    if not Path(delegate).is_file():
        raise InputError(f"no delegate {delegate}: expected {names}")


def refused(delegate: str, path: Path, reason: str) -> InputError:
    """The error of a file that a delegate does not run."""
    return InputError(f"{delegate} does not run {path}: {reason}. --delegate {XNNPACK}, the default, runs it")


def registered(delegate: str) -> bool:
    """Whether LiteRT finds an accelerator of graphics in its package: without one it leaves all to the processor in silence.

    An NPU is asked for alone, so that LiteRT refuses the file itself.
    """
    if "CPU" not in ACCELERATORS[delegate]:
        return True
    import ai_edge_litert

    for path in Path(str(ai_edge_litert.__file__)).parent.glob("libLiteRt*Accelerator.*"):
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(path))
            return True
    return False


def library(delegate: str, path: Path) -> dict[str, list]:
    """The arguments by which an Interpreter takes the delegate of a library; which operators of `path` it takes is told.

    Raises:
        InputError: no delegate is in it, or it takes none of the file's operators.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType, load_delegate

    file = str(Path(delegate).absolute())  # the system's loader does not look for a bare name here
    try:
        for name in ("create", "destroy"):  # LiteRT itself finds out too late
            getattr(ctypes.CDLL(file), f"tflite_plugin_{name}_delegate")
        loaded = load_delegate(file)
    except (OSError, ValueError, AttributeError) as error:
        reason = next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
        raise InputError(f"{delegate} is no TFLite delegate that can be loaded: {reason[:150]}") from error
    try:
        probe = Interpreter(
            model_path=str(path),
            experimental_delegates=[loaded],
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        )
        probe.allocate_tensors()
    except (RuntimeError, ValueError) as error:
        raise refused(
            delegate, path, str(error).splitlines()[-1][:150] if str(error) else type(error).__name__
        ) from error
    own, computed, pieces = taken(probe)
    if not pieces:
        raise refused(delegate, path, "it takes none of its operators")
    if computed < own:
        print(
            f"{delegate} leaves {own - computed} of {own} operators of the first program to the processor",
            file=sys.stderr,
        )
    return {"experimental_delegates": [loaded]}


def taken(interpreter: "Interpreter") -> tuple[int, int, int]:
    """Operators of an allocated Interpreter's first program; how many of them delegates compute, and in how many pieces."""
    nodes = interpreter._get_ops_details()  # none but this one tells it
    own = [node for node in nodes if node["op_name"] != "DELEGATE"]
    pieces = [node for node in nodes if node["op_name"] == "DELEGATE"]
    gives = {int(tensor): number for number, node in enumerate(own) for tensor in node["outputs"]}
    found: set[int] = set()
    for piece in pieces:
        edge, wanted = set(map(int, piece["inputs"])), [int(tensor) for tensor in piece["outputs"]]
        while wanted:
            tensor = wanted.pop()
            number = gives.get(tensor)
            if tensor not in edge and number is not None and number not in found:
                found.add(number)
                wanted += [int(each) for each in own[number]["inputs"]]
    return len(own), len(found), len(pieces)

"""What a TPU cannot run, found in the text of an HLO module. Standard library only."""

import dataclasses
import re
from collections.abc import Iterator

# What XLA itself puts in for sorting and sharding, and every backend takes
CUSTOM_CALLS = {"TopK", "ApproxTopK", "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"}
HOST = {"infeed", "outfeed", "send", "send-done", "recv", "recv-done"}
NOWHERE = "train step"

_OPERATION = re.compile(r"^\s*(?:ROOT )?%?\S+ = (?P<shape>\(.*?\)|\S+) (?P<opcode>[a-z][\w-]*)\(")
_NAME = re.compile(r'op_name="([^"]*)"')
_TARGET = re.compile(r'custom_call_target="([^"]*)"')


@dataclasses.dataclass(frozen=True)
class Problem:
    """One kind of thing that a TPU cannot run, at one place.

    Args:
        kind: "dynamic dimension", "float64", "custom call", "host operation" or "lowering".
        layer: str, the name scope it comes from: `encoder/block_0/attention`.
        detail: str, the instruction or the compiler's own words.
    """

    kind: str
    layer: str
    detail: str

    def __str__(self) -> str:
        return f"{self.layer}: {self.kind}: {self.detail}"


def problems(text: str) -> list[Problem]:
    """The unsafe instructions of a module; one for each kind and layer.

    What carries no layer, such as the step's results, is told only where nothing with a layer is of its kind.
    """
    found: dict[tuple[str, str], Problem] = {}
    for line in text.splitlines():
        for kind, detail in _unsafe(line):
            name = _NAME.search(line)
            at = layer(name[1] if name else "")
            found.setdefault((kind, at), Problem(kind, at, detail))
    named = {kind for kind, at in found if at != NOWHERE}
    return [problem for (kind, at), problem in found.items() if at != NOWHERE or kind not in named]


def _unsafe(line: str) -> Iterator[tuple[str, str]]:
    match = _OPERATION.match(line)
    if not match:
        return
    shape, opcode = match["shape"], match["opcode"]
    if "[<=" in shape or ",<=" in shape:
        yield "dynamic dimension", f"{opcode} gives {shape}, expected a shape known before the step runs"
    if "f64[" in shape or "c128[" in shape:
        yield "float64", f"{opcode} gives {shape}, expected float32 or bfloat16"
    if opcode in HOST:
        yield "host operation", f"{opcode} waits for the host inside the step"
    if opcode == "custom-call":
        target = _TARGET.search(line)
        name = target[1] if target else "without a name"
        if name not in CUSTOM_CALLS:
            yield "custom call", f"{name} is not a program that a TPU has"


def layer(name: str) -> str:
    """The scope of an operation without the operation itself and what gradients and loops put around it.

    >>> layer("gradient_tape/pretraining_1/encoder_1/block_0_1/attention_1/MatMul_1")
    'pretraining/encoder/block_0/attention'
    """
    parts = [part for part in name.split("/")[:-1] if part and part not in ("gradient_tape", "while", "body", "cond")]
    # Keras opens a layer's scope twice, and TensorFlow numbers the second, in which the layer is called
    if parts and re.search(r"_\d+$", parts[0]):
        parts = [re.sub(r"_\d+$", "", part) for part in parts]
    return "/".join(parts) or NOWHERE


def lowering_problem(message: str) -> Problem:
    """What TensorFlow says where it cannot lower a graph -> Problem."""
    unsupported = re.search(r"on \w+: (\w+) \((.*?)\)", message, re.DOTALL)
    node = re.search(r"\{\{node ([^}]*)\}\}", message)
    detail = " ".join(message.split())
    if unsupported:
        detail = f"operation {unsupported[1]} has no kernel for a compiled step"
    return Problem("lowering", layer(node[1] if node else ""), detail[:400])

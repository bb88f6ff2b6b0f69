"""libtpu as a compiler: it compiles for a topology that is not here. Needs the extra `tpu-check`."""

# pyright: reportMissingImports=false
# jax, jaxlib and libtpu are that extra's

import dataclasses
import os
import re
from typing import TYPE_CHECKING

from kerasbert.errors import InputError
from kerasbert.tpu_check import traffic
from kerasbert.tpu_check.chips import Slice

if TYPE_CHECKING:
    from jaxlib.mlir import ir


# libtpu looks for a TPU VM's metadata server, and for a TPU, unless it is told what it is on. Any slice compiles under
# one accelerator type.
ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "JAX_PLATFORMS": "cpu",
}
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What the compiler says of one device's program.

    Args:
        arguments, temporaries, code: bytes of HBM; arguments are the state and the batch, updated in place.
        flops: FLOPs of one step, as XLA counts them: those of a loop once.
        hbm: bytes from and to HBM (`traffic.hbm_bytes`); None where jaxlib does not read the compiled module of libtpu.
        accessed: bytes that XLA counts for all operands and results, wherever they lie.
        cycles: the compiler's own estimate; None as of `hbm`.
        text: the compiled module, "" as of `hbm`. unread: what jaxlib said then.
    """

    arguments: int
    temporaries: int
    code: int
    flops: float
    hbm: int | None
    accessed: float
    cycles: int | None
    text: str = dataclasses.field(repr=False, default="")
    unread: str = ""

    @property
    def used(self) -> int:
        """Bytes of HBM in all."""
        return self.arguments + self.temporaries + self.code

    @property
    def moved(self) -> int:
        """Bytes from and to HBM at least: where they are not known the state and the batch, each read once."""
        return self.arguments if self.hbm is None else self.hbm


class TooLarge(Exception):
    """The program does not fit into HBM: `used` and `capacity` in bytes, as the compiler counts them."""

    def __init__(self, used: float, capacity: float) -> None:
        super().__init__(f"{used / 2**30:.2f} GB of {capacity / 2**30:.2f} GB")
        self.used, self.capacity = used, capacity


def require() -> None:
    """Import the extra.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import jax  # noqa: F401
    import libtpu  # noqa: F401


def compile_for(where: Slice, module: bytes) -> Compiled:
    """Compile a serialized HloModuleProto for every replica of a slice.

    Raises:
        TooLarge: the compiler finds no way to fit it into HBM.
        InputError: libtpu does not know the topology.
    """
    require()
    import jax
    import numpy as np
    from jax._src import compiler
    from jax._src.lib import xla_client  # pyright: ignore[reportPrivateImportUsage]
    from jax.experimental import topologies

    try:
        described = topologies.get_topology_desc(platform="tpu", topology_name=str(where))
    except jax.errors.JaxRuntimeError as error:
        raise InputError(f"libtpu has no topology {where}: {_line(error)}") from error
    devices = described.devices
    options = compiler.get_compile_options(
        num_replicas=len(devices), num_partitions=1, device_assignment=np.array(devices)
    )
    try:
        done = devices[0].client.compile(_stablehlo(module), xla_client.DeviceList(tuple(devices)), options)
    except jax.errors.JaxRuntimeError as error:
        raise _too_large(str(error)) or error from error
    memory, costs = done.get_compiled_memory_stats(), done.cost_analysis()
    costs = costs[0] if isinstance(costs, list) else costs
    text, unread = "", ""
    try:
        text = done.hlo_modules()[0].to_string()
    except jax.errors.JaxRuntimeError as error:  # of bert/base on v5p and v6e: libtpu writes what jaxlib does not read
        unread = _line(error)
    return Compiled(
        arguments=memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes,
        temporaries=memory.temp_size_in_bytes,
        code=memory.generated_code_size_in_bytes,
        flops=costs["flops"],
        hbm=None if unread else traffic.hbm_bytes(text),
        accessed=costs["bytes accessed"],
        cycles=None if unread else traffic.cycles(text),
        text=text,
        unread=unread,
    )


def _stablehlo(module: bytes) -> "ir.Module":
    """HLO as StableHLO, without the mhlo.copy that TensorFlow leaves at the results and libtpu does not read."""
    from jax._src.interpreters import mlir
    from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]  # compiled
    from jaxlib.mlir import ir

    with mlir.make_ir_context():
        parsed = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(module))
        _fold_copies(parsed.operation)
    return parsed


def _fold_copies(operation: "ir.Operation") -> None:
    for region in operation.regions:
        for block in region.blocks:
            for inner in list(block.operations):
                if inner.operation.name == "mhlo.copy":
                    inner.operation.results[0].replace_all_uses_with(inner.operation.operands[0])
                    inner.operation.erase()
                else:
                    _fold_copies(inner.operation)


def _too_large(message: str) -> TooLarge | None:
    """The figures of CompileTimeHbmOom, which it words in one of two ways; arguments are in both."""
    size = r"([\d.]+)([KMGT]?)"
    match = re.search(rf"\({size}\) exceeds available HBM \({size}\)", message)
    match = match or re.search(rf"Used {size} of {size} hbm", message)
    if not match:
        return None
    return TooLarge(float(match[1]) * _UNITS[match[2]], float(match[3]) * _UNITS[match[4]])


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]

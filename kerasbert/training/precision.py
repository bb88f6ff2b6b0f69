"""In which precision a model computes: the names, what `auto` stands for, and layers made in one."""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import keras

from kerasbert.training.runs import run_in

if TYPE_CHECKING:
    from kerasbert.training.config import RunConfig

Config = TypeVar("Config", bound="RunConfig")
PROCESSORS = Path("/proc/cpuinfo")


@contextlib.contextmanager
def precision(name: str) -> Iterator[None]:
    """Layers made within it compute in that precision."""
    old = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(old)


@functools.cache
def fast_bfloat16() -> bool:
    """Whether this machine's processor multiplies bfloat16: AVX512-BF16 or AMX, as Linux tells it."""
    try:
        return re.search(r"\b(avx512_bf16|amx_bf16)\b", PROCESSORS.read_text("utf-8")) is not None
    except OSError:
        return False


def resolved(config: Config, strategy: str, model: object) -> Config:
    """`config` with the precision that `auto` stands for: that of the run at `out`, else bfloat16 where it is fast.

    Args:
        config: the options of a training.
        strategy: str, resolved.
        model: what is trained; a network in memory computes as it was made, which is called float32 here.
    """
    if config.precision != "auto":
        return config
    old = None if config.overwrite else run_in(config.out)
    if old is not None:
        found = old["settings"]["precision"]
    else:  # on GPUs it was never measured
        fast = strategy.startswith("tpu") or (strategy.startswith("cpu") and fast_bfloat16())
        fast = fast and not isinstance(model, keras.Model)
        found = "mixed_bfloat16" if fast else "float32"
    return dataclasses.replace(config, precision=found)


def told(name: str, strategy: str) -> str:
    """What the first line of a run says of its precision."""
    if not strategy.startswith("cpu") or name == "mixed_float16" or (name == "float32") != fast_bfloat16():
        return f"in {name}"
    if name == "float32":
        return f"in {name}; this CPU computes mixed_bfloat16 faster: --precision auto"
    # TensorFlow cuts them off there where it should round them
    return f"in {name}; this CPU has no bfloat16: its products come out .2% small, no faster than in float32"

"""What made a run: the command, the time, the machine. Nothing of the user's but what the command line holds."""

import contextlib
import contextvars
import datetime
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from kerasbert import __version__
from kerasbert.storage.json_view import Json
from kerasbert.within import within

_command: contextvars.ContextVar[str] = contextvars.ContextVar("command", default="")


def command(program: str, arguments: Sequence[str]) -> contextlib.AbstractContextManager[object]:
    """What is made within is made by this command."""
    return within(_command, shlex.join([program, *map(str, arguments)]))


def now() -> str:
    """The time, UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def made() -> Json:
    """The command ("" for a call from Python), when it began, and `machine`."""
    return {"command": _command.get(), "begun": now(), "machine": machine()}


def machine() -> Json:
    """System, processor, cores, memory in GB and accelerators; None for what cannot be told."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": _memory(),
        "accelerators": _accelerators(),
    }


def environment() -> Json:
    """Versions, threads and git commit, which a bit-identical repetition needs."""
    versions: dict[str, str | None] = {"kerasbert": __version__, "python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("tensorflow", "keras", "numpy"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return versions | {"threads": os.cpu_count(), "git": _git()}


def _git() -> str | None:
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def _processor() -> str | None:
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or None


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1)
    except (AttributeError, ValueError, OSError):  # not on Windows
        return None


def _accelerators() -> list[str]:
    """Names of the GPUs and TPUs that TensorFlow uses, where it is imported."""
    tf = sys.modules.get("tensorflow")
    if tf is None:
        return []
    found: Counter[str] = Counter()
    for device in tf.config.get_visible_devices():
        if device.device_type != "CPU":
            about = tf.config.experimental.get_device_details(device) if device.device_type == "GPU" else {}
            found[about.get("device_name", device.device_type)] += 1
    return [f"{count} x {name}" if count > 1 else name for name, count in found.items()]

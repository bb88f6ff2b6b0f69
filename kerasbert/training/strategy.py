"""Where a program runs: `auto`, `cpu`, `cpu:N`, `gpu`, `gpu:N`, `tpu:local`, `tpu:NAME[@ZONE]`, `multiworker`.

- `auto`: the GPU, all GPUs where there are several, else the CPU. The choice was tested with lists of GPUs, never on one.
- `tpu:local`: the chips of this TPU VM. `tpu:NAME`: a TPU or a pod slice, reached over the network by the name that it was
  created with; TensorFlow drives all its hosts from this one process, and every host reads its own part of each batch.
- `multiworker`: one process per machine, the same command on each; see `training.multiworker`.

The TPU paths are tested with a fake resolver and by compiling for real topologies (`kerasbert check-tpu`); they were never
run on hardware.
"""

import dataclasses
import glob
import re
import sys
from typing import TYPE_CHECKING

from kerasbert.errors import InputError, install, nearest
from kerasbert.lazy import Module
from kerasbert.training import chips, multiworker

if TYPE_CHECKING:
    import tensorflow

tf = Module("tensorflow")  # a name is taken apart without it
UNCOUNTED = ("/dev/kfd", "/dev/dxg", "/dev/nvmap", "/dev/nvhost*")  # GPUs of AMD, Windows (WSL) and Jetson
FORMS = "auto, cpu, cpu:N, gpu, gpu:N, tpu:local, tpu:NAME, tpu:NAME@ZONE, multiworker"


@dataclasses.dataclass(frozen=True)
class Place:
    """A strategy's name, taken apart.

    Attributes:
        kind: "cpu", "gpu", "tpu" or "multiworker".
        count: int, devices; None where only the devices themselves can tell.
        tpu: "local" or a name.
        zone: of the TPU, None for this machine's own.
    """

    kind: str
    count: int | None = None
    tpu: str | None = None
    zone: str | None = None

    @property
    def remote(self) -> bool:
        """Whether other machines read the data: a TPU that is reached over the network."""
        return self.kind == "tpu" and self.tpu != "local"


def resolve(name: str) -> str:
    """The strategy that `auto` stands for on this machine; another name as it is.

    Raises:
        InputError: as `parse`.
    """
    if name == "auto":
        gpus = len(tf.config.list_physical_devices("GPU"))
        return {0: "cpu", 1: "gpu"}.get(gpus, f"gpu:{gpus}")
    parse(name)
    return name


def on_one_machine(kind: str, strategy: str) -> str:
    """The strategy, resolved; refuse one over several machines."""
    strategy = resolve(strategy)
    check_strategy(kind, strategy)
    return strategy


def check_strategy(kind: str | None, name: str) -> None:
    """Refuse a strategy that is none, and one over several machines to a `kind` of training that runs on one."""
    if name == "multiworker" and kind:
        raise InputError(f"{kind} runs on one machine: choose another --strategy than 'multiworker'")
    if name != "auto":
        parse(name)


def check_devices(name: str) -> None:
    """Refuse more GPUs than Linux has files of: TensorFlow, which counts them itself, takes seconds to be imported."""
    place = Place("auto") if name in ("auto", "multiworker") else parse(name)
    if place.kind != "gpu" or sys.platform != "linux" or any(map(glob.glob, UNCOUNTED)):
        return
    found = len(glob.glob("/dev/nvidia[0-9]*"))
    if place.count is not None and place.count > found:
        raise InputError(f"strategy {name!r} needs {place.count} GPU(s), this machine has {found}: take auto or cpu")


def described(name: str) -> str:
    """How the first line that a run prints begins."""
    if name == "cpu" and not tf.config.list_physical_devices("GPU"):
        return "training on cpu (TensorFlow sees no GPU)"
    return f"training on {name}"


def parse(name: str) -> Place:
    """Take the name of a strategy, other than `auto`, apart; touches no device.

    >>> parse("tpu:mine@us-west4-a")
    Place(kind='tpu', count=None, tpu='mine', zone='us-west4-a')

    Raises:
        InputError: another form, or `multiworker` without a usable TF_CONFIG.
    """
    if name == "multiworker":
        return Place(name, len(multiworker.cluster().workers))
    match = re.fullmatch(r"(cpu|gpu)(?::([1-9]\d*))?|tpu:([^@]+)(?:@([^@]+))?", str(name))
    if not match:
        meant = {"tpu": "tpu:local"}.get(str(name).lower(), nearest(str(name), ("auto", "cpu", "gpu", "multiworker")))
        hint = f" Nearest: {meant!r}." if meant else ""
        raise InputError(f"no strategy {name!r}.{hint} Expected one of: {FORMS}")
    kind, count, tpu, zone = match.groups()
    if tpu == "local" and zone:
        raise InputError(f"strategy {name!r} names a zone for this machine's own TPU: leave out @{zone}")
    return Place("tpu", None, tpu, zone) if tpu else Place(kind, int(count or 1))


def strategy(name: str = "auto") -> "tensorflow.distribute.Strategy":
    """The tf.distribute strategy of that name.

    `cpu:N` splits the CPU into N logical devices and `multiworker` connects to the others, which must happen before
    TensorFlow is used in the process.

    Raises:
        InputError: another form, devices that are not there, a TPU or workers that cannot be reached.
    """
    place = parse(resolve(name))
    if place.kind == "tpu":
        return _tpu(place)
    if place.kind == "multiworker":
        return multiworker.connect()
    assert place.count is not None  # of a CPU or GPUs
    if place.kind == "cpu":
        if place.count == 1:
            gpus = tf.config.list_physical_devices("GPU")  # which TensorFlow would take
            return tf.distribute.OneDeviceStrategy("/cpu:0") if gpus else tf.distribute.get_strategy()
        return tf.distribute.MirroredStrategy(_logical_cpus(place.count), tf.distribute.ReductionToOneDevice())
    found = tf.config.list_physical_devices("GPU")
    if len(found) < place.count:
        without = "" if found else f". The driver is the machine's; for the libraries, {install('gpu')}"
        raise InputError(f"strategy {name!r} needs {place.count} GPU(s), TensorFlow sees {len(found)}{without}")
    if place.count == 1:
        return tf.distribute.OneDeviceStrategy("/gpu:0")
    return tf.distribute.MirroredStrategy([f"/gpu:{i}" for i in range(place.count)])


def _logical_cpus(count: int) -> list[str]:
    cpu = tf.config.list_physical_devices("CPU")[0]
    configured = tf.config.get_logical_device_configuration(cpu) or []
    if len(configured) != count:
        try:
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
        except RuntimeError as error:
            raise InputError(
                f"strategy 'cpu:{count}' must be chosen before TensorFlow is used in the process: start a new one"
            ) from error
    return [f"/cpu:{i}" for i in range(count)]


def _tpu(place: Place) -> "tensorflow.distribute.Strategy":
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=place.tpu, zone=place.zone)
        if place.remote:
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        made = tf.distribute.TPUStrategy(resolver)
    except Exception as error:  # the client raises many kinds; every one means the same to the user
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"cannot reach TPU {place.tpu!r}: {reason}. Check its name and zone (tpu:NAME@ZONE), and that it is READY"
        ) from error
    from kerasbert.layers import backend

    backend.connected(chips.kind(chips.metadata("attributes/accelerator-type")))
    return made

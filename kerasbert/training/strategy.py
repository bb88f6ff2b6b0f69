"""Where a program runs: `cpu`, `cpu:N`, `gpu`, `gpu:N`, `tpu:NAME`, `tpu:local`."""

import re

import tensorflow as tf

from kerasbert.errors import InputError

FORMS = "cpu, cpu:N, gpu, gpu:N, tpu:NAME, tpu:local"


def strategy(name: str = "cpu") -> tf.distribute.Strategy:
    """The tf.distribute strategy of that name.

    `cpu:N` splits the CPU into N logical devices, which must happen before TensorFlow is used in the process.

    Raises:
        InputError: another form, devices that are not there, a TPU that cannot be reached.
    """
    match = re.fullmatch(r"(cpu|gpu)(?::([1-9]\d*))?|tpu:(.+)", name)
    if not match:
        raise InputError(f"no strategy {name!r}. Expected one of: {FORMS}")
    kind, count, tpu = match[1], int(match[2] or 1), match[3]
    if tpu:
        return _tpu(tpu)
    if kind == "cpu":
        if count == 1:
            gpus = tf.config.list_physical_devices("GPU")  # which TensorFlow would take
            return tf.distribute.OneDeviceStrategy("/cpu:0") if gpus else tf.distribute.get_strategy()
        return tf.distribute.MirroredStrategy(_logical_cpus(count), tf.distribute.ReductionToOneDevice())
    found = tf.config.list_physical_devices("GPU")
    if len(found) < count:
        raise InputError(f"strategy {name!r} needs {count} GPU(s), found {len(found)}")
    if count == 1:
        return tf.distribute.OneDeviceStrategy("/gpu:0")
    return tf.distribute.MirroredStrategy([f"/gpu:{i}" for i in range(count)])


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


def _tpu(name: str) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        if name != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except Exception as error:  # the client raises many kinds; every one means the same to the user
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"cannot reach TPU {name!r}: {reason}. Check its name and zone, and that it is READY"
        ) from error

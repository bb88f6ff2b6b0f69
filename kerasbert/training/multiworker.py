"""`multiworker`: one process per machine, the same command on each, every one with its share of the batch.

TF_CONFIG tells each process of the others. `--out` must be a folder that all of them see: worker 0, the chief, writes the run,
the others read its checkpoints when they start. When a worker is lost the others end with an error; started again, all go
on from the last checkpoint. Tried with processes on one machine (tests/training/test_multiworker.py), never across machines.
"""

import dataclasses
import json
import os
from typing import TYPE_CHECKING

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.lazy import Module

if TYPE_CHECKING:
    import tensorflow

tf = Module("tensorflow")

FORM = '{"cluster": {"worker": ["HOST:PORT", ...]}, "task": {"type": "worker", "index": 0}}'


@dataclasses.dataclass(frozen=True)
class Cluster:
    """This process among those of the run.

    Attributes:
        workers: addresses.
        index: of this process; worker 0 is the chief.
    """

    workers: tuple[str, ...]
    index: int


def cluster() -> Cluster:
    """The cluster that TF_CONFIG tells of.

    Raises:
        InputError: there is none, or it is something else.
    """
    text = os.environ.get("TF_CONFIG")
    if not text:
        raise InputError(f"strategy 'multiworker' needs the environment variable TF_CONFIG on every machine: {FORM}")
    try:
        config = json.loads(text)
        workers, task = config["cluster"]["worker"], config["task"]
        good = set(config["cluster"]) == {"worker"} and task["type"] == "worker" and 0 <= task["index"] < len(workers)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"TF_CONFIG is not understood ({type(error).__name__}: {error}). Expected {FORM}") from error
    if not good:
        raise InputError(f"TF_CONFIG has another role or index than its workers. Expected {FORM}. Received: {text}")
    return Cluster(tuple(workers), task["index"])


def connect() -> "tensorflow.distribute.Strategy":
    """The strategy of all workers; waits for them."""
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        raise InputError(
            "strategy 'multiworker' must be chosen before TensorFlow is used in the process: start a new one"
        ) from error
    except tf.errors.OpError as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"cannot reach the workers of TF_CONFIG: {reason}. Start the same command on each") from error


def is_chief(devices: "tensorflow.distribute.Strategy") -> bool:
    """Whether this process writes the run: all do but the later workers of `multiworker`."""
    return devices.extended.should_checkpoint


def barrier(devices: "tensorflow.distribute.Strategy") -> None:
    """Wait until every worker of `multiworker` has come here; nothing on other strategies."""
    if isinstance(devices, tf.distribute.MultiWorkerMirroredStrategy):

        def one() -> Tensor:  # made in the replica: what is made outside has no device to be reduced on
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0))

        met = tf.function(lambda: devices.run(one), autograph=False)()
        devices.experimental_local_results(met)[0].numpy()

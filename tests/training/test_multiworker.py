"""`multiworker` with two real processes on this machine: the same weights as one device, one run directory, a resume."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from kerasbert.checkpoints import read_tensors
from tests import tiny
from tests.support import ROOT

ARGUMENTS = [
    "--batch=8",
    "--accumulate=2",
    "--clip=0.5",
    "--learning-rate=1e-3",
    "--quiet",
    "--log-every=2",
    "--save-every=2",
]


def command(data, out, steps):
    head = [sys.executable, "-m", "kerasbert.cli", "pretrain", "bert/tiny", f"--data={data}", f"--out={out}"]
    rates = ["--warmup=2", "--schedule=inverse_square_root"]  # the same whatever the number of steps
    return [*head, f"--steps={steps}", *rates, *ARGUMENTS, *(f"--set={k}={v}" for k, v in tiny.SPEC.items())]


def together(line, workers=2):
    """Run a command as so many workers."""
    ports = []
    for _ in range(workers):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            ports.append(free.getsockname()[1])
    running = []
    for index in range(workers):
        task = {
            "cluster": {"worker": [f"localhost:{port}" for port in ports]},
            "task": {"type": "worker", "index": index},
        }
        env = {**os.environ, "TF_CONFIG": json.dumps(task), "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}
        running.append(subprocess.Popen(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    outputs = [process.communicate(timeout=400)[0] for process in running]
    assert [process.returncode for process in running] == [0] * workers, "\n".join(outputs)


def weights(run):
    tensors = read_tensors(run)
    return {name: tensors.read(name) for name in tensors.names()}


@pytest.mark.full
def test_two_processes_train_as_one_and_resume(tmp_path):
    data = tiny.records(tmp_path)
    subprocess.run(command(data, tmp_path / "one", 6), cwd=ROOT, check=True, capture_output=True)
    together([*command(data, tmp_path / "two", 4), "--strategy=multiworker"])
    together([*command(data, tmp_path / "two", 6), "--strategy=multiworker"])
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert one.keys() == two.keys()
    assert max(np.abs(one[name] - two[name]).max() for name in one) <= 1e-6
    steps = [json.loads(line)["step"] for line in (tmp_path / "two" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [2, 4, 6]  # the chief alone writes

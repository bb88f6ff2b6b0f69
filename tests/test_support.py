"""What tests share: forks end as processes do, and what is made once is made once."""

import gc
import signal
import time

import pytest

from tests.support import forked, once, start


@pytest.mark.slow
def test_a_fork_is_a_process_of_its_own(tmp_path):
    code = """
import os, sys, tensorflow as tf
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
print(len(tf.config.list_logical_devices("CPU")), sys.argv[1:], os.environ["MINE"], __name__)
print("said", file=sys.stderr)
sys.exit(3)
"""
    done = forked("-c", code, tmp_path, 7, check=False, MINE="x")
    assert (done.returncode, done.stdout) == (3, f"2 ['{tmp_path}', '7'] x __main__\n")
    assert done.stderr == "said\n"
    assert forked("-c", "import tensorflow as tf; print(len(tf.config.list_logical_devices('CPU')))").stdout == "1\n"
    (tmp_path / "script.py").write_text("import sys\nprint(sys.argv, __file__)\nraise KeyError('x')")
    done = forked(tmp_path / "script.py", "y", check=False)
    assert done.stdout == f"['{tmp_path}/script.py', 'y'] {tmp_path}/script.py\n"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "KeyError: 'x'")
    with pytest.raises(AssertionError, match="ended with 2"):
        forked("-m", "kerasbert.cli", "shwo")


def test_what_was_imported_is_not_looked_at_by_the_garbage_collector():
    """Nor in a fork, where that would copy it."""
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000
    code = "import gc; print(gc.isenabled(), gc.get_freeze_count() > 100_000)"
    assert forked("-c", code).stdout == "True True\n"


def test_a_fork_is_sent_signals():
    child = start("-c", "import time; print('begun', flush=True); time.sleep(60)")
    while child.stdout.read_text() != "begun\n":
        time.sleep(0.01)
    assert child.poll() is None
    child.send_signal(signal.SIGTERM)
    assert child.wait() == -signal.SIGTERM


def test_what_is_made_once_is_made_once(tmp_path_factory):
    calls = []

    def make(folder):
        calls.append(folder)
        (folder / "x").write_text("y")
        if len(calls) == 1:
            raise OSError("full")
        return {"calls": len(calls)}

    with pytest.raises(OSError, match="full"):
        once(tmp_path_factory, "test-once", make)
    for _ in range(2):
        folder, result = once(tmp_path_factory, "test-once", make)
        assert (result, (folder / "x").read_text()) == ({"calls": 2}, "y")

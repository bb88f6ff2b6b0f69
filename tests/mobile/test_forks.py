"""A process may fork while others of its threads answer: its children answer too, and none waits for ever."""

import os
import subprocess
import sys
import threading
import time

import pytest

from kerasbert.errors import InputError
from kerasbert.mobile.cli import main
from kerasbert.mobile.runtime import load
from kerasbert.mobile.runtime.system import forks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")

SERVER = """
import os, sys, threading, time, warnings
from kerasbert.mobile.runtime import load

warnings.simplefilter("ignore")  # Python 3.12 warns of a fork beside threads
path, threads, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
texts = ["a good film", "the plot is not good", "very very bad " * 9]
model = load(path, cache=False, threads=threads)
wanted = [answer.to_json() for answer in model(texts)]
stop = []

def busy():
    while not stop:
        assert [answer.to_json() for answer in model(texts)] == wanted

def loading():
    while not stop:
        load(path, cache=False).close()

workers = [threading.Thread(target=busy), threading.Thread(target=busy), threading.Thread(target=loading)]
for worker in workers:
    worker.start()
children = []
for _ in range(count):
    time.sleep(0.003)
    child = os.fork()
    if not child:
        good = [answer.to_json() for answer in model(texts)] == wanted
        good = good and [answer.to_json() for answer in load(path, cache=False)(texts)] == wanted
        os._exit(0 if good else 3)
    children.append(child)
statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
stop.append(1)
for worker in workers:
    worker.join()
print(statuses)
"""


@pytest.mark.parametrize("threads", [1, 3])
def test_children_of_a_process_that_answers_answer_too(float_file, threads):
    """20 forks while two threads answer and a third opens files; before, half of the children hung."""
    done = subprocess.run(
        [sys.executable, "-c", SERVER, str(float_file[0]), str(threads), "20"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, str([0] * 20)), done.stderr[-2000:]


def test_a_fork_waits_for_the_answer_of_another_thread():
    """The child finds the lock free; in the parent it is where it was."""
    lock, entered, leave = forks.lock(), threading.Event(), threading.Event()

    def answering():
        with lock:
            entered.set()
            leave.wait(10)

    worker = threading.Thread(target=answering)
    worker.start()
    entered.wait(10)
    threading.Timer(0.2, leave.set).start()
    begun = time.monotonic()
    child = os.fork()
    if not child:
        os._exit(0 if lock.acquire(timeout=5) else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert time.monotonic() - begun > 0.15
    worker.join()
    assert lock.acquire(timeout=1)
    lock.release()


@pytest.mark.parametrize("threads", [0, -1, 257, 100_000])
def test_a_number_of_threads_that_no_machine_has_is_refused(float_file, threads, capsys):
    """100,000 of them were a segmentation fault after the answer."""
    with pytest.raises(InputError, match=f"^threads is {threads}, expected 1 to 256$"):
        load(float_file[0], threads=threads)
    assert main(["run", str(float_file[0]), "--threads", str(threads), "a"]) == 2
    assert f"threads is {threads}, expected 1 to 256" in capsys.readouterr().err

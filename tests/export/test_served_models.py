"""Real SavedModels under `kerasbert serve`: answers of every kind alone and joined, load, versions, kills."""

import contextlib
import os
import random
import shutil
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.export import load, signatures
from kerasbert.export.client import CallError, Client
from kerasbert.tasks.base import kind_of
from tests.export.served import ask, server
from tests.support import by_hand, start
from tests.tasks import real_inputs
from tests.tasks.test_every_kind import KINDS, check_served, made

COUNT = 200


def arrays(outputs):
    """What a client gives, as TensorFlow gives it."""
    found = {name: np.array(value) for name, value in outputs.items()}
    return {
        name: np.array(np.char.encode(value, "utf-8").tolist(), object) if value.dtype.kind == "U" else value
        for name, value in found.items()
    }


@pytest.mark.parametrize("kind", by_hand(KINDS))
def test_answers_over_rest_and_grpc_are_those_of_predict(kind, tmp_path):
    """200 real inputs of 16 callers, in calls of one to seven rows; then one after the other."""
    model = made("bert", kind, real_inputs.tokenizer("wordpiece"), tmp_path)
    folder = tmp_path / "serving" / kind / "1"
    kb.export(model, folder)
    inputs, names = (
        real_inputs.inputs(kind)[:COUNT],
        ("text",) if kind == "vector" else model.task.how.strings(model.task),
    )
    if kind == "vector":
        wanted = [{"values": row.tolist()} for row in kb.encode(model, inputs)]
    else:
        wanted = [answer.to_json() for answer in kb.predict(model, inputs)]
    sizes, generator = [], random.Random(5)
    while sum(sizes) < len(inputs):
        sizes.append(generator.randint(1, 7))
    parts = [inputs[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(len(sizes))]

    def answered(client, part):
        given = signatures.given(kind_of(model), names, part)
        return client.predict({name: value.numpy().tolist() for name, value in given.items()})

    with server({kind: folder.parent}) as one:
        for url in (f"http://127.0.0.1:{one.ports[0]}", f"grpc://127.0.0.1:{one.ports[1]}"):
            with Client(url, kind) as client, ThreadPoolExecutor(16) as pool:
                before = one.metrics.batches[kind]
                first = 0
                for part, found in zip(parts, pool.map(answered, [client] * len(parts), parts)):
                    check_served(model, wanted[first : first + len(part)], arrays(found), part)
                    first += len(part)
                assert one.metrics.batches[kind] - before < len(parts)  # some were joined
                for number in range(0, len(inputs), 20):
                    found = answered(client, inputs[number : number + 1])
                    check_served(model, wanted[number : number + 1], arrays(found), inputs[number : number + 1])


class Process:
    """`kerasbert serve` in a process of its own."""

    def __init__(self, *arguments):
        self.child = start("-m", "kerasbert.cli", "serve", *map(str, arguments))
        self.url = ""

    def ready(self):
        """Wait for its line; -> the port."""
        end = time.monotonic() + 120
        while "serving " not in (said := self.child.stdout.read_text()):
            assert self.child.poll() is None, self.child.stderr.read_text()
            assert time.monotonic() < end
            time.sleep(0.05)
        self.url = said.split("http://")[1].split("/")[0]
        self.grpc = said.split("gRPC ")[1].strip()
        return int(self.url.rpartition(":")[2])

    def memory(self):
        """Resident MB."""
        with open(f"/proc/{self.child.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


@contextlib.contextmanager
def process(*arguments):
    one = Process(*arguments)
    try:
        yield one
    finally:
        one.child.send_signal(signal.SIGKILL)
        one.child.wait()


def under_load(client, wanted, requests, during=lambda: None, threads=32):
    """Requests of many callers, while something is done; -> errors, wrong answers."""
    texts, errors, wrong, numbers, lock = list(wanted), [], [], iter(range(requests)), threading.Lock()

    def work():
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            text = texts[number % len(texts)]
            try:
                found = client.predict({"text": [text]})["probabilities"][0]
            except CallError as error:
                errors.append(str(error))
                continue
            if not np.allclose(found, wanted[text], atol=1e-5):
                wrong.append(text)

    callers = [threading.Thread(target=work) for _ in range(threads)]
    for caller in callers:
        caller.start()
    during()
    for caller in callers:
        caller.join()
    return errors, wrong


def expected(classifier):
    texts = [f"{text} {number}" for number in range(8) for text in load.TEXTS]
    return {text: list(answer.scores.values()) for text, answer in zip(texts, kb.predict(classifier, texts))}


@pytest.mark.slow
def test_load_versions_and_kills(classifier, served, tmp_path):
    """1,000 requests of 32 callers while a version takes over and a damaged one comes: no error, no wrong answer."""
    folder, wanted = tmp_path / "author", expected(classifier)
    shutil.copytree(served, folder / "1")
    with process(folder, "--port", 0, "--grpc-port", 0, "--poll", 0.1) as one:
        port = one.ready()

        def switch():
            shutil.copytree(served, tmp_path / "2")
            (tmp_path / "2").rename(folder / "2")
            shutil.copytree(served, tmp_path / "3")
            with open(tmp_path / "3" / "variables" / "variables.data-00000-of-00001", "r+b") as file:
                file.truncate(1000)
            (tmp_path / "3").rename(folder / "3")

        with Client(f"http://{one.url}", "author", retries=0) as client:
            assert under_load(client, wanted, 500, switch) == ([], [])
            end = time.monotonic() + 30
            while client.status() != {3: "END", 2: "AVAILABLE"} and time.monotonic() < end:
                time.sleep(0.05)
            assert client.status() == {3: "END", 2: "AVAILABLE"}
        with Client(f"grpc://{one.grpc}", "author", retries=0) as client:
            assert under_load(client, wanted, 500) == ([], [])
        huge = socket.create_connection(("127.0.0.1", port))
        huge.sendall(b"POST /v1/models/author:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        one.child.send_signal(signal.SIGKILL)
        one.child.wait()
        huge.close()
        again = Process(folder, "--port", port, "--grpc-port", 0)  # of the dead one's port
        try:
            assert again.ready() == port
            with Client(f"http://{again.url}", "author") as client:
                assert under_load(client, wanted, 40) == ([], [])
            again.child.send_signal(signal.SIGTERM)
            assert again.child.wait(60) == 0
        finally:
            again.child.send_signal(signal.SIGKILL)
    assert "version 3 is refused: variables/variables.data-00000-of-00001 differs" in again.child.stderr.read_text()


@pytest.mark.full
def test_ten_thousand_requests_leave_the_memory_flat(classifier, served):
    """By hand: 10,000 requests over each way, then hostile ones of 64 MB and of 10,000 texts."""
    wanted = expected(classifier)
    with process(served, "--port", 0, "--grpc-port", 0) as one:
        port = one.ready()
        with Client(f"http://{one.url}", "author", retries=0, rows=20_000) as rest:
            with Client(f"grpc://{one.grpc}", "author", retries=0) as grpc:
                seen = [one.memory()]
                for client in (rest, grpc):
                    for count in (1000, 3000, 3000, 3000):
                        assert under_load(client, wanted, count) == ([], [])
                        seen.append(one.memory())
            print("MB:", seen)
            assert seen[-1] - seen[1] < 0.05 * seen[1]
            assert ask(port, "/v1/models/author:predict", b'{"inputs": ["' + b"x " * (32 << 20) + b'"]}')[0] == 413
            assert len(rest.predict({"text": ["a film"] * 10_000})["labels"]) == 10_000
            assert rest.predict({"text": ["x " * (7 << 20)]})["truncated"] == [True]
            print("MB:", one.memory())
            assert under_load(rest, wanted, 40) == ([], [])

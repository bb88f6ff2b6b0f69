"""Real SavedModels under `kerasbert serve`: answers of every kind alone and joined, load, versions, kills."""

import contextlib
import itertools
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
from kerasbert.export import graphs, load, signatures
from kerasbert.export.client import CallError, Client
from kerasbert.tasks.base import kind_of
from tests.export.served import ask, call, examples_request, server
from tests.support import often, start
from tests.tasks import real_inputs
from tests.tasks.test_every_kind import KINDS, TOKENIZERS, check_served, made

COUNT = 200
FEW = ("regression", "unigram", 40)  # in CI: a line of each language


def arrays(outputs):
    """What a client gives, as TensorFlow gives it."""
    found = {name: np.array(value) for name, value in outputs.items()}
    return {
        name: np.array(np.char.encode(value, "utf-8").tolist(), object) if value.dtype.kind == "U" else value
        for name, value in found.items()
    }


def check_examples(ports, name, kind, wanted, rows):
    """Classify or Regress, over both ways, of tf.Examples: each class with its score, or the number."""
    verb, noun = {"classification": ("classify", "Classification"), "regression": ("regress", "Regression")}[kind]
    code, found = ask(ports[0], f"/v1/models/{name}:{verb}", {"signature_name": verb, "examples": rows})
    encoded = ({key: text.encode() for key, text in row.items()} for row in rows)
    result = call(ports[1], verb.title(), examples_request(verb, *encoded, name=name, noun=noun)).result
    if verb == "regress":
        assert (code, [each.value for each in result.regressions]) == (200, found["results"])
        np.testing.assert_allclose(found["results"], [each["value"] for each in wanted], atol=1e-5, rtol=1e-5)
        return
    listed = [[[each.label, each.score] for each in row.classes] for row in result.classifications]
    assert (code, listed) == (200, found["results"])
    for row, answer in zip(listed, wanted, strict=True):
        scores = dict(row)
        assert max(scores, key=scores.get) == answer["label"]
        assert scores == pytest.approx(answer["scores"], abs=1e-5)


def check_calls(one, kind, model, wanted, inputs):
    """Answers of 16 callers at once, in calls of one to seven rows; then of some alone."""
    sizes, generator = [], random.Random(5)
    while sum(sizes) < len(inputs):
        sizes.append(generator.randint(1, 7))
    parts = [inputs[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(len(sizes))]
    names = graphs.text_names(model)

    def answered(client, part):
        given = signatures.given(kind_of(model), names, part)
        return client.predict({name: value.numpy().tolist() for name, value in given.items()})

    for url in (f"http://127.0.0.1:{one.ports[0]}", f"grpc://127.0.0.1:{one.ports[1]}"):
        with Client(url, kind) as client, ThreadPoolExecutor(16) as pool:
            before, first = one.metrics.batches[kind], 0
            for part, found in zip(parts, pool.map(answered, [client] * len(parts), parts)):
                check_served(model, wanted[first : first + len(part)], arrays(found), part)
                first += len(part)
            assert one.metrics.batches[kind] - before < len(parts)  # some were joined
            for number in range(0, len(inputs), 20):
                found = answered(client, inputs[number : number + 1])
                check_served(model, wanted[number : number + 1], arrays(found), inputs[number : number + 1])


EVERY = itertools.product(KINDS, TOKENIZERS, [COUNT])


@pytest.mark.parametrize(("kind", "tokenizer", "count"), often([FEW, *EVERY], FEW))
def test_answers_over_rest_and_grpc_are_those_of_predict(kind, tokenizer, count, tmp_path):
    """So many real inputs and lines of 16 languages, for three tokenizers; Classify and Regress of them too."""
    model = made("bert", kind, real_inputs.tokenizer(tokenizer), tmp_path)
    kb.export(model, tmp_path / "serving" / kind / "1")
    inputs = [*real_inputs.inputs(kind)[:: COUNT // count], *real_inputs.languages(kind)[:: COUNT // count]]
    if kind == "vector":
        wanted = [{"values": row.tolist()} for row in kb.encode(model, inputs)]
    else:
        wanted = [answer.to_json() for answer in kb.predict(model, inputs)]
    with server({kind: tmp_path / "serving" / kind}) as one:
        check_calls(one, kind, model, wanted, inputs)
        if kind_of(model).examples:
            names = graphs.text_names(model)
            rows = [dict(zip(names, text if isinstance(text, tuple) else (text,))) for text in inputs]
            check_examples(one.ports, kind, kind, wanted, rows)


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
        answers = [answer.to_json() for answer in kb.predict(classifier, list(wanted))]
        rows = [{"text": text} for text in wanted]
        check_examples((port, one.grpc.rpartition(":")[2]), "author", "classification", answers, rows)
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

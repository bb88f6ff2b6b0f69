"""A server in a thread over SavedModels of a few operations, for the tests of `kerasbert.export.server` and of its client."""

import asyncio
import contextlib
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import tensorflow as tf

from kerasbert.export import messages
from kerasbert.export.beside import name_methods
from kerasbert.export.messages import message
from kerasbert.export.server.run import Server, Settings

PREDICT = "/v1/models/tiny:predict"

PARAMETERS = """\
max_batch_size { value: 8 }
batch_timeout_micros { value: 2000 }  # as export writes it
max_enqueued_batches { value: 4 }
pad_variable_length_inputs: true
"""


def parsed(rows):
    """The features of tf.Examples: text, and n / 3, 1 / 3 where it is not given."""
    features = {"text": tf.io.FixedLenFeature([], tf.string), "n": tf.io.FixedLenFeature([], tf.int64, 1)}
    found = tf.io.parse_example(rows, features)
    return found["text"], tf.cast(found["n"], tf.float32) / 3


class Tiny(tf.Module):
    """Rows that do not depend on each other, under any padding: `n` is refused where negative."""

    def __init__(self, version: int) -> None:
        super().__init__()
        self.version = tf.Variable(version)

    @tf.function(input_signature=[tf.TensorSpec(None, tf.string), tf.TensorSpec(None, tf.int32)])
    def call(self, text, n):
        fits = tf.reduce_all(tf.equal(tf.rank(text), 1))
        with tf.control_dependencies(
            [
                tf.debugging.Assert(
                    fits, ["the input text is a list of strings [B]. Received the shape", tf.shape(text)]
                ),
                tf.debugging.assert_non_negative(n, "n is at least 0"),
                tf.debugging.assert_equal(tf.size(text), tf.size(n), "as many rows of text as of n"),
            ]
        ):
            scores = tf.cast(tf.stack([n, 2 * n], axis=1), tf.float32) / 3
        raw = tf.strings.join([text, tf.constant(b"\xff")])
        numbers = tf.fill(tf.shape(n), self.version)
        return {"shout": tf.strings.upper(text), "scores": scores, "raw_bytes": raw, "version": numbers}

    @tf.function(input_signature=[tf.TensorSpec(None, tf.string), tf.TensorSpec(None, tf.int32)])
    def lists(self, choices, counts):
        there = tf.sequence_mask(counts, tf.shape(choices)[1])
        return {"picked": tf.where(there, choices, ""), "count": counts}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def classify(self, inputs):
        text, n = parsed(inputs)
        classes = tf.stack([tf.strings.upper(text), tf.fill(tf.shape(text), "other")], axis=1)
        return {"classes": classes, "scores": tf.stack([n, 2 * n], axis=1)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def regress(self, inputs):
        return {"outputs": parsed(inputs)[1]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def one(self, text):
        return {"length": tf.strings.length(text, "UTF8_CHAR")}


def write(folder: Path, version: int = 1, parameters: str | None = PARAMETERS, examples: bool = False) -> Path:
    """A SavedModel, which answers Classify and Regress too where `examples` says so."""
    tiny = Tiny(version)
    signatures = {"serving_default": tiny.call, "lists": tiny.lists, "one": tiny.one}
    signatures |= {"classify": tiny.classify, "regress": tiny.regress} if examples else {}
    tf.saved_model.save(tiny, str(folder), signatures)
    name_methods(folder, signatures)
    if parameters is not None:
        (folder / "batching_params.pbtxt").write_text(parameters)
    return folder


@contextlib.contextmanager
def server(models: dict[str, Path], **settings) -> Iterator[Server]:
    """One that answers; it is stopped as by a SIGTERM."""
    made: list[tuple[Server, asyncio.AbstractEventLoop]] = []
    failed: list[BaseException] = []

    async def main():
        one = Server(Settings(models, port=0, grpc_port=0, **settings), signals=False)
        made.append((one, asyncio.get_running_loop()))
        await one.run()

    def run():
        try:
            asyncio.run(main())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not (made and made[0][0].ready.wait(0.05)):
        if not thread.is_alive():
            raise failed[0]
    made[0][0].halt = lambda: made[0][1].call_soon_threadsafe(made[0][0].stopped.set)
    try:
        yield made[0][0]
    finally:
        with contextlib.suppress(RuntimeError):  # it has ended
            made[0][1].call_soon_threadsafe(made[0][0].stopped.set)
        thread.join()
    assert not failed


def ask(port: int, path: str, body: object = None) -> tuple[int, dict]:
    """Status and json of a request: a GET, or a POST of json or bytes."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", data, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def raw(port, data, end=False):
    """What a server sends to bytes on a socket, until it closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as link:
        link.sendall(data)
        if end:
            link.shutdown(socket.SHUT_WR)
        parts = []
        while part := link.recv(1 << 16):
            parts.append(part)
    return b"".join(parts).decode()


def row(text, n):
    return {"text": text, "n": n}


def call(port, method, request):
    """A call over gRPC -> the response."""
    service = "ModelService" if method == "GetModelStatus" else "PredictionService"
    noun = {"Classify": "Classification", "Regress": "Regression"}.get(method, method)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        asked = channel.unary_unary(f"/tensorflow.serving.{service}/{method}")
        data = request if isinstance(request, bytes) else request.SerializeToString()
        return message(f"{noun}Response").FromString(asked(data, timeout=20))


def examples_request(signature, *examples, name="tiny", context=None, noun="Classification"):
    """A request of Classify or Regress of TensorFlow's own tf.Examples."""
    request = message(f"{noun}Request")()
    request.model_spec.name, request.model_spec.signature_name = name, signature
    rows = [example(**each).SerializeToString() for each in examples]
    if context is not None:
        request.input.example_list_with_context.context = example(**context).SerializeToString()
        request.input.example_list_with_context.examples.extend(rows)
    else:
        request.input.example_list.examples.extend(rows)
    return request


def example(**features):
    """A tf.Example of strings and whole numbers."""
    made = tf.train.Example()
    for name, value in features.items():
        feature = made.features.feature[name]
        (feature.bytes_list if isinstance(value, bytes) else feature.int64_list).value.append(value)
    return made


def predict_request(name="tiny", signature="", **inputs):
    request = message("PredictRequest")()
    request.model_spec.name, request.model_spec.signature_name = name, signature
    for key, value in inputs.items():
        messages.fill(request.inputs[key], np.array(value, object if isinstance(value[0], bytes) else None))
    return request

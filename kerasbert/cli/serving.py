"""`kerasbert serve | serve-benchmark`: SavedModels behind TF Serving's REST and gRPC API, and what such a server stands."""

import argparse
import importlib.util
from typing import TypeVar

from kerasbert.cli.parser import Declare, show
from kerasbert.cli.shared_options import encoding_option
from kerasbert.errors import InputError

Number = TypeVar("Number", bound=float)
NEEDED = ("grpc", "h11", "tensorflow", "tensorflow_text")


def _serve(options: argparse.Namespace) -> int:
    from kerasbert.export.server import folders

    changes: dict[str, float] = {}
    if options.max_batch is not None:
        changes["rows"] = _least("--max-batch", options.max_batch, 1)
    if options.batch_wait is not None:
        changes["wait"] = _least("--batch-wait", options.batch_wait, 0) / 1000
    settings = {
        "host": options.host,
        "port": _port("--port", options.port),
        "grpc_port": _port("--grpc-port", options.grpc_port),
        "versions": _least("--versions", options.versions, 1),
        "poll": _least("--poll", options.poll, 0.1),
        "max_body": _least("--max-body", options.max_body, 1) << 20,
        "timeout": _least("--timeout", options.timeout, 1),
        "grace": _least("--grace", options.grace, 0),
    }
    models = folders.named(options.models, options.name)
    for library in NEEDED:  # before TensorFlow is imported, which takes seconds
        if importlib.util.find_spec(library) is None:
            raise ModuleNotFoundError(name=library)
    from kerasbert.export.server.run import Settings, run

    return run(Settings(models, changes=changes, **settings))


def _benchmark(options: argparse.Namespace) -> None:
    from kerasbert.export import load
    from kerasbert.export.client import CallError, Client

    settings = {
        "requests": _least("--requests", options.requests, 1),
        "concurrency": _least("--concurrency", options.concurrency, 1),
        "batch": _least("--batch", options.batch, 1),
        "signature": options.signature,
    }
    rows = load.read(options.data) if options.data else []
    how = {"timeout": options.timeout, "retries": 0, "rows": options.batch, "certificate": options.certificate}
    try:
        with Client(options.url, options.model, **how) as client:
            found = load.measure(client, rows or load.sample(client.inputs(options.signature)), **settings)
    except CallError as error:
        raise InputError(f"{options.url}, model {options.model}: {error}") from error
    show(found, options.json, load.table(found))


def _least(option: str, value: Number, least: float) -> Number:
    if not least <= value < float("inf"):
        raise InputError(f"{option} is at least {least}. Received: {value}")
    return value


def _port(option: str, value: int) -> int:
    if not 0 <= value <= 65535:
        raise InputError(f"{option} is 1 to 65535, or 0 for a free one. Received: {value}")
    return value


def add(command: Declare) -> None:
    """Declare the commands."""
    add = command("serve", _serve, "answer requests as TF Serving does, from SavedModels of export")
    text = "a folder of versions 1, 2, ..., or one version; NAME=DIR names it, and several may stand here"
    add.add_argument("models", nargs="+", metavar="DIR", help=text)
    add.add_argument("--name", help="the model's name in addresses; default: its folder's")
    add.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen; 0.0.0.0: every network")
    add.add_argument("--port", type=int, default=8501, metavar="N", help="of REST and /metrics; 0: a free one")
    add.add_argument("--grpc-port", type=int, default=8500, metavar="N", help="of gRPC; 0: a free one")
    add.add_argument("--versions", type=int, default=1, metavar="N", help="how many of the newest are served")
    add.add_argument("--poll", type=float, default=2.0, metavar="SECONDS", help="between looks for new versions")
    text = "rows of a batch; default: what batching_params.pbtxt beside the model says"
    add.add_argument("--max-batch", type=int, metavar="ROWS", help=text)
    add.add_argument(
        "--batch-wait", type=float, metavar="MS", help="how long a call waits for others; default: likewise"
    )
    add.add_argument("--max-body", type=int, default=16, metavar="MB", help="largest request")
    add.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="for a request to arrive")
    add.add_argument("--grace", type=float, default=30.0, metavar="SECONDS", help="a stop waits for begun requests")

    add = command(
        "serve-benchmark", _benchmark, "requests of many callers at once: how many a second, and how long they take"
    )
    add.add_argument(
        "url", metavar="URL", help="of TF Serving or kerasbert serve: http://HOST:8501 or grpc://HOST:8500"
    )
    add.add_argument("--model", required=True, metavar="NAME", help="the model's name on the server")
    add.add_argument("--signature", default="serving_default", metavar="NAME", help="what is called")
    add.add_argument("--data", metavar="FILE", help="rows: a json object of inputs on each line; default: sample texts")
    encoding_option(add)
    add.add_argument("--requests", type=int, default=1000, metavar="N", help="how many in all")
    add.add_argument("--concurrency", type=int, default=8, metavar="N", help="how many at once")
    add.add_argument("--batch", type=int, default=1, metavar="ROWS", help="rows of a request")
    add.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS", help="of a request")
    add.add_argument(
        "--certificate", metavar="FILE", help="PEM, of the authority that signed the server's (https, grpcs)"
    )
    add.add_argument("--json", action="store_true")

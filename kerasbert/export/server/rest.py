"""TF Serving's REST API over the models of a server."""

import asyncio
import json
import re
import urllib.parse

import numpy as np

from kerasbert.export.server import examples, json_arrays
from kerasbert.export.server.examples import APIS, Api
from kerasbert.export.server.metrics import Metrics
from kerasbert.export.server.models import Models, Version
from kerasbert.export.server.said import fault
from kerasbert.export.status import CallError, invalid
from kerasbert.storage.json_view import Json

JSON, TEXT = "application/json", "text/plain; version=0.0.4; charset=utf-8"
CHOSEN = r"(?:/versions/(\d{1,18})|/labels/([^/:]+))?"
PREDICTION = re.compile(rf"/v1/models/([^/:]+){CHOSEN}:(classify|regress|predict)", re.I)
STATUS = re.compile(rf"/v1/models(?:/([^/:]+))?{CHOSEN}(/metadata)?", re.I)
LARGE = 100_000  # bytes of a body that is read in a thread: the event loop has others to answer

Answer = tuple[int, str, bytes]
"""Status, type and body."""


class Rest:
    """Answers requests.

    Args:
        models: Models. metrics: Metrics.
    """

    def __init__(self, models: Models, metrics: Metrics) -> None:
        self.models, self.metrics = models, metrics

    async def __call__(self, method: str, target: str, body: bytes) -> Answer:
        """The answer to a request, whatever it is; to HEAD that of GET, whose body is not sent."""
        method = "GET" if method == "HEAD" else method
        try:
            return await self._answer(method, _path(target), body)
        except CallError as error:
            return error.http, JSON, problem(str(error))
        except Exception as error:  # a fault of ours, or of the model
            return 500, JSON, problem(fault(f"{method} {target[:100]}", error))

    async def _answer(self, method: str, path: str, body: bytes) -> Answer:
        if method == "POST" and (found := PREDICTION.fullmatch(path)):
            name, version, label, verb = found.groups()
            with self.metrics.counted(name if name in self.models else "", "rest"):
                chosen = self.models.named(name).find(_number(version, label))
                api = APIS.get(verb.lower())
                answered = self._of_examples(chosen, api, body) if api else self._predicted(chosen, body)
                return 200, JSON, await answered
        if method == "GET" and path == "/metrics":
            return 200, TEXT, self._metrics().encode()
        if method == "GET" and (found := STATUS.fullmatch(path)):
            name, version, label, metadata = found.groups()
            if not name:
                raise invalid("Missing model name in request.")
            told = self._metadata if metadata else self._status
            return 200, JSON, json.dumps(told(name, _number(version, label)), indent=1).encode()
        if not path.lower().startswith("/v1/"):
            known = "GET /v1/models/NAME, GET /metrics, POST /v1/models/NAME:predict"
            raise CallError("NOT_FOUND", f"nothing is at {method} {path[:100]}. There are: {known}")
        raise invalid(
            f"Malformed request: {method} {path[:200]}{': ask it by POST' * bool(PREDICTION.fullmatch(path))}"
        )

    async def _predicted(self, chosen: Version, body: bytes) -> bytes:
        def read() -> tuple[str, dict[str, np.ndarray], bool]:
            request = json_arrays.request(body)
            signature = request.get("signature_name") or "serving_default"
            if signature not in chosen.loaded.definitions:
                known = ", ".join(chosen.loaded.definitions)
                raise invalid(f'Serving signature name: "{signature[:100]}" not found in signature def. All: {known}')
            definition = chosen.loaded.definitions[signature]
            return signature, json_arrays.arrays(request, definition), "instances" in request

        signature, inputs, rows = await asyncio.to_thread(read) if len(body) > LARGE else read()
        outputs = await chosen.answer(signature, inputs)
        if sum(value.size for value in outputs.values()) > LARGE:
            return await asyncio.to_thread(json_arrays.answered, outputs, rows)
        return json_arrays.answered(outputs, rows)

    async def _of_examples(self, chosen: Version, api: Api, body: bytes) -> bytes:
        large = len(body) > LARGE
        name, rows = await asyncio.to_thread(examples.from_json, body) if large else examples.from_json(body)
        results = await examples.answer(chosen, api, examples.signature_of(chosen, api, name), rows)
        return json_arrays.dumped({"results": results})

    def _status(self, name: str, version: int | None) -> Json:
        found = self.models.named(name, "Could not find any versions of model {}").status(version)
        return {
            "model_version_status": [
                {
                    "version": str(number),
                    "state": state,
                    "status": {"error_code": "UNKNOWN" if wrong else "OK", "error_message": wrong},
                }
                for number, state, wrong in found
            ]
        }

    def _metadata(self, name: str, version: int | None) -> Json:
        chosen = self.models.named(name).find(version)
        return {
            "model_spec": {"name": name, "signature_name": "", "version": str(chosen.number)},
            "metadata": {"signature_def": {"signature_def": chosen.loaded.described}},
        }

    def _metrics(self) -> str:
        waiting = {
            name: sum(queue.rows for version in model.versions.values() for queue in version.queues.values())
            for name, model in self.models.items()
        }
        served = [(name, number) for name, model in self.models.items() for number in sorted(model.versions)]
        return self.metrics.text(waiting, served)


def _path(target: str) -> str:
    """The path of a request, whose target a proxy sends with the host.

    >>> _path("http://host:8501/v1/models/a%20b?x=y"), _path("/v1/models/a")
    ('/v1/models/a b', '/v1/models/a')
    """
    return urllib.parse.unquote(re.sub("^https?://[^/?]*", "", target, flags=re.I).partition("?")[0])


def _number(version: str | None, label: str | None) -> int | None:
    if label:
        raise unlabelled(label)
    return int(version) if version else None


def unlabelled(label: str) -> CallError:
    """TF Serving's refusal of a label: here versions have none."""
    return invalid(f"Unrecognized servable version label: {label[:100]}: versions have numbers alone")


def problem(line: str) -> bytes:
    """The body of a refusal.

    >>> problem("no model")
    b'{"error": "no model"}'
    """
    return json.dumps({"error": line}).encode()

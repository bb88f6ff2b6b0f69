"""TF Serving's REST API from a client's side: the standard library alone."""

import base64
import contextlib
import http.client
import json
import os
import ssl
import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kerasbert.errors import InputError
from kerasbert.export.status import HTTP, Again, CallError
from kerasbert.storage.json_view import JsonMap

SCHEMES = {"http": 8501, "https": 443, "grpc": 8500, "grpcs": 443}  # scheme of an address -> the usual port
AGAIN = {429: "RESOURCE_EXHAUSTED", 502: "UNAVAILABLE", 503: "UNAVAILABLE"}  # statuses of calls that did not begin
Result = TypeVar("Result")
Call = Callable[[float], Result]
"""Makes a call within so many seconds."""
Spec = tuple[str, int | None, str]
"""Model, version, signature."""
Signature = dict[str, dict[str, str]]
"""{"inputs": {name: type}, "outputs": {name: type}}."""


class Rest:
    """TF Serving's REST API; connections are kept open, as many as calls ran at once."""

    def __init__(
        self, parts: urllib.parse.SplitResult, certificate: str | os.PathLike | None, headers: Mapping[str, str]
    ) -> None:
        self.where, self.headers = parts, {"Content-Type": "application/json", **headers}
        self.prefix = parts.path.rstrip("/")
        try:
            self.context = ssl.create_default_context(cafile=certificate) if parts.scheme == "https" else None
        except (OSError, ValueError) as error:
            raise InputError(f"{certificate} is no certificate in PEM: {error}") from error
        self.idle: list[http.client.HTTPConnection] = []

    def close(self) -> None:
        while self.idle:
            self.idle.pop().close()

    def __del__(self) -> None:
        if hasattr(self, "idle"):  # a certificate that cannot be read comes before it
            self.close()

    def _path(self, spec: Spec, end: str) -> str:
        model, version, _ = spec
        numbered = "" if version is None else f"/versions/{version}"
        return f"{self.prefix}/v1/models/{urllib.parse.quote(model, safe='')}{numbered}{end}"

    def predict(
        self, spec: Spec, inputs: Mapping[str, list], signatures: Callable[[str], Signature]
    ) -> Call[dict[str, list]]:
        columns = {name: _jsonable(value) for name, value in inputs.items()}
        try:
            body = json.dumps({"signature_name": spec[2], "inputs": columns}).encode()
        except TypeError as error:
            raise InputError(f"the inputs cannot be sent: {error}") from error
        path = self._path(spec, ":predict")

        def call(seconds: float) -> dict[str, list]:
            outputs = self._asked("POST", path, body, seconds, "outputs")
            if not isinstance(outputs, dict):  # of a single output the server names none
                (name,) = signatures(spec[2])["outputs"]
                outputs = {name: outputs}
            return {name: _bytes(rows) if name.endswith("_bytes") else rows for name, rows in outputs.items()}

        return call

    def status(self, spec: Spec) -> Call[dict[int, str]]:
        def call(seconds: float) -> dict[int, str]:
            found = self._asked("GET", self._path(spec, ""), None, seconds, "model_version_status")
            return {int(each["version"]): each["state"] for each in found}

        return call

    def signatures(self, spec: Spec) -> Call[dict[str, Signature]]:
        def typed(info: JsonMap) -> str:
            axes = [int(each["size"]) for each in info["tensor_shape"].get("dim", ())]
            unknown = info["tensor_shape"].get("unknown_rank")
            return f"{info['dtype']} {'?' if unknown else axes}"

        def call(seconds: float) -> dict[str, Signature]:
            found = self._asked("GET", self._path(spec, "/metadata"), None, seconds, "metadata")
            return {
                name: {
                    way: {key: typed(info) for key, info in sorted(each[way].items())} for way in ("inputs", "outputs")
                }
                for name, each in found["signature_def"]["signature_def"].items()
                if not name.startswith("__")
            }

        return call

    def _asked(self, method: str, path: str, body: bytes | None, seconds: float, key: str) -> Any:
        """What the json of an answer holds under a key.

        Raises:
            CallError: any status but 200, no answer, or one that holds no such thing.
        """
        try:
            status, after, data = self._exchange(method, path, body, time.monotonic() + seconds)
        except ssl.SSLCertVerificationError as error:
            raise CallError("UNAVAILABLE", f"{self.where.hostname} is not trusted: {error.verify_message}") from error
        except TimeoutError as error:
            raise CallError(
                "DEADLINE_EXCEEDED", f"{self.where.netloc} did not answer within {seconds:.3g} s"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            said = str(error) or type(error).__name__
            raise Again("UNAVAILABLE", f"cannot reach {self.where.netloc}: {said}") from error
        found, line = None, f"{self.where.netloc} answers {status}, and not as TF Serving does: {data[:80]!r}"
        with contextlib.suppress(ValueError, KeyError, TypeError):
            content = json.loads(data)
            found, line = (content[key], line) if status == 200 else (None, content["error"])
        if status in AGAIN:
            raise Again(AGAIN[status], line, after)
        if status != 200 or found is None:
            code = next((code for code, each in HTTP.items() if each == status and status != 200), "INTERNAL")
            raise CallError(code, line)
        return found

    def _exchange(self, method: str, path: str, body: bytes | None, end: float) -> tuple[int, float, bytes]:
        """Status, seconds that the server asks to wait, body."""
        connection = self._connection()
        try:
            connection.timeout = _left(end)
            if connection.sock is None:
                connection.connect()
            link = connection.sock  # an answer that ends the connection takes it from there
            assert link is not None
            link.settimeout(_left(end))
            connection.request(method, path, body, self.headers)
            response = connection.getresponse()
            parts = []
            while part := response.read(1 << 16):
                parts.append(part)
                if not response.isclosed():  # with "Connection: close" the end of the body closes the socket
                    link.settimeout(_left(end))
        except BaseException:
            connection.close()
            raise
        self.idle.append(connection)
        after = response.headers.get("Retry-After", "0")
        return response.status, float(after) if after.isdigit() else 0.0, b"".join(parts)

    def _connection(self) -> http.client.HTTPConnection:
        """One that is open and idle, or a new one."""
        with contextlib.suppress(IndexError):
            return self.idle.pop()
        host, port = self.where.hostname or "", self.where.port or SCHEMES[self.where.scheme]
        if self.context:
            return http.client.HTTPSConnection(host, port, context=self.context)
        return http.client.HTTPConnection(host, port)


def _left(end: float) -> float:
    """Seconds until then.

    Raises:
        TimeoutError: it is past.
    """
    if (seconds := end - time.monotonic()) <= 0:
        raise TimeoutError
    return seconds


def _jsonable(value: object) -> object:
    """Lists as json holds them: bytes in base64."""
    if isinstance(value, list | tuple):
        return [_jsonable(each) for each in value]
    return {"b64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _bytes(values: list) -> list:
    return [_bytes(each) if isinstance(each, list) else base64.b64decode(each["b64"]) for each in values]

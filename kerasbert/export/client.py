"""A client of TF Serving and of `kerasbert serve`: REST by the standard library, gRPC with the extra `serving`.

Importing it imports nothing heavy; a client needs no TensorFlow.
"""

import os
import random
import re
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from kerasbert.errors import InputError, missing
from kerasbert.export.client_rest import SCHEMES, Call, Rest, Result, Signature, Spec
from kerasbert.export.status import Again, CallError
from kerasbert.options import checked
from kerasbert.value_types import fits

if TYPE_CHECKING:
    from kerasbert.export.client_grpc import Grpc


__all__ = ["CallError", "Client"]

NAME, VALUE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"), re.compile(r"[ -~]*")  # of a header
FIRST, LONGEST = 0.1, 5.0  # seconds before another try: the first, the longest


class Client:
    """Predictions of a served model, from as many threads as like to.

    A prediction changes nothing on the server, so what did not reach it, or what it had no room for, is tried again with growing
    pauses; what it refused, or did not answer in time, is not.

    Args:
        url: str, http://HOST:8501, https://HOST, grpc://HOST:8500 or grpcs://HOST.
        model: str, its name on the server.
        version: int, of the model; by default the newest.
        timeout: float, seconds for a call, its tries together.
        retries: int, how often a call is tried again.
        rows: int, most rows of a call: of more, several calls are made, each with `timeout`.
        certificate: path, PEM, of the authority that signed the server's; by default those of the system.
        headers: for every call, such as {"authorization": "Bearer ..."}.

    Raises:
        InputError: an address or number that cannot be.
        ModuleNotFoundError: gRPC, and the extra `serving` is not installed.

    >>> Client("localhost", "author")
    Traceback (most recent call last):
    kerasbert.errors.InputError: the address of a server is such as http://HOST:8501 or grpc://HOST:8500. Received: 'localhost'
    """

    _transport: "Rest | Grpc"

    @checked
    def __init__(
        self,
        url: str,
        model: str,
        *,
        version: int | None = None,
        timeout: float = 30.0,
        retries: int = 3,
        rows: int = 32,
        certificate: str | os.PathLike | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        parts = _address(url)
        for name, value, least in (("timeout", timeout, 1e-3), ("retries", retries, 0), ("rows", rows, 1)):
            kind = int if isinstance(least, int) else float
            if not fits(value, kind, python=True) or not least <= value < float("inf"):
                raise InputError(f"{name} of a client is at least {least:g}. Received: {value!r}")
        if certificate is not None and parts.scheme not in ("https", "grpcs"):
            raise InputError(f"certificate is for https:// and grpcs://. Received: {url}")
        if certificate is not None and not os.path.isfile(certificate):
            raise InputError(f"no file {certificate}: a certificate of an authority, in PEM")
        if version is not None and not (fits(version, int, python=True) and 0 <= version < 2**63):
            raise InputError(f"version of a client is a whole number, None for the newest. Received: {version!r}")
        if not re.fullmatch(r"[^/:\s\ud800-\udfff]+", model):
            raise InputError(f"a model's name stands in its address: no '/', ':' or blank. Received: {model!r}")
        for name, value in (headers or {}).items():
            if not (
                isinstance(name, str) and NAME.fullmatch(name) and isinstance(value, str) and VALUE.fullmatch(value)
            ):
                raise InputError(
                    f"a header is a name and a text of one line in ASCII. Received: {name!r}: {value!r:.60}"
                )
        self.model, self.version, self.timeout, self.retries, self.rows = model, version, timeout, retries, rows
        self.closed = False
        if parts.scheme.startswith("http"):
            self._transport = Rest(parts, certificate, dict(headers or {}))
        else:
            try:
                from kerasbert.export.client_grpc import Grpc
            except ModuleNotFoundError as error:
                raise ModuleNotFoundError(f"{parts.scheme}:// needs {missing('grpc')}", name="grpc") from error
            self._transport = Grpc(parts, certificate, dict(headers or {}))
        self._signatures: dict[str, Signature] | None = None

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a call after it is refused."""
        self.closed = True
        self._transport.close()

    def __reduce__(self) -> NoReturn:
        raise InputError("a Client is neither pickled nor copied: make one in each process")

    @checked
    def predict(
        self, inputs: Mapping[str, Sequence[object]] | Sequence[object], signature: str = "serving_default"
    ) -> dict[str, list]:
        """The outputs of a signature.

        Args:
            inputs: name -> a value for each row: str, bytes, numbers, or lists of them; or of a signature with one input its
                values alone.
            signature: str.

        Returns:
            name -> a value for each row; strings are str, those of an output whose name ends in _bytes are bytes. Where
            rows were sent in several calls, lists in rows are filled with "" or 0 to one length.

        Raises:
            CallError: the server refuses it, cannot be reached, or does not answer in time.
            InputError: inputs of unlike counts, or none.
        """
        if not isinstance(inputs, Mapping):
            names = list(self._of(signature)["inputs"])
            if len(names) > 1:
                raise InputError(f"{signature} has the inputs {', '.join(names)}: give a value for each row by name")
            inputs = {names[0]: inputs}
        given = {name: _listed(name, value) for name, value in inputs.items()}
        counts = {name: len(value) for name, value in given.items()}
        if len(set(counts.values())) != 1:
            said = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise InputError(f"the inputs of a call have as many rows as each other. Received: {said or 'no input'}")
        total = next(iter(counts.values()))
        parts = []
        for first in range(0, total, self.rows) if total else (0,):
            part = {name: value[first : first + self.rows] for name, value in given.items()}
            call = self._transport.predict(self._spec(signature), part, self._of)
            parts.append(self._tried(call))
        return _joined(parts)

    def status(self) -> dict[int, str]:
        """Version -> its state, such as AVAILABLE.

        Raises:
            CallError: as `predict`.
        """
        return self._tried(self._transport.status(self._spec("")))

    def signatures(self) -> dict[str, Signature]:
        """Signature -> {"inputs": {name: type}, "outputs": {name: type}}, types as DT_STRING, with axes, -1 for any size.

        Raises:
            CallError: as `predict`.
        """
        return self._tried(self._transport.signatures(self._spec("")))

    @checked
    def inputs(self, signature: str = "serving_default") -> dict[str, str]:
        """Inputs of a signature -> their types, as `signatures` gives them.

        Raises:
            CallError: as `predict`; no such signature.
        """
        return self._of(signature)["inputs"]

    def _of(self, signature: str) -> Signature:
        """A signature, asked for once."""
        if self._signatures is None or signature not in self._signatures:
            self._signatures = self.signatures()
        if signature not in self._signatures:
            raise CallError("NOT_FOUND", f"no signature {signature}. All: {', '.join(sorted(self._signatures))}")
        return self._signatures[signature]

    def _spec(self, signature: str) -> Spec:
        return self.model, self.version, signature

    def _tried(self, call: Call[Result]) -> Result:
        """What a call gives, tried again where that may help, within the client's time."""
        if self.closed:
            raise InputError("the client is closed: make another")
        end, pause = time.monotonic() + self.timeout, FIRST
        for left in range(self.retries, -1, -1):
            try:
                return call(max(1e-3, end - time.monotonic()))
            except Again as error:
                wait = max(error.after, pause * random.uniform(0.5, 1))
                if not left or time.monotonic() + wait >= end:
                    raise CallError(error.code, str(error)) from error
                time.sleep(wait)
                pause = min(LONGEST, 2 * pause)
        raise AssertionError("a loop that ends by return or raise")


def _address(url: str) -> urllib.parse.SplitResult:
    parts = urllib.parse.urlsplit(url)
    try:
        right = parts.scheme in SCHEMES and parts.hostname and (parts.port or 1) and not parts.query
    except ValueError:  # a port that is none
        right = False
    if not right or (parts.scheme.startswith("grpc") and parts.path.strip("/")):
        raise InputError(f"the address of a server is such as http://HOST:8501 or grpc://HOST:8500. Received: {url!r}")
    return parts


def _listed(name: str, value: object) -> list:
    """The rows of an input."""
    rows = list(value) if isinstance(value, Sequence) and not isinstance(value, str | bytes) else _plain(value)
    if not isinstance(rows, list):
        raise InputError(f"the input {name} is a list with a value for each row. Received: {type(value).__name__}")
    return [_plain(row) for row in rows]


def _plain(value: Any) -> Any:
    """Python's own numbers and strings of NumPy's and the like, also within lists."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _joined(parts: Sequence[Mapping[str, list]]) -> dict[str, list]:
    """The rows of several calls."""
    found = {}
    for name in parts[0]:
        rows = [row for part in parts for row in part[name]]
        if len(parts) > 1 and any(isinstance(row, list) for row in rows):
            width = max(map(len, rows))
            blank = _blank(next((row[0] for row in rows if row), 0))
            rows = [row + [blank] * (width - len(row)) for row in rows]
        found[name] = rows
    return found


def _blank(value: object) -> object:
    """What fills a row up: nothing of the value's type.

    >>> _blank(["a", 1.5])
    ['', 0.0]
    """
    return [*map(_blank, value)] if isinstance(value, list) else type(value)()

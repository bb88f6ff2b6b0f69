"""TF Serving's gRPC API from a client's side: the extra `serving`."""

import os
import urllib.parse
from collections.abc import Callable, Mapping

import grpc
import numpy as np

from kerasbert.errors import InputError
from kerasbert.export import messages
from kerasbert.export.client_rest import SCHEMES, Call, Signature, Spec
from kerasbert.export.status import CODES, Again, CallError

NAMES = {number: name for number, (name, _, _) in messages.TYPES.items()}
DTYPES = {name: dtype for name, dtype, _ in messages.TYPES.values()}


class Grpc:
    """TF Serving's gRPC API; a channel for all threads."""

    def __init__(
        self, parts: urllib.parse.SplitResult, certificate: str | os.PathLike | None, headers: Mapping[str, str]
    ) -> None:
        self.headers = tuple((name.lower(), value) for name, value in headers.items())
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        self.where = f"{host}:{parts.port or SCHEMES[parts.scheme]}"
        options = [("grpc.max_receive_message_length", -1), ("grpc.enable_retries", 0)]
        if parts.scheme == "grpc":
            self.channel = grpc.insecure_channel(self.where, options)
            return
        root = None
        if certificate is not None:
            with open(certificate, "rb") as file:
                root = file.read()
        self.channel = grpc.secure_channel(self.where, grpc.ssl_channel_credentials(root), options)

    def close(self) -> None:
        self.channel.close()

    def _request(self, kind: str, spec: Spec) -> messages.Message:
        request = messages.message(kind)()
        request.model_spec.name, request.model_spec.signature_name = spec[0], spec[2]
        if spec[1] is not None:
            request.model_spec.version.value = spec[1]
        return request

    def predict(
        self, spec: Spec, inputs: Mapping[str, list], signatures: Callable[[str], Signature]
    ) -> Call[dict[str, list]]:
        request, types = self._request("PredictRequest", spec), signatures(spec[2])["inputs"]
        for name, rows in inputs.items():
            if name not in types:
                raise CallError("INVALID_ARGUMENT", f"{spec[2]} has no input {name}. All: {', '.join(sorted(types))}")
            messages.fill(request.inputs[name], self._array(name, rows, types[name]))

        def call(seconds: float) -> dict[str, list]:
            outputs = self._asked("PredictionService", "Predict", request, seconds).outputs
            return {name: _text(messages.array(value), name) for name, value in sorted(outputs.items())}

        return call

    def _array(self, name: str, rows: list, kind: str) -> np.ndarray:
        """Rows as an array of a signature's type.

        Raises:
            InputError: they are not of it.
        """
        dtype = DTYPES[kind.partition(" ")[0]]
        try:
            if dtype != "object":
                found = np.array(rows)
                same = np.can_cast(found.dtype, dtype, "same_kind") and (found.dtype == bool) == (dtype == "bool")
                with np.errstate(over="ignore"):
                    cast = found.astype(dtype) if not found.size or same else None
                whole = dtype.startswith(("int", "uint"))
                if cast is None or (cast != found if whole else np.isinf(cast) & ~np.isinf(found)).any():
                    raise ValueError(f"numbers of {dtype}")
                return cast
            found = np.array(rows, object)
            flat = [each.encode() if isinstance(each, str) else each for each in found.ravel().tolist()]
            if not all(isinstance(each, bytes) for each in flat):
                raise ValueError("strings, or lists of equal length of them")
            whole = np.empty(len(flat), object)
            whole[:] = flat
            return whole.reshape(found.shape)
        except UnicodeEncodeError as error:
            raise InputError(f"the input {name} cannot be sent: half of a surrogate pair in a string") from error
        except (ValueError, OverflowError, TypeError) as error:
            raise InputError(f"the input {name} cannot be sent. Expected: {error}") from error

    def status(self, spec: Spec) -> Call[dict[int, str]]:
        states = {number: name for name, number in messages.STATES.items()}

        def call(seconds: float) -> dict[int, str]:
            request = self._request("GetModelStatusRequest", spec)
            found = self._asked("ModelService", "GetModelStatus", request, seconds).model_version_status
            return {each.version: states.get(each.state, "UNKNOWN") for each in found}

        return call

    def signatures(self, spec: Spec) -> Call[dict[str, Signature]]:
        def typed(info: messages.Message) -> str:
            shape = info.tensor_shape
            return f"{NAMES.get(info.dtype, info.dtype)} {'?' if shape.unknown_rank else [each.size for each in shape.dim]}"

        def call(seconds: float) -> dict[str, Signature]:
            request = self._request("GetModelMetadataRequest", spec)
            request.metadata_field.append("signature_def")
            packed = self._asked("PredictionService", "GetModelMetadata", request, seconds).metadata["signature_def"]
            found = messages.message("SignatureDefMap").FromString(packed.value).signature_def
            return {
                name: {
                    "inputs": {key: typed(info) for key, info in sorted(each.inputs.items())},
                    "outputs": {key: typed(info) for key, info in sorted(each.outputs.items())},
                }
                for name, each in sorted(found.items())
                if not name.startswith("__")
            }

        return call

    def _asked(self, service: str, method: str, request: messages.Message, seconds: float) -> messages.Message:
        """The response.

        Raises:
            CallError: a status that is not OK.
        """
        path = f"/{messages.PACKAGE}.{service}/{method}"
        read = messages.message(f"{method}Response").FromString
        call = self.channel.unary_unary(path, type(request).SerializeToString, read)
        try:
            return call(request, timeout=seconds, metadata=self.headers)
        except grpc.RpcError as error:
            code, line = error.code().name, error.details() or "no reason given"
            if code == "UNAVAILABLE":
                raise Again(code, f"{self.where}: {line}") from error
            raise CallError(code if code in CODES else "UNKNOWN", line) from error


def _text(value: np.ndarray, name: str) -> list:
    """The lists of an array; strings are text, but where the output's name ends in _bytes."""

    def read(each: object) -> object:
        if isinstance(each, list):
            return [read(one) for one in each]
        return each.decode("utf-8", "replace") if isinstance(each, bytes) else each

    found = value.tolist()
    return found if name.endswith("_bytes") else [read(each) for each in found]

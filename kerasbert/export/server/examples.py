"""TF Serving's Classify and Regress: tf.Examples to rows of a signature, and its results (classifier.cc, regressor.cc)."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from kerasbert.export.messages import Message, bytes_array, message
from kerasbert.export.server.json_arrays import as_bytes, is_base64, parsed
from kerasbert.export.server.models import Version
from kerasbert.export.status import CallError, invalid

KEYS = frozenset({"signature_name", "context", "examples"})
INT64, FLOAT = 1 << 63, float(np.finfo("float32").max)
JSON = {type(None): "Null", dict: "Object", list: "Array"}


Result = float | list[list]  # of an example: a number, or [label, score] of each class


@dataclasses.dataclass(frozen=True)
class Api:
    """One of the two.

    Args:
        verb: str, of the address and of a signature's method. noun: str, of the messages. outputs: of a signature, name -> axes.
    """

    verb: str
    noun: str
    outputs: Mapping[str, tuple[int, ...]]

    @property
    def method(self) -> str:
        return f"tensorflow/serving/{self.verb}"


APIS = {
    "classify": Api("classify", "classification", {"classes": (2,), "scores": (2,)}),
    "regress": Api("regress", "regression", {"outputs": (1, 2)}),
}


def from_json(body: bytes) -> tuple[str, np.ndarray]:
    """Name of a signature, "" for the default, and the examples of a body, serialized [B].

    Raises:
        CallError: no such request.
    """
    request = parsed(body, KEYS)
    context = _example(request["context"]) if "context" in request else b""
    rows = request.get("examples")
    if "examples" not in request:
        raise invalid("key 'examples' is expected and was not found")
    if not isinstance(rows, list):
        raise invalid("Expecting 'examples' value to be a list/array")
    if not rows:
        raise invalid("'examples' value is an empty array")
    return request.get("signature_name") or "", bytes_array([context + _example(row) for row in rows])


def _example(value: object) -> bytes:
    """A tf.Example of a json object: name -> a value or a list of them."""
    if not isinstance(value, dict):
        raise invalid(f"Example must be JSON object but got JSON {JSON.get(type(value), type(value).__name__)}")
    example = message("Example")()
    for name, content in value.items():
        feature = message("Feature")()
        kinds = []
        for each in content if isinstance(content, list) else [content]:
            kinds.append(kind := _add(feature, f"Feature: {name[:100]}", each))
            if kind != kinds[0]:
                raise invalid(f"Unexpected element type in feature: {name[:100]} expecting type: {kinds[0]}")
        as_bytes(name, "the name of a feature")
        example.features.feature[name].CopyFrom(feature)
    return example.SerializeToString(deterministic=True)


def _add(feature: Message, where: str, value: object) -> str:
    """Put a value into a feature -> the type that it has there."""
    if isinstance(value, str) or is_base64(value):
        feature.bytes_list.value.append(as_bytes(value, where))
        return "bytes"
    if isinstance(value, int):
        if not -INT64 <= value < INT64:
            raise invalid(f"{where} has a number out of the range of int64")
        feature.int64_list.value.append(int(value))  # True is 1
        return "int64"
    if isinstance(value, float):
        if FLOAT < abs(value) < float("inf"):
            raise invalid(f"Cannot convert JSON value: {value!r} to float without loss of precision")
        feature.float_list.value.append(value)
        return "float"
    raise invalid(f"{where} has element with unexpected JSON type: {JSON[type(value)]}")


def signature_of(version: Version, api: Api, name: str) -> str:
    """The signature that a call names, "" for the default.

    Raises:
        CallError: there is none, or it answers another API.
    """
    name, known = name or "serving_default", version.loaded.definitions
    if name not in known:
        raise invalid(f"No signature was found with the name: {name[:100]}. All: {', '.join(sorted(known))}")
    if known[name].method_name != api.method:
        of_api = [each for each, definition in sorted(known.items()) if definition.method_name == api.method]
        hint = (
            f"Its signature_name: {', '.join(of_api)}" if of_api else f"No signature of this model answers {api.verb}"
        )
        was = known[name].method_name
        raise invalid(f"Expected {api.noun} signature method_name to be {api.method}. Was: {was}. {hint}")
    return name


async def answer(version: Version, api: Api, name: str, rows: np.ndarray) -> list[Result]:
    """Of each example its result: [label, score] of each class, or a number.

    Args:
        name: as `signature_of` gives it. rows: as `from_json` gives them.

    Raises:
        CallError: the model refuses them, or its outputs are not those of the API.
    """
    outputs = await version.answer(name, {"inputs": rows})
    known = {key: outputs[key] for key in api.outputs if key in outputs}
    fits = (_fits(key, value, api.outputs[key], len(rows)) for key, value in known.items())
    if not known or not all(fits) or len({value.shape for value in known.values()}) > 1:
        types = {key: f"{value.dtype.name.replace('object', 'string')} {value.shape}" for key, value in outputs.items()}
        said = ", ".join(f"{key} {each}" for key, each in types.items())
        raise CallError("FAILED_PRECONDITION", f"{name} does not return what {api.verb} answers. Returned: {said}")
    if api.verb == "regress":
        return known["outputs"].reshape(-1).tolist()
    shape = next(iter(known.values())).shape
    labels = known.get("classes", np.full(shape, b"", object)).tolist()
    scores = known.get("scores", np.zeros(shape, "float32")).tolist()
    texts = ([each.decode("utf-8", "replace") for each in row] for row in labels)
    return [[list(pair) for pair in zip(*row)] for row in zip(texts, scores)]


def _fits(name: str, value: np.ndarray, axes: tuple[int, ...], rows: int) -> bool:
    """Whether an output is one of the API: classes and scores [B, C], outputs [B] or [B, 1]."""
    whole = name != "outputs" or value.size == rows
    return whole and value.ndim in axes and len(value) == rows and value.dtype == ("O" if name == "classes" else "f4")


def fill(response: Message, results: Sequence[Result]) -> None:
    """Put results into a ClassificationResponse or RegressionResponse."""
    for each in results:
        if not isinstance(each, list):
            response.result.regressions.add(value=each)
            continue
        classes = response.result.classifications.add().classes
        for label, score in each:
            classes.add(label=label, score=score)

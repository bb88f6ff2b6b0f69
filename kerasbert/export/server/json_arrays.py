"""The bodies of TF Serving's REST API: rows (`instances`) or columns (`inputs`) to arrays, and arrays back (json_tensor.cc)."""

import base64
import binascii
import json
from collections import Counter
from collections.abc import Mapping, Set
from typing import Any, TypeGuard

import numpy as np

from kerasbert.export.messages import TYPES, Message
from kerasbert.export.status import invalid
from kerasbert.storage.json_view import Json

DEEPEST = 8  # lists in a list
KEYS = {"signature_name", "instances", "inputs"}
FLOATS, WHOLE = ("float32", "float64"), "int or uint"


def parsed(body: bytes, keys: Set[str]) -> Json:
    """The object of a request.

    Raises:
        CallError: no json, no object, other keys than these of TF Serving.
    """
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    try:
        found = json.loads(body.decode("utf-8-sig"), object_pairs_hook=_once)
    except RecursionError:
        raise invalid("JSON Parse error: nested too deep") from None
    except UnicodeDecodeError as error:
        where = f"byte {error.object[error.start]:#04x} at {error.start}"
        raise invalid(f"JSON Parse error: the body is no UTF-8: {where}") from None
    except json.JSONDecodeError as error:
        raise invalid(f"JSON Parse error: {error}") from None
    except ValueError:
        raise invalid("JSON Parse error: a number has too many digits") from None
    if not isinstance(found, dict):
        raise invalid(f"JSON Value: {_short(found)} Is not object")
    if unknown := sorted(found.keys() - keys):
        raise invalid(f"no key {_short(unknown[0])} in a request. Expected: {', '.join(sorted(keys))}")
    if not isinstance(found.get("signature_name", ""), str):
        raise invalid("'signature_name' key must be a string value")
    return found


def _once(pairs: list[tuple[str, Any]]) -> Json:
    """An object; one with a key twice means two things, of which readers take the first or the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise invalid(f"JSON Value: the key {_short(name)} stands twice in an object")
    return found


def request(body: bytes) -> Json:
    """The object of a request to predict.

    Raises:
        CallError: as `parsed`; not one of `inputs` and `instances`.
    """
    found = parsed(body, KEYS)
    if "instances" in found and "inputs" in found:
        raise invalid("Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist")
    if "instances" not in found and "inputs" not in found:
        raise invalid("Missing 'inputs' or 'instances' key")
    return found


def arrays(request: Mapping[str, object], definition: Message) -> dict[str, np.ndarray]:
    """The inputs of a request.

    Args:
        request: as `parsed` gives it. definition: the SignatureDef that it is for.

    Raises:
        CallError: values of other types, lists of unlike lengths, unknown or missing names.
    """
    types = {name: TYPES.get(info.dtype, ("", ""))[1] for name, info in definition.inputs.items()}
    if "instances" in request:
        return _of_rows(request["instances"], types, set(definition.defaults))
    value = request["inputs"]
    if not isinstance(value, dict) or is_base64(value):
        if len(types) > 1:
            raise invalid(f"inputs is a plain value/list, but expecting an object of {', '.join(sorted(types))}")
        value = {next(iter(types)): value}
    _check_names(value, types, set(definition.defaults), "'inputs' object")
    return {name: _array(each, types[name], f"input {name}") for name, each in value.items()}


def _of_rows(rows: object, types: Mapping[str, str], optional: set[str]) -> dict[str, np.ndarray]:
    """The inputs of `instances`: objects, or values where there is one input."""
    if not isinstance(rows, list):
        raise invalid("Expecting 'instances' to be a list/array")
    if not rows:
        raise invalid("No values in 'instances' array")
    objects = [isinstance(row, dict) and not is_base64(row) for row in rows]
    if len({*objects}) > 1:
        raise invalid(
            f"item {objects.index(not objects[0])} of 'instances' is unlike item 0: objects or values, not both"
        )
    if not objects[0]:
        if len(types) > 1:
            raise invalid(f"instances is a plain list, but expecting list of objects of {', '.join(sorted(types))}")
        rows = [{next(iter(types)): row} for row in rows]
    for number, row in enumerate(rows):
        _check_names(row, types, optional, f"element {number} of 'instances' list")
        if row.keys() != rows[0].keys():
            raise invalid(f"element {number} of 'instances' list has other keys than element 0")
    return {name: _array([row[name] for row in rows], types[name], f"input {name}") for name in rows[0]}


def _check_names(given: Mapping[str, object], types: Mapping[str, str], optional: set[str], where: str) -> None:
    expected = f"Expected: {', '.join(sorted(types))}"
    if missing := sorted(types.keys() - given.keys() - optional):
        raise invalid(f"Missing named input: {missing[0]} in {where}. {expected}")
    if extra := sorted(given.keys() - types.keys()):
        raise invalid(f"{where} does not have named input: {_short(extra[0])}. {expected}")


def _array(value: object, dtype: str, where: str) -> np.ndarray:
    """A value, or lists of values, as an array."""
    shape: list[int] = []
    level = value
    while isinstance(level, list):
        shape.append(len(level))
        if len(shape) > DEEPEST:
            raise invalid(f"{where}: lists are nested deeper than {DEEPEST}")
        level = level[0] if level else None
    values = [value]
    for depth, size in enumerate(shape):
        for each in values:
            if not isinstance(each, list) or len(each) != size:
                got = f"list of {len(each)}" if isinstance(each, list) else "value"
                raise invalid(f"{where}: Encountered {got} at level {depth}, expected a list of size: {size}")
        values = [item for each in values if isinstance(each, list) for item in each]
    found = np.empty(len(values), dtype or object)
    try:
        with np.errstate(over="raise"):  # a number beyond float32 would be infinity
            found[:] = [_value(each, dtype, where) for each in values]
    except (OverflowError, FloatingPointError):
        raise invalid(f"{where}: a number is out of the range of {dtype}") from None
    return found.reshape(shape)


def _value(value: object, dtype: str, where: str) -> object:
    kind = type(value)
    if dtype == "object" and (isinstance(value, str) or is_base64(value)):
        return as_bytes(value, where)
    fits = {"bool": kind is bool, "object": False, "": False}
    if fits.get(dtype, kind is int or (dtype in FLOATS and kind is float)):
        return value
    expected = "string" if dtype == "object" else dtype or "one that json cannot hold"
    raise invalid(f"{where}: JSON Value: {_short(value)} is not of expected type: {expected}")


def as_bytes(value: str | Mapping[str, str], where: str) -> bytes:
    """The bytes of a string, or of {"b64": ...}.

    Raises:
        CallError: it has none.
    """
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise invalid(f"{where}: half of a surrogate pair in a string") from None
    try:
        return base64.b64decode(value["b64"], validate=True)
    except (binascii.Error, ValueError):
        raise invalid(f"{where}: Unable to base64 decode {_short(value['b64'])}") from None


def is_base64(value: object) -> TypeGuard[dict[str, str]]:
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)


def _short(value: object) -> str:
    """A value of a request in a message."""
    if isinstance(value, list | dict):
        return f"a list of {len(value)}" if isinstance(value, list) else f"an object of {len(value)}"
    text = json.dumps(value[:60] if isinstance(value, str) else value)
    return text if len(text) <= 70 else f"{text[:70]}..."


def answered(outputs: Mapping[str, np.ndarray], rows: bool) -> bytes:
    """The body of an answer: `predictions` of rows, or `outputs`; of a single output its value alone.

    Raises:
        CallError: rows are asked for, and an output has another number of them.
    """
    values = {name: _json(value, name.endswith("_bytes")) for name, value in outputs.items()}
    if not rows:
        return dumped({"outputs": values if len(values) > 1 else next(iter(values.values()))})
    counts = {name: len(value) if value.ndim else None for name, value in outputs.items()}
    first = next(iter(counts.values()))
    for name, count in counts.items():
        if count is None or count != first:
            raise invalid(f"Tensor name: {name} has inconsistent batch size: {count} expecting: {first}")
    if len(values) == 1:
        return dumped({"predictions": next(iter(values.values()))})
    return dumped({"predictions": [dict(zip(values, row)) for row in zip(*values.values(), strict=True)]})


def _json(value: np.ndarray, binary: bool) -> object:
    """Nested lists of an array; strings are text, or {"b64": ...} where the name of the output ends in _bytes."""
    if value.dtype != object:
        return value.tolist()
    flat = value.ravel().tolist()
    if binary:
        texts: list[object] = [{"b64": base64.b64encode(each).decode()} for each in flat]
    else:
        texts = [each.decode("utf-8", "replace") for each in flat]
    found = np.empty(len(texts), object)
    found[:] = texts
    return found.reshape(value.shape).tolist()


def dumped(value: object) -> bytes:
    """A body."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

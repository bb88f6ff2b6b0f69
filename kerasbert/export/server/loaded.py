"""A SavedModel in TensorFlow, called with arrays."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from kerasbert.export import messages
from kerasbert.export.serve_check import WARM_UP
from kerasbert.export.server.folders import check_sums
from kerasbert.export.status import NAMES, CallError, invalid

DEFAULT = "serving_default"
MOST_RECORDS = 1000
LOGS = ("predict_log", "classify_log", "regress_log")


class Loaded:
    """A version of a model that has answered its warm-up requests.

    Args:
        folder: Path, of a SavedModel.
    Attributes:
        definitions: name -> SignatureDef of `messages`. described: the same for json, as TF Serving writes it.

    Raises:
        InputError, ValueError, tf.errors.OpError: it is damaged, or refuses a warm-up request.
    """

    def __init__(self, folder: Path) -> None:
        import tensorflow_text  # noqa: F401  brings the operations of the tokenizers

        check_sums(folder)
        graph = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs[0]
        self.model = tf.saved_model.load(str(folder))
        served = {name: graph.signature_def[name] for name in sorted(self.model.signatures)}
        if not served:
            raise ValueError("it has no signature to call")
        of = messages.message("SignatureDef").FromString
        self.definitions = {name: of(each.SerializeToString()) for name, each in served.items()}
        self.described = {
            name: json_format.MessageToDict(
                each, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
            for name, each in served.items()
        }
        self._warm_up(folder / WARM_UP)

    def _warm_up(self, path: Path) -> None:
        """Answer the requests that stand beside it: the first callers do not wait for what TensorFlow prepares."""
        if not path.is_file():
            return
        try:
            records = tf.data.TFRecordDataset(str(path)).take(MOST_RECORDS)
            logs = [messages.message("PredictionLog").FromString(each.numpy()) for each in records]
        except (tf.errors.DataLossError, DecodeError) as error:
            raise ValueError(f"{WARM_UP} is damaged: expected a TFRecord of PredictionLogs") from error
        for number, log in enumerate(logs):
            kind = next((each for each in LOGS if log.HasField(each)), None)
            if kind is None:  # of MultiInference and the like, which are not answered here
                continue
            request = getattr(log, kind).request
            try:
                if kind == "predict_log":
                    inputs = {name: messages.array(tensor) for name, tensor in request.inputs.items()}
                else:
                    inputs = {"inputs": messages.serialized(request.input)}
                name = request.model_spec.signature_name or DEFAULT
                self.run(name, self.checked(name, inputs))
            except (CallError, ValueError) as error:
                raise ValueError(f"warm-up request {number + 1} is refused: {error}") from error

    def definition(self, name: str) -> messages.Message:
        """The SignatureDef of a name, "" for the default.

        Raises:
            CallError: there is none.
        """
        if (name or DEFAULT) not in self.definitions:
            known = ", ".join(sorted(self.definitions))
            line = f'Serving signature key "{name[:100] or DEFAULT}" not found. All: {known}'
            raise CallError("FAILED_PRECONDITION", line)
        return self.definitions[name or DEFAULT]

    def checked(self, name: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The inputs of a signature, by name and type, with those that have a default.

        Raises:
            CallError: one is missing, unknown or of another type.
        """
        definition = self.definition(name)
        given = {key: messages.array(value) for key, value in definition.defaults.items()} | dict(inputs)
        wanted = definition.inputs
        if given.keys() != wanted.keys():
            extra, missing = (", ".join(sorted(each)) for each in (given.keys() - wanted, wanted.keys() - given.keys()))
            raise invalid(
                f"the inputs of {name or DEFAULT} are {', '.join(sorted(wanted))}. "
                f"Sent extra: {{{extra}}}. Missing but required: {{{missing}}}"
            )
        for key, value in given.items():
            number = wanted[key].dtype
            if messages.NUMBERS.get(value.dtype.name) != number:
                names = [tf.as_dtype(each).name for each in (messages.NUMBERS[value.dtype.name], number)]
                raise invalid(f"the input {key} is of type {names[0]}. Expected: {names[1]}")
        return given

    def run(self, name: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of a signature.

        Args:
            inputs: as `checked` gives them.

        Raises:
            CallError: the graph refuses them.
        """
        tensors = {
            key: tf.constant(value, tf.string if value.dtype == object else value.dtype)
            for key, value in inputs.items()
        }
        try:
            found = self.model.signatures[name or DEFAULT](**tensors)
            return {key: _array(value.numpy()) for key, value in found.items()}
        except tf.errors.OpError as error:
            raise CallError(NAMES.get(error.error_code, "INTERNAL"), _line(error.message)) from error
        except UnicodeDecodeError as error:  # TensorFlow's sentence quotes bytes of the caller
            raise invalid(_line(error.object.decode("utf-8", "replace"))) from error
        except (TypeError, ValueError) as error:  # a shape that the signature does not have
            raise invalid(_line(str(error))) from error


def _array(value: object) -> np.ndarray:
    return value if isinstance(value, np.ndarray) else np.array(value, object if isinstance(value, bytes) else None)


def _line(text: str) -> str:
    r"""TensorFlow's message without its nodes, in one line.

    >>> _line("Graph execution error:\n\nDetected at node a:\n<stack traces unavailable>\ntoo long\n\t [[{{node a}}]] [Op:f]")
    'too long'
    """
    text = text.partition("\n\t [[")[0].rpartition("<stack traces unavailable>\n")[2]
    text = re.sub(r"\{\{.*?\}\}|\[Op:\w+\]", "", text.removeprefix("assertion failed: "))
    return " ".join(text.split())[:1000]

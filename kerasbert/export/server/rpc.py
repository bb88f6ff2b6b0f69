"""TF Serving's gRPC API over the models of a server: PredictionService but for MultiInference, ModelService.GetModelStatus."""

import functools
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from kerasbert.export.messages import PACKAGE, STATES, Message, array, fill, message, serialized
from kerasbert.export.server import examples
from kerasbert.export.server.examples import APIS, Api
from kerasbert.export.server.metrics import Metrics
from kerasbert.export.server.models import Model, Models, Version
from kerasbert.export.server.rest import unlabelled
from kerasbert.export.server.said import fault
from kerasbert.export.status import CODES, CallError, invalid

Method = Callable[[Message], Awaitable[Message]]
SENTENCE = 2000  # bytes, up to 6000 as gRPC sends them: clients refuse a status of more than 8 kB


class Rpc:
    """Answers calls.

    Args:
        models: Models. metrics: Metrics.
    """

    def __init__(self, models: Models, metrics: Metrics) -> None:
        self.models, self.metrics = models, metrics

    def register(self, server: grpc.aio.Server) -> None:
        """Add the services to a server."""
        services = {
            "PredictionService": {
                "Predict": ("PredictRequest", functools.partial(self._counted, self._predicted)),
                "GetModelMetadata": ("GetModelMetadataRequest", self._metadata),
            },
            "ModelService": {"GetModelStatus": ("GetModelStatusRequest", self._status)},
        }
        for api in APIS.values():
            method = functools.partial(self._counted, functools.partial(self._of_examples, api))
            services["PredictionService"][api.verb.title()] = f"{api.noun.title()}Request", method
        for service, methods in services.items():
            handlers = {name: _handler(name, *method) for name, method in methods.items()}
            server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(f"{PACKAGE}.{service}", handlers)])

    def _version(self, spec: Message) -> Version:
        if spec.version_label:
            raise unlabelled(spec.version_label)
        model = self.models.named(spec.name)
        return model.find(_number(spec, model))

    async def _counted(self, method: Method, request: Message) -> Message:
        name = request.model_spec.name
        with self.metrics.counted(name if name in self.models else "", "grpc"):
            return await method(request)

    async def _predicted(self, request: Message) -> Message:
        chosen = self._version(request.model_spec)
        signature = request.model_spec.signature_name or "serving_default"
        known = chosen.loaded.definition(signature).outputs
        if unknown := [name for name in request.output_filter if name not in known]:
            raise invalid(
                f"output tensor alias not found in signature: {unknown[0][:100]}. All: {', '.join(sorted(known))}"
            )
        inputs = {}
        for name, tensor in request.inputs.items():
            try:
                inputs[name] = array(tensor)
            except (ValueError, OverflowError) as error:
                raise invalid(f"the input {name[:100]}: {error}") from error
        outputs = await chosen.answer(signature, inputs)
        response = message("PredictResponse")()
        for name in request.output_filter or outputs:
            fill(response.outputs[name], outputs[name])
        _spec(response.model_spec, request.model_spec.name, chosen.number, signature)
        return response

    async def _of_examples(self, api: Api, request: Message) -> Message:
        chosen = self._version(request.model_spec)
        name = examples.signature_of(chosen, api, request.model_spec.signature_name)
        if not len(rows := serialized(request.input)):
            raise invalid("Input is empty.")
        results = await examples.answer(chosen, api, name, rows)
        response = message(f"{api.noun.title()}Response")()
        examples.fill(response, results)
        _spec(response.model_spec, request.model_spec.name, chosen.number, name)
        return response

    async def _metadata(self, request: Message) -> Message:
        if list(request.metadata_field) != ["signature_def"]:
            raise invalid("metadata_field must be ['signature_def']")
        chosen = self._version(request.model_spec)
        response, found = message("GetModelMetadataResponse")(), message("SignatureDefMap")()
        for name, definition in chosen.loaded.definitions.items():
            found.signature_def[name].CopyFrom(definition)
        response.metadata["signature_def"].type_url = f"type.googleapis.com/{PACKAGE}.SignatureDefMap"
        response.metadata["signature_def"].value = found.SerializeToString(deterministic=True)
        _spec(response.model_spec, request.model_spec.name, chosen.number)
        return response

    async def _status(self, request: Message) -> Message:
        spec = request.model_spec
        model = self.models.named(spec.name, "Could not find any versions of model {}")
        response = message("GetModelStatusResponse")()
        for number, state, wrong in model.status(_number(spec, model)):
            one = response.model_version_status.add(version=number, state=STATES[state])
            one.status.error_code, one.status.error_message = CODES["UNKNOWN" if wrong else "OK"], wrong
        return response


def _number(spec: Message, model: Model) -> int | None:
    """The version that is asked for, None for the newest: OpenVINO's client says so by a 0."""
    number = spec.version.value if spec.HasField("version") else 0
    return number if number or (spec.HasField("version") and 0 in model.versions) else None


def _spec(spec: Message, name: str, number: int, signature: str = "") -> None:
    spec.name, spec.signature_name, spec.version.value = name, signature, number


def _short(line: str) -> str:
    """A sentence in at most SENTENCE bytes and three dots."""
    data = line.encode("utf-8", "replace")
    return line if len(data) <= SENTENCE else data[:SENTENCE].decode("utf-8", "ignore") + "..."


def _handler(name: str, asked: str, method: Method) -> grpc.RpcMethodHandler:
    """What gRPC calls: a wrong message and a refusal become a status with a sentence."""

    async def call(data: bytes, context: grpc.aio.ServicerContext) -> bytes:
        try:
            try:
                request = message(asked).FromString(data)
            except DecodeError as error:
                raise invalid(f"the message is no {asked}: {error}") from error
            return (await method(request)).SerializeToString()
        except CallError as error:
            return await context.abort(getattr(grpc.StatusCode, error.code), _short(str(error)))
        except Exception as error:
            return await context.abort(grpc.StatusCode.INTERNAL, _short(fault(name, error)))

    return grpc.unary_unary_rpc_method_handler(call)

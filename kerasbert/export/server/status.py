"""Refusals of calls: one status for gRPC and for HTTP, as TF Serving maps them."""

from kerasbert.export.messages import CODES

HTTP = {
    "OK": 200,
    "CANCELLED": 499,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 412,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "UNAUTHENTICATED": 401,
}
NAMES = {number: name for name, number in CODES.items()}


class CallError(Exception):
    """A call that is not answered.

    Attributes:
        code: str, one of `messages.CODES`.
    """

    def __init__(self, code: str, line: str) -> None:
        super().__init__(line)
        self.code = code

    @property
    def http(self) -> int:
        """The status over HTTP."""
        return HTTP.get(self.code, 500)


def invalid(line: str) -> CallError:
    return CallError("INVALID_ARGUMENT", line)

"""Refusals of calls: one status for gRPC and for HTTP, as TF Serving maps them. Imports nothing."""

CODES = {  # of google.rpc.Code, TensorFlow's and gRPC's
    "OK": 0,
    "CANCELLED": 1,
    "UNKNOWN": 2,
    "INVALID_ARGUMENT": 3,
    "DEADLINE_EXCEEDED": 4,
    "NOT_FOUND": 5,
    "ALREADY_EXISTS": 6,
    "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8,
    "FAILED_PRECONDITION": 9,
    "ABORTED": 10,
    "OUT_OF_RANGE": 11,
    "UNIMPLEMENTED": 12,
    "INTERNAL": 13,
    "UNAVAILABLE": 14,
    "DATA_LOSS": 15,
    "UNAUTHENTICATED": 16,
}
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
        code: str, one of CODES, such as "NOT_FOUND".
    """

    def __init__(self, code: str, line: str) -> None:
        super().__init__(line)
        self.code = code

    @property
    def http(self) -> int:
        """The status over HTTP."""
        return HTTP.get(self.code, 500)


class Again(CallError):
    """A call that may be made again, `after` so many seconds at the earliest."""

    def __init__(self, code: str, line: str, after: float = 0.0) -> None:
        super().__init__(code, line)
        self.after = after


def invalid(line: str) -> CallError:
    return CallError("INVALID_ARGUMENT", line)

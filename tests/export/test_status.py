"""Statuses of calls: TensorFlow's numbers, and of each a status of HTTP."""

import http

from tensorflow.core.protobuf import error_codes_pb2

from kerasbert.export.status import CODES, HTTP, NAMES


def test_numbers_are_tensorflows():
    theirs = {name: number for name, number in error_codes_pb2.Code.items() if not name.startswith("DO_NOT_USE")}
    assert theirs == CODES
    assert {number: CODES[name] for number, name in NAMES.items()} == {number: number for number in theirs.values()}


def test_statuses_of_http_are_of_the_calls_kind():
    """As google.rpc.Code says them; 499 is a client's that has gone."""
    assert {*HTTP} <= {*CODES}
    for name, status in HTTP.items():
        assert name == "CANCELLED" or status in {*http.HTTPStatus}
        server = name in ("DEADLINE_EXCEEDED", "UNIMPLEMENTED", "UNAVAILABLE")
        assert status // 100 == (2 if name == "OK" else 5 if server else 4)

"""`serve-benchmark`: what it counts, and of what."""

import json

import pytest

from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.export import load
from kerasbert.export.client import CallError
from tests.export import served


class Fails:
    """A client of which every third call is refused, and the rows it was asked for."""

    def __init__(self):
        self.asked = []

    def predict(self, inputs, signature):
        self.asked.append((inputs, signature))
        if len(self.asked) % 3 == 0:
            raise CallError("UNAVAILABLE", "full")


def test_errors_are_counted_and_rows_taken_in_turn():
    client = Fails()
    found = load.measure(
        client, [{"t": "a"}, {"t": "b"}, {"t": "c"}], requests=9, concurrency=1, batch=2, signature="s"
    )
    assert (found["errors"], found["codes"], found["requests"]) == (3, {"UNAVAILABLE": 3}, 9)
    assert found["rows_per_second"] == pytest.approx(2 * found["requests_per_second"], rel=0.01)
    assert client.asked[0] == client.asked[1] == ({"t": ["a", "b"]}, "s")  # the first is not counted
    assert [asked["t"] for asked, _ in client.asked[1:5]] == [["a", "b"], ["c", "a"], ["b", "c"], ["a", "b"]]
    assert "3 errors: UNAVAILABLE 3" in load.table(found)


def test_samples_and_rows_of_a_file(tmp_path):
    kinds = {"context": "DT_STRING [-1]", "choices": "DT_STRING [-1, -1]", "choice_counts": "DT_INT32 [-1]"}
    rows = load.sample(kinds)
    assert rows[0] == {"context": load.TEXTS[0], "choices": [load.TEXTS[0], "another"], "choice_counts": 2}
    with pytest.raises(InputError, match=r"no sample for the input token_ids \(DT_INT32 \[-1, -1\]\): give --data"):
        load.sample({"token_ids": "DT_INT32 [-1, -1]"})
    path = tmp_path / "rows.jsonl"
    for text, said in (
        ("", "holds no row"),
        ("[1]\n", "line 1: expected a json object of inputs"),
        ('{"a": 1}\n\n{"b": 1}\n', "line 3: expected the inputs a"),
        ('{"a": 1}\n{\n', "line 2: expected a json object"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=said):
            load.read(path)
    path.write_text('{"a": 1}\n\n{"a": "é"}\n', "utf-8")
    assert load.read(path) == [{"a": 1}, {"a": "é"}]


def test_a_server_is_measured_over_both_ways(tmp_path, capsys):
    with served.server({"tiny": served.write(tmp_path / "tiny" / "1").parent}) as one:
        for url in (f"http://127.0.0.1:{one.ports[0]}", f"grpc://127.0.0.1:{one.ports[1]}"):
            capsys.readouterr()
            command = ["serve-benchmark", url, "--model", "tiny", "--requests", "60", "--concurrency", "4", "--json"]
            assert main([*command, "--batch", "3"]) == 0
            found = json.loads(capsys.readouterr().out)
            assert (found["errors"], found["requests"], found["batch"]) == (0, 60, 3)
            assert 0 < found["p50_ms"] <= found["p95_ms"] <= found["p99_ms"] <= found["longest_ms"]
            assert main(["serve-benchmark", url, "--model", "no"]) == 2
            assert "model no: Servable not found for request: Latest(no)" in capsys.readouterr().err
        assert sum(one.metrics.requests.values()) == 2 * 61
        assert one.metrics.rows["tiny"] == 2 * 61 * 3

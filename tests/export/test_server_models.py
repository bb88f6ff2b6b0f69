"""`kerasbert serve`: calls that are joined, queues, versions that come and go, and how it begins and ends."""

import importlib.util
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.export import messages
from kerasbert.export.messages import message
from kerasbert.export.server import batching, folders
from kerasbert.export.server.run import bound
from kerasbert.storage import files
from tests.export import served
from tests.export.served import PREDICT, ask, call, predict_request, row


def test_calls_that_wait_together_are_joined_and_answered_as_alone(tiny):
    """Each of 60 gets its own rows, whatever the others sent; a wrong one fails alone."""

    def of(number):
        rows = [row("x" * (number % 7) + str(number), number + i) for i in range(number % 3 + 1)]
        if number % 10 == 9:
            rows[0] = row("wrong", -1)
        return rows, ask(tiny.ports[0], PREDICT, {"instances": rows})

    def lists(number):
        choices = [[f"{number}.{i}" for i in range(number % 4 + 1)]] * 2
        body = {"choices": choices, "counts": [number % 4 + 1, 1]}
        return number, choices, ask(tiny.ports[0], PREDICT, {"signature_name": "lists", "inputs": body})

    before = dict(tiny.metrics.batches), dict(tiny.metrics.rows)
    with ThreadPoolExecutor(16) as pool:
        several = pool.map(lists, range(30))
        for rows, (code, found) in pool.map(of, range(60)):
            if rows[0]["n"] < 0:
                assert (code, "n is at least 0" in found["error"]) == (400, True)
                continue
            assert [one["shout"] for one in found["predictions"]] == [one["text"].upper() for one in rows]
            np.testing.assert_allclose(
                [one["scores"][1] for one in found["predictions"]], [one["n"] * 2 / 3 for one in rows]
            )
        for _number, choices, (_, found) in several:
            picked = found["outputs"]["picked"]
            assert picked[0][: len(choices[0])] == choices[0]
            assert {*picked[0][len(choices[0]) :], *picked[1][1:]} <= {""}
    assert tiny.metrics.batches["tiny"] - before[0].get("tiny", 0) < 90
    right = sum(number % 3 + 1 for number in range(60) if number % 10 < 9)
    assert tiny.metrics.rows["tiny"] - before[1].get("tiny", 0) == right + 2 * 30


def test_a_call_of_more_rows_than_a_batch_is_split(tiny):
    choices = [["a"] * 20] * 40 + [["b"] * 20] * 3
    body = {"signature_name": "lists", "inputs": {"choices": choices, "counts": [20] * 43}}
    before = tiny.metrics.batches["tiny"]
    assert ask(tiny.ports[0], PREDICT, body)[1]["outputs"]["picked"] == choices
    assert tiny.metrics.batches["tiny"] - before == 6  # of 8 rows


def test_metrics_count_what_was_asked(tiny):
    import urllib.request

    ask(tiny.ports[0], PREDICT, {"instances": [row("a", 0)]})
    ask(tiny.ports[0], "/v1/models/unknown-name:predict", {})
    with urllib.request.urlopen(f"http://127.0.0.1:{tiny.ports[0]}/metrics") as answer:
        text = answer.read().decode()
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    ok = values['kerasbert_serve_requests_total{model="tiny",protocol="rest",code="OK"}']
    assert int(ok) == tiny.metrics.requests[("model", "tiny"), ("protocol", "rest"), ("code", "OK")] > 0
    assert values['kerasbert_serve_version{model="tiny",version="3"}'] == "1"
    assert values['kerasbert_serve_waiting_rows{model="tiny"}'] == "0"
    counts = [int(value) for name, value in values.items() if '_bucket{model="tiny"' in name]
    assert counts == sorted(counts)
    assert counts[-1] == int(values['kerasbert_serve_request_seconds_count{model="tiny"}'])
    assert "unknown-name" not in text  # a stranger's names are no series


def test_a_new_version_takes_over_and_a_damaged_one_does_not(tmp_path, folder, capsys):
    base = tmp_path / "tiny"
    shutil.copytree(folder / "3", base / "3")

    def version():
        code, found = ask(one.ports[0], PREDICT, {"instances": [row("a", 0)]})
        assert code == 200, found
        return found["predictions"][0]["version"]

    def until(wanted, look):
        end = time.monotonic() + 20
        while look() != wanted:
            assert time.monotonic() < end, look()
            time.sleep(0.02)

    def states():
        return {
            each["version"]: each["state"] for each in ask(one.ports[0], "/v1/models/tiny")[1]["model_version_status"]
        }

    with served.server({"tiny": base}, poll=0.05) as one:
        assert version() == 3
        seen, stop = [], threading.Event()
        asking = threading.Thread(target=lambda: [seen.append(version()) for _ in iter(stop.is_set, True)])
        asking.start()
        served.write(tmp_path / "new", 4)
        (tmp_path / "new").rename(base / "4")
        until({"4": "AVAILABLE"}, states)
        stop.set()
        asking.join()
        assert (seen[0], version()) == (3, 4)
        assert seen == sorted(seen)
        (base / "5").mkdir()
        (base / "5" / "saved_model.pb").write_bytes(b"\x00" * 100)
        until({"5": "END", "4": "AVAILABLE"}, states)
        shutil.copytree(base / "4", tmp_path / "six")
        (tmp_path / "six" / "SHA256SUMS").write_text(f"{'0' * 64}  saved_model.pb\n")
        (tmp_path / "six").rename(base / "6")
        until({"6": "END", "5": "END", "4": "AVAILABLE"}, states)
        warm = base / "4" / "assets.extra"  # of a request that the model refuses
        shutil.copytree(base / "4", tmp_path / "seven")
        (tmp_path / "seven" / warm.name).mkdir()
        log = message("PredictionLog")()
        log.predict_log.request.CopyFrom(predict_request(text=[b"a"], n=np.array([-1], "int32")))
        with tf.io.TFRecordWriter(str(tmp_path / "seven" / warm.name / "tf_serving_warmup_requests")) as records:
            records.write(b"\x22\x00")  # a multi_inference_log, of an API that is not answered here
            records.write(log.SerializeToString())
        (tmp_path / "seven").rename(base / "7")
        until({"7": "END", "6": "END", "5": "END", "4": "AVAILABLE"}, states)
        assert version() == 4
        shutil.rmtree(base / "5")
        until({"7": "END", "6": "END", "4": "AVAILABLE"}, states)
        (base / "6" / "SHA256SUMS").unlink()  # what was refused is tried again when it changes
        until({"7": "END", "6": "AVAILABLE"}, states)
    said = capsys.readouterr().err
    assert "tiny: version 6 is refused: saved_model.pb differs from its sum in SHA256SUMS: it is damaged, or" in said
    assert "tiny: version 7 is refused: warm-up request 2 is refused:" in said
    assert "n is at least 0" in said
    assert "Version 4 goes on" in said


def test_several_versions_and_models_and_one_that_joins_nothing(tmp_path, folder):
    base = tmp_path / "other"
    for version in (1, 2, 3):
        served.write(base / str(version), version, None)
    with served.server({"tiny": folder, "other": base}, versions=2) as one:
        found = [
            ask(one.ports[0], f"/v1/models/other{v}:predict", {"instances": [row("a", 0)]})
            for v in ("", "/versions/2", "/versions/1")
        ]
        assert [code for code, _ in found] == [200, 200, 404]
        assert [each["predictions"][0]["version"] for _, each in found[:2]] == [3, 2]
        text = ["a"] * 20
        _code, whole = ask(one.ports[0], "/v1/models/other:predict", {"inputs": {"text": text, "n": [0] * 20}})
        assert len(whole["outputs"]["shout"]) == 20
        assert one.metrics.batches["other"] == 3  # rows may depend on each other


def test_what_has_begun_is_answered_when_it_stops(folder):
    with served.server({"tiny": folder}, changes={"wait": 0.6, "rows": 100}) as one, ThreadPoolExecutor(9) as pool:
        asked = [pool.submit(ask, one.ports[0], PREDICT, {"instances": [row("a", i)]}) for i in range(8)]
        called = pool.submit(call, one.ports[1], "Predict", predict_request(text=[b"a"], n=np.array([1], "int32")))
        idle = socket.create_connection(("127.0.0.1", one.ports[0]))
        time.sleep(0.3)
        one.halt()
        assert [each.result()[0] for each in asked] == [200] * 8
        assert called.result().model_spec.version.value == 3
        assert idle.recv(10) == b""
        idle.close()
    with pytest.raises(OSError, match="."):
        socket.create_connection(("127.0.0.1", one.ports[0])).close()


def test_a_queue_that_is_full_says_so(folder):
    """4 batches of 8 rows may wait; what comes then is told to come again."""
    with served.server({"tiny": folder}, changes={"wait": 0.5, "rows": 8, "batches": 1}) as one:
        with ThreadPoolExecutor(12) as pool:
            asked = [pool.submit(ask, one.ports[0], PREDICT, {"instances": [row("a", 0)] * 7}) for _ in range(12)]
            codes = [each.result()[0] for each in asked]
        assert set(codes) == {200, 503}
        assert codes.count(200) >= 2
        assert ask(one.ports[0], PREDICT, {"instances": [row("a", 0)]})[0] == 200


def test_parameters_are_those_beside_the_model(tmp_path):
    from kerasbert.export.beside import PARAMETERS

    assert batching.parameters(tmp_path) is None
    (tmp_path / batching.FILE).write_text(PARAMETERS)
    assert batching.parameters(tmp_path) == batching.Parameters(32, 0.002, 100, True)
    (tmp_path / batching.FILE).write_text("max_batch_size { value: many }")
    with pytest.raises(ValueError, match=r"batching_params\.pbtxt is damaged"):
        batching.parameters(tmp_path)


def test_tensors_are_tensorflows():
    for dtype in (
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
    ):
        for values in ([[0, 1, 2], [3, 4, 1]], [], 1):
            value = np.array(values, dtype)
            mine = message("Tensor").FromString(tf.make_tensor_proto(value).SerializeToString())
            assert (messages.array(mine).tolist(), messages.array(mine).dtype) == (value.tolist(), value.dtype)
            made = message("Tensor")()
            messages.fill(made, value)
            theirs = tf.make_ndarray(type(tf.make_tensor_proto(0)).FromString(made.SerializeToString()))
            assert (theirs.tolist(), theirs.dtype) == (value.tolist(), value.dtype)
    same = message("Tensor")(dtype=1, float_val=[2.0])  # one value for all
    same.tensor_shape.dim.add(size=3)
    assert messages.array(same).tolist() == [2.0, 2.0, 2.0]


def test_names_and_folders_of_a_command(folder, tmp_path, monkeypatch):
    assert folders.named([str(folder)], None) == {"tiny": folder}
    assert folders.named([str(folder / "3")], None) == {"tiny": folder / "3"}
    assert folders.versions(folder / "3") == {3: folder / "3"}
    assert list(folders.named([f"a={folder}", f"b={folder}"], None)) == ["a", "b"]
    monkeypatch.chdir(folder)
    assert folders.named(["."], None).keys() == {"tiny"}
    for given, name, said in (
        ([str(folder), str(folder)], None, "two models are called 'tiny': give them names by NAME=DIR"),
        ([str(folder), f"b={folder}"], "c", "--name is for one DIR"),
        ([f"a:b={folder}"], None, "no '/', ':' or blank"),
        ([str(tmp_path / "no")], None, "no folder"),
        ([str(tmp_path)], None, "is no SavedModel: expected saved_model.pb in it, or in folders called 1, 2"),
    ):
        with pytest.raises(InputError, match=said):
            folders.named(given, name)
    folders.check_base(folder)
    with pytest.raises(InputError, match=f"{folder / '3'} is a version itself: --next takes .* such as {folder}"):
        folders.check_base(folder / "3")
    with files.new_version(folder) as version:  # what is not whole yet is not told of
        (version.new / "saved_model.pb").touch()
        assert folders.misnamed(folder, folders.versions(folder)) == []
        (version.new / "saved_model.pb").unlink()
    shutil.rmtree(version.path)


def test_a_library_that_is_not_installed_is_named_with_its_extra(folder, monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "h11" else find(name, *rest))
    assert main(["serve", str(folder)]) == 2
    assert capsys.readouterr().err == (
        "error: this command needs h11, which is not installed. Do, in a checkout of kerasbert: pip install '.[serving]'\n"
    )


def test_a_port_that_is_taken_and_a_model_that_cannot_be_loaded_are_one_line(folder, tmp_path, capsys):
    with bound("127.0.0.1", 0, "--port") as taken:
        taken.listen()
        port = str(taken.getsockname()[1])
        for option, other in (("--port", "--grpc-port"), ("--grpc-port", "--port")):
            assert main(["serve", str(folder), option, port, other, "0"]) == 2
            assert capsys.readouterr().err == (
                f"error: port {port} of 127.0.0.1 is taken: stop what listens there, or give another by {option}\n"
            )
    (tmp_path / "damaged" / "1").mkdir(parents=True)
    (tmp_path / "damaged" / "1" / "saved_model.pb").write_bytes(b"\x00")
    assert main(["serve", str(tmp_path / "damaged"), "--port", "0", "--grpc-port", "0"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == f"error: damaged: no version in {tmp_path / 'damaged'} can be served"
    assert said[-2].startswith("damaged: version 1 is refused: ")

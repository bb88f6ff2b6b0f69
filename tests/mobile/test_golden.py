"""A file that an app tests itself by: what it holds, that it is replayed, what differs first, and damaged ones."""

import dataclasses
import json

import pytest

from kerasbert.errors import InputError
from kerasbert.export import bundle
from kerasbert.mobile import golden
from kerasbert.mobile.cli import main
from tests.mobile.conftest import TEXTS


@pytest.fixture(scope="module")
def written(float_file, tmp_path_factory):
    """A golden file of the float32 file."""
    path = tmp_path_factory.mktemp("golden") / "x.golden"
    path.write_bytes(golden.made(float_file[0].read_bytes(), [*TEXTS, *["good"] * 60]))
    return path


def changed(written, tmp_path, number, change):
    """The path of a copy with a line changed; number 0 is the head."""
    rows = [json.loads(row) for row in written.read_text().splitlines()]
    change(rows[number])
    path = tmp_path / "changed.golden"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_it_holds_traps_every_bucket_and_the_tasks_own_texts(float_file, written):
    head, *cases = map(json.loads, written.read_text().splitlines())
    assert (head["golden"], head["kind"], head["tolerance"]) == (1, "classification", 1e-4)
    texts = [case["text"] for case in cases]
    assert set(golden.TRAPS) < set(texts)
    assert texts[-50:] == [*TEXTS, *["good"] * 44]
    lengths = {len(case["ids"][0]) for case in cases}
    assert {8, 12, 24} <= lengths  # the last one is of texts that are cut, too
    assert any(case["answer"].get("truncated") for case in cases)
    assert golden.made(float_file[0].read_bytes(), [*TEXTS, *["good"] * 60]) == written.read_bytes()


def test_the_same_file_gives_the_same(float_file, written, capsys):
    count = len(written.read_text().splitlines()) - 1
    assert main(["verify", str(float_file[0]), str(written), "--no-cache"]) == 0
    assert capsys.readouterr().out == f"{count} texts: the same ids, outputs and answers\n"


def test_the_first_difference_is_named_with_status_1(float_file, written, tmp_path, capsys):
    def other_id(case):
        case["ids"][0][1] += 1

    def other_number(case):
        case["outputs"][0]["values"][2] += 0.01

    def other_label(case):
        case["answer"]["label"] = "else"

    file, text = str(float_file[0]), repr(golden.TRAPS[4])[1:-1]
    for change, said in (
        (other_id, "ids[0][1] is "),
        (other_number, "outputs[0].values[2] is 0."),
        (other_label, "answer.label is "),
    ):
        path = changed(written, tmp_path, 5, change)
        assert main(["verify", file, str(path), "--json", "--no-cache"]) == 1
        found = json.loads(capsys.readouterr().out)
        assert found["difference"].startswith(f'line 6, text "{text}": {said}')
        assert found["texts"] == 5
    path = changed(written, tmp_path, 5, other_number)
    assert main(["verify", file, str(path), "--no-cache", "--tolerance", "0.02"]) == 0
    assert main(["verify", file, str(path), "--no-cache"]) == 1
    assert ", expected 0." in capsys.readouterr().out


def test_a_kill_between_the_two_files_is_told_by_verify(float_file, tmp_path, monkeypatch, capsys):
    """A file with the same weights and other labels or pieces was replayed: the answers differed, with status 1."""
    out, path, blob = tmp_path / "x.tflite", tmp_path / "x.golden", float_file[0].read_bytes()
    golden.written(out, blob, path, TEXTS)
    again = dataclasses.replace(bundle.read(blob), labels=("down", "level", "up"))

    def killed(*_):
        raise KeyboardInterrupt

    put = golden.write_atomic
    monkeypatch.setattr(golden, "write_atomic", lambda at, content: (put if at == out else killed)(at, content))
    with pytest.raises(KeyboardInterrupt):
        golden.written(out, blob[: -len(bundle.read(blob).to_zip())] + again.to_zip(), path, TEXTS, overwrite=True)
    assert main(["verify", str(out), str(path), "--no-cache"]) == 2
    assert "or write both again (compress --golden --overwrite)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "line 1: no json"),
        (b"[1, 2]\n", "line 1: expected golden, sha256, tolerance"),
        (b"\xff\xfe", "is no UTF-8"),
        (b'{"golden": 2, "sha256": "", "tolerance": 0}\n', "has format 2, expected 1"),
        (b'{"golden": 1, "sha256": "00ff", "tolerance": 0}\n', "is of the file with sha256 00ff, received one with"),
        (b"OWN\n\n", "has no texts"),
        (b"OWN\n{", "line 2: no json"),
        (b'OWN\n{"text": "a"}\n', "line 2: expected text, ids, outputs, answer"),
        (b'OWN\n{"text": ["a", "b"], "ids": [], "outputs": [], "answer": {}}', "line 2: received ('a', 'b')"),
    ],
)
def test_a_damaged_golden_file_is_a_line_with_status_2(content, said, float_file, written, tmp_path, capsys):
    path = tmp_path / "x.golden"
    path.write_bytes(content.replace(b"OWN", written.read_bytes().split(b"\n")[0]))
    assert main(["verify", str(float_file[0]), str(path), "--no-cache"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert main(["verify", str(float_file[0]), str(tmp_path / "absent"), "--no-cache"]) == 2
    assert "cannot read" in capsys.readouterr().err


def test_a_bad_tolerance_and_a_bad_model_file(float_file, written, tmp_path, capsys):
    assert main(["verify", str(float_file[0]), str(written), "--no-cache", "--tolerance", "-1"]) == 2
    assert "tolerance is -1.0, expected a number of at least 0" in capsys.readouterr().err
    assert main(["verify", str(written), str(written)]) == 2
    assert "carries no readable bundle" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (1.0, 1.0 + 1e-5, ""),
        (1000.0, 1000.01, ""),
        (0.5, 0.51, "x is 0.51, expected 0.5"),
        (1, True, "x is true, expected 1"),
        ([1, 2], [1], "x is [1], expected [1, 2]"),
        ({"a": None}, {"b": None}, 'x is {"b": null}, expected {"a": null}'),
        ({"a": [{"b": "c"}]}, {"a": [{"b": "d"}]}, 'x.a[0].b is "d", expected "c"'),
    ],
)
def test_differences(one, other, said):
    assert golden.difference(one, other, 1e-4, "x") == said


@pytest.mark.slow
def test_compress_writes_it_and_a_plan_does_not(run, tmp_path, capsys):
    out, path = tmp_path / "x.tflite", tmp_path / "x.golden"
    arguments = ["compress", str(run), "--out", str(out), "--quantize", "none", "--lengths", "8,16"]
    assert main([*arguments, "--golden", str(path)]) == 0
    count = len(path.read_text().splitlines()) - 1
    assert f"{path}: {count} texts for kerasbert-mobile verify" in capsys.readouterr().out
    assert main(["verify", str(out), str(path), "--no-cache"]) == 0
    assert main([*arguments[:3], str(tmp_path / "y.tflite"), "--golden", str(path)]) == 2
    assert f"{path} exists already. Choose another place or pass --overwrite" in capsys.readouterr().err
    assert main([*arguments, "--student", "half", "--golden", str(tmp_path / "z.golden")]) == 2
    assert "--golden does not go with a plan" in capsys.readouterr().err


def test_what_no_golden_file_holds():
    """A caller's bytes are text in it, and a kind's parts are tuples again when they are replayed."""
    assert golden._input(golden._plain([b"a\xff", ("b", [b"c"])])) == ("a\ufffd", ("b", ("c",)))


def test_a_file_that_somebody_made_meanwhile_is_kept(float_file, tmp_path):
    """Of two Python programs that compressed to one place the later one replaced the other's file."""
    blob, out = float_file[0].read_bytes(), tmp_path / "x.tflite"
    golden.written(out, blob, None, ())
    with pytest.raises(InputError, match="x.tflite exists already. Choose another place or pass --overwrite"):
        golden.written(out, b"", None, ())
    assert out.read_bytes() == blob
    golden.written(out, blob, None, (), overwrite=True)

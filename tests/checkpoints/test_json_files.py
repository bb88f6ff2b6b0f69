"""Json files of others: what is no plain json object is refused in one line that names the file."""

import pytest

from kerasbert.checkpoints.json_files import read_json
from kerasbert.errors import InputError


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1, "a": 2}', "the key 'a' is there twice"),
        (b'{"a": {"b": 1, "b": 1}}', "the key 'b' is there twice"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": -Infinity}', "-Infinity is no number"),
        (b'{"a": 1e999}', "the number 1e999 is too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "Exceeds the limit"),
        (b"\xef\xbb\xbf{}", "BOM"),
        ("{}".encode("utf-16"), "'utf-8' codec can't decode"),
        (b'{"a": "\xe9"}', "'utf-8' codec can't decode"),
        (b"", "Expecting value"),
        (b'{"a": 1} {}', "Extra data"),
        (b"[" * 100_000, "recursion"),
        (b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", "nested more than 64 deep"),
        (b"[]", "holds list, expected a json object"),
        (b"null", "holds NoneType, expected a json object"),
    ],
)
def test_refused(tmp_path, content, message):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InputError, match=message) as told:
        read_json(tmp_path / "config.json")
    assert str(tmp_path / "config.json") in str(told.value)
    assert "\n" not in str(told.value)


def test_read(tmp_path):
    (tmp_path / "config.json").write_text('{"a": [1, 2.5, {"b": null}], "c": {"a": "\u00e9"}}')
    assert read_json(tmp_path / "config.json") == {"a": [1, 2.5, {"b": None}], "c": {"a": "\u00e9"}}

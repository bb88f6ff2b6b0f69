"""The bundle: what is written is read, the same bytes each time, and nothing else is accepted."""

import dataclasses
import io
import json
import zipfile

import pytest

from kerasbert import inputs
from kerasbert.errors import InputError
from kerasbert.export import bundle
from kerasbert.inputs import NAMES

BUNDLE = bundle.Bundle(
    kind="classification",
    tokenizer={"vocab.txt": b"[PAD]\n", "tokenizer.json": b"{}"},
    signatures=tuple(bundle.Signature("answer", f"length_{n}", {"S": n}, {"probabilities": "p"}) for n in (8, 16)),
    inputs=tuple(bundle.Reads(name, name) for name in NAMES),
    labels=("nein", "jä"),
)


def test_what_is_written_is_read():
    assert bundle.read(b"model bytes" + BUNDLE.to_zip()) == BUNDLE
    assert BUNDLE.lengths == (8, 16)
    assert [BUNDLE.signature(length) for length in (8, 16)] == ["length_8", "length_16"]


def test_a_file_of_any_length_has_one_signature():
    only = bundle.Signature("answer", "any_length", {"S": 16}, {"probabilities": "p"})
    free = dataclasses.replace(BUNDLE, signatures=(only,), any_length=True)
    assert bundle.read(free.to_zip()) == free
    assert [free.signature(length) for length in (2, 9, 16)] == ["any_length"] * 3


LANGUAGE = bundle.Reads(
    "language_ids", "languages", filled_by="setting", setting="language", choices={"en": 0}, default="en"
)
NEAR = bundle.Reads("near", "near", axes="BSS", dtype="bool", filled_by="maker")
FULL = dataclasses.replace(
    BUNDLE,
    kind="song",
    inputs=(*BUNDLE.inputs, LANGUAGE, NEAR),
    signatures=(*BUNDLE.signatures, bundle.Signature("decode_step", "step", {"S": 1, "T": 8}, {"logits": "x"})),
    assets={"tree.bin": b"1"},
    plugin={"file": "song.py", "sha256": "ab" * 32},
    litert="2.1.3",
)


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": (*BUNDLE.inputs, LANGUAGE)},
        {"inputs": BUNDLE.inputs[:2]},
        {"kind": "song"},
        {"litert": "2.1.3"},
        {"assets": {"tree.bin": b"1"}},
        {field.name: getattr(FULL, field.name) for field in dataclasses.fields(FULL)},
    ],
)
def test_every_field_travels(change):
    """A kind that only a plug-in knows is read: who runs the file asks for it."""
    full = dataclasses.replace(BUNDLE, **change)
    assert bundle.read(full.to_zip()) == full
    assert full.lengths == (8, 16)


def changed(place, value):
    """The settings of FULL with another value at a place, such as ("inputs", 0, "axes")."""
    files = bundle.unpack(FULL.to_zip())
    settings = node = json.loads(files["bundle.json"])
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    return bundle.pack(files | {"bundle.json": json.dumps(settings).encode()})


@pytest.mark.parametrize(
    ("place", "value", "text"),
    [
        (
            ("signatures", 0, "role"),
            "decode",
            "no role of a signature 'decode'. Nearest: .*: install the kerasbert that",
        ),
        (("signatures", 0, "role"), 1, "damaged .*role is 1, expected json for"),
        (("signatures", 0), 1, "damaged .*1 stands where a Signature belongs"),
        (("signatures", 0, "lengths"), {"S": "8"}, "damaged .*lengths is"),
        (("signatures", 0, "lengths"), {"T": 8}, "damaged .*lengths"),
        (("signatures", 0, "lengths"), {"S": 16}, "damaged .*two signatures of one length"),
        (("signatures", 0, "lengths"), {"S": 1 << 17}, "damaged .*expected some of 1 to 65536"),
        (("signatures", 0, "outputs"), {"probabilities": "q"}, "damaged .*different outputs"),
        (("signatures", 0, "outputs"), {}, "damaged .*different outputs or none"),
        (("signatures", 0, "song"), "x", "damaged .*a Signature with 'song'"),
        (("inputs", 0, "name"), True, "damaged .*name is True"),
        (("inputs", 0, "axes"), "BSSSS", "damaged .*expected .*BSS"),
        (("inputs", 0, "dtype"), "float64", "damaged .*expected .*int32"),
        (("inputs", 0, "filled_by"), "nobody", "damaged .*expected .*packing"),
        (("inputs", 0, "pad"), True, "damaged .*pad is True"),
        (("inputs", 0, "pad"), 2**40, "damaged .*no int32"),
        (("inputs", 1, "name"), "token_ids", "damaged .*each once"),
        (("inputs", 3, "choices"), {"en": 2**40}, "damaged .*no int32"),
        (("inputs", 3, "choices"), {}, "damaged .*expected choices and a default"),
        (("inputs", 3, "default"), "fr", "damaged .*expected choices and a default"),
        (("inputs", 0, "setting"), "language", "damaged .*expected choices and a default"),
        (("inputs",), [], "damaged .*inputs"),
        (("inputs",), {}, "damaged .*inputs is {}, expected json for list"),
        (("plugin",), {"file": "x"}, "damaged .*plugin .*expected its file and its sha256"),
        (("plugin", "sha256"), "../x", "damaged .*plugin .*expected its file and its sha256"),
        (("assets",), ["absent"], "damaged .*absent"),
        (("runtimes",), {"ai-edge-litert": "x"}, "damaged .*litert 'x'"),
        (("output",), "p", "damaged .*output"),
    ],
)
def test_parts_that_do_not_fit_are_refused(place, value, text):
    with pytest.raises(InputError, match=text) as caught:
        bundle.read(changed(place, value))
    assert "\n" not in str(caught.value)


def test_an_input_takes_no_more_memory_than_it_may():
    wide = dataclasses.replace(BUNDLE.signatures[0], lengths={"S": 1 << 15})
    with pytest.raises(InputError, match="damaged .*'near' of 32768 tokens, expected at most"):
        bundle.read(dataclasses.replace(FULL, signatures=(wide,)).to_zip())


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": (dataclasses.replace(LANGUAGE, choices={"en": 2**31 - 1, "fr": -(2**31)}),)},
        {"inputs": (dataclasses.replace(LANGUAGE, pad=2**31 - 1),)},
        {"inputs": (dataclasses.replace(LANGUAGE, pad=-(2**31)),)},
        {"inputs": (dataclasses.replace(BUNDLE.inputs[0], places=1),)},
        {"inputs": (dataclasses.replace(BUNDLE.inputs[0], places=1 << 16, axes="BP"),)},
        {"inputs": (BUNDLE.inputs[0],), "signatures": (bundle.Signature("answer", "x", {"S": 1 << 16}, {"p": "p"}),)},
        {"inputs": (NEAR,), "signatures": (bundle.Signature("answer", "x", {"S": 1 << 12}, {"p": "p"}),)},
        {"signatures": (bundle.Signature("answer", "x", {"S": 1}, {"p": "p"}),)},
        {"columns": ("title",)},
        {"columns": ("title", "text"), "pair": True},
        {"litert": "2.1"},
        {"litert": "2025.1.10.4"},
    ],
)
def test_the_edges_of_what_may_be_are_read(change):
    edge = dataclasses.replace(BUNDLE, **change)
    assert bundle.read(edge.to_zip()) == edge


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"inputs": (dataclasses.replace(LANGUAGE, choices={"en": 2**31}),)}, "no int32"),
        ({"inputs": (dataclasses.replace(LANGUAGE, pad=-(2**31) - 1),)}, "no int32"),
        ({"inputs": (dataclasses.replace(BUNDLE.inputs[0], places=0),)}, "of 0 places, expected 1 to 65536"),
        ({"inputs": (dataclasses.replace(BUNDLE.inputs[0], places=(1 << 16) + 1),)}, "of 65537 places"),
        (
            {
                "signatures": (
                    *BUNDLE.signatures,
                    bundle.Signature("answer", "x", {"S": (1 << 12) + 1}, {"probabilities": "p"}),
                )
            }
            | {"inputs": (NEAR,)},
            "of 4097 tokens, expected at most 16777216 numbers",
        ),
        ({"signatures": (bundle.Signature("answer", "x", {"S": 0}, {"p": "p"}),)}, "some of 1 to 65536"),
        ({"signatures": (bundle.Signature("answer", "x", {"S": (1 << 16) + 1}, {"p": "p"}),)}, "some of 1 to 65536"),
        ({"columns": ("title", "text")}, "expected one of each text"),
        ({"columns": ("title",), "pair": True}, "expected one of each text"),
        ({"litert": "2"}, "expected a version such as"),
        ({"litert": "2.1.3.4.5"}, "expected a version such as"),
        ({"litert": "20250.1"}, "expected a version such as"),
        ({"labels": ("a", "a")}, "2 labels, of which 1 differ"),
        ({"inputs": (BUNDLE.inputs[0], dataclasses.replace(BUNDLE.inputs[1], signature="token_ids"))}, "each once"),
    ],
)
def test_what_is_beyond_an_edge_is_refused(change, text):
    with pytest.raises(InputError, match=f"damaged .*{text}"):
        bundle.read(dataclasses.replace(BUNDLE, **change).to_zip())


def test_what_a_file_declares_is_what_is_filled(monkeypatch):
    declared = LANGUAGE.declared()
    names = ("name", "axes", "dtype", "pad", "filled_by", "setting", "make", "places")
    assert [getattr(declared, name) for name in names] == [
        "language_ids",
        "BS",
        "int32",
        0,
        "setting",
        "language",
        None,
        1,
    ]
    assert declared.choices(None) == {"en": 0}
    made = dataclasses.replace(declared, name="near", axes="BSS", dtype="bool", filled_by="maker", setting="", make=len)
    monkeypatch.setitem(inputs._MADE, "near", made)
    found = NEAR.declared()
    assert (found.name, found.axes, found.dtype, found.filled_by, found.make) == ("near", "BSS", "bool", "maker", len)
    monkeypatch.delitem(inputs._MADE, "near")
    with pytest.raises(InputError, match="no input with a maker 'near'"):
        NEAR.declared()


def test_names_of_outputs_and_settings_that_it_was_trained_with():
    long = dataclasses.replace(BUNDLE.signatures[1], outputs={"probabilities": "last"})
    mixed = dataclasses.replace(FULL, signatures=(long, BUNDLE.signatures[0]))
    assert (mixed.output("probabilities"), mixed.lengths, mixed.longest) == ("last", (8, 16), 16)
    assert (FULL.trained, BUNDLE.trained) == ({"language": "en"}, {})


def test_the_same_bundle_is_the_same_bytes_without_dates():
    other = dataclasses.replace(BUNDLE, tokenizer=dict(reversed(BUNDLE.tokenizer.items())))
    assert BUNDLE.to_zip() == other.to_zip()
    infos = zipfile.ZipFile(io.BytesIO(BUNDLE.to_zip())).infolist()
    assert {info.date_time for info in infos} == {(1980, 1, 1, 0, 0, 0)}
    assert {info.compress_type for info in infos} == {zipfile.ZIP_STORED}


def test_labels_are_a_file_of_lines_for_other_readers():
    assert bundle.unpack(BUNDLE.to_zip())["labels.txt"].decode() == "nein\njä\n"


def test_a_zip_bomb_is_refused():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("vocab.txt", b"0" * (bundle.MAX_BYTES + 1))
    assert len(buffer.getvalue()) < 1 << 20
    with pytest.raises(InputError, match="67108865 bytes, expected at most"):
        bundle.read(buffer.getvalue())


@pytest.mark.parametrize("name", ["../vocab.txt", "/etc/vocab.txt", "a/b", "a\\b", "..", "."])
def test_names_that_lead_elsewhere_are_refused(name):
    with pytest.raises(InputError, match="names without folders"):
        bundle.unpack(bundle.pack({name: b"x"}))


def test_a_name_that_stands_there_twice_is_refused():
    buffer = io.BytesIO(BUNDLE.to_zip())
    with zipfile.ZipFile(buffer, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("vocab.txt", b"[PAD]\nother\n")
    with pytest.raises(InputError, match=r"two files 'vocab\.txt', expected one of each name"):
        bundle.read(buffer.getvalue())


def test_the_digest_is_of_the_bytes_in_front(tmp_path):
    import hashlib

    for front in (b"", b"model bytes", bytes(3 << 20)):
        (tmp_path / "x.tflite").write_bytes(front + BUNDLE.to_zip())
        assert bundle.digest(tmp_path / "x.tflite") == hashlib.sha256(front).hexdigest()


def test_a_damaged_member_is_refused():
    data = BUNDLE.to_zip().replace(b"[PAD]", b"[DAP]")
    with pytest.raises(InputError, match=r"no readable bundle .*CRC"):
        bundle.read(data)


def test_files_of_others_are_refused(tmp_path):
    (tmp_path / "other.tflite").write_bytes(b"\0" * 100)
    with pytest.raises(InputError, match=r"other\.tflite carries no readable bundle"):
        bundle.read(tmp_path / "other.tflite")
    with pytest.raises(InputError, match=r"no file .*absent\.tflite"):
        bundle.read(tmp_path / "absent.tflite")
    with pytest.raises(InputError, match=r"carries no bundle\.json"):
        bundle.read(bundle.pack({"a": b""}))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"format": 4}, "bundle format 4, expected 3: install the kerasbert that wrote it"),
        ({"format": 2}, "bundle format 2, expected 3"),
        ({"litert": "2.1.3"}, "damaged .*litert"),
        ({"runtimes": {"ai-edge-litert": 2.1}}, "2.1 stands where a name belongs"),
        ({"runtimes": {"ai-edge-litert": "9" * 5000}}, "damaged .*litert '999"),
        ({"surprise": 1}, "damaged .*surprise"),
        ({"format": "1" * 100}, "bundle format '111"),
        ({"kind": ["classification"]}, "damaged .*expected json for str"),
        ({"digest": 1}, "damaged .*digest is 1, expected json for str"),
        ({"pair": "false"}, "damaged .*pair is 'false', expected json for bool"),
        ({"any_length": 1}, "damaged .*any_length is 1, expected json for bool"),
        ({"labels": "nj"}, "damaged .*labels is 'nj', expected json for list"),
        ({"labels": ["a", 1]}, "damaged .*1 stands where a name belongs"),
        ({"labels": ["a", "a"]}, "damaged .*2 labels, of which 1 differ"),
        ({"labels": []}, "damaged .*0 labels of a classification"),
        ({"kind": "regression"}, "damaged .*2 labels of a regression"),
        ({"inputs": {"token_ids": "token_ids"}}, "damaged .*inputs is .*, expected json for list"),
        ({"signatures": {"8": "length_8"}}, "damaged .*signatures is .*, expected json for list"),
        ({"signatures": []}, r"damaged .*lengths \(\), expected some of 1 to 65536"),
        ({"any_length": True}, "damaged .*2 signatures of any length, expected one"),
        ({"recipe": {"rate": float("nan")}}, "damaged .*NaN is no number of json"),
    ],
)
def test_settings_that_do_not_fit_are_refused(change, text):
    files = bundle.unpack(BUNDLE.to_zip())
    files["bundle.json"] = json.dumps(json.loads(files["bundle.json"]) | change).encode()
    with pytest.raises(InputError, match=text):
        bundle.read(bundle.pack(files))


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b'{"labels":' * 100_000, b"[]", b"7", b"", b"\xff", b'{"format": 3}']
)
def test_settings_that_are_no_settings_are_one_line(content):
    with pytest.raises(InputError, match="damaged") as caught:
        bundle.read(bundle.pack({"bundle.json": content}))
    assert "\n" not in str(caught.value)


STEP = {"logits": "logits", "key_0": "key_0"}
WRITING = dataclasses.replace(
    BUNDLE,
    kind="generation",
    labels=(),
    inputs=BUNDLE.inputs[:2],
    signatures=(
        *(bundle.Signature("encode", f"encode_{n}", {"S": n}, {"source_key_0": "source_key_0"}) for n in (16, 8)),
        *(bundle.Signature("decode_step", f"decode_step_{n}", {"T": n}, STEP) for n in (32, 64)),
    ),
    parts=("source",),
    options={"start": "pad", "beams": 2},
)


def test_programs_of_a_text_that_is_written():
    assert bundle.read(WRITING.to_zip()) == WRITING
    assert WRITING.lengths == (8, 16)
    assert [each.name for each in WRITING.of("decode_step").values()] == ["decode_step_32", "decode_step_64"]
    assert (WRITING.answering, WRITING.longest) == ({}, 16)
    prompts = [dataclasses.replace(each, role="prefill", lengths={"P": 8}) for each in WRITING.signatures[:1]]
    alone = dataclasses.replace(WRITING, signatures=(*prompts, *WRITING.signatures[2:]))
    assert (alone.lengths, alone.longest) == ((8,), 64)
    assert bundle.read(alone.to_zip()).reading == {8: prompts[0]}


@pytest.mark.parametrize(
    ("signatures", "text"),
    [
        (WRITING.signatures[:2], r"roles \['encode'\], expected answer, or encode or prefill with decode_step"),
        (WRITING.signatures[2:], r"roles \['decode_step'\], expected"),
        ((*WRITING.signatures, bundle.Signature("prefill", "p", {"P": 8}, {"k": "k"})), "roles .*prefill"),
        ((*WRITING.signatures, WRITING.signatures[-1]), "two signatures of one length"),
        (
            (*WRITING.signatures[:3], dataclasses.replace(WRITING.signatures[3], outputs={"logits": "x"})),
            "different outputs or none, expected the same of all of the role decode_step",
        ),
        (
            (*WRITING.signatures[:2], bundle.Signature("decode_step", "x", {"T": 8}, {"key_0": "x"})),
            "a step that gives key_0, expected logits among them",
        ),
        (
            (*WRITING.signatures[:3], dataclasses.replace(WRITING.signatures[3], lengths={"S": 8})),
            "lengths of a signature of decode_step without T",
        ),
    ],
)
def test_programs_that_do_not_go_together_are_refused(signatures, text):
    with pytest.raises(InputError, match=f"damaged .*{text}"):
        bundle.read(dataclasses.replace(WRITING, signatures=tuple(signatures)).to_zip())

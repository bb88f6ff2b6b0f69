import importlib.util
import inspect
import json
import shutil

import numpy as np
import pytest

from kerasbert.data import Records, encode, read_documents, spool, write_records, writer
from kerasbert.data.config import RecordsConfig
from kerasbert.errors import InputError
from kerasbert.options import options
from kerasbert.text import WordPiece, load_tokenizer
from tests.data import corpus


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return corpus.write(tmp_path_factory.mktemp("source") / "a.txt", corpus.documents(300))


@pytest.fixture(scope="module")
def made(source, tmp_path_factory):
    """Records in two shards; tests that change them take a copy."""
    out = tmp_path_factory.mktemp("records") / "pairs"
    write_records([source], corpus.tokenizer(), out, length=32, shards=2)
    return out


@pytest.fixture
def own(made, tmp_path):
    return shutil.copytree(made, tmp_path / "own")


def contents(directory):
    return {
        file.relative_to(directory).as_posix(): file.read_bytes() for file in directory.rglob("*") if file.is_file()
    }


def test_a_row_by_hand(tmp_path):
    (tmp_path / "a.txt").write_text("w0 w1\nw2\n\nw3 unknown\n")
    records = write_records([tmp_path / "a.txt"], corpus.tokenizer(), tmp_path / "out", length=12, packing="full")
    assert records.features == {"token_ids": (12,), "segment_lengths": (2,)}
    (row,) = records.rows(records.shards[0]).tolist()
    one, two = [5, 6, 7], [8, 1]
    either = [[2, *one, 3, *two, 3, 0, 0, 0, 0, 8, 0], [2, *two, 3, *one, 3, 0, 0, 0, 0, 8, 0]]  # by the hash
    assert row in either
    assert records.manifest["counts"] == {"documents": 2, "duplicates": 0, "examples": 1, "tokens": 8}
    # Four ordinary tokens, all different.
    assert records.manifest["unigram"] == {"entropy": round(np.log(4), 6), "accuracy": 0.25}
    # beside them the unknown one, and a separator twice
    nats = 5 / 7 * np.log(7) + 2 / 7 * np.log(3.5)
    assert records.manifest["written_unigram"] == {"entropy": round(nats, 6), "accuracy": round(2 / 7, 6)}


def test_the_same_inputs_give_the_same_bytes(source, made, tmp_path):
    write_records([source], corpus.tokenizer(), tmp_path / "again", length=32, shards=2)
    assert contents(tmp_path / "again") == contents(made)


def test_neither_order_nor_spooling_changes_the_bytes(tmp_path, monkeypatch):
    one = corpus.write(tmp_path / "one.txt", corpus.documents(40, seed=1))
    two = corpus.write(tmp_path / "two.txt", corpus.documents(40, seed=2))
    write_records([one, two], corpus.tokenizer(), tmp_path / "a", length=32, shards=3)
    monkeypatch.setattr(spool, "SPOOL_BYTES", 1000)
    monkeypatch.setattr(encode, "LINES", 7)
    write_records([two, one], corpus.tokenizer(), tmp_path / "b", length=32, shards=3)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_without_tensorflow_text_the_bytes_are_the_same(source, made, tmp_path, monkeypatch):
    real = importlib.util.find_spec
    assert real("tensorflow_text"), "the other records of this file come from it"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tensorflow_text" else real(name))
    write_records([source], corpus.tokenizer(), tmp_path / "python", length=32, shards=2)
    assert contents(tmp_path / "python") == contents(made)


def test_another_document_changes_its_own_shard_only(source, made, tmp_path):
    (tmp_path / "new.txt").write_text("w1 w2 w3\nw4 w5 w6\n")
    records = write_records([source, tmp_path / "new.txt"], corpus.tokenizer(), tmp_path / "more", length=32, shards=2)
    before, after = contents(made), contents(tmp_path / "more")
    assert sum(before[shard.file] == after[shard.file] for shard in records.shards) == 1


def test_in_full_packing_the_order_is_by_hash(tmp_path):
    """A document in between moves, none of the others does: without it the tokens are the same in the same order."""
    docs = list(corpus.documents(30, seed=3))
    for name, chosen in (("all", docs), ("less", docs[:17] + docs[18:])):
        corpus.write(tmp_path / f"{name}.txt", chosen)
        write_records([tmp_path / f"{name}.txt"], corpus.tokenizer(), tmp_path / name, length=32, packing="full")
    streams = []
    for name in ("all", "less"):
        records = Records(tmp_path / name)
        ids = records.rows(records.shards[0])[:, :32]
        streams.append([int(token) for token in ids[ids > 4]])
    gone = [token for line in docs[17] for token in corpus.tokenizer().encode(line)]
    place = next(i for i in range(len(streams[0])) if streams[0][i : i + len(gone)] == gone)
    assert streams[0][:place] + streams[0][place + len(gone) :] == streams[1]


def test_dupe_factor_packs_each_document_again(source, made, tmp_path):
    twice = write_records([source], corpus.tokenizer(), tmp_path / "two", length=32, shards=2, dupe_factor=2)
    once = Records(made)
    for one, two in zip(once.shards, twice.shards):
        np.testing.assert_array_equal(twice.rows(two)[: one.examples], once.rows(one))
        assert two.examples > 1.8 * one.examples


def test_a_large_vocabulary_takes_four_bytes(tmp_path):
    words = [f"x{number}" for number in range(70_000)]
    (tmp_path / "a.txt").write_text("x69999 x1\nx65536\n")
    tokenizer = WordPiece(corpus.SPECIALS + words)
    records = write_records([tmp_path / "a.txt"], tokenizer, tmp_path / "out", length=8, packing="full")
    assert records.dtype == "int32"
    assert records.rows(records.shards[0]).tolist() == [[2, 70004, 6, 65541, 3, 0, 0, 0, 5, 0]]


def test_unchanged_inputs_reuse_the_records(source, own):
    before = {file.name: file.stat().st_mtime_ns for file in own.iterdir()}
    records = write_records([source], corpus.tokenizer(), own, length=32, shards=2)
    assert records.reused
    assert load_tokenizer(own / "tokenizer").digest() == corpus.tokenizer().digest()
    assert before == {file.name: file.stat().st_mtime_ns for file in own.iterdir()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"length": 64}, r"Changed: length \(32 before, now 64\)\. Choose another --out or pass --overwrite"),
        ({"packing": "full", "seed": 1}, r"Changed: packing \(pairs before, now full\); seed \(0 before, now 1\)"),
        ({"shards": 3, "dupe_factor": 2}, r"dupe_factor \(1 before, now 2\); shards \(2 before, now 3\)"),
        ({"tokenizer": corpus.tokenizer(lowercase=False)}, r"Changed: tokenizer \(lowercase True before, now False"),
        (
            {"tokenizer": WordPiece([*corpus.SPECIALS, *corpus.WORDS, "x"])},
            r"tokenizer \(205 entries before, now 206\)",
        ),
        ({"tokenizer": WordPiece([*corpus.SPECIALS, *corpus.WORDS[::-1]])}, r"tokenizer \(other vocabulary\)"),
    ],
)
def test_changed_settings_are_named(source, made, change, message):
    settings = {"tokenizer": corpus.tokenizer(), "length": 32, "shards": 2} | change
    before = contents(made)
    with pytest.raises(InputError, match=message):
        write_records([source], settings.pop("tokenizer"), made, **settings)
    assert contents(made) == before


def test_changed_sources_are_named(source, made, tmp_path):
    (tmp_path / "a.txt").write_text("other\n")
    (tmp_path / "b.txt").write_text("more\n")
    with pytest.raises(InputError, match=r"Changed: sources \(a\.txt changed, b\.txt added\)"):
        write_records([tmp_path / "a.txt", tmp_path / "b.txt"], corpus.tokenizer(), made, length=32, shards=2)
    with pytest.raises(InputError, match=r"sources \(b\.txt added, a\.txt removed\)"):
        write_records([tmp_path / "b.txt"], corpus.tokenizer(), made, length=32, shards=2)
    with pytest.raises(InputError, match=r"sources \(a file given more or less often\)"):
        write_records([source, source], corpus.tokenizer(), made, length=32, shards=2)


def test_overwrite_makes_them_again(source, own):
    records = write_records([source], corpus.tokenizer(), own, length=16, overwrite=True)
    assert not records.reused
    assert records.length == 16
    assert [name for name in contents(own) if name.startswith("shard")] == ["shard-00000-of-00001.bin"]


def test_overwrite_removes_nothing_but_records(source, tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        write_records([source], corpus.tokenizer(), tmp_path, length=16, overwrite=True)
    assert contents(tmp_path) == {"precious.txt": b"mine"}


def test_a_failure_leaves_nothing(source, tmp_path, monkeypatch):
    def full(*arguments, **settings):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer.ShardWriter, "write", full)
    with pytest.raises(InputError, match=r"cannot write .*out: No space left on device"):
        write_records([source], corpus.tokenizer(), tmp_path / "out", length=16)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"packing": "docs"}, r"no packing 'docs'\. Nearest: "),
        ({"length": 2}, "length 2 with packing 'pairs', expected 5 to 65535"),
        ({"shards": 0}, "shards must be a whole number of at least 1. Received: 0"),
        ({"dupe_factor": 0}, "dupe_factor must be a whole number of at least 1. Received: 0"),
        ({"seed": -1}, "seed must be a whole number of at least 0. Received: -1"),
        ({"smoothing": 1.5}, "smoothing is 1.5, expected 0"),
        ({"dupe_facter": 2}, "write_records has no option 'dupe_facter'. Nearest: 'dupe_factor'"),
    ],
)
def test_bad_settings(source, tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        write_records([source], corpus.tokenizer(), tmp_path / "out", **settings)
    assert list(tmp_path.iterdir()) == []


def test_help_lists_every_option():
    for name, field in options(RecordsConfig).items():
        assert inspect.signature(write_records).parameters[name].default == field.default
        assert f"        {name}: " in write_records.__doc__


def test_bad_inputs(source, tmp_path):
    (tmp_path / "odd.txt").write_text("\u200b\n")
    with pytest.raises(InputError, match=r"empty corpus: .*odd\.txt hold no text that the tokenizer keeps"):
        write_records([tmp_path / "odd.txt"], corpus.tokenizer(), tmp_path / "out")
    with pytest.raises(InputError, match="no file"):
        write_records([tmp_path / "none.txt"], corpus.tokenizer(), tmp_path / "out")
    with pytest.raises(InputError, match="cannot write records to gs://bucket/x: write them to a local directory"):
        write_records([source], corpus.tokenizer(), "gs://bucket/x")
    assert [file.name for file in tmp_path.iterdir()] == ["odd.txt"]


def test_damaged_shards_are_named(own):
    Records(own).verify()
    shard = own / "shard-00001-of-00002.bin"
    data = shard.read_bytes()
    shard.write_bytes(data[:-100] + bytes([data[-100] ^ 1]) + data[-99:])  # not in the first block
    Records(own)
    with pytest.raises(InputError, match=r"shard-00001-of-00002\.bin is damaged: its sha256"):
        Records(own).verify()
    shard.write_bytes(data[:-1])
    with pytest.raises(InputError, match=r"shard-00001-of-00002\.bin is truncated: \d+ bytes, expected \d+"):
        Records(own)
    shard.write_bytes(data + b"x")
    with pytest.raises(InputError, match=r"shard-00001-of-00002\.bin is too long"):
        Records(own)
    shard.unlink()
    with pytest.raises(InputError, match=r"shard-00001-of-00002\.bin is missing"):
        Records(own)


def test_bad_manifests(own, tmp_path):
    manifest = json.loads((own / "manifest.json").read_text())
    (own / "manifest.json").write_text(json.dumps(manifest | {"format": 1}))
    with pytest.raises(InputError, match=r"manifest\.json has format 1, this version reads 2"):
        Records(own)
    (own / "manifest.json").write_text("{")
    with pytest.raises(InputError, match=r"manifest\.json is not a manifest of records"):
        Records(own)
    with pytest.raises(InputError, match=r"no records in .*: it holds no manifest\.json"):
        Records(tmp_path)


def test_records_refuse_another_tokenizer(made):
    records = Records(made)
    records.check(corpus.tokenizer(), 205)
    with pytest.raises(
        InputError, match=r"were made with another tokenizer \([0-9a-f]{12}, this one is [0-9a-f]{12}\)"
    ):
        records.check(corpus.tokenizer(lowercase=False), 205)
    with pytest.raises(InputError, match="hold ids below 205, the model has 200 token embeddings"):
        records.check(corpus.tokenizer(), 200)


def test_a_shard_of_other_records_is_named(own, tmp_path):
    other = corpus.write(tmp_path / "b.txt", corpus.documents(300, seed=8))
    write_records([other], corpus.tokenizer(), tmp_path / "other", length=32, shards=2)
    shard = own / "shard-00000-of-00002.bin"
    theirs = (tmp_path / "other" / shard.name).read_bytes()
    size = shard.stat().st_size
    shard.write_bytes(theirs[:size] + bytes(max(0, size - len(theirs))))
    with pytest.raises(InputError, match=r"shard-00000-of-00002\.bin is of other records: its first block is not"):
        Records(own)


def test_exact_duplicates_are_left_out_and_counted(source, made, tmp_path):
    docs = list(corpus.documents(300))
    twice = corpus.write(tmp_path / "b.txt", [*docs[:10], *docs[:5]])
    records = write_records([source, twice], corpus.tokenizer(), tmp_path / "twice", length=32, shards=2)
    assert records.manifest["counts"]["documents"] == 300
    assert records.manifest["counts"]["duplicates"] == 15
    assert [shard.sha256 for shard in records.shards] == [shard.sha256 for shard in Records(made).shards]


def test_languages_are_balanced(source, tmp_path):
    """Nine tenths and one tenth of the tokens: with the exponent 0.5 three quarters and one quarter of as many."""
    rng = np.random.default_rng(0)
    names = {}
    for name, words, count in (("en", corpus.WORDS[:100], 1800), ("cy", corpus.WORDS[100:], 200)):
        docs = ([" ".join(rng.choice(words, 10)) for _ in range(2)] for _ in range(count))
        names[name] = [corpus.write(tmp_path / f"{name}.txt", docs)]
    records = write_records(names, corpus.tokenizer(), tmp_path / "out", length=32, packing="packed", smoothing=0.5)
    assert records.manifest["languages"] == {
        "cy": {"documents": 200, "tokens": 4000, "repeats": 2.5},
        "en": {"documents": 1800, "tokens": 36000, "repeats": 0.833333},
    }
    ids = records.rows(records.shards[0])[:, :32]
    welsh, english = (ids >= 105).sum(), ((ids >= 5) & (ids < 105)).sum()
    assert abs(welsh - 10_000) < 3 * 20 * (200 * 0.25) ** 0.5
    assert abs(english - 30_000) < 3 * 20 * (1800 * 0.14) ** 0.5
    write_records(
        dict(reversed(names.items())),
        corpus.tokenizer(),
        tmp_path / "again",
        length=32,
        packing="packed",
        smoothing=0.5,
    )
    assert contents(tmp_path / "again") == contents(tmp_path / "out")
    with pytest.raises(InputError, match=r"Changed: smoothing \(0\.5 before, now 0\.7\)"):
        write_records(names, corpus.tokenizer(), tmp_path / "out", length=32, packing="packed")
    swapped = {"en": names["cy"], "cy": names["en"]}
    with pytest.raises(InputError, match=r"Changed: sources \(cy\.txt changed"):
        write_records(swapped, corpus.tokenizer(), tmp_path / "out", length=32, packing="packed", smoothing=0.5)
    with pytest.raises(InputError, match=r"smoothing is 1\.5, expected 0 \(languages alike\) to 1"):
        write_records(names, corpus.tokenizer(), tmp_path / "no", smoothing=1.5)


def test_addresses_are_read_as_files_are(source, made, tmp_path):
    import tensorflow as tf

    with open(source, "rb") as file:
        tf.io.gfile.GFile("ram://corpus/a.txt", "wb").write(file.read())
    write_records(["ram://corpus/a.txt"], corpus.tokenizer(), tmp_path / "out", length=32, shards=2)
    assert contents(tmp_path / "out") == contents(made)
    with pytest.raises(InputError, match="no file ram://corpus/b.txt"):
        write_records(["ram://corpus/b.txt"], corpus.tokenizer(), tmp_path / "no")


def test_an_unknown_runner(source, tmp_path):
    with pytest.raises(InputError, match=r"no runner 'bean'\. Nearest: 'beam'"):
        write_records([source], corpus.tokenizer(), tmp_path / "out", runner="bean")


def test_the_rows_of_a_stream_go_on_where_the_one_before_ends(source, tmp_path):
    """A shard is one text, cut: rows of twice the length are two of the shorter ones, side by side."""
    texts = []
    for length in (16, 32):
        records = write_records([source], corpus.tokenizer(), tmp_path / str(length), length=length, packing="stream")
        rows = records.rows(records.shards[0])
        assert (rows[:-1, length] == length).all()  # the last alone may be shorter
        texts.append(rows[:, :length].reshape(-1)[: records.tokens])
    assert (texts[0] == texts[1]).all()
    assert 2 not in texts[0]  # no [CLS]
    borders = np.flatnonzero(texts[0] == 3)
    assert len(borders) == records.manifest["counts"]["documents"] - 1  # one separator between two documents
    assert (np.diff(borders) > 1).all()


def test_one_path_is_a_list_of_one(tmp_path):
    """`kb.write_records("corpus.txt", ...)` took the path apart: "no file c"."""
    (tmp_path / "a.txt").write_text("w0 w1\nw2\n")
    written = [
        write_records(files, corpus.tokenizer(), tmp_path / str(number), length=16, packing="full")
        for number, files in enumerate((str(tmp_path / "a.txt"), tmp_path / "a.txt", [tmp_path / "a.txt"]))
    ]
    assert len({json.dumps(records.manifest, sort_keys=True) for records in written}) == 1
    languages = write_records(
        {"en": str(tmp_path / "a.txt")}, corpus.tokenizer(), tmp_path / "l", length=16, packing="full"
    )
    assert languages.manifest["languages"].keys() == {"en"}
    path = str(tmp_path / "a.txt")
    assert list(read_documents(path)) == list(read_documents([path])) == [["w0 w1", "w2"]]


def test_beam_counts_its_own_workers(tmp_path, monkeypatch):
    """The number of processes that this machine would take is none of Beam's, which would refuse it."""
    given = []

    def fill(job, config, *rest):
        given.append((config.runner, config.processes, config.shards))
        raise InputError("enough")

    monkeypatch.setattr(writer, "_fill", fill)
    source = corpus.write(tmp_path / "a.txt", corpus.documents(20))
    for runner in ("beam", "local"):
        with pytest.raises(InputError, match="enough"):
            write_records([source], corpus.tokenizer(), tmp_path / runner, length=32, runner=runner)
    assert given == [("beam", None, 1), ("local", 1, 1)]
    with pytest.raises(InputError, match="processes are of --runner local"):
        write_records([source], corpus.tokenizer(), tmp_path / "out", runner="beam", processes=2)

"""Apache Beam writes the bytes that the local path writes."""

import warnings

import pytest

from kerasbert.data import Records, write_records
from kerasbert.errors import InputError
from tests.data import corpus
from tests.support import shared

# warnings of Beam and what it imports
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module", autouse=True)
def beam():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Beam's own imports
        pytest.importorskip("apache_beam", reason="needs kerasbert[beam]")


def contents(directory):
    return {
        file.relative_to(directory).as_posix(): file.read_bytes() for file in directory.rglob("*") if file.is_file()
    }


def both(files, tmp_path, **settings):
    tokenizer = settings.pop("tokenizer", corpus.tokenizer())
    for runner in ("local", "beam"):
        write_records(files, tokenizer, tmp_path / runner, runner=runner, **settings)
    assert contents(tmp_path / "beam") == contents(tmp_path / "local")
    return Records(tmp_path / "beam").verify()


def test_records_are_identical(tmp_path):
    docs = list(corpus.documents(150))
    files = [
        corpus.write(tmp_path / "a.txt", docs[:100]),
        corpus.write(tmp_path / "b.txt", docs[90:]),
        corpus.write(tmp_path / "empty.txt", []),
    ]
    records = both(files, tmp_path, length=32, shards=150, packing="packed")
    assert records.manifest["counts"]["duplicates"] == 10
    assert 0 in {shard.examples for shard in records.shards}  # a shard without documents is there too


def test_languages_are_identical(tmp_path):
    names = {
        name: [corpus.write(tmp_path / f"{name}.txt", corpus.documents(count, seed=count))]
        for name, count in (("en", 120), ("cy", 15))
    }
    records = both(names, tmp_path, length=32, shards=2)
    assert records.manifest["languages"]["cy"]["repeats"] > 1


def test_an_address_gets_its_manifest_last(tmp_path):
    source = corpus.write(tmp_path / "a.txt", corpus.documents(60))
    write_records([source], corpus.tokenizer(), tmp_path / "local", length=32, shards=2)
    made = write_records([source], corpus.tokenizer(), "ram://records", length=32, shards=2, runner="beam")
    assert made.manifest == Records(tmp_path / "local").manifest
    assert Records("ram://records").verify().examples == made.examples
    assert write_records([source], corpus.tokenizer(), "ram://records", length=32, shards=2, runner="beam").reused


def test_a_mistake_in_a_worker_is_one_line(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tother\none\n")
    with pytest.raises(InputError, match=r"^.*a\.tsv, line 2: 1 fields, expected 2 \(text, other\).*Mend the row$"):
        write_records([tmp_path / "a.tsv"], corpus.tokenizer(), tmp_path / "out", runner="beam")
    assert [file.name for file in tmp_path.iterdir()] == ["a.tsv"]


def test_the_shared_texts_are_identical(tmp_path):
    from kerasbert.text import load_tokenizer

    files = [path for path in sorted(shared("data/lm").rglob("*")) if path.is_file() and path.name != "README.md"]
    both(files, tmp_path, tokenizer=load_tokenizer(shared("data/vocab/bert-base-uncased")), shards=3)


def test_words_that_records_bring_along_are_identical(tmp_path):
    files = [corpus.write(tmp_path / "a.txt", corpus.documents(60))]
    (tmp_path / "words.txt").write_text("\n".join(f"w{i} w{j}" for i in range(0, 200, 2) for j in range(200)) + "\n")
    records = both(files, tmp_path, length=32, shards=5, packing="full", words=tmp_path / "words.txt")
    assert "joins" in records.features

"""A disk that fills up while a command writes: one line that names what stays, and nothing is half-written."""

import contextlib
import resource
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import kerasbert as kb
import kerasbert.cli
import kerasbert.mobile.cli
from kerasbert.cli.parser import failure
from kerasbert.errors import InputError
from kerasbert.storage import files
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import Task
from tests import tiny

COMMANDS = (  # and what of the output stays beside it: answers that the same command goes on with
    ("kerasbert vectors corpus.txt --kind glove --size 30 --epochs 1 --out {out}", ""),
    ("kerasbert predict {model} --data train.tsv --out {out}.csv", "partial"),
    ("kerasbert predict {model} good-film --explain {out}.html", ""),
    ("kerasbert encode {model} --data texts.txt --out {out}.npy", ""),
    ("kerasbert index {model} texts.txt --out {out}", ""),
    ("kerasbert report {model} --out {out}.html", ""),
    ("kerasbert samples {out}", ""),
    ("kerasbert export {model} {out}", ""),
    ("kerasbert export-checkpoint {model} {out} --to hf", ""),
    ("kerasbert export-checkpoint {model} {out} --to tf1", ""),
    ("kerasbert finetune {model} --task classification --train train.tsv --steps 1 --quiet --out {out}", "new/out"),
    ("kerasbert-mobile compress {model} --quantize none --out {out}.tflite", ""),
    ("kerasbert-mobile prune {model} --layers 0 --out {out}", ""),
    ("kerasbert-mobile trim {model} --texts corpus.txt --out {out}", ""),
    ("kerasbert look {model} --word good --sentences good.txt --out {out}.html", ""),
    ("kerasbert lab sharing --seeds 2 --out {out}", "new/out"),
    ("kerasbert-mobile distill {model} --student half --data train.tsv --steps 1 --quiet --out {out}", "new/out"),
    ("kerasbert-mobile prune {model} --sparsity .5 --data train.tsv --steps 1 --quiet --out {out}", "new/out"),
    ("kerasbert-mobile quantize-aware {wide} --data train.tsv --steps 1 --quiet --out {out}", "new/out"),
    ("kerasbert-mobile compress {model} --heads .5 --data train.tsv --out {out}.tflite", "new/out.tflite.plan"),
    ("kerasbert-mobile ledger {model} --data train.tsv --out {out}", ""),
)
ROOM = 4200  # bytes of a file: more than is tried before the work, less than each of these writes into one


@contextlib.contextmanager
def room(size: int) -> Iterator[None]:
    """Files grow to `size` bytes and no further."""
    old, usual = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        signal.signal(signal.SIGXFSZ, old)


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A classifier with a matrix that int8 rounds; the others' models have none."""
    spec = tiny.SPEC | {"feedforward.width": 64, "embeddings.vocabulary": tiny.tokenizer().size}
    encoder = kb.build("bert/tiny", **spec)
    encoder.tokenizer = tiny.tokenizer()
    model = TaskModel(encoder, Task("mine", labels={"neg": "neg", "pos": "pos"}, length=16))
    model.build()
    kb.save(model, folder := tmp_path_factory.mktemp("wide") / "run")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("line", "stays"), COMMANDS, ids=[line.partition(" --")[0] for line, _ in COMMANDS])
def test_a_disk_that_fills_up(classifier, wide, tmp_path, monkeypatch, capsys, line, stays):
    tiny.corpus(tmp_path / "corpus.txt", 60)
    tiny.labelled(tmp_path / "train.tsv", 300)
    (tmp_path / "good.txt").write_text("a good cat\na good dog\nthe good film\n")
    (tmp_path / "texts.txt").write_text("\n".join(tiny.sentences(300, 0)) + "\n", "utf-8")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "thesis.txt").write_text("mine")
    monkeypatch.chdir(tmp_path)
    program, *words = line.format(model=classifier, wide=wide, out=tmp_path / "there" / "new" / "out").split()
    with room(ROOM):
        status = (kerasbert.mobile.cli if program == "kerasbert-mobile" else kerasbert.cli).main(words)
    told = [said for said in capsys.readouterr().err.splitlines() if said.startswith("error: ")]
    assert (status, len(told)) == (2, 1), told
    assert "File too large" in told[0]
    assert "kerasbert-new" not in told[0]
    left = sorted(path.relative_to(tmp_path / "there").as_posix() for path in (tmp_path / "there").glob("*/*"))
    if stays:
        (name,) = left
        assert name.endswith(".partial") if stays == "partial" else name == stays
        assert f"{name}: the same command goes on" in told[0]
    else:
        assert [path.name for path in (tmp_path / "there").iterdir()] == ["thesis.txt"]
    assert (tmp_path / "there" / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("said", ["IoError: No space left on device (os error 28)", "Read-only file system"])
@pytest.mark.parametrize("make", [files.new_file, files.new_directory])
def test_a_library_calls_it_otherwise(tmp_path, make, said):
    """The tokenizers' and TensorFlow's errors are none of the system's; the folders above were made for it."""
    with (
        pytest.raises(InputError, match=r"cannot write .*/a/b/out: (No space|Read-only).*\. Free space"),
        make(tmp_path / "a" / "b" / "out"),
    ):
        raise RuntimeError(said)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError, match="another fault"), make(tmp_path / "out"):
        raise RuntimeError("another fault")


def test_a_disk_without_a_name():
    """What is printed goes to a file too, and so do temporary ones."""
    line, status = failure(OSError(28, "No space left on device"))
    assert (line.partition(":")[0], status) == ("No space left on device", 2)
    assert "TMPDIR" in line


def test_where_it_is_written_is_called_as_it_will_be(tmp_path):
    refused = pytest.raises(InputError, match=r"cannot write .*/out/model.json: No space left on device")
    with refused, files.new_directory(tmp_path / "out") as new, files.new_file(new / "model.json"):
        raise OSError(28, "No space left on device")
    assert not Path(tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["tmp9rmvttbs/variables/part-0.tempstate15", "kerasbert-temporary.4_smv6ab/model/x"])
def test_a_disk_of_temporary_files(monkeypatch, tmp_path, place):
    """TensorFlow converts by way of a folder of its own; that is no place that the user named."""
    monkeypatch.setattr(tempfile, "tempdir", "/scratch")
    said = f"/scratch/{place}; No space left on device"
    told = "cannot write temporary files in /scratch: No space left on device. Free space there or name another place by TMPDIR"
    with pytest.raises(InputError, match=f"^{told}$"), files.new_file(tmp_path / "out"):
        raise RuntimeError(said)
    goes_on = f"^{told}. What was made is kept in runs/x: the same command goes on$"
    with pytest.raises(InputError, match=goes_on), files.kept("runs/x"):
        raise RuntimeError(said)
    with pytest.raises(RuntimeError, match="another fault"), files.kept("runs/x"):
        raise RuntimeError("another fault")

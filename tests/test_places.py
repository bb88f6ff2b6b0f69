"""Every command that writes x every place where it must not: nothing of somebody's changes, whatever the options.

The commands are those of the two programs, found by their parsers: a new one is tried here too, or named in READERS.
"""

import argparse
import contextlib
import hashlib
import json
import os
import resource
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import keras  # noqa: F401, here: when first imported it writes into HOME, which `world` watches
import pytest

import kerasbert.cli
import kerasbert.mobile.cli
from kerasbert.cli import outputs
from kerasbert.cli.parser import commands_of
from kerasbert.errors import InputError
from kerasbert.storage import files, places
from kerasbert.training.runs import open_run
from tests import mistakes

PROGRAMS = {"kerasbert": kerasbert.cli, "kerasbert-mobile": kerasbert.mobile.cli}
READERS = {  # commands that write nothing but what they print
    *("list", "show", "check-tpu", "replay", "evaluate", "search", "fill-mask", "zero-shot", "nearest", "docs"),
    *("serve", "serve-benchmark", "serve-check", "verify", "benchmark", "inspect"),
}
NAMES = {"out", "work", "golden", "explain", "submission"}  # options that name what is written
TABLE = "text\tlabel\n" + "".join(f"a line of words {i}\t{'ab'[i % 2]}\n" for i in range(30))


def commands() -> Iterator[tuple[str, str, str]]:
    """(program, command, argument) of everything that is written."""
    for program, module in PROGRAMS.items():
        for name, command in commands_of(module.parser()).items():
            for argument in outputs.outputs(command):
                yield program, name, argument


def marked(folder: Path, **content: str) -> None:
    """A folder as a command of ours leaves it."""
    with files.new_directory(folder) as new:
        for name, text in content.items():
            (new / name.replace("_", ".")).write_text(text)


@pytest.fixture
def world(tmp_path, monkeypatch) -> Path:
    """A current directory with an input of every kind, in a home of its own, and somebody's files around."""
    home = tmp_path / "home"
    here = home / "work" / "here"
    here.mkdir(parents=True)
    for folder in (home, home / "work", here, here / "sub", here / "someones", here / "someones" / "deep"):
        folder.mkdir(exist_ok=True)
        (folder / "thesis.txt").write_text(f"of {folder.name}")
    for name in ("train.tsv", "corpus.txt", ".hidden", "page.html", "x.csv", "x.tflite", "x.json", "x.golden"):
        (here / name).write_text(TABLE)
    (home / "beside.txt").write_text("beside")
    marked(here / "model", model_json="{}", run_json=json.dumps({"kind": "x", "settings": {"steps": 1}}))
    marked(here / "input", tokenizer_json="{}", train_tsv=TABLE)
    marked(here / "ours-and-thesis", run_json=json.dumps({"kind": "x", "settings": {"steps": 1}}), model_json="{}")
    (here / "ours-and-thesis" / "thesis.txt").write_text("mine")
    marked(here / "deep", run_json=json.dumps({"kind": "x", "settings": {"steps": 1}}), manifest_json="{}")
    (here / "deep" / "checkpoints" / "step_3").mkdir(parents=True)
    (here / "deep" / "checkpoints" / "step_3" / "thesis.txt").write_text("mine")
    marked(here / "notes", tokenizer_json="{}")
    (here / "notes" / "empty").mkdir()
    _folders_like_ours(here)
    _links(here)
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(home))
    return tmp_path


def _folders_like_ours(here: Path) -> None:
    """Folders of somebody's with files that are called as ours are."""
    for name, file in {"app": "manifest.json", "hub": "tokenizer.json", "job": "run.json", "net": "model.json"}.items():
        (here / name).mkdir()
        (here / name / file).write_text('{"kind": "web", "settings": {"steps": 3}, "files": []}')
    for version in ("1", "2"):  # a base of TF Serving, whose versions are ours
        marked(here / "serving" / version, saved_model_pb="x")
    (here / "locked").mkdir()
    (here / "locked" / "thesis.txt").write_text("mine")
    (here / "locked").chmod(0o555)


def _links(here: Path) -> None:
    """Links to all kinds of things, and what is no file."""
    ends = {"to-here": here, "to-home": here.parent.parent, "to-root": "/", "to-someones": "someones"}
    ends |= {
        "to-input": "model",
        "to-file": "thesis.txt",
        "to-nothing": "nothing",
        "loop": "loop",
        "to-null": "/dev/null",
    }
    for name, end in ends.items():
        (here / name).symlink_to(end)
    os.mkfifo(here / "fifo")
    with socket.socket(socket.AF_UNIX) as place, contextlib.chdir(here):
        place.bind("socket")
    with contextlib.suppress(PermissionError):
        os.mknod(here / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))


def hostile(here: Path) -> list[str]:
    """Places that are not to be written to."""
    home = here.parent.parent
    return [
        *("", ".", "./", "..", "../", "../..", "sub/..", "sub/../.", str(here), str(here.parent), "/", "//", str(home)),
        *("~", "../here", "/proc", "/proc/x", "/sys", "/dev/shm", "/dev/null", "null", "fifo", "socket"),
        *(
            "model",
            "model/",
            str(here / "model"),
            "model/model.json",
            "input",
            "input/train.tsv",
            "train.tsv",
            "corpus.txt",
        ),
        *("to-here", "to-home", "to-root", "to-someones", "to-input", "to-file", "to-nothing", "loop", "to-null"),
        *(
            "someones",
            "someones/",
            "someones/deep",
            "SOMEONES/../someones",
            "thesis.txt",
            "thesis.txt/",
            "thesis.txt/x",
        ),
        *(
            "ours-and-thesis",
            "deep",
            "deep/checkpoints",
            "deep/checkpoints/step_3",
            "notes",
            "app",
            "hub",
            "job",
            "net",
        ),
        *("serving", "locked", ".hidden", "page.html", "x.csv", "x.tflite", "x.json", "x.golden", "n" * 300, "n" * 252),
        *(
            "x" * 60 + "/" + "y" * 300,
            "a\0b",
            "model/../model",
            "/dev/stdout",
            "/dev/fd/0",
            ".thesis.0123456789ab.kerasbert-new",
        ),
    ]


def state(top: Path) -> dict[str, str]:
    """What lies below a folder: name -> what it is and holds."""
    found = {}
    for folder, folders, names in os.walk(top):
        for name in (*folders, *names):
            path = Path(folder, name)
            about = path.lstat()
            held = os.readlink(path) if path.is_symlink() else ""
            held = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(about.st_mode) else held
            found[str(path.relative_to(top))] = f"{stat.S_IFMT(about.st_mode)} {stat.S_IMODE(about.st_mode)} {held}"
    return found


def arguments(command: argparse.ArgumentParser) -> list[str]:
    """A call of a command but for what it writes: it reads the model, or else files of the world."""
    name, line = command.get_default("command"), []
    known = {"task": "classification", "student": "half", "path": "model", "tokenizer": "input", "files": "corpus.txt"}
    for action in command._actions:
        if hasattr(action, "writes") or not (action.required or action.dest in ("data", "model", "run")):
            continue
        model = action.metavar in ("RUN", "MODEL/SIZE", "TEACHER", "ARTEFACT")
        value = known.get(action.dest, "model" if model else "train.tsv")
        line += [action.option_strings[-1], value] if action.option_strings else [value]
    return [name, *line, *{"prune": ["--layers", "0"], "pretrain": ["--steps", "1"]}.get(name, [])]


def test_every_command_declares_what_it_writes():
    for program, module in PROGRAMS.items():
        for name, command in commands_of(module.parser()).items():
            declared, known = set(outputs.outputs(command)), {action.dest for action in command._actions}
            assert declared == (set() if name in READERS else NAMES & known), (
                f"{program} {name}: see cli.outputs.writes"
            )
            assert bool(declared) != (name in READERS), f"{program} {name} writes, or is one of READERS"
            assert "out" not in declared or "overwrite" in known or name in ("quickstart", "report", "lab", "look"), (
                program,
                name,
            )


@pytest.mark.parametrize(("program", "name", "argument"), list(commands()))
def test_nothing_of_theirs_changes(world, monkeypatch, capsys, program, name, argument):
    """The command is ended where it would begin to work: what is refused is refused before, without TensorFlow."""
    here, module = Path.cwd(), PROGRAMS[program]
    top = module.parser()
    command, begun = commands_of(top)[name], []

    def begin(options):
        options.read(*vars(options))  # as the command does
        begun.append(options)

    command.set_defaults(function=begin)
    monkeypatch.setattr(module, "parser", lambda: top)
    monkeypatch.setattr(module, "_check_names", lambda options: None)  # the model is none
    actions = {action.dest: action for action in command._actions}
    line, kind, before = arguments(command), outputs.outputs(command)[argument], state(world)
    if argument != "out" and actions["out"].required:
        line.append("--out=fresh")
    for more in [[], ["--overwrite"]][: 1 + ("overwrite" in actions)]:
        for place in hostile(here):
            begun.clear()
            named = actions[argument].option_strings
            status = module.main([*line, f"{named[-1]}={place}" if named else place, *more])
            said = capsys.readouterr().err
            assert (status, said.count("\n")) == ((0, 0) if begun else (2, 1)), (place, more, said)
            assert not begun or place in _passing(kind, bool(more), line), (place, more)
        assert state(world) == before, more
    assert len(hostile(here)) > 70


def _passing(kind: outputs.Kind, overwrite: bool, line: list[str]) -> set[str]:
    """Places that the command itself refuses or goes on with, by what they hold."""
    if kind == "within":
        return set(hostile(Path.cwd()))  # any folder: the file within it is asked for
    if kind == "folder" or (
        callable(kind) and line[0] in ("prune", "export")
    ):  # what is ours, holds nothing else and is not read
        ours = {
            "model": ("model", "model/", str(Path.cwd() / "model"), "to-input", "model/../model"),
            "input": ("input",),
        }
        return {place for name in ours if overwrite and name not in line for place in ours[name]}
    if overwrite or (kind not in outputs.BEGUN and not callable(kind)):
        return set()
    return {"app", "deep"} if kind == "records" else {"deep", "ours-and-thesis", "job"}


@pytest.mark.parametrize("place", ["deep", "ours-and-thesis", "job"])
def test_a_run_is_not_begun_over_theirs(world, place):
    """What looks like a run passes the command line, which may go on with it."""
    before = state(world)
    with pytest.raises(InputError, match="holds another run: kind"):
        open_run(place, "pretrain", {"steps": 9})
    with pytest.raises(InputError, match="thesis.txt, which is not kerasbert's|was not written by kerasbert"):
        open_run(place, "pretrain", {"steps": 9}, overwrite=True)
    assert state(world) == before


def test_file_in_somebodys_folder(world):
    """`--submission .` writes one file, which replaces none of theirs."""
    Path("SST-2.tsv").write_text("index\tmine\n")
    for overwrite, said in ((False, "exists already"), (True, "is not a file for GLUE's server: it is kept")):
        with pytest.raises(InputError, match=said):
            places.check_file("SST-2.tsv", overwrite, "submission")
    Path("SST-2.tsv").write_text("index\tprediction\n0\t1\n")
    assert places.check_file("SST-2.tsv", True, "submission") == Path.cwd() / "SST-2.tsv"


def test_real_commands(world, capsys):
    """The commands that need no TensorFlow, to their end."""
    before, call = state(world), kerasbert.cli.main
    vocab = ["vocab", "corpus.txt", "--kind", "bpe", "--size", "270"]
    for place in hostile(Path.cwd()):
        if place not in ("model", "model/", str(Path.cwd() / "model"), "to-input", "model/../model", "input"):
            assert call([*vocab, f"--out={place}", "--overwrite"]) == 2, place
    assert state(world) == before
    for more in ([], ["--overwrite"]):  # what is new, or ours, is written, through a link too
        Path("far").mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            Path("near").symlink_to("far")
        assert call([*vocab, "--out", "near", *more]) == 0
        assert Path("near").is_symlink()
        data = ["data", "corpus.txt", "--tokenizer", "near", "--packing", "full", "--length", "16", "--processes", "1"]
        for place in ("app", "someones", ".", "near", "corpus.txt"):
            assert call([*data, "--out", place, *more]) == 2, place
        assert call([*data, "--out", "records", *more]) == 0
    left = {name: told for name, told in state(world).items() if name in before}
    assert left == before
    capsys.readouterr()


def test_modes_are_the_umasks(world):
    for mask in (0o022, 0o077, 0o002):
        old = os.umask(mask)
        try:
            marked(Path(f"made{mask}"), x_json="{}")
            files.write_atomic(f"made{mask}.json", "{}")
        finally:
            os.umask(old)
        modes = [
            stat.S_IMODE(os.stat(name).st_mode) for name in (f"made{mask}", f"made{mask}/x.json", f"made{mask}.json")
        ]
        assert modes == [0o777 & ~mask, 0o666 & ~mask, 0o666 & ~mask]


@contextlib.contextmanager
def no_room() -> Iterator[None]:
    """Files stay empty, as on a full disk, which takes their names and folders; pytest's own log too, so for a call alone."""
    old, usual = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        signal.signal(signal.SIGXFSZ, old)


@pytest.mark.parametrize(("program", "name", "argument"), list(commands()))
def test_a_full_disk_is_told_before_the_work(world, monkeypatch, capsys, program, name, argument):
    """Also in folders that are not there; a link that leads there."""
    module = PROGRAMS[program]
    top = module.parser()
    command = commands_of(top)[name]
    command.set_defaults(function=lambda options: pytest.fail("it began"))
    monkeypatch.setattr(module, "parser", lambda: top)
    monkeypatch.setattr(module, "_check_names", lambda options: None)
    action = {action.dest: action for action in command._actions}[argument]
    out = ["--out=fresh"] if argument != "out" and "out" in outputs.outputs(command) else []
    before = state(world)
    for place in ("fresh", "fresh/er/and/er", "sub/fresh", *(["to-someones"] if argument == "submission" else [])):
        given = [f"{action.option_strings[-1]}={place}"] if action.option_strings else [place]
        with no_room():
            status = module.main([*arguments(command), *out, *given])
        assert status == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: cannot write ")
        assert line.endswith(": File too large. Choose another place")
    assert state(world) == before


@pytest.mark.parametrize("kind", ["folder", "place", "table", "run", "records"])
def test_nothing_is_put_into_a_folder_of_ours_that_is_read(world, kind):
    """It would be foreign there, or is another command's file; `report` alone has files in a run."""
    before = state(world)
    with pytest.raises(InputError, match="model/sub/out lies within model, which is read and stays as it is"):
        outputs._check(kind, "model/sub/out", True, ["model"])
    with pytest.raises(InputError, match="lies within to-input"):
        outputs._check(kind, "model/sub/out", True, ["to-input"])
    for other in ("report.html", "MODEL_CARD.md", "dev.json", "tokenizer/vocab.txt"):
        with pytest.raises(InputError, match=f"model/{other} lies within model, which is read"):
            outputs._check(kind, f"model/{other}", True, ["model"])
    outputs._check("report", "model/report.html", True, ["model"])
    outputs._check("card", "model/MODEL_CARD.md", True, ["model"])
    for page in ("report", "look", "explanation"):
        with pytest.raises(InputError, match="lies within model"):
            outputs._check(page, "model/dev.json", True, ["model"])
    outputs._check(kind, "someones/out", True, ["someones"])
    assert state(world) == before


@pytest.mark.parametrize("link", [os.link, os.symlink])
@pytest.mark.parametrize(
    ("line", "read", "written"),
    [
        ("kerasbert predict model --data rows.csv --out {}", "rows.csv", "out.csv"),
        ("kerasbert encode encoder --data lines.txt --out {}", "lines.txt", "out.npy"),
        ("kerasbert look encoder --word film --sentences lines.txt --out {}", "lines.txt", "out.html"),
        ("kerasbert mine index --data belong.csv --out {}", "belong.csv", "out.jsonl"),
        ("kerasbert-mobile run file.tflite --data rows.csv --out {}", "rows.csv", "out.csv"),
        ("kerasbert-mobile index file.tflite lines.txt --out {}", "lines.txt", "out.kbindex"),
        ("kerasbert-mobile compress model --data rows.csv --out {}", "rows.csv", "out.tflite"),
    ],
)
def test_another_name_of_what_is_read_is_no_place_to_write(tmp_path, monkeypatch, capsys, link, line, read, written):
    """A hard link is the same file by another name, to which no path leads."""
    mistakes.files(tmp_path)
    monkeypatch.chdir(tmp_path)
    link(read, written)
    content = Path(read).read_bytes()
    program, *words = line.format(written).split()
    overwrite = [] if "look" in line else ["--overwrite"]
    assert PROGRAMS[program].main([*words, *overwrite]) == 2
    assert f"error: {written} is what is read. Choose another place" in capsys.readouterr().err
    assert Path(read).read_bytes() == Path(written).read_bytes() == content

"""Where a command or a function may write: the rules of every `out`, asked before anything is computed.

What `check_folder`, `check_file` and `check_begun` allow is kept for the call that asks, of the command line or of Python
(`aside.claiming`): another process or thread that would write there meanwhile is refused.

A folder that we made holds the file MARK, with the names of what was written; only such a folder is ever replaced, and only
while it holds nothing else. GROWN says what later commands add to it. A file is replaced where it looks like what the same
command writes (FILES).
"""

import contextlib
import contextvars
import errno
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from kerasbert.errors import InputError
from kerasbert.storage import aside
from kerasbert.storage.remote import is_remote
from kerasbert.within import within

Name = str | os.PathLike[str]
MARK = ".kerasbert"
TOKENIZER = r"(tokenizer\.json|vocab\.(txt|json)|merges\.txt|spiece\.model|languages\.json|knowledge\.bin)"
MODEL = rf"(model\.json|weights\.safetensors|report\.html|MODEL_CARD\.md|dev\.json|quantization\.json|tokenizer/{TOKENIZER})"
CHECKPOINT = r"(manifest\.json|(weights|optimizer|constraint)\.safetensors)"
TRACE = r"plugins/profile/[^/]+/[^/]+\.(pb|gz|json)|events\.out\.tfevents\.[^/]+|events\.out\.tfevents\.[^/]+\.profile-empty"
RUN = (
    rf"{MODEL}|run\.json|metrics\.jsonl|checkpoints/(best\.safetensors|\.?step_\d+/{CHECKPOINT})|tensorboard/({TRACE})|"
    rf"adapter/(adapter\.json|adapter_config\.json|run\.json|weights\.safetensors)|tasks/[^/]+/({MODEL}|run\.json|{MARK})|"
    r"dumps/step_\d+/(batch\.npz|weights\.safetensors|dump\.json)|cache/(tokens|teacher)-[0-9a-f]+\.(bin|safetensors)|"
    rf"\.model\.[^/]+/({MODEL})"
)
GROWN = {  # a file that the folder was made with -> what may be there beside it
    "run.json": RUN,
    "model.json": MODEL,
    "tokenizer.json": TOKENIZER,
    "plan.json": rf"plan\.json|ledger\.(json|txt|html)|report\.html|\d+-\w+/({RUN}|{MARK})",
}
BUILT = re.compile(  # folders that stay when they are empty
    r"(\d+-\w+/)?(checkpoints(/\.?step_\d+)?|tensorboard|dumps|cache|tasks|tokenizer|adapter)|(\d+-\w+/)?tensorboard/plugins(/.*)?|\d+-\w+"
)
PAGE = '<meta name="generator" content="kerasbert {}">'  # in every page of ours, with the command that writes it
# fields of answers as columns or keys; `answer_tables.check_replaced` asks for those of the command itself
_FIELDS = rb"predicted_\w+|similarity|score|value|values|labels|entities"
_ANSWERS = rb"(?:^|[\t,;|{ ])\"?(?:" + _FIELDS + rb")\"?(?=[\t,;|:\r\n]|$)|\A-DOCSTART-\tO\n\n|\A\{\n "
# an array of rows, of one of the types that `encode --dtype` has
_VECTORS = rb"\A\x93NUMPY[^{]+\{'descr': '(?:<f[24]|\|[iu]1)', 'fortran_order': False, 'shape': \(\d+, \d+\)"
FILES: Mapping[
    str, tuple[str, bytes]
] = {  # kind of file -> what it is called, what its first 4 kB or its last 64 kB hold
    "report": ("a page of kerasbert report", re.escape(PAGE.format("report").encode())),
    "look": ("a page of kerasbert look", re.escape(PAGE.format("look").encode())),
    "card": ("a model card of kerasbert", rb"library_name: kerasbert"),
    "explanation": ("a page of --explain", re.escape(PAGE.format("explain").encode())),
    "tflite": ("a .tflite of kerasbert", rb"\A.{4}TFL3.*bundle\.json"),
    "golden": ("a file of --golden", rb"\A\{\"golden\""),
    "table": ("a table of answers", _ANSWERS + rb"|" + re.escape(PAGE.format("predict").encode())),
    "mined": ("rows of kerasbert mine", rb"\A\{\"anchor\": .*\"negatives\": \["),
    "vectors": ("a .npy of vectors", _VECTORS),
    "index": ("an index of a device", rb"\AKBINDEX\x01"),
    "grid": ("a grid.json of kerasbert", rb"\A\{\n  \"task\": .*\n  \"runs\": \["),
    "folds": ("a folds.json of kerasbert", rb"\A\{\n  \"task\": .*\n  \"folds\": \["),
    "submission": ("a file for GLUE's server", rb"\Aindex\tprediction\n"),
}
WITHIN = {
    "report": "report.html",
    "card": "MODEL_CARD.md",
}  # kind of file -> its name in the folder of ours that is read
KEPT = "it is kept. Choose another place, or remove it yourself"
_inputs: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("inputs", default=())


def reading(paths: Iterable[Name]) -> contextlib.AbstractContextManager[object]:
    """What is written within replaces none of these files and folders, nor what holds them."""
    return within(_inputs, (*_inputs.get(), *(os.fspath(path) for path in paths)))


def check_folder(path: Name, replace: bool = False, inputs: Iterable[Name] = (), *, claim: bool = True) -> Path:
    """Refuse a place for a folder; -> where it leads.

    Args:
        replace: bool, whether a folder that we wrote may be there.
        inputs: what the command reads.
        claim: bool, keep it for the call that asks.

    Raises:
        InputError: something is there that is not to be replaced, nothing can be written, or another process writes there.
    """
    names = list(inputs)
    real = _folder(path, replace, names)
    # who had it until now may have left something there
    return _folder(path, replace, names) if claim and aside.claim(path) else real


def _folder(path: Name, replace: bool, inputs: Sequence[Name]) -> Path:
    real = check_place(path, inputs)
    if real.is_dir() and any(real.iterdir()):
        other = foreign(real)
        if not replace:
            told = f" and {other}. Choose another place" if other else ". Choose another place or pass --overwrite"
            raise InputError(f"{path} exists already{told}")
        if other:
            raise InputError(f"{path} {other}: {KEPT}")
        for name in _read(inputs):
            if _within(os.path.realpath(name), real):
                raise InputError(f"{path} holds {name}, which is read: it is kept. Choose another place")
    elif real.exists() and not real.is_dir():
        raise InputError(f"{path} exists already and is no folder. Choose another place")
    _check_replaceable(path, real)
    _check_writable(path, real)
    return real


def check_file(path: Name, replace: bool = False, kind: str = "", inputs: Iterable[Name] = ()) -> Path:
    """Refuse a place for a file; -> where it leads.

    Args:
        replace: bool, whether a file of that kind may be there.
        kind: str, one of FILES.
        inputs: what the command reads.

    Raises:
        InputError: something is there that is not to be replaced, nothing can be written, or another process writes there.
    """
    names = list(inputs)
    real = _file(path, replace, kind, names)
    return _file(path, replace, kind, names) if aside.claim(path) else real


def _file(path: Name, replace: bool, kind: str, inputs: Sequence[Name]) -> Path:
    real = check_place(path, inputs, WITHIN.get(kind, ""))
    if real.is_dir():
        raise InputError(f"{path} exists already and is a folder, expected a file to write. Choose another place")
    if real.exists():
        if not replace:
            raise InputError(f"{path} exists already. Choose another place or pass --overwrite")
        if kind and not is_ours(real, kind):
            raise InputError(f"{path} is not {FILES[kind][0]}: {KEPT}")
    _check_replaceable(path, real)
    _check_writable(path, real)
    return real


def check_begun(
    path: Name, held: str, what: str, replace: bool = False, inputs: Iterable[Name] = (), *, several: bool = False
) -> Path:
    """Refuse a place for a folder that a command begins, or goes on with; -> where it leads.

    Args:
        held: str, the file by which such a folder is known. what: str, its name.
        replace: bool, whether it is begun anew.
        several: bool, whether other processes may do the same there: those of a training on several machines.
    """
    names = list(inputs)
    real = _begun(path, held, what, replace, names)
    return _begun(path, held, what, replace, names) if aside.claim(path, several) else real


def _begun(path: Name, held: str, what: str, replace: bool, names: Sequence[Name]) -> Path:
    real = check_place(path, names)
    begun = real.is_dir() and any(real.iterdir())
    if begun and not (real / held).is_file():
        raise InputError(f"{path} holds something that is not a {what}. Choose another --out")
    if begun and not replace:
        _check_writable(path, real)
        return real
    return _folder(path, replace, names)


def check_within(path: Name) -> Path:
    """Refuse what is no folder to write files into, whatever else it holds; -> where it leads."""
    real = _leads(path)
    if os.path.lexists(real) and not real.is_dir():
        raise InputError(f"{path} is no folder, expected one to write files into. Choose another place")
    _check_writable(path, real / "NAME")
    return real


def check_place(path: Name, inputs: Iterable[Name] = (), own: str = "") -> Path:
    """Where a path leads; what a killed command left there is settled first.

    Args:
        inputs: what the command reads. own: str, the one name that it writes within a folder of ours that it reads.

    Raises:
        InputError: nothing of ours may be there, whatever it is: `.`, the root, home, a mount point, a device, what is read.
    """
    real, text = _leads(path), str(path)
    aside.sweep(real.parent, real.name)
    try:
        mode = os.stat(real).st_mode
    except FileNotFoundError:
        mode = None
    except OSError as error:
        raise InputError(f"cannot write {text}: {error.strerror}. Choose another place") from error
    if mode is not None and not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise InputError(f"{text} is a device, a pipe or a socket, expected a place for files. Choose another place")
    if what := _kept(real):
        raise InputError(f"{text} is {what}. Choose a place within it, such as {os.path.join(text, 'NAME')}")
    for name in _read(inputs):
        if os.path.realpath(name) == str(real) or (mode is not None and _same(name, real)):
            raise InputError(f"{text} is what is read. Choose another place")
        if _spoils(name, real, own):
            raise InputError(f"{text} lies within {name}, which is read and stays as it is. Choose another place")
    return real


def _leads(path: Name) -> Path:
    """The real path of a name that can be one of ours."""
    said = os.fspath(path)
    if not said or "\0" in said:
        raise InputError(f"{said!r} is no name of a file or folder")
    if is_remote(said):
        raise InputError(f"{said} is an address, expected a place on this machine: write it here, then copy it there")
    if said == "~" or said.startswith("~/"):
        raise InputError(
            f"{said}: no shell has put your home in the place of ~. Write the path out, or a blank before it"
        )
    real = Path(os.path.realpath(said))
    if len(os.fsencode(real.name)) > aside.LONGEST:
        raise InputError(f"{said[:60]}...: the name has more than {aside.LONGEST} bytes. Choose a shorter one")
    if os.path.exists(said) != os.path.exists(real) or (os.path.islink(said) and not os.path.exists(real)):
        raise InputError(f"{said} is a link to nothing. Choose another place, or make what it leads to")
    if aside.ASIDE.fullmatch(real.name):
        raise InputError(f"{said} is a name of files that are being written. Choose another")
    return real


def _kept(real: Path) -> str:
    """What a folder is that is never replaced; empty for another."""
    with contextlib.suppress(FileNotFoundError):  # a folder that was deleted
        here = Path(os.getcwd())
        if _within(here, real):
            return "the current directory" if here == real else "a folder above the current directory"
    home = os.path.realpath(os.path.expanduser("~"))
    if _within(home, real):
        return "the root" if real == real.parent else "your home" if home == str(real) else "a folder above your home"
    if real == real.parent:
        return "the root"
    return "a mount point" if os.path.ismount(real) else ""


def _within(path: Name, folder: Path) -> bool:
    return Path(path).is_relative_to(folder)


def _same(name: Name, real: Path) -> bool:
    try:
        return os.path.samefile(name, real)
    except OSError:
        return False


def _read(inputs: Iterable[Name]) -> list[str]:
    """What is read, local and there; of RUN@STEP the run."""
    found = []
    for name in (*_inputs.get(), *(os.fspath(name) for name in inputs)):
        with contextlib.suppress(OSError, ValueError):
            name = name if os.path.exists(name) else name.rpartition("@")[0]
            if name and os.path.exists(name):
                found.append(name)
    return found


def _check_writable(path: Name, real: Path) -> None:
    """Make a folder with a file in it there and remove it: what is computed for an hour must have a place."""
    parent = real.parent
    while not os.path.lexists(parent):
        parent = parent.parent
    probe = None
    try:
        probe = aside.Aside(parent / (real.name if parent == real.parent else "out"), folder=True)
        (probe.new / "room").write_bytes(bytes(4096))  # a disk without room takes empty files and folders
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}. Choose another place") from error
    finally:
        if probe is not None:
            probe.discard()


def _check_replaceable(path: Name, real: Path) -> None:
    """Refuse what another user's rights keep: from being replaced, told after the work, or deleted, left there for ever."""

    def refuse(why: str) -> NoReturn:
        raise InputError(f"cannot replace {path}: {why}. Choose another place")

    def closed(error: OSError) -> NoReturn:
        refuse(f"what {error.filename} holds may not be deleted ({error.strerror})")

    if not os.path.lexists(real):
        return
    above = real.parent.stat()
    sticky = hasattr(os, "geteuid") and above.st_mode & stat.S_ISVTX  # as /tmp
    if sticky and os.geteuid() not in (0, above.st_uid, real.stat().st_uid):
        refuse(f"it is another user's, and in {real.parent} only its owner may")
    for top, folders, names in os.walk(real, onerror=closed) if real.is_dir() else ():
        if (folders or names) and not os.access(top, os.W_OK | os.X_OK):
            closed(PermissionError(errno.EACCES, os.strerror(errno.EACCES), top))


def mark(folder: Path) -> None:
    """Write into a new folder which files, and which empty folders, it was made with."""
    made = [path for path in folder.rglob("*") if not path.is_dir() or not any(path.iterdir())]
    names = sorted(path.relative_to(folder).as_posix() for path in made)
    content = json.dumps({"files": [name for name in names if name != MARK]}, indent=1, ensure_ascii=True)
    (folder / MARK).write_text(content + "\n", encoding="utf-8")


def foreign(folder: Path) -> str:
    """What a folder holds that no command of ours wrote, as a sentence goes on; empty where all of it is ours."""
    known = _marked(folder)
    if known is None:
        return f"was not written by kerasbert (it has no {MARK})"
    grown = _grown(known)
    for top, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(top, name))]
        folders[:] = [name for name in folders if name in links or not aside.ASIDE.fullmatch(name)]  # what a kill left
        for name in sorted((*names, *links)):
            path = Path(top, name)
            told = path.relative_to(folder).as_posix()
            if told == MARK or _of_ours(told, known, grown) or aside.ASIDE.fullmatch(name):
                continue
            return f"holds {told}, which is not kerasbert's"
        here = Path(top).relative_to(folder).as_posix()
        if not folders and not names and here != "." and here not in known and not BUILT.fullmatch(here):
            return f"holds {here}, which is not kerasbert's"
    return ""


def _grown(known: set[str]) -> re.Pattern:
    """What may be beside the files that a folder was made with."""
    return re.compile("|".join(f"(?:{GROWN[name]})" for name in sorted(known & GROWN.keys())) or r"(?!)")


def _spoils(name: Name, real: Path, own: str) -> bool:
    """Whether a place is within a folder of ours, and is not what the command writes there: a file of another, or foreign."""
    folder = Path(os.path.realpath(name))
    if real == folder or not _within(real, folder) or (known := _marked(folder)) is None:
        return False
    return real != folder / own or not _of_ours(own, known, _grown(known))


def _of_ours(name: str, known: set[str], grown: re.Pattern) -> bool:
    return name in known or bool(grown.fullmatch(name))


def _marked(folder: Path) -> set[str] | None:
    """The files that a folder was made with; None where it bears no mark."""
    try:
        names = json.loads((folder / MARK).read_text(encoding="utf-8"))["files"]
        return set(names) if all(isinstance(name, str) for name in names) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def is_ours(path: Path, kind: str) -> bool:
    """Whether a file is what a command of ours writes, by what it holds; an empty one is nobody's."""
    with path.open("rb") as file:
        head = file.read(4096)
        file.seek(max(len(head), os.path.getsize(path) - (1 << 16)))
        content = head + file.read(1 << 16)
    return not content or bool(re.search(FILES[kind][1], content, re.DOTALL))

"""Errors that a user can act on: what, received, expected, what to do, in one line."""

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator

EXTRAS = {  # library -> the extra of setup.cfg that brings it
    "tensorflow": "tensorflow",
    "keras": "tensorflow",
    "tensorflow_text": "tensorflow",
    "rich": "tensorflow",
    "yaml": "tensorflow",
    "matplotlib": "tensorflow",
    "ai_edge_litert": "mobile",
    "flatbuffers": "mobile",
    "apache_beam": "beam",
    "gensim": "vectors",
    "pyarrow": "formats",
    "zstandard": "formats",
    "sacrebleu": "generation",
    "rouge_score": "generation",
    "grpc": "serving",
    "h11": "serving",
    "jax": "tpu-check",
    "libtpu": "tpu-check",
}

SIMILAR = 0.6  # least likeness, of difflib, of a name that may have been meant
LISTED = 20  # names of which a line has room


class InputError(ValueError):
    """A mistake in what the user gave; the command line prints it as one line and exits with `status`."""

    status = 2


def no_file(path: str | os.PathLike, what: str = "file or folder") -> InputError:
    """The refusal of a path that is not what is expected; of a pipe it says what to do.

    >>> print(no_file("rows.csv"))
    no file or folder rows.csv. Check the path
    """
    if is_pipe(path):
        return InputError(
            f"{path} is a pipe or a device, and files are read more than once: write it to a file and give that"
        )
    if os.fspath(path) in ("-", b"-"):
        return InputError("- is no file, and the standard input cannot be read twice: write it to a file and give that")
    return InputError(f"no {what} {path}. Check the path")


def is_pipe(path: str | os.PathLike) -> bool:
    """Whether something is at a path that is neither a file nor a folder, such as bash's `<(command)` or a device."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


class TextError(InputError):
    """A mistake in one text of a call; the others can be answered.

    Attributes:
        number: int, of the text, from 0. reason: str, the line without the text's name.
    """

    def __init__(self, number: int, error: object) -> None:
        name, said = f"text {number}", str(error)
        self.number, self.reason = number, said.removeprefix(name).lstrip(": ")
        super().__init__(said if said.startswith(name) else f"{name}: {said}")

    def __reduce__(self) -> tuple[type["TextError"], tuple[int, str]]:  # from one process to another
        return type(self), (self.number, str(self))


@contextlib.contextmanager
def of_text(number: int) -> Iterator[None]:
    """An InputError about one text of a call becomes a TextError with its number, from 0."""
    try:
        yield
    except TextError:
        raise
    except InputError as error:
        raise TextError(number, error) from error


class NonFinite(InputError):
    """A loss or gradient that is not finite; the command line exits with status 3: restart scripts must not retry it."""

    status = 3


def nearest(name: str, known: Iterable[str], similar: float = SIMILAR) -> str | None:
    """The known name that `name` must have meant: what others call it, else one of a like spelling; None where there is none.

    >>> nearest("huggingface", ["hf", "tf1"]), nearest("tf", ["hf", "tf1"]), nearest("xyzzy", ["hf", "tf1"])
    ('hf', 'tf1', None)
    """
    import difflib  # here: a phone that makes no mistake does without

    from kerasbert.field_names import SYNONYMS

    lower = {each.lower(): each for each in known}
    meant = [other for other in SYNONYMS.get(name.lower(), ()) if other in lower]
    close = meant or difflib.get_close_matches(name.lower(), lower, n=1, cutoff=similar)
    if not close and len(name) > 1 and similar == SIMILAR:
        begin = [
            each for each in lower if len(each) > 1 and (each.startswith(name.lower()) or name.lower().startswith(each))
        ]
        close = sorted(begin, key=len)
    return lower[close[0]] if close else None


def near(name: object, known: Iterable[str]) -> str:
    """How the line about an unknown name goes on: the nearest, else the known names themselves.

    >>> near("bpee", ["bpe", "unigram"]), near("xyzzy", ["bpe", "unigram"]), near("xyzzy", [])
    ("Nearest: 'bpe'", 'Expected one of: bpe, unigram', 'There is none')
    """
    names = list(known)
    best = nearest(str(name), names)
    if best is not None:
        return f"Nearest: {best!r}"
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"Expected one of: {', '.join(map(str, names[:LISTED]))}{more}" if names else "There is none"


def of_entry(kind: str, name: str, error: InputError) -> InputError:
    """The error about an entry of a plug-in, with the entry's name before it: raise it from where it is registered."""
    return InputError(f"the {kind} {name!r}: {error}")


def unknown(kind: str, name: str, known: Iterable[str], where: str) -> InputError:
    """The error for a name that does not exist.

    >>> str(unknown("task", "glue/sst-2", ["glue/sst2", "glue/cola"], "kerasbert list tasks"))
    "no task 'glue/sst-2'. Nearest: 'glue/sst2'. All: kerasbert list tasks"
    """
    best = nearest(str(name), known)
    hint = f" Nearest: {best!r}." if best else ""
    return InputError(f"no {kind} {str(name)!r}.{hint} All: {where}")


def check_known(kind: str, entry: str, what: str, name: str, known: Collection[str]) -> None:
    """Refuse a name in an entry of a plug-in that nothing has.

    Raises:
        InputError: the entry, the nearest name and all of them.
    """
    if name not in known:
        raise of_entry(kind, entry, unknown(what, name, known, ", ".join(known)))


def install(extra: str) -> str:
    """How to install an extra. The package is not on PyPI: a bare `pip install kerasbert` would fetch a stranger's.

    >>> install("mobile")
    "in a checkout of kerasbert: pip install '.[mobile]'"
    """
    return f"in a checkout of kerasbert: pip install '.[{extra}]'"


def missing(library: str | None, extra: str | None = None) -> str | None:
    """What to say of a library that is not installed, or None for one that no extra brings.

    Args:
        library: str, the name of the module that was not found.
        extra: str, the extra that brings all that the caller needs; by default the library's own.

    >>> missing("yaml")
    "yaml, which is not installed. Do, in a checkout of kerasbert: pip install '.[tensorflow]'"
    """
    top = (library or "").partition(".")[0]
    if top not in EXTRAS and not (extra and top == "numpy"):
        return None
    return f"{top}, which is not installed. Do, {install(extra or EXTRAS[top])}"


def of_plugin(path: str | os.PathLike, error: BaseException) -> BaseException:
    """What running a plug-in's file raised, as its author's or user's mistake: which line, and what.

    An InputError, and the lack of a package that an extra of ours brings, stay as they are.

    >>> of_plugin("mine.py", ModuleNotFoundError("No module named 'spam'", name="spam"))
    InputError('the plug-in mine.py needs spam, which is not installed: install it, or leave the plug-in out')
    """
    if isinstance(error, InputError) or not isinstance(error, Exception):
        return error
    if isinstance(error, ModuleNotFoundError):
        needs = f"the plug-in {path} needs {error.name}, which is not installed: install it, or leave the plug-in out"
        return error if missing(error.name) else InputError(needs)
    frame, line = error.__traceback__, 1
    while frame is not None:
        line = frame.tb_lineno if frame.tb_frame.f_code.co_filename == str(path) else line
        frame = frame.tb_next
    said = str(error)
    if isinstance(error, SyntaxError):
        line, said = error.lineno or 1, error.msg
    return InputError(f"the plug-in {path}, line {line}: {type(error).__name__}: {' '.join(said.split())}")

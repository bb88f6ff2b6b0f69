"""Tensors that others store in another form than ours: several side by side in one, with an axis of one more, or by heads.

What stands beyond a file's edge sees neither: reading shows the parts of a joined tensor by names of their own,
`c_attn#0.weight` for the first of `c_attn.weight`, and writing puts them together again.
"""

import re
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from kerasbert.checkpoints import buffers
from kerasbert.checkpoints.forms import Form, Shape
from kerasbert.checkpoints.names import Dialect, matches
from kerasbert.checkpoints.readers import Reader
from kerasbert.errors import InputError

WRAPPERS = ("module.", "_orig_mod.", "model.", "0.auto_model.", "auto_model.")
"""What DataParallel, torch.compile, trainers and sentence-transformers put before every name of the model that they hold."""


class Unwrapped:
    """A checkpoint whose names begin with the name of a module around the model, without it; a Reader itself."""

    def __init__(self, reader: Reader, prefix: str) -> None:
        self.reader = reader
        self.their = {name.removeprefix(prefix): name for name in reader.names()}

    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted(self.their)

    def shape(self, name: str) -> Shape:
        """Shape of one tensor."""
        return self.reader.shape(self.their[name])

    def read(self, name: str) -> np.ndarray:
        """One tensor as float32."""
        return self.reader.read(self.their[name])

    def stored(self, name: str) -> np.ndarray:
        """One tensor as numbers of any type."""
        return self.reader.stored(self.their[name])


def unwrapped(reader: Reader, own: str, ignore: Iterable[str]) -> tuple[Reader, str]:
    """A checkpoint without the wrappers that every name begins with, and what they were.

    Args:
        own: the prefix of the family's names, which may be called as a wrapper is (BART's `model.`).
        ignore: patterns of tensors that are dropped, whatever they are called.
    """
    kept, removed = [name for name in reader.names() if not matches(name, ignore)], ""
    while True:
        names = [name.removeprefix(removed) for name in kept]
        wrapper = next((each for each in WRAPPERS if names and all(name.startswith(each) for name in names)), None)
        if wrapper is None or (wrapper == own and not all(name.startswith(own + own) for name in names)):
            return (Unwrapped(reader, removed) if removed else reader), removed
        removed += wrapper


def check_buffers(reader: Reader, dialect: Dialect, names: Iterable[str], where: object) -> None:
    """Refuse what their code would have computed otherwise: tensors that `Dialect.ignored` names with what belongs there."""
    for name in names:
        expected = next((each for pattern, each in dialect.ignored.items() if matches(name, [pattern])), None)
        if expected is not None and not buffers.agrees(reader.stored(name), expected):
            raise InputError(
                f"{name} in {where} is not what is computed in its place ({expected.__name__}): no such model here. "
                f"A buffer that their code computes anew is dropped by --ignore {name}"
            )


def partly_wrapped(reader: Reader, own: str, where: object) -> InputError | None:
    """What to do about names of which some begin with a wrapper, for a checkpoint that does not fit; None where none do."""
    names = reader.names()
    for wrapper in WRAPPERS:
        inside = sum(name.startswith(wrapper) for name in names)
        if wrapper != own and 2 * inside > len(names):
            other = next(name for name in names if not name.startswith(wrapper))
            return InputError(
                f"{where} does not fit the model: {inside} of {len(names)} names begin with {wrapper!r}, of a module around "
                f"the model, the others do not ({other}). Save that model's own state_dict, or drop the others by "
                "ignore=[PATTERN] (--ignore PATTERN)"
            )
    return None


class View:
    """A checkpoint in our forms; a Reader itself.

    Args:
        reader: of the file.
        forms: patterns of tensors -> their form in the file.
        heads: N, where the configuration says it: what is stored by heads is split by it.
    """

    def __init__(self, reader: Reader, forms: Mapping[str, Form], heads: int | None = None) -> None:
        self.reader, self.heads = reader, heads
        self.parts: dict[str, tuple[str, int, Form, Shape]] = {}  # name -> theirs, number in it, form and shape
        for name in reader.names():
            form = form_of(forms, name)
            shape = form.shape(reader.shape(name), heads)
            if shape is None:
                form, shape = Form(), reader.shape(name)
            for i in range(form.count):
                self.parts[part(name, i) if form.count > 1 else name] = name, i, form, shape

    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted(self.parts)

    def shape(self, name: str) -> Shape:
        """Shape of one tensor."""
        return self.parts[name][3]

    def read(self, name: str) -> np.ndarray:
        """One tensor as float32."""
        theirs, i, form, _ = self.parts[name]
        return form.split(self.reader.read(theirs), self.heads)[i]

    def stored(self, name: str) -> np.ndarray:
        """One tensor of the file as numbers of any type."""
        return self.reader.stored(self.parts[name][0])


def form_of(forms: Mapping[str, Form], name: str) -> Form:
    """The form of a tensor of theirs."""
    return next((form for pattern, form in forms.items() if matches(name, (pattern,))), Form())


def part(name: str, number: int) -> str:
    """The name of a part of a joined tensor.

    >>> part("h.0.attn.c_attn.weight", 2)
    'h.0.attn.c_attn#2.weight'
    """
    stem, _, leaf = name.rpartition(".")
    return f"{stem}#{number}.{leaf}"


def whole(
    forms: Mapping[str, Form], shapes: Mapping[str, Shape], read: Callable[[str], np.ndarray], head_size: int
) -> tuple[dict[str, Shape], Callable[[str], np.ndarray]]:
    """Shapes by name, and what reads them, of tensors in our forms -> those of the file; `head_size` is D."""
    parts: dict[str, list[str]] = {}
    for name in sorted(shapes):
        parts.setdefault(re.sub(r"#\d+", "", name), []).append(name)

    def joined(name: str, each: Callable[[str], np.ndarray]) -> np.ndarray:
        return form_of(forms, name).join([each(one) for one in parts[name]], head_size)

    # shapes by views of one number, so that nothing is read for them
    written = {name: joined(name, lambda one: np.broadcast_to(np.float32(0), shapes[one])).shape for name in parts}
    return written, lambda name: joined(name, read)

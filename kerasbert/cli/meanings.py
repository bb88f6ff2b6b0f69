"""What was meant by an option or a command that is none: by what others call it, else by spelling. Standard library only."""

import argparse
from collections.abc import Iterable, Mapping, Sequence

from kerasbert import field_names
from kerasbert.errors import nearest


def of_option(
    name: str, options: Sequence[str], places: Sequence[str], siblings: Mapping[str, argparse.ArgumentParser]
) -> str:
    """The end of an error: a place, by what others call it an option, by its initials, else by spelling; "" for none.

    Args:
        name: the option that is none.
        options: of the command.
        places: what its help calls the arguments that stand without an option.
        siblings: the other commands of the program.

    >>> of_option("--model", ["--out"], ["RUN"], {}), of_option("--lr", ["--learning-rate"], [], {})
    (': RUN stands without an option', ". Nearest: '--learning-rate'")
    """
    known = [option for option in options if option.startswith("--")]
    foreign = name.lower().replace("_", "-")
    if place := next((place for place in field_names.PLACES.get(foreign, ()) if place in places), ""):
        return f": {place} stands without an option"
    ours, _, value = field_names.option(name).partition(" ")
    if ours in known:
        return f". Here it is {ours} {value}" if value else f". Nearest: {ours!r}"
    if foreign in field_names.ABSENT:
        return f": {field_names.ABSENT[foreign]}"
    letters = name.strip("-").lower()
    if begun := [option for option in known if len(letters) > 1 and option[2:].startswith(letters)]:
        return f", expected {' or '.join(begun)}"
    if held := [command for command, each in siblings.items() if name in each._option_string_actions]:
        others = ", ".join(held[:4]) + (" and others" if len(held) > 4 else "")
        return f": it is an option of {others}"
    if name in field_names.COMPRESSING:
        return ": it is an option of kerasbert-mobile compress"
    initials = [option for option in known if "".join(word[:1] for word in option[2:].split("-")) == letters]
    close = initials[0] if initials else nearest(letters, [option[2:] for option in known])
    return f". Nearest: {'--' + close.removeprefix('--')!r}" if close else ""


def of_command(program: str, name: str, known: Iterable[str]) -> str:
    """The command that was meant by a name that is none, of this program or of the other; "" where none is."""
    if name in ("version", "--version"):
        return f": that is {program} --version"
    other = {"kerasbert": "kerasbert-mobile", "kerasbert-mobile": "kerasbert"}.get(program, "")
    theirs = field_names.MOBILE if other == "kerasbert-mobile" else field_names.DESK
    if not nearest(name, known, similar=1.0) and name in theirs:  # here nothing is called so by others
        return f": that is {other} {name}"
    if close := nearest(name, known):
        return f". Nearest: {close!r}"
    close = nearest(name, theirs) if other else None
    return f". Nearest: {other} {close}" if close else ""

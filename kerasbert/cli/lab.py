"""`kerasbert lab`: what the papers claim, on a laptop."""

import argparse

from kerasbert.cli.given import check_read
from kerasbert.cli.outputs import writes
from kerasbert.cli.parser import Declare, show
from kerasbert.cli.shared_options import encoding_option
from kerasbert.errors import InputError


def _lab(options: argparse.Namespace) -> None:
    from kerasbert.lab import recipes

    if options.name is None:
        known = [recipes.find(name) for name in recipes.names()]
        rows = [{field: getattr(each, field) for field in ("name", "claim", "source", "minutes")} for each in known]
        lines = [f"{row['name']:16}{row['minutes']:>4g} min  {row['claim']}\n{'':26}{row['source']}" for row in rows]
        show(
            rows,
            options.json,
            "\n".join([*lines, "", f"kerasbert lab NAME --out DIR (2 cores, {recipes.SEEDS} seeds)"]),
        )
        return
    recipes.find(options.name)
    if options.out is None:
        raise InputError(f"kerasbert lab {options.name} needs --out DIR, a new folder or one to go on with")
    from kerasbert.lab import page, plan, runner
    from kerasbert.training import interruption

    interruption.listen()
    interruption.saved = "kept the lines of results.jsonl; the same command goes on from there"
    settings = {name: getattr(options, name) for name in ("seeds", "minutes", "text")}
    check_read(options)
    found = runner.run(plan.make(options.name, options.out, **settings))
    show(found, options.json, f"{page.text(found)}\n{options.out}/lab.html")


def add(command: Declare) -> None:
    """Declare the command."""
    add = command("lab", _lab, "see what a paper claims, at small scale: arms, seeds, a test, a page")
    add.add_argument("name", nargs="?", metavar="NAME", help="an experiment; without it all are listed")
    writes(
        add.add_argument("--out", metavar="DIR", help="a new folder, or one that the same command goes on with"), "lab"
    )
    add.add_argument("--seeds", type=int, metavar="N", help="runs of every arm, 2 at least (default: 5)")
    text = "most minutes: where it would take longer, the updates of all arms are multiplied by the same factor, which is told"
    add.add_argument("--minutes", type=float, metavar="M", help=text)
    text = "pretrain on this instead of the novels: one sentence a line, a blank line between documents; labelled rows stay ours"
    add.add_argument("--text", metavar="FILE", help=text)
    encoding_option(add)
    add.add_argument("--json", action="store_true")

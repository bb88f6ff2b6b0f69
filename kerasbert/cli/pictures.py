"""`kerasbert look`: a model in pictures."""

import argparse

from kerasbert.cli.given import check_read
from kerasbert.cli.outputs import writes
from kerasbert.cli.parser import Declare, show
from kerasbert.cli.shared_options import encoding_option


def _look(options: argparse.Namespace) -> None:
    from kerasbert.look import early

    word, sentences = early.asked(options.word, options.sentences)
    name, out, around = options.model, options.out, options.surface
    if around:
        early.check_surface(name)
    check_read(options, "json")
    from kerasbert.look import looking

    about = looking.look(name, word, sentences, around)
    path = looking.write(name, about, out)
    show(about, options.json, str(path))


def add(command: Declare) -> None:
    """Declare the command."""
    add = command("look", _look, "a model in pictures on one page: a word in many sentences, its layers, its heads")
    add.add_argument("model", metavar="RUN")
    add.add_argument(
        "--word", metavar="WORD", help="which the sentences hold (default: bank); sentences of bank and apple ship"
    )
    add.add_argument(
        "--sentences",
        metavar="FILE",
        help="a sentence a line, or a table with a column text; those without the word are left out",
    )
    text = "measure the loss around the weights of a fine-tuned run too, on its dev rows: 81 times 128 rows at most"
    add.add_argument("--surface", action="store_true", help=text)
    text = "the page (default: look.html); an earlier page is replaced, nothing else"
    writes(add.add_argument("--out", default="look.html", metavar="PAGE", help=text), "look")
    add.add_argument("--json", action="store_true", help="print all numbers of the pictures")
    encoding_option(add)

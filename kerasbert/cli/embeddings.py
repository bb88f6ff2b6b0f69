"""`kerasbert static | mine`: a static embedding of an encoder, hard negatives of an index."""

import argparse

from kerasbert.cli import tables
from kerasbert.cli.given import check_read
from kerasbert.cli.outputs import writes
from kerasbert.cli.parser import Declare
from kerasbert.cli.shared_options import encoding_option, out_options
from kerasbert.errors import InputError
from kerasbert.retrieval.limits import check as check_mined
from kerasbert.storage import places


def _static(options: argparse.Namespace) -> None:
    from kerasbert.tasks import early_checks

    early_checks.check_static(options.dims, options.sif, options.model)  # before TensorFlow's import
    settings = {"dims": options.dims, "sif": options.sif, "overwrite": options.overwrite}
    check_read(options, "out")
    from kerasbert.tasks.static_embedding import static_embedding

    tables.tell(static_embedding(options.model, options.out, **settings))
    print(options.out)


def _mine(options: argparse.Namespace) -> None:
    from kerasbert.retrieval.folder import about
    from kerasbert.tasks import early_checks

    about(options.index)
    if not options.out.endswith(".jsonl"):
        raise InputError(f"--out {options.out}: expected a name ending in .jsonl")
    places.check_file(options.out, options.overwrite, "mined", [options.data])
    names = ("negatives", "range_min", "range_max", "margin", "max_score")
    settings = {name: getattr(options, name) for name in names}
    check_mined(**settings)
    if options.cross_encoder:
        early_checks.check_judge(options.cross_encoder, "--cross-encoder")
    from kerasbert.tasks.task import find_task, read_rows

    columns = {"text": options.text_column, "text_b": options.text_b_column}
    pairs = read_rows(find_task("pairs", **columns), options.data).texts
    check_read(options, "by", "cross_encoder")
    from kerasbert.retrieval import mining
    from kerasbert.retrieval.index import Index

    with tables.telling_truncated():
        index = Index(options.index, options.by)
        rows, told = mining.mine(index, pairs, cross_encoder=options.cross_encoder, **settings)
    if not rows:
        raise InputError(f"no negative is found for any pair of {options.data}: {'; '.join(told)}. Loosen the options")
    mining.write(options.out, rows)
    tables.tell(told)
    print(options.out)


def add(command: Declare) -> None:
    """Declare the commands."""
    add = command("static", _static, "distil an encoder into a table of vectors, whose mean is that of a text")
    add.add_argument("model", metavar="RUN")
    out_options(add)
    text = "numbers of a vector: the first principal components (default: 256); 0: the encoder's, as they are"
    add.add_argument("--dims", type=int, default=256, metavar="N", help=text)
    text = "how much rare pieces weigh more than frequent ones (SIF, default: 1e-4); 0: all weigh the same"
    add.add_argument("--sif", type=float, default=1e-4, metavar="X", help=text)

    add = command(
        "mine", _mine, "hard negatives of an index for pairs that belong together -> rows of finetune --task pairs"
    )
    add.add_argument("index", metavar="DIR", help="an index, of kerasbert index")
    add.add_argument("--data", required=True, metavar="FILE", help="a table with the columns anchor and positive")
    writes(
        add.add_argument(
            "--out", required=True, metavar="ROWS.jsonl", help="anchor, positive, negatives, perhaps scores"
        ),
        "mined",
    )
    add.add_argument("--overwrite", action="store_true", help="replace what --out holds")
    add.add_argument("--by", metavar="RUN", help="the model of the index, where it is no longer in its place")
    add.add_argument("--negatives", type=int, default=3, metavar="N", help="negatives of a row at most (default: 3)")
    text = "how many of the nearest texts are passed over, which may be positives that nobody labelled"
    add.add_argument("--range-min", type=int, default=0, metavar="N", help=text)
    text = "how many of the nearest texts are looked at; default: as many as are needed, of filters ten times the negatives"
    add.add_argument("--range-max", type=int, metavar="N", help=text)
    text = "a negative's cosine is at least so much below that of the anchor's positive: others may be positives"
    add.add_argument("--margin", type=float, metavar="X", help=text)
    add.add_argument("--max-score", type=float, metavar="X", help="a negative's highest cosine with the anchor")
    text = (
        "model of pairs whose scores of the positive and the negatives rows get too: --label-column scores of finetune"
    )
    add.add_argument("--cross-encoder", metavar="RUN", help=text)
    add.add_argument("--text-column", metavar="NAME", help="column of the anchors (default: anchor)")
    add.add_argument("--text-b-column", metavar="NAME", help="column of the positives (default: positive)")
    encoding_option(add)
    tables.dialect_options(add)

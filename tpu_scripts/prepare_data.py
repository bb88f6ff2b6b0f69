"""Make the records of a recipe: text -> vocabulary -> one set of records for each length.

python tpu_scripts/prepare_data.py --recipe smoke

On a machine with a CPU (learning a vocabulary needs tensorflow-text); then copy `out` to a bucket in the TPU's region:
gcloud storage cp -r OUT gs://BUCKET. What is made already is left alone.
"""

import argparse
from pathlib import Path

import common

from kerasbert import cli


def main() -> None:
    """Read the recipe's section `prepare` and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", required=True, help="a file, or a name in recipes/")
    parser.add_argument("--text", nargs="+", metavar="FILE", help="instead of the recipe's")
    parser.add_argument("--out", metavar="DIR", help="instead of the recipe's")
    options = parser.parse_args()

    section = common.section(options.recipe, "prepare")
    out = Path(options.out or section["out"])
    text = options.text or section.get("text") or novels(out / "text")
    tokenizer = Path(section.get("tokenizer") or out / "tokenizer")
    if not tokenizer.is_dir():
        learned = ["--kind", section.get("kind", "wordpiece"), "--size", section.get("vocabulary", 30000)]
        if section.get("cased") is not None:
            learned.append("--cased" if section["cased"] else "--lowercase")
        command("vocab", *text, *learned, *chosen(section, "encoding", "sentinels", "layout"), "--out", tokenizer)
    settings = chosen(section, "encoding", "packing", "seed", "shards", "dupe_factor", "words", "entities")
    settings += [f"--{name.replace('_', '-')}" for name in ("allow_loss", "sentence_borders") if section.get(name)]
    for length in section["lengths"]:
        command("data", *text, "--tokenizer", tokenizer, "--length", length, "--out", out / str(length), *settings)


def chosen(section: dict, *names: str) -> list[str]:
    """Options of a command that the recipe gives."""
    return [f"--{name.replace('_', '-')}={section[name]}" for name in names if section.get(name) is not None]


def novels(folder: Path) -> list[Path]:
    """The text that ships with the package, and labelled sentences of it beside (train.tsv, test.tsv: who wrote this?)."""
    from kerasbert.quickstart import books

    books.write(folder)
    return [folder / "train.txt"]


def command(*words: object) -> None:
    """Run a `kerasbert` command; where it fails, so does this one."""
    status = cli.main([str(word) for word in words])
    if status:
        raise SystemExit(status)


if __name__ == "__main__":
    common.run(main)

"""Fine-tune a pretrained run by a recipe; the same line goes on where a run stopped.

python tpu_scripts/finetune.py --recipe smoke smoke/run --out smoke/authors

On a TPU VM there is no tensorflow-text: the texts are tokenized in pure Python, once, before training. A TPU needs `--strategy
tpu:local`; a run in a bucket is copied to the machine first (gcloud storage cp -r).
"""

import argparse

import common

import kerasbert as kb


def main() -> None:
    """Train what the recipe's section `finetune` says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", help="a model or run directory")
    parser.add_argument("--recipe", required=True, help="a file, or a name in recipes/")
    parser.add_argument("--data", metavar="PATH", help="instead of the recipe's")
    parser.add_argument("--out", metavar="DIR", help="instead of the recipe's")
    parser.add_argument("--strategy", help="instead of the recipe's")
    options = parser.parse_args()

    section = common.section(options.recipe, "finetune")
    given = {name: value for name in ("data", "out", "strategy") if (value := getattr(options, name))}
    kb.finetune(options.run, **section | given)
    print((section | given)["out"])


if __name__ == "__main__":
    common.run(main)

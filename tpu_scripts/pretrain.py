"""Pretrain by a recipe; the same line goes on where a run stopped.

python tpu_scripts/pretrain.py --recipe smoke [any option of `kerasbert pretrain`, which goes before the recipe's]

Ends with status 75 after a SIGTERM, once it has saved: tpu_scripts/until_done.sh starts it again.
"""

import argparse
import sys

import common

from kerasbert import cli


def main() -> None:
    """Hand the recipe and the other options to `kerasbert pretrain`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", required=True, help="a file, or a name in recipes/")
    options, others = parser.parse_known_args()
    sys.exit(cli.main(["pretrain", "--recipe", str(common.recipe_path(options.recipe)), *others]))


if __name__ == "__main__":
    common.run(main)

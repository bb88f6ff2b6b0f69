"""Write a fine-tuned run as a SavedModel that takes text, for TF Serving.

python tpu_scripts/export.py --recipe smoke smoke/authors

On a machine with a CPU and tensorflow-text, which tokenizes in the graph: not on a TPU VM.
"""

import argparse

import common

import kerasbert as kb


def main() -> None:
    """Export as the recipe's section `export` says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", help="a model or run directory")
    parser.add_argument("--recipe", required=True, help="a file, or a name in recipes/")
    parser.add_argument("--out", metavar="DIR", help="instead of the recipe's; for TF Serving NAME/1")
    options = parser.parse_args()

    section = common.section(options.recipe, "export")
    print(kb.export(options.run, options.out or section["out"], length=section.get("length")))


if __name__ == "__main__":
    common.run(main)

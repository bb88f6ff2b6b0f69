"""README and guides stay as readable as they were made (`python -m tests.readability`), and what counts as a sentence."""

from tests import readability


def test_sentences_are_what_a_reader_reads_as_one():
    text = (
        "# A head\n\nSee [data](data.md), e.g. a csv. It has\n`a. b`: fine.\n\n```sh\nls. Now\n```\n\n| a | b. C |\n\n"
    )
    text += "1. One\n2. Two. Three\n"
    assert readability.sentences(text) == ["See data, e.g. a csv.", "It has code: fine.", "One", "Two.", "Three"]
    page = readability.measured(f"{'word ' * 26}end. Short one with a seam.\n\nThe Hugging Face hub.")
    count, mean, long, private = page.figures()
    assert (count, mean, long) == (3, 12, 1 / 3)  # of 27, 5 and 4 words
    assert private == 1000 / 36


def test_readme_and_guides_stay_readable():
    """Where this fails: `python -m tests.readability --worst 20` names the longest sentences."""
    pages = {name: readability.measured(text) for name, text in readability.pages().items()}
    assert len(pages) > 20
    everything = readability.Page(
        [each for page in pages.values() for each in page.sentences], sum(page.private for page in pages.values())
    )
    _, mean, long, private = everything.figures()
    assert mean < 15.5
    assert long < 0.09
    assert private < 0.5
    assert pages["README.md"].figures()[2] < 0.06
    assert len(readability.pages()["README.md"].splitlines()) <= 200

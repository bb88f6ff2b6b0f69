"""The page of a run: what stands on it, that it is harmless and readable, and that a run keeps no texts."""

import itertools
import json
import random
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import provenance, report, run_report
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.run_report import pictures
from tests import tiny

VOID = {"meta", "path", "rect", "circle", "polyline", "img", "br", "wbr"}
HOSTILE = [
    "<script>alert(1)</script>",
    "\u05e9\u05dc\u05d5\u05dd \u202e live",
    "x" * 10_000,
    "a|b\"'&",
    "\x1b[31m\n\nnew: y",
]


class Page(HTMLParser):
    """Elements, headings and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements, self.headings, self.open, self.words = [], [], [], []
        self.within = False  # a word goes on: behind the start and the end of what only says where it may break
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), [name for name, _ in self.open]))
        self.within = tag == "wbr" or dict(attrs).get("class") == "o"
        if tag not in VOID:
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        name, attrs = self.open.pop()
        assert name == tag
        self.within = attrs.get("class") == "o"

    def handle_data(self, data):
        names = [name for name, _ in self.open]
        if names and re.fullmatch("h[1-6]", names[-1]):
            self.headings.append((int(names[-1][1]), data))
        if "style" not in names:
            self.words += [(self.words.pop() if self.within and self.words else "") + data]
        self.within = False

    @property
    def text(self):
        return " ".join(self.words)


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2.2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def check_page(text: str) -> Page:
    """Harmless, and as accessibility asks: language, headings in order, scopes, names of pictures, every element closed."""
    page = Page(text)
    assert page.open == []
    tags = [tag for tag, _, _ in page.elements]
    assert not {"script", "link", "iframe", "object", "form", "img"} & set(tags)
    assert not re.search(r"<[^>]+\s(?:on\w+|src|href)=", text)
    assert "@import" not in text
    assert "url(" not in text
    assert next(attrs for tag, attrs, _ in page.elements if tag == "html")["lang"] == "en"
    assert any(attrs.get("name") == "viewport" for tag, attrs, _ in page.elements if tag == "meta")
    levels = [level for level, _ in page.headings]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    for tag, attrs, around in page.elements:
        assert tag != "th" or attrs.get("scope") in ("col", "row")
        assert tag != "table" or "div" in around
        assert (
            tag != "svg"
            or attrs.get("aria-hidden") == "true"
            or (attrs["role"], bool(attrs["aria-label"])) == ("img", True)
        )
    return page


def made(folder, **dev):
    """A run of the files that a fine-tuning leaves, by hand."""
    folder.mkdir(exist_ok=True)
    machine = {"processor": "Fast 9", "system": "Linux", "cores": 8, "memory_gb": 16.5, "accelerators": ["Chip"]}
    run = {
        "format": 1,
        "kind": "finetune",
        "settings": {"steps": 9, "model": "bert/tiny", "batch": 4},
        "strategy": "cpu",
    }
    run["made"] = {
        "command": "kerasbert finetune base --task x",
        "begun": "2026-01-02T03:04:05+00:00",
        "machine": machine,
    }
    run |= {
        "start": "base",
        "data": {"train": "/far/away/my rows.csv"},
        "held_out": "1 2 3",
        "finished": "2026-01-02T04:00:00+00:00",
    }
    task = {"name": "sentiment", "kind": "classification", "metric": "accuracy", "labels": {"a": "a", "b": "b"}}
    known = {"metrics": {"accuracy": 0.75}, "rows": 40, "truncated": 3, "length": 16, "lengths": list(range(33))}
    known |= {"resamples": 1000, "intervals": {"accuracy": [0.6, 0.9]}, "baseline": {"accuracy": 0.5}}
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "model.json").write_text(json.dumps({"name": "bert/tiny", "labels": ["a", "b"], "task": task}))
    (folder / "dev.json").write_text(json.dumps(known | dev))
    (folder / "metrics.jsonl").write_text('{"step": 4, "loss": 2.0, "dev/matthews": 0.5, "dev/a/f1": 0.25}\n')
    return folder


def test_a_page_tells_what_a_colleague_asks(tmp_path):
    bars = {"title": "Questions that get", "bars": {"the answer": 3, "another": 1}}
    page = check_page(run_report.write(made(tmp_path, picture=bars, remarks=["it went badly"])).read_text())
    for said in (
        "sentiment: ",
        "it went badly",
        "0.6000 to 0.9000",
        "percentile bootstrap over the 40 dev inputs, 1,000 samples, seed 0",
        "base (bert/tiny)",
        "train: my rows.csv; dev: 3 rows held out of it",
        "2026-01-02 03:04:05 to 04:00:00 UTC",
        "Fast 9, Linux, Chip, 8 cores, 16.5 GB of memory",
        "kerasbert finetune base --task x",
        "3 of 40 dev inputs have more than 16 tokens and are truncated.",
        "3 (75.0%)",
        "kerasbert-mobile compress",
        "dev/matthews",
        "dev/a/f1",
    ):
        assert said in page.text, said
    assert "/far/away" not in page.text


def test_single_points_have_marks_and_lines_differ_without_colour():
    drawn = pictures.lines({"one": [(1, 0.5)], "two": [(1, 0.7)], "three": [(1, 0.2), (2, 0.4)]}, "updates")
    assert drawn.count("<circle") == 2  # in the picture, in the legend
    assert all(shape in drawn for shape in ('d="M-3-3H3V3H-3Z"', 'd="M0-4L3.6 3H-3.6Z"'))  # a square, a triangle
    assert 'stroke-dasharray="2 3"' in drawn
    assert "three" in drawn
    assert check_page(report.page("x", [drawn]))


def test_text_has_the_contrast_that_is_asked_for():
    """At least 4.5 : 1 of text, 3 : 1 of lines."""
    style = report.STYLE + run_report.STYLE
    for colour in set(re.findall(r"(?<!-)color: (#\w{6})", style)) | {pictures.SOFT}:
        for ground in ("#ffffff", "#fdf5ea", "#f4f5f7"):
            assert contrast(colour, ground) >= 4.5, (colour, ground)
    cell = "#{:02x}{:02x}{:02x}".format(
        *(round(255 - 0.3 * (255 - x)) for x in (29, 78, 216))
    )  # the darkest of a confusion
    assert contrast("#1a1f2b", cell) >= 4.5
    assert all(contrast(colour, "#ffffff") >= 4.5 for colour in pictures.COLOURS)


def test_hostile_names_are_harmless_and_what_is_capped_is_said(tmp_path):
    labels = [*HOSTILE, *map(str, range(45))]
    numbers = {"precision": 0.5, "recall": 0.5, "f1": 0.5, "rows": 9}
    counts = [[9 if i == j else 1 for j in range(50)] for i in range(50)]
    hostile = {"title": HOSTILE[0], "bars": {HOSTILE[0]: 0.5}}
    about = {"labels": dict.fromkeys(labels, numbers), "confusion": counts, "picture": hostile, "remarks": HOSTILE}
    run = made(tmp_path, **about)
    model = json.loads((run / "model.json").read_text())
    model |= {"labels": [*labels, *(f"more {i}" for i in range(450))]}
    (run / "model.json").write_text(json.dumps(model))
    draw = random.Random(0)
    rows = [{"step": i, **{f"dev/{name}": draw.random() for name in HOSTILE}} for i in range(1, 900)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["report", str(run), "--card"]) == 0
    text = (run / "report.html").read_text()
    page = check_page(text)
    assert not set("\u202e\x1b") & set(text)
    assert "x" * 1001 not in text
    assert "and 480 more" in page.text
    assert "The 15 labels with the most mistakes of 50." in page.text
    assert "of 10,000 characters" in page.text
    assert len(text) < 200_000
    card = (run / "MODEL_CARD.md").read_text()
    assert "<script" not in card.partition("\n---\n")[2]
    assert "\n\nnew: y" not in card


def test_runs_that_hold_less_show_what_there_is(tmp_path, pretrained):
    old = made(tmp_path / "old")
    (old / "dev.json").write_text('{"metrics": {"accuracy": 0.5}}')
    (old / "run.json").write_text('{"settings": {"steps": 2}}')
    page = check_page(run_report.write(old).read_text())
    assert "0.5000" in page.text
    assert "interval" not in page.text.replace("95% interval", "")
    page = check_page(run_report.write(pretrained, tmp_path / "page.html").read_text())
    assert "pretrain: run" in page.text
    assert "mlm/accuracy" in page.text
    assert "kerasbert finetune" in page.text
    with pytest.raises(InputError, match=r"has no metrics\.jsonl, expected the directory of a run"):
        run_report.write(tmp_path)


def test_the_ledger_of_a_compression_is_shown(tmp_path, capsys):
    plan = tmp_path / "x.plan"
    run = made(tmp_path / "run")
    plan.mkdir()
    rows = [{"artefact": "int8.tflite", "accuracy": 0.8125, "bytes": 930_000, "p50_ms": 0.151, "peak_memory_mb": None}]
    (plan / "ledger.json").write_text(json.dumps(rows))
    for where in (plan, plan / "ledger.json"):
        text = check_page(run_report.write(run, ledger=where).read_text()).text
        assert "Compression ledger" in text
        assert "930,000" in text
    assert "int8.tflite" in check_page(run_report.write(plan).read_text()).text
    assert main(["report", str(run), "--ledger", str(tmp_path / "nowhere")]) == 2
    assert "no ledger" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [
        {"intervals": []},
        {"picture": {"bars": 3}},
        {"wrong": {"listed": [{}], "count": "x"}},
        {"labels": {"a": 3}},
        {"rows": "<"},
    ],
)
def test_a_damaged_dev_json_is_one_line(tmp_path, wrong, capsys):
    run = made(tmp_path, **wrong)
    status = main(["report", str(run)])
    err = capsys.readouterr().err
    assert (status, err.count("\n"), "is damaged" in err) == (2, 1, True) or status == 0


def test_the_texts_of_wrong_answers_are_read_again_and_not_kept(classifier, tmp_path):
    """Where the file is gone or another, that is said."""
    copy = tmp_path / "copy"
    shutil.copytree(classifier, copy)
    rows = tmp_path / "dev.tsv"
    shutil.copy(json.loads((classifier / "run.json").read_text())["data"]["dev"], rows)
    run, dev = (json.loads((copy / name).read_text()) for name in ("run.json", "dev.json"))
    run["data"]["dev"] = str(rows)
    (copy / "run.json").write_text(json.dumps(run))
    lines = rows.read_text().splitlines()[1:]
    assert not any(line.split("\t")[0] in (classifier / "dev.json").read_text() for line in lines)
    dev["wrong"] = {"count": 2, "graded": False, "listed": [{"row": 5, "answer": {"label": "neg", "score": 0.9}}]}
    (copy / "dev.json").write_text(json.dumps(dev))
    page = check_page(run_report.write(copy).read_text())
    assert lines[5].split("\t")[0] in page.text
    assert "neg (0.90)" in page.text
    rows.write_text(rows.read_text() + "one more\tpos\n")
    assert "dev.tsv has changed since" in check_page(run_report.write(copy).read_text()).text
    rows.unlink()
    assert "dev.tsv is not where it was" in check_page(run_report.write(copy).read_text()).text


def test_a_fine_tuning_leaves_what_its_report_shows(classifier):
    run, dev = (json.loads((classifier / name).read_text()) for name in ("run.json", "dev.json"))
    assert run["start"].endswith("run")
    assert run["finished"] >= run["made"]["begun"]
    assert run["made"]["machine"]["cores"] >= 1
    assert dev["rows"] == 80
    assert dev["resamples"] == 500
    assert dev["intervals"].keys() == dev["metrics"].keys()
    assert all(low <= dev["metrics"][name] <= high for name, (low, high) in dev["intervals"].items())
    assert (classifier / "dev.json").stat().st_size < 20_000
    assert dev["remarks"] == []


def test_a_run_that_learnt_too_little_says_so_at_its_end_and_in_its_report(pretrained, tmp_path, capsys):
    settings = {"steps": 2, "batch": 8, "learning_rate": 1e-7, "length": 16}
    data = {"train": tiny.labelled(tmp_path / "train.tsv", 40), "dev": tiny.labelled(tmp_path / "dev.tsv", 30, seed=1)}
    with provenance.command("kerasbert", ["finetune", "a b"]):
        kb.finetune(pretrained, "classification", data, out=tmp_path / "run", **settings)
    err = capsys.readouterr().err
    assert re.search(
        r"dev, best weights: the run has learnt too little: .* Try more --epochs \(2 updates were made\), ", err
    )
    assert "another --learning-rate (1e-07 now)" in err
    page = check_page(run_report.write(tmp_path / "run").read_text())
    assert "the run has learnt too little" in page.text
    assert "kerasbert finetune 'a b'" in page.text
    assert np.isfinite(json.loads((tmp_path / "run" / "dev.json").read_text())["baseline"]["accuracy"])


def test_a_card_is_written_anew_until_somebody_edits_it(tmp_path, capsys):
    run = made(tmp_path)
    card = run / "MODEL_CARD.md"
    for _ in range(2):
        assert main(["report", str(run), "--card"]) == 0
    card.write_text(card.read_text().replace("library_name: kerasbert", "license: mit\nlibrary_name: kerasbert"))
    edited = card.read_text()
    assert main(["report", str(run), "--card"]) == 2
    assert "MODEL_CARD.md was edited: it is kept" in capsys.readouterr().err
    assert card.read_text() == edited

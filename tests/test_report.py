"""Tables, plots and pages: what they show, and the same bytes for the same numbers."""

import itertools
import xml.etree.ElementTree as xml

import pytest

from kerasbert import report, run_report
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.storage import places

CURVES = {"a & b": [(1, 2.0), (2, 1.5)], "second": [(1, 1.0), (2, 0.5)]}


def test_plots_are_the_same_bytes_each_time():
    """No date, no random ids: a report can be compared with another."""
    for draw in (
        lambda: report.plot(CURVES, "step", "loss", levels={"base": 1.2}),
        lambda: report.scatter({"int8": (1, 2)}, "ms", "MB"),
    ):
        assert draw() == draw()


def test_plots_name_what_they_show():
    """Labels, axes and baselines are text in the svg, escaped."""
    svg = report.plot(CURVES, "step", "loss", levels={"unigram": 1.2}, title="Loss")
    words = {element.text for element in xml.fromstring(svg).iter() if element.text}
    assert {"a & b", "second", "step", "loss", "unigram", "Loss"} <= words


def test_labels_of_a_scatter_never_print_over_each_other():
    """Twelve files of nearly one size: the ledger of a plan."""
    points = {f"stage-{i}.tflite": (20 + i / 100, 0.9 + i / 1000) for i in range(12)}
    svg = xml.fromstring(report.scatter(points, "MB", "accuracy"))
    heights = sorted(float(element.get("y")) for element in svg.iter() if element.text in points)
    assert len(heights) == 12
    assert min(b - a for a, b in itertools.pairwise(heights)) > 9


def test_page_is_whole_and_loads_nothing():
    """One file that can be sent by mail."""
    page = report.page("a < b", [report.html_table(["x", "y"], [["<script>", "1"]]), report.plot(CURVES, "x", "y")])
    assert "<title>a &lt; b</title>" in page
    assert "<script>" not in page
    assert not any(word in page for word in ('src="', "@import", "<link"))


def test_curves_of_a_run(tmp_path):
    """Each logged name by step; a line that was being written when the process died is left out."""
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0, "dev/accuracy": 0.5}\n{"step": 3, "lo'
    )
    assert report.curves(tmp_path) == {"loss": [(1, 2.0), (2, 1.0)], "dev/accuracy": [(2, 0.5)]}


def test_no_run(tmp_path):
    """The error says what was expected."""
    with pytest.raises(InputError, match=r"has no metrics\.jsonl, expected the directory of a run"):
        report.curves(tmp_path)


def test_report_of_a_run(tmp_path):
    """Its curves and its settings."""
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 1, "loss": 2.0, "mlm": 1.5, "mlm/accuracy": 0.1}\n{"step": 2, "loss": 1.0, "mlm": 1.0, "mlm/accuracy": 0.2}\n'
    )
    (tmp_path / "run.json").write_text('{"settings": {"steps": 2, "spec": {"hidden": 8}}}')
    page = run_report.write(tmp_path).read_text()
    assert all(word in page for word in ("<h3>loss</h3>", "<h3>accuracy</h3>", ">steps</th><td>2</td>", "mlm/accuracy"))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("metrics.jsonl", b"[1, 2]\n", "metrics.jsonl, line 1: expected an object of numbers with a step"),
        (
            "metrics.jsonl",
            b'{"step": 1, "loss": 2}\n{"loss": 3}\n',
            "metrics.jsonl, line 2: expected an object of numbers",
        ),
        ("metrics.jsonl", b'{"step": 1, "loss": "x"}\n', "metrics.jsonl, line 1: expected an object of numbers"),
        ("metrics.jsonl", b'{"step": 1, "loss": {}}\n', "metrics.jsonl, line 1: expected an object of numbers"),
        ("metrics.jsonl", b'{"st\xe9p": 1}\n', "metrics.jsonl, line 1: no json of a run (UnicodeDecodeError)"),
        ("metrics.jsonl", b"[" * 100_000 + b"\n", "metrics.jsonl, line 1: no json of a run (RecursionError)"),
        ("run.json", b"{", "run.json is no json"),
        ("run.json", b"[]", "run.json holds list, expected a json object"),
        ("run.json", b"{}", "run.json has no settings: it is damaged"),
        ("run.json", b'{"settings": {"a": "\xff"}}', "run.json"),
        ("dev.json", b"\x00\x01", "dev.json"),
        ("dev.json", b"[" * 100_000, "dev.json"),
    ],
)
def test_damaged_files_of_a_run_are_one_line(tmp_path, name, content, said, capsys):
    """Each was an unexpected error with status 1."""
    (tmp_path / "metrics.jsonl").write_bytes(
        b'{"step": 1, "$\\\\frac$/loss": 2.5}\n{"step": 2, "$/loss": 2.0}\n{"step": 3, "lo'
    )
    assert main(["report", str(tmp_path)]) == 0
    assert "$\\frac$/loss" in (tmp_path / "report.html").read_text("utf-8")
    (tmp_path / name).write_bytes(content)
    capsys.readouterr()
    assert main(["report", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("kind", ["report", "look", "explanation", "table"])
@pytest.mark.parametrize("command", ["report", "look", "explain", "predict", "page"])
def test_a_page_is_replaced_by_the_command_that_writes_it_alone(tmp_path, kind, command):
    """A report was replaced by `look --out`, as any page of kerasbert."""
    path, own = tmp_path / "page.html", {"explanation": "explain", "table": "predict"}.get(kind, kind)
    path.write_text(report.page("A title", ["<p>text</p>"], command=command))
    assert places.is_ours(path, kind) == (command == own)
    if command != own:
        with pytest.raises(InputError, match=r"page\.html is not .*: it is kept\. Choose another place"):
            places.check_file(path, True, kind)

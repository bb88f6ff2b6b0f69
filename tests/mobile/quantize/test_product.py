"""Tables in codes: exact where they can be, by hand, against a plain search, in the file, mistakes."""

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.mobile.tflite.tables import product
from tests.mobile.conftest import TEXTS, make_run


def table(rows: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.3, (rows, width)).astype("float32")


@pytest.mark.parametrize(("width", "codes"), [(8, 2), (7, 3), (12, 12), (5, 1)])
def test_few_different_rows_are_exact_but_for_int8(width, codes):
    """Up to 256 different pieces a group need no k-means."""
    x = table(200, width)[np.random.default_rng(1).integers(0, 200, 900)]
    made = product.coded(x, codes)
    assert made.codes.shape == (900, codes)
    assert made.book.shape == (codes * 256, -(-width // codes))
    assert np.abs(made.rows() - x).max() <= made.scale * 0.5001
    again = product.coded(made.rows(), codes)
    np.testing.assert_array_equal(again.rows(), made.rows())  # coded once more it stays as it is


def test_each_row_has_the_nearest_centroids():
    x = table(700, 6)
    made = product.coded(x, 2)
    book = made.book.reshape(2, 256, 3) * np.float32(made.scale)
    for group in range(2):
        distances = ((x[:, None, group * 3 : group * 3 + 3] - book[group][None]) ** 2).sum(-1)
        reached = distances[np.arange(700), made.codes[:, group]]
        np.testing.assert_allclose(reached, distances.min(1), atol=1e-6)


def test_more_codes_come_nearer_and_k_means_beats_drawn_rows():
    x = table(2000, 12)
    errors = [((product.coded(x, codes).rows() - x) ** 2).mean() / (x**2).mean() for codes in (2, 3, 4, 6)]
    assert errors == sorted(errors, reverse=True)
    drawn = x[np.random.default_rng(0).choice(2000, 256, replace=False)]
    parts = [((x[:, None, i : i + 3] - drawn[None, :, i : i + 3]) ** 2).sum(-1).min(1) for i in range(0, 12, 3)]
    assert errors[2] < 0.9 * sum(map(np.mean, parts)) / 12 / (x**2).mean()


def test_rows_that_matter_come_out_best():
    x = table(2000, 8)
    weights = np.ones(2000)
    weights[100:200] = 50.0
    plain, weighted = (((product.coded(x, 2, some).rows() - x) ** 2).mean(1) for some in (None, weights))
    assert weighted[100:200].mean() < 0.5 * plain[100:200].mean()
    assert weighted.mean() < 2 * plain.mean()


def test_a_sample_of_a_large_table_is_enough(monkeypatch):
    x = table(3000, 8)
    whole = ((product.coded(x, 2).rows() - x) ** 2).mean()
    monkeypatch.setattr(product, "SAMPLE", 1500)
    assert ((product.coded(x, 2).rows() - x) ** 2).mean() < 1.2 * whole


def test_frequencies_by_hand():
    from kerasbert.text import WordPiece
    from kerasbert.text.wordpiece import SPECIALS

    tokenizer = WordPiece([*SPECIALS, "good", "bad"])
    found = product.frequencies(tokenizer, ["good good bad", ("good", "bad")])
    counts = dict(zip([*SPECIALS, "good", "bad"], found))
    assert (counts["good"], counts["bad"], counts["[MASK]"]) == pytest.approx((4**0.75, 3**0.75, 1))
    assert (counts["[CLS]"], counts["[SEP]"]) == pytest.approx((3**0.75, 4**0.75))


@pytest.fixture(scope="module")
def wide_run(tmp_path_factory):
    """A classifier whose vocabulary is worth codes."""
    words = [f"word{number}" for number in range(1500)]
    return make_run(tmp_path_factory.mktemp("wide") / "classifier", words=words)


def texts(count: int, seed: int) -> list[str]:
    draw = np.random.default_rng(seed)
    return [" ".join(f"word{n}" for n in draw.integers(0, 1500, draw.integers(1, 20))) for _ in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("codes", "lengths"),
    [
        (4, [8, 24]),
        pytest.param(5, [8, 12, 24], marks=pytest.mark.full),
        pytest.param(5, "any", marks=pytest.mark.slow),
    ],
)
def test_the_file_computes_with_the_rows_of_the_codes(wide_run, tmp_path, codes, lengths):
    """The float model with the decoded table in it says the same."""
    import kerasbert as kb
    from kerasbert.mobile import compress
    from kerasbert.mobile.judging.comparison import reference
    from kerasbert.mobile.runtime import load
    from kerasbert.mobile.tflite import repack

    path = tmp_path / "x.tflite"
    settings = {"lengths": lengths, "length": 24, "min_agreement": 0, "texts": texts(20, 1)}
    compress(wide_run, "int8_embeddings", path, embedding_codes=codes, **settings)
    model = kb.load(wide_run)
    held = model.encoder.embeddings.tokens.table
    before = reference(model, settings["texts"], 24)
    held.assign(product.coded(held.numpy(), codes).rows())
    expected = reference(model, settings["texts"], 24)
    found = load(path, cache=False).outputs(settings["texts"])
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert np.abs(before - expected).max() > 100 * np.abs(found - expected).max()
    sizes = {buffer.data.size for buffer in repack.read(path.read_bytes()).buffers if buffer.data is not None}
    assert model.tokenizer.size * codes in sizes


@pytest.mark.slow
def test_codes_make_an_int8_file_smaller_and_count_calibration(wide_run, tmp_path):
    from kerasbert.mobile import compress

    settings = {"lengths": [24], "min_agreement": 0, "texts": texts(200, 2)}
    plain = compress(wide_run, out=tmp_path / "a.tflite", **settings)
    coded = compress(wide_run, out=tmp_path / "b.tflite", embedding_codes=4, **settings)
    counted = compress(
        wide_run, out=tmp_path / "c.tflite", embedding_codes=4, calibration=settings["texts"], **settings
    )
    # 16 numbers a row become 4 codes, and there is a book of 4 * 256 * 4
    assert plain["bytes"] - coded["bytes"] == pytest.approx(1500 * 12 - 4096, abs=2000)
    assert coded["bytes"] == counted["bytes"]
    assert counted["mean_difference"] != coded["mean_difference"]
    assert coded["agreement"] > 0.5


@pytest.mark.parametrize(
    ("quantize", "settings", "message"),
    [
        ("fp16", {"embedding_codes": 4}, "embedding_codes is given with fp16, expected with dynamic_int8 or int8_emb"),
        ("static_int8", {"embedding_codes": 4}, "embedding_codes is given with static_int8"),
        ("dynamic_int8", {"embedding_codes": 4, "max_drop": 1.0}, "embedding_codes is given with max_drop"),
        pytest.param(
            "dynamic_int8",
            {"embedding_codes": 0},
            "embedding_codes must be a whole number of at least 1. Received: 0",
            marks=pytest.mark.slow,  # found where 16 is, after the conversion
        ),
        ("dynamic_int8", {"embedding_codes": 16}, r"embedding_codes is 16, expected .* wide \(16\)"),
        ("dynamic_int8", {"embedding_codes": 15}, "with which no table of .* rows becomes smaller"),
        ("dynamic_int8", {"calibration": TEXTS}, "calibration is given with dynamic_int8"),
        (
            "dynamic_int8",
            {"embedding_codes": 4, "calibration_size": 3},
            "calibration_size is given without calibration",
        ),
    ],
)
def test_mistakes(run, tmp_path, monkeypatch, quantize, settings, message):
    from kerasbert.mobile import compress
    from kerasbert.mobile.tflite import weights

    monkeypatch.setattr(weights, "SMALLEST", 1)
    with pytest.raises(InputError, match=message):
        compress(run, quantize, tmp_path / "x.tflite", lengths=[24], texts=TEXTS, **settings)
    assert list(tmp_path.iterdir()) == []

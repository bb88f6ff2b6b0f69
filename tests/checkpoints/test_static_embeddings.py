"""Folders of static embeddings, part by part: tables that are quantized, tokenizers that add nothing, settings of model2vec."""

import json

import numpy as np
import pytest

from kerasbert.checkpoints import static_embeddings as static
from kerasbert.checkpoints.formats import ImportOptions
from kerasbert.errors import InputError
from tests import tiny
from tests.checkpoints.test_forms import Stored

SIZE = tiny.tokenizer().size
ASKED = ImportOptions()


def covered(asked=ASKED, **arrays):
    return static._covered(Stored(**arrays), tiny.tokenizer(), "here", asked)


def table(rows=SIZE, width=3):
    return np.arange(rows * width, dtype="float32").reshape(rows, width)


@pytest.mark.parametrize("name", ["embeddings", "embedding.weight"])
def test_a_table_has_a_row_for_each_piece(name):
    coverage, shape, folded = covered(**{name: table()})
    assert (coverage.fits, shape, [pair.theirs for pair in coverage.pairs]) == (True, (SIZE, 3), [name])
    assert folded(table()) is not None
    np.testing.assert_array_equal(folded(table()), table())


@pytest.mark.parametrize(
    ("arrays", "part"),
    [
        ({"embeddings": table(SIZE - 1)}, "misshaped"),
        ({"embeddings": np.zeros(SIZE, "float32")}, "misshaped"),
        ({"embeddings": table(), "mapping": np.zeros(SIZE - 1, "int64")}, "misshaped"),
        ({"embeddings": table(), "weights": np.zeros((SIZE, 1), "float32")}, "misshaped"),
        ({"embedding.weight": table(), "weights": np.zeros(SIZE, "float32")}, "extra"),
        ({"embeddings": table(), "x": table()}, "extra"),
        ({"x": table()}, "missing"),
    ],
)
def test_tables_that_do_not_fit(arrays, part):
    coverage, _, _ = covered(**arrays)
    assert not coverage.fits
    assert getattr(coverage, part)


def test_what_is_ignored_is_told():
    """The pattern and the name had changed places: nothing was left out."""
    coverage, _, _ = covered(ImportOptions(ignore=("x*",)), embeddings=table(), x1=table(), y=table())
    assert (coverage.ignored, coverage.extra) == (("x1",), ("y",))
    with pytest.raises(InputError, match="ignore 'z\\*' matches no tensor"):
        covered(ImportOptions(ignore=("z*",)), embeddings=table())


def test_a_quantized_vocabulary_is_a_row_and_a_factor_for_each_piece():
    of, factors = np.arange(SIZE) % 2, np.linspace(0, 1, SIZE).astype("float32")
    coverage, shape, folded = covered(embeddings=table(2), mapping=of, weights=factors)
    assert (coverage.fits, shape) == (True, (SIZE, 3))
    np.testing.assert_allclose(folded(table(2)), table(2)[of] * factors[:, None])
    _, _, plain = covered(embeddings=table(2), mapping=of)
    np.testing.assert_array_equal(plain(table(2)), table(2)[of])
    _, _, weighed = covered(embeddings=table(), weights=factors)
    np.testing.assert_allclose(weighed(table()), table() * factors[:, None])


@pytest.mark.parametrize(("least", "most", "right"), [(0, 1, True), (-1, 1, False), (0, 2, False)])
def test_rows_that_the_table_has_not_are_refused(least, most, right):
    of = np.zeros(SIZE, "int64")
    of[:2] = least, most
    _, _, folded = covered(embeddings=table(2), mapping=of)
    if right:
        folded(table(2))
        return
    with pytest.raises(InputError, match="mapping in here names a row that the table has not: the file is damaged"):
        folded(table(2))


@pytest.mark.parametrize(
    ("content", "normalize", "length"),
    [({}, False, static.LENGTH), ({"normalize": True, "max_length": 3}, True, 3), ({"max_length": None}, False, None)],
)
def test_settings_of_model2vec(content, normalize, length, tmp_path):
    (tmp_path / static.CONFIG).write_text(json.dumps({"model_type": "model2vec"} | content))
    task, told, found = static._of_model2vec(tmp_path)
    assert (task["options"], told, found) == ({"pooling": "mean", "normalize": normalize}, [], length)
    assert static.is_model2vec(tmp_path)


@pytest.mark.parametrize("content", [{"normalize": 1}, {"max_length": 2}, {"max_length": "3"}, {"max_length": True}])
def test_settings_of_model2vec_that_are_none(content, tmp_path):
    (tmp_path / static.CONFIG).write_text(json.dumps({"model_type": "model2vec"} | content))
    with pytest.raises(InputError, match="expected a bool and a number of tokens"):
        static._of_model2vec(tmp_path)


def test_options_of_an_import_that_say_nothing_of_a_table(tmp_path):
    static._check_asked(tmp_path, ImportOptions(ignore=("x",)))
    static._check_asked(tmp_path, ImportOptions(model="average/base"))
    with pytest.raises(
        InputError, match="is a static embedding, of which no pair and no tokenizer is read|no tokenizer"
    ):
        static._check_asked(tmp_path, ImportOptions(pair=True, tokenizer="x"))
    with pytest.raises(InputError, match="received the model bert/base: leave --model out"):
        static._check_asked(tmp_path, ImportOptions(model="bert/base"))


@pytest.fixture
def tokenizer(tmp_path):
    hf_path = tmp_path / "tokenizer.json"
    from kerasbert.text.hf_save import save_hf

    save_hf(tiny.tokenizer(), hf_path)
    return hf_path


def rewritten(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_tokenizer_adds_nothing_to_a_text(tokenizer):
    found, length = static._read_tokenizer(tokenizer)
    assert (length, found.template[0]) == (None, "$A")
    assert found.encode("the cat") == tiny.tokenizer().encode("the cat")
    rewritten(tokenizer, truncation={"direction": "Right", "max_length": 9})
    assert static._read_tokenizer(tokenizer)[1] == 9
    rewritten(tokenizer, padding={"pad_token": "[MASK]"})
    assert static._read_tokenizer(tokenizer)[0].specials["pad"] == "[MASK]"
    rewritten(tokenizer, padding={"pad_token": "nothing there"})
    assert static._read_tokenizer(tokenizer)[0].specials["pad"] == "[PAD]"


@pytest.mark.parametrize("changes", [{"truncation": {"direction": "Left"}}, {"truncation": [1]}, {"padding": [1]}])
def test_a_tokenizer_that_cuts_otherwise_is_refused(changes, tokenizer):
    rewritten(tokenizer, **changes)
    with pytest.raises(InputError, match="truncates a text at its begin, or is damaged"):
        static._read_tokenizer(tokenizer)


def test_a_tokenizer_without_padding_or_without_a_file(tokenizer, tmp_path):
    content = json.loads(tokenizer.read_text())
    content["model"]["vocab"] = {piece: i for i, piece in enumerate(content["model"]["vocab"]) if piece != "[PAD]"}
    content["added_tokens"] = [each for each in content["added_tokens"] if each["content"] != "[PAD]"]
    tokenizer.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"has no piece of padding, such as \[PAD\] or <pad>"):
        static._read_tokenizer(tokenizer)
    with pytest.raises(InputError, match="is missing: copy the folder again"):
        static._read_tokenizer(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"added_tokens": 5}, "added_tokens of tokenizer.json is 5, expected a list"),
        ({"model": {"type": "Unigram", "vocab": 5}}, "vocab of model is 5, expected a list"),
        ({"model": {"type": "Unigram", "vocab": [[{}, 1.0]]}}, "expected a piece and its score"),
    ],
)
def test_a_damaged_tokenizer_is_refused_by_its_reader(changes, message, tokenizer):
    rewritten(tokenizer, **changes)
    with pytest.raises(InputError, match=message):
        static._read_tokenizer(tokenizer)


def test_a_piece_of_padding_that_is_no_text_is_none(tokenizer):
    rewritten(tokenizer, padding={"pad_token": [1]})
    assert static._read_tokenizer(tokenizer)[0].specials["pad"] == "[PAD]"

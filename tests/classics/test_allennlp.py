"""ELMo in AllenNLP's files: the states are those of TensorFlow 1's equations, the round trip is exact, bad files are refused."""

import copy
import json

import h5py
import numpy as np
import pytest

from kerasbert import inputs, registry
from kerasbert.checkpoints import export_checkpoint, import_checkpoint, load_encoder
from kerasbert.classics import allennlp
from kerasbert.errors import InputError
from kerasbert.layers.naming import values
from kerasbert.text.characters import CHARACTERS
from tests.checkpoints import elmo_tf1

SENTENCES = ("The café is open .".split(), "no".split(), f"{'x' * 60} 東京 a b c d e f g".split())


def sets(path):
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, each: found.update({name: each[...]}) if hasattr(each, "shape") else None)
    return found


def spelled(tokenizer, words):
    return tokenizer.of_words(words, (0,) * len(words), (0,) * len(words)).ids


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_states_are_those_of_tensorflow_1(activation, tmp_path):
    options = copy.deepcopy(elmo_tf1.OPTIONS)
    options["char_cnn"]["activation"] = activation
    folder = elmo_tf1.write(tmp_path / "theirs", options)
    model = import_checkpoint(folder, "allennlp")
    rows = [inputs.row(*model.tokenizer.join(spelled(model.tokenizer, words))[:2]) for words in SENTENCES]
    read = inputs.arrays((*inputs.TEXT[:2], CHARACTERS), rows, 12)
    found = model(read)
    clipped = np.zeros(2)
    for i, words in enumerate(SENTENCES):
        expected, some = elmo_tf1.states(folder, words)
        clipped += some
        for ours, theirs in zip([*found["hidden"], found["sequence"]], [*expected, expected[-1]], strict=True):
            # float32 against float64; states reach 6, and a processor without AVX-512 adds in another order
            np.testing.assert_allclose(np.asarray(ours)[i, : len(words) + 2], theirs, atol=4e-6 * np.abs(theirs).max())
    assert (clipped > 0).all()  # else the clips would not be seen


def test_round_trip_is_exact(tmp_path):
    folder = elmo_tf1.write(tmp_path / "theirs")
    import_checkpoint(folder, "allennlp", out=tmp_path / "run", build=False)
    export_checkpoint(tmp_path / "run", tmp_path / "out", "allennlp")
    theirs, ours = sets(folder / "tiny_weights.hdf5"), sets(tmp_path / "out" / "weights.hdf5")
    assert theirs.keys() == ours.keys()
    for name, array in theirs.items():
        if name.endswith("/B"):  # a forget bias has been a sum with 1.0
            np.testing.assert_allclose(ours[name], array, atol=3e-7)
        else:
            assert ours[name].dtype == "float32"
            np.testing.assert_array_equal(ours[name], array)
    import_checkpoint(tmp_path / "out", "allennlp", out=tmp_path / "again", build=False)
    one, two = (values(load_encoder(tmp_path / each)[0]) for each in ("run", "again"))
    assert one.keys() == two.keys()
    assert all((one[name] == two[name]).all() for name in one)
    export_checkpoint(tmp_path / "again", tmp_path / "out2", "allennlp")
    assert (tmp_path / "out" / "weights.hdf5").read_bytes() == (tmp_path / "out2" / "weights.hdf5").read_bytes()
    said = json.loads((tmp_path / "out" / "options.json").read_text())
    assert said == {**elmo_tf1.OPTIONS, "bidirectional": True}


def test_every_forget_bias_comes_back():
    """Those near 0 too, which float32 cannot hold less 1.0."""
    draw = np.random.default_rng(0)
    near = (10.0 ** draw.uniform(-6, 1, 400) * draw.choice([-1, 1], 400)).astype("float32")
    array = np.concatenate([near, near, near, near])
    np.testing.assert_array_equal(allennlp._bias(allennlp._bias_out(array)), array)
    assert allennlp._bias_out(array).dtype == "float64"
    assert allennlp._bias_out(np.ones(8, "float32")).dtype == "float32"


def test_a_dry_run_and_the_sizes(tmp_path):
    folder = elmo_tf1.write(tmp_path)
    coverage = import_checkpoint(folder, "allennlp", dry_run=True)
    assert coverage.fits
    line = "block_1/backward/recurrent_kernel <- RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/W_0 [10, 28]"
    assert line in " ".join(str(coverage).split())
    for size in ("small", "medium", "original"):
        spec = registry.find(f"elmo/{size}")[1]
        path = tmp_path / f"{size}_options.json"
        path.write_text(json.dumps(allennlp.options_of(spec)))
        changes = allennlp.read_options(path)
        assert all(allennlp.specs.get(spec, name) == value for name, value in changes.items())
    with pytest.raises(InputError, match=r"is not elmo/small: .*hidden 10 instead of 256"):
        import_checkpoint(folder / "tiny_weights.hdf5", "allennlp", "elmo/small")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda file: file.pop("RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/W_P_0"),
            r"1 missing: RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/W_P_0\.",
        ),
        (
            lambda file: (file.pop("CNN_proj/b_proj"), file.create_dataset("CNN_proj/b_proj", data=np.zeros(6))),
            r"1 misshaped: CNN_proj/b_proj is \[6\], expected \[5\]",
        ),
        (lambda file: file.create_dataset("more", data=np.zeros(2)), r"1 extra: more\. .*--ignore"),
        (
            lambda file: (file.pop("char_embed"), file.update({"char_embed": h5py.ExternalLink("x", "y")})),
            "missing: char_embed",
        ),
        (
            lambda file: file["char_embed"].write_direct(np.full((261, 4), np.nan)),
            "char_embed holds values that are not finite",
        ),
    ],
)
def test_files_that_do_not_fit_are_one_line(change, message, tmp_path):
    folder = elmo_tf1.write(tmp_path, change=change)
    with pytest.raises(InputError, match=message) as error:
        import_checkpoint(folder, "allennlp", out=tmp_path / "out")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_options_that_do_not_fit_are_one_line(tmp_path):
    def changed(place, value):
        options = copy.deepcopy(elmo_tf1.OPTIONS)
        section, name = place.split(".")
        if value is None:
            del options[section][name]
        else:
            options[section][name] = value
        return options

    folder = elmo_tf1.write(tmp_path / "theirs")
    for place, value, message in (
        ("lstm.dim", None, "has no lstm.dim, expected the options of an ELMo"),
        ("lstm.dim", "7", "lstm.dim must be of type int. Received: '7'"),
        ("lstm.dim", 10**9, "lstm.dim must be a size"),
        ("lstm.dim", 8, r"misshaped: .*W_0 is \[10, 28\], expected \[10, 32\]"),
        ("lstm.use_skip_connections", False, "lstm.use_skip_connections must be True"),
        ("lstm.projection_dim", 0, "projection_dim must be a size"),
        ("char_cnn.max_characters_per_token", 40, "must be 50. Received: '40'"),
        ("char_cnn.filters", [[2, 3]], r"filters must be \[width, number\], widths 1, 2"),
        ("char_cnn.filters", [[1, -3]], "must have numbers of filters"),
        ("char_cnn.activation", "gelu", "embeddings.activation"),
    ):
        (folder / "tiny_options.json").write_text(json.dumps(changed(place, value)))
        with pytest.raises(InputError, match=message):
            import_checkpoint(folder, "allennlp")
    (folder / "tiny_options.json").write_text(json.dumps(elmo_tf1.OPTIONS))
    (folder / "tiny_weights.hdf5").write_bytes(b"no hdf5")
    with pytest.raises(InputError, match="is damaged, or no hdf5 file"):
        import_checkpoint(folder, "allennlp")
    (folder / "other.hdf5").write_bytes(b"")
    with pytest.raises(InputError, match=r"has 2 files \*.hdf5, expected one"):
        import_checkpoint(folder, "allennlp")
    with pytest.raises(InputError, match="holds an ELMo, and bert is none"):
        import_checkpoint(folder / "tiny_weights.hdf5", "allennlp", "bert")

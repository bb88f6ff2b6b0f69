"""The engine that fits their names to ours, on a toy dialect."""

import pytest

from kerasbert.checkpoints.coverage import cover
from kerasbert.checkpoints.names import Class, Dialect
from kerasbert.errors import InputError

TOY = Dialect(
    rows=(
        ("table", "toy.words"),
        ("block_{i}/inner", "toy.layer.{i}.dense"),
        ("norm", "toy.norm"),
        ("heads/mlm/bias", "cls.bias"),
        ("heads/mlm/kernel", "cls.out", "T"),
    ),
    leaves={"kernel": (".weight", "T"), "bias": (".bias",), "gamma": (".weight",), "beta": (".bias",)},
    heads={"mlm": {"kernel": "H V", "bias": "V"}},
    config=(),
    classes={"Toy": Class(), "ToyForMLM": Class(("mlm",))},
    prefix="toy.",
    renames=(("norm.gamma", "norm.weight"), ("norm.beta", "norm.bias")),
    tied={"cls.decoder": "toy.words", "cls.decoder_bias": "cls.bias"},
    ignored={"*position_ids": None},
)
OURS = {
    "table": (5, 2),
    "block_0/inner/kernel": (2, 3),
    "block_0/inner/bias": (3,),
    "norm/gamma": (2,),
    "norm/beta": (2,),
}
THEIRS = {
    "toy.words": (5, 2),
    "toy.layer.0.dense.weight": (3, 2),
    "toy.layer.0.dense.bias": (3,),
    "toy.norm.weight": (2,),
    "toy.norm.bias": (2,),
}


def test_rows_leaves_and_blocks():
    assert TOY.theirs("block_12/inner/kernel") == ("toy.layer.12.dense.weight", True)
    assert TOY.theirs("block_12/inner/bias") == ("toy.layer.12.dense.bias", False)
    assert TOY.theirs("norm/gamma") == ("toy.norm.weight", False)
    assert TOY.theirs("heads/mlm/kernel") == ("cls.out", True)
    with pytest.raises(InputError, match="the weight adapter/kernel has no name in this checkpoint format"):
        TOY.theirs("adapter/kernel")
    with pytest.raises(InputError, match="block_0/inner/scale has no name"):
        TOY.theirs("block_0/inner/scale")


def test_everything_fits():
    coverage = cover(TOY, OURS, THEIRS)
    assert coverage.fits
    assert [(pair.ours, pair.theirs, pair.transpose) for pair in coverage.pairs] == [
        ("table", "toy.words", False),
        ("block_0/inner/kernel", "toy.layer.0.dense.weight", True),
        ("block_0/inner/bias", "toy.layer.0.dense.bias", False),
        ("norm/gamma", "toy.norm.weight", False),
        ("norm/beta", "toy.norm.bias", False),
    ]
    assert "block_0/inner/kernel  <- toy.layer.0.dense.weight [3, 2] transposed" in str(coverage)
    assert str(coverage).endswith("5 weights assigned, 0 missing, 0 extra, 0 misshaped")


def test_prefix_and_older_spelling():
    bare = {name.removeprefix("toy."): shape for name, shape in THEIRS.items()}
    bare["norm.gamma"], bare["norm.beta"] = bare.pop("norm.weight"), bare.pop("norm.bias")
    coverage = cover(TOY, OURS, bare)
    assert coverage.fits
    assert ("norm/beta", "norm.beta") in [(pair.ours, pair.theirs) for pair in coverage.pairs]


def test_all_problems_in_one_line():
    theirs = dict(THEIRS) | {"toy.words": (6, 2), "toy.layer.0.dense.weight": (2, 3), "stray": (1,), "other": ()}
    del theirs["toy.norm.bias"], theirs["toy.layer.0.dense.bias"]
    error = str(cover(TOY, OURS, theirs).problems("FILE"))
    assert error == (
        "FILE does not fit the model. 2 missing: toy.layer.0.dense.bias [3], toy.norm.bias [2]; "
        "2 extra: other [], stray [1]; "
        "2 misshaped: toy.layer.0.dense.weight received [2, 3] expected [3, 2], toy.words received [6, 2] expected [5, 2]. "
        "A tensor that has no place here is dropped by ignore=[PATTERN] (--ignore PATTERN)."
    )


def test_a_square_matrix_is_still_transposed():
    square = cover(TOY, {"block_0/inner/kernel": (3, 3)}, {"toy.layer.0.dense.weight": (3, 3)})
    assert square.pairs[0].transpose


def test_two_spellings_of_one_weight():
    coverage = cover(TOY, OURS, THEIRS | {"words": (5, 2)})
    assert coverage.extra == ("words [5, 2] (a second toy.words)",) or coverage.extra == (
        "toy.words [5, 2] (a second words)",
    )


def test_copies_are_checked_or_stand_in():
    with_copy = cover(TOY, OURS, THEIRS | {"cls.decoder": (5, 2)})
    assert with_copy.fits
    assert with_copy.copies == (("cls.decoder", "toy.words"),)
    assert "equal copy: cls.decoder = toy.words" in str(with_copy)
    only_copy = {name: shape for name, shape in THEIRS.items() if name != "toy.words"} | {"cls.decoder": (5, 2)}
    stands_in = cover(TOY, OURS, only_copy)
    assert stands_in.fits
    assert stands_in.copies == ()
    assert stands_in.pairs[0].theirs == "cls.decoder"
    # a copy of something this model lacks has no place
    assert cover(TOY, OURS, THEIRS | {"cls.decoder_bias": (5,)}).extra == ("cls.decoder_bias [5]",)


def test_ignored_tensors_are_listed():
    coverage = cover(TOY, OURS, THEIRS | {"toy.position_ids": (9,), "adam.m": (1,), "adam.v": (1,)}, ignore=["adam.*"])
    assert coverage.fits
    assert coverage.ignored == ("adam.m", "adam.v", "toy.position_ids")
    assert "ignored: adam.m" in str(coverage)


def test_an_ignored_weight_is_missing():
    assert cover(TOY, OURS, THEIRS, ignore=["*words"]).missing == ("toy.words [5, 2]",)


def test_a_pattern_that_matches_nothing():
    with pytest.raises(InputError, match="ignore 'addam' matches no tensor"):
        cover(TOY, OURS, THEIRS, ignore=["addam"])


def test_heads_are_found_by_their_tensors():
    assert TOY.heads_in(["toy.words"], "Toy") == []
    assert TOY.heads_in(["cls.bias"], None) == ["mlm"]
    assert TOY.heads_in(["cls.bias"], "ToyForMLM") == ["mlm"]
    assert TOY.heads_in(["cls.bias"], "ToyForSomethingElse") == []

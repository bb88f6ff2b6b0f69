"""ELMo: its sizes, what each direction sees, the mix of its layers, what a run and a phone make of it."""

import dataclasses

import numpy as np
import pytest

from kerasbert import models, registry
from kerasbert import spec as specs
from kerasbert.classics.elmo import WAYS
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import find_task
from kerasbert.testing import battery, world
from kerasbert.text.characters import train_characters
from kerasbert.training.flops import family_flops
from tests.training.stopping import ends_the_same


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("elmo")


@pytest.mark.parametrize(("size", "count"), [("small", 13_593_296), ("medium", 28_027_728), ("original", 93_600_848)])
def test_sizes_are_the_papers(size, count):
    family, spec = registry.find(f"elmo/{size}")
    assert models.parameters(family.encoder, spec) == count
    assert (family.longest(spec), family.has_blocks, spec.embeddings.vocabulary) == (None, False, 793_471)


def test_arithmetic_by_hand():
    family, spec = registry.find("elmo/small")
    filters = sum(
        2 * n * k * 16 * (51 - k) for k, n in zip(range(1, 8), (32, 32, 64, 128, 256, 512, 1024), strict=True)
    )
    word = filters + 2 * 2 * 2048 * 2048 + 2 * 2048 * 128
    lstm = 2 * 4 * 1024 * (128 + 128) + 2 * 1024 * 128
    by_hand = 3 * (100 * (word + 4 * lstm) + 7 * 2 * 2 * 128 * 793_471)
    assert family_flops(family, spec, 100, 1, 7) == by_hand


def test_its_softmax_begins_with_logits_of_the_size_of_what_it_reads(folder):
    """bilm-tf, training.py: a deviation of 1 / sqrt(projection)."""
    softmax = battery.Subject("elmo", folder).encoder().new_softmax("mlm")
    assert softmax.initializer == pytest.approx((battery.Subject("elmo", folder).spec.hidden // 2) ** -0.5)


def test_names_of_weights_are_public(folder):
    found = list(names(battery.Subject("elmo", folder).encoder()))
    assert found[:3] == ["characters/table", "characters/convolution_1/kernel", "characters/convolution_1/bias"]
    assert "characters/highway_0/carry/kernel" in found
    assert [name for name in found if name.startswith("block_1/")] == [
        f"block_1/{way}/{part}" for way in WAYS for part in ("kernel", "recurrent_kernel", "bias", "projection_kernel")
    ]


def test_directions_see_nothing_of_each_other(folder):
    subject = battery.Subject("elmo", folder)
    model, inputs = subject.encoder(), subject.inputs(rows=2)
    half, at = subject.spec.hidden // 2, 4
    plain = [np.asarray(each) for each in model(inputs)["hidden"]]
    other = dict(inputs, char_ids=inputs["char_ids"].copy())
    other["char_ids"][:, at] = subject.tokenizer.characters(np.array([[subject.tokenizer.size - 1]] * 2))[:, 0]
    changed = [np.asarray(each) for each in model(other)["hidden"]]
    assert len(plain) == 3
    for layer, (one, two) in enumerate(zip(plain, changed, strict=True)):
        differs = np.abs(one - two).max(axis=0) > 0  # [S, H]
        forward, backward = differs[:, :half].any(axis=1), differs[:, half:].any(axis=1)
        assert not forward[:at].any()
        assert not backward[at + 1 :].any()
        assert (forward[at:].all(), backward[: at + 1].all()) == ((True, True) if layer else (False, False))
        assert forward[at] and backward[at]  # noqa: PT018
    np.testing.assert_array_equal(plain[0][:, :, :half], plain[0][:, :, half:])


def test_text_in_parts_is_the_text(folder):
    """Each direction in its order, the state carried, is the call on the whole."""
    subject = battery.Subject("elmo", folder)
    model, inputs = subject.encoder(), subject.inputs()
    whole, half = np.asarray(model(inputs)["sequence"]), subject.spec.hidden // 2
    x, mask = model.embed(inputs), inputs["padding_mask"]
    for way, order in ((0, (slice(0, 4), slice(4, 9))), (1, (slice(4, 9), slice(0, 4)))):
        state, found = model.empty_state(3), {}
        for part in order:
            layers, state = model.read(x[:, part], way, mask[:, part], state)
            found[part.start] = np.asarray(layers[-1])
        joined = np.concatenate([found[0], found[4]], axis=1)
        for row in range(3):
            real = 9 - row
            expected = whole[row, :real, half * way : half * (way + 1)]
            np.testing.assert_allclose(joined[row, :real], expected, atol=1e-6)


def test_a_task_reads_the_mix_of_three_layers(folder):
    subject = battery.Subject("elmo", folder)
    task = dataclasses.replace(find_task("glue/sst2"), layers="mix")
    model = TaskModel(subject.encoder(), task)
    model.build()
    mix, inputs = model.heads["mix"], subject.inputs()
    assert mix.layers == 3
    mix.scalars.assign([0.0, np.log(2.0), 0.0])  # a quarter, a half, a quarter
    mix.gamma.assign([2.0])
    hidden = [np.asarray(each) for each in model.body(inputs)["hidden"]]
    vectors = 2 * (0.25 * hidden[0] + 0.5 * hidden[1] + 0.25 * hidden[2])
    mean = np.stack([row[: 9 - i].mean(axis=0) for i, row in enumerate(vectors)])
    head = model.heads["classifier"]
    found = model(inputs)["logits"]
    np.testing.assert_allclose(found, mean @ head.kernel.numpy() + head.bias.numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": 7}, "hidden must be even"),
        ({"recurrence.cell": "gru"}, "recurrence.cell must be lstm"),
        ({"embeddings.activation": "gelu"}, "embeddings.activation"),
        ({"embeddings.filters": (3, 0)}, "embeddings.filters must be 1 to 50 numbers"),
        ({"clips.cell": 0.0}, "clips must be above 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        specs.derive(registry.family("elmo").spec, changes).validate()


def test_words_without_characters_are_refused(folder):
    subject = battery.Subject("elmo", folder)
    with pytest.raises(InputError, match=r"ELMo reads char_ids \[B, S, 50\]"):
        subject.encoder()({"token_ids": np.ones((1, 2), "int32")})


def tiny_records(folder, length=24):
    """Records of the tiny world in words."""
    from kerasbert.data import write_records

    tokenizer = train_characters(world.sentences(300, 0), 60)
    out = folder / f"words-{length}"
    if not out.exists():
        write_records([world.corpus(folder / "corpus.txt")], tokenizer, out, length=length, packing="stream")
    return out, tokenizer


TINY = {
    "hidden": 16,
    "recurrence.units": 24,
    "embeddings.filters": (4, 8),
    "embeddings.highways": 1,
    "embeddings.vocabulary": 60,
}


@pytest.mark.full
def test_pretrained_stopped_and_begun_again(tmp_path):
    """Dropout and candidates on; the weights after a kill and a resume are those of a run without one, to the bit."""
    records, _ = tiny_records(tmp_path)
    settings = {"segments": 2, "candidates": 9}
    ends_the_same("elmo/small", records, tmp_path, changes=TINY, objective=settings)

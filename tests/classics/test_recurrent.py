"""SA-LSTM and ULMFiT: sizes, the readouts, what a run, a phone and a graph make of them."""

import numpy as np
import pytest

from kerasbert import models, registry
from kerasbert import spec as specs
from kerasbert.layers.naming import names
from kerasbert.layers.readout import readout
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import find_task
from kerasbert.testing import battery, world
from kerasbert.training.flops import family_flops
from tests.training.stopping import ends_the_same

CHANGES = {
    "ulmfit": {"hidden": 16, "recurrence.units": 24, "recurrence.layers": 2},
    "sa-lstm": {"hidden": 16, "embeddings.width": 12},
}


def test_sizes_are_the_papers():
    family, spec = registry.find("ulmfit/base")
    layers = 4 * (1150 * (400 + 1150 + 1) + 1150 * (1150 + 1150 + 1) + 400 * (1150 + 400 + 1))
    assert models.parameters(family.encoder, spec) == 30000 * 401 + layers
    # Merity et al., table 2: 33M on WikiText-2's 33,278 words
    words = specs.derive(spec, {"embeddings.vocabulary": 33278})
    assert round(models.parameters(family.encoder, words) / 1e6) == 34  # 33.6M
    lstm, of = registry.find("sa-lstm/base")
    assert models.parameters(lstm.encoder, of) == 30522 * 512 + 4 * 1024 * (512 + 1024 + 1)
    assert (family.longest(spec), family.has_blocks, lstm.longest(of)) == (None, False, None)
    # a product of both matrices for a token, the softmax for a predicted one; forward and twice that backward
    by_hand = 3 * (100 * 2 * 4 * 1024 * (512 + 1024) + 7 * 2 * 1024 * 30522)
    assert family_flops(lstm, of, 100, 1, 7) == by_hand


def test_names_of_weights_are_public(tmp_path):
    assert list(names(battery.Subject("ulmfit", tmp_path).encoder())) == [
        "output_bias",
        "embeddings/table",
        "block_0/kernel",
        "block_0/recurrent_kernel",
        "block_0/bias",
        "block_1/kernel",
        "block_1/recurrent_kernel",
        "block_1/bias",
    ]


def test_last_maximum_and_mean_side_by_side():
    x = np.array([[[1.0, -2.0], [3.0, -4.0], [2.0, -6.0], [9.0, 9.0]]], "float32")
    found = np.asarray(readout(x, np.array([[1, 1, 1, 0]]), "concat"))
    np.testing.assert_allclose(found, [[2, -6, 3, -2, 2, -4]], rtol=1e-6)  # padding is in none of them


def test_a_classifier_reads_what_its_paper_says(tmp_path):
    subject = battery.Subject("ulmfit", tmp_path)
    model = TaskModel(subject.encoder(), find_task("glue/sst2"))
    model.build()
    head = model.heads["classifier"]
    assert (model.readout, tuple(head.inner.kernel.shape), head.kernel.shape[0]) == ("concat", (3 * 16, 50), 50)
    inputs = subject.inputs()
    states = np.asarray(model.body(inputs)["sequence"])
    row = states[2, :7]
    vector = np.concatenate([row[-1], row.max(0), row.mean(0)])
    hidden = np.maximum(vector @ head.inner.kernel.numpy() + head.inner.bias.numpy(), 0)
    expected = hidden @ head.kernel.numpy() + head.bias.numpy()
    np.testing.assert_allclose(model(inputs)["logits"][2], expected, atol=1e-5)
    other = TaskModel(battery.Subject("sa-lstm", tmp_path).encoder(), find_task("glue/sst2"))
    assert other.readout == "last"


@pytest.mark.full
@pytest.mark.parametrize("name", CHANGES)
def test_pretrained_stopped_and_begun_again(name, tmp_path):
    """Dropouts on; the weights after a kill and a resume are those of a run without one, to the bit."""
    records = world.records(tmp_path, registry.objective(registry.family(name).objective).packing)
    settings = {"objective": {"segments": 2}} if name == "ulmfit" else {}
    ends_the_same(f"{name}/base", records, tmp_path, changes=CHANGES[name], **settings)

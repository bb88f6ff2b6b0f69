"""The battery over every registered model, and over a third party's."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from kerasbert import registry
from kerasbert.layers.block import Block
from kerasbert.mobile import testing as journey
from kerasbert.testing import battery
from tests.models.cover import families
from tests.objectives.learn import OTHERS
from tests.support import forgotten, forked, often, shared


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Records that the families share."""
    return tmp_path_factory.mktemp("battery")


DEFAULT = ("bert", "t5")  # one stack, two; electra, of two networks and losses, goes through it in CI
# of bert, gpt2, bart and t5, which CI tries
CHILDREN = set("ernie gpt kbert mass mbart mt5 mt5-encoder pegasus transformer".split())
BERTS = set("bert2bert roberta2roberta bert-generation".split())  # BERT's, BART's: tests.models.test_bert2bert
CHILDREN |= BERTS
# parts that others of the list have
ALIKE = set("deberta distilbert ib-bert megatron-bert nomic-bert roberta sa-lstm skip-thought taglm ulmfit".split())
ALIKE |= set("umt5 umt5-encoder unilm xlm".split())
CI = set(battery.different()) - CHILDREN - ALIKE  # no family whose tiny model is another's, by its Spec and classes


@pytest.mark.parametrize("name", [*DEFAULT, *often([name for name in registry.families() if name not in DEFAULT], *CI)])
def test_every_model_passes(name, folder):
    compiled = name in battery.different() and registry.family(name).kind == "encoder"
    battery.check_model(name, folder, compiled=compiled)


WRITING = [name for name, family in registry.families().items() if family.kind != "encoder"]


@pytest.mark.parametrize("name", often(WRITING, *{*WRITING} - BERTS))
def test_every_weight_of_those_that_write_is_trained_in_compiled_parts_too(name, folder):
    """The relative tables among them, which would get no gradient through the bias."""
    subject = battery.Subject(name, folder, dropout=0.0)
    program = subject.program(subject.encoder())
    battery.check_gradients(subject, program, subject.batch(program))


@pytest.mark.parametrize("name", families("finetune"))
def test_every_model_finetunes(name, folder, tmp_path):
    battery.check_finetuning(name, folder, tmp_path / "run")


@pytest.mark.parametrize("name", families("journey"))
def test_every_model_makes_the_journey(name, folder):
    data = journey.sst2(folder, shared("data/glue/SST-2")) if name == "albert" else None  # a second fine-tuning
    print(name, journey.check_journey(name, folder, data))


# two losses of two networks, two stacks, memory: of these kinds of step one in CI
STEPS = ("electra", "t5", "transformer-xl")
TRAINED = [name for name in battery.different("objective", "tokenizer") if registry.family(name).objective]
TRAINED += [f"{family}:{objective}" for objective, family in OTHERS.items()]  # no family's own


@pytest.mark.parametrize(
    "trained",
    [
        pytest.param(STEPS, marks=pytest.mark.slow, id="steps"),
        pytest.param([name for name in TRAINED if name not in STEPS], marks=pytest.mark.full, id="others"),
    ],
)
def test_two_replicas_give_every_objective_the_weights_of_one(trained, folder, tmp_path):
    found = {}
    for strategy in ("cpu", "cpu:2"):
        forked("-m", "kerasbert.testing.replicas", strategy, folder, tmp_path / f"{strategy}.npz", *trained)
        found[strategy] = dict(np.load(tmp_path / f"{strategy}.npz"))
    one, two = found.values()
    assert one.keys() == two.keys()
    assert {name.split()[0] for name in one} == set(trained)
    assert {
        name: float(np.abs(one[name] - two[name]).max())
        for name in one
        if not np.allclose(one[name], two[name], rtol=0, atol=1e-6)
    } == {}


@pytest.fixture(scope="module")
def plugin():
    """The family of a third party's file."""
    with forgotten():
        assert registry.load_plugin(Path(__file__).parent / "plugin.py")["file"] == "plugin.py"
        yield "rezero"


@pytest.mark.slow
def test_a_third_partys_model_passes(plugin, folder, tmp_path):
    assert "rezero/small" in registry.list_models()
    battery.check_model(plugin, folder)
    battery.check_finetuning(plugin, folder, tmp_path / "run")


@pytest.mark.full  # the plug-ins of tests/plugins go to the phone in CI
def test_a_third_partys_model_makes_the_journey(plugin, folder):
    journey.check_journey(plugin, folder, journey.sst2(folder, shared("data/glue/SST-2")))


def broken(family, **parts):
    """The family with an encoder whose `parts` are replaced."""
    return dataclasses.replace(family, name="broken", encoder=type("Broken", (family.encoder,), parts))


def leaks(self, inputs):
    """Padding is seen."""
    return None


class Unused(Block):
    """A block with a weight that nothing reads."""

    def build(self, shape):
        super().build(shape)
        self.unused = self.add_weight(shape=(2,), initializer="ones", name="unused")


class Forgetful(Block):
    """A block that computes all tokens where the first alone is asked for."""

    def call(self, x, context, training=False):
        return super().call(x, dataclasses.replace(context, queries=None), training=training)


class Deaf(Block):
    """A block whose second sublayer nothing adapts."""

    def call(self, x, context, training=False):
        source, x, told = context.keys(x), context.rows(x), x
        y, probabilities = self.attention(x, context.bias, source, training=training)
        x = self.attention_norm(x, self.adapted("attention", y, told, context), dropout=self.attention_dropout)
        return self.feedforward_norm(x, self.feedforward(x), dropout=self.feedforward_dropout), probabilities


@pytest.mark.parametrize(
    ("parts", "check"),
    [
        ({"block_class": Deaf}, "check_adapted"),
        ({"visible": leaks}, "check_relations"),
        ({"block_class": Forgetful}, "check_relations"),
        ({"block_class": Unused}, "check_gradients"),
    ],
)
def test_the_battery_can_fail(folder, monkeypatch, parts, check):
    monkeypatch.setitem(registry.FAMILIES, "broken", broken(registry.family("bert"), **parts))
    with pytest.raises(AssertionError) as failure:
        battery.check_model("broken", folder)
    assert check in [entry.name for entry in failure.traceback]

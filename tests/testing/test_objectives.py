"""`check_objective` finds the mistakes that an objective's author makes, and none in an objective without them."""

import random as python_random
from types import MappingProxyType

import pytest
import tensorflow as tf
from keras import ops

from kerasbert import registry
from kerasbert.layers import heads
from kerasbert.objectives.base import Objective
from kerasbert.objectives.bert import MaskedLMPretraining
from kerasbert.objectives.causal import CausalLM
from kerasbert.objectives.masked_lm import MaskedLM, mask_tokens
from kerasbert.testing import check_objective
from tests.objectives.learn import OTHERS
from tests.support import ROOT, forgotten, often

PLUGIN = ROOT / "tests" / "plugins" / "left_to_right.py"

pytestmark = pytest.mark.filterwarnings("ignore:Even though the `tf.config")


class Detector(heads.HeadedModel):
    """The encoder's outputs and replaced [B, S], a logit a token."""

    def call(self, inputs, training=False):
        outputs = super().call(inputs, training=training)
        return outputs | {"replaced": self.heads["replaced"](outputs["sequence"], training=training)[..., 0]}


class RandomSubstitution(Objective):
    """A share of the tokens is replaced by random ones; each is asked whether it is one (Di Liello et al., 2022)."""

    packing, targets = "full", "replaced tokens"
    settings_class, model_class = MaskedLM, Detector
    defaults = MappingProxyType({"mask": 0.0, "random": 1.0})
    scales = MappingProxyType({"replaced": 1.0})

    def heads(self, encoder):
        spec = encoder.spec
        head = heads.LabelHead(1, spec.initializer, name="replaced", dtype=encoder.dtype_policy)
        return {"replaced": head}, {"replaced": (None, None, spec.hidden)}

    def draw(self, features):
        return mask_tokens(features, self.settings, tokenizer=self.tokenizer, seed=self.seed)

    def prepare(self, features):
        batch = self.draw(features)
        was = ops.not_equal(batch["token_ids"], features["token_ids"])
        kept = {name: batch[name] for name in ("token_ids", "padding_mask", "segment_ids", "row")}
        return kept | {"replaced": ops.cast(was, "float32"), "weights": ops.cast(batch["padding_mask"], "float32")}

    def counts(self, batch):
        return {"replaced": ops.sum(batch["weights"])}

    def losses(self, batch, training=True):
        logits, target, weights = self.model(batch, training=training)["replaced"], batch["replaced"], batch["weights"]
        nats = ops.relu(logits) - logits * target + ops.log1p(ops.exp(-ops.abs(logits)))
        right = ops.cast(ops.equal(logits > 0, target > 0), "float32")
        return {"replaced": ops.sum(nats * weights), "replaced/accuracy": ops.sum(right * weights)}


class Mean(RandomSubstitution):
    def losses(self, batch, training=True):
        sums = super().losses(batch, training)
        return sums | {"replaced": sums["replaced"] / ops.sum(batch["weights"])}


class Padding(RandomSubstitution):
    def prepare(self, features):
        batch = super().prepare(features)
        return batch | {"weights": ops.ones_like(batch["weights"])}


class PaddingCounted(RandomSubstitution):
    def counts(self, batch):
        return {"replaced": ops.sum(ops.ones_like(batch["weights"]))}


class Leak(RandomSubstitution):
    def prepare(self, features):
        return super().prepare(features) | {"token_ids": features["token_ids"]}


class Across(RandomSubstitution):
    def prepare(self, features):
        batch = super().prepare(features)
        return batch | {"replaced": ops.roll(batch["replaced"], 1, axis=0)}


class Unseeded(RandomSubstitution):
    def draw(self, features):
        seed = python_random.SystemRandom().randrange(2**30)
        return mask_tokens(features, self.settings, tokenizer=self.tokenizer, seed=seed)


class SameForEveryRow(RandomSubstitution):
    def draw(self, features):
        batch = super().draw(dict(features) | {"row": tf.zeros_like(features["row"])})
        return batch | {"row": features["row"]}


class SameForEveryStep(RandomSubstitution):
    def draw(self, features):
        return super().draw(dict(features) | {"step": tf.zeros_like(features["step"])})


class Uncounted(RandomSubstitution):
    def losses(self, batch, training=True):
        sums = super().losses(batch, training)
        return sums | {"accuracy": sums["replaced/accuracy"]}


class Centred(RandomSubstitution):
    """A loss whose rows read each other: logits minus the batch's mean."""

    def losses(self, batch, training=True):
        logits = self.model(batch, training=training)["replaced"]
        nats = ops.square(logits - ops.mean(logits) - batch["replaced"])
        return {"replaced": ops.sum(nats * batch["weights"])}


class Unmasked(MaskedLMPretraining):
    def prepare(self, features):
        return super().prepare(features) | {"token_ids": features["token_ids"]}


class OwnToken(CausalLM):
    """Each token is asked where it stands, not where the one before it stands."""

    def prepare(self, features):
        batch = super().prepare(features)
        return batch | {"labels": batch["token_ids"][:, :-1]}


class OwnTokenWithoutLabels(CausalLM):
    def losses(self, batch, training=True):
        return super().losses(dict(batch) | {"labels": batch["token_ids"][:, :-1]}, training)


MISTAKES = {
    Mean: "replaced of two parts of a batch is .*: give the sum over the rows, no mean",
    Padding: "another token in a padded place changes replaced",
    PaddingCounted: "replaced: with all weights 0 a target costs .* losses and counts count other targets, such as padding",
    Leak: "another draw changes the targets replaced and no input",
    Across: "prepare gives a row other replaced where other rows stand beside it",
    Unseeded: "prepare gives other token_ids, .*at a second call",
    SameForEveryRow: "prepare draws by the seed and not by the row",
    SameForEveryStep: "prepare draws by the seed and not by the step",
    Uncounted: "losses give accuracy without a count: name metrics LOSS/METRIC",
    Centred: "losses: replaced of two parts of a batch is",
    Unmasked: "predictions change with their own target",
    OwnToken: "12 of 12 predictions change with their own target",
    OwnTokenWithoutLabels: "predictions change with their own target",
}


@pytest.fixture
def named():
    """Registers an objective under the name `mine` for one test."""

    def enter(objective):
        registry.OBJECTIVES["mine"] = objective
        return "mine"

    with forgotten():
        yield enter


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("objectives")


DEFAULT = (Mean,)  # found by the first of the checks; in CI one that the reading of the graph finds, and three more


@pytest.mark.parametrize(
    "objective", [*DEFAULT, *often([each for each in MISTAKES if each not in DEFAULT], OwnToken, Leak, Across)]
)
def test_a_mistake_is_told(objective, named, folder):
    model = "gpt" if issubclass(objective, CausalLM) else ""
    with pytest.raises(AssertionError, match=MISTAKES[objective]):
        check_objective(named(objective), folder, model=model, replicas=1)


def test_without_a_mistake_it_passes(named, folder):
    check_objective(named(RandomSubstitution), folder, replicas=1)


# A text that is its own target is shown; BART leaves two thirds of it as they are
SHOWN = {"sequence_autoencoder": 1.0, "structbert": 1.0, "infilling": 0.75}


@pytest.mark.parametrize("name", often(registry.shipped()["objectives"], "bert"))
def test_ours_pass(name, tmp_path):
    check_objective(name, tmp_path, model=OTHERS.get(name, ""), shown=SHOWN.get(name, 0.1), replicas=1)


@pytest.mark.full
def test_two_replicas_of_a_plug_ins_objective(tmp_path):
    """In processes of their own, which load the plug-in too."""
    with forgotten():
        registry.load_plugin(PLUGIN)
        check_objective("left_to_right", tmp_path, model="left-to-right")

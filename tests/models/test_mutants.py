"""Three models that are wrong: the battery refuses each."""

import dataclasses

import pytest

from kerasbert import registry
from kerasbert.layers.encoder import Encoder
from kerasbert.models.bert import BERT
from kerasbert.testing import check_model
from tests.support import forgotten


class SeesPadding(Encoder):
    """What is padded has a say."""

    def visible(self, inputs):
        return None


class KeepsAWeightToItself(Encoder):
    """A weight that nothing is computed with."""

    def build(self, shape=None):
        super().build(shape)
        self.idle = self.add_weight(shape=(3,), name="idle")


class AnswersOtherwiseForTheFirst(Encoder):
    """The first token alone is another than the first of all."""

    def call(self, inputs, training=False, queries=None, attention=False):
        outputs = super().call(inputs, training=training, queries=queries, attention=attention)
        return outputs if queries is None else outputs | {"sequence": outputs["sequence"] * 1.01}


@pytest.mark.slow
@pytest.mark.parametrize("encoder", [SeesPadding, KeepsAWeightToItself, AnswersOtherwiseForTheFirst])
def test_the_battery_refuses(encoder, tmp_path):
    with forgotten():
        registry.register(dataclasses.replace(BERT, name="mutant", encoder=encoder))
        with pytest.raises(AssertionError):
            check_model("mutant", tmp_path)


@pytest.mark.slow
def test_the_model_that_they_are_made_of_passes(tmp_path):
    class Same(Encoder):
        """Nothing is changed."""

    with forgotten():
        registry.register(dataclasses.replace(BERT, name="same", encoder=Same))
        check_model("same", tmp_path)

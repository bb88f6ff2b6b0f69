"""DistilBERT: counts, names, and what it computes against transformers."""

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import models, registry
from kerasbert.layers.heads import LabelHead, MaskedLM
from kerasbert.layers.naming import names
from tests.checkpoints import theirs
from tests.checkpoints.reference import batch
from tests.models.test_bert import SMALL
from tests.support import by_hand

COUNTS = {  # transformers' DistilBertModel
    "distilbert/base": 66362880,
    "distilbert/base-cased": 65190912,
    "distilbert/base-multilingual-cased": 134734080,
}
SIZES = [
    {"vocab_size": 101, "dim": 40, "n_layers": 3, "n_heads": 5, "hidden_dim": 67, "max_position_embeddings": 32},
    {"vocab_size": 11, "dim": 7, "n_layers": 1, "n_heads": 1, "hidden_dim": 3, "max_position_embeddings": 9},
    {"vocab_size": 257, "dim": 36, "n_layers": 4, "n_heads": 4, "hidden_dim": 145, "max_position_embeddings": 64},
]


def inputs(size):
    found = batch(size["vocab_size"])
    del found["segment_ids"]
    return found


@pytest.mark.parametrize("name", COUNTS)
def test_parameters(name):
    family, spec = registry.find(name)
    assert models.parameters(family.encoder, spec) == COUNTS[name]


def test_it_is_bert_without_segments_and_pooler():
    made = kb.build("distilbert/base", **SMALL)
    bert = kb.build("bert/base", **SMALL)
    assert set(names(bert)) - set(names(made)) == {"embeddings/segments/table", "pooler/kernel", "pooler/bias"}
    assert set(names(made)) < set(names(bert))
    outputs = made(batch(101))
    assert set(outputs) == {"sequence", "hidden"}
    # segments are not looked at
    np.testing.assert_array_equal(outputs["sequence"], made(inputs(SIZES[0]))["sequence"])


def test_labels_are_told_by_a_hidden_layer_on_the_first_token():
    from kerasbert.tasks.model import TaskModel
    from kerasbert.tasks.task import Task

    encoder = kb.build("distilbert/base", **SMALL)
    model = TaskModel(encoder, Task("x", labels={"0": "bad", "1": "good"}))
    model.build()
    head = {name for name in names(model) if name.startswith("heads/")}
    assert head == {f"heads/classifier/{name}" for name in ("inner/kernel", "inner/bias", "kernel", "bias")}
    first = np.asarray(encoder(batch(101))["sequence"])[:, 0]
    inner, outer = model.heads["classifier"].inner, model.heads["classifier"]
    expected = np.maximum(first @ np.asarray(inner.kernel.value), 0) @ np.asarray(outer.kernel.value)
    np.testing.assert_allclose(model(batch(101))["logits"], expected, atol=1e-5)


@theirs.parity
class TestParity:
    @pytest.mark.parametrize("size", [SIZES[0], *by_hand(SIZES[1:])], ids=lambda size: f"H{size['dim']}")
    @pytest.mark.parametrize("more", [{"activation": "relu", "sinusoidal_pos_embds": True}, *by_hand([{}])])
    def test_every_hidden_state(self, tmp_path, size, more):
        theirs.same_hidden_states(theirs.make("DistilBertModel", size | more), inputs(size), tmp_path)

    @pytest.mark.full  # as test_parity_random does
    @pytest.mark.parametrize(
        "kind", ["DistilBertModel", "DistilBertForMaskedLM", "DistilBertForSequenceClassification"]
    )
    def test_export(self, tmp_path, kind):
        labels = {"num_labels": 3} if kind.endswith("Classification") else {}
        model = theirs.make(kind, SIZES[0] | labels)
        theirs.same_after_export(model, inputs(SIZES[0]), tmp_path)

    @pytest.mark.parametrize("size", [SIZES[0], *by_hand(SIZES[1:])], ids=lambda size: f"H{size['dim']}")
    def test_predictions_of_tokens(self, tmp_path, size):
        model = theirs.make("DistilBertForMaskedLM", size)
        model.save_pretrained(tmp_path)
        encoder, given = kb.import_checkpoint(tmp_path), inputs(size)
        layer = MaskedLM(size["vocab_size"], size["dim"], name="mlm")
        found = theirs.head(
            encoder, "mlm", layer, encoder(given)["sequence"], encoder.embeddings.tokens.table.value.numpy()
        )
        real = given["padding_mask"].astype(bool)
        theirs.close(found[real], theirs.run(model, given).logits[real])

    def test_labels(self, tmp_path):
        model = theirs.make("DistilBertForSequenceClassification", SIZES[0] | {"num_labels": 3})
        model.save_pretrained(tmp_path)
        encoder, given = kb.import_checkpoint(tmp_path), inputs(SIZES[0])
        head = LabelHead(3, activation="relu", name="classifier")
        found = theirs.head(encoder, "classifier", head, encoder(given)["sequence"][:, 0])
        theirs.close(found, theirs.run(model, given).logits)
        assert encoder.labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_records_of_pairs_are_refused():
    encoder = kb.build("distilbert/base", **SMALL)
    with pytest.raises(
        kb.InputError, match=r"the records ask about pairs \(next_label\) and the model has no pooled vector"
    ):
        registry.objective("masked_lm")(encoder, None, features=["next_label"])

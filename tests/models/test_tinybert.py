"""TinyBERT: BERT in two shapes; released files hold matrices of its distillation."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import models, registry
from tests.checkpoints import theirs
from tests.checkpoints.reference import CONFIG, batch, hf_shapes, random_tensors, write_hf


@pytest.mark.parametrize(("name", "count"), [("tinybert/4x312", 14350248), ("tinybert/6x768", 66955008)])
def test_parameters(name, count):
    family, spec = registry.find(name)
    assert models.parameters(family.encoder, spec) == count


def test_what_distillation_left_behind_is_dropped(tmp_path):
    tensors = random_tensors(
        hf_shapes() | {"fit_dense.weight": (9, 6), "fit_denses.0.weight": (9, 6), "fit_denses.0.bias": (9,)}
    )
    # their configuration has no model_type
    config = {key: value for key, value in CONFIG.items() if key != "model_type"}
    write_hf(tmp_path / "theirs", tensors, config)
    with pytest.raises(kb.InputError, match=r"3 extra: fit_dense.weight"):
        kb.import_checkpoint(tmp_path / "theirs")
    encoder = kb.import_checkpoint(tmp_path / "theirs", model="tinybert", out=tmp_path / "run")
    coverage = kb.import_checkpoint(tmp_path / "theirs", model="tinybert", dry_run=True)
    assert coverage.ignored == ("fit_dense.weight", "fit_denses.0.bias", "fit_denses.0.weight")
    assert set(encoder.heads) == {"mlm", "nsp"}
    kb.export_checkpoint(tmp_path / "run", tmp_path / "back")
    assert json.loads((tmp_path / "back" / "config.json").read_text())["model_type"] == "bert"
    theirs.same_weights(encoder, kb.import_checkpoint(tmp_path / "back", model="tinybert"))


@theirs.parity
class TestParity:
    @pytest.mark.parametrize("seed", range(3))
    def test_every_hidden_state(self, tmp_path, seed):
        size = {"vocab_size": 101, "hidden_size": 24 + 12 * seed, "num_attention_heads": 12, "intermediate_size": 50}
        size |= {"num_hidden_layers": 4 - seed, "max_position_embeddings": 32}
        theirs.same_hidden_states(theirs.make("BertModel", size), batch(101), tmp_path, model="tinybert")

    def test_export(self, tmp_path):
        size = {"vocab_size": 101, "hidden_size": 24, "num_attention_heads": 12, "intermediate_size": 50}
        model = theirs.make("BertForPreTraining", size | {"num_hidden_layers": 2, "max_position_embeddings": 32})
        encoder = theirs.same_after_export(model, batch(101), tmp_path, model="tinybert")
        assert np.isfinite(encoder.heads["mlm"]["bias"]).all()

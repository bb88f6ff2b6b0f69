"""Causal language modelling: GPT-2's, from files of text to a run that goes on."""

import re

import numpy as np
import pytest

from kerasbert import registry, text
from kerasbert.cli import main
from kerasbert.data import Records, write_records
from kerasbert.errors import InputError
from kerasbert.objectives.causal import CausalLM
from kerasbert.testing import battery
from kerasbert.tpu_check.lower import Step
from tests import tiny
from tests.support import shared


def features(ids, total):
    ids, total = np.array(ids, "int32"), np.array(total, "int32")
    return {"token_ids": ids, "segment_lengths": np.stack([total, 0 * total], 1), "row": np.arange(len(ids))}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    subject = battery.Subject("gpt2", tmp_path_factory.mktemp("gpt2"), dropout=0.0)
    return CausalLM(subject.encoder(), subject.tokenizer)


def test_what_is_predicted_by_hand(program):
    batch = program.prepare(features([[5, 6, 7, 8], [9, 10, 3, 3]], [4, 2]))
    assert np.asarray(batch["token_ids"]).tolist() == [[5, 6, 7, 8], [9, 10, 3, 3]]
    assert np.asarray(batch["labels"]).tolist() == [[6, 7, 8], [10, 3, 3]]
    assert np.asarray(batch["weights"]).tolist() == [[1, 1, 1], [1, 0, 0]]
    assert float(program.counts(batch)["lm"]) == 4
    body = program.model.body
    logits = np.asarray(body.logits(body({"token_ids": batch["token_ids"]})["sequence"]), "float64")[:, :-1]
    nats = (
        np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, np.asarray(batch["labels"])[..., None], -1)[..., 0]
    )
    found = program.losses(batch, training=False)
    assert float(found["lm"]) == pytest.approx((nats * np.asarray(batch["weights"])).sum(), rel=1e-5)


def test_padding_changes_no_loss(program):
    """The batch has no mask: what is real stands in front of the padding and does not see it."""
    one, other = features([[5, 6, 7, 3, 3]], [3]), features([[5, 6, 7, 40, 41]], [3])
    one, other = (float(program.losses(program.prepare(x), training=False)["lm"]) for x in (one, other))
    assert one == other


def test_models_that_write_nothing_and_models_that_see_ahead_are_refused(tmp_path):
    subject = battery.Subject("bert", tmp_path)
    with pytest.raises(InputError, match=r"^Encoder is no decoder \(attention\.causal\), and its tokens would see"):
        CausalLM(subject.encoder(), subject.tokenizer)
    causal = battery.Subject("bert", tmp_path, **{"attention.causal": True})
    with pytest.raises(InputError, match="^Encoder writes no tokens, and this objective is for models that do"):
        CausalLM(causal.encoder(), causal.tokenizer)


@pytest.mark.parametrize("packing", ["pairs", "packed"])
def test_rows_of_several_texts_are_refused(packing, tmp_path):
    records = Records(tiny.records(tmp_path, packing))
    with pytest.raises(
        InputError, match=f"packed as '{packing}', and the objective takes rows of one text: make them ag"
    ):
        CausalLM.check(None, records)


@pytest.mark.slow
def test_its_step_is_safe_on_a_tpu_and_keeps_no_logits():
    family, spec = registry.find("gpt2/small")
    spec = spec.derive(battery.tiny(spec, 70_000) | {"blocks.layers": 1, "embeddings.positions": 1024})
    lowered = Step(family, spec, length=1024, replicas=4).lower(2)
    assert lowered.problems == []
    pieces = {int(size) for size in re.findall(r"f32\[(\d+),70000\]", lowered.text)}
    assert max(pieces) == 896  # of the 2,046 places that are predicted


@pytest.mark.slow
def test_data_with_a_tokenizer_without_cls(tmp_path, capsys):
    source = tiny.corpus(tmp_path / "corpus.txt")
    tokenizer = text.load_tokenizer(shared("data/vocab/gpt2-roberta-bpe"))
    assert tokenizer.cls_id is None
    for packing in ("pairs", "full", "packed"):
        with pytest.raises(
            InputError, match=f"^packing '{packing}' begins rows with .* none .*: take --packing stream$"
        ):
            write_records([source], tokenizer, tmp_path / "no", length=16, packing=packing)
    records = write_records([source], tokenizer, tmp_path / "data", length=16)
    assert records.manifest["settings"]["packing"] == "stream"
    rows = records.rows(records.shards[0])[:, :16].ravel()
    documents = sum(bool(part.strip()) for part in source.read_text().split("\n\n"))
    assert (rows == tokenizer.sep_id).sum() - (16 - records.rows(records.shards[0])[-1, 16]) == documents - 1
    arguments = [
        "data",
        source,
        "--tokenizer",
        shared("data/vocab/t5-base"),
        "--packing",
        "doc",
        "--out",
        tmp_path / "no",
    ]
    assert main([*map(str, arguments)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "no").exists()

"""BigBird against transformers: rows over blocks, as it computes them outside of training and in training, where it draws."""

import copy

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import models, registry, text
from kerasbert.checkpoints.directory import built, named_weights
from kerasbert.layers import block_sparse
from kerasbert.tasks.predict import encoded_for, task_logits
from kerasbert.testing.battery import tokenizer
from tests.checkpoints.theirs import close, make, parity, run

COMMON = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
SIZES = (
    ({"block_size": 2, "num_random_blocks": 1, "max_position_embeddings": 64}, (9, 14, 15, 33, 64)),
    ({"block_size": 3, "num_random_blocks": 2, "max_position_embeddings": 63}, (28, 43)),
    ({"block_size": 16, "num_random_blocks": 3, "max_position_embeddings": 1100}, (177, 1010, 1030)),
    ({"block_size": 64, "num_random_blocks": 3, "max_position_embeddings": 1024}, (705, 1024)),
)


def given(length, seed=0):
    generator = np.random.default_rng(seed)
    mask = np.ones((2, length), "int32")
    mask[1, length - 3 :] = 0
    return {
        "token_ids": generator.integers(5, 60, (2, length)).astype("int32"),
        "padding_mask": mask,
        "segment_ids": np.sort(generator.integers(0, 2, (2, length)), axis=1).astype("int32"),
    }


def largest(got, expected, length, real) -> float:
    pairs = zip(got["hidden"], expected.hidden_states, strict=True)
    found = [np.abs(np.asarray(ours)[real] - other.detach().numpy()[:, :length][real]).max() for ours, other in pairs]
    return float(max(*found, np.abs(np.asarray(got["pooled"]) - expected.pooler_output.detach().numpy()).max()))


@parity
@pytest.mark.parametrize("number", range(len(SIZES)))
def test_long_rows(number, tmp_path):
    size, lengths = SIZES[number]
    their = make("BigBirdModel", COMMON | size, seed=number)
    their.save_pretrained(tmp_path)
    first = kb.import_checkpoint(tmp_path)
    assert first.spec.sparse.plan == "first"
    paper = built(registry.family("bigbird"), first.spec.derive({"sparse.plan": "drawn"}))
    for name, weight in named_weights(paper).items():
        weight.assign(named_weights(first)[name].value)
    for length in lengths:
        told = given(length, number)
        real = told["padding_mask"].astype(bool)
        for ours, training in ((first, False), (paper, True)):
            their.set_attention_type("block_sparse")  # a short row sets it to original_full for good
            expected = run(their.train(training), told, output_hidden_states=True)
            assert (their.attention_type == "original_full") == (length <= first.spec.sparse.limit)
            found = ours(told)
            assert largest(found, expected, length, real) <= 1e-5
            assert largest(ours(told, attention=True), expected, length, real) <= 1e-5


@parity
@pytest.mark.parametrize(("longest", "size", "count"), [(4096, 64, 3), (1024, 64, 3), (3072, 32, 2)])
def test_the_plan_is_theirs(longest, size, count):
    """Of three layers and both ways to draw, block by block."""
    from transformers import BigBirdConfig
    from transformers.models.big_bird import modeling_big_bird as theirs

    sizes = {"max_position_embeddings": longest, "block_size": size, "num_random_blocks": count}
    for seed in range(3):
        attention = theirs.BigBirdBlockSparseAttention(BigBirdConfig(**sizes), seed).train()
        sparse = block_sparse.Sparse(size, count)
        usual, released = block_sparse.plans(sparse, 12, longest, seed)
        np.random.seed(seed)
        drawn = [
            attention._bigbird_block_rand_mask(longest, longest, size, size, count, last_idx=1024) for _ in range(12)
        ]
        np.testing.assert_array_equal(released, drawn)
        for length in {sparse.limit + size, longest - size}:
            if length > sparse.limit:
                np.random.seed(seed)
                lengths, counts = attention._get_rand_attn_plan(length, size, count)
                drawn = attention._bigbird_block_rand_mask_with_head(length, length, size, size, 12, lengths, counts)
                np.testing.assert_array_equal(usual[:, : length // size - 2], drawn)


@parity
def test_full_attention_in_rows_of_any_length(tmp_path):
    make("BigBirdModel", COMMON | SIZES[0][0] | {"attention_type": "original_full"}).save_pretrained(
        tmp_path / "theirs"
    )
    ours = kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "ours")
    assert ours.spec.sparse.plan == "full"
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "back")
    assert kb.import_checkpoint(tmp_path / "back").spec == ours.spec
    assert '"attention_type": "original_full"' in (tmp_path / "back/config.json").read_text()


@parity
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_answers_by_a_network_of_its_own(seed, tmp_path):
    """Theirs numbers the segments itself, as a tokenizer without any does not, and takes the question's tokens out."""
    import torch

    own = tokenizer("unigram", "albert")
    config = COMMON | SIZES[seed % len(SIZES)][0] | {"vocab_size": own.size, "attention_type": "original_full"}
    config |= {"sep_token_id": own.sep_id, "bos_token_id": own.cls_id, "pad_token_id": own.pad_id}
    their = make("BigBirdForQuestionAnswering", config, seed)
    their.save_pretrained(tmp_path / "theirs")
    plain = copy.copy(own)
    plain.template = tuple(text.replace(":1", "") for text in own.template)
    text.save_hf(plain, tmp_path / "theirs" / "tokenizer.json")
    kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "ours")
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "back")
    back, loading = type(their).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(loading[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys")), loading
    model = kb.load(tmp_path / "ours")
    rows = encoded_for(model, [("the film", "the cat sees the good river")], None)
    batch = rows.arrays([0], 64, lengths=[rows.rows[0].length])
    assert batch["segment_ids"].max() == 1
    context = slice(rows.rows[0].about.place, rows.rows[0].about.place + rows.rows[0].about.count)
    for each in (their, back.eval()):
        with torch.no_grad():
            expected = each(torch.tensor(batch["token_ids"]).long(), torch.tensor(batch["padding_mask"]).long())
        found = task_logits(model, batch)
        for i, logits in enumerate((expected.start_logits, expected.end_logits)):
            close(found[:, context, i], logits[:, context])
            close(found[:, 0, i], logits[:, 0])


@parity
@pytest.mark.parametrize("size", ["base", "large"])
def test_the_count_is_theirs(size):
    import torch
    from transformers import BigBirdConfig, BigBirdModel

    family, spec = registry.find(f"bigbird/{size}")
    sizes = {
        "hidden_size": spec.hidden,
        "num_hidden_layers": spec.blocks.layers,
        "num_attention_heads": spec.attention.heads,
        "intermediate_size": spec.feedforward.width,
    }
    with torch.device("meta"):
        count = sum(weight.numel() for weight in BigBirdModel(BigBirdConfig(**sizes)).parameters())
    assert models.parameters(family.encoder, spec) == count

"""TSDAE: what is deleted, that the decoder knows of the sentence what its vector holds alone, and sentence-transformers' loss."""

import json

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.objectives.tsdae import Settings, Tsdae
from tests import tiny
from tests.checkpoints import theirs
from tests.checkpoints.theirs import parity

LENGTH = 20


def rows(count=6):
    """Records' features of sentences of different lengths."""
    tokenizer = tiny.tokenizer()
    packed = [tokenizer.pack(text)[0][:LENGTH] for text in tiny.sentences(count, 5)]
    ids = np.array([each + [tokenizer.pad_id] * (LENGTH - len(each)) for each in packed], "int32")
    lengths = np.array([[len(each), 0] for each in packed], "int32")
    features = {"token_ids": ids, "segment_lengths": lengths, "row": np.arange(count, dtype="int32"), "step": 3}
    return {name: tf.constant(value) for name, value in features.items()}


def objective(**settings):
    encoder = kb.build("bert/tiny", **tiny.SPEC | {"blocks.layers": 2, "dropout": 0.0, "attention.dropout": 0.0})
    return Tsdae(encoder, tiny.tokenizer(), settings=Settings(**settings))


def test_the_encoder_sees_two_fifths_of_the_tokens_and_the_decoder_writes_all():
    made, features = objective(), rows()
    batch = {name: value.numpy() for name, value in made.prepare(features).items()}
    ids, totals = features["token_ids"].numpy(), features["segment_lengths"].numpy().sum(1)
    for row, total in enumerate(totals):
        whole, kept = ids[row, :total].tolist(), batch["padding_mask"][row].sum()
        seen = batch["token_ids"][row, :kept].tolist()
        assert (seen[0], seen[-1]) == (whole[0], whole[-1])
        assert kept == total - round(0.6 * (total - 2))
        rest = iter(whole)
        assert all(token in rest for token in seen)  # in their order
        assert (batch["token_ids"][row, kept:] == tiny.tokenizer().pad_id).all()
        assert batch["decoder_token_ids"][row, : total - 1].tolist() == whole[:-1]
        assert batch["labels"][row, : total - 1].tolist() == whole[1:]
        assert batch["weights"][row].sum() == total - 1
    other = made.prepare(features | {"step": tf.constant(4)})["token_ids"].numpy()
    assert (other != batch["token_ids"]).any()
    same = objective(deletion=0.0).prepare(features)
    np.testing.assert_array_equal(same["token_ids"], ids)


def test_what_is_written_depends_on_the_vector_and_on_the_tokens_before():
    made, features = objective(pooling="first"), rows(2)
    batch, drawn = made.prepare(features), np.random.default_rng(0)
    for weight in made.model.heads["decoder"].trainable_weights:
        weight.assign(drawn.normal(0, 0.3, weight.shape))
    vectors = drawn.normal(size=(2, made.model.spec.hidden)).astype("float32")
    told = made.written(batch["decoder_token_ids"], vectors).numpy()
    changed = batch["decoder_token_ids"].numpy()
    changed[:, 4:] = 7
    np.testing.assert_allclose(made.written(changed, vectors).numpy()[:, :4], told[:, :4], atol=1e-5)
    assert np.abs(made.written(changed, vectors).numpy()[:, 4:] - told[:, 4:]).max() > 1e-2
    assert np.abs(made.written(batch["decoder_token_ids"], vectors[::-1]).numpy() - told).max(axis=(1, 2)).min() > 1e-2
    with tf.GradientTape() as tape:
        loss = made.losses(batch)["lm"]
    gradient = tape.gradient(loss, made.model.heads["decoder"].layers[1][0].kernel.value)
    assert np.abs(gradient).max() > 0


def test_settings_and_encoders_that_do_not_go_with_it_are_refused():
    for settings, message in (({"deletion": 1.0}, "deletion 1.0"), ({"pooling": "mean+max"}, "one vector of a row")):
        with pytest.raises(InputError, match=message):
            Settings(**settings)
    with pytest.raises(InputError, match="readout must be one of"):
        Settings(pooling="middle")
    for name, more in (("gpt", {}), ("modernbert", {}), ("bert", {"attention.causal": True})):
        encoder = kb.build(f"{name}/base", **tiny.SPEC | {"blocks.layers": 1, **more})
        with pytest.raises(InputError, match="other blocks than BERT's"):
            Tsdae(encoder, tiny.tokenizer())


@pytest.mark.slow
def test_lines_of_text_train_an_encoder_that_gives_vectors(tmp_path):
    """Lines -> pretrain --on-task simcse --objective tsdae -> encode; what is written comes closer to the sentences."""
    from kerasbert.cli import main

    encoder = kb.build("bert/tiny", **tiny.SPEC | {"embeddings.vocabulary": tiny.tokenizer().size})
    encoder.tokenizer = tiny.tokenizer()
    kb.save(encoder, tmp_path / "model")
    (tmp_path / "lines.txt").write_text("\n".join(tiny.sentences(64, 1)) + "\n")
    words = [
        "--on-task",
        "simcse",
        "--objective",
        "tsdae",
        "--length",
        "24",
        "--batch",
        "16",
        "--learning-rate",
        "3e-3",
    ]
    words += ["--steps", "60", "--log-every", "10", "--set", "objective.pooling=first", "--quiet"]
    given = ["pretrain", str(tmp_path / "model"), "--data", str(tmp_path / "lines.txt"), "--out", str(tmp_path / "run")]
    assert main([*given, *words]) == 0
    logs = [json.loads(line)["lm"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert logs[-1] < 0.85 * logs[0]
    texts = tiny.sentences(5, 9)
    before, after = (kb.encode(path, texts, pooling="first") for path in (encoder, tmp_path / "run"))
    assert after.shape == (5, encoder.spec.hidden)
    assert np.abs(before - after).max() > 0.1


@parity
@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_loss_and_gradients_are_those_of_sentence_transformers(pooling, tmp_path):
    pytest.importorskip("sentence_transformers")
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses, modules

    from tests.training.test_loss_parity import SIZES

    theirs.make("BertForMaskedLM", SIZES | {"num_hidden_layers": 2}).save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(tiny.tokenizer().vocabulary) + "\n")
    theirs.transformers().BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    pooled = modules.Pooling(SIZES["hidden_size"], {"first": "cls"}.get(pooling, pooling))
    model = SentenceTransformer(modules=[modules.Transformer(str(tmp_path)), pooled], device="cpu").train()
    loss_of = losses.DenoisingAutoEncoderLoss(model, tie_encoder_decoder=True)
    layers = loss_of.decoder.bert.encoder.layer
    with torch.no_grad():
        for layer in layers:
            for weight in layer.crossattention.parameters():
                weight.normal_(0, 0.2)
    encoder = kb.import_checkpoint(tmp_path)
    made, features = Tsdae(encoder, tiny.tokenizer(), settings=Settings(pooling=pooling)), rows()
    given = {weight.path.partition("mlm/")[2]: weight for weight in made.model.heads["mlm"].weights}
    for name, value in encoder.heads["mlm"].items():
        given[name].assign(value)
    crosses = made.model.heads["decoder"]
    for layer, (value, output, norm, _) in zip(layers, crosses.layers, strict=True):
        crossed = layer.crossattention
        for other, mapped in ((crossed.self.value, value), (crossed.output.dense, output)):
            mapped.kernel.assign(other.weight.detach().numpy().T)
            mapped.bias.assign(other.bias.detach().numpy())
        norm.gamma.assign(crossed.output.LayerNorm.weight.detach().numpy())
        norm.beta.assign(crossed.output.LayerNorm.bias.detach().numpy())
    batch = made.prepare(features)
    own = [encoder.embeddings.tokens.table, encoder.blocks[0].attention.value.kernel]
    own += [crosses.layers[1][0].kernel, made.model.heads["mlm"].bias]
    with tf.GradientTape() as tape:
        loss = made.losses(batch)["lm"] / made.counts(batch)["lm"]
    gradients = tape.gradient(loss, [weight.value for weight in own])
    whole, lengths = features["token_ids"].numpy(), features["segment_lengths"].numpy().sum(1, keepdims=True)
    read = [(batch["token_ids"].numpy(), batch["padding_mask"].numpy()), (whole, np.arange(LENGTH)[None] < lengths)]
    named = [{"input_ids": torch.tensor(ids).long(), "attention_mask": torch.tensor(mask).long()} for ids, mask in read]
    expected = loss_of(named, None)
    expected.backward()
    assert abs(float(loss) - float(expected.detach())) < 1e-5
    others = [loss_of.decoder.bert.embeddings.word_embeddings.weight, layers[0].attention.self.value.weight]
    others += [layers[1].crossattention.self.value.weight, loss_of.decoder.cls.predictions.bias]
    for gradient, other, transposed in zip(gradients, others, (False, True, True, False), strict=True):
        wanted = other.grad.numpy().T if transposed else other.grad.numpy()
        np.testing.assert_allclose(tf.convert_to_tensor(gradient).numpy(), wanted, atol=1e-5)
        assert np.abs(wanted).max() > 5e-4  # far above what they may differ by

"""BERT2BERT and its kin: counts, what begins with which weights, what is shared, who sees whom, what an import refuses."""

import json

import keras
import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.models import bert2bert
from kerasbert.models.bert2bert import BEGINNINGS, BERT2BERT, SUBLAYERS
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import find_task
from kerasbert.testing import battery, generating
from tests import tiny
from tests.checkpoints.theirs import same_weights
from tests.support import close

SPEC = tiny.SPEC | {"embeddings.vocabulary": tiny.tokenizer().size, "initializer": 0.3}
ROWS = [
    ("the cat", "le chat"),
    ("a river", "une riviere"),
    ("old stone", "vieille pierre"),
    ("the old", "le vieux"),
] * 4


def encoder(name: str = "bert/tiny", **changes):
    """With numbers of its own in every weight, and a head of masked tokens."""
    model = kb.build(name, **SPEC | changes)
    model.tokenizer, draw = tiny.tokenizer(), np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(draw.normal(size=weight.shape) * 0.3)
    hidden, rows = model.spec.hidden, model.spec.embeddings.vocabulary
    shapes = {"transform/kernel": (hidden, hidden), "transform/bias": (hidden,), "bias": (rows,)}
    shapes |= {"norm/gamma": (hidden,), "norm/beta": (hidden,)}
    model.heads = {"mlm": {name: draw.normal(size=shape).astype("float32") for name, shape in shapes.items()}}
    return model


def two(share: str, **changes):
    """A tiny BERT2BERT, every weight N(0, 0.3)."""
    keras.utils.set_random_seed(0)
    model = kb.build("bert2bert/tiny", **SPEC | {"share": share, "blocks.layers": 2} | changes)
    draw = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(draw.normal(size=weight.shape) * 0.3)
    return model


def rows() -> dict:
    draw = np.random.default_rng(2)
    source, target = (draw.integers(5, 30, (3, length)).astype("int32") for length in (8, 6))
    masks = [(np.arange(length) < length - np.arange(3)[:, None]).astype("int32") for length in (8, 6)]
    found = {"token_ids": source, "padding_mask": masks[0]}
    return found | {"decoder_token_ids": target, "decoder_padding_mask": masks[1]}


def test_counts_are_the_papers_with_the_map_before_the_output():
    """Table 2: 221 and 136 million of a base; here with the output's map, norm and bias."""
    index = {row["name"]: row["parameters"] for row in registry.shipped()["models"]}
    block, crossed = 7_087_872, 4 * (768 * 768 + 768) + 2 * 768
    embeddings, output = (30522 + 512 + 2 + 2) * 768, 768 * 768 + 3 * 768 + 30522
    assert index["bert2bert/base"] == embeddings + 12 * (2 * block + crossed) + output
    assert index["bert2bert/base-share"] == embeddings + 12 * (block + crossed) + output
    assert round((index["bert2bert/base"] - output) / 1e6) == 222
    assert index["bert-generation/large"] > index["bert2bert/large"]  # two tables of more pieces


@pytest.mark.parametrize("begun", BEGINNINGS)
def test_what_begins_with_the_encoders_weights(begun):
    of = encoder()
    had, made = names(of), BERT2BERT.made_of["bert"](of, None, begun)
    assert (made.model_name.partition("/")[0], made.tokenizer) == ("bert2bert", of.tokenizer)
    assert made.spec.share == ("all" if begun == "bertshare" else "embeddings")
    begins = {"new": set(), "old": set()}
    for name, weight in names(made).items():
        side, _, rest = name.partition("/")
        other = had[rest] if rest in had else of.heads["mlm"].get(rest) if side == "output" else None
        same = other is not None and np.array_equal(np.asarray(other), weight.numpy())
        if "_norm" not in name and not name.endswith("bias"):  # which begin at 1 and 0 whatever they are of
            begins["old" if same else "new"].add(
                "cross" if "cross_attention" in name else f"{side}/{rest.split('/')[0]}"
            )
    decoder = set() if begun == "bertshare" else {"decoder/block_0"}
    warm = {
        "bert2bert": {"encoder/block_0", *decoder, "output/transform"},
        "bertshare": {"encoder/block_0", "output/transform"},
        "bert2rnd": {"encoder/block_0"},
        "rnd2bert": {"decoder/block_0", "output/transform"},
    }[begun]
    assert begins["old"] - {"output/norm"} == {"encoder/embeddings", *warm}
    assert begins["new"] - {"output/norm"} == {"encoder/block_0", *decoder, "output/transform", "cross"} - warm


def test_roberta_has_its_own_and_other_families_are_refused():
    task = find_task("generation").optioned({"decoder": "bertshare"})
    options = task.how.of_family(task, registry.family("xlm-roberta")).options
    assert (options["start"], options.get("masked", False)) == ("cls", False)
    made = registry.family("roberta2roberta").made_of["roberta"](encoder("roberta/base"), None)
    assert (made.spec.embeddings.offset, made.spec.epsilon, made.head.activation) == (2, 1e-5, "gelu")
    for name, line in (
        ("deberta", "decoder=bertshare makes an encoder-decoder of bert, .*unilm.*, and not of deberta: leave it out"),
        ("gpt2", "decoder=bertshare is given and gpt2 is of kind 'decoder', which writes itself: leave it out"),
        (
            "bert2bert",
            "decoder=bertshare is given and bert2bert is of kind 'seq2seq', which writes itself: leave it out",
        ),
    ):
        with pytest.raises(InputError, match=line):
            task.how.of_family(task, registry.family(name))
    with pytest.raises(
        InputError, match="option decoder is 'bert', expected one of alone, bert2bert, bertshare, bert2rnd"
    ):
        find_task("generation").optioned({"decoder": "bert"})


def test_every_family_that_is_made_has_berts_blocks():
    for family in (registry.family("bert2bert"), registry.family("roberta2roberta")):
        for name in family.made_of:
            of = registry.family(name)
            assert type(of.spec) is type(registry.family("bert").spec)
            assert (of.encoder.block_class, of.encoder.token_head) == (None, family.encoder.token_head), name


def test_what_is_shared_is_one_weight():
    apart, tables, every = (two(share) for share in ("none", "embeddings", "all"))
    counts = [model.count_params() for model in (apart, tables, every)]
    table = sum(int(np.prod(w.shape)) for name, w in names(apart).items() if name.startswith("decoder/embeddings/"))
    assert counts[0] - counts[1] == table
    assert {name.split("/")[2] for name in names(every) if name.startswith("decoder/")} == {
        "cross_attention",
        "cross_attention_norm",
    }
    for block, other in zip(every.encoder_stack.blocks, every.decoder_stack.blocks, strict=True):
        assert all(getattr(block, name) is getattr(other, name) for name in SUBLAYERS)
    assert tables.encoder_stack.blocks[0].attention is not tables.decoder_stack.blocks[0].attention


def test_embeddings_without_a_norm_are_the_sum_of_the_tables():
    """As in the encoder that the model is made of (`embeddings.norm`)."""
    model, read = two("none", **{"embeddings.norm": False}), rows()
    tables = model.encoder_stack.embeddings
    expected = (
        tables.tokens.table.numpy()[read["token_ids"]] + tables.positions.table.numpy()[: read["token_ids"].shape[1]]
    )
    got = model.encoder_stack.embed(read["token_ids"])
    close(got, expected + tables.segments.table.numpy()[0])
    assert np.isfinite(model(read)["sequence"]).all()


def test_a_target_sees_its_past_and_a_step_is_what_is_learnt_at_its_place():
    """Where the encoder's blocks are the decoder's too, and see all there; the battery has the others."""
    model, inputs = two("all"), rows()
    whole = np.asarray(model.logits(model(inputs)["sequence"]))
    for place in (0, 2, 5):
        other = inputs | {"decoder_token_ids": inputs["decoder_token_ids"].copy()}
        other["decoder_token_ids"][:, place] += 1
        changed = np.abs(np.asarray(model.logits(model(other)["sequence"])) - whole).max(axis=2)
        assert (changed[:, :place] == 0).all()
        assert (changed[0, place:] > 0).all()  # the row without padding
    generating.check_two_stacks(model, inputs, 2, battery.relative)
    generating.check_steps(model, inputs, battery.relative)
    # what is learnt: products with the table, the bias among them
    products = np.asarray(model.scaled(model(inputs)["sequence"])) @ np.asarray(model.output_rows).T
    np.testing.assert_allclose(products, whole, rtol=0, atol=1e-4)


def test_settings_that_no_bert_has_are_refused(monkeypatch):
    for changes, line in (
        ({"share": "some"}, "share must be one of none, embeddings, all. Received: 'some'"),
        ({"share": "all", "decoder.layers": 1}, r"decoder.layers is 1, expected 2 \(blocks.layers\)"),
        ({"blocks.norm": "pre"}, "blocks.norm must be 'post', as of BERT. Received: 'pre'"),
    ):
        with pytest.raises(InputError, match=line):
            BERT2BERT.spec.derive(SPEC | {"blocks.layers": 2} | changes)
    with pytest.raises(
        InputError, match="the encoder is adapted .* kerasbert import RUN --model bert2bert/base --out DIR"
    ):
        BERT2BERT.made_of["bert"](encoder(**{"lora.rank": 2}))
    monkeypatch.setattr(bert2bert, "names", lambda model: names(model) | {"extra/kernel": 0})
    with pytest.raises(InputError, match="bert has extra/kernel, which bert2bert has no place for"):
        BERT2BERT.made_of["bert"](encoder())
    task = find_task("generation").optioned({"decoder": "bert2rnd", "target_length": 8})
    task = task.how.of_family(task, registry.family("bert"))
    with pytest.raises(
        InputError, match="decoder is 'bert2rnd' and the model a bert: finetune makes the one of the other"
    ):
        TaskModel(encoder(), task)  # the second of several tasks


def test_finetune_makes_it_and_says_so(tmp_path, capsys):
    from kerasbert.checkpoints import save_model

    of = encoder()
    save_model(tmp_path / "bert", encoder=of, name="bert/tiny", tokenizer=of.tokenizer, heads=of.heads)
    about = {"steps": 1, "learning_rate": 1e-30, "length": 24, "data": {"train": ROWS[:4], "dev": ROWS[:1]}}
    changes = {"task.target_length": 4, "task.decoder": "bertshare"}
    with battery.eagerly():
        kb.finetune(tmp_path / "bert", "generation", out=tmp_path / "run", changes=changes, **about)
    told = capsys.readouterr().err
    assert "a bert2bert is made of bert/tiny" in told
    assert "starts at random" not in told
    model = kb.load(tmp_path / "run")
    assert (model.encoder.model_name, model.encoder.spec.share, model.task.options["start"]) == (
        "bert2bert",
        "all",
        "cls",
    )
    own = names(model.encoder)
    np.testing.assert_allclose(own["output/bias"], of.heads["mlm"]["bias"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(own["encoder/embeddings/tokens/table"], of.embeddings.tokens.table, rtol=0, atol=1e-6)
    with battery.eagerly():
        assert len(kb.predict(model, ["the cat"], options={"target_length": 3})) == 1
    for more, line in (
        ({"changes": changes | {"task.decoder": "bert2bert"}}, "task"),
        ({"changes": changes, "keep_head": True, "out": tmp_path / "other"}, "keep_head"),
        ({"changes": changes | {"lora.rank": 2}, "out": tmp_path / "other"}, "the encoder is adapted"),
    ):
        with pytest.raises(InputError, match=line), battery.eagerly():
            kb.finetune(tmp_path / "bert", "generation", **({"out": tmp_path / "run"} | about | more))


def test_import_makes_it_of_a_directory_with_its_head(tmp_path, capsys):
    from kerasbert.checkpoints import save_model

    of = encoder()
    save_model(tmp_path / "bert", encoder=of, name="bert/tiny", tokenizer=of.tokenizer, heads=of.heads)
    made = kb.import_checkpoint(tmp_path / "bert", model="bert2bert/base-share", out=tmp_path / "two")
    assert made.spec.share == "all"
    np.testing.assert_array_equal(made.head.bias, of.heads["mlm"]["bias"])
    assert "starts at random" not in capsys.readouterr().err


# Checkpoints


def exported(model, folder):
    """Their folder of a model of ours, its configuration and its tensors."""
    model.tokenizer = tiny.tokenizer()
    kb.save(model, folder / "ours")
    kb.export_checkpoint(folder / "ours", folder / "theirs")
    tensors = Safetensors(folder / "theirs" / "model.safetensors")
    values = {name: tensors.read(name) for name in tensors.names()}
    return folder / "theirs", json.loads((folder / "theirs" / "config.json").read_text()), values


def written(folder, config, values) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {name: value.shape for name, value in values.items()}
    write_safetensors(folder / "model.safetensors", shapes, values.__getitem__, {"format": "pt"})


@pytest.mark.parametrize("share", ["embeddings", "all"])
def test_shared_weights_are_written_twice_and_read_once(share, tmp_path):
    model = two(share)
    folder, config, values = exported(model, tmp_path)
    assert config["tie_encoder_decoder"] == (share == "all")
    assert config["decoder_start_token_id"] == tiny.tokenizer().cls_id
    assert (config["decoder"]["is_decoder"], config["encoder"]["is_decoder"]) == (True, False)
    mine, other = (values[f"{side}.embeddings.word_embeddings.weight"] for side in ("encoder", "decoder.bert"))
    assert np.array_equal(mine, other)
    back = kb.import_checkpoint(folder)
    assert back.spec.share == ("all" if share == "all" else "none")  # no key tells that tables are one
    inputs = rows()
    np.testing.assert_array_equal(back(inputs)["sequence"], model(inputs)["sequence"])
    if share == "all":
        same_weights(back, model)
        # as transformers before 5 writes what it ties
        kept = {
            name: value for name, value in values.items() if not name.startswith("decoder.bert.") or ".cross" in name
        }
        written(folder, config, kept)
        same_weights(kb.import_checkpoint(folder), model)
        name = "decoder.bert.encoder.layer.0.output.dense.bias"
        written(folder, config, values | {name: values[name] + 1})
        with pytest.raises(InputError, match=f"{name} in .* differs from encoder.encoder.layer.0.output.dense.bias"):
            kb.import_checkpoint(folder)


def test_robertas_padding_is_piece_1_in_both_tables(tmp_path):
    """From which transformers counts positions; ours is piece 0, and the two rows change places."""
    model = kb.build("roberta2roberta/base", **SPEC | {"share": "none"})
    _, config, values = exported(model, tmp_path)
    assert [config["pad_token_id"], *(config[half]["pad_token_id"] for half in ("encoder", "decoder"))] == [1, 1, 1]
    for stack, theirs in ((model.encoder_stack, "encoder"), (model.decoder_stack, "decoder.roberta")):
        table, other = stack.embeddings.tokens.table.numpy(), values[f"{theirs}.embeddings.word_embeddings.weight"]
        np.testing.assert_array_equal(other, table[[1, 0, *range(2, len(table))]])


OLDER = {  # what transformers 3 and 4 write of each half beside
    "add_cross_attention": True,
    "bad_words_ids": None,
    "chunk_size_feed_forward": 0,
    "cross_attention_hidden_size": None,
    "gradient_checkpointing": False,
    "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
    "label2id": {"LABEL_0": 0, "LABEL_1": 1},
    "max_length": 20,
    "num_beams": 1,
    "position_embedding_type": "absolute",
    "pruned_heads": {},
    "tf_legacy_loss": False,
    "tie_encoder_decoder": False,
    "tie_word_embeddings": True,
    "torchscript": False,
    "use_bfloat16": False,
    "use_cache": True,
    "xla_device": None,
}


def test_every_key_of_both_halves_is_read_listed_told_or_refused(tmp_path, capsys):
    folder, config, values = exported(two("none"), tmp_path)
    halves = {
        "encoder": OLDER | config["encoder"] | {"add_cross_attention": False},
        "decoder": OLDER | config["decoder"],
        "vocab_size": config["decoder"]["vocab_size"],
    }
    written(folder, config | halves, values)
    capsys.readouterr()
    kb.import_checkpoint(folder)
    unread = f"encoder.pooler.dense.* ({folder.name})"  # tensors of a pooler that nothing reads, and no key
    length, rest = capsys.readouterr().err.splitlines()
    assert "no length, which transformers' generate takes as 20" in length
    assert rest == f"not used: {unread}"

    def changed(half, **more):
        written(folder, config | halves | {half: halves[half] | more}, values)

    changed("decoder", colour="red", num_beams=4)
    kb.import_checkpoint(folder)
    assert f"not used: {unread}; decoder.num_beams, decoder.colour (config.json)" in capsys.readouterr().err
    for half, more, line in (
        ("encoder", {"model_type": "vit"}, "has encoder.model_type 'vit', expected 'bert': no such model here"),
        ("decoder", {"model_type": "gpt2"}, "has decoder.model_type 'gpt2', expected 'bert': no such model here"),
        ("decoder", {"hidden_size": 99}, "has decoder.hidden_size 99, expected .*: no such model here"),
        ("decoder", {"layer_norm_eps": 0.5}, "has decoder.layer_norm_eps 0.5, expected 1e-12"),
        ("decoder", {"hidden_act": "relu"}, "has decoder.hidden_act 'relu', expected 'gelu'"),
        ("decoder", {"is_decoder": False}, "has decoder.is_decoder False, expected True"),
        ("encoder", {"is_decoder": True}, "has encoder.is_decoder True, expected False"),
        ("decoder", {"tie_word_embeddings": False}, "has decoder.tie_word_embeddings False, expected True"),
        ("decoder", {"cross_attention_hidden_size": 32}, "has decoder.cross_attention_hidden_size 32, expected none"),
        ("encoder", {"position_embedding_type": "relative_key"}, "has encoder.position_embedding_type 'relative_key'"),
    ):
        changed(half, **more)
        with pytest.raises(InputError, match=line):
            kb.import_checkpoint(folder)
    written(folder, config | halves | {"decoder_start_token_id": 0}, values)
    with pytest.raises(
        InputError, match="has decoder_start_token_id 0, expected .*: the decoder starts with that here"
    ):
        kb.import_checkpoint(folder)
    written(folder, {**config, "decoder": "bert"}, values)
    with pytest.raises(InputError, match="lacks decoder.vocab_size"):
        kb.import_checkpoint(folder)

"""Directories of sentence-transformers: what is read of them, and what is refused."""

import json

import numpy as np
import pytest

from kerasbert.checkpoints import cross_encoders, sentence_transformers
from kerasbert.checkpoints.safetensors import write_safetensors
from kerasbert.errors import InputError
from kerasbert.spec import Spec
from tests import tiny

SPEC = Spec().derive(tiny.SPEC)


SIX = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
}
"""Types as release 6.2 writes them."""
TEXT = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}


def read(path, tokenizer=None):
    """The task of a folder, and the folder opened."""
    theirs = sentence_transformers.opened(path)
    theirs.tokenizer(tokenizer)
    return theirs.task(SPEC, None, 0), theirs


def folder(path, types=("Transformer", "Pooling"), paths=("", "1_Pooling"), pooling=None, settings=None, files=None):
    for place in paths:
        (path / place).mkdir(parents=True, exist_ok=True)
    rows = [
        {"idx": i, "name": str(i), "path": p, "type": t if "." in t else f"sentence_transformers.models.{t}"}
        for i, (t, p) in enumerate(zip(types, paths))
    ]
    (path / "modules.json").write_text(json.dumps(rows))
    if "1_Pooling" in paths:
        (path / "1_Pooling" / "config.json").write_text(json.dumps(pooling or {"pooling_mode_mean_tokens": True}))
    for name, content in (files or {}).items():
        (path / name).write_text(json.dumps(content))
    if settings:
        (path / paths[0] / "sentence_bert_config.json").write_text(json.dumps(settings))
    return path


@pytest.mark.parametrize(
    "pooling", ["mean", "first", "max", "mean_sqrt_len", "last", "weighted_mean", "first+mean", "mean+first"]
)
@pytest.mark.parametrize("normalize", [False, True])
def test_what_is_written_is_read(tmp_path, pooling, normalize):
    task = {"options": {"pooling": pooling, "normalize": normalize, "loss": "cosine"}, "length": 24}
    sentence_transformers.write(tmp_path, task, SPEC)
    wanted = {"pooling": pooling} | ({"normalize": True} if normalize else {})
    assert read(tmp_path)[0] == {
        "kind": "vector",
        "inputs": "text",
        "options": wanted,
        "length": 24,
    }
    assert (tmp_path / "2_Normalize").is_dir() == normalize


def test_other_layouts_of_theirs(tmp_path):
    assert sentence_transformers.opened(tmp_path) is None
    old = folder(tmp_path / "old", paths=("0_Transformer", "1_Pooling"), settings={"max_seq_length": 128})
    assert sentence_transformers.opened(old).transformer == old / "0_Transformer"
    assert read(old)[0]["length"] == 32  # all the positions there are
    new = folder(tmp_path / "new", pooling={"pooling_mode": "cls", "word_embedding_dimension": 16})
    assert read(new)[0]["options"] == {"pooling": "first"}
    none = folder(tmp_path / "none", pooling={"word_embedding_dimension": 16})
    assert read(none)[0]["options"] == {"pooling": "mean"}  # theirs where no mode is named


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"types": ("Transformer", "Dense"), "paths": ("", "1_Pooling")},
            "modules Transformer, Dense, expected Transformer",
        ),
        ({"pooling": {"pooling_mode": ["cls", "median"]}}, "pools by cls and median, expected one of cls_token"),
        ({"pooling": {"pooling_mode": []}}, "pools by nothing, expected one of cls_token"),
        (
            {"pooling": {"pooling_mode_mean_tokens": True, "word_embedding_dimension": 8}},
            "is for vectors of 8, the model's have 16",
        ),
        ({"paths": ("../outside", "1_Pooling")}, "names a folder outside of"),
        ({"settings": {"do_lower_case": True}}, "lower-cases texts before the tokenizer, which keeps case"),
    ],
)
def test_what_is_not_computed_is_refused(tmp_path, settings, message):
    class Cased:
        lowercase, kind = False, "byte_bpe"

    with pytest.raises(InputError, match=message):
        read(folder(tmp_path / "theirs", **settings), Cased)
    (tmp_path / "theirs" / "modules.json").write_text("[3]")
    with pytest.raises(InputError, match="modules.json is damaged"):
        sentence_transformers.opened(tmp_path / "theirs")


BERT, TOKENIZER, MODEL = "sentence_bert_config.json", "tokenizer_config.json", "config_sentence_transformers.json"
LENGTHS = {  # files -> the limit that sentence-transformers 6.2.0 gives a BERT of 32 positions
    "settings": ({BERT: {"max_seq_length": 16, "do_lower_case": False}}, 16),
    **{name: ({name: {"max_seq_length": 16}}, 16) for name in sentence_transformers.SETTINGS[1:]},
    "the first of two names": (
        {BERT: {"max_seq_length": 8}, "sentence_roberta_config.json": {"max_seq_length": 16}},
        8,
    ),
    "an empty file is none": ({BERT: {}, "sentence_xlnet_config.json": {"max_seq_length": 16}}, 16),
    "6.2": (
        {
            BERT: {"modality_config": TEXT, "module_output_name": "token_embeddings"},
            TOKENIZER: {"model_max_length": 16},
        },
        16,
    ),
    "settings before tokenizer": ({BERT: {"max_seq_length": 14}, TOKENIZER: {"model_max_length": 10}}, 14),
    "null": ({BERT: {"max_seq_length": None}, TOKENIZER: {"model_max_length": 10}}, 10),
    "max_len": ({TOKENIZER: {"max_len": 13}}, 13),
    "max_length is of no call": ({TOKENIZER: {"max_length": 7}}, 32),
    "none": ({}, 32),
    "huge": ({TOKENIZER: {"model_max_length": 1000000000000000019884624838656}}, 32),
    "more than positions": ({TOKENIZER: {"model_max_length": 512}}, 32),
    "tokenizer_args": ({BERT: {"tokenizer_args": {"model_max_length": 12}}}, 12),
    "processor_kwargs first": ({BERT: {"max_seq_length": 20, "processor_kwargs": {"model_max_length": 11}}}, 11),
    "processing_kwargs": ({BERT: {"max_seq_length": 20, "processing_kwargs": {"text": {"max_length": 9}}}}, 9),
}


@pytest.mark.parametrize("case", LENGTHS)
def test_the_limit_is_where_their_loader_finds_it(tmp_path, capsys, case):
    files, expected = LENGTHS[case]
    task, theirs = read(folder(tmp_path / "theirs", types=[SIX["Transformer"], SIX["Pooling"]], files=files))
    assert task["length"] == expected
    theirs.leave()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({BERT: {"max_seq_length": "16"}}, "texts of '16' tokens, expected a whole number of at least 3"),
        ({BERT: {"transformer_task": "fill-mask"}}, "transformer_task 'fill-mask', expected 'feature-extraction'"),
        ({BERT: {"modality_config": TEXT | {"message": {"method": "forward"}}}}, "reads message by forward"),
        (
            {BERT: {"modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}}}},
            "reads text by forward and pooler_output, expected text by forward and last_hidden_state",
        ),
        ({BERT: {"module_output_name": "sentence_embedding"}}, "module_output_name 'sentence_embedding'"),
        (
            {BERT: {"processing_kwargs": {"text": {"add_special_tokens": False}}}},
            "processing_kwargs.text.add_special_tokens",
        ),
        ({BERT: {"processing_kwargs": {"text": {"truncation": False}}}}, "does not truncate texts"),
        ({BERT: {"config_args": {"num_hidden_layers": 3}}}, "has config_args.num_hidden_layers, which is not computed"),
        ({BERT: {"processor_kwargs": {"padding_side": "left"}}}, "has processor_kwargs.padding_side"),
        ({MODEL: {"model_type": "SparseEncoder"}}, "is a SparseEncoder with the modules Transformer, Pooling"),
        (
            {MODEL: {"prompts": {"a": "x "}, "default_prompt_name": "b"}},
            "default_prompt_name 'b', expected one of a, query",
        ),
        ({MODEL: {"prompts": ["x"]}}, "prompts that are no texts by name"),
        ({MODEL: {"truncate_dim": 0}}, "truncate_dim 0, expected a whole number above 0"),
        ({MODEL: {"prompts": 3}}, "damaged|prompts that are no texts"),
    ],
)
def test_settings_that_change_numbers_are_refused(tmp_path, files, message):
    with pytest.raises(InputError, match=message):
        read(folder(tmp_path / "theirs", files=files))


def test_prompts_dimensions_and_what_is_not_used(tmp_path, capsys):
    model = {
        "__version__": {"transformers": "5"},
        "prompts": {"q": "query: ", "document": ""},
        "default_prompt_name": "q",
    }
    model |= {"similarity_fn_name": "dot", "truncate_dim": 4, "colour": "red"}
    task, theirs = read(folder(tmp_path / "a", files={MODEL: model, BERT: {"unpad_inputs": True, "shape": 1}}))
    assert task["options"] == {"pooling": "mean", "prompts": {"q": "query: "}, "prompt_name": "q", "dimensions": 4}
    theirs.leave()
    assert capsys.readouterr().err == f"not used: colour ({MODEL})\nnot used: shape ({BERT})\n"
    assert [line.partition(":")[0] for line in theirs.told] == ["each text gets the prompt 'query", MODEL]
    kept = {"pooling_mode_mean_tokens": True, "include_prompt": False}
    task, _ = read(folder(tmp_path / "b", files={MODEL: model}, pooling=kept))
    assert (task["options"]["include_prompt"], task["options"]["prompt_name"]) == (False, "q")
    task, theirs = read(folder(tmp_path / "c", files={MODEL: model | {"default_prompt_name": None}}, pooling=kept))
    assert task["options"]["include_prompt"] is False
    assert theirs.told[0] == "prompts that encode takes by --prompt-name: q; none by default"
    sentence_transformers.write(
        tmp_path, {"options": task["options"] | {"include_prompt": True, "prompt_name": "q"}}, SPEC
    )
    again = read(tmp_path)[0]["options"]
    assert again == {"pooling": "mean", "prompts": {"q": "query: "}, "prompt_name": "q", "dimensions": 4}


DENSE = {"in_features": 16, "out_features": 6, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"}


def with_dense(path, *, shape=(6, 16), modules=("Dense",), value=1.0, **changes):
    """A folder with Dense behind its pooling."""
    types = ["Transformer", "Pooling", *modules]
    folder(path, types, ["", *(f"{i}_{name}" for i, name in enumerate(types[1:], 1))])
    tensors = {"linear.weight": shape, "linear.bias": (6,)}
    for place in path.glob("*_Dense"):
        (place / "config.json").write_text(json.dumps(DENSE | changes))
        write_safetensors(place / "model.safetensors", tensors, lambda name: np.full(tensors[name], value, "float32"))
    return sentence_transformers.opened(path)


def test_layers_behind_the_pooling(tmp_path, capsys):
    theirs = with_dense(tmp_path / "a", colour="red", modules=("Dense", "Dropout", "Normalize"))
    options = theirs.task(SPEC, None, 0)["options"]
    assert options["dense"] == [{"width": 6, "activation": "tanh", "bias": True}]
    assert options["normalize"]
    heads = theirs.heads(options, 16, allow_pickle=False)
    assert {name: {key: value.shape for key, value in head.items()} for name, head in heads.items()} == {
        "dense_1": {"kernel": (16, 6), "bias": (6,)}
    }
    theirs.leave()
    assert "not used: colour (config.json)" in capsys.readouterr().err
    bare = with_dense(tmp_path / "b", activation_function="torch.nn.modules.linear.Identity")
    assert bare.task(SPEC, None, 0)["options"]["dense"][0]["activation"] == ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"in_features": 8}, "2_Dense/config.json reads vectors of 8, it gets 16"),
        ({"out_features": "6"}, "has out_features '6' and bias True"),
        (
            {"activation_function": "mine.Swoosh"},
            "no activation of .*2_Dense/config.json, 'mine.Swoosh'.*activation.Tanh",
        ),
        ({"activation_function": "torch.nn.modules.activation.Hardswish"}, "'torch.nn.modules.activation.Hardswish'"),
        ({"use_residual": True}, "has use_residual, which is not computed here"),
        ({"module_input_name": "token_embeddings"}, "has module_input_name 'token_embeddings'"),
        ({"shape": (6, 4)}, r"2_Dense holds the tensors .*\(6, 4\).*, expected .*\(6, 16\)"),
        ({"bias": False}, "2_Dense holds the tensors .*linear.bias"),
        ({"value": float("nan")}, "2_Dense holds values that are not finite"),
        ({"modules": ("Normalize", "Dense")}, "has the modules Transformer, Pooling, Normalize, Dense, expected"),
        ({"modules": ("LayerNorm",)}, "has the modules Transformer, Pooling, LayerNorm, expected"),
    ],
)
def test_layers_that_are_refused(tmp_path, changes, message):
    def imported():
        theirs = with_dense(tmp_path / "theirs", **changes)
        return theirs.heads(theirs.task(SPEC, None, 0)["options"], 16, allow_pickle=False)

    with pytest.raises(InputError, match=message):
        imported()


def test_lower_case_before_a_tokenizer_that_keeps_it(tmp_path):
    pieces = tiny.tokenizer()
    cased = type(pieces)(pieces.vocabulary, **pieces.settings() | {"lowercase": False, "strip_accents": False})
    theirs = sentence_transformers.opened(
        folder(tmp_path / "a", files={"sentence_roberta_config.json": {"do_lower_case": True}})
    )
    made = theirs.tokenizer(cased)
    assert (made.lowercase, made.strip_accents) == (True, False)
    assert made.encode("The CAT") == cased.encode("the cat") != cased.encode("The CAT")
    assert theirs.tokenizer(pieces) is pieces


def cross(path, activation, **settings):
    files = {MODEL: {"model_type": "CrossEncoder", "activation_fn": activation, "prompts": {}}, **settings}
    files[BERT] = {"transformer_task": "sequence-classification", "module_output_name": "scores"} | files.get(BERT, {})
    return sentence_transformers.opened(folder(path, [SIX["Transformer"]], [""], files=files))


@pytest.mark.parametrize(
    ("classes", "activation", "kind", "options"),
    [
        (1, "torch.nn.modules.activation.Sigmoid", "regression", {"activation": "sigmoid"}),
        (1, None, "regression", {"activation": "sigmoid"}),  # theirs by default
        (1, "torch.nn.modules.linear.Identity", "regression", None),
        (3, "torch.nn.modules.linear.Identity", "classification", None),
        (3, "torch.nn.modules.activation.Sigmoid", "multi_label", None),
        (3, "mine.Activation", "classification", None),
    ],
)
def test_a_cross_encoder_is_a_classifier_of_pairs(tmp_path, classes, activation, kind, options):
    found = {"kind": "classification" if classes > 1 else "regression", "inputs": "text"}
    theirs = cross(tmp_path / "a", activation, **{TOKENIZER: {"model_max_length": 20}})
    wanted = {"kind": kind, "inputs": "pair", "length": 20} | ({"options": options} if options else {})
    assert theirs.task(SPEC, found, classes) == wanted
    config = {"sentence_transformers": {"activation_fn": activation}}
    if activation is None:
        config = {"sbert_ce_default_activation_function": None}
    before, _ = cross_encoders.from_before(config, found, classes, tmp_path / "a", SPEC)
    assert before == wanted
    assert cross_encoders.from_before({}, found, classes, tmp_path / "a", SPEC) == (found, [])


def test_cross_encoders_that_are_refused(tmp_path):
    found = {"kind": "regression", "inputs": "text"}
    with pytest.raises(InputError, match="has the activation torch.nn.Tanh, expected Identity, Sigmoid, Softmax"):
        cross(tmp_path / "a", "torch.nn.Tanh").task(SPEC, found, 1)
    with pytest.raises(InputError, match="is a CrossEncoder whose checkpoint holds no classifier"):
        cross(tmp_path / "b", None).task(SPEC, None, 0)
    prompts = {MODEL: {"model_type": "CrossEncoder", "prompts": {"q": "query "}, "default_prompt_name": "q"}}
    with pytest.raises(InputError, match="puts a prompt before pairs of texts"):
        cross(tmp_path / "c", None, **prompts).task(SPEC, found, 1)
    with pytest.raises(InputError, match="has the module mine.Transformer, which is code of its own"):
        sentence_transformers.opened(folder(tmp_path / "d", ["mine.Transformer", "Pooling"]))

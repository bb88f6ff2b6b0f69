"""What stands beside the tensors in a folder of transformers that we write; theirs reads it in the slow parity tests."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints import hf_files, save_model
from kerasbert.checkpoints.directory import ModelInfo, Weights
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.text import WordPiece, unigram
from kerasbert.text.added import AddedToken
from tests.checkpoints import presets
from tests.text.kinds import with_added

FAST = {"tokenizer_class": "PreTrainedTokenizerFast"}
BERT = {"tokenizer_class": "BertTokenizer", "tokenize_chinese_chars": True}
NAMES = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
ROBERTA = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}
INPUTS = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
XLNET = presets._unigram(unigram.XLNET, *unigram.XLNET.specials.values())
# case of `presets` -> tokenizer_config.json but for the length, class, ids in config.json, files beside
WRITTEN = {
    "bert": (BERT | {"do_lower_case": True, "strip_accents": True} | NAMES, "BertModel", {"pad": 0}, ["vocab.txt"]),
    "distilbert": (
        BERT | {"do_lower_case": False, "strip_accents": False} | NAMES,
        "DistilBertModel",
        {"pad": 0},
        ["vocab.txt"],
    ),
    "roberta": (FAST | ROBERTA, "RobertaModel", {"pad": 1}, ["merges.txt", "vocab.json"]),
    "albert": (
        FAST | INPUTS | NAMES | {"pad_token": "<pad>", "unk_token": "<unk>"},
        "AlbertModel",
        {"pad": 0},
        ["spiece.model"],
    ),
    "xlnet": (
        FAST | INPUTS | {"padding_side": "left"} | {f"{part}_token": piece for part, piece in XLNET.specials.items()},
        "XLNetModel",
        {"pad": XLNET.pad_id},
        ["spiece.model"],
    ),
    "gpt2": (
        FAST | dict.fromkeys(("pad_token", "unk_token", "sep_token"), "<|endoftext|>"),
        "GPT2LMHeadModel",
        {"pad": 0, "bos": 0, "eos": 0},
        ["merges.txt", "vocab.json"],
    ),
    "t5": (
        FAST | {"pad_token": "<pad>", "unk_token": "<unk>", "sep_token": "</s>"},
        "T5ForConditionalGeneration",
        {"pad": 0, "decoder_start": 0, "eos": 1},
        ["spiece.model"],
    ),
}


def json_of(path):
    return json.loads(path.read_text())


@pytest.mark.parametrize("case", WRITTEN)
def test_files_of_a_folder(case, tmp_path):
    settings, kind, ids, vocabulary = WRITTEN[case]
    tokenizer = presets.TOKENIZERS.get(case, XLNET)
    presets.directory(tmp_path / "run", case, tokenizer=tokenizer)
    kb.export_checkpoint(tmp_path / "run", tmp_path / "out")
    files = {".kerasbert", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", *vocabulary}
    assert {path.name for path in (tmp_path / "out").iterdir()} == files
    found = json_of(tmp_path / "out/tokenizer_config.json")
    assert found.pop("model_max_length") == kb.checkpoints.read_model_json(tmp_path / "run").spec.longest
    assert found == settings
    config = json_of(tmp_path / "out/config.json")
    assert (config["architectures"], config["model_type"], config["dtype"]) == ([kind], case, "float32")
    assert {key.removesuffix("_token_id"): value for key, value in config.items() if key.endswith("_token_id")} == ids
    assert list(config) == sorted(config)
    assert Safetensors(tmp_path / "out/model.safetensors").names()
    assert b'"__metadata__":{"format":"pt"}' in (tmp_path / "out/model.safetensors").read_bytes()[:200]


@pytest.mark.parametrize(("case", "pad"), [("bert", 0), ("bart", 1), ("electra", 0)])
def test_without_a_tokenizer_the_padding_is_that_of_their_class(case, pad, tmp_path, capsys):
    """Which is told, as the other ids: a T5 imported with another eos_token_id was written with 1 in silence."""
    presets.directory(tmp_path / "run", case)
    kb.export_checkpoint(tmp_path / "run", tmp_path / "out")
    more = ", bos_token_id 0, eos_token_id 2, decoder_start_token_id 2, forced_eos_token_id 2" if case == "bart" else ""
    said = f"no tokenizer says its ids, the usual ones are written: pad_token_id {pad}{more} (config.json)\n"
    assert capsys.readouterr().err.endswith(said)
    assert json_of(tmp_path / "out/config.json")["pad_token_id"] == pad
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith("tokenizer")]
    assert hf_files.PAD == {"xlm": 2, "bart": 1, "roberta2roberta": 1}


def test_a_template_of_ones_own_and_added_tokens_are_written(tmp_path):
    plain = WordPiece(presets.WORDS, template=("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]"))
    tokenizer = with_added(presets.TOKENIZERS["bert"], [AddedToken("@USER")])
    for name, each in (("plain", plain), ("added", tokenizer)):
        presets.directory(tmp_path / name, "bert", tokenizer=each)
        kb.export_checkpoint(tmp_path / name, tmp_path / f"{name}.out")
    assert json_of(tmp_path / "plain.out/tokenizer_config.json")["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert "model_input_names" not in json_of(
        tmp_path / "plain.out/tokenizer_config.json"
    )  # its pairs have one segment
    added = json_of(tmp_path / "added.out/tokenizer_config.json")["added_tokens_decoder"]
    assert {number: each["content"] for number, each in added.items()} == {
        **{str(i): piece for i, piece in enumerate(NAMES.values())},
        "11": "@USER",
    }


def headed(path, kind, labels, classes=2, **task):
    """A BERT with a classifier."""
    spec = presets.spec_of("bert")
    head = {"kernel": np.zeros((20, classes), "float32"), "bias": np.zeros(classes, "float32")}
    encoder = Weights(spec, presets.arrays_of("bert", spec))
    save_model(
        path,
        name="bert",
        encoder=encoder,
        heads={"classifier": head},
        task={"kind": kind, "inputs": "text", **task},
        labels=labels,
    )
    kb.export_checkpoint(path, path.with_name("out"))
    return json_of(path.with_name("out") / "config.json")


@pytest.mark.parametrize(
    ("kind", "labels", "problem"),
    [("classification", ["no", "yes"], None), ("multi_label", ["a", "b"], "multi_label_classification")],
)
def test_labels_in_the_configuration(kind, labels, problem, tmp_path):
    config = headed(tmp_path / "run", kind, labels)
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == {"0": labels[0], "1": labels[1]}
    assert config["label2id"] == {labels[0]: 0, labels[1]: 1}
    assert config.get("problem_type") == problem


def test_a_regression_has_one_number_and_no_names(tmp_path):
    config = headed(tmp_path / "run", "regression", None, classes=1)
    assert (config.get("problem_type"), "id2label" in config and len(config["id2label"])) == ("regression", 1)


def test_names_of_labels_that_nobody_gave(tmp_path):
    write_safetensors(tmp_path / "x", {"heads/classifier/kernel": (4, 3)}, lambda _: np.zeros((4, 3)))
    info = ModelInfo("bert", "bert", registry.family("bert").spec)
    found = hf_files._described({"hidden": 4}, "BertForSequenceClassification", info, Safetensors(tmp_path / "x"))
    assert found["id2label"] == {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}
    assert (found["label2id"], found["hidden"]) == ({"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}, 4)
    assert "problem_type" not in found
    own = hf_files._described({"pad_token_id": 7}, "BertModel", info, Safetensors(tmp_path / "x"))
    assert own["pad_token_id"] == 7  # what the family says goes first


@pytest.mark.parametrize(
    ("task", "keys"),
    [
        ({}, {}),
        ({"inputs": "text", "kind": "classification"}, {}),
        ({"options": {"thresholds": [0.5]}}, {"kerasbert_options": {"thresholds": [0.5]}}),
        ({"options": {}}, {}),
        ({"inputs": "pair", "kind": "classification"}, {"kerasbert_pair": True}),
        (
            {"inputs": "pair", "kind": "regression"},
            {
                "kerasbert_pair": True,
                "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"},
            },
        ),
    ],
)
def test_what_a_configuration_says_of_the_task(task, keys):
    from kerasbert.checkpoints import config as configs

    keys = {
        {"kerasbert_pair": configs.PAIR, "kerasbert_options": configs.OPTIONS}.get(k, k): v for k, v in keys.items()
    }
    assert hf_files._task_keys(task) == keys


def test_special_ids_are_those_of_the_tokenizer():
    tokenizer = presets.TOKENIZERS["roberta"]
    keys = {"pad_token_id": "pad", "eos_token_id": "sep", "bos_token_id": "absent"}
    assert hf_files._special_ids(tokenizer, keys) == {
        "pad_token_id": tokenizer.pad_id,
        "eos_token_id": tokenizer.sep_id,
    }


def test_how_a_model_writes_goes_along_and_what_has_no_place_is_told(capsys):
    info = ModelInfo("t5", "t5", registry.family("t5").spec)
    family = registry.family("t5")
    assert hf_files._decoding(info, family) is None
    writes = {"kind": "generation", "inputs": "text", "options": {"start": "pad", "seed": 3, "coverage_penalty": 0.5}}
    options = hf_files._decoding(ModelInfo("t5", "t5", info.spec, task=writes), family)
    assert (options["seed"], options["beams"]) == (3, 1)
    assert "generation_config.json has no place for coverage_penalty, seed: transformers" in capsys.readouterr().err
    hf_files._decoding(ModelInfo("t5", "t5", info.spec, task=writes | {"options": {"start": "pad"}}), family)
    assert capsys.readouterr().err == ""
    other = ModelInfo("t5", "t5", info.spec, task={"kind": "classification"}, generation={"all": {"beams": 4}})
    assert hf_files._decoding(other, family) is None

"""Closed world: the default files of the tokenizer classes that our families read hold no key that is passed over."""

import json

import pytest

from kerasbert.text import load_tokenizer
from kerasbert.text.bpe import ALPHABET
from kerasbert.text.charsmap import compile_charsmap
from kerasbert.text.hf_beside import WITHOUT_EFFECT
from kerasbert.text.hf_unigram import BESIDE, TRAILING
from kerasbert.text.word_bpe import END

pytestmark = pytest.mark.slow
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDPIECE = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "film", "##s", *LETTERS, *(f"##{c}" for c in LETTERS)]
SCORED = [(piece, -float(i)) for i, piece in enumerate(["▁", "▁the", "▁f", "il", *LETTERS])]


def wordpiece():
    return {"vocab": {piece: i for i, piece in enumerate(WORDPIECE)}}


def byte_level(*specials):
    return {
        "vocab": {piece: i for i, piece in enumerate([*specials, *ALPHABET, "th", "the"])},
        "merges": [("t", "h"), ("th", "e")],
    }


def unigram(*specials):
    return {"vocab": [*((piece, 0.0) for piece in specials), *SCORED]}


ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
BIGBIRD = ("<pad>", "</s>", "<s>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
PEGASUS = ("<pad>", "</s>", "<mask_1>", "<mask_2>", "<unk>")
BERT = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")
# class -> its first arguments
CLASSES = {
    **dict.fromkeys(
        ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer", "ConvBertTokenizer"),
        wordpiece,
    ),
    **dict.fromkeys(("LayoutLMTokenizer", "SqueezeBertTokenizer"), wordpiece),
    "MPNetTokenizer": lambda: {
        "vocab": {piece: i for i, piece in enumerate(["<s>", "<pad>", "</s>", "[UNK]", *WORDPIECE[5:], "<mask>"])}
    },
    **dict.fromkeys(
        ("RobertaTokenizer", "BartTokenizer", "LongformerTokenizer", "LEDTokenizer"), lambda: byte_level(*ROBERTA)
    ),
    "GPT2Tokenizer": lambda: byte_level("<|endoftext|>"),
    "BlenderbotTokenizer": lambda: byte_level(*ROBERTA),
    "OpenAIGPTTokenizer": lambda: {
        "vocab": {piece: i for i, piece in enumerate(["<unk>", *LETTERS, *(c + END for c in LETTERS)])},
        "merges": [],
    },
    "AlbertTokenizer": lambda: unigram("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
    "XLNetTokenizer": lambda: unigram("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"),
    "XLMRobertaTokenizer": lambda: unigram(*ROBERTA),
    "CamembertTokenizer": lambda: unigram(
        "<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>", "<mask>"
    ),
    "T5Tokenizer": lambda: unigram("<pad>", "</s>", "<unk>"),
    "MBartTokenizer": lambda: unigram(*ROBERTA) | {"src_lang": "ro_RO", "tgt_lang": "en_XX"},
    "DebertaTokenizer": lambda: byte_level(*BERT),
    "DebertaV2Tokenizer": lambda: unigram(*BERT),
}
# what their default files say and ours do without
UNUSED: set[str] = set()
TEXTS = ["the film", "The  films the", "", "a film "]


@pytest.mark.parametrize("name", CLASSES)
def test_no_key_of_a_class_is_passed_over(name, tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    made = getattr(transformers, name, None)
    if made is None:
        pytest.skip(f"this transformers has no {name}")
    theirs = made(**CLASSES[name]())
    theirs.save_pretrained(tmp_path)
    files = sorted(tmp_path.glob("*.json"))
    keys = [key for path in files for key in json.loads(path.read_text())]
    tokenizer = load_tokenizer(tmp_path)
    with capsys.disabled():
        print(f" {name}: {len(files)} files, {len(keys)} keys", end="")
    assert not tokenizer.not_used.keys() - UNUSED
    backend = theirs.backend_tokenizer
    for text in TEXTS:
        # without special tokens a row of nothing holds one token of padding here
        assert tokenizer.pack(text)[0] == (backend.encode(text).ids or [tokenizer.pad_id]), text
        found = backend.encode(text, "the film")
        assert tokenizer.pack(text, "the film") == (found.ids, found.type_ids), text


@pytest.mark.parametrize("name", ["MBart50Tokenizer", "PegasusTokenizer"])
def test_special_tokens_beside_which_blanks_are_pieces_are_told(name, tmp_path):
    """Languages and masks; the pieces of blanks are at a text's end and beside such tokens alone."""
    transformers = pytest.importorskip("transformers")
    made, rules = getattr(transformers, name), {"_spm_precompiled_charsmap": compile_charsmap({"\n": " "})}
    specials = (*ROBERTA, "fr_XX", "en_XX") if name == "MBart50Tokenizer" else PEGASUS
    theirs = made(**unigram(*specials), **rules, **({"src_lang": "fr_XX"} if specials != PEGASUS else {}))
    theirs.save_pretrained(tmp_path)
    ours = load_tokenizer(tmp_path)
    assert set(ours.not_used) == {BESIDE, TRAILING}
    for text in ("the film", "The  films the", "a\nfilm", ""):
        assert ours.pack(text)[0] == theirs(text)["input_ids"], text
    assert ours.template[0] == ("fr_XX $A </s>" if name == "MBart50Tokenizer" else "$A </s>")


def test_bigbirds_blanks_beside_special_tokens_are_told(tmp_path):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BigBirdTokenizer(**unigram(*BIGBIRD))
    theirs.save_pretrained(tmp_path)
    ours = load_tokenizer(tmp_path)
    assert set(ours.not_used) == {BESIDE, TRAILING}
    for text in ("the film", "The  films the", ""):
        found = theirs(text, "the film")
        assert ours.pack(text)[0] == theirs(text)["input_ids"], text
        assert ours.pack(text, "the film") == (found["input_ids"], [0] * len(found["input_ids"])), text
        assert "token_type_ids" not in found


def test_each_listed_key_has_a_reason():
    assert all(len(reason.split()) > 2 for reason in WITHOUT_EFFECT.values())


@pytest.mark.parametrize(
    "flags", [{}, {"add_bos_token": True}, {"add_eos_token": True}, {"add_bos_token": True, "add_eos_token": True}]
)
def test_gpt2s_settings_beside_a_tokenizer_json(flags, tmp_path):
    transformers = pytest.importorskip("transformers")
    transformers.GPT2Tokenizer(**byte_level("<|endoftext|>")).save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | flags))
    theirs, ours = transformers.AutoTokenizer.from_pretrained(tmp_path), load_tokenizer(tmp_path)
    assert ours.pack("the film")[0] == theirs("the film")["input_ids"]
    assert ours.pack("the film", "the")[0] == theirs("the film", "the")["input_ids"]

"""Tokenizers of DeBERTa: SentencePiece without the mask in a file, transformers 5 files, byte-level BPE; the model of BigBird."""

import json

import pytest
import sentencepiece
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from kerasbert.errors import InputError
from kerasbert.text import load_tokenizer
from kerasbert.text.bpe import ALPHABET
from kerasbert.text.sentencepiece import CONTROL, NORMAL, UNKNOWN, Model, write_model
from kerasbert.text.unigram import BERT

SPECIALS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]  # in the order of the released models
LETTERS = [*"▁abcdefghijklmnopqrstuvwxyz.é", "▁the", "▁fi", "lm"]
TEMPLATE = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")


def spm(folder, **config):
    """spm.model and the tokenizer_config.json beside it."""
    pieces, types = [*SPECIALS, *LETTERS], [CONTROL, CONTROL, CONTROL, UNKNOWN, *[NORMAL] * len(LETTERS)]
    model = Model(tuple(pieces), tuple(-float(i) for i in range(len(pieces))), tuple(types), b"")
    (folder / "spm.model").write_bytes(write_model(model))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False, "vocab_type": "spm"} | config))
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model"))


@pytest.mark.parametrize("beside", [{}, {"added_tokens.json": {"[MASK]": 36}}])
def test_the_mask_stands_behind_the_pieces_of_the_model(beside, tmp_path, capsys):
    theirs = spm(tmp_path)
    for name, content in beside.items():
        (tmp_path / name).write_text(json.dumps(content))
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.unk_id) == (0, 1, 2, 3)
    assert (tokenizer.mask_id, tokenizer.size) == (36, 37)
    assert (tokenizer.specials, tokenizer.template) == (BERT.specials, TEMPLATE)
    for text in ("the film", " A  film.", "naïve fé", ""):
        assert tokenizer.encode(text) == theirs.encode(text), text
    assert tokenizer.pack("a", "b")[1] == [0, 0, 0, 0, 1, 1, 1]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["do_lower_case", "split_by_punct"])
def test_what_their_class_does_before_its_model_is_refused(name, tmp_path):
    spm(tmp_path, tokenizer_class="DebertaV2Tokenizer", **{name: True})
    with pytest.raises(InputError, match=f"{name} of tokenizer_config.json is true"):
        load_tokenizer(tmp_path)


def test_the_file_that_transformers_5_writes(tmp_path, capsys):
    """Ends of lines and tabs are blanks, accents are composed."""
    pieces = [*SPECIALS, *LETTERS]
    theirs = Tokenizer(models.Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)], unk_id=3))
    runs = normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " ")
    theirs.normalizer = normalizers.Sequence([runs, normalizers.NFC(), normalizers.Strip(left=False)])
    theirs.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace()])
    around = [("[CLS]", SPECIALS.index("[CLS]")), ("[SEP]", SPECIALS.index("[SEP]"))]
    theirs.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", around)
    theirs.add_special_tokens([*SPECIALS, "[MASK]"])
    theirs.save(str(tmp_path / "tokenizer.json"))
    config = {"tokenizer_class": "DebertaV2Tokenizer", "do_lower_case": False, "split_by_punct": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.mask_id == len(pieces)
    texts = ("the\tfilm\n\na", "  the  film ", "cafe\u0301", "café", "e\u0323\u0302", "\u212b", "a\r\nb")
    for text in texts:
        assert tokenizer.encode(text) == theirs.encode(text, add_special_tokens=False).ids, text
    assert tokenizer.encode("cafe\u0301") == tokenizer.encode("café")
    assert capsys.readouterr().err == ""


def test_byte_level_pieces_between_berts_special_tokens(tmp_path, capsys):
    pieces = [*SPECIALS, *ALPHABET, "th", "the", "[MASK]"]
    (tmp_path / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\nth e\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False, "vocab_type": "gpt2"}))
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.pad_id, tokenizer.cls_id, tokenizer.mask_id) == (0, 1, len(pieces) - 1)
    assert (tokenizer.specials, tokenizer.template) == (BERT.specials, TEMPLATE)
    assert tokenizer.tokenize("the").pieces == ["the"]
    assert capsys.readouterr().err == ""


def test_bigbirds_model_keeps_case_and_accents(tmp_path):
    """Its special tokens are ALBERT's, whose texts are lower-cased and lose accents; its calls give no segments."""
    pieces = ["<pad>", "</s>", "<s>", "<unk>", "[CLS]", "[SEP]", "[MASK]", *LETTERS, "▁The"]
    types = [CONTROL, CONTROL, CONTROL, UNKNOWN, CONTROL, CONTROL, CONTROL, *[NORMAL] * (len(LETTERS) + 1)]
    model = Model(tuple(pieces), tuple(-float(i) for i in range(len(pieces))), tuple(types), b"")
    (tmp_path / "spiece.model").write_bytes(write_model(model))
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "spiece.model"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BigBirdTokenizer"}))
    tokenizer = load_tokenizer(tmp_path)
    for text in ("The film", "the fé", ""):
        assert tokenizer.pack(text)[0] == [4, *theirs.encode(text), 5], text
    assert tokenizer.pack("a", "b")[1] == [0] * 7

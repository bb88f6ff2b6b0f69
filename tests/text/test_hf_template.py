"""What stands around texts: read from others' files, the same in Python, the graph and their tokenizers, and written back."""

import json

import pytest
import tensorflow as tf
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from kerasbert.errors import InputError
from kerasbert.text import WordPiece, load_tokenizer, save_hf
from kerasbert.text.bpe import ALPHABET
from kerasbert.text.graph import graph_tokenizer
from kerasbert.text.hf_template import template_of, without_segments
from kerasbert.text.wordpiece import SPECIALS
from tests.text.kinds import small_bpe, small_unigram

WORDS = [*SPECIALS, "the", "film", "good", "[unused1]", "x:1"]
PIECES = {"cls": ("[CLS]", 2), "sep": ("[SEP]", 3), "more": ("[unused1]", 8)}
TEXTS = ["the film", "", "film good the good"]
PAIRS = [("the film", "good"), ("", "the"), ("film " * 9, "the good the")]


def template(single, pair, **names):
    """A TemplateProcessing over pieces with these ids."""
    return processors.TemplateProcessing(single, pair, list(names.values()) or [PIECES["cls"], PIECES["sep"]])


# of a WordPiece
TEMPLATES = {
    "none": None,
    "ByteLevel": processors.ByteLevel(),
    "BertProcessing": processors.BertProcessing(PIECES["sep"], PIECES["cls"]),
    "RobertaProcessing": processors.RobertaProcessing(PIECES["sep"], PIECES["cls"]),
    "cls alone": template("[CLS] $A", "[CLS] $A $B:1"),
    "sep alone": template("$A [SEP]", "$A [SEP] $B:1 [SEP]:1"),
    "sep before": template("[SEP] $A", "[SEP] $A [SEP] [SEP] $B"),
    "cls last": template("$A [SEP] [CLS]:2", "$A [SEP] $B:1 [SEP]:1 [CLS]:2"),
    "two separators": template("[CLS] $A [SEP]", "[CLS] $A [SEP] [SEP] $B:1 [SEP]:1"),
    "first segment": template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]"),
    "segments": template("[CLS]:1 $A:1 [SEP]:1", "[CLS]:1 $A:1 [SEP]:1 $B:0 [SEP]:0"),
    "a marker": template("[CLS] [unused1] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", **PIECES),
    "Sequence": processors.Sequence([processors.ByteLevel(), template("[CLS] $A", "[CLS] $A [SEP] $B")]),
}


def wordpiece_file(folder, processor):
    """A tokenizer.json of a WordPiece with a post_processor, and their tokenizer."""
    save_hf(WordPiece(WORDS), folder / "tokenizer.json")
    theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
    content = json.loads((folder / "tokenizer.json").read_text())
    if processor is None:
        (folder / "tokenizer.json").write_text(json.dumps(content | {"post_processor": None}))
    else:
        theirs.post_processor = processor
        theirs.save(str(folder / "tokenizer.json"))
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def same(tokenizer, theirs, texts=TEXTS, pairs=PAIRS):
    """Ids and segments are those of their tokenizer."""
    for text in texts:
        expected = theirs.encode(text)
        # without special tokens a row of nothing holds one token of padding here
        wanted = (expected.ids, expected.type_ids) if expected.ids else ([tokenizer.pad_id], [0])
        assert tokenizer.pack(text) == wanted, text
    for pair in pairs:
        expected = theirs.encode(*pair)
        assert tokenizer.pack(*pair) == (expected.ids, expected.type_ids), pair


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_files_template_is_used_kept_and_written_back(name, tmp_path):
    theirs = wordpiece_file(tmp_path, TEMPLATES[name])
    tokenizer = load_tokenizer(tmp_path)
    same(tokenizer, theirs)
    tokenizer.save(tmp_path / "ours")
    again = load_tokenizer(tmp_path / "ours")
    assert (again.template, again.digest()) == (tokenizer.template, tokenizer.digest())
    save_hf(again, tmp_path / "back.json")
    same(tokenizer, Tokenizer.from_file(str(tmp_path / "back.json")))
    assert tokenizer.renumbered(range(tokenizer.size)).digest() == tokenizer.digest()


@pytest.mark.parametrize("name", ["none", "cls last", "segments", "a marker"])
def test_the_graph_packs_by_the_files_template(name, tmp_path):
    wordpiece_file(tmp_path, TEMPLATES[name])
    tokenizer = load_tokenizer(tmp_path)
    for length in (6, 12):
        for pair in (False, True):
            rows = PAIRS if pair else TEXTS
            columns = [tf.constant(column) for column in zip(*rows)] if pair else [tf.constant(rows)]
            expected = tokenizer(rows, length=length)
            found = graph_tokenizer(tokenizer).pack(*columns, length=length)
            assert {key: value.numpy().tolist() for key, value in found.items()} == {
                key: value.tolist() for key, value in expected.items()
            }


@pytest.mark.parametrize("make", [small_bpe, small_unigram])
def test_templates_of_the_other_kinds(make, tmp_path):
    own = make()
    save_hf(own, tmp_path / "tokenizer.json")
    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    start, end = (own.vocabulary[i] for i in (own.cls_id, own.sep_id))
    names = [(start, own.cls_id), (end, own.sep_id)]
    for single, pair in (
        ("$A {e}", "$A $B {e}"),
        ("{e} $A", "{e} $A {e} {e} $B"),
        ("{s} $A {e}", "{s} $A {e} $B:1 {e}:1"),
    ):
        texts = [text.format(s=start, e=end) for text in (single, pair)]
        theirs.post_processor = processors.TemplateProcessing(*texts, names)
        theirs.save(str(tmp_path / "tokenizer.json"))
        tokenizer = load_tokenizer(tmp_path)
        assert tokenizer.template == tuple(texts)
        same(tokenizer, theirs, ["the unaffable", ""], [("the", "don't"), ("", "the")])


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        ({"type": "Split"}, "post_processor.type is 'Split', expected BertProcessing, RobertaProcessing"),
        (
            {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 2, "pair": []},
            r"post_processor.single has the texts \$A \$A, expected \$A",
        ),
        (
            {
                "type": "TemplateProcessing",
                "single": [{"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": text, "type_id": 0}} for text in "BA"],
            },
            r"post_processor.pair has the texts \$B \$A, expected \$A \$B",
        ),
        ({"type": "BertProcessing", "sep": ["[SEP]", 99], "cls": ["[CLS]", 2]}, "has the id 99, the vocabulary has 10"),
        ({"type": "BertProcessing", "sep": ["[SEP]"], "cls": ["[CLS]", 2]}, r"sep of post_processor is \['\[SEP\]'\]"),
        (
            {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}], "pair": []},
            r"special_tokens of post_processor has no ids for '\[CLS\]'",
        ),
        *(
            (
                {
                    "type": "TemplateProcessing",
                    "single": [
                        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                        {"Sequence": {"id": "A", "type_id": 0}},
                    ],
                    "pair": [],
                    "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": ids, "tokens": ["[CLS]"]}},
                },
                r"special_tokens of post_processor has no ids for '\[CLS\]'",
            )
            for ids in ([], ["2"], [2, True], "2", None)
        ),
        (
            {
                "type": "Sequence",
                "processors": [{"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}] * 2,
            },
            "post_processor has BertProcessing, BertProcessing, expected one that adds special tokens",
        ),
    ],
)
def test_a_template_that_cannot_be_held_is_refused(processor, message):
    with pytest.raises(InputError, match=message):
        template_of(processor, WORDS)
    with pytest.raises(InputError, match="has the special token 'a b', expected one without blanks"):
        template_of({"type": "BertProcessing", "sep": ["a b", 0], "cls": ["x", 1]}, ["a b", "x"])


def test_a_special_token_may_end_like_a_segment():
    items = [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    pair = [*items, {"Sequence": {"id": "B", "type_id": 1}}]
    tokens = {"x": {"id": "x", "ids": [9, 2], "tokens": ["x:1", "[CLS]"]}}  # several ids are several tokens
    found = template_of({"type": "TemplateProcessing", "single": items, "pair": pair, "special_tokens": tokens}, WORDS)
    assert found == ("x:1:0 [CLS] $A", "x:1:0 [CLS] $A $B:1")
    assert WordPiece(WORDS, template=found).pack("the")[0] == [9, 2, 5]


def test_segments_are_dropped_where_the_model_gets_none(tmp_path):
    assert without_segments(("[CLS] $A x:1:0", "$A:1 x:1:1 $B:12 y")) == ("[CLS] $A x:1:0", "$A x:1:0 $B y")
    wordpiece_file(tmp_path, TEMPLATES["BertProcessing"])
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_input_names": ["input_ids", "attention_mask"]}))
    assert load_tokenizer(tmp_path).template == ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]")


END = "<|endoftext|>"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, ("$A", "$A $B")),
        ({"add_bos_token": False}, ("$A", "$A $B")),
        ({"add_bos_token": True}, (f"{END} $A", f"{END} $A {END} $B")),
        ({"add_eos_token": True}, (f"$A {END}", f"$A {END} $B {END}")),
        ({"add_bos_token": True, "bos_token": "!"}, ("! $A", "! $A ! $B")),
        ({"add_eos_token": True, "eos_token": {"content": "?", "__type": "AddedToken"}}, ("$A ?", "$A ? $B ?")),
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_gpt2s_template_follows_its_settings(config, expected, whole, tmp_path):
    ids = {piece: i for i, piece in enumerate([END, *ALPHABET])}
    if whole:  # whose post_processor counts alone, as in transformers 5.24
        theirs = Tokenizer(models.BPE(ids, []))
        theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        theirs.save(str(tmp_path / "tokenizer.json"))
        expected = ("$A", "$A $B:1")
    else:
        (tmp_path / "vocab.json").write_text(json.dumps(ids))
        (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"} | config))
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.template, dict(tokenizer.not_used)) == (expected, {})


def test_classes_with_a_template_of_their_own_ignore_the_settings(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "add_bos_token": True})
    )
    assert load_tokenizer(tmp_path).pack("the film")[0] == [2, 5, 6, 3]


def test_blenderbots_files_do_not_say_their_template(tmp_path):
    (tmp_path / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(["<s>", *ALPHABET])}))
    (tmp_path / "merges.txt").write_text("")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BlenderbotTokenizer"}))
    with pytest.raises(InputError, match="'BlenderbotTokenizer', whose releases put other tokens around a text"):
        load_tokenizer(tmp_path)

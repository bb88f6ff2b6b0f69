"""Others' tokenizer files: each key is used, refused where it changes ids, or told."""

import json

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from kerasbert.errors import InputError
from kerasbert.text import BytePairEncoding, WordPiece, load_tokenizer, save_hf
from kerasbert.text.added import AddedToken
from kerasbert.text.bpe import ALPHABET
from kerasbert.text.bpe import SPECIALS as ROBERTA
from kerasbert.text.wordpiece import SPECIALS

WORDS = [*SPECIALS, "the", "good", "the", "film"]
UNIGRAM = [*"<s> <pad> </s> <unk>".split(), "▁", "▁it", "'", "s", "▁a", "b", "<n>", "▁x▁y", "▁x", "▁y", "<mask>"]


def put(folder, **contents):
    """Files of a folder by name, `_` for the dot."""
    for name, content in contents.items():
        stem, _, ending = name.rpartition("_")
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / f"{stem}.{ending}").write_text(text, encoding="utf-8")
    return folder


def changed(folder, **parts):
    """A tokenizer.json with other values at these places (`model__dropout`)."""
    content = json.loads((folder / "tokenizer.json").read_text())
    for path, value in parts.items():
        *keys, last = path.split("__")
        part = content
        for key in keys:
            part = part[key]
        part[last] = value
    return put(folder, tokenizer_json=content)


def wordpiece(folder, **parts):
    """A WordPiece's tokenizer.json."""
    save_hf(WordPiece([*SPECIALS, "the", "film", "é"]), folder / "tokenizer.json")
    return changed(folder, **parts)


def byte_level(folder, **parts):
    """A byte-level BPE's tokenizer.json."""
    save_hf(BytePairEncoding([*ROBERTA.values(), *ALPHABET, "it"], [("i", "t")]), folder / "tokenizer.json")
    return changed(folder, **parts)


def unigram(folder, steps=(), pre=None, **model):
    """A unigram's tokenizer.json and their tokenizer."""
    theirs = Tokenizer(models.Unigram([(piece, -float(i)) for i, piece in enumerate(UNIGRAM)], unk_id=3, **model))
    runs = [normalizers.Strip(left=False), normalizers.Replace(Regex(" {2,}"), " ")]
    theirs.normalizer = normalizers.Sequence([*steps, *runs])
    theirs.pre_tokenizer = pre or pre_tokenizers.Metaspace()
    theirs.save(str(folder / "tokenizer.json"))
    return theirs


@pytest.mark.parametrize("unused", ["the", "[unused1]", "##s", "[MASK]"])
def test_of_a_piece_on_two_lines_the_later_counts_and_ids_are_lines(unused, tmp_path):
    pieces = (
        [*SPECIALS, "good", unused, unused, "film"]
        if unused != "[MASK]"
        else [*SPECIALS, "good", "[MASK]", "the", "film"]
    )
    put(tmp_path, vocab_txt="\n".join(pieces) + "\n")
    tokenizer = load_tokenizer(tmp_path)
    expected = {piece: i for i, piece in enumerate(pieces)}
    assert tokenizer.size == len(pieces)
    assert {piece: tokenizer._ids[piece] for piece in expected} == expected
    assert tokenizer.encode("good film") == [5, 8]
    first = pieces.index(unused)
    assert tokenizer.not_used == {
        f"line {first + 1} of vocab.txt": f"{unused!r} stands on line {expected[unused] + 1} again"
    }
    tokenizer.save(tmp_path / "ours")
    again = load_tokenizer(tmp_path / "ours")
    assert (again.digest(), dict(again.not_used)) == (tokenizer.digest(), {})
    save_hf(tokenizer, tmp_path / "back.json")
    assert Tokenizer.from_file(str(tmp_path / "back.json")).encode("good film").ids == tokenizer.pack("good film")[0]


def test_the_reported_vocabulary(tmp_path):
    put(tmp_path, vocab_txt="\n".join(WORDS) + "\n")
    assert load_tokenizer(tmp_path).pack("The good film")[0] == [2, 7, 6, 8, 3]


@pytest.mark.parametrize("files", ["special_tokens_map_json", "tokenizer_config_json"])
def test_the_special_tokens_may_have_other_names(files, tmp_path):
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}
    names["mask_token"] = {"content": "<mask>", "lstrip": True, "__type": "AddedToken"}
    put(tmp_path, vocab_txt="<pad>\n<unk>\n<s>\n</s>\n<mask>\nthe\ngood\n", **{files: names})
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.pack("the film", "good") == ([2, 5, 1, 3, 6, 3], [0, 0, 0, 0, 1, 1])
    assert (tokenizer.mask_id, tokenizer.pad_id, tokenizer.special_ids, dict(tokenizer.not_used)) == (
        4,
        0,
        (0, 1, 2, 3, 4),
        {},
    )
    tokenizer.save(tmp_path / "ours")
    assert load_tokenizer(tmp_path / "ours").digest() == tokenizer.digest()
    save_hf(tokenizer, tmp_path / "tokenizer.json")
    assert load_tokenizer(tmp_path).digest() == tokenizer.digest()


def test_a_mark_before_the_first_piece_is_none_of_it(tmp_path):
    put(tmp_path, vocab_txt="\ufeff" + "\n".join(WORDS), tokenizer_config_json="\ufeff{}")
    assert load_tokenizer(tmp_path).pad_id == 0


def test_a_vocabulary_with_counts_is_refused_with_what_helps(tmp_path):
    put(tmp_path, vocab_txt="\n".join(f"{piece}\t7" for piece in WORDS))
    with pytest.raises(InputError, match=r"each line has a tab, expected the piece alone on it: cut the counts off"):
        load_tokenizer(tmp_path)


def test_ids_that_a_vocabulary_leaves_out_stay_left_out(tmp_path):
    ids = {piece: i if i < 7 else i + 2 for i, piece in enumerate([*ROBERTA.values(), *ALPHABET])}
    put(tmp_path, vocab_json=ids, merges_txt="#version: 0.2\n")
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.size, tokenizer.encode("a")) == (len(ids) + 2, [ids["a"]])
    assert tokenizer.vocabulary[7:9] == ("[gap 7]", "[gap 8]")
    tokenizer.save(tmp_path / "ours")
    assert load_tokenizer(tmp_path / "ours").encode("[gap 7]") == tokenizer.encode("[gap 7]") != [7]
    put(tmp_path, vocab_json=ids | {"a": 10**9})
    with pytest.raises(InputError, match="ids of the vocabulary go up to 1000000000, expected about as many"):
        load_tokenizer(tmp_path)
    put(tmp_path, vocab_json=ids | {"a": ids["b"]})
    with pytest.raises(InputError, match="'a' and 'b' have one id"):
        load_tokenizer(tmp_path)
    put(tmp_path, vocab_json=ids, added_tokens_json={"<e>": 400})
    with pytest.raises(InputError, match="the added token '<e>' has the id 400, and no piece has 263"):
        load_tokenizer(tmp_path)


def test_byte_level_files_of_composed_texts_are_read(tmp_path):
    """ModernBERT's and GPT-NeoX's normalizer."""
    byte_level(tmp_path)
    for normalizer in ({"type": "NFC"}, {"type": "Sequence", "normalizers": [{"type": "NFC"}]}):
        tokenizer = load_tokenizer(changed(tmp_path, normalizer=normalizer))
        assert tokenizer.nfc
        assert not tokenizer.not_used
        theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        for text in ("it é it", "\u0130 it\u00df", "\u4e2d\uac00", "e\u0301", "\u1100\u1161 it"):
            assert tokenizer.encode(text) == theirs.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(
    ("make", "parts", "message"),
    [
        (
            byte_level,
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Punctuation"}]}},
            "pre_tokenizer has the steps ByteLevel, Punctuation, expected ByteLevel alone",
        ),
        (
            byte_level,
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}] * 2}},
            "pre_tokenizer has the steps ByteLevel, ByteLevel, expected ByteLevel alone",
        ),
        (byte_level, {"normalizer": {"type": "Lowercase"}}, "normalizer is .*Lowercase.*, expected None"),
        (byte_level, {"model__dropout": 0.1}, "model.dropout is 0.1, expected none"),
        (byte_level, {"model__byte_map": [1]}, r"model.byte_map is \[1\], which is not known here and may change ids"),
        (byte_level, {"decoder": {"type": "Metaspace"}}, "decoder.type is 'Metaspace', expected ByteLevel"),
        (wordpiece, {"normalizer__squeeze": 1}, "normalizer.squeeze is 1, which is not known here"),
        (wordpiece, {"decoder__prefix": "@@"}, "decoder.prefix is '@@', expected '##'"),
        (
            wordpiece,
            {"model__continuing_subword_prefix": "@@"},
            "model.continuing_subword_prefix is '@@', expected '##'",
        ),
        (wordpiece, {"post_processor__unknown": 1}, "post_processor.unknown is 1, which is not known here"),
        (wordpiece, {"something": {"a": 1}}, "something is {'a': 1}, which is not known here"),
    ],
)
def test_what_is_not_applied_is_refused(make, parts, message, tmp_path):
    make(tmp_path, **parts)
    with pytest.raises(InputError, match=message):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"truncation_side": "left"}, "truncation_side of tokenizer_config.json is 'left', expected 'right'"),
        ({"never_split": ["film"]}, r"never_split of tokenizer_config.json is \['film'\]"),
        ({"do_basic_tokenize": False}, "do_basic_tokenize of tokenizer_config.json is False"),
        ({"sp_model_kwargs": {"enable_sampling": True}}, "sp_model_kwargs of tokenizer_config.json"),
        ({"remove_space": False}, "remove_space of tokenizer_config.json is False"),
        (
            {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": False},
            "do_lower_case of tokenizer_config.json is False, tokenizer.json has True",
        ),
        ({"cls_token": 3}, "cls_token of tokenizer_config.json is 3, expected a token"),
    ],
)
def test_settings_that_change_ids_are_refused(config, message, tmp_path):
    wordpiece(put(tmp_path, tokenizer_config_json=config))
    with pytest.raises(InputError, match=message):
        load_tokenizer(tmp_path)


def test_the_settings_of_a_models_class_go_before_those_of_the_file(tmp_path):
    config = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": False,
        "strip_accents": True,
        "tokenize_chinese_chars": False,
    }
    tokenizer = load_tokenizer(wordpiece(put(tmp_path, tokenizer_config_json=config)))
    assert (tokenizer.lowercase, tokenizer.strip_accents, tokenizer.split_cjk) == (False, True, False)
    put(tmp_path, tokenizer_config_json={"tokenizer_class": "RobertaTokenizer", "add_prefix_space": True})
    assert load_tokenizer(byte_level(tmp_path)).add_prefix_space


def test_the_default_of_a_models_class_goes_before_the_file_where_no_setting_is_said_and_is_told(tmp_path):
    cased = {"type": "BertNormalizer", "clean_text": True, "lowercase": False, "strip_accents": False}
    put(tmp_path, tokenizer_config_json={"tokenizer_class": "BertTokenizerFast"})
    tokenizer = load_tokenizer(wordpiece(tmp_path, normalizer=cased | {"handle_chinese_chars": False}))
    assert (tokenizer.lowercase, tokenizer.strip_accents, tokenizer.split_cjk) == (True, True, True)
    assert [told.split(",")[0] for told in tokenizer.not_used] == [
        "do_lower_case False",
        "strip_accents False",
        "tokenize_chinese_chars False",
    ]
    for generic in ({}, {"tokenizer_class": "PreTrainedTokenizerFast"}):
        put(tmp_path, tokenizer_config_json=generic)
        assert not load_tokenizer(tmp_path).lowercase


def test_what_releases_of_a_class_read_differently_is_told_or_refused(tmp_path):
    put(tmp_path, tokenizer_config_json={"tokenizer_class": "BertTokenizer"})
    path = wordpiece(tmp_path, post_processor=None)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["model"]["max_input_chars_per_word"] = 7
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    said = [told.split(",")[0] for told in load_tokenizer(path).not_used]
    assert said == ["max_input_chars_per_word 100", "special tokens around a text"]
    content["model"]["unk_token"] = "[PAD]"
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"model.unk_token is '\[PAD\]', unk_token '\[UNK\]': their releases differ"):
        load_tokenizer(path)


def test_what_changes_no_id_is_told_unless_a_reason_is_listed(tmp_path):
    config = {
        "model_max_length": 512,
        "padding_side": "left",
        "do_basic_tokenize": True,
        "never_split": None,
        "colour": "red",
    }
    wordpiece(put(tmp_path, tokenizer_config_json=config), truncation={"max_length": 16}, padding={"pad_id": 0})
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.not_used == {"colour (tokenizer_config.json)": "red"}
    tokenizer.save(tmp_path / "ours")
    assert not load_tokenizer(tmp_path / "ours").not_used


def test_a_special_token_that_two_files_name_is_told_where_they_differ(tmp_path):
    """tokenizer_config.json counts, as in transformers."""
    names = {"unk_token": "[UNK]", "sep_token": {"content": "[SEP]", "lstrip": False}, "pad_token": "[MASK]"}
    config = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    wordpiece(put(tmp_path, tokenizer_config_json=config, special_tokens_map_json=names))
    assert load_tokenizer(tmp_path).not_used == {"pad_token (special_tokens_map.json)": "[MASK]"}


def test_a_tokenizer_json_that_cuts_the_begin_of_a_text_is_refused(tmp_path):
    """As the same setting of tokenizer_config.json is; truncation of the end says nothing that a call does not say."""
    right = {"max_length": 16, "direction": "Right"}
    assert not load_tokenizer(wordpiece(tmp_path, truncation=right)).not_used
    wordpiece(tmp_path, truncation=right | {"direction": "Left"})
    with pytest.raises(InputError, match=r"truncation\.direction is 'Left', expected 'Right': a text that is too long"):
        load_tokenizer(tmp_path)


TEXTS = ["it's", "it’s", "  it\n's  a", "a\tb\u2028it", "x y", "it<n>", ""]


@pytest.mark.parametrize(
    "steps",
    [
        [normalizers.Replace("’", "'")],
        [normalizers.Replace("\n", " <n> ")],
        [normalizers.Replace("\t", " "), normalizers.Replace("'s", "b")],
        [normalizers.Replace("s", "")],
        [normalizers.Lowercase()],
    ],
)
@pytest.mark.parametrize("words", [False, True])
def test_replacements_of_a_unigram_are_applied_and_written_back(steps, words, tmp_path):
    pre = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]) if words else None
    theirs = unigram(tmp_path, steps, pre)
    tokenizer = load_tokenizer(tmp_path)
    tokenizer.save(tmp_path / "ours")
    save_hf(tokenizer, tmp_path / "back.json")
    back = Tokenizer.from_file(str(tmp_path / "back.json"))
    again = load_tokenizer(tmp_path / "ours")
    for text in TEXTS:
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text) == again.encode(text) == ids, text
        assert back.encode(text, add_special_tokens=False).ids == ids, text


@pytest.mark.parametrize(
    ("steps", "pre", "message"),
    [
        ([normalizers.Replace(Regex("[0-9]"), "0")], None, r"a Replace of {'Regex': '\[0-9\]'}"),
        ([normalizers.Replace("é́", "e")], None, "a Replace of {'String': 'é́'}, expected a String of one character"),
        (
            [normalizers.Lowercase(), normalizers.Replace("x", "y")],
            None,
            "normalizer has Replace after Lowercase, expected before",
        ),
        ([normalizers.NFKD()], None, "one of NFKD and StripAccents"),
        ([normalizers.NFC()], None, "normalizer has NFC, expected SentencePiece's or ALBERT's steps"),
        (
            [],
            pre_tokenizers.Metaspace(replacement="_"),
            "replacement of pre_tokenizer's Metaspace is '_', expected '▁'",
        ),
        ([], pre_tokenizers.Metaspace(prepend_scheme="never"), "prepend_scheme 'never' and no Strip removes blanks"),
        (
            [],
            pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]),
            "pre_tokenizer has Metaspace Punctuation",
        ),
        (
            [],
            pre_tokenizers.Sequence(
                [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="first")]
            ),
            "WhitespaceSplit and a Metaspace with prepend_scheme 'first'",
        ),
    ],
)
def test_steps_of_a_unigram_that_are_not_here_are_refused(steps, pre, message, tmp_path):
    unigram(tmp_path, steps, pre)
    with pytest.raises(InputError, match=message):
        load_tokenizer(tmp_path)


def test_a_piece_across_blanks_is_used_where_the_text_is_not_split_at_them(tmp_path):
    for split, pieces in ((True, ["▁x", "▁y"]), (False, ["▁x▁y"])):
        theirs = unigram(tmp_path, pre=pre_tokenizers.Metaspace(split=split))
        tokenizer = load_tokenizer(tmp_path)
        assert tokenizer.tokenize("x y").pieces == pieces == theirs.encode("x y", add_special_tokens=False).tokens
        save_hf(tokenizer, tmp_path / "tokenizer.json")
        assert load_tokenizer(tmp_path).encode("x y") == tokenizer.encode("x y")


def test_prefix_settings_of_a_unigram_must_agree(tmp_path):
    unigram(put(tmp_path, tokenizer_config_json={"add_prefix_space": False}))
    with pytest.raises(InputError, match="add_prefix_space of tokenizer_config.json is False, tokenizer.json has True"):
        load_tokenizer(tmp_path)


def test_many_added_tokens_are_read_in_linear_time():
    from kerasbert.text import added

    class Counted(str):
        compared = 0

        def __eq__(self, other):
            Counted.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    names = [Counted(f"<{i}>") for i in range(3000)]
    assert len(added.read_added(map(AddedToken, names), dict.fromkeys(names, 0))) == 3000
    assert Counted.compared < 30_000

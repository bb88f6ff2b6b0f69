"""generation_config.json: what is read as options of `generation`, what is told, and what is written."""

import json

import pytest

from kerasbert import registry
from kerasbert.answers import find
from kerasbert.checkpoints import generation_config
from kerasbert.errors import InputError
from tests import tiny

TOKENIZER = tiny.tokenizer()
END = TOKENIZER.sep_id


def read(folder, content=None, family="bart", config=None):
    if content is not None:
        (folder / "generation_config.json").write_text(json.dumps(content))
    return generation_config.read(folder, config or {}, TOKENIZER, registry.family(family))


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (
            {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True},
            "beams=4 length_penalty=2.0 early_stopping=True",
        ),
        ({"max_length": 142, "min_length": 56}, "target_length=141 min_new_tokens=55"),  # theirs count the start token
        (
            {"max_length": 142, "max_new_tokens": 9, "min_length": 7, "min_new_tokens": 2},
            "target_length=9 min_new_tokens=2",
        ),
        ({"no_repeat_ngram_size": 3, "forced_bos_token_id": 0, "forced_eos_token_id": [2]}, None),
        ({"do_sample": True}, "temperature=1.0 top_k=50"),  # generate's own default
        ({"do_sample": True, "temperature": 0.7, "top_k": 0, "top_p": 0.9}, "temperature=0.7 top_p=0.9"),
        ({"do_sample": False, "temperature": 0.7, "top_k": 20, "min_p": 0.1}, ""),
        ({"bad_words_ids": [[0]], "suppress_tokens": [5, 6], "num_return_sequences": 1}, None),
        ({"decoder_start_token_id": TOKENIZER.cls_id, "eos_token_id": [END]}, "start=cls"),
        ({"decoder_start_token_id": 11}, f"start={TOKENIZER.vocabulary[11]}"),  # as a language of mBART
        ({"decoder_start_token_id": END, "pad_token_id": 7, "bos_token_id": 3, "transformers_version": "5"}, ""),
        (
            {"encoder_no_repeat_ngram_size": 0, "diversity_penalty": 0.0, "num_beam_groups": 1, "guidance_scale": None},
            "",
        ),
    ],
)
def test_what_is_read(tmp_path, content, options):
    found, told = read(tmp_path, {"eos_token_id": END} | content)
    told = [line for line in told if "no length" not in line]
    said = " ".join(f"{name}={value}" for name, value in found.get("options", {}).items())
    if options is None:
        options = " ".join(f"{key}={2 if key == 'forced_eos_token_id' else value}" for key, value in content.items())
    assert sorted(said.split(" ")) == sorted(options.split(" "))
    assert len(told) == bool(options)
    assert "unused" not in found


def test_older_keys_and_those_of_a_task(tmp_path):
    summary = {"num_beams": 4, "max_length": 200, "prefix": "summarize: ", "encoder_no_repeat_ngram_size": 3}
    config = {"num_beams": 2, "vocab_size": 3, "no_repeat_ngram_size": 3, "decoder_start_token_id": END}
    config["task_specific_params"] = {"summarization": summary, "translation_en_to_de": {"prefix": "x"}}
    found, told = read(tmp_path, config=config)
    assert found["options"] == {"beams": 2, "no_repeat_ngram_size": 3}
    assert found["unused"] == ["task_specific_params.summarization.encoder_no_repeat_ngram_size"]
    assert [line.rpartition("/")[2][:50] for line in told] == [
        "config.json: no eos_token_id, so that transformers",
        "config.json: no length, which transformers' genera",
        "config.json: task_specific_params of translation_e",
        "config.json: not used, although texts may depend o",
        "writes by config.json: beams=2, no_repeat_ngram_si",
    ]
    asked = generation_config.options_for(found, "summarization")
    assert asked == {"beams": 4, "no_repeat_ngram_size": 3, "target_length": 199, "prefix": "summarize: "}
    assert generation_config.options_for(found, "translation") == found["options"]
    assert read(tmp_path, {"num_beams": 3}, config=config)[0]["options"] == {"beams": 3}  # the file holds alone
    assert read(tmp_path, {"num_beams": 3}, "bert") == ({}, [])


@pytest.mark.parametrize("family", ["bart", "gpt2"])
@pytest.mark.parametrize("length", [{}, {"max_length": 20}, {"max_new_tokens": 20}])
@pytest.mark.parametrize("end", [{}, {"eos_token_id": None}, {"eos_token_id": END}])
def test_what_is_not_said_is_told(end, length, family, tmp_path):
    """transformers' generate then ends no text, and writes 20 new tokens."""
    told = read(tmp_path, end | length, family)[1]
    assert any("no eos_token_id" in line for line in told) == (end.get("eos_token_id") is None)
    assert any("20 new tokens: at most 64 here" in line for line in told) == (not length)


@pytest.mark.parametrize("where", ["generation_config.json", "config.json"])
@pytest.mark.parametrize(("said", "start"), [({}, "cls"), ({"decoder_start_token_id": END}, None)])
def test_a_decoder_without_a_start_token_starts_with_bos(said, start, where, tmp_path):
    """As transformers' generate: a file without decoder_start_token_id was read as one of the family's own."""
    content = said | {"bos_token_id": TOKENIZER.cls_id, "eos_token_id": END}
    found = read(tmp_path, content)[0] if where != "config.json" else read(tmp_path, config=content)[0]
    assert found.get("options", {}).get("start") == start
    with pytest.raises(InputError, match="json: bos_token_id is 1000, expected an id of the tokenizer's"):
        read(tmp_path, {"bos_token_id": 1000})


def test_what_is_not_computed_is_told(tmp_path):
    content = {
        "encoder_no_repeat_ngram_size": 3,
        "typical_p": 0.2,
        "do_sample": True,
        "colour": 1,
        "num_beam_groups": 2,
    }
    found, told = read(tmp_path, content)
    assert found["unused"] == ["encoder_no_repeat_ngram_size", "typical_p", "colour", "num_beam_groups"]
    assert "encoder_no_repeat_ngram_size, typical_p, colour, num_beam_groups" in told[2]
    told = read(tmp_path, {"num_beams": 2, "do_sample": True, "eos_token_id": [END, 9], "max_length": 9})[1]
    assert [line.rpartition(": ")[2].split(",")[0][:34] for line in told[:2]] == [
        "beams are searched",
        f"eos_token_id is [{END}",
    ]
    told = read(tmp_path, {"max_length": 30, "min_length": 5, "forced_bos_token_id": 5, "eos_token_id": END}, "gpt2")[1]
    assert "forced_bos_token_id is not used" in told[0]
    assert "max_length 30 and min_length 5 count the prompt's tokens, not used" in told[1]
    with pytest.raises(
        InputError, match="generation_config.json: generation's option 'beams' is 'x', expected a whole number"
    ):
        read(tmp_path, {"num_beams": "x"})
    with pytest.raises(InputError, match="decoder_start_token_id is 1000, expected an id of the tokenizer's"):
        read(tmp_path, {"decoder_start_token_id": 1000})
    with pytest.raises(InputError, match="generation_config.json: no_repeat_ngram_size must be a whole number"):
        read(tmp_path, {"no_repeat_ngram_size": -1})


def test_what_is_written_is_read(tmp_path):
    options = {
        "beams": 3,
        "target_length": 20,
        "min_new_tokens": 4,
        "no_repeat_ngram_size": 2,
        "bad_words_ids": [[7, 8]],
    }
    options |= {"early_stopping": "never", "num_return_sequences": 2, "start": "cls", "forced_bos_token_id": 5}
    whole = dict(find("generation").configured(options).options)
    content = generation_config.written(whole, {"bos_token_id": 1}, TOKENIZER)
    assert content["eos_token_id"] == END
    found = read(tmp_path, content)[0]["options"]
    assert {name: found[name] for name in options} == options
    assert find("generation").configured(found).decoding == find("generation").configured(options).decoding
    drawn = {"temperature": 0.5, "top_p": 0.9}
    assert read(tmp_path, generation_config.written(drawn, {}, TOKENIZER))[0]["options"] == drawn
    held = {"options": options, "tasks": {"summarization": {"suppress_tokens": [3], "beams": 2}}}
    bare = generation_config.without_ids(held)
    assert set(options) - set(bare["options"]) == {"bad_words_ids", "forced_bos_token_id"}
    assert bare["tasks"] == {"summarization": {"beams": 2}}


@pytest.mark.parametrize("name", ["no_such_task", "classification", "ner"])
@pytest.mark.parametrize("params", [{"num_beams": 2}, [], "x", None])
def test_settings_of_a_task_that_does_not_write_are_told(name, params, tmp_path):
    found, told = read(tmp_path, {}, config={"task_specific_params": {name: params}})
    assert (found, told[2:]) == (
        {},
        [f"config.json: task_specific_params of {name} are not used: give what they hold by --set task.NAME=VALUE"],
    )


@pytest.mark.parametrize("params", [[], "x", None, {"num_beams": 2}])
def test_settings_of_a_task_that_writes_are_a_mapping(params, tmp_path):
    found, told = read(tmp_path, {}, config={"task_specific_params": {"translation": params}})
    right = isinstance(params, dict)
    assert ("tasks" in found, any("are not used" in line for line in told)) == (right, not right)


@pytest.mark.parametrize(("family", "tokenizer"), [("bert", TOKENIZER), ("bart", None)])
def test_nothing_is_read_where_nothing_writes(family, tokenizer, tmp_path):
    (tmp_path / "generation_config.json").write_text('{"num_beams": 4}')
    assert generation_config.read(tmp_path, {}, tokenizer, registry.family(family)) == ({}, [])

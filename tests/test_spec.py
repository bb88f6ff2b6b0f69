"""Specs: paths, differences, json, errors."""

import json

import pytest

from kerasbert import registry
from kerasbert.errors import InputError
from kerasbert.spec import Spec, differences, from_dict, leaves, paths, to_dict


def test_derive_and_json_round_trip():
    spec = Spec().derive({"embeddings.width": 128, "attention.heads": [1] * 12, "attention.head_size": 3, "dropout": 0})
    assert (spec.embeddings.width, spec.attention.heads, spec.dropout) == (128, (1,) * 12, 0.0)
    assert from_dict(to_dict(spec)) == spec
    assert differences(Spec(), spec).keys() == {"embeddings.width", "attention.heads", "attention.head_size", "dropout"}


def test_every_field_is_written():
    assert leaves(to_dict(Spec())).keys() == paths(Spec).keys()
    changes = {
        "embeddings.kind": "none",
        "attention.causal": True,
        "blocks.bias": False,
        "adapters.width": 8,
        "pals.width": 24,
    }
    changes |= {"lora.rank": 4, "lora.targets": ["attention.key"]}
    spec = Spec().derive(changes)
    written = leaves(to_dict(spec))
    assert {path: written[path] for path in changes} == changes
    assert from_dict(json.loads(json.dumps(to_dict(spec)))) == spec


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"embedding.width": 1}, "no spec field 'embedding.width'. Nearest: 'embeddings.width'"),
        ({"dropout": "x"}, "dropout must be float. Received: 'x'"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\)"),
        ({"hidden": 0}, "hidden must be at least 1"),
        ({"attention.heads": 7}, "hidden 768 is not a multiple of attention.heads 7"),
        ({"feedforward.width": [3, 4]}, "feedforward.width has 2 values, expected one per layer: 12"),
        ({"epsilon": float("nan")}, "epsilon must be a finite number. Received: nan"),
        ({"initializer": 10**400}, "initializer must be a finite number. Received: 1000"),
        ({"epsilon": -1e-12}, "epsilon must be at least 0. Received: -1e-12"),
        ({"blocks.layers": True}, "blocks.layers must be int. Received: True"),
    ],
)
def test_wrong_changes_are_named(changes, text):
    with pytest.raises(InputError, match=text):
        Spec().derive(changes)


def test_from_dict_refuses_unknown_fields():
    with pytest.raises(InputError, match=r"no spec field 'blocks.layer'. Nearest: 'blocks.layers'"):
        from_dict({"blocks": {"layer": 2}})


def test_unknown_names_give_the_nearest():
    with pytest.raises(InputError, match="no model 'bert/bse'. Nearest: 'bert/base'. All: kerasbert list models"):
        registry.find("bert/bse")
    with pytest.raises(InputError, match="no task 'glue/sst-2'. Nearest: 'glue/sst2'"):
        registry.task("glue/sst-2")
    assert registry.find("bert/base-uncased")[1] == registry.find("bert/base")[1]

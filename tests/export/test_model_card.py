"""The card of a SavedModel: its requests are answered as it says, and it holds nothing that is not known."""

import json
import re

import pytest
import tensorflow as tf
from google.protobuf import json_format

from kerasbert.errors import InputError
from kerasbert.export import card_requests, messages, model_card
from kerasbert.export.client import Client
from kerasbert.export.messages import array, message
from kerasbert.run_report.facts import Facts
from tests.export.served import ask, call, server


def blocks(card, language):
    return re.findall(rf"```{language}\n(.*?)```", card, re.DOTALL)


def check_requests(card, one, name):
    """Send what the card shows: curl's body, grpcurl's, and the lines of Python."""
    (answer,) = map(json.loads, blocks(card, "json"))
    curl, grpcurl = blocks(card, "sh")
    body = re.search(r"-d '([^']*)' http://localhost:8501/v1/models/NAME:predict", curl)[1]
    code, found = ask(one.ports[0], f"/v1/models/{name}:predict", body.encode())
    assert (code, [card_requests._short(value) for value in found["predictions"]]) == (200, [answer]) or {
        key: card_requests._short(value) for key, value in found["predictions"][0].items()
    } == answer
    request = json_format.Parse(re.search(r"-d '([^']*)' localhost:8500", grpcurl)[1], message("PredictRequest")())
    request.model_spec.name = name
    outputs = call(one.ports[1], "Predict", request).outputs
    assert {key: card_requests._short(card_requests._plain(array(each))[0]) for key, each in outputs.items()} == answer
    lines = blocks(card, "python")[1].replace("localhost:8500", f"127.0.0.1:{one.ports[1]}").replace("NAME", name)
    said = []
    exec(lines, {"print": said.append})
    assert {key: card_requests._short(value[0]) for key, value in said[0].items()} == answer


@pytest.mark.slow
def test_the_requests_of_a_card_are_answered_as_it_says(served):
    card = (served / model_card.FILE).read_text("utf-8")
    with server({"author": served.parent}) as one:
        check_requests(card, one, "author")
    assert "\n| accuracy | " in card
    assert "\n- data, train: train.tsv\n" in card
    assert "\n- base model: not known: write it here\n" in card


def test_requests_are_run_by_both_ways(folder, tiny, monkeypatch):
    serve = tf.saved_model.load(str(folder / "3")).signatures["serving_default"]
    found = card_requests.run(folder / "3", serve, {"text": tf.constant(["it's é"]), "n": tf.constant([3])})
    assert json.loads(found.rest) == {"instances": [{"n": 3, "text": "it's é"}]}
    assert "'" not in found.rest + found.grpc + found.inputs  # of a shell
    assert json.loads(found.answer) == {
        "raw_bytes": "it's é\ufffd",
        "scores": [1.0, 2.0],
        "shout": "IT'S é",
        "version": 3,
    }
    code, answer = ask(tiny.ports[0], "/v1/models/tiny:predict", found.rest.encode())
    assert (code, answer["predictions"][0]["shout"]) == (200, "IT'S é")
    request = json_format.Parse(found.grpc.replace("NAME", "tiny"), message("PredictRequest")())
    assert array(call(tiny.ports[1], "Predict", request).outputs["scores"]).tolist() == [[1.0, 2.0]]
    with Client(f"grpc://127.0.0.1:{tiny.ports[1]}", "tiny") as client:
        assert client.predict(json.loads(found.inputs))["shout"] == ["IT'S é"]
    monkeypatch.setattr(messages, "array", lambda tensor: array(tensor)[:0])
    with pytest.raises(InputError, match=r"a server reads other inputs than \['n', 'text'\] in a request"):
        card_requests.run(folder / "3", serve, {"n": tf.constant([3]), "text": tf.constant(["a"])})


def test_long_answers_are_cut_for_a_reader():
    assert card_requests._short([0.123456, *range(9)]) == [0.1235, 0, 1, 2, 3, 4, "... 10 in all"]


def test_a_licence_is_the_base_models_where_it_says_one(tmp_path):
    def licence(start):
        return model_card.licence(Facts(tmp_path, {"start": str(start)}, {}, {}, {}))

    assert licence(tmp_path) == licence("bert-base-uncased") == licence("") == ""
    for text, wanted in (
        ("---\nlanguage: en\nlicense: apache-2.0\n---\n# x", "apache-2.0"),
        ('---\nlicense: "cc-by-4.0"\n---\n', "cc-by-4.0"),
        ("# x\nlicense: mit\n", ""),
        ("---\ntags: x\n---\nlicense: mit\n", ""),
        ("---\nlicense:\n- mit\n---\n", ""),
    ):
        (tmp_path / "README.md").write_text(text)
        assert licence(tmp_path) == wanted, text
    (tmp_path / "README.md").write_bytes(b"---\nlicense: \xff\xfe\n---\n")
    assert licence(tmp_path) == ""


def test_what_is_not_known_is_said_so(tmp_path):
    told = "\n".join(model_card._of_run(None, "", "encoder")[1])
    assert "## Results\n\nNone are recorded.\n" in told
    assert "## Training\n\nNothing is recorded.\n" in told
    assert told.endswith("## Licence\n\n- base model: not known: write it here\n- data: not known: write it here")
    (tmp_path / "dev.json").write_text('{"metrics": {"accuracy": "high"}}')
    (tmp_path / "metrics.jsonl").write_text("")
    assert "\n".join(model_card._of_run(tmp_path, "", "encoder")[1]) == told  # a damaged one

"""What `serve-check` sees of a folder, as a server would: damage, operators, answers that differ, times."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.export import beside, serve_check
from kerasbert.export.messages import message
from tests.export import served


def test_the_check_of_a_server_needs_nothing_of_ours():
    """It runs as a file beside TensorFlow alone; a type's import had brought kerasbert into its process."""
    code = (
        f"import runpy, sys; sys.modules['kerasbert'] = None; runpy.run_path({serve_check.__file__!r}, run_name='read')"
    )
    subprocess.run([sys.executable, "-I", "-c", code], check=True, timeout=60)


def test_files_that_differ_from_their_sums_and_operators_are_read_without_ours(tmp_path):
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    for name in ("same", "other"):
        (tmp_path / name).write_text(name)
    sums = [f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n" for name in ("same", "gone", "another")]
    (tmp_path / serve_check.SUMS).write_text("".join(sums).replace("another", "other"))
    assert [*serve_check.differing(tmp_path)] == [("gone", False), ("other", True)]
    assert serve_check.damaged(tmp_path) == ["gone is missing", "other is not what was exported (sha256)"]
    model = SavedModel()
    graph = model.meta_graphs.add().graph_def
    graph.node.add(name="x", op="Placeholder")
    graph.node.add(name="call", op="__inference_f_1")
    function = graph.library.function.add()
    function.signature.name = "__inference_f_1"
    function.node_def.add(name="y", op="AddV2")
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    assert serve_check.operators(tmp_path) == {"Placeholder", "AddV2"}


def test_an_answer_that_differs_is_named():
    wanted = np.array([[0.5, 0.25]], "float32")
    assert serve_check.differs("score", wanted, wanted + 5e-5) == ""
    assert serve_check.differs("score", wanted, wanted + 2e-3) == "score differs by 0.002, allowed 0.0001"
    assert serve_check.differs("score", wanted, wanted[:, :1]) == "score has the shape (1, 1), recorded (1, 2)"
    assert (
        serve_check.differs("text", np.array([b"a"], object), np.array([b"b"], object))
        == "text is another one than recorded"
    )
    log = beside.prediction_log("ids", {"n": tf.constant([300])}, {"y": tf.constant([b"z"])})
    content = dict(serve_check.fields(dict(serve_check.fields(log))[6]))
    assert serve_check.tensors(content[1], 2)["n"].tolist() == [300]
    assert serve_check.tensors(content[2], 1)["y"].tolist() == [b"z"]


def test_fields_of_a_message_by_hand():
    """A key is the number * 8 + 2, then the length as 7 bits a byte, then so many bytes."""
    assert [*serve_check.fields(b"")] == []
    assert [*serve_check.fields(b"\x0a\x02ab\x12\x00\x7a\x01c")] == [(1, b"ab"), (2, b""), (15, b"c")]
    long = b"x" * 300
    assert [*serve_check.fields(b"\x82\x01\xac\x02" + long)] == [(16, long)]
    log = message("PredictRequest")(output_filter=["y" * 20000])
    log.model_spec.name = "m"
    assert dict(serve_check.fields(log.SerializeToString()))[3] == b"y" * 20000
    for key in (b"\x08\x01", b"\x0d\x00\x00\x00\x00"):
        with pytest.raises(ValueError, match="a warm-up record is damaged"):
            list(serve_check.fields(key))


@pytest.mark.parametrize(
    ("wanted", "received", "said"),
    [
        ([1.0, 2.0], [1.0, 2.0], ""),
        ([100.0, 0.0], [100.0, 0.0099], ""),  # a ten-thousandth of the largest
        ([100.0, 0.0], [100.0, 0.011], "y differs by 0.011, allowed 0.01"),
        ([0.1, 0.0], [0.1, 9e-5], ""),
        ([0.1, 0.0], [0.1, -2e-4], "y differs by 0.0002, allowed 0.0001"),
        ([1, 2], [1, 2], ""),
        ([1, 2], [1, 3], "y is another one than recorded"),
        ([1, 2], [1.0, 2.0], "y has the shape (2,), recorded (2,)"),
        ([b"a"], [b"a"], ""),
        ([], [], ""),
    ],
)
def test_how_far_an_answer_may_be_off(wanted, received, said):
    assert serve_check.differs("y", np.array(wanted), np.array(received)) == said


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of a few operators with what `export` writes beside one."""
    folder = served.write(tmp_path_factory.mktemp("served") / "1", parameters=None)
    signatures = tf.saved_model.load(str(folder)).signatures
    texts, numbers = tf.constant(["a", "b"]), tf.constant([1, 2])
    given = {
        "serving_default": {"text": texts, "n": numbers},
        "one": {"text": texts},
        "lists": {"choices": tf.constant([["a", "b"]]), "counts": tf.constant([1])},
    }
    beside.write(folder, [(name, inputs, signatures[name](**inputs)) for name, inputs in given.items()])
    beside.sums(folder)
    return folder


def test_a_whole_folder_has_no_problem(folder):
    report = serve_check.check(folder)
    assert report["problems"] == report["operators_of_tensorflow_text"] == []
    assert report["tensorflow"] == tf.__version__
    assert report["operators"] == len(serve_check.operators(folder)) > 5
    assert sorted(report["signatures"]) == ["lists", "one", "serving_default"]
    for times in report["signatures"].values():
        assert times["later_ms"] > 0
        assert times["first_ms"] > 0
    assert report["load_s"] >= 0
    assert report["warm_up_s"] >= 0


def test_a_changed_file_is_the_only_problem(folder, tmp_path):
    import shutil

    other = shutil.copytree(folder, tmp_path / "1")
    (other / "saved_model.pb").write_bytes((other / "saved_model.pb").read_bytes() + b"\x00")
    assert serve_check.check(other) == {"problems": ["saved_model.pb is not what was exported (sha256)"]}


class Answers:
    """A signature that answers so, and counts its calls."""

    def __init__(self, **outputs):
        self.outputs, self.calls = outputs, 0

    def __call__(self, **given):
        self.calls += 1
        return {name: tf.constant(value) for name, value in self.outputs.items()}


def test_what_a_replay_finds():
    good, worse, other = Answers(y=[0.5]), Answers(y=[0.75]), Answers(z=[0.5])
    record = {"x": tf.constant([1])}
    records = [beside.prediction_log(name, record, {"y": tf.constant([0.5])}) for name in ("a", "b", "c", "d", "a")]
    report = {"problems": []}
    requests = serve_check.answered({"a": good, "b": worse, "c": other}, records, report)
    assert report["problems"] == [
        "signature b: y differs by 0.25, allowed 0.0001",
        "signature c returns z; others are recorded",
        "the warm-up calls signature d, which is not there",
    ]
    assert sorted(requests) == ["a", "b", "c"]
    assert requests["a"]["x"].numpy().tolist() == [1]
    assert good.calls == 2
    times = serve_check.timed({"a": good}, {"a": requests["a"]})
    assert good.calls == 2 + 1 + serve_check.CALLS
    assert sorted(times["a"]) == ["first_ms", "later_ms"]

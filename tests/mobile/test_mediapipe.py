"""Metadata for MediaPipe: what its reader looks for is where the schema says."""

import pytest

from kerasbert.mobile import mediapipe

flatbuffers = pytest.importorskip("flatbuffers")


class Reader:
    """A FlatBuffer table read by field number."""

    def __init__(self, data, position=None):
        if position is None:
            position = int.from_bytes(data[:4], "little")
        self.data, self.table = data, flatbuffers.table.Table(bytearray(data), position)

    def text(self, field):
        offset = self.table.Offset(4 + 2 * field)
        return self.table.String(offset + self.table.Pos).decode() if offset else None

    def byte(self, field):
        offset = self.table.Offset(4 + 2 * field)
        return self.table.Get(flatbuffers.number_types.Uint8Flags, offset + self.table.Pos) if offset else 0

    def child(self, field):
        return Reader(self.data, self.table.Indirect(self.table.Offset(4 + 2 * field) + self.table.Pos))

    def children(self, field):
        offset = self.table.Offset(4 + 2 * field)
        if not offset:
            return []
        start, size = self.table.Vector(offset), self.table.VectorLen(offset)
        return [Reader(self.data, self.table.Indirect(start + 4 * i)) for i in range(size)]


def test_names_tokenizer_and_labels():
    data = mediapipe.build(["segment_ids", "ids", "mask"], ["probabilities"], True, "bert/tiny", "a model")
    assert data[4:8] == b"M001"
    model = Reader(data)
    assert model.text(0) == "bert/tiny"
    (graph,) = model.children(3)
    assert [tensor.text(0) for tensor in graph.children(2)] == ["segment_ids", "ids", "mask"]
    (output,) = graph.children(3)
    (labels,) = output.children(6)
    assert (labels.text(0), labels.byte(2)) == ("labels.txt", mediapipe.TENSOR_AXIS_LABELS)
    (unit,) = graph.children(5)
    assert unit.byte(0) == mediapipe.BERT_TOKENIZER_OPTIONS
    (vocabulary,) = unit.child(1).children(0)
    assert (vocabulary.text(0), vocabulary.byte(2)) == ("vocab.txt", mediapipe.VOCABULARY)


def test_vectors_have_no_labels_file():
    graph = Reader(mediapipe.build(["ids"], ["vector"], False, "n", "d")).children(3)[0]
    assert graph.children(3)[0].children(6) == []


def test_words_are_read_by_a_process_unit_of_the_one_input():
    graph = Reader(mediapipe.build(["ids"], ["probability"], True, "n", "d", words=True)).children(3)[0]
    assert graph.children(5) == []
    (unit,) = graph.children(2)[0].children(4)
    assert unit.byte(0) == mediapipe.REGEX_TOKENIZER_OPTIONS
    assert unit.child(1).text(0) == r"[^\w\']+"
    (vocabulary,) = unit.child(1).children(1)
    assert (vocabulary.text(0), vocabulary.byte(2)) == ("vocab.txt", mediapipe.VOCABULARY)


def test_file_for_mediapipe(mediapipe_file):
    from kerasbert.mobile.tflite import repack

    path, report = mediapipe_file
    assert report["target"] == "mediapipe"
    assert report["lengths"] == [32]
    model = repack.read(path.read_bytes())
    assert len(model.subgraphs) == 1
    graph, s = model.subgraphs[0], repack.schema()
    for index in graph.inputs:
        assert list(graph.tensors[index].shape) == [1, 32]
        assert graph.tensors[index].type == s.TensorType.INT32
    entry = next(entry for entry in model.metadata if entry.name == mediapipe.BUFFER_NAME)
    (output,) = Reader(bytes(model.buffers[entry.buffer].data)).children(3)[0].children(3)
    assert output.text(0) == "probability"  # which the Task Library looks for
    names = [tensor.text(0) for tensor in Reader(bytes(model.buffers[entry.buffer].data)).children(3)[0].children(2)]
    signature = {part.tensorIndex: part.name.decode() for part in model.signatureDefs[0].inputs}
    assert names == [signature[index] for index in graph.inputs]
    assert sorted(names) == ["ids", "mask", "segment_ids"]

"""TFLite model metadata, as the text tasks of MediaPipe and of the Task Library read it, and how these tokenize.

The metadata is a FlatBuffer in the model, its files are in a zip behind it.

Source: tflite-support's metadata_schema.fbs (file identifier M001); the numbers below are its field order and enums.
Only the tables that a BERT classifier, embedder or question answerer needs.
"""

import functools
import string
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence

import flatbuffers
import numpy as np

from kerasbert.inputs import NAMES
from kerasbert.storage.json_view import Json
from kerasbert.text import WordPiece, base
from kerasbert.text.base import to_text
from .tflite import repack

IDENTIFIER = b"M001"
BUFFER_NAME = b"TFLITE_METADATA"
PARSER_VERSION = "1.1.0"  # the first that knows BertTokenizerOptions
REGEX_PARSER_VERSION = "1.2.1"  # RegexTokenizerOptions
REGEX_LENGTH = 256  # tokens of a text, where nothing is said: Model Maker's averaged vectors have as many
DELIMITERS = r"[^\w\']+"  # what parts words, in RE2
PROBABILITY = "probability"  # the name of a classifier's output: the Task Library's BertNLClassifier looks for it
VOCABULARY_FILE, LABELS_FILE = "vocab.txt", "labels.txt"
# MediaPipe finds the inputs by these metadata names, whatever the tensors are called.
INPUTS = dict(zip(NAMES, ("ids", "mask", "segment_ids"), strict=True))
DESCRIPTIONS = {
    "ids": "Token ids: [CLS] text [SEP], padded with 0.",
    "mask": "1 for tokens, 0 for padding.",
    "segment_ids": "0 for the first text, 1 for the second.",
}
READ_WORDS = "Word ids: <START>, then the text's, padded with <PAD>."

# AssociatedFileType, ContentProperties, ProcessUnitOptions of the schema
TENSOR_AXIS_LABELS, VOCABULARY = 2, 5
FEATURE_PROPERTIES = 1
BERT_TOKENIZER_OPTIONS, REGEX_TOKENIZER_OPTIONS = 4, 6

ASCII_CAPITALS = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
BLANKS = "\t\n\f\r "  # RE2's \s, which knows no other
IDEOGRAPHS = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F))
IDEOGRAPHS += ((0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))
MAX_BYTES = 100  # a longer word is [UNK]


class Tokenizer(WordPiece):
    """MediaPipe's tokenizer for every BERT, whatever the model was trained with.

    It lower-cases ASCII alone, keeps accents, and takes every character for a part of a word that is no ASCII blank, no
    punctuation and no ideograph: no-break spaces and invisible marks too, which BERT's own drops. Source: tflite-support's
    bert_tokenizer.h (kDefaultDelimRe), and the answers of MediaPipe 1.2.2, which tests compare.
    """

    def encode(self, text: str | bytes) -> list[int]:
        """Ids of a text, without special tokens."""
        return self.tokenize_plain(to_text(text), True)[0]

    def tokenize_plain(self, text: str, first: bool) -> tuple[list[int], list[int], list[int]]:
        text = text.partition("\0")[0].translate(ASCII_CAPITALS)  # a C string ends at a null character
        ids: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        for begin, end in _words(text):
            word, start = text[begin:end], begin
            pieces = self._pieces(word) if len(word.encode()) <= MAX_BYTES else [(self.unk_id, len(word))]
            for number, length in pieces:
                ids.append(number)
                starts.append(start)
                start = begin + length
                ends.append(start)
        return ids, starts, ends


def _words(text: str) -> Iterator[tuple[int, int]]:
    """Where each word begins and ends."""
    begin = 0
    for place, c in enumerate(text):
        alone = _alone(c)
        if alone or c in BLANKS:
            if begin < place:
                yield begin, place
            if alone:
                yield place, place + 1
            begin = place + 1
    if begin < len(text):
        yield begin, len(text)


@functools.lru_cache(4096)
def _alone(c: str) -> bool:
    """Whether a character is a word of its own."""
    if c.isascii():
        return c in string.punctuation
    return unicodedata.category(c)[0] == "P" or any(first <= ord(c) <= last for first, last in IDEOGRAPHS)


def tokenizer(own: base.Tokenizer) -> Tokenizer | None:
    """MediaPipe's tokenizer with the vocabulary of a model's own; None where it is the model's own (`text.regex`)."""
    if reads_words(own):
        return None
    return Tokenizer(own.vocabulary, lowercase=False, strip_accents=False)


def reads_words(own: base.Tokenizer) -> bool:
    """Whether MediaPipe reads a model's texts by its `regex` tokenizer: one input, `ids`, in which <PAD> is what is no token."""
    return own.kind == "regex"


def completed(read: Mapping[str, object], wanted: Iterable[str], own: base.Tokenizer) -> Json:
    """What a network reads beside `ids` where MediaPipe gives these alone: everything but <PAD> is there, in one segment.

    Args:
        read: name -> int32 tensor [1, S]. wanted: names of what the network reads. own: its tokenizer.
    """
    if not reads_words(own):
        return {}
    from keras import ops

    there = ops.cast(ops.not_equal(read["token_ids"], own.pad_id), "int32")
    made = {"padding_mask": there, "segment_ids": ops.zeros_like(there)}
    return {name: made[name] for name in wanted if name not in read}


class Table:
    """A FlatBuffer table to be: fields by their number in the schema; None is left out.

    A value is a str, a Table, a list of them, or an int (one byte: an enum).
    """

    def __init__(self, size: int, fields: dict[int, object]) -> None:
        self.size, self.fields = size, {number: value for number, value in fields.items() if value not in (None, [])}

    def write(self, builder: flatbuffers.Builder) -> int:
        """Offset of the table; what it refers to is written first."""
        offsets = {}
        for number, value in self.fields.items():
            if isinstance(value, str):
                offsets[number] = builder.CreateString(value)
            elif isinstance(value, Table):
                offsets[number] = value.write(builder)
            elif isinstance(value, list):
                offsets[number] = _vector(builder, value)
        builder.StartObject(self.size)
        for number, value in self.fields.items():
            if number in offsets:
                builder.PrependUOffsetTRelativeSlot(number, offsets[number], 0)
            else:
                builder.PrependUint8Slot(number, value, 0)
        return builder.EndObject()


def _vector(builder: flatbuffers.Builder, values: list) -> int:
    offsets = [builder.CreateString(v) if isinstance(v, str) else v.write(builder) for v in values]
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return builder.EndVector()


def _file(name: str, description: str, kind: int) -> Table:
    return Table(5, {0: name, 1: description, 2: kind})


def _tensor(name: str, description: str, files: list[Table] | None = None, units: list[Table] | None = None) -> Table:
    content = Table(3, {0: FEATURE_PROPERTIES, 1: Table(0, {})})
    return Table(7, {0: name, 1: description, 3: content, 4: units, 6: files})


def build(
    inputs: Sequence[str], outputs: Sequence[str], labels: bool, name: str, description: str, words: bool = False
) -> bytes:
    """The metadata FlatBuffer of a one-subgraph BERT, or of a model that reads words.

    Args:
        inputs: the metadata names (`ids`, `mask`, `segment_ids`) in the order of the subgraph's inputs.
        outputs: the names of the outputs, in the order of the subgraph's.
        words: whether the `regex` tokenizer gives the one input.
        labels: whether a labels file names the columns of the one output.
        name: shown by viewers.
        description: shown by viewers.
    """
    if words:  # a process unit of the tensor; that of a BERT is of all inputs
        vocabulary = _file(VOCABULARY_FILE, "A word, a blank and its id a line.", VOCABULARY)
        own = [Table(2, {0: REGEX_TOKENIZER_OPTIONS, 1: Table(2, {0: DELIMITERS, 1: [vocabulary]})})]
        of_all: list[Table] = []
    else:
        vocabulary = _file(VOCABULARY_FILE, "One piece a line; the line number is the id.", VOCABULARY)
        of_all, own = [Table(2, {0: BERT_TOKENIZER_OPTIONS, 1: Table(1, {0: [vocabulary]})})], []
    files = (
        [_file(LABELS_FILE, "One label a line, in the order of the output.", TENSOR_AXIS_LABELS)] if labels else None
    )
    graph = Table(
        10,
        {
            2: [_tensor(part, READ_WORDS if words else DESCRIPTIONS[part], units=own) for part in inputs],
            3: [_tensor(output, "What the model says.", files) for output in outputs],
            5: of_all,
        },
    )
    builder = flatbuffers.Builder(1024)
    version = REGEX_PARSER_VERSION if words else PARSER_VERSION
    builder.Finish(Table(8, {0: name, 1: description, 3: [graph], 7: version}).write(builder), IDENTIFIER)
    return bytes(builder.Output())


def attach(
    data: bytes, called: Mapping[str, str], labels: bool, name: str, description: str, words: bool = False
) -> bytes:
    """A .tflite of one subgraph, with metadata for MediaPipe or the Task Library; its zip of files must follow it.

    The signature's inputs must be called `ids`, `mask` and `segment_ids`; the file's own order of inputs and outputs is kept.

    Args:
        called: the signature's names of outputs -> those of the metadata, where they are others. The other arguments are those
            of `build`.
    """
    s = repack.schema()
    model = repack.read(data)
    if len(model.subgraphs) != 1:
        raise ValueError(f"the model has {len(model.subgraphs)} subgraphs, expected 1: MediaPipe reads no others")
    signature = model.signatureDefs[0]
    named = {entry.tensorIndex: entry.name.decode() for entry in (*signature.inputs, *signature.outputs)}
    inputs, outputs = (
        [named[int(i)] for i in side] for side in (model.subgraphs[0].inputs, model.subgraphs[0].outputs)
    )
    content = build(inputs, [called.get(each, each) for each in outputs], labels, name, description, words)
    buffer, entry = s.BufferT(), s.MetadataT()
    buffer.data = np.frombuffer(content, np.uint8)
    entry.name, entry.buffer = BUFFER_NAME, len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or []), entry]
    return repack.write(model)

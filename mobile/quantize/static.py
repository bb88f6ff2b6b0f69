"""int8 activations whose scales were found on real texts: `static_int8`, and `full_int8` for chips that take nothing else.

Differs from the converter's own recipe (Jacob et al., 2018: every operator in int8), which takes a fine-tuned BERT apart:
88% of MiniLM's labels on SST-2 stayed the same. Two things do it, and `static_int8` leaves both in float:

- norms and residual sums. A few coordinates of the residual are a hundred times the others and their squares ten thousand
  times (Bondarenko et al., 2021, "Understanding and Overcoming the Challenges of Efficient Transformer Quantization"); one
  scale for all leaves the others no steps. Arithmetic is a hundredth of the work.
- any other operator whose values are as uneven: in MiniLM the GELU and the second matrix of the feed-forward in layers 0 to 4.
  Such a matrix is int8 still, with float activations quantized per token as in `dynamic_int8`; so is one that reads values
  that are less uneven, because its result sums up the rounding of a whole row (MiniLM: queries, keys and values of layers
  3 and 4; on QNLI that takes 94% of equal labels to 96%).
"""

from collections.abc import Mapping

import numpy as np

from kerasbert.captured_output import captured
from kerasbert.errors import InputError
from ..tflite import buckets, repack
from ..tflite import weights as parts
from ..tflite.repack import ModelT
from .ranges import Range

ARITHMETIC = ("ADD", "SUB", "MUL", "DIV", "MEAN", "SUM", "SQUARED_DIFFERENCE", "RSQRT", "SQRT", "SQUARE", "POW", "NEG")
# of `Range`. In MiniLM attention probabilities have 190, the worst GELU 27, what the second matrices make 0.8 to 14.
FINENESS = 100.0
READ = 300.0  # of what a matrix product reads. In MiniLM what the norms make has 250 to 900
_MOVES = ("CAST", "QUANTIZE", "DEQUANTIZE")

Ranges = Mapping[tuple[int, int], Range]


def full(data: bytes, seen: Ranges) -> bytes:
    """A float file with every operator in int8; ids and mask come in as int32, the output goes out as float.

    Raises:
        InputError: an operator has no int8 form.
    """
    made = _quantized(data, seen, [], [])
    if left := floats(repack.read(made)):
        raise InputError(
            f"no int8 form of {', '.join(left)} in this model, expected one of every operator. Do: --quantize static_int8"
        )
    return made


def static(data: bytes, seen: Ranges, fineness: float = FINENESS, read: float = READ) -> bytes:
    """A float file with int8 operators where int8 can hold their values.

    Args:
        data: the file, its tensors named.
        seen: of `ranges.observe`.
        fineness: float, of a tensor's Range; an operator that makes a tensor below it stays float.
        read: float, the same of a tensor that a matrix product reads.
    """
    model = repack.read(data)
    coarse = {place for place, found in seen.items() if found.fineness < fineness} | _products(model, seen, read)
    names = sorted({_name(model, place) for place in coarse})

    def make(data: bytes, seen: Ranges) -> bytes:
        half = repack.read(_quantized(data, seen, list(ARITHMETIC), names))
        return repack.write(parts.lower(half, parts.find(half)))

    lengths = buckets.lengths(data)
    if len(lengths) > 2:
        # the quantizer copies every weight for every length; as all have one scale, two lengths give the others
        two = [lengths[length] for length in buckets.sample(lengths)]
        kept = [entry.subgraphIndex for entry in model.signatureDefs if entry.signatureKey.decode() in two]
        fewer = {(kept.index(number), index): seen[number, index] for number, index in seen if number in kept}
        made = buckets.add(make(buckets.only(data, two), fewer), lengths)
        if made is not None:
            return made
    return make(data, seen)


def _products(model: ModelT, seen: Ranges, read: float) -> set[tuple[int, int]]:
    """Results of the matrix products that read a tensor of less fineness than `read`."""
    kind = repack.schema().BuiltinOperator.FULLY_CONNECTED
    return {
        (number, int(operator.outputs[0]))
        for number, graph in enumerate(model.subgraphs)
        for operator in graph.operators
        if parts.builtin(model, operator) == kind
        and (found := seen.get((number, parts.inputs_of(operator)[0])))
        and found.fineness < read
    }


def _name(model: ModelT, place: tuple[int, int]) -> str:
    return model.subgraphs[place[0]].tensors[place[1]].name.decode()


def _quantized(data: bytes, seen: Ranges, operators: list[str], nodes: list[str]) -> bytes:
    """What TensorFlow's quantizer makes of a file with ranges; operators of those kinds and results of those names stay."""
    from tensorflow.lite.python.convert import mlir_quantize

    model, s = repack.read(data), repack.schema()
    for (number, index), found in seen.items():
        limits = model.subgraphs[number].tensors[index].quantization = s.QuantizationParametersT()
        limits.min, limits.max = np.asarray([found.least], np.float32), np.asarray([found.largest], np.float32)
    with captured() as log:
        try:
            return mlir_quantize(repack.write(model), denylisted_ops=operators, denylisted_nodes=nodes)
        except Exception as error:
            lines = [line.strip() for line in f"{error}\n{log()}".splitlines() if line.strip()]
            reason = next((line for line in lines if "error: " in line), next(iter(lines), type(error).__name__))
            raise InputError(f"TensorFlow's quantizer refused the model: {reason[:300]}") from error


def floats(model: ModelT) -> dict[str, int]:
    """Operators with float results: name -> how often, in the last subgraph.

    A matrix product with int8 weights is not counted: it quantizes its float inputs itself.
    """
    s = repack.schema()
    names = {value: name for name, value in vars(s.BuiltinOperator).items() if isinstance(value, int)}
    graph = model.subgraphs[-1]
    counts: dict[str, int] = {}
    for operator in graph.operators:
        name = names[parts.builtin(model, operator)]
        types = {graph.tensors[int(index)].type for index in operator.outputs}
        if name == "FULLY_CONNECTED" and graph.tensors[parts.inputs_of(operator)[1]].type == s.TensorType.INT8:
            continue
        if name not in _MOVES and s.TensorType.FLOAT32 in types:
            counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

"""What every quantization scheme must pass, ours and a third party's: its file, beside the float file that it is made of."""

import contextlib
import difflib
import functools
import inspect
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import kerasbert as kb
from kerasbert import spec as specs
from kerasbert.answers import nearness
from kerasbert.cli.options import Keywords
from kerasbert.errors import InputError
from kerasbert.layers.naming import names as weight_names
from kerasbert.storage.json_view import Json
from kerasbert.tasks import predict
from kerasbert.tasks.base import kind_of
from kerasbert.testing import world
from kerasbert.testing.battery import Subject, shallow
from . import compress
from .model_and_texts import about
from .pipeline.conversion import inputs_of, program
from .quantize import forms
from .quantize.schemes import LITERT, SCHEMES, TFLITE, Scheme
from .runtime import load
from .scheme_rules import KNOWN
from .tflite import convert, repack, weights

if TYPE_CHECKING:
    from ai_edge_litert.interpreter import Interpreter


LENGTHS = (12, 16)
FLOATS = "float32"
LEAST = 0.5  # of agreement and fidelity: a scheme that asks for less judges nothing


def check_scheme(name: str, folder: Path) -> Json:
    """A scheme's file is made, opened, run and judged.

    Its fields are known ones. Made twice it has the same bytes; TFLite opens it; its signatures are those of the float file; no
    constant but the declared weights is another; it is smaller; its answers are near the float file's. `compress` refuses what
    the scheme does not take, and writes the file, which the phone's runtime answers with.

    Args:
        name: str, of `quantize.schemes.SCHEMES`.
        folder: Path, where a tiny classifier is trained once (10 s) for all schemes that are checked with it.

    Returns:
        The report of `compress`.

    Raises:
        AssertionError: what is wrong; it names the field, or says of `make` what it did.
    """
    scheme = SCHEMES.find(name)
    problems = _fields(name, scheme)
    assert not problems, "\n".join(problems)
    files = Files(folder)
    made = _made(name, scheme, files)
    _check_opened(name, files, made)
    _check_constants(name, scheme, files, made)
    _check_size(name, scheme, files, made)
    _check_near(name, scheme, files, made)
    _check_refusals(name, scheme, files)
    return _check_written(name, scheme, files)


def _fields(name: str, scheme: Scheme) -> list[str]:
    """What is wrong with the row itself, a line each."""
    who, found = f"Scheme {name!r}", []
    for field in ("weights", "tables", "activations"):
        known, value = KNOWN[field], getattr(scheme, field)
        if value not in known:
            near = difflib.get_close_matches(str(value), known, 1)
            nearest = f" Nearest: {near[0]!r}." if near else ""
            found.append(f"{who}: {field} is {value!r}.{nearest} Expected one of {', '.join(known)}")
    for field in ("agreement", "fidelity"):
        if not LEAST <= getattr(scheme, field) <= 1:
            found.append(f"{who}: {field} is {getattr(scheme, field)!r}, expected a share of {LEAST} to 1")
    if scheme.tolerance is not None and not 0 < scheme.tolerance < 1:
        found.append(
            f"{who}: tolerance is {scheme.tolerance!r}, expected a difference of probabilities above 0, or None"
        )
    if unknown := set(scheme.runtimes) - {LITERT, TFLITE}:
        found.append(f"{who}: runtimes names {', '.join(sorted(unknown))}, expected {LITERT} or {TFLITE}")
    if not scheme.runtimes:
        found.append(f"{who}: runtimes is empty, so that nothing computes the file: expected {LITERT} or {TFLITE}")
    if scheme.make is not None and (wrong := _uncallable(scheme.make)):
        found.append(f"{who}: make {wrong}, expected a function (float32 .tflite, batches) -> .tflite")
    if scheme.make is not None and scheme.converter:
        found.append(f"{who}: make and converter are both given: the converter makes the file, or make does")
    if scheme.make is None and not scheme.converter:
        found += _unmade(who, scheme)
    return found


def _unmade(who: str, scheme: Scheme) -> Iterator[str]:
    """Fields that nothing here makes a file of."""
    if "float16" in (scheme.weights, scheme.tables):
        yield f"{who}: float16 is declared and nothing makes it: expected converter=True, or make="
    if scheme.activations in ("static", "int8") and not scheme.calibrated:
        yield f"{who}: activations are {scheme.activations!r} and calibrated is False: their ranges are of real texts"
    if scheme.calibrated and scheme.activations not in ("static", "int8"):
        yield f"{who}: calibrated is True and activations are {scheme.activations!r}: no range is needed, or make= takes it"


def _uncallable(make: object) -> str:
    if not callable(make):
        return f"is a {type(make).__name__}"
    with contextlib.suppress(ValueError):  # of C
        try:
            inspect.signature(make).bind(b"", ())
        except TypeError:
            return f"takes {inspect.signature(make)}"
    return ""


class Files:
    """A tiny classifier that has learnt its task, its float file, and texts; all kept in a folder.

    Attributes:
        floats: bytes, the float32 file with named tensors.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = world.labelled(folder / "scheme-train.tsv", 640), world.labelled(folder / "scheme-dev.tsv", 64, 1)
        run, floats = folder / "scheme-run", folder / "scheme-floats.tflite"
        if not run.exists():
            subject = Subject("bert", folder, hidden=64)
            subject.spec = specs.derive(subject.spec, shallow(subject.spec))
            settings = {
                "steps": 60,
                "batch": 32,
                "length": LENGTHS[-1],
                "learning_rate": 3e-3,
                "quiet": True,
            }
            kb.finetune(subject.encoder(scale=0.1), "classification", self.rows, out=run, **settings)
        self.model = kb.load(run)
        self.bundle = about(
            self.model, {length: f"length_{length}" for length in LENGTHS}, model="", quantization=FLOATS, litert=""
        )
        if not floats.exists():
            called = program(self.model, self.bundle)
            floats.write_bytes(convert.named(self.model, called, self._signatures, inputs_of(self.bundle), FLOATS))
        self.floats = floats.read_bytes()

    @property
    def _signatures(self) -> dict[int | None, str]:
        return {length: self.bundle.signature(length) for length in LENGTHS}

    @functools.cached_property
    def texts(self) -> list[str]:
        """Of the dev rows."""
        return world.first_column(self.rows[1])

    @functools.cached_property
    def calibration(self) -> list[str]:
        """Real texts, of the training rows."""
        return world.first_column(self.rows[0], 100)

    def feeds(self, texts: list[str]) -> forms.Feeds:
        """What a file is fed with texts."""
        return forms.feeds(self.model.tokenizer, texts, self.bundle)

    def converted(self, name: str) -> bytes:
        """The file that TFLite's converter makes."""
        return convert.convert(
            self.model, program(self.model, self.bundle), self._signatures, inputs_of(self.bundle), name
        )

    @functools.cached_property
    def expected(self) -> np.ndarray:
        """The float file's outputs of the texts."""
        return self.outputs(self.floats)

    def outputs(self, data: bytes) -> np.ndarray:
        """A file's outputs of the texts, by TFLite's interpreter: float32 [n, C]."""
        runners = {name: interpreter(data).get_signature_runner(name) for name in self._signatures.values()}
        return np.concatenate([next(iter(runners[name](**given).values())) for name, given in self.feeds(self.texts)])


def interpreter(data: bytes) -> "Interpreter":
    """TFLite's interpreter of a file, which verifies the flatbuffer."""
    from ai_edge_litert.interpreter import Interpreter

    return Interpreter(model_content=data)


def _made(name: str, scheme: Scheme, files: Files) -> bytes:
    """The scheme's file; made twice, the same bytes."""
    if scheme.converter:
        return files.converted(name)
    texts = files.calibration if scheme.calibrated else []

    def make() -> bytes:
        with _blamed(name, scheme):
            made = scheme.make(files.floats, files.feeds(texts)) if scheme.make else None
        if scheme.make:
            assert isinstance(made, bytes), (
                f"{name}: make gives a {type(made).__name__}, expected the bytes of a .tflite"
            )
            with _blamed(name, scheme, "what make gave is no .tflite"):
                interpreter(made)
                return repack.slim(made)
        return forms.quantized(files.floats, name, list(weight_names(files.model)), files.feeds(texts))[0]

    made = make()
    assert make() == made, f"{name}: make gives other bytes the second time: draw nothing at random, keep no state"
    return made


@contextlib.contextmanager
def _blamed(name: str, scheme: Scheme, told: str = "") -> Iterator[None]:
    """What `make` raises as one line, with its place."""
    try:
        yield
    except Exception as error:
        *_, (frame, number) = traceback.walk_tb(error.__traceback__)
        code = getattr(inspect.unwrap(scheme.make), "__code__", None) if scheme.make else None
        frames = [(f, n) for f, n in traceback.walk_tb(error.__traceback__) if f.f_code is code] or [(frame, number)]
        where = f"{Path(frames[0][0].f_code.co_filename).name}, line {frames[0][1]}"
        said = next(iter(str(error).splitlines()), "")[:300]
        needs = "" if scheme.calibrated else " (it gets batches where calibrated=True alone)"
        line = f"{name}: {told}: {said}" if told else f"{name}: make ({where}): {type(error).__name__}: {said}{needs}"
        raise AssertionError(line) from error


def _check_opened(name: str, files: Files, made: bytes) -> None:
    """TFLite opens the file; its signatures take and give what the float file's do."""
    with _blamed(name, SCHEMES.find(name), "TFLite does not open the file"):
        opened, floats = interpreter(made), interpreter(files.floats)
    wanted, received = floats.get_signature_list(), opened.get_signature_list()
    assert wanted == received, (
        f"{name}: the file has the signatures {received}, expected those of the float file: {wanted}"
    )
    for signature in wanted:
        for side in ("get_input_details", "get_output_details"):
            one, other = (
                {
                    key: (tuple(value["shape"]), value["dtype"].__name__)
                    for key, value in getattr(runner, side)().items()
                }
                for runner in (floats.get_signature_runner(signature), opened.get_signature_runner(signature))
            )
            assert one == other, f"{name}: {signature} takes or gives {other}, expected {one} as the float file"


def _constants(data: bytes) -> list[tuple[str, int, bytes]]:
    """(name of a tensor, its type, bytes) of each constant, once."""
    model = repack.read(data)
    found = {}
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if (values := model.buffers[tensor.buffer].data) is not None:
                found.setdefault(tensor.buffer, ((tensor.name or b"").decode(), tensor.type, values.tobytes()))
    return list(found.values())


def _check_constants(name: str, scheme: Scheme, files: Files, made: bytes) -> None:
    """What the scheme does not declare is in the file as it was; of what it declares something is not."""
    if scheme.calibrated or scheme.activations in ("static", "int8"):
        return  # every constant may be in int8 then
    s, named = repack.schema(), repack.read(files.floats)
    kinds = {named.buffers[w.buffer].data.tobytes(): w for w in weights.find(named, weight_names(files.model), least=1)}
    there = {values for _, kind, values in _constants(made) if kind == s.TensorType.FLOAT32}
    whole = b"".join(there)  # a constant may have become the beginning of a longer one
    declared = {"matrix": scheme.weights, "table": scheme.tables}
    declared["tied"] = FLOATS if FLOATS in declared.values() else scheme.weights
    changed = {kind: 0 for kind, form in declared.items() if form != FLOATS}
    for tensor, type_, values in _constants(files.floats):
        if type_ != s.TensorType.FLOAT32 or len(values) < 8:  # one number may be folded
            continue
        weight = kinds.get(values)
        kind = "" if weight is None else weight.kind
        gone = values not in there and values not in whole
        if kind in changed:
            changed[kind] += gone
        elif gone and "float16" not in declared.values():
            told = f"the {kind} {weight.name}" if weight else f"the constant {tensor.split(';')[0]}"
            raise AssertionError(
                f"{name}: {told} is another than in the float file, and the scheme declares weights {scheme.weights}, tables "
                f"{scheme.tables} alone"
            )
    for kind, form in (("matrix", scheme.weights), ("table", scheme.tables)):
        assert form == FLOATS or changed[kind], f"{name}: {form} is declared, and every {kind} is float32 as it was"


def _check_size(name: str, scheme: Scheme, files: Files, made: bytes) -> None:
    floats, size = len(repack.slim(files.floats)), len(made)
    same = (scheme.weights, scheme.tables) == (FLOATS, FLOATS)
    assert size < floats or same, f"{name}: the file has {size} bytes, and {floats} in float32: nothing is smaller"


def _check_near(name: str, scheme: Scheme, files: Files, made: bytes) -> None:
    """The file's answers are as near the float file's as the scheme says."""
    kind = kind_of(files.model).answers
    with _blamed(name, scheme, "TFLite cannot run the file"):
        received = files.outputs(made)
    largest = float(np.abs(received - files.expected).max()) if np.isfinite(received).all() else np.inf
    if scheme.tolerance is not None:
        limit = f"tolerance {scheme.tolerance:g}"
        assert largest <= scheme.tolerance, f"{name}: the file differs by {largest:.2g} from the float file, {limit}"
        return
    agreement = kind.agreement(files.expected, received, ties=True)
    fidelity = nearness.fidelity(kind.signal(files.expected), kind.signal(received)) if np.isfinite(largest) else 0.0
    assert agreement >= scheme.agreement, (
        f"{name}: the file agrees with the float file on {agreement:.4f} of {len(files.texts)} texts, expected agreement "
        f"{scheme.agreement:g} (largest difference {largest:.2g})"
    )
    assert fidelity >= scheme.fidelity, (
        f"{name}: the file keeps {fidelity:.4f} of what the scores vary from text to text, expected fidelity {scheme.fidelity:g}"
    )


def _check_refusals(name: str, scheme: Scheme, files: Files) -> None:
    """What the scheme does not take is refused, and nothing is written."""
    out = files.folder / f"scheme-{name}-refused.tflite"
    wrong = {"calibration": None if scheme.calibrated else files.calibration}
    cases: list[Keywords] = [wrong]
    right = {"calibration": files.calibration} if scheme.calibrated else {}
    if "table" not in scheme.kinds:
        cases.append({**right, "embedding_codes": 16})
    if not scheme.budget:
        cases.append({**right, "max_drop": 1.0, "data": files.rows[1]})
    for given in cases:
        with contextlib.suppress(InputError):
            compress(files.model, name, out, lengths=LENGTHS, **given)
            raise AssertionError(f"{name}: compress takes {', '.join(given)}, which the scheme has no use for")
        assert not out.exists(), f"{name}: a file was written although {', '.join(given)} was refused"


def _check_written(name: str, scheme: Scheme, files: Files) -> Json:
    """`compress` writes the file and takes it for worth its model; the phone's runtime opens it and answers."""
    out = files.folder / f"scheme-{name}.tflite"
    given = {"calibration": files.calibration} if scheme.calibrated else {}
    try:
        report = compress(files.model, name, out, lengths=LENGTHS, data=files.rows[1], overwrite=True, **given)
    except InputError as error:
        raise AssertionError(f"{name}: compress refuses the scheme's file: {error}") from error
    runner = load(out, cache=False)
    labels = [answer.label for answer in runner(files.texts)]
    wanted = [answer.label for answer in predict.predict(files.model, files.texts, length=LENGTHS[-1])]
    same = sum(one == other for one, other in zip(labels, wanted)) / len(wanted)
    assert same >= min(scheme.agreement, 0.9), f"{name}: the runtime answers {same:.2f} of the texts as the model does"
    return report

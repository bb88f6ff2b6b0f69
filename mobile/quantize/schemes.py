"""Quantization schemes: one row says all that is particular to a name of `--quantize`. Nothing heavy is imported."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kerasbert.registry import Table

if TYPE_CHECKING:
    import numpy as np

    Feeds = Iterable[tuple[str, dict[str, np.ndarray]]]

LITERT, TFLITE = "ai-edge-litert", "tflite-runtime"  # interpreters, by their packages


@dataclasses.dataclass(frozen=True)
class Scheme:
    """What becomes of a float model, and what is asked of the file.

    Args:
        weights: str, type of the matrices: "float32", "float16" or "int8" (a scale per output).
        tables: str, type of the embedding tables, likewise (int8: a scale per row).
        activations: str, "float32"; "dynamic", int8 where a matrix is, with a range per token that is found while it runs;
            "static", int8 with ranges from real texts, and float where these would cost too much; "int8", nothing in float.
        calibrated: bool, whether ranges of the activations are taken from real texts.
        tolerance: float, largest difference of an output from the Keras model's; None: agreement alone is judged.
        agreement: float, least share of equal labels, ties aside (regression: correlation; vectors: mean cosine).
        fidelity: float, least share of the variance of the model's scores that the file keeps (`answers.nearness`).
        runtimes: interpreter that computes the file rightly -> its least version, "" for any.
        converter: bool, whether TFLite's converter makes the file. Else it is made from the converter's float32 file.
        make: (float32 .tflite, batches to calibrate with) -> .tflite. None: by what stands above.
    """

    weights: str = "float32"
    tables: str = "float32"
    activations: str = "float32"
    calibrated: bool = False
    tolerance: float | None = None
    agreement: float = 0.985
    fidelity: float = 0.99
    runtimes: Mapping[str, str] = dataclasses.field(default_factory=lambda: {LITERT: "", TFLITE: ""})
    converter: bool = False
    make: "Callable[[bytes, Feeds], bytes] | None" = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of weights (`tflite.editor.Weight`) that become int8 one by one; a budget may leave some in float."""
        if self.make or self.calibrated:
            return ()
        kinds = tuple(kind for kind, form in (("matrix", self.weights), ("table", self.tables)) if form == "int8")
        return (*kinds, "tied") if len(kinds) == 2 else kinds

    @property
    def budget(self) -> bool:
        """Whether some of it can stay float (`--max-drop`)."""
        return bool(self.kinds) or (self.activations == "static" and not self.make)


# Static ranges cost more than per-token ones; full_int8 is refused where it ruins the model.
# litert 2.0.2 to 2.1.2 get int8 activations wrong, by up to .7 of probability; tflite-runtime has no dynamic matrices.
_CALIBRATED = {"weights": "int8", "tables": "int8", "calibrated": True, "agreement": 0.95, "fidelity": 0.9}
# plug-ins add rows by SCHEMES.add(name, Scheme(...))
SCHEMES: Table[Scheme] = Table(
    "quantization", rules="kerasbert.mobile.scheme_rules:check"
)  # plug-ins: SCHEMES.add(name, Scheme(...))
SCHEMES.add("float32", Scheme(tolerance=1e-4, converter=True), "none", "float", "fp32")
SCHEMES.add("fp16", Scheme("float16", "float16", tolerance=5e-3, converter=True), "float16")
SCHEMES.add("dynamic_int8", Scheme("int8", "int8", "dynamic", runtimes={LITERT: ""}, converter=True), "int8")
SCHEMES.add("int8_embeddings", Scheme(tables="int8"))
SCHEMES.add("static_int8", Scheme(**_CALIBRATED, activations="static", runtimes={LITERT: "2.1.3"}))
SCHEMES.add("full_int8", Scheme(**_CALIBRATED, activations="int8", runtimes={LITERT: "2.1.3", TFLITE: ""}))

"""From a fine-tuned model to a phone: `compress` writes a .tflite, `kerasbert.mobile.runtime` runs it, `verify` replays
what `compress(golden=)` wrote. Imports nothing heavy.

`trim` takes pieces out of the vocabulary, `kerasbert.mobile.distill` and `kerasbert.mobile.prune` make the model smaller,
`kerasbert.mobile.quantize` trains it for its int8 file, `run_plan` does all of it one after the other.
"""

from kerasbert import lazy

# the file is not called compress.py: importing it would put the module in the place of the function
_HOMES = {
    "compress": "pipeline.compression",
    "load": "runtime",
    "verify": "golden",
    "trim": "vocabulary.trimming",
    "Plan": "pipeline.plan",
    "run_plan": "pipeline.plan",
}
__getattr__, __dir__, __all__ = lazy.public(__name__, _HOMES)

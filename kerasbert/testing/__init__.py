"""The battery that every family passes, for whoever adds one (extra `test`: it needs pytest).

registry.load_plugin("mine.py")
check_model("mine", tmp_path)  # seconds
check_finetuning("mine", tmp_path, tmp_path / "run")

`kerasbert.mobile.testing.check_journey` goes on to a SavedModel and an int8 .tflite.
"""

from kerasbert import lazy

_HOMES: dict[str, str] = dict.fromkeys(("check_finetuning", "check_model"), "battery")
__getattr__, __dir__, __all__ = lazy.public(__name__, _HOMES)

"""What every family, objective, kind of task and tokenizer must pass, for whoever adds one (extra `test`: pytest is needed).

registry.load_plugin("mine.py")
check_model("mine", tmp_path)  # a family: seconds
check_finetuning("mine", tmp_path, tmp_path / "run")
check_objective("mine", tmp_path)  # a pretraining objective
check_kind("mine", tmp_path)  # a Task over a kind
check_tokenizer("mine", tmp_path)  # a kind of tokenizer

`kerasbert.mobile.testing` goes on to SavedModels and .tflite files: `check_journey` (a family), `check_kind_journey` (a task) and
`check_scheme` (a quantization scheme).
"""

from kerasbert import lazy

_HOMES: dict[str, str] = {
    "check_finetuning": "battery",
    "check_kind": "kinds",
    "check_model": "battery",
    "check_objective": "objectives",
    "check_tokenizer": "tokenizers",
}
__getattr__, __dir__, __all__ = lazy.public(__name__, _HOMES)

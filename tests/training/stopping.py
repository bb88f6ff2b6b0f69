"""A run that is stopped behind its third update and begun again, beside one that is left alone."""

from pathlib import Path
from typing import Any

import pytest

import kerasbert as kb
from kerasbert.training.runs import Run


def ends_the_same(model: str, records: Any, folder: Path, **arguments: Any) -> None:
    """Four updates, a checkpoint every two: the weights of both runs are equal to the bit."""
    arguments |= {"steps": 4, "batch": 8, "save_every": 2, "log_every": 1, "quiet": True}
    kb.pretrain(model, records, out=folder / "whole", **arguments)
    log = Run.log

    def dying(self, record):
        log(self, record)
        if record["step"] == 3:
            raise RuntimeError("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "log", dying)
        with pytest.raises(RuntimeError, match="killed"):
            kb.pretrain(model, records, out=folder / "killed", **arguments)
    kb.pretrain(model, records, out=folder / "killed", **arguments)
    whole, killed = (folder / each / "weights.safetensors" for each in ("whole", "killed"))
    assert whole.read_bytes() == killed.read_bytes()

"""The whole journey on five novels that ship with the package: `kerasbert quickstart`."""

import os
from typing import Any

from kerasbert.options import checked
from kerasbert.storage.json_view import Json


@checked
def run(out: str | os.PathLike = "quickstart", **plan: Any) -> Json:
    """Vocabulary -> records -> pretraining -> fine-tuning -> SavedModel -> int8 .tflite -> ledger and report.html.

    Args:
        out: directory for all of it. The same call goes on where an interrupted one stopped and repeats nothing.
        plan: fields of `journey.Plan`, for a shorter or a longer journey.

    Returns:
        The numbers of the ledger (also in results.json).

    Raises:
        InputError: `out` holds something else.
    """
    from kerasbert.quickstart import journey

    return journey.run(out, journey.Plan(**plan))

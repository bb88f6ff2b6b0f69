"""Read a checkpoint of others, of any format that is known (`checkpoints.formats`)."""

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from kerasbert.checkpoints import formats, hub
from kerasbert.checkpoints.directory import save_model
from kerasbert.errors import InputError
from kerasbert.options import configured
from kerasbert.storage import files, unused

if TYPE_CHECKING:
    from kerasbert.checkpoints.coverage import Coverage


@configured(formats.ImportOptions)
@unused.told()
def import_checkpoint(
    path: str | os.PathLike,
    source: str | None = None,
    model: str | None = None,
    out: str | os.PathLike | None = None,
    *,
    dry_run: bool = False,
    overwrite: bool = False,
    build: bool = True,
    config: formats.ImportOptions,
) -> "Coverage":
    """Read a checkpoint of others; every weight is assigned exactly once and nothing of theirs is left over.

    Args:
        path: a folder, a file, the prefix of a TF1 checkpoint, or a name on the Hugging Face hub.
        source: the format, "hf", "tf1", "keras_hub", "allennlp" (ELMo's options.json and .hdf5) or another of
            `registry.FORMATS`; None: what the path looks like.
        out: a model directory to write; of a folder of sentence-transformers it answers with vectors, pooled as there.
        dry_run: bool, assign nothing and return the Coverage: what would go where, missing and left over. What the import
            would refuse for another reason is refused.
        overwrite: bool, whether an existing `out` is replaced.
        build: bool, False where `out` is all that is wanted: nothing is built then, no device is asked for, None comes back.
        {options}

    Returns:
        the encoder (a Keras model) with `.tokenizer` (None where there is none), `.labels`, `.task` and `.heads`
        ({head: {weight: float32 array}}) and `.source` ({"hub", "revision"} of a name), or with `dry_run` the Coverage.

    Raises:
        InputError: everything that is missing, extra or misshaped, in one line; no configuration; a setting that cannot
            be computed here; a pickle without consent; an option that the format does not read.
    """
    asked = dataclasses.replace(config, model=model)
    if out is not None and not dry_run:
        graph = asked.graph
        files.check_free(out, overwrite, [path, *([graph] if isinstance(graph, str | os.PathLike) else [])])
    path, revision = hub.plain(path)
    if revision is not None and asked.revision not in (None, revision):
        raise InputError(f"{path} is given at {revision}, and revision is {asked.revision}: give one of them")
    asked = dataclasses.replace(asked, revision=asked.revision or revision)
    place = Path(path)
    format = formats.find(place, source)
    format.check(asked, place)
    plan = format.plan(place, asked)
    if dry_run:
        return plan.dry_run()
    imported = plan.read()
    if out is not None:
        about = {"name": imported.name, "heads": imported.heads, **imported.described}
        save_model(out, replace=overwrite, encoder=imported.encoder, **about)
    return imported.build() if build else None

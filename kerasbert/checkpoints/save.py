"""Write a model directory as others' checkpoint, in any format that is known (`checkpoints.formats`)."""

import os
from pathlib import Path

from kerasbert.options import checked
from kerasbert.registry import FORMATS
from kerasbert.storage import files


@checked
def export_checkpoint(
    run: str | os.PathLike, path: str | os.PathLike, target: str = "hf", *, overwrite: bool = False
) -> None:
    """Write a model directory as a checkpoint that others read; the inverse of `import_checkpoint`.

    "hf" writes config.json, model.safetensors, vocab.txt, tokenizer.json and tokenizer_config.json, "tf1" writes
    bert_config.json, bert_model.ckpt and vocab.txt, "keras_hub" a preset of a classifier, a masked LM or a backbone; all have
    LoRA merged into the matrices. "peft" writes it alone, adapter_config.json and adapter_model.safetensors, with the head.

    Args:
        run: a model or run directory, or what else `checkpoints.source` knows.
        path: the folder to write; it appears whole or not at all.
        target: "hf", "tf1", "keras_hub", "peft", for ELMo "allennlp", for averaged vectors "model2vec"; or one of a plug-in
            (`registry.FORMATS`).
        overwrite: bool, whether an existing folder is replaced.

    Raises:
        InputError: the model has something that the format cannot say.
    """
    files.check_free(path, overwrite, [run])
    FORMATS.find(target).write(Path(run), path, overwrite)

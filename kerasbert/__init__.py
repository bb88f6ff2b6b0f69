"""kerasbert: the BERT family from raw text to a phone.

Public names are loaded on first use; this file imports only the standard library.
"""

from pathlib import Path

from kerasbert import keras_objects, lazy, light_imports

__version__ = "0.1.0"

_HOMES = {
    "list_models": "registry",
    "build": "tasks.load",
    "load": "tasks.load",
    "save": "tasks.load",
    "merged": "tasks.adapted_models",
    "train_tokenizer": "data.vocabulary",
    "load_tokenizer": "checkpoints.source",
    "write_records": "data",
    "pretrain": "training.pretrain",
    "read_recipe": "training.recipe",
    "finetune": "training.finetune",
    "finetune_tasks": "training.several",
    "cross_validate": "training.folds",
    "grid": "training.grid",
    "evaluate": "training.evaluation",
    "predict": "tasks.predict",
    "encode": "tasks.predict",
    "explain": "tasks.explain",
    "sentence_transformer": "tasks.sentence_transformers",
    "static_embedding": "tasks.static_embedding",
    "similarity": "tasks.similarity",
    "search": "tasks.similarity",
    "Index": "retrieval.index",
    "fill_mask": "tasks.tokens",
    "zero_shot": "tasks.zero_shot",
    "import_checkpoint": "checkpoints",
    "export_checkpoint": "checkpoints",
    "Spec": "spec",
    "InputError": "errors",
    "export": "",
    "mobile": "",
}
__getattr__, __dir__, __all__ = lazy.public(__name__, _HOMES)
light_imports.install()
keras_objects.install()

# An install puts the sibling `mobile/` into the package (setup.cfg, package_dir); a source tree has it beside.
_tree = Path(__file__).resolve().parent.parent
if not Path(__file__).with_name("mobile").is_dir() and (_tree / "mobile" / "runtime").is_dir():
    __path__.append(str(_tree))

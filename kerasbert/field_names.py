"""What others call our commands, options, tasks and their values: Hugging Face, Keras, PyTorch. Standard library only.

A task's exact synonym is an alias, which is understood; everything else is refused with our name for it.
"""

import re
from collections.abc import Collection

TASKS = {  # what a task is called on the Hugging Face hub -> ours
    "text-classification": "classification",
    "sequence-classification": "classification",
    "sentiment-analysis": "classification",
    "sentiment": "classification",
    "text-regression": "regression",
    "multi-label-classification": "multi_label",
    "multilabel-classification": "multi_label",
    "token-classification": "ner",
    "named-entity-recognition": "ner",
    "part-of-speech-tagging": "pos",
    "question-answering": "squad",
    "extractive-question-answering": "squad",
    "multiple-choice": "choice",
    "text-generation": "generation",
    "text2text-generation": "generation",
    "masked-lm": "fill-mask",
    "masked-language-modeling": "fill-mask",
}
ADVICE = {  # tasks of others that are several of ours, or none -> what to do
    "sentence-similarity": "take 'sts' for pairs with a score, 'pairs' for texts that belong together; without "
    "fine-tuning: kerasbert similarity RUN A B",
    "zero-shot-classification": "it needs no fine-tuning: kerasbert zero-shot RUN TEXT --labels A,B",
    "feature-extraction": "it needs no fine-tuning: kerasbert encode RUN TEXT",
    "embeddings": "they need no fine-tuning: kerasbert encode RUN TEXT",
    "text-embedding": "it needs no fine-tuning: kerasbert encode RUN TEXT",
    "language-modeling": "that is pretraining: kerasbert pretrain RUN --data RECORDS",
}
SYNONYMS: dict[str, tuple[str, ...]] = {  # name -> ours, of which the first that is known at that place is meant
    # commands
    **dict.fromkeys(("train", "fit", "fine-tune", "tune"), ("finetune",)),
    **dict.fromkeys(("classify", "infer", "inference", "tag", "answer", "generate", "translate"), ("predict", "run")),
    "predict": ("run",),
    **dict.fromkeys(("eval", "test", "score"), ("evaluate",)),
    **dict.fromkeys(("embed", "vectorize", "vectorise", "embeddings"), ("encode",)),
    **dict.fromkeys(("download", "pull", "get", "load"), ("import",)),
    "convert": ("compress", "import"),
    **dict.fromkeys(("tokenize", "tokenise", "prepare", "preprocess", "records"), ("data",)),
    **dict.fromkeys(("serve", "saved-model", "savedmodel"), ("export",)),
    **dict.fromkeys(("save", "push", "upload"), ("export-checkpoint",)),
    **dict.fromkeys(("quantize", "quantise", "tflite"), ("compress",)),
    **dict.fromkeys(("info", "describe", "summary"), ("show", "inspect")),
    **dict.fromkeys(("models", "tasks"), ("list",)),
    **dict.fromkeys(("tokenizer", "vocabulary"), ("vocab",)),
    "demo": ("quickstart",),
    # values
    **dict.fromkeys(("cuda", "cuda:0", "mps"), ("gpu",)),
    **dict.fromkeys(("fp16", "float16", "half", "mixed"), ("mixed_float16", "fp16")),
    **dict.fromkeys(("bf16", "bfloat16"), ("mixed_bfloat16",)),
    **dict.fromkeys(("fp32", "single", "full"), ("float32",)),
    **dict.fromkeys(("mlm", "masked-lm", "maskedlm"), ("masked_lm",)),
    **dict.fromkeys(("clm", "lm", "causal", "gpt"), ("causal_lm",)),
    "nsp": ("bert",),
    "sop": ("albert",),
    "rtd": ("electra",),
    **dict.fromkeys(("validation", "valid", "val", "eval"), ("evaluate", "dev")),
    **dict.fromkeys(("huggingface", "hugging-face", "transformers", "pytorch", "torch"), ("hf",)),
    **dict.fromkeys(("tensorflow", "tf", "google"), ("tf1",)),
    **dict.fromkeys(("cls", "[cls]"), ("first",)),
    **dict.fromkeys(("avg", "average"), ("mean",)),
    **dict.fromkeys(("int8", "int4", "8bit", "dynamic"), ("dynamic_int8",)),
    **dict.fromkeys(("static", "full"), ("static_int8",)),
    **dict.fromkeys(("android", "ios", "tflite", "litert"), ("kerasbert",)),
    **dict.fromkeys(("f1", "macro_f1", "f1-macro"), ("f1", "f1_macro")),
    "acc": ("accuracy",),
    # arguments
    **dict.fromkeys(("train_file", "validation_file", "eval_file", "train_data", "eval_data", "dev_data"), ("data",)),
    **dict.fromkeys(("train_dataset", "eval_dataset", "validation_data", "x", "y"), ("data",)),
    **dict.fromkeys(("run", "encoder", "checkpoint", "model_name_or_path", "model_name"), ("model", "run")),
    **dict.fromkeys(("max_new_tokens", "max_target_length"), ("target_length",)),
    "num_beams": ("beams",),
    "do_sample": ("temperature",),
}
PYTHON: dict[
    str, tuple[str, ...]
] = {  # option of a command -> what a function calls it: of these the first that it takes
    "to": ("target",),
    "from": ("source",),
    "next": ("next_version",),
    "loss": ("losses",),
    "pattern": ("patterns",),
    "by": ("model",),
    "cased": ("lowercase=False",),
    "cbow": ("skipgram=False",),
    "peak_tflops": ("peak, in FLOP/s",),
    "out": ("path", "directory"),
    "model": ("run", "teacher", "runner"),
    **dict.fromkeys(("file", "golden"), ("path",)),
    "data": ("texts",),
    **dict.fromkeys(("text", "texts", "query"), ("texts", "queries")),
    **dict.fromkeys(("text_column", "text_b_column", "delimiter", "columns"), ("texts, a list",)),
    "set": ("changes={PATH: VALUE}", "options={NAME: VALUE}"),
    "prefix": ("options={'prefix': TEXT}",),
    **dict.fromkeys(("train", "dev"), ("data={'train': FILE, 'dev': FILE}",)),
    **dict.fromkeys(("select", "static_masks"), ("objective={NAME: VALUE}",)),
    "ensemble": ("model=[RUN, RUN]",),
    **dict.fromkeys(("base", "precision", "task", "label_names"), ("model=kb.load(...)", "run=kb.load(...)")),
}
FUNCTIONS = {  # option of a command that is another function in Python -> that
    "folds": "kb.cross_validate",
    **dict.fromkeys(("grid", "seeds"), "kb.grid"),
    **dict.fromkeys(("sampling", "sampling_limit", "sampling_temperature"), "kb.finetune_tasks"),
    "recipe": "kb.read_recipe",
    **dict.fromkeys(("explain", "explain_steps"), "kb.explain"),
    **dict.fromkeys(("plan", "work"), "kb.mobile.run_plan"),
    "trim": "kb.mobile.trim",
    "student": "kb.mobile.distill.distill",
    **dict.fromkeys(("prune", "heads", "width"), "kb.mobile.prune"),
    "relevant": "kb.Index.evaluate",
    **dict.fromkeys(("cache", "no_cache", "threads", "windows", "delegate"), "kb.mobile.load"),
}
# what others give to a call and a task's options hold here
TASK_OPTIONS = (
    "top_k top_p temperature num_beams beams max_new_tokens do_sample seed target_length threshold top".split()
)
OPTIONS = {  # option of others -> ours, with its value where that is known
    "--device": "--strategy cpu, gpu or tpu:NAME",
    "--gpus": "--strategy gpu:N",
    **{f"--{name}": f"--strategy {name}" for name in ("cpu", "gpu")},
    "--tpu": "--strategy tpu:NAME",
    "--fp16": "--precision mixed_float16",
    "--half": "--precision mixed_float16",
    "--mixed-precision": "--precision",
    "--bf16": "--precision mixed_bfloat16",
    "--lr": "--learning-rate",
    "--max-length": "--length",
    "--max-len": "--length",
    "--max-seq-length": "--length",
    **dict.fromkeys(("--max-seq-len", "--seq-len", "--seq-length", "--sequence-length"), "--length"),
    **dict.fromkeys(("--batch-size", "--batchsize", "--bs"), "--batch"),
    "--train-batch-size": "--batch",
    "--per-device-train-batch-size": "--batch",
    "--per-device-eval-batch-size": "--batch",
    "--gradient-accumulation-steps": "--accumulate",
    "--num-train-epochs": "--epochs",
    **dict.fromkeys(("--num-epochs", "--n-epochs", "--epoch"), "--epochs"),
    "--max-steps": "--steps",
    "--warmup-steps": "--warmup",
    "--max-grad-norm": "--clip",
    "--early-stopping": "--patience",
    "--eval-steps": "--evaluate-every",
    "--save-steps": "--save-every",
    "--logging-steps": "--log-every",
    "--output": "--out",
    "--output-dir": "--out",
    "--out-dir": "--out",
    "--train-file": "--train",
    "--training-data": "--train",
    "--validation-file": "--dev",
    "--validation": "--dev",
    "--eval-file": "--dev",
    "--val": "--dev",
    "--test-file": "--data",
    "--dataset": "--data",
    "--dataset-name": "--data",
    "--input": "--data",
    "--file": "--data",
    "--task-name": "--task",
    "--text": "--text-column",
    "--label": "--label-column",
    "--force": "--overwrite",
    "--overwrite-output-dir": "--overwrite",
    "--vocab-size": "--size",
    **dict.fromkeys(("--vocab", "--vocab-file", "--vocabulary", "--tokenizer-name", "--tokenizer-path"), "--tokenizer"),
    **dict.fromkeys(("--k", "--top-k"), "--top"),
    **dict.fromkeys(("--scheduler", "--lr-scheduler-type"), "--schedule"),
    **dict.fromkeys(("--optim", "--optimiser"), "--optimizer"),
    **dict.fromkeys(("--num-workers", "--num-threads", "--workers", "--jobs"), "--processes"),
    **dict.fromkeys(("--config", "--settings"), "--set"),
    "--dropout": "--set dropout=0.1",
    **dict.fromkeys(("--test", "--eval", "--eval-data", "--test-data"), "--data"),
}
PLACES = {  # options of others for what stands without an option here -> what that is called in the help
    **dict.fromkeys(
        ("--model", "--model-name", "--model-name-or-path", "--model-path", "--model-dir", "--checkpoint", "--run"),
        ("RUN", "MODEL/SIZE", "TEACHER", "DIR"),
    ),
    **dict.fromkeys(("--text", "--texts", "--sentence", "--sentences", "--query", "--prompt"), ("TEXT", "QUERY")),
    **dict.fromkeys(("--corpus", "--file", "--files", "--input", "--text-file", "--train-file"), ("FILE", "PATH")),
}
ABSENT = {  # options of others that need none here -> why
    **dict.fromkeys(
        ("--resume", "--resume-from-checkpoint", "--continue"),
        "the same command with the same --out goes on where a run was stopped",
    ),
    **dict.fromkeys(("--num-labels", "--n-classes", "--num-classes"), "labels are counted in the data"),
    **dict.fromkeys(("--cache-dir", "--cache"), "models of the hub are kept in $HF_HUB_CACHE"),
    "--version": "kerasbert --version shows it",
    **dict.fromkeys(
        ("--verbose", "--log-level"), "progress is shown unless quiet is asked for, a traceback with --debug"
    ),
    **dict.fromkeys(("--logging-dir", "--tensorboard"), "the curves are shown by kerasbert report RUN"),
}
COMPRESSING = ("--quantize", "--calibration", "--min-agreement", "--lengths", "--target")  # options that make a .tflite
DESK = (  # the commands of kerasbert that people look for in kerasbert-mobile
    *(
        "quickstart",
        "list",
        "show",
        "report",
        "docs",
        "vocab",
        "data",
        "pretrain",
        "finetune",
        "evaluate",
        "predict",
        "encode",
    ),
    *(
        "similarity",
        "index",
        "search",
        "fill-mask",
        "zero-shot",
        "import",
        "export-checkpoint",
        "export",
        "serve",
        "serve-benchmark",
    ),
)
MOBILE = (  # the commands of kerasbert-mobile
    "compress",
    "run",
    "benchmark",
    "inspect",
    "distill",
    "prune",
    "trim",
    "quantize-aware",
    "ledger",
    "nearest",
    "index",
    "verify",
)


def option(name: str) -> str:
    """Our option for one of others, with its value; "" for none that is known.

    >>> option("--max_seq_length"), option("--fp16"), option("--xyzzy")
    ('--length', '--precision mixed_float16', '')
    """
    return OPTIONS.get(name.lower().replace("_", "-"), "")


def keyword(name: str, known: Collection[str]) -> str:
    """What Python calls an option of a command, of the arguments of a function or as another one; "" for neither.

    >>> keyword("to", ["run", "target"]), keyword("no_cache", ["cache"]), keyword("folds", ["model"]), keyword("xyzzy", [])
    ('target', 'cache=False', 'kb.cross_validate', '')
    """
    if name.startswith("no_") and name[3:] in known:
        return f"{name[3:]}=False"
    ours = (each for each in PYTHON.get(name, ()) if re.split("[=,]", each)[0] in known)
    return next(ours, FUNCTIONS.get(name, ""))


def task(name: str) -> str:
    """Our name of a task that others call otherwise, else the name itself.

    >>> task("Text-Classification"), task("glue/sst2")
    ('classification', 'glue/sst2')
    """
    return TASKS.get(name.lower().replace("_", "-"), name)

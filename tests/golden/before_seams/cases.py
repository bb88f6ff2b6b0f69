"""What was made, and by which commands: read by make.py, which made it, and by the test, which goes on with it."""

TEXTS = ["the happy cat sees the dog", "a sad old film", "good bad good", "stone house, river", ""]
PAIRS = [("the cat runs", "the cat sees"), ("a bad film", "good dog"), ("river", "")]

# the smallest that have what they must: a second layer is a loop's business
SMALL = (
    "hidden=4 attention.heads=2 feedforward.width=12 blocks.layers=1 embeddings.positions=24 initializer=0.3".split()
)
# 4 x 256 weights is the least matrix that an int8 file rounds
WIDE = [*SMALL[:2], "feedforward.width=256", *SMALL[3:]]


def sets(fields: list[str]) -> list[str]:
    """The options `--set` of some fields."""
    return [part for field in fields for part in ("--set", field)]


QUICK = ["--learning-rate", "1e-2", "--quiet"]
ROWS = ["--train", "rows/train.tsv", "--dev", "rows/dev.tsv"]
ELECTRA = [*SMALL, "embeddings.width=4"]
LENGTH = ["--length", "16"]

# folder -> (length, packing)
RECORDS = {
    "short": (16, "pairs"),
    "long": (24, "pairs"),
    "place": (16, "place"),
    "packed": (24, "packed"),
    "doc": (16, "doc"),
    "languages": (16, "doc"),
}

# finished runs, in this order: directory -> command of `kerasbert`
MODELS = {
    "models/bert": ["pretrain", "bert/tiny", "--data", "records/short", "--steps", "20", "--batch", "8", *sets(SMALL)],
    "models/xlm": [
        *("pretrain", "xlm/mlm-tlm-xnli15-1024", "--data", "records/languages", "--steps", "20", "--batch", "8"),
        *sets([*WIDE, "embeddings.languages=2"]),
    ],
    "models/classification": [
        *(
            "finetune",
            "models/bert",
            "--task",
            "classification",
            *ROWS,
            *LENGTH,
            "--epochs",
            "10",
            "--batch",
            "10",
            "--learning-rate",
            "5e-2",
        )
    ],
    "models/pair": [
        *("finetune", "models/bert", "--task", "classification", "--data", "rows/pairs.tsv", *LENGTH),
        *("--text-column", "one", "--text-b-column", "two", "--epochs", "4", "--batch", "8", "--learning-rate", "5e-2"),
    ],
    "models/regression": [
        *("finetune", "models/xlm", "--task", "regression", "--data", "rows/numbers.tsv", *LENGTH),
        *("--epochs", "4", "--batch", "10"),
    ],
}

# runs that were killed: name -> (the command without --out, updates that were made)
RUNS = {
    "phases": (["kerasbert", "pretrain", "--recipe", "phases.yaml"], 5),
    "electra": (
        [
            *("kerasbert", "pretrain", "electra/small", "--data", "records/packed", "--steps", "6", "--batch", "4"),
            *(*QUICK, "--accumulate", "2", "--log-every", "1", *sets(ELECTRA)),
        ],
        3,
    ),
    "finetune": (
        [
            *("kerasbert", "finetune", "models/bert", "--task", "classification", *ROWS, *LENGTH),
            *("--epochs", "3", "--batch", "20", "--patience", "9", "--log-every", "1", *QUICK),
        ],
        3,
    ),
    "prune": (
        [
            *("kerasbert-mobile", "prune", "models/classification", "--sparsity", "0.5", "--data", "rows"),
            *("--steps", "6", "--batch", "10", "--learning-rate", "1e-3", *LENGTH),
        ],
        3,
    ),
    "aware": (
        [
            *(
                "kerasbert-mobile",
                "quantize-aware",
                "models/regression",
                "--data",
                "rows/numbers.tsv",
                "--per",
                "tensor",
            ),
            *("--steps", "6", "--batch", "10", "--learning-rate", "1e-3", *LENGTH),
        ],
        3,
    ),
    "distill": (
        [
            *("kerasbert-mobile", "distill", "models/classification", "--student", "bert/tiny", "--data", "rows"),
            *(
                "--loss",
                "labels=0.5",
                "--steps",
                "6",
                "--batch",
                "10",
                *LENGTH,
                "--log-every",
                "1",
                *QUICK,
                *sets(SMALL),
            ),
        ],
        3,
    ),
    "rezero": (
        [
            *("kerasbert", "pretrain", "rezero/small", "--plugin", "old_plugin.py", "--data", "records/doc"),
            *("--steps", "4", "--batch", "4", "--log-every", "1", *QUICK, *sets(SMALL)),
        ],
        2,
    ),
}

# file -> (model, arguments of `compress`); bundles of format 1, 2, 3 and 1
FILES = {
    "float32.tflite": ("models/classification", {"quantize": "float32", "lengths": [8, 16]}),
    "int8.tflite": ("models/regression", {"quantize": "dynamic_int8", "lengths": "any", "length": 16}),
    "static.tflite": ("models/regression", {"quantize": "static_int8", "lengths": [16], "calibration": TEXTS}),
    "vectors.tflite": ("models/bert", {"quantize": "fp16", "lengths": [16]}),
}
PLAN = ["compress", "--plan", "plan.yaml", "--out", "plan.tflite"]

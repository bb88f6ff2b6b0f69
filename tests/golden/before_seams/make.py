"""Make the fixtures of this folder: python -m tests.golden.before_seams.make

They were made by commit cf82b10, the last one before the seams. Running this with a later commit would defeat their purpose.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests import tiny
from tests.golden.before_seams.cases import FILES, MODELS, PAIRS, PLAN, QUICK, RECORDS, RUNS, TEXTS

FOLDER = Path(__file__).parent
MADE = ("records", "rows", "models", "runs", "files", "plan.tflite.plan", "expected.json")


def write_rows(folder: Path) -> None:
    """Labelled texts, pairs and numbers."""
    folder.mkdir()
    tiny.labelled(folder / "train.tsv", 40)
    tiny.labelled(folder / "dev.tsv", 12, seed=1)
    lines = [
        line.split("\t") for line in tiny.labelled(folder / "numbers.tsv", 40, seed=2).read_text().splitlines()[1:]
    ]
    numbers = [f"{text}\t{(30 if label == 'pos' else 10) + number % 3}" for number, (text, label) in enumerate(lines)]
    (folder / "numbers.tsv").write_text("\n".join(["text\tlabel", *numbers]) + "\n")
    draw, pairs = random.Random(3), ["one\ttwo\tlabel"]
    for number, text in enumerate(tiny.sentences(40, 4)):
        other = text if number % 2 else " ".join(draw.choices(tiny.WORDS, k=5))
        pairs.append(f"{text}\t{other}\t{'same' if number % 2 else 'other'}")
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n")


def write_records() -> dict[str, list]:
    """Records of every packing -> their first examples."""
    from kerasbert.data import write_records

    Path("records").mkdir()
    corpus = tiny.corpus(Path("records/corpus.txt"), documents=4)
    found = {}
    for name, (length, packing) in RECORDS.items():
        files, settings = [corpus], {"length": length, "packing": packing}
        if name == "languages":
            tiny.corpus(Path("records/other.txt"), documents=4, seed=1)
            files, settings = {"en": files, "fr": ["records/other.txt"]}, settings | {"language_ids": True}
        records = write_records(files, tiny.tokenizer(), f"records/{name}", **settings)
        found[name] = examples(records)
    return found


def examples(records) -> dict[str, list]:
    """The first example of records."""
    features = next(iter(records.dataset(1, seed=0)))
    return {name: np.asarray(value).tolist() for name, value in features.items()}


@contextlib.contextmanager
def killed(updates: int) -> Iterator[None]:
    """SIGTERM comes after so many updates."""
    from kerasbert.training.step import StepCore

    step, made = StepCore.step, []

    def counting(self, batch):
        made.append(batch)
        if len(made) == updates:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, batch)

    StepCore.step = counting
    try:
        yield
    finally:
        StepCore.step = step


def command(argv: list[str], status: int = 0) -> None:
    """Run a command of ours in this process."""
    from kerasbert.cli import main
    from kerasbert.mobile.cli import main as mobile

    program, *rest = argv
    try:
        ended = (mobile if program == "kerasbert-mobile" else main)(rest)
    except SystemExit as stopped:
        ended = stopped.code
    assert (ended or 0) == status, f"{argv} ended with {ended}"


def weights(run: str | Path) -> dict[str, list[float]]:
    """Weight -> two numbers that tell one from another: its norm, and its product with a fixed vector."""
    from kerasbert.checkpoints import read_tensors

    tensors, found = read_tensors(run), {}
    for name in tensors.names():
        value = tensors.read(name).astype("float64").ravel()
        found[name] = [float(np.linalg.norm(value)), float(value @ np.cos(np.arange(value.size)))]
    return found


def history(run: str | Path) -> list[dict]:
    """The numbers of metrics.jsonl that are not times."""
    lines = [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
    timed = ("second", "tokens", "flops", "utilization", "utilisation")
    return [{k: v for k, v in line.items() if not any(word in k for word in timed)} for line in lines]


def answers(model: str) -> dict:
    """What a model of MODELS answers."""
    import kerasbert as kb

    if model in ("models/bert", "models/xlm"):
        return {pooling: kb.encode(model, TEXTS, pooling=pooling).tolist() for pooling in ("mean", "first")}
    found = kb.predict(model, PAIRS if model == "models/pair" else TEXTS)
    return {"answers": [answer.value if model == "models/regression" else answer.scores for answer in found]}


def make() -> None:
    """Everything, in the folder at hand."""
    import kerasbert as kb
    from kerasbert import mobile
    from kerasbert.mobile.pipeline import ledger
    from kerasbert.mobile.runtime import load

    write_rows(Path("rows"))
    expected: dict = {"records": write_records(), "models": {}, "runs": {}, "files": {}}
    for out, argv in MODELS.items():
        command(["kerasbert", argv[0], *QUICK, *argv[1:], "--out", out])
        shutil.rmtree(f"{out}/checkpoints")
        expected["models"][out] = answers(out)
    xlm = kb.load("models/xlm")
    inputs = tiny.tokenizer()(TEXTS, length=12)
    other = xlm(inputs | {"language_ids": np.ones((len(TEXTS), 12), "int32")})["sequence"]
    expected["models"]["models/xlm"]["language 1"] = np.asarray(other)[:, 0].tolist()
    for name, (argv, updates) in RUNS.items():
        command([*argv, "--out", f"whole/{name}"])
        expected["runs"][name] = {"weights": weights(f"whole/{name}"), "history": history(f"whole/{name}")}
        with killed(updates):
            command([*argv, "--out", f"runs/{name}"], status=75)
    for name, (model, settings) in FILES.items():
        Path("files").mkdir(exist_ok=True)
        mobile.compress(model, out=f"files/{name}", texts=TEXTS, min_agreement=0, **settings)
        expected["files"][name] = load(f"files/{name}", cache=False).outputs(TEXTS).tolist()
    # a plan that was killed after its first stage
    ledger._times = lambda path, texts: {"p50_ms": 1.0, "p90_ms": 2.0, "peak_memory_mb": 3.0}
    command(["kerasbert-mobile", *PLAN])
    expected["plan"] = load("plan.tflite", cache=False).outputs(TEXTS).tolist()
    state = json.loads(Path("plan.tflite.plan/plan.json").read_text())
    state |= {"made": 1, "report": None, "sha256": None, "rows": []}
    Path("plan.tflite.plan/plan.json").write_text(json.dumps(state, indent=2) + "\n")
    for path in Path("plan.tflite.plan").iterdir():
        if path.name not in ("plan.json", "1-trim"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    Path("expected.json").write_text(rounded(expected))


def rounded(value) -> str:
    """json with seven digits a number."""
    return json.dumps(json.loads(json.dumps(value), parse_float=lambda text: float(f"{float(text):.7g}"))) + "\n"


def without_paths(folder: Path) -> None:
    """Take out what belongs to the machine: paths and environment in run.json, TensorBoard's files."""
    for path in folder.rglob("tensorboard"):
        shutil.rmtree(path)
    for path in folder.glob("runs/*/checkpoints"):
        for older in sorted(path.glob("step_*"), key=lambda step: int(step.name[5:]))[:-1]:
            shutil.rmtree(older)
    for path in folder.rglob("run.json"):
        content = json.loads(path.read_text())
        content |= {"environment": {}}
        if "data" in content:
            content["data"] = {split: Path(name).name for split, name in content["data"].items()}
        path.write_text(json.dumps(content, indent=2) + "\n")


def main() -> None:
    """Make them anew in a temporary folder and put them here."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in FOLDER.iterdir():
            if path.suffix in (".yaml", ".py"):
                shutil.copy(path, folder)
        os.chdir(folder)
        make()
        without_paths(folder)
        for made in MADE:
            target = FOLDER / made
            shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
            shutil.move(folder / made, target)
    here = str(FOLDER.parents[2])
    for path in FOLDER.rglob("*"):
        if path.is_file() and any(text.encode() in path.read_bytes() for text in (name, here)):
            sys.exit(f"{path} holds a path")
    print(sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()), "bytes")


if __name__ == "__main__":
    main()

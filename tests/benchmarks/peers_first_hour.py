"""The commands of `bench_first_hour` as users of other libraries have them, each a script of its own.

python -m tests.benchmarks.peers_first_hour finetune|evaluate|predict|encode|export|compress ARGUMENTS
"""

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks.bench_sst2 import minilm

WORDS = 250_002  # of XLM-R


def rows(file: Path, tokenizer: Any) -> Any:
    """Rows of SST-2 as token ids with their label."""
    import datasets

    found = [line.rsplit("\t", 1) for line in file.read_text("utf-8").splitlines()[1:]]
    encoded = tokenizer([text for text, _ in found], truncation=True, max_length=128)
    return datasets.Dataset.from_dict(
        {
            "input_ids": encoded["input_ids"],
            "attention_mask": encoded["attention_mask"],
            "labels": [int(label) for _, label in found],
        }
    )


def trainer(model: Any, tokenizer: Any, out: Path, **settings: Any) -> Any:
    """A Trainer that pads each batch to its longest row and counts right answers."""
    import transformers

    parts = {part: settings.pop(part) for part in ("train_dataset", "eval_dataset") if part in settings}
    arguments = transformers.TrainingArguments(
        output_dir=str(out),
        per_device_train_batch_size=32,
        per_device_eval_batch_size=64,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        **settings,
    )
    return transformers.Trainer(
        model=model,
        args=arguments,
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
        compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())},
        **parts,
    )


def widen(out: str) -> None:
    """The genuine weights with as many words as XLM-R has, in a folder of its own; no text holds those that are new."""
    import transformers

    words = (minilm() / "vocab.txt").read_text("utf-8").splitlines()
    words += [f"[unused]{i}" for i in range(WORDS - len(words))]
    model = transformers.AutoModel.from_pretrained(minilm())
    model.resize_token_embeddings(len(words), mean_resizing=False)
    model.save_pretrained(out)
    (Path(out) / "vocab.txt").write_text("\n".join(words) + "\n", "utf-8")
    (Path(out) / "tokenizer_config.json").write_text('{"do_lower_case": true}')


def finetune(data: str, out: str, precision: str, begin: str = "") -> None:
    """Three epochs, each evaluated and written; the best weights at the end."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(begin or minilm())
    model = transformers.AutoModelForSequenceClassification.from_pretrained(begin or minilm(), num_labels=2)
    learner = trainer(
        model,
        tokenizer,
        Path(out) / "checkpoints",
        num_train_epochs=3,
        learning_rate=5e-5,
        weight_decay=0.01,
        warmup_steps=0.1,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        train_sampling_strategy="group_by_length",
        bf16=precision == "mixed_bfloat16",
        train_dataset=rows(Path(data) / "train.tsv", tokenizer),
        eval_dataset=rows(Path(data) / "dev.tsv", tokenizer),
    )
    learner.train()
    learner.save_model(out)
    tokenizer.save_pretrained(out)


def _loaded(run: str) -> tuple[Any, Any]:
    import transformers

    return (
        transformers.AutoModelForSequenceClassification.from_pretrained(run),
        transformers.AutoTokenizer.from_pretrained(run),
    )


def evaluate(run: str, data: str) -> None:
    """The accuracy of the dev rows."""
    model, tokenizer = _loaded(run)
    judge = trainer(model, tokenizer, Path(run) / "judged", eval_dataset=rows(Path(data) / "dev.tsv", tokenizer))
    print(judge.evaluate())


def predict(run: str, texts: str, out: str) -> None:
    """Labels and scores of the texts, a line each."""
    import transformers

    ask = transformers.pipeline("text-classification", model=run, device="cpu", batch_size=32)
    lines = Path(texts).read_text("utf-8").splitlines()
    answers: Any = ask(lines)
    Path(out).write_text("".join(f"{answer['label']}\t{answer['score']}\n" for answer in answers), "utf-8")


def encode(texts: str, out: str) -> None:
    """The vectors of the texts."""
    import numpy as np
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(minilm()), device="cpu")
    vectors = model.encode(Path(texts).read_text("utf-8").splitlines(), batch_size=64, convert_to_numpy=True)
    np.save(out, vectors)


def export(run: str, out: str) -> None:
    """The network of token ids as ONNX, any batch and length; the tokenizer stays beside it."""
    import torch

    model, tokenizer = _loaded(run)
    example = tokenizer(["one text", "and another one"], padding=True, return_tensors="pt")
    Path(out).mkdir()
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    names = ["input_ids", "attention_mask"]
    torch.onnx.export(
        model.eval(),
        (),
        str(Path(out) / "model.onnx"),
        kwargs={name: example[name] for name in names},
        dynamic_shapes=dict.fromkeys(names, axes),
        input_names=names,
        output_names=["logits"],
        dynamo=True,
    )
    tokenizer.save_pretrained(out)


def compress(run: str, out: str) -> None:
    """The same, its products in int8."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    export(run, out)
    quantize_dynamic(Path(out) / "model.onnx", Path(out) / "int8.onnx", weight_type=QuantType.QInt8)


if __name__ == "__main__":
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    with contextlib.suppress(KeyboardInterrupt):
        {f.__name__: f for f in (widen, finetune, evaluate, predict, encode, export, compress)}[sys.argv[1]](
            *sys.argv[2:]
        )

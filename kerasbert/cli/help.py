"""What `--help` shows: commands in the order of the journey, options in groups, three examples of each command."""

import argparse
from collections.abc import Iterable, Mapping

MANY = 15  # options of a command, above which they stand in groups
JOURNEY: Mapping[str, str] = {  # title -> commands, of either program
    "start here": "quickstart samples docs list show lab",
    "models of others": "import export-checkpoint",
    "train and judge": "finetune evaluate report look",
    "ask a model": "predict encode similarity static index search mine fill-mask zero-shot",
    "serve": "export serve-check serve serve-benchmark",
    "pretrain on text of your own": "vocab data pretrain replay check-tpu vectors nearest",
    "make a file for a phone (TensorFlow)": "compress ledger",
    "make the model smaller first (TensorFlow)": "distill prune trim quantize-aware",
    "use the file (no TensorFlow)": "run index nearest verify benchmark inspect",
}
AFTER = {  # program -> what its help ends with
    "kerasbert": "for a phone: kerasbert-mobile --help. Guides: kerasbert docs. Options of a command: kerasbert COMMAND --help",
    "kerasbert-mobile": "to train a model: kerasbert --help. Guides: kerasbert docs. Options of a command: "
    "kerasbert-mobile COMMAND --help",
}
GROUPS: Mapping[str, str] = {  # title -> the options that stand under it, by their names in the code
    "data": "data train dev on_task texts text_column text_b_column label_column delimiter encoding text_field task language "
    "pair split columns skip_unlabelled id_column label_names "
    "among cache",
    "text": "length prompt_name prefix packing words entities sentence_borders language_ids smoothing dupe_factor tokenizer "
    "special_tokens_in_texts",
    "how long and how fast it learns": "epochs steps batch learning_rate warmup schedule patience accumulate begin end "
    "frequency",
    "optimizer": "optimizer weight_decay clip precision seed skip_bad_steps",
    "what is trained": "init recipe set objective select static_masks freeze unfreeze lora adapters keep_head layers graph "
    "auxiliary_lm reinit adversarial",
    "what it learns from": "few_shot student teacher unlabelled loss dims depths temperature copy_layers masking",
    "several runs or tasks": "folds grid seeds sampling sampling_limit sampling_temperature",
    "judging": "metric clusters evaluate_every held_out min_agreement max_drop golden",
    "vectors": "pooling dtype neighbours kind format size window min_count vocabulary cbow negative ngrams buckets cased",
    "rounding": "quantize target lengths calibration calibration_size embedding_codes per delay",
    "checkpoint": "source model ignore allow_pickle revision dry_run",
    "searching": "by exact how rerank cross_encoder candidates relevant negatives range_min range_max margin max_score",
    "answers": "json stream top threshold explain explain_steps submission ensemble base",
    "where it runs": "strategy delegate threads windows no_cache processes runner beam_options shards allow_loss",
    "output": "out overwrite save_every keep_every log_every profile peak quiet",
    "other": "plugin debug help",
}
ASKED: Mapping[str, str] = {  # option -> its title in a command that trains nothing
    "batch": "where it runs",
    "rounding": "where it runs",
    "set": "answers",
    "dims": "vectors",
    "seed": "text",
    "graph": "text",
}
WORDS: Mapping[str, str] = {  # of an argument that says nothing of itself, by its option or metavar
    "RUN": "model or run directory, RUN@STEP, a folder of Hugging Face, or its name on the hub",
    "MODEL/SIZE": "such as bert/base: kerasbert list models",
    "TEXT": "text to answer; without one, each line of the standard input",
    "QUERY": "what is looked for",
    "WORD": "word to look up",
    "FILE": "a .tflite of kerasbert-mobile compress",
    "GOLDEN": "what compress --golden wrote",
    "PATH": "folder to write",
    "DIR": "folder to write",
    "--out": "what is written",
    "--json": "print json",
    "--train": "file of the training rows, in the place of --data",
    "--dev": "file of the rows that choose the best weights, beside --train",
    "--diff": "another model: show the fields in which it differs",
    "--length": "tokens of a row",
    "--tokenizer": "folder of kerasbert vocab, of Hugging Face, or a name on its hub",
    "--labels": "names of the labels, with commas between",
    "--overwrite": "replace what is there",
    "--scope": "what the share is of: each layer's kernels, or all of them",
    "--schedule": "how the share grows",
    "--begin": "update at which it begins",
    "--end": "update at which it has the whole share",
    "--frequency": "updates between two changes of the masks",
    "what": "what to list",
}
MORE: Mapping[str, tuple[str, str]] = {  # command -> two examples beside the first
    "quickstart": ("kerasbert quickstart", "kerasbert quickstart --out /tmp/quickstart"),
    "samples": ("kerasbert samples data", "kerasbert samples data --overwrite"),
    "docs": ("kerasbert docs", "kerasbert docs data-formats"),
    "list": ("kerasbert list tasks", "kerasbert list models --json"),
    "show": ("kerasbert show runs/reviews", "kerasbert show roberta/base --diff bert/base"),
    "check-tpu": (
        "kerasbert check-tpu bert/large --topology v5p:2x2x1 --precision mixed_bfloat16",
        "kerasbert check-tpu electra/small --batch 64 --lower-only",
    ),
    "lab": ("kerasbert lab", "kerasbert lab masking --seeds 3 --minutes 5 --text corpus.txt --out lab/masking"),
    "report": ("kerasbert report runs/reviews", "kerasbert report runs/reviews --out page.html"),
    "look": (
        "kerasbert look runs/reviews --word apple --sentences apples.txt",
        "kerasbert look google/electra-small-discriminator --json",
    ),
    "vocab": (
        "kerasbert vocab corpus.txt --kind unigram --size 8000 --out vocabulary",
        "kerasbert vocab books/*.txt --kind bpe --out vocabulary",
    ),
    "vectors": (
        "kerasbert vectors corpus.txt --kind word2vec --out vectors",
        "kerasbert vectors glove.6B.100d.txt --format bin --out vectors.bin",
    ),
    "data": (
        "kerasbert data corpus.jsonl --text-field body --tokenizer bert-base-uncased --packing full --out records",
        "kerasbert data --language en en.txt --language de de.txt --tokenizer vocabulary --out records",
    ),
    "pretrain": (
        "kerasbert pretrain bert/tiny --data records --steps 1000 --objective wwm --out runs/bert",
        "kerasbert pretrain runs/bert --data more-records --steps 500 --learning-rate 5e-5 --out runs/longer",
    ),
    "replay": ("kerasbert replay runs/bert/dumps/step_4711 --json", "kerasbert replay runs/reviews/dumps/step_12"),
    "finetune": (
        "kerasbert finetune bert-base-uncased --task classification --data my.csv --text-column review --label-column stars "
        "--out runs/stars",
        "kerasbert finetune runs/bert --task ner --train train.conll --dev dev.conll --epochs 5 --out runs/names",
    ),
    "evaluate": (
        "kerasbert evaluate runs/reviews --data my.csv --text-column review --label-column stars",
        "kerasbert evaluate models/minilm --data topics.csv --label-column topic --clusters",
    ),
    "predict": (
        "kerasbert predict runs/reviews --data new.csv --out answers.csv",
        "kerasbert predict runs/nli --pair 'a man sleeps' 'a man is awake'",
    ),
    "encode": (
        "kerasbert encode sentence-transformers/all-MiniLM-L6-v2 'a gripping film'",
        "kerasbert encode runs/bert --data texts.txt --out vectors.npy --dtype float16",
    ),
    "similarity": (
        "kerasbert similarity runs/sts --data pairs.csv --out scores.csv",
        "kerasbert similarity sentence-transformers/all-MiniLM-L6-v2 'a cat' 'a dog'",
    ),
    "static": (
        "kerasbert static runs/sts --dims 128 --out models/static",
        "kerasbert static sentence-transformers/all-MiniLM-L6-v2 --dims 0 --sif 0 --out models/static",
    ),
    "index": (
        "kerasbert index runs/sts articles.csv --text-column title --id-column url --out index",
        "kerasbert index sentence-transformers/all-MiniLM-L6-v2 sentences.txt --dtype int8 --out index",
    ),
    "search": (
        "kerasbert search index 'a sleeping cat' 'a dog' --json",
        "kerasbert search runs/sts articles.csv 'a sleeping cat' --text-column title",
    ),
    "mine": (
        "kerasbert mine index --data pairs.csv --negatives 5 --range-min 10 --out mined.jsonl",
        "kerasbert mine index --data pairs.jsonl --text-column query --text-b-column answer --out mined.jsonl",
    ),
    "fill-mask": (
        "kerasbert fill-mask bert-base-uncased 'Paris is the capital of [MASK].' --top 3",
        "kerasbert fill-mask runs/bert 'the [MASK] sat on the [MASK]' --json",
    ),
    "zero-shot": (
        "kerasbert zero-shot runs/mnli 'a gripping film' --labels good,bad --template 'This film is {}.'",
        "kerasbert zero-shot runs/mnli 'a gripping film' --labels short,funny,old --multi-label",
    ),
    "import": (
        "kerasbert import ./my-model --out runs/mine",
        "kerasbert import https://huggingface.co/google-bert/bert-base-uncased --dry-run",
    ),
    "export-checkpoint": (
        "kerasbert export-checkpoint runs/bert bert-tf1 --to tf1",
        "kerasbert export-checkpoint runs/lora adapter --to peft",
    ),
    "export": (
        "kerasbert export runs/sts serving/sts/1 --length 64",
        "kerasbert export runs/summaries serving/summaries/1 --set task.beams=4",
    ),
    "serve": (
        "kerasbert serve serving/reviews --name films --port 8080",
        "kerasbert serve films=serving/reviews books=serving/books/3 --host 0.0.0.0",
    ),
    "serve-benchmark": (
        "kerasbert serve-benchmark grpc://127.0.0.1:8500 --model reviews --concurrency 32 --requests 10000",
        "kerasbert serve-benchmark http://127.0.0.1:8501 --model reviews --data rows.jsonl --batch 8 --json",
    ),
    "serve-check": (
        "kerasbert serve-check serving/reviews/2 --json",
        "kerasbert serve-check serving/summaries/1",
    ),
    "compress": (
        "kerasbert-mobile compress runs/reviews --quantize static_int8 --calibration texts.txt --out reviews.tflite",
        "kerasbert-mobile compress runs/reviews --target mediapipe --length 128 --out reviews.tflite",
    ),
    "ledger": (
        "kerasbert-mobile ledger runs/reviews runs/small reviews.tflite --data reviews --out ledger",
        "kerasbert-mobile ledger reviews.tflite --task runs/reviews --data test.csv",
    ),
    "distill": (
        "kerasbert-mobile distill runs/reviews --student bert/tiny --data reviews --unlabelled texts.txt --out runs/small",
        "kerasbert-mobile distill runs/reviews --student 3 --recipe logits --data reviews --out runs/small",
    ),
    "prune": (
        "kerasbert-mobile prune runs/reviews --sparsity 0.5 --data reviews --epochs 2 --out runs/sparse",
        "kerasbert-mobile prune runs/reviews --layers 0,2,4 --out runs/shallow",
    ),
    "trim": (
        "kerasbert-mobile trim runs/reviews --data reviews --size 8000 --out runs/trimmed",
        "kerasbert-mobile trim runs/reviews --texts a.txt b.txt --out runs/trimmed",
    ),
    "quantize-aware": (
        "kerasbert-mobile quantize-aware runs/reviews --data reviews --per tensor --out runs/aware",
        "kerasbert-mobile quantize-aware runs/reviews --data reviews --teacher runs/reviews --epochs 2 --out runs/aware",
    ),
    "run": (
        "kerasbert-mobile run reviews.tflite --data new.csv --out answers.csv",
        "kerasbert-mobile run reviews.tflite --json < texts.txt",
    ),
    "verify": (
        "kerasbert-mobile verify reviews.tflite reviews.golden --tolerance 1e-4",
        "kerasbert-mobile verify reviews.tflite reviews.golden --threads 4",
    ),
    "benchmark": (
        "kerasbert-mobile benchmark reviews.tflite --threads 4 --rounds 10",
        "kerasbert-mobile benchmark runs/reviews",
    ),
    "inspect": ("kerasbert-mobile inspect reviews.tflite --json", "kerasbert-mobile inspect vectors.tflite"),
    "kerasbert-mobile index": (
        "kerasbert-mobile index vectors.tflite films.csv --text-column plot --id-column title --out films.kbindex",
        "kerasbert-mobile index vectors.tflite notes.txt --out notes.kbindex --overwrite",
    ),
    "kerasbert nearest": (
        "kerasbert nearest sea ship --vectors glove.6B.100d.txt --top 20",
        "kerasbert nearest sea --vectors vectors --json",
    ),
    "kerasbert-mobile nearest": (
        "kerasbert-mobile nearest vectors.tflite 'a gripping film' --among films.csv --text-column plot",
        "kerasbert-mobile nearest vectors.tflite 'a gripping film' 'a dull one' --among films.kbindex --prompt-name query",
    ),
}


def examples(program: str, command: str, first: str) -> str:
    """The lines at the end of a command's help."""
    lines = [first, *MORE.get(f"{program} {command}", MORE.get(command, ()))]
    return "\n".join(["examples:", *(f"  {line}" for line in lines)])


def described(parser: argparse.ArgumentParser) -> None:
    """Give every argument of a command a word, and more than MANY options their groups and a short line of usage."""
    for action in parser._actions:
        if not action.help:
            names = [*action.option_strings, str(action.metavar or action.dest), action.dest]
            action.help = next((WORDS[name] for name in names if name in WORDS), None)
    shown = [action for action in parser._actions if action.option_strings and action.help is not argparse.SUPPRESS]
    if len(shown) <= MANY:
        return
    homes = {name: title for title, names in GROUPS.items() for name in names.split()}
    if not any(action.dest == "learning_rate" for action in shown):
        homes |= ASKED
    flat = list(parser._optionals._group_actions)
    for group in parser._action_groups[2:]:  # a command's own, of which a large one gives the options of training away
        if len(group._group_actions) > MANY:
            flat += [action for action in group._group_actions if hasattr(action, "field")]
    for group in parser._action_groups[1:]:
        group._group_actions = [action for action in group._group_actions if action not in flat or action not in shown]
    for title in GROUPS:
        if mine := [action for action in flat if action in shown and homes.get(action.dest, "other") == title]:
            parser.add_argument_group(title)._group_actions += mine
    words = [_word(action) for action in parser._actions if action.required and action.option_strings]
    places = [_place(action) for action in parser._actions if not action.option_strings]
    parser.usage = " ".join([parser.prog, *places, *words, "[options]"])


def _word(action: argparse.Action) -> str:
    """A required option in the line of usage."""
    return f"{action.option_strings[-1]} {action.metavar or action.dest.upper()}"


def _place(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest)
    return {"*": f"[{name} ...]", "+": f"{name} [{name} ...]", "?": f"[{name}]"}.get(str(action.nargs), name)


def of_program(parser: argparse.ArgumentParser, commands: Iterable[argparse.Action]) -> str:
    """The help of a program: its commands in the order of the journey.

    Args:
        commands: argparse's actions of the commands, with their `dest` and `help`.
    """
    left = {action.dest: str(action.help) for action in commands}
    lines = [f"usage: {parser.prog} COMMAND ...", "", str(parser.description), ""]
    own = parser.prog == "kerasbert-mobile"
    for title, names in JOURNEY.items():
        mine = [name for name in names.split() if name in left and not (own and "text of your own" in title)]
        if mine:
            lines += [f"{title}:", *(f"  {name:19}{left.pop(name)}" for name in mine), ""]
    if left:
        lines += ["more:", *(f"  {name:19}{text}" for name, text in left.items()), ""]
    return "\n".join([*lines, AFTER.get(parser.prog, ""), ""])

"""Every class of transformers that we read with one key of its configuration changed at a time: in, its head, and back.

`python -m tests.checkpoints.test_odd_keys [Funnel XLNet ...]` counts: equal (within 2e-5 of the largest output), refused in one
line, not run by transformers itself, and off, with the key. One class of a beginning, drawn, tries a value; with `--all` all do.
What is refused is tried once more without the keys that the refusal names.
"""

import argparse
import collections
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import checkpoints, registry
from kerasbert.errors import InputError
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.heads import LabelHead, token_head
from kerasbert.objectives.bert import SENTENCES
from kerasbert.tasks.predict import task_logits
from tests.checkpoints import theirs
from tests.checkpoints.odd_keys import BASES, alternatives, base, beginning, drawn, inputs_of
from tests.checkpoints.test_parity_random import RENAMED, filled

pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning")]
TOLERANCE, LENGTHS, DRAWS = 2e-5, (13, 8), 50
TASKS = ("Classification", "Answering", "AnsweringSimple", "Choice")
BEAMS = ("XLNetForQuestionAnswering", "XLMForQuestionAnswering")  # read by texts: test_parity_beam_span
Pairs = dict[str, tuple[np.ndarray, np.ndarray]]


class Unrun(Exception):
    """transformers itself does not run the configuration."""


def classes(begins: str) -> list[str]:
    """Classes that we read of a beginning."""
    dialects = [family.names["hf"] for family in registry.families().values() if "hf" in family.names]
    kinds = {kind: None for dialect in dialects for kind in dialect.architectures} | dict.fromkeys(RENAMED["roberta"])
    known = [kind for kind in kinds if any(map(kind.startswith, BASES)) and hasattr(theirs.transformers(), kind)]
    known = [kind for kind in known if kind not in BEAMS]
    return [kind for kind in known if beginning(kind) == begins]


def outputs(kind: str, model, inputs: dict) -> dict[str, np.ndarray]:
    """Theirs; a Longformer says by itself which tokens of a text or a question all others see.

    BigBird's answers leave out the question's tokens, of which there are none here.
    """
    own = kind.startswith("Longformer") and not kind.endswith(("Model", "MaskedLM", "TokenClassification"))
    given = {name: value for name, value in inputs.items() if not (own and name == "global_mask")}
    more = {}
    if kind == "BigBirdForQuestionAnswering":
        import torch

        more["question_lengths"] = torch.zeros((len(inputs["token_ids"]), 1), dtype=torch.long)
    return {name: value.numpy() for name, value in theirs.run(model, given, **more).items() if hasattr(value, "shape")}


def made(kind: str, change: dict) -> tuple:
    """Their model, inputs of two lengths and its outputs."""
    import torch

    try:
        model = theirs.make(kind, base(kind) | change, seed=3)
        with torch.no_grad():
            for part in model.modules():
                if isinstance(part, torch.nn.Embedding) and part.padding_idx is not None:
                    part.weight[part.padding_idx] = 0
        inputs = [inputs_of(kind, model.config, length) for length in LENGTHS]
        found = [outputs(kind, model, each) for each in inputs]
    except Exception as error:
        raise Unrun(f"{type(error).__name__} {error}") from None
    if not all(np.isfinite(value).all() for each in found for value in each.values()):
        raise Unrun("numbers that are not finite")
    return model, inputs, found


def answers(kind: str, model, inputs: dict, wanted: dict) -> Pairs:
    """(ours, theirs) of the head of a task."""
    got, real = np.asarray(task_logits(model, inputs)), inputs["padding_mask"].astype(bool)
    if "start_logits" in wanted:
        return {"span": (got[real], np.stack([wanted["start_logits"], wanted["end_logits"]], -1)[real])}
    if kind.endswith("TokenClassification"):
        return {"tags": (got[real], wanted["logits"][real])}
    return {"classifier": (got.reshape(-1), wanted["logits"].reshape(-1))}


def vectors(kind: str, encoder, folder: Path, inputs: dict, wanted: dict) -> Pairs:
    """(ours, theirs) of a network and of the heads of pretraining."""
    got, real, pairs = encoder(inputs), inputs["padding_mask"].astype(bool), {}
    of = slice(None) if "decoder_token_ids" in inputs or kind == "FunnelBaseModel" else real
    if "last_hidden_state" in wanted:
        mine = got["hidden"][-1] if kind == "FunnelBaseModel" else got["sequence"]
        pairs["sequence"] = np.asarray(mine)[of], wanted["last_hidden_state"][of]
    if "pooler_output" in wanted:
        pairs["pooled"] = np.asarray(got["pooled"]), wanted["pooler_output"]
    logits = [value for name, value in wanted.items() if "logits" in name]
    if logits and hasattr(encoder, "logits"):
        more = encoder.heads.get("lm", {"bias": 0.0})["bias"]
        pairs["lm"] = (np.asarray(encoder.logits(got["sequence"])) + more)[of], logits[0][of]
        return pairs
    for head in {"mlm", "lm"} & {*encoder.heads}:
        layer = filled(token_head(encoder.token_head, encoder.spec), head, encoder, folder)
        pairs[head] = np.asarray(layer(got["sequence"], encoder.embeddings.tokens.table))[real], logits[0][real]
    if "rtd" in encoder.heads:
        layer = LabelHead(1, activation=encoder.spec.feedforward.activation, name="rtd")
        layer = filled(layer, "rtd", encoder, folder)
        pairs["rtd"] = np.asarray(layer(got["sequence"]))[..., 0][real], logits[0][real]
    for head, count in SENTENCES.values():
        if head in encoder.heads:
            pairs[head] = np.asarray(filled(Linear(count, name=head), head, encoder, folder)(got["pooled"])), logits[-1]
    return pairs


def off(pairs: Pairs) -> dict[str, float]:
    """The largest difference of each, of the largest output, where it is too large."""
    assert pairs
    found = {name: np.abs(one - other).max() / max(1e-3, np.abs(other).max()) for name, (one, other) in pairs.items()}
    return {name: float(value) for name, value in found.items() if not value <= TOLERANCE}


def tried(kind: str, change: dict, folder: Path) -> tuple[str, object]:
    """(equal, refused, unrun or off, why) of one configuration."""
    try:
        model, inputs, wanted = made(kind, change)
    except Unrun as error:
        return "unrun", error
    model.save_pretrained(folder / "theirs")
    try:
        task = kind.endswith(TASKS)
        encoder = kb.import_checkpoint(folder / "theirs", out=folder / "ours", build=not task)
        ours = kb.load(folder / "ours") if task else encoder
        kb.export_checkpoint(folder / "ours", folder / "back")
    except InputError as error:
        return "refused", error
    for given, expected in zip(inputs, wanted, strict=True):
        pairs = answers(kind, ours, given, expected) if task else vectors(kind, ours, folder, given, expected)
        if wrong := off(pairs):
            return "off", wrong
    (written,) = checkpoints.json_files.read_json(folder / "back/config.json")["architectures"]
    own, other = (getattr(theirs.transformers(), name) for name in (kind, written))
    if kind.endswith("Model") and own.config_class is other.config_class:  # a decoder is written with its map to tokens
        written, other = kind, own
    back, loading = other.from_pretrained(folder / "back", output_loading_info=True)
    # sinusoids theirs make themselves
    left = [key for key in loading["missing_keys"] if not key.endswith("embed_positions.weight")]
    if left or any(loading[part] for part in ("unexpected_keys", "mismatched_keys")):
        return "off", loading
    # by which theirs find a place; an export tells that it writes the usual ones
    for key in ("eos_token_id", "sep_token_id", "pad_token_id"):
        setattr(back.config, key, getattr(model.config, key, None))
    again = outputs(written, back.eval(), inputs[0])
    wrong = off({name: (again[name], value) for name, value in wanted[0].items() if name in again})
    return ("off", f"written: {wrong}") if wrong else ("equal", "")


def cases(begins: str, whole: bool) -> Iterator[tuple[str, dict]]:
    """(class, change), the unchanged configuration of each class first."""
    kinds, rng = classes(begins), np.random.default_rng(0)
    values = {kind: [(key, str(value), value) for key, value in alternatives(kind)] for kind in kinds}
    yield from ((kind, {}) for kind in kinds)
    for key, said in sorted({(key, said) for some in values.values() for key, said, _ in some}):
        having = [(kind, value) for kind in kinds for name, text, value in values[kind] if (name, text) == (key, said)]
        for kind, value in having if whole else [having[rng.integers(len(having))]]:
            yield kind, {key: value}


def drawn_cases(begins: str, count: int, seeds: Iterable[int]) -> Iterator[tuple[str, dict]]:
    """`count` settings of each seed that transformers runs: a class, odd sizes and two or three keys."""
    kinds = classes(begins)
    for seed in seeds:
        rng = np.random.default_rng([seed, *begins.encode()])
        for kind in rng.choice(kinds, count).tolist():
            settings = (drawn(kind, rng) for _ in range(DRAWS))
            yield kind, next(setting for setting in settings if runs(kind, setting))


def runs(kind: str, change: dict) -> bool:
    """Whether transformers itself does."""
    try:
        made(kind, change)
    except Unrun:
        return False
    return True


def attempts(some: Iterable[tuple[str, dict]]) -> Iterator[tuple[str, dict, str, object]]:
    """(class, change, state, why) of each, and of what is left of it where some of its keys are refused by their names."""
    for kind, change in some:
        state = "refused"
        while state == "refused":
            with tempfile.TemporaryDirectory() as folder:
                try:
                    state, why = tried(kind, change, Path(folder))
                except Exception as error:  # what a user would see as a traceback
                    state, why = "failed", f"{type(error).__name__} {error}"
            yield kind, change, state, why
            named = re.findall(r"\w+", str(why))
            rest = {key: value for key, value in change.items() if key not in named}
            if not rest or rest == change:
                break
            change = rest


def counted(some: Iterable[tuple[str, dict]]) -> tuple[collections.Counter, list]:
    """How many came out how, and those that are off."""
    count, wrong = collections.Counter(), []
    for kind, change, state, why in attempts(some):
        count[state] += 1
        if state in ("off", "failed") or (state != "equal" and not change):
            wrong.append((kind, change, state, str(why)))
            print(*wrong[-1], flush=True)
    return count, wrong


@pytest.mark.full
@pytest.mark.parametrize("begins", BASES)
def test_no_key_is_passed_over(begins):
    count, wrong = counted(cases(begins, whole=False))
    assert not wrong
    assert count["equal"] > count["unrun"]


@theirs.parity
@pytest.mark.parametrize(
    ("kind", "change", "state"),
    [
        ("FunnelForSequenceClassification", {"pool_q_only": False}, "equal"),
        # TensorFlow's product of 3 rows and one head with one matrix read other memory, and ended the process
        ("FunnelModel", {"n_head": 1}, "equal"),
        ("FunnelModel", {"n_head": 1, "attention_type": "factorized"}, "equal"),
        ("XLNetForSequenceClassification", {"summary_type": "mean"}, "refused"),
        ("MobileBertForTokenClassification", {"intra_bottleneck_size": 10}, "unrun"),
    ],
)
def test_what_is_counted(kind, change, state, tmp_path):
    assert tried(kind, change, tmp_path)[0] == state


def main() -> None:
    """Print the counts of each beginning."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("begins", nargs="*", default=[*BASES])
    parser.add_argument("--all", action="store_true", help="every class tries every value")
    parser.add_argument("--random", type=int, metavar="N", help="instead, N settings of odd sizes and keys a seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    asked = parser.parse_args()
    for begins in asked.begins:
        some = cases(begins, asked.all) if not asked.random else drawn_cases(begins, asked.random, asked.seeds)
        print(begins, dict(counted(some)[0]), flush=True)


if __name__ == "__main__":
    main()

"""LoRA of Hugging Face PEFT, both ways: outputs as PEFT's, and what is refused."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.checkpoints import read_model_json
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.cli import main
from kerasbert.errors import InputError
from tests import tiny
from tests.checkpoints.theirs import transformers as peer

SIZES = {
    "vocab_size": 80,
    "hidden_size": 15,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "intermediate_size": 22,
    "max_position_embeddings": 20,
}
IDS = np.array([[5, 9, 7, 12, 3], [5, 8, 1, 1, 1]], "int32")
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]], "int32")
QV = ["query", "value"]
transformers = pytest.fixture(scope="module")(peer)


def adapted(transformers, folder, kind, task_type, targets, **settings):
    """A base and an adapter of theirs in two folders; the adapted model, all of it random."""
    import torch
    from peft import LoraConfig, get_peft_model

    def fill(parameters):
        torch.manual_seed(len(parameters))
        with torch.no_grad():
            for parameter in parameters:
                parameter.copy_(torch.randn_like(parameter) * 0.3)

    config = getattr(transformers, f"{kind.partition('For')[0].removesuffix('Model')}Config")
    base = getattr(transformers, kind)(config(**SIZES, num_labels=3, pad_token_id=1))
    fill(list(base.parameters()))
    base.save_pretrained(folder / "base")
    settings = {"r": 3, "lora_alpha": 7, "target_modules": targets, **settings}
    model = get_peft_model(base, LoraConfig(task_type=task_type, **settings))
    fill([parameter for name, parameter in model.named_parameters() if "lora_" in name or "modules_to_save" in name])
    model.save_pretrained(folder / "adapter")
    return model.eval()


def answers(model):
    """Logits, or the sequence of a bare encoder."""
    import torch

    with torch.no_grad():
        found = model(input_ids=torch.tensor(IDS).long(), attention_mask=torch.tensor(MASK).long())
    return (found.logits if hasattr(found, "logits") else found.last_hidden_state).numpy()


def ours(model):
    inputs = {"token_ids": IDS, "padding_mask": MASK, "segment_ids": np.zeros_like(IDS)}
    if not hasattr(model, "heads"):
        return np.asarray(model(inputs)["sequence"])
    return np.asarray(model.logits(model.body(inputs, queries=model.queries(inputs)), inputs))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's, transformers' and peft's own
@pytest.mark.parametrize(
    ("kind", "task_type", "targets", "settings"),
    [
        ("BertForSequenceClassification", "SEQ_CLS", "all-linear", {}),
        ("BertForTokenClassification", "TOKEN_CLS", QV, {"use_rslora": True}),
        (
            "BertModel",
            "FEATURE_EXTRACTION",
            ["dense"],
            {"modules_to_save": ["pooler"], "exclude_modules": ["pooler.dense"]},
        ),
        ("RobertaForSequenceClassification", "SEQ_CLS", QV, {"lora_alpha": 2}),
        ("RobertaForSequenceClassification", "SEQ_CLS", "all-linear", {}),
    ],
)
def test_read_and_written_the_outputs_are_pefts(transformers, tmp_path, kind, task_type, targets, settings):
    import torch
    from peft import PeftModel

    model = adapted(transformers, tmp_path, kind, task_type, targets, **settings)
    expected = answers(model)
    kb.save(kb.load(tmp_path / "adapter", base=tmp_path / "base"), tmp_path / "run", tokenizer=tiny.tokenizer())
    real = MASK.astype(bool) if expected.ndim == 3 else slice(None)
    for found in (kb.load(tmp_path / "run"), kb.load(tmp_path / "adapter", base=tmp_path / "base")):
        assert np.abs(ours(found)[real] - expected[real]).max() < 1e-5
        assert np.abs(ours(kb.merged(found))[real] - expected[real]).max() < 1e-5
    kb.export_checkpoint(tmp_path / "run", tmp_path / "back", "peft")
    base = getattr(transformers, kind).from_pretrained(tmp_path / "base")
    torch.manual_seed(9)
    again = PeftModel.from_pretrained(base, tmp_path / "back").eval()
    if kind != "BertModel":
        assert np.abs(answers(again) - expected)[real].max() < 1e-5
        one, other = (Safetensors(tmp_path / name / "adapter_model.safetensors") for name in ("adapter", "back"))
        assert one.names() == other.names()
        assert all((one.read(name) == other.read(name)).all() for name in one.names())
    kb.export_checkpoint(tmp_path / "run", tmp_path / "merged")
    whole = getattr(transformers, kind).from_pretrained(tmp_path / "merged").eval()
    assert np.abs(answers(whole) - expected)[real].max() < 1e-5


@pytest.fixture(scope="module")
def lora(tmp_path_factory):
    """A base, and LoRA of it as PEFT writes it."""
    folder = tmp_path_factory.mktemp("peft")
    base = kb.build("bert/tiny", **tiny.SPEC | {"embeddings.vocabulary": 75})
    kb.save(base, folder / "base", tokenizer=tiny.tokenizer())
    changed = kb.build("bert/tiny", **tiny.SPEC | {"embeddings.vocabulary": 75, "lora.rank": 2, "lora.alpha": 3.0})
    kb.save(changed, folder / "run", tokenizer=tiny.tokenizer())
    kb.export_checkpoint(folder / "run", folder / "peft", "peft")
    return folder


def test_what_is_written_is_read(lora, tmp_path):
    assert main(["import", f"{lora / 'peft'}", "--base", f"{lora / 'base'}", "--out", f"{tmp_path / 'run'}"]) == 0
    info = read_model_json(tmp_path / "run")
    assert info.spec == read_model_json(lora / "run").spec
    assert (info.spec.lora.rank, info.spec.lora.alpha) == (2, 3.0)
    written = json.loads((lora / "peft/adapter_config.json").read_text())
    assert (written["r"], written["lora_alpha"], written["task_type"]) == (2, 3.0, "FEATURE_EXTRACTION")
    assert (
        "base_model.model.encoder.layer.0.attention.self.query.lora_A.weight"
        in Safetensors(lora / "peft/adapter_model.safetensors").names()
    )
    with pytest.raises(InputError, match=r"has no LoRA, expected LoRA alone"):
        kb.export_checkpoint(lora / "base", tmp_path / "no", "peft")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"bias": "all"}, "has bias 'all', expected 'none': nothing here computes that"),
        ({"fan_in_fan_out": True}, "has fan_in_fan_out True, expected False"),
        ({"use_dora": True}, "has use_dora True, expected False"),
        ({"peft_type": "IA3"}, "has peft_type 'IA3', expected 'LORA'"),
        ({"rank_pattern": {"query": 3}}, "has rank_pattern {'query': 3}, expected {}"),
        ({"r": 0}, "has r 0 and lora_alpha 3.0, expected numbers above 0"),
        ({"r": 5}, r"does not fit bert/tiny. 4 tensors that nothing takes: block_0/attention/query/lora_a \[16, 2\]"),
        ({"task_type": "CAUSAL_LM"}, "task_type 'CAUSAL_LM' is none that is read: expected one of SEQ_CLS, "),
    ],
)
def test_settings_of_others_are_refused(lora, tmp_path, changes, text):
    folder = tmp_path / "peft"
    folder.mkdir()
    config = json.loads((lora / "peft/adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | changes))
    (folder / "adapter_model.safetensors").write_bytes((lora / "peft/adapter_model.safetensors").read_bytes())
    with pytest.raises(InputError, match=text):
        kb.load(folder, base=lora / "base")


def test_tensors_that_nothing_takes_and_an_adapter_without_base_are_refused(lora, tmp_path):
    folder = tmp_path / "peft"
    folder.mkdir()
    (folder / "adapter_config.json").write_bytes((lora / "peft/adapter_config.json").read_bytes())
    held = Safetensors(lora / "peft/adapter_model.safetensors")
    arrays = {name: held.read(name) for name in held.names()}
    arrays["base_model.model.embeddings.word_embeddings.lora_embedding_A"] = np.ones((2, 75), "float32")
    file = folder / "adapter_model.safetensors"
    write_safetensors(file, {name: value.shape for name, value in arrays.items()}, arrays.__getitem__)
    with pytest.raises(InputError, match=r"1 tensors that nothing takes: base_model.model.embeddings.word_embeddings"):
        kb.load(folder, base=lora / "base")
    with pytest.raises(InputError, match=r"holds an adapter alone: give its base \(base=DIR, --base DIR\), or join"):
        kb.load(lora / "peft")

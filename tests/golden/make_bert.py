"""Record a tiny random BERT of transformers and its outputs: tests/golden/bert.npz.

Run `python -m tests.golden.make_bert` where torch and transformers are installed (the extra `parity`).
"""

import json
from pathlib import Path

import numpy as np

from tests.checkpoints.reference import batch


def main():
    import torch
    from transformers import BertConfig, BertForPreTraining

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=31,
        hidden_size=20,
        num_hidden_layers=3,
        num_attention_heads=5,
        intermediate_size=23,
        max_position_embeddings=12,
    )
    model = BertForPreTraining(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    inputs = batch(31, length=11)
    with torch.no_grad():
        ids, mask, segments = (
            torch.tensor(inputs[name]).long() for name in ("token_ids", "padding_mask", "segment_ids")
        )
        outputs = model(ids, attention_mask=mask, token_type_ids=segments, output_hidden_states=True)
        pooled = model.bert(ids, attention_mask=mask, token_type_ids=segments).pooler_output
    weights = {
        f"weight:{name}": value.numpy() for name, value in model.state_dict().items() if "position_ids" not in name
    }
    path = Path(__file__).with_name("bert.npz")
    np.savez_compressed(
        path,
        config=json.dumps(config.to_diff_dict() | config.to_dict(), sort_keys=True),
        hidden=np.stack([state.numpy() for state in outputs.hidden_states]),
        pooled=pooled.numpy(),
        mlm=outputs.prediction_logits.numpy(),
        nsp=outputs.seq_relationship_logits.numpy(),
        **inputs,
        **weights,
    )
    print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()

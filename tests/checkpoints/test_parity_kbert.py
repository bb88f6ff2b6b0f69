"""K-BERT against transformers' BERT, which takes the soft positions and the visible matrix as arguments."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.errors import InputError
from kerasbert.text import knowledge
from kerasbert.text.knowledge import KnowledgeGraph
from tests.checkpoints.theirs import make, parity
from tests.text.test_tree import FIGURE, tokenizer

SIZES = [  # vocabulary, hidden, layers, heads, width
    (19, 15, 2, 3, 23),
    (27, 14, 1, 2, 9),
    (41, 25, 3, 5, 31),
]
TEXTS = ["Tim Cook is visiting Beijing now", "Beijing", "the city is in China now"]


def by_the_figure(branches, entities):
    """The visible matrix, token by token: [S, S] bool."""
    size = range(len(branches))

    def sees(i, j):
        hangs = entities[i] == entities[j] > 0 and (branches[i] == 0) != (branches[j] == 0)
        return branches[i] == branches[j] or hangs

    return np.array([[sees(i, j) for j in size] for i in size])


@parity
@pytest.mark.parametrize(("vocabulary", "hidden", "layers", "heads", "width"), SIZES)
def test_trees_of_an_imported_bert(vocabulary, hidden, layers, heads, width, tmp_path):
    import torch

    sizes = {"vocab_size": vocabulary, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    config = {**sizes, "intermediate_size": width, "max_position_embeddings": 21, "attn_implementation": "eager"}
    their = make("BertModel", config, seed=vocabulary)
    their.save_pretrained(tmp_path / "theirs")
    plain = tokenizer([])
    knowledge.save(plain, tmp_path / "pieces")
    (tmp_path / "pieces" / knowledge.NAME).unlink()
    settings = {"tokenizer": tmp_path / "pieces", "graph": KnowledgeGraph(FIGURE)}
    model = kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "ours", **settings)
    assert registry.family_of(model).name == "kbert"
    assert json.loads((tmp_path / "ours" / "model.json").read_text())["family"] == "kbert"
    loaded = kb.load(tmp_path / "ours")
    inputs = loaded.tokenizer(TEXTS)
    assert inputs["branch_ids"].max() == 3
    pairs = zip(inputs["branch_ids"], inputs["entity_ids"])
    matrix = np.stack([by_the_figure(*map(np.ndarray.tolist, pair)) for pair in pairs])
    matrix &= inputs["padding_mask"][:, None, :] == 1
    names = {"input_ids": "token_ids", "token_type_ids": "segment_ids", "position_ids": "position_ids"}
    arguments = {theirs: torch.tensor(inputs[ours].astype("int64")) for theirs, ours in names.items()}
    with torch.no_grad():
        hidden = torch.tensor(np.where(matrix[:, None], 0.0, -1e9).astype("float32"))  # added to the scores
        expected = their.eval()(**arguments, attention_mask=hidden)
    real = inputs["padding_mask"] == 1
    for each in (model, loaded):
        found = np.asarray(each(inputs)["sequence"])
        np.testing.assert_allclose(found[real], expected.last_hidden_state.numpy()[real], rtol=0, atol=1e-5)


@parity
def test_a_graph_needs_a_tokenizer(tmp_path):
    their = make(
        "BertModel", {"vocab_size": 19, "hidden_size": 14, "num_attention_heads": 2, "num_hidden_layers": 1}, seed=1
    )
    their.save_pretrained(tmp_path / "theirs")
    with pytest.raises(InputError, match="has no tokenizer, and a graph is found in texts: give one"):
        kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "ours", graph=KnowledgeGraph(FIGURE))

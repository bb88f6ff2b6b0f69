"""An encoder that writes at [MASK]s against transformers' BERT, which reads a whole row with a mask by hand at each step."""

from types import SimpleNamespace

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.answers.beam_search import search
from kerasbert.answers.decoding import Decoding
from kerasbert.layers import heads
from kerasbert.layers.beam_search import generate
from kerasbert.layers.masked_writer import MaskedWriter
from kerasbert.layers.naming import names
from tests.checkpoints.theirs import make

MASK, END, MOST = 4, 3, 8
CONFIG = {
    "vocab_size": 61,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 29,
}
CONFIG |= {"max_position_embeddings": 31}
DECODINGS = [
    {},
    {"beams": 4},
    {"beams": 3, "length_penalty": 2.0, "no_repeat_ngram_size": 2},
    {"repetition_penalty": 1.3, "min_new_tokens": 3},
    {"temperature": 0.8, "top_k": 9, "seed": 5},
]


class Theirs:
    """`answers.beam_search.Step`: transformers reads source, target and a [MASK] anew for each token."""

    def __init__(self, model, prompt: list[int], segments: tuple[int, int]) -> None:
        self.model, self.prompt, self.segments, self.texts = model, prompt, segments, [list(prompt[:-1])]

    def __call__(self, token_ids, column, origin):
        import torch

        self.texts = [[*self.texts[at], int(token)] for token, at in zip(token_ids, origin)]
        assert {len(text) for text in self.texts} == {column + 1}
        rows, source = [[*text, MASK] for text in self.texts], len(self.prompt)
        query, key = np.indices((column + 2, column + 2))
        seen = (key < source) | ((query >= source) & (key <= query))
        bias = torch.tensor(np.where(seen, 0.0, -1e9)[None, None], dtype=torch.float32)
        segments = [self.segments[place >= source] for place in range(column + 2)]
        about = {
            "attention_mask": bias.expand(len(rows), -1, -1, -1),
            "token_type_ids": torch.tensor([segments] * len(rows)),
        }
        with torch.no_grad():
            return self.model(input_ids=torch.tensor(rows), **about).logits[:, -1].numpy(), None


def prompts(count: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Sources [CLS] ... [SEP] of 4 to `length` tokens."""
    draw = np.random.default_rng(2)
    sizes = draw.integers(4, length + 1, count)
    ids, real = draw.integers(5, 61, (count, length)), np.arange(length)[None] < sizes[:, None]
    ids[:, 0], ids[np.arange(count), sizes - 1] = 2, END
    return np.where(real, ids, 0).astype("int32"), real.astype("int32")


CASES = [
    pytest.param(6, 6, id="unilm-6", marks=pytest.mark.slow),
    pytest.param(6, 40, id="unilm-40", marks=pytest.mark.full),
    pytest.param(2, 40, id="bert-40", marks=pytest.mark.full),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(("types", "count"), CASES)
def test_texts_by_five_decodings_are_theirs(types, count, tmp_path):
    their = make("BertForMaskedLM", CONFIG | {"type_vocab_size": types}, seed=types)
    their.save_pretrained(tmp_path)
    encoder = kb.import_checkpoint(tmp_path)
    encoder.tokenizer = SimpleNamespace(mask_id=MASK)
    head = heads.token_head(encoder.token_head, encoder.spec)
    head.build((None, None, encoder.spec.hidden))
    for weight in head.weights:
        weight.assign(encoder.heads["mlm"][weight.path.partition("mlm/")[2]])
    model, (ids, real) = MaskedWriter(encoder, head), prompts(count, 12)
    assert len(names(encoder)) > 30
    for options in DECODINGS:
        decoding = Decoding(max_new_tokens=MOST, **options)
        read = {"token_ids": ids, "padding_mask": real}
        found = generate(model, read, decoding, start_id=0, end_id=END)
        texts = set()
        for row, (written, score) in enumerate(zip(np.asarray(found["token_ids"]).tolist(), found["score"])):
            prompt = ids[row, : real[row].sum()].tolist()
            step = Theirs(their, prompt, (4, 5) if types == 6 else (0, 1))
            wanted, other = search(step, prompt, decoding, end_id=END, row=row)
            assert written == wanted + [0] * (MOST - len(wanted)), (options, row)
            assert float(score) == pytest.approx(other, abs=1e-4)
            texts.add(tuple(wanted))
        assert len(texts) > count / 5

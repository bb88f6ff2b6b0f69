"""MPNet: who sees whom, against numpy written from the paper; its objective's shares; names, counts, configurations."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert import models, registry
from kerasbert.checkpoints import config as configs
from kerasbert.errors import InputError
from kerasbert.layers.naming import names, values
from kerasbert.models.mpnet import HF, MPNET
from kerasbert.objectives.permuted import MaskedAndPermuted
from kerasbert.text.train import train
from tests import tiny
from tests.checkpoints import theirs
from tests.checkpoints.test_sentence_transformers import folder

TINY = {
    "hidden": 12,
    "attention.heads": 3,
    "feedforward.width": 10,
    "blocks.layers": 2,
    "embeddings.vocabulary": 50,
    "embeddings.positions": 20,
    "relative.buckets": 8,
    "relative.distance": 6,
}
LENGTH = 8
ORDER = np.array([[0, 30, 0, 10, 0, 0, 20, 0]], "int32")  # of the factorisation: 3, 6, 1
TARGETS = np.array([[1, 3, 6, 0]], "int32")  # the last is nothing
SYMBOLS = np.array([[4, 4, 17, 0]], "int32")


@pytest.fixture(scope="module")
def encoder():
    keras.utils.set_random_seed(1)
    made = MPNET.encoder(MPNET.spec.derive(TINY))
    made.build()
    generator = np.random.default_rng(1)
    for weight in made.weights:
        if not weight.path.endswith(("gamma", "beta")):
            weight.assign(generator.normal(0, 0.4, weight.shape))
    return made


def inputs(rows=1, seed=0):
    ids = np.random.default_rng(seed).integers(5, 50, (rows, LENGTH)).astype("int32")
    told = {"order": ORDER, "target_positions": TARGETS, "target_ids": SYMBOLS}
    return {"token_ids": ids} | {name: np.repeat(value, rows, axis=0) for name, value in told.items()}


def test_the_released_sizes():
    count = models.parameters(MPNET.encoder, registry.find("mpnet/base")[1])
    assert count == 109_486_464  # transformers' MPNetModel; the paper's table 2 compares with BERT-base, 110M


def test_weight_names_are_public(encoder):
    own = {name for name in names(encoder) if not name.startswith("block_")}
    tables = {f"embeddings/{name}/table" for name in ("tokens", "positions")}
    assert own == {
        *tables,
        "relative/table",
        *(f"embeddings/norm/{leaf}" for leaf in ("gamma", "beta")),
        *(f"pooler/{leaf}" for leaf in ("kernel", "bias")),
    }


def bucket(distance, count=8, most=6):
    """T5's, of key - query, both ways: transformers' modeling_mpnet.py says it so."""
    side = count // 2
    found, apart = (side if distance > 0 else 0), abs(distance)
    if apart < side // 2:
        return found + apart
    far = side // 2 + int(math.log(apart / (side // 2)) / math.log(most / (side // 2)) * (side - side // 2))
    return found + min(far, side - 1)


def normal(x, weights, name):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weights[f"{name}/gamma"] + weights[f"{name}/beta"]


def layer(weights, i, x, rows, places, visible):
    """Of rows that look at x, [Q, H] and [K, H] at places [Q], [K]; visible [Q, K]: post-norm, as figure 2 shows a step."""
    queries, at = rows

    def linear(x, name):
        return x @ weights[f"block_{i}/{name}/kernel"] + weights[f"block_{i}/{name}/bias"]

    def split(x):
        return x.reshape(len(x), 3, 4).transpose(1, 0, 2)

    q, k, v = (split(linear(y, f"attention/{name}")) for y, name in ((queries, "query"), (x, "key"), (x, "value")))
    numbers = np.array([[weights["relative/table"][bucket(b - a)] for b in places] for a in at])
    scores = q @ k.transpose(0, 2, 1) / 2 + numbers.transpose(2, 0, 1)
    powers = np.exp(scores) * visible
    y = (powers / powers.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(len(queries), 12)
    y = normal(queries + linear(y, "attention/output"), weights, f"block_{i}/attention_norm")
    inner = linear(y, "feedforward/inner")
    inner = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
    return normal(y + linear(inner, "feedforward/outer"), weights, f"block_{i}/feedforward_norm")


def test_both_streams_are_the_papers(encoder):
    """The paper's row: (x_{z<=c}, M_{z>c}, x_{z>c}) at the places (z<=c, z>c, z>c), section 2.3; the places of figure 2."""
    given, weights = inputs(), {name: np.asarray(value, "float64") for name, value in values(encoder).items()}
    z = sorted(range(LENGTH), key=lambda place: (ORDER[0, place], place))
    c = int((ORDER == 0).sum())
    symbol = dict(zip(TARGETS[0].tolist(), SYMBOLS[0].tolist()))
    ids = [given["token_ids"][0, place] for place in z[:c]]
    ids += [symbol[place] for place in z[c:]] + [given["token_ids"][0, place] for place in z[c:]]
    places = np.array(z[:c] + z[c:] + z[c:])

    def start(ids, places):
        return normal(
            weights["embeddings/tokens/table"][ids] + weights["embeddings/positions/table"][np.array(places) + 2],
            weights,
            "embeddings/norm",
        )

    content, query = start(ids, places), start([symbol[place] for place in z[c:]], z[c:])
    n, predicted = LENGTH, LENGTH - c
    see_content = np.zeros((n + predicted, n + predicted), bool)
    see_content[:n, :n] = True  # non-predicted tokens and symbols see each other
    see_query = np.zeros((predicted, n + predicted), bool)
    for t in range(predicted):
        for row, before in ((see_content[n + t], t + 1), (see_query[t], t)):
            row[:c] = True
            row[n : n + before] = True  # x_{z_(c+1)}, ..., of the query stream up to the one before
            row[c + before : n] = True  # the symbols of the others
    for i in range(2):
        query_next = layer(weights, i, content, (query, z[c:]), places, see_query)
        content = layer(weights, i, content, (content, places), places, see_content)
        query = query_next
    found = np.asarray(encoder(given)["sequence"])[0]
    for t, place in enumerate(z[c:]):
        np.testing.assert_allclose(found[TARGETS[0].tolist().index(place)], query[t], atol=1e-5)


def test_a_prediction_changes_exactly_with_context_and_earlier_tokens(encoder):
    """Never with its own token, nor with a later one, whatever the number of layers."""
    given = inputs(LENGTH, seed=0)
    given["token_ids"] = np.repeat(given["token_ids"][:1], LENGTH, axis=0)
    other = given | {"token_ids": (given["token_ids"] + np.eye(LENGTH, dtype="int32")) % 50}
    one, two = (np.asarray(encoder(each)["sequence"])[:, :3] for each in (given, other))
    apart = np.abs(one - two).max(-1)
    expected = (ORDER[0][:, None] == 0) | (ORDER[0][:, None] < ORDER[0][TARGETS[0, :3]])
    np.testing.assert_array_equal(apart > 1e-5, expected)
    np.testing.assert_array_equal(apart == 0, ~expected)


def test_every_row_sees_each_place_once(encoder):
    """Position compensation: the token or its symbol, whatever is predicted."""
    mask = np.array([[1] * 7 + [0]], "int32")
    seen = np.asarray(encoder.compensated(inputs() | {"padding_mask": mask}))[0]
    assert seen.shape == (LENGTH + 2 * 4, LENGTH + 4)
    places = np.concatenate([np.arange(LENGTH), TARGETS[0]])
    for row in seen:
        assert np.bincount(places[row], minlength=LENGTH).tolist() == [1] * 7 + [0]
    queries, symbols = seen[-4:], ORDER[0][TARGETS[0]]
    np.testing.assert_array_equal(queries[:3, LENGTH:], symbols >= symbols[:3, None])  # itself and those after it


def test_pieces_of_a_row_are_as_alone(encoder):
    """Two pieces of four tokens; of each a target, and one that is nothing."""
    given = inputs() | {
        "packed_ids": np.array([[1, 1, 1, 1, 2, 2, 2, 2]], "int32"),
        "position_ids": np.array([[0, 1, 2, 3] * 2], "int32"),
    }
    whole = np.asarray(encoder(given)["sequence"])[0]
    told = {"token_ids": given["token_ids"][:, 4:], "order": ORDER[:, 4:]}
    alone = told | {"target_positions": np.array([[2]], "int32"), "target_ids": SYMBOLS[:, 2:3]}
    np.testing.assert_allclose(whole[2], np.asarray(encoder(alone)["sequence"])[0, 0], atol=1e-5)


def test_a_matrix_and_targets_are_refused(encoder):
    with pytest.raises(ValueError, match="visible_matrix and target_positions were given, expected one of them"):
        encoder(inputs() | {"visible_matrix": np.ones((1, LENGTH, LENGTH), "int32")})


TOKENIZER = tiny.tokenizer()


def features(rows=200, length=40):
    generator = np.random.default_rng(0)
    ordinary = np.setdiff1d(np.arange(TOKENIZER.size), TOKENIZER.special_ids)
    ids = generator.choice(ordinary, (rows, length))
    ids[:, 0], ids[:, -1] = TOKENIZER.cls_id, TOKENIZER.sep_id
    found = {"token_ids": ids, "segment_lengths": np.stack([np.full(rows, length), np.zeros(rows)], 1)}
    return {
        name: tf.constant(x, tf.int32)
        for name, x in (found | {"row": np.arange(rows), "step": np.full(rows, 3)}).items()
    }


def test_batches_by_the_papers_shares():
    given = features()
    objective = MaskedAndPermuted.without_model(TOKENIZER, MaskedAndPermuted.settings_for(MPNET.spec), 1)
    assert objective.settings.select == "words"
    batch = {name: np.asarray(value) for name, value in objective.prepare(given).items()}
    np.testing.assert_array_equal(batch["token_ids"], given["token_ids"])  # the tokens themselves: order hides them
    chosen = batch["mlm_weights"] > 0
    places = batch["target_positions"]
    taken = np.take_along_axis(batch["token_ids"], places, 1)
    np.testing.assert_array_equal(taken[chosen], batch["mlm_labels"][chosen])
    order = np.take_along_axis(batch["order"], places, 1)
    assert (order[chosen] > 0).all()
    assert (order[~chosen] == 0).all()
    assert np.count_nonzero(batch["order"]) == chosen.sum()  # what is not predicted is the context of all
    assert all(len(set(row[row > 0])) == (row > 0).sum() for row in batch["order"])
    count, symbols = chosen.sum(), batch["target_ids"]
    for share, right in ((0.8, symbols == TOKENIZER.mask_id), (0.1, symbols == batch["mlm_labels"])):
        sigma = math.sqrt(share * (1 - share) / count)
        assert abs((right & chosen).sum() / count - share) < 3 * sigma + 0.01  # a random token may be the same
    full = chosen.all(axis=1)
    first = np.bincount(order[full].argmin(axis=1), minlength=places.shape[1])
    assert (np.abs(first - full.sum() / 6) < 3.5 * math.sqrt(full.sum() * 5 / 36)).all()


def test_what_cannot_be_learned_is_refused(encoder):
    with pytest.raises(InputError, match="has no query stream that sees both ways"):
        MaskedAndPermuted(kb.build("bert/tiny"), TOKENIZER)
    with pytest.raises(InputError, match=r"ask about pairs \(next_label\), of which MPNet learns nothing"):
        MaskedAndPermuted(encoder, TOKENIZER, features=("next_label",))
    with pytest.raises(InputError, match="one number of heads"):
        MPNET.spec.derive(TINY | {"attention.heads": (3, 2), "attention.head_size": 4})


SIZES = {
    "model_type": "mpnet",
    "vocab_size": 61,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "hidden_act": "gelu",
}


@pytest.mark.parametrize("changes", [{"relative_attention_num_buckets": 16}, {"pad_token_id": 0}])
def test_what_is_computed_otherwise_is_refused(changes):
    configs.to_spec(SIZES, HF, MPNET.spec, "theirs")
    with pytest.raises(InputError, match=next(iter(changes))):
        configs.to_spec(SIZES | changes, HF, MPNET.spec, "theirs")


def test_other_distances_stay_in_the_model_directory():
    with pytest.raises(InputError, match="cannot say relative.buckets=8, relative.distance=6"):
        configs.to_config(MPNET.spec.derive(TINY), HF, MPNET.spec)


def test_a_vocabulary_of_its_layout():
    tokenizer = train("wordpiece", ["the cat sat on the mat", "a cat and a hat"] * 5, 60, layout="mpnet")
    assert tokenizer.vocabulary[:5] == ("<s>", "<pad>", "</s>", "[UNK]", "<mask>")
    ids, segments = tokenizer.pack("the cat", "a hat")
    marks = [tokenizer.vocabulary[i] for i in ids if i in tokenizer.special_ids]
    assert (marks, set(segments)) == (["<s>", "</s>", "</s>", "</s>"], {0})
    with pytest.raises(InputError, match="no layout 'mpnett'. Nearest: 'mpnet'"):
        train("wordpiece", ["a"], 40, layout="mpnett")


@theirs.parity
@pytest.mark.parametrize("file", ["tokenizer.json", "vocab.txt"])
def test_a_folder_of_sentence_transformers(tmp_path, file):
    """As all-mpnet-base-v2's: means of tokens, normalised; its tokenizer in either form."""
    import torch

    words = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", *"the film was good bad not very a dog ##s .".split(), "<mask>"]
    tokenizer = theirs.transformers().MPNetTokenizer(vocab={word: i for i, word in enumerate(words)})
    model = theirs.make("MPNetModel", SIZES | {"vocab_size": len(words), "pad_token_id": 1})
    for part in (tokenizer, model):
        part.save_pretrained(tmp_path / "theirs")
    folder(tmp_path / "theirs", ("Transformer", "Pooling", "Normalize"), ("", "1_Pooling", "2_Normalize"))
    if file == "vocab.txt":
        (tmp_path / "theirs" / "tokenizer.json").unlink()
        (tmp_path / "theirs" / file).write_text("\n".join(words) + "\n")
    texts = ["the dogs", "not a very good film .", "what"]
    given = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        mask, states = given["attention_mask"][..., None], model(**given).last_hidden_state
        means = (states * mask).sum(1) / mask.sum(1)
        expected = (means / means.norm(dim=1, keepdim=True)).numpy()
    kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "run", build=False)
    np.testing.assert_allclose(kb.encode(tmp_path / "run", texts), expected, atol=1e-5)
    kb.export_checkpoint(tmp_path / "run", tmp_path / "back")
    again, names = theirs.transformers().AutoModel.from_pretrained(tmp_path / "back"), ("input_ids", "attention_mask")
    written = theirs.transformers().AutoTokenizer.from_pretrained(tmp_path / "back")(texts, padding=True)
    assert all(np.array_equal(written[name], given[name]) for name in names)
    with torch.no_grad():
        np.testing.assert_allclose(again(**given).last_hidden_state, states, atol=1e-6)

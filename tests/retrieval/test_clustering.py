"""k-means and the V-measure: the paper's cases, sklearn's numbers, a file by the command, what is refused."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.retrieval import clustering
from tests import tiny


def groups(count, apart, seed=0):
    """Vectors around `count` centres, and the number of each one's centre."""
    drawn = np.random.default_rng(seed)
    labels = drawn.integers(0, count, 120)
    return drawn.normal(0, apart, (count, 8))[labels] + drawn.normal(size=(120, 8)), labels


def test_groups_that_lie_apart_are_found():
    vectors, labels = groups(5, 8.0)
    names = [f"group {label}" for label in labels]
    for seed in range(3):
        found = clustering.judge(vectors, names, seed)
        assert found == pytest.approx({"homogeneity": 1.0, "completeness": 1.0, "v_measure": 1.0})
    mixed = clustering.judge(vectors, np.random.default_rng(1).permutation(labels))
    assert mixed["v_measure"] < 0.15
    assert 0.2 < clustering.judge(groups(5, 1.0)[0], groups(5, 1.0)[1])["v_measure"] < 0.9


def test_the_measure_is_the_papers():
    """Section 2: 1 for a perfect one, homogeneous alone where each is by itself, complete alone where all are together."""
    labels = ["a"] * 5 + ["b"] * 5 + ["c"] * 5
    assert clustering.v_measure(labels, labels)["v_measure"] == 1.0
    alone = clustering.v_measure(labels, range(15))
    assert (alone["homogeneity"], round(alone["completeness"], 4)) == (1.0, round(np.log(3) / np.log(15), 4))
    together = clustering.v_measure(labels, [0] * 15)
    assert (together["homogeneity"], together["completeness"], together["v_measure"]) == (0.0, 1.0, 0.0)
    # three of five of each label in its own cluster, one in each of the others: the paper's solution A, .14
    clusters = [0, 0, 0, 1, 2, 1, 1, 1, 0, 2, 2, 2, 2, 0, 1]
    share = np.array([3, 1, 1]) / 5
    wanted = 1 + (share * np.log(share)).sum() / np.log(3)
    assert clustering.v_measure(labels, clusters)["v_measure"] == pytest.approx(wanted)
    assert round(wanted, 2) == 0.14


def test_equal_vectors_are_one_cluster_and_what_cannot_be_judged_is_refused():
    assert clustering.judge(np.ones((6, 3)), list("aabbcc"))["v_measure"] == 0.0
    for vectors, labels, message in (
        (np.ones((3, 2)), ["a", "b"], r"shape \(3, 2\) beside 2 labels"),
        (np.ones(3), list("abc"), r"shape \(3,\)"),
        (np.full((2, 2), np.nan), ["a", "b"], "not finite"),
        (np.ones((3, 2)), ["a"] * 3, r"1 group\(s\), expected at least two"),
        (np.ones((0, 2)), [], r"0 group\(s\)"),
    ):
        with pytest.raises(InputError, match=message):
            clustering.judge(vectors, labels)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    encoder = kb.build("bert/tiny", **tiny.SPEC)
    encoder.tokenizer = tiny.tokenizer()
    place = tmp_path_factory.mktemp("clustered") / "run"
    kb.save(encoder, place)
    return place


def test_a_file_with_labels_is_judged_by_the_command(run, tmp_path, capsys):
    """An encoder without a task; the labels of equal texts are found whatever its weights are."""
    texts, labels = ["the cat sees a dog", "old river", "a film"], ["animals", "nature", "art"]
    table = tmp_path / "topics.csv"
    table.write_text("said,topic\n" + "".join(f"{texts[i % 3]},{labels[i % 3]}\n" for i in range(12)))
    command = [
        "evaluate",
        str(run),
        "--data",
        str(table),
        "--clusters",
        "--text-column",
        "said",
        "--label-column",
        "topic",
    ]
    assert main(command) == 0
    lines = [f"  {name}: 1.0000" for name in ("homogeneity", "completeness", "v_measure")]
    assert capsys.readouterr().out.splitlines() == ["12 texts, 3 clusters", *lines]
    table.write_text(
        "text,label\n" + "".join(f"{text} {i},{'ab'[i % 2]}\n" for i, text in enumerate(tiny.sentences(9, 0)))
    )
    assert main(["evaluate", str(run), "--data", str(table), "--clusters", "--json", "--length", "16"]) == 0
    rows = clustering.read(table)
    expected = clustering.judge(kb.encode(run, rows.texts, length=16), list("ababababa"))
    assert json.loads(capsys.readouterr().out) == {"examples": 9, "clusters": 2, "metrics": expected}
    assert expected["v_measure"] < 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_numbers_are_those_of_sklearn():
    cluster = pytest.importorskip("sklearn.cluster")
    metrics = pytest.importorskip("sklearn.metrics")
    drawn = np.random.default_rng(0)
    for _ in range(50):
        size = drawn.integers(1, 40)
        labels, clusters = (drawn.integers(0, drawn.integers(1, 9), size) for _ in range(2))
        expected = metrics.homogeneity_completeness_v_measure(labels, clusters)
        np.testing.assert_allclose(list(clustering.v_measure(labels, clusters).values()), expected, atol=1e-9)
    for seed in range(5):
        vectors, labels = groups(4, 2.0, seed)
        theirs = cluster.KMeans(4, n_init=10, random_state=seed).fit(vectors)
        ours = clustering.k_means(vectors, 4, seed)
        inertia = sum(((vectors[ours == k] - vectors[ours == k].mean(0)) ** 2).sum() for k in range(4))
        assert inertia < 1.01 * theirs.inertia_

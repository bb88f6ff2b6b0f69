"""How far written texts are the expected ones: BLEU, chrF, ROUGE, exact match."""

import importlib.util
from collections.abc import Callable, Sequence

import numpy as np

from kerasbert.errors import InputError, missing
from kerasbert.tasks.judging import Numbers

PACKAGES = {"bleu": "sacrebleu", "chrf": "sacrebleu", **dict.fromkeys(("rouge1", "rouge2", "rougeLsum"), "rouge_score")}
"""Metric -> the package that computes it; exact match needs none."""

KNOWN = ("exact_match", *PACKAGES)


def check(metric: str) -> None:
    """Refuse a metric whose package is not there.

    Raises:
        InputError: which extra brings it.
    """
    package = PACKAGES.get(metric)
    if package is not None and importlib.util.find_spec(package) is None:
        raise InputError(f"the metric {metric} needs {missing(package)}")


def measured(written: Sequence[str], expected: Sequence[str], metric: str = "exact_match") -> dict[str, float]:
    """The metrics of texts: those whose packages are there.

    BLEU (Papineni et al., 2002; sacrebleu's, tokenization 13a) and chrF (Popovic, 2015) are of the corpus, 0 to 100. ROUGE-1,
    -2 and -L of summaries whose sentences are lines (Lin, 2004; rouge-score with Porter's stemmer) are means of F1, 0 to 100.
    `exact_match` is the share of texts that are equal but for blanks around them.

    Args:
        metric: one that must be among them.
    """
    check(metric)
    same = [a.strip() == b.strip() for a, b in zip(written, expected, strict=True)]
    found = {"exact_match": sum(same) / max(1, len(same))}
    if importlib.util.find_spec("sacrebleu") is not None:
        import sacrebleu

        found["bleu"] = sacrebleu.corpus_bleu(list(written), [list(expected)]).score
        found["chrf"] = sacrebleu.corpus_chrf(list(written), [list(expected)]).score
    rouge = _rouge(written, expected)
    found |= {name: 100 * sum(values) / max(1, len(values)) for name, values in rouge.items()}
    return found


def sampled(written: Sequence[str], expected: Sequence[str]) -> Callable[[Numbers], dict[str, float]]:
    """Numbers of texts, some several times -> metrics of these: those of `measured` that add up over texts.

    chrF does not: sacrebleu tells its counts of the whole alone.
    """
    same = np.array([a.strip() == b.strip() for a, b in zip(written, expected, strict=True)], "float64")
    bleu = _bleu_counts(written, expected)
    rouge = {name: np.array(values) for name, values in _rouge(written, expected).items()}

    def of(numbers: Numbers) -> dict[str, float]:
        found = {"exact_match": float(same[numbers].mean())}
        if bleu is not None:
            from sacrebleu.metrics.bleu import BLEU

            order = (bleu.shape[1] - 2) // 2
            total = bleu[numbers].sum(0).tolist()
            counts = total[:order], total[order : 2 * order], *total[2 * order :]
            found["bleu"] = BLEU.compute_bleu(*counts, smooth_method="exp").score
        return found | {name: 100 * float(values[numbers].mean()) for name, values in rouge.items()}

    return of


def _bleu_counts(written: Sequence[str], expected: Sequence[str]) -> np.ndarray | None:
    """Of each text its n-grams that are right, all of them, its words and those of the expected text; None without sacrebleu."""
    if importlib.util.find_spec("sacrebleu") is None:
        return None
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(effective_order=True)  # silences a warning; the counts are the same
    scores = [metric.sentence_score(a, [b]) for a, b in zip(written, expected)]
    return np.array([[*each.counts, *each.totals, each.sys_len, each.ref_len] for each in scores], "int64")


def _rouge(written: Sequence[str], expected: Sequence[str]) -> dict[str, list[float]]:
    """ROUGE's F1 of each text; empty without rouge-score."""
    if importlib.util.find_spec("rouge_score") is None:
        return {}
    from rouge_score.rouge_scorer import RougeScorer

    names = [name for name, package in PACKAGES.items() if package == "rouge_score"]
    scorer = RougeScorer(names, use_stemmer=True)
    scores = [scorer.score(b, a) for a, b in zip(written, expected)]
    return {name: [each[name].fmeasure for each in scores] for name in names}

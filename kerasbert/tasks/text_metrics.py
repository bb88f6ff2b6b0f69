"""How far written texts are the expected ones: BLEU, chrF, ROUGE, exact match."""

import importlib.util
from collections.abc import Sequence

from kerasbert.errors import InputError, missing

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
    there = {name for name in set(PACKAGES.values()) if importlib.util.find_spec(name) is not None}
    if "sacrebleu" in there:
        import sacrebleu

        found["bleu"] = sacrebleu.corpus_bleu(list(written), [list(expected)]).score
        found["chrf"] = sacrebleu.corpus_chrf(list(written), [list(expected)]).score
    if "rouge_score" in there:
        from rouge_score.rouge_scorer import RougeScorer

        names = [name for name, package in PACKAGES.items() if package == "rouge_score"]
        scorer = RougeScorer(names, use_stemmer=True)
        scores = [scorer.score(b, a) for a, b in zip(written, expected)]
        found |= {name: 100 * sum(each[name].fmeasure for each in scores) / max(1, len(scores)) for name in names}
    return found

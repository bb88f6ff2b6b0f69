"""What transformers calls the weights of `layers.beam_span`, in XLNet's classes and in XLM's."""

from kerasbert.checkpoints.forms import Joined

HEAD = "beam_span"
STARTS, ENDS = "start_n_top", "end_n_top"  # keys of a configuration: starts that are tried, and ends of each
_SHAPES = {
    "start/kernel": "H 1",
    "start/bias": "1",
    "end_token/kernel": "H H",
    "end_start/kernel": "H H",
    "end_start/bias": "H",
    "end_norm/gamma": "H",
    "end_norm/beta": "H",
    "end/kernel": "H 1",
    "end/bias": "1",
    "none_start/kernel": "H H",
    "none_token/kernel": "H H",
    "none_token/bias": "H",
    "none/kernel": "H 1",
}
HEADS = {HEAD: _SHAPES}
FORMS = {"*dense_0.weight": Joined(2)}
UNREAD = {
    STARTS: "of the class that tries several starts",
    ENDS: "how many ends of a start are told: every one is weighed here",
}


def rows(prefix: str = "") -> tuple[tuple[str, ...], ...]:
    """The names behind a prefix; a map of two vectors side by side is two maps here."""
    names = {
        "start": "start_logits.dense",
        "end_start/bias": "end_logits.dense_0.bias",
        "end_token": "end_logits.dense_0#0",
        "end_start": "end_logits.dense_0#1",
        "end_norm": "end_logits.LayerNorm",
        "end": "end_logits.dense_1",
        "none_token/bias": "answer_class.dense_0.bias",
        "none_start": "answer_class.dense_0#0",
        "none_token": "answer_class.dense_0#1",
        "none": "answer_class.dense_1",
    }
    return tuple((f"heads/{HEAD}/{ours}", prefix + theirs) for ours, theirs in names.items())

"""SentencePiece's .model with the files that Hugging Face puts beside it."""

from collections.abc import Sequence

from kerasbert.errors import InputError
from kerasbert.text import unigram
from kerasbert.text.base import SENTINEL
from kerasbert.text.hf_added import ordinary, with_added
from kerasbert.text.hf_beside import CONFIG, Beside
from kerasbert.text.hf_template import renamed
from kerasbert.text.hf_values import field, short
from kerasbert.text.sentencepiece import CONTROL, UNKNOWN, Model, folded
from kerasbert.text.unigram import Unigram

MOST_SENTINELS = 10_000
# class -> the layout whose special tokens its model has
LAYOUTS = {
    "Albert": unigram.ALBERT,
    "BigBird": unigram.ALBERT,
    "XLNet": unigram.XLNET,
    "XLMRoberta": unigram.XLM_R,
    "T5": unigram.T5,
    "Bert": unigram.BERT,
    "DebertaV2": unigram.BERT,
}


def of_model(model: Model, lowercase: bool | None, beside: Beside) -> Unigram:
    """The tokenizer of a .model: ALBERT's, XLNet's, XLM-R's, T5's, BERT's or DeBERTa's, told by its special tokens.

    Args:
        lowercase: bool, of ALBERT and XLNet, overrides what the files say; None.
    Raises:
        InputError: the files name a class of other special tokens, or a setting that is not here.
    """
    tokens = beside.added()
    model = with_mask(model, tokens)
    layout = unigram.layout_of((*model.pieces, *(each["content"] for each in tokens)))
    wanted = LAYOUTS.get(beside.class_name, layout)
    if wanted != layout:
        raise InputError(
            f"tokenizer_class is {short(beside.given_class)}, whose model has {' '.join(wanted.specials.values())}, and this one "
            "has not: save the tokenizer with transformers, so that tokenizer.json says what its ids are"
        )
    if not beside.flag("add_prefix_space", True):
        raise InputError(
            f"add_prefix_space of {CONFIG} is false, and the .model puts a blank before texts: save the tokenizer with "
            "transformers, so that tokenizer.json says which"
        )
    if folds(model) and beside.class_name != "BigBird":
        lower = beside.flag("do_lower_case", layout == unigram.ALBERT)
        accents = beside.flag("keep_accents", False)
        model = folded(model, lower if lowercase is None else lowercase, not accents)
    if beside.class_name == "DebertaV2" or layout == unigram.BERT:
        _check_deberta(beside)
    if layout == unigram.XLM_R and "<pad>" not in model.pieces:
        model = fairseq_order(model)
    if layout == unigram.T5 and model.can_add:
        tokens = _with_sentinels(tokens, model.pieces, beside)
    pieces, added = with_added({piece: i for i, piece in enumerate(model.pieces)}, tokens)
    specials = layout.specials | beside.named(set(pieces))
    more = tuple(pieces[len(model.pieces) :])
    model = model._replace(
        pieces=(*model.pieces, *more),
        scores=(*model.scores, *(0.0 for _ in more)),
        types=(*model.types, *(CONTROL for _ in more)),
    )
    template = renamed(layout.template, {piece: specials[part] for part, piece in layout.specials.items()})
    template = beside.template(template)
    return Unigram(model, specials=specials, template=template, added=ordinary(added, specials.values()))


def folds(model: Model) -> bool:
    """Whether texts of a model are lower-cased or lose accents first: ALBERT's and XLNet's."""
    return unigram.layout_of(model.pieces) in (unigram.ALBERT, unigram.XLNET)


def with_mask(model: Model, tokens: list[dict]) -> Model:
    """The model with DeBERTa's [MASK] behind its pieces, where neither they nor the files beside it have one."""
    others = {piece for part, piece in unigram.BERT.specials.items() if part != "mask"}
    mask = unigram.BERT.specials["mask"]
    if not others <= {*model.pieces} or mask in {*model.pieces, *(each["content"] for each in tokens)}:
        return model
    return model._replace(pieces=(*model.pieces, mask), scores=(*model.scores, 0.0), types=(*model.types, CONTROL))


def _check_deberta(beside: Beside) -> None:
    """Refuse what DeBERTa's classes do to a text before its model."""
    for name in ("do_lower_case", "split_by_punct"):
        if beside.flag(name, False):
            raise InputError(
                f"{name} of {CONFIG} is true, expected false: save the tokenizer with transformers, whose tokenizer.json says it"
            )


def _with_sentinels(tokens: list[dict], pieces: Sequence[str], beside: Beside) -> list[dict]:
    """Added tokens and before them T5's sentinels, <extra_id_0> last, where neither model nor files give them an id.

    tokenizer_config.json says how many they are, `extra_ids`; 100 by default.
    """
    count = field(beside.config, "extra_ids", int, CONFIG, 100)
    if not 0 <= count <= MOST_SENTINELS:
        raise InputError(f"extra_ids is {count}, expected 0 to {MOST_SENTINELS}: the sentinels of a T5")
    names = [SENTINEL.format(i) for i in reversed(range(count))]
    if {*names} & {*pieces, *(each["content"] for each in tokens if each["id"] is not None)}:
        return tokens
    sentinels = [{"content": name, "special": True, "id": None} for name in names]
    held = set(names)
    return [*sentinels, *(each for each in tokens if each["content"] not in held)]


def fairseq_order(model: Model) -> Model:
    """XLM-R's ids: fairseq puts <s> <pad> </s> <unk> first and <mask> last, so that the others are one more than in the file."""
    if model.pieces[:3] != ("<unk>", "<s>", "</s>"):
        raise InputError(
            f"the first pieces are {' '.join(model.pieces[:3])}, expected <unk> <s> </s> as in XLM-R's model"
        )
    return model._replace(
        pieces=("<s>", "<pad>", "</s>", "<unk>", *model.pieces[3:], "<mask>"),
        scores=(0.0,) * 4 + (*model.scores[3:], 0.0),
        types=(CONTROL, CONTROL, CONTROL, UNKNOWN, *model.types[3:], CONTROL),
    )


def sentencepiece_order(model: Model) -> Model:
    """The inverse of `fairseq_order`: the model that gives those ids where each is one more."""
    if model.pieces[:4] != ("<s>", "<pad>", "</s>", "<unk>") or model.pieces[-1] != "<mask>":
        raise InputError(
            f"the first pieces are {' '.join(model.pieces[:4])}, the last is {model.pieces[-1]}, expected "
            "<s> <pad> </s> <unk> and <mask> as XLM-R has them"
        )
    return model._replace(
        pieces=("<unk>", "<s>", "</s>", *model.pieces[4:-1]),
        scores=(0.0,) * 3 + model.scores[4:-1],
        types=(UNKNOWN, CONTROL, CONTROL, *model.types[4:-1]),
    )

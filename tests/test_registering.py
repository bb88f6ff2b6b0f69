"""Mistakes in what a third party registers are refused where it is registered, with the nearest name."""

import dataclasses
from types import MappingProxyType

import keras
import pytest

from kerasbert import answers, registry
from kerasbert.errors import InputError
from kerasbert.mobile.quantize.schemes import SCHEMES, Scheme
from kerasbert.models.bert import BERT
from kerasbert.objectives.base import Objective
from kerasbert.objectives.bert import MaskedLMPretraining
from kerasbert.objectives.masked_lm import MaskedLM
from kerasbert.registry import Family
from kerasbert.spec import Spec
from kerasbert.tasks import base
from kerasbert.tasks.base import Task
from kerasbert.tasks.rules import SPLITS
from kerasbert.text.kinds import Kind
from kerasbert.text.wordpiece import WordPiece


class NoEncoder:
    """Takes no settings."""


def family(**changes):
    given = {"name": "mine", "spec": Spec(), "sizes": {"base": {}}, "encoder": BERT.encoder, "paper": "x"} | changes
    return Family(**given)


FAMILIES = (
    ({"sizes": {"base": {"embedings.width": 3}}}, "the size mine/base: .*embedings.width.*Nearest: 'embeddings.width'"),
    ({"sizes": {"base": {}, "wide": {"hidden": "3"}}}, "the size mine/wide: hidden.*'3'"),
    ({"sizes": {"base": {"attention.heads": 7}}}, "the size mine/base: .*7"),
    ({"aliases": {"uncased": "bse"}}, "the family 'mine': no size 'bse'. Nearest: 'base'"),
    ({"objective": "nosuch"}, "the family 'mine': no objective 'nosuch'. All: .*bert, masked_lm"),
    ({"objective": "masked-lm"}, "no objective 'masked-lm'. Nearest: 'masked_lm'"),
    ({"tokenizer": "word_piece"}, "the family 'mine': no tokenizer kind 'word_piece'. Nearest: 'wordpiece'"),
    ({"readout": "lasst"}, "no readout 'lasst'. Nearest: 'last'"),
    ({"names": {"hff": 3}}, "no checkpoint format 'hff'. Nearest: 'hf'"),
    ({"has": ("block",)}, "no part 'block'. Nearest: 'blocks'"),
    ({"encoder": NoEncoder}, r"encoder of the family mine is not called as NoEncoder\(spec, dtype=...\)"),
    ({"encoder": "bert"}, "encoder of the family mine is 'bert', expected its class"),
)


@pytest.mark.parametrize(("changes", "expected"), FAMILIES)
def test_a_family(changes, expected):
    known = len(registry.FAMILIES)
    with pytest.raises(InputError, match=expected):
        registry.register(family(**changes))
    assert "mine" not in registry.FAMILIES
    assert len(registry.FAMILIES) == known


TASKS = (
    ({"kind": "clasification"}, "the task 'mine': no kind of task 'clasification'. Nearest: 'classification'"),
    ({"metric": "acuracy"}, "the task 'mine': no metric of a classification 'acuracy'. Nearest: 'accuracy'"),
    ({"kind": "tags", "metric": "f1_macro"}, "no metric of a tags 'f1_macro'. Nearest: 'f1'"),
    (
        {"options": {"class_wieghts": "balanced"}},
        "option of a classification 'class_wieghts'. Nearest: 'class_weights'",
    ),
    ({"kind": "span", "metric": "f1", "options": {"stride": "64"}}, "span's option 'stride'"),
    ({"layers": "concat5"}, "no layers 'concat5'. Nearest: 'concat4'"),
    ({"reader": "squadd"}, "no reader of a task's files 'squadd'. Nearest: 'squad'"),
    ({"files": {"validation": ("a.csv",)}}, f"no split 'validation'. Nearest: .* All: {', '.join(SPLITS)}"),
)


@pytest.mark.parametrize(("changes", "expected"), TASKS)
def test_a_task(changes, expected):
    with pytest.raises(InputError, match=expected):
        registry.register_task("mine", Task(**{"name": "mine"} | changes))
    assert "mine" not in registry.TASKS


class Counted(MaskedLMPretraining):
    def counts(self):
        return {}


class Misnamed(MaskedLMPretraining):
    defaults = MappingProxyType({"selct": "words"})


class Unpacked(MaskedLMPretraining):
    packing = "fulll"


class Recorded(MaskedLMPretraining):
    records = MappingProxyType({"langth": 3})


class Unscaled(MaskedLMPretraining):
    scales = MappingProxyType({"mlm": "1"})


class Tokens(MaskedLMPretraining):
    scales = MappingProxyType({"mlm": 1.0})
    token_losses = ("mlmm",)


class Unset(MaskedLMPretraining):
    settings_class = MaskedLM(mask=0.8)


class Headless(Objective):
    """Objective itself, without any of its four methods."""


OBJECTIVES = (
    (MaskedLM, "the objective 'mine' is <class .*MaskedLM'>, expected a subclass of Objective"),
    (Headless, "the objective 'mine' has no heads, prepare, counts, losses: define it in Headless"),
    (Counted, r"counts\(self\) is called as counts\(self, batch"),
    (Misnamed, "the objective 'mine': defaults: settings_class has no setting 'selct'. Nearest: 'select'"),
    (Unpacked, "no packing 'fulll'. Nearest: 'full'"),
    (Recorded, "no setting of write_records 'langth'. Nearest: 'length'"),
    (Unscaled, "the objective 'mine' has scales .*'mlm': '1'"),
    (Tokens, "no loss in token_losses 'mlmm'. Nearest: 'mlm'"),
    (Unset, "settings_class MaskedLM.*, expected a frozen dataclass"),
)


@pytest.mark.parametrize(("objective", "expected"), OBJECTIVES)
def test_an_objective(objective, expected):
    with pytest.raises(InputError, match=expected):
        registry.register_objective("mine", objective)
    assert "mine" not in registry.OBJECTIVES


@dataclasses.dataclass
class Other:
    pack: object = None


@pytest.mark.parametrize(
    ("register", "value", "expected"),
    [
        (registry.register_metric, "accuracy", "'mine' is registered with 'accuracy', expected a function"),
        (registry.register_reader, None, "'mine' is registered with None, expected a function"),
        (registry.register_segmenter, "words", "expected a function"),
        (registry.register_selection, 3, "expected a function"),
        (
            registry.register_schedule,
            lambda step: step,
            "the schedule 'mine' is <function .*expected a subclass of Schedule",
        ),
        (registry.register_schedule, keras.optimizers.schedules.CosineDecay, "expected a subclass of Schedule"),
        (registry.register_optimizer, keras.optimizers.Adam(), "expected the class of a Keras optimizer"),
        (registry.register_packing, Other(), "the packing 'mine' is Other.*expected a Packing"),
        (
            registry.register_tokenizer,
            WordPiece,
            "the tokenizer kind 'mine' is <class .*expected a kerasbert.text.kinds.Kind",
        ),
        (
            registry.register_tokenizer,
            Kind(WordPiece, tuple),
            "WordPiece.kind is 'wordpiece' and is registered as 'mine'",
        ),
        (registry.register_tokenizer, Kind(Other, tuple), "expected a subclass of Tokenizer"),
        (base.register, lambda: None, "no kind of answer 'mine'.*answers.register it first"),
    ],
)
def test_another_entry(register, value, expected):
    with pytest.raises(InputError, match=expected):
        register("mine", value)


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("int8", "the quantization 'mine' is 'int8', expected a Scheme"),
        (Scheme(weights="int4"), "no value of weights 'int4'. Nearest: 'int8'"),
        (Scheme(activations="statik"), "no value of activations 'statik'. Nearest: 'static'"),
        (Scheme(runtimes={"litert": ""}), "no value of runtimes 'litert'. Nearest: '.*lite.*'"),
        (Scheme(agreement=98.5), "an agreement of 0 to 1"),
        (Scheme(make="quantize"), "the quantization 'mine' is Scheme.*expected a Scheme, its make a function"),
    ],
)
def test_a_scheme(scheme, expected):
    with pytest.raises(InputError, match=expected):
        SCHEMES.add("mine", scheme)
    assert "mine" not in SCHEMES


def test_a_kind_of_answer():
    for kind in (answers.Kind, answers.Kind(), "mine"):
        with pytest.raises(InputError, match="is an instance of a subclass of answers.Kind with a name"):
            answers.register(kind)
    for name in ("", None, 3):
        with pytest.raises(InputError, match="is registered under its name, a string"):
            registry.register_metric(name, len)


def test_all_of_ours_keep_the_rules():
    """Most are registered before what they name is imported: here all of it is."""
    for table in (value for value in [*vars(registry).values(), SCHEMES] if isinstance(value, registry.Table)):
        for name, value in [*table.items()]:
            table.add(name, value)

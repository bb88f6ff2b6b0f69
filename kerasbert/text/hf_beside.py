"""The files beside a vocabulary or a tokenizer.json of Hugging Face's: whatever they say is used, listed or told."""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json, JsonMap, JsonView
from kerasbert.text.hf_added import added_beside
from kerasbert.text.hf_template import BARE, by_flags, without_segments
from kerasbert.text.hf_values import field, short

CONFIG, NAMES, NUMBERS = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
# part of a tokenizer -> their names for it, the first that is given counts
PARTS = {
    "pad": ("pad_token",),
    "unk": ("unk_token",),
    "cls": ("cls_token",),
    "sep": ("sep_token", "eos_token"),
    "mask": ("mask_token",),
}
GENERIC = ("PreTrained", "TokenizersBackend")  # classes that do what the tokenizer.json says
# classes whose template is their own, whatever add_bos_token and add_eos_token say
OWN_TEMPLATE = (
    "Bert DistilBert Electra MobileBert ConvBert LayoutLM Lxmert SqueezeBert Retribert Realm Ernie Nezha MPNet Funnel DPRReader "
    "DPRContextEncoder DPRQuestionEncoder Roberta Bart Longformer LED Albert XLMRoberta Camembert XLNet T5 Deberta DebertaV2 "
    "BigBird RoFormer"
).split()
Default = TypeVar("Default")
NONE: JsonMap = MappingProxyType({})
OFF = "the default of an argument of their calls, which a user gives here for each call"
ORIGIN = "says where the files came from or what wrote them"
TEXT = "how ids become text again; no id depends on it"
WITHOUT_EFFECT: Mapping[str, str] = MappingProxyType(
    {
        "model_max_length": "a limit of their calls: checkpoints read a sentence-transformers folder's, else positions count",
        "max_len": "the older name of model_max_length",
        "max_length": OFF,
        "stride": OFF,
        "truncation_strategy": OFF,
        "pad_to_multiple_of": OFF,
        "return_token_type_ids": OFF,
        "return_attention_mask": OFF,
        "return_tensors": OFF,
        "verbose": OFF,
        "padding_side": "padded places are masked: no number depends on where they stand",
        "pad_token_type_id": "padded places are masked",
        "clean_up_tokenization_spaces": TEXT,
        "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": TEXT,
        "spaces_between_special_tokens": TEXT,
        "errors": TEXT,
        "split_special_tokens": "special tokens in a text are other text here, but of import --special-tokens-in-texts",
        "trim_offsets": "offsets of byte-level BPE leave blanks out, always; answers trim them anyhow",
        "vocab_type": "DeBERTa's: which kind of vocabulary, which its file says",
        "legacy": "T5's slow tokenizer alone: whether a blank follows a sentinel, which their fast one never asks",
        "unk_id": "the number of the unknown piece, which the model's file says",
        "chat_template": "the format of a chat's prompt, which is text of the user here",
        "src_lang": "mBART's language of sources, which the template of tokenizer.json has",
        "tgt_lang": "mBART's language of targets, an option of the task: start or forced_bos_token_id",
        "offset": "how many pieces Pegasus keeps for masks, which the vocabulary has",
        "mask_token_sent": "Pegasus' mask of sentences, a piece as any other",
        "tokenizer_file": ORIGIN,
        "special_tokens_map_file": ORIGIN,
        "full_tokenizer_file": ORIGIN,
        "vocab_file": ORIGIN,
        "merges_file": ORIGIN,
        "name_or_path": ORIGIN,
        "_name_or_path": ORIGIN,
        "processor_class": ORIGIN,
        "backend": ORIGIN,
        "is_local": ORIGIN,
        "local_files_only": ORIGIN,
        "use_fast": ORIGIN,
        "from_slow": ORIGIN,
        "transformers_version": ORIGIN,
        "tokenizer_type": ORIGIN,
        "*.__type": "says of a token that it is one",
    }
)


class Beside:
    """What tokenizer_config.json, special_tokens_map.json and added_tokens.json say.

    Args:
        config, names, numbers: their contents; {} where there is no such file.
    Raises:
        InputError: a setting that changes ids in a way that is not here.
    """

    def __init__(self, config: Mapping = NONE, names: Mapping = NONE, numbers: Mapping = NONE) -> None:
        self.config, self.names, self.numbers = JsonView(config), JsonView(names), dict(numbers)
        name = self.config.get("tokenizer_class")
        self.given_class = name
        self.class_name = "" if name is None else str(name).removesuffix("Fast").removesuffix("Tokenizer")
        self.generic = self.class_name in GENERIC
        self.of_model = bool(self.class_name) and not self.generic
        self.told: dict[str, object] = {}
        self._check()

    def _check(self) -> None:
        """Refuse what changes ids and is not here."""
        refused = (
            ("truncation_side", "right", "a text that is too long loses its end here"),
            ("do_basic_tokenize", True, "words are always split at blanks and punctuation here"),
            ("never_split", [], "their fast tokenizers ignore it, their slow one does not: make them added tokens"),
            ("sp_model_kwargs", {}, "a text always has the same pieces here"),
            ("remove_space", True, "runs of blanks are always one here"),
        )
        for name, wanted, why in refused:
            value = self.config.get(name)
            value = value.plain() if isinstance(value, JsonView) else value
            if value is not None and value != wanted:
                raise InputError(
                    f"{name} of {CONFIG} is {short(value)}, expected {wanted!r}: {why}. Remove the key to read the tokenizer so"
                )

    def tell(self, said: str) -> None:
        """Note something of tokenizer.json that is to be told."""
        self.told[f"{said} (tokenizer.json)"] = None

    def flag(self, name: str, default: Default) -> bool | Default:
        """A setting that is true or false; `default` where it is absent or null."""
        return field(self.config, name, bool, CONFIG, default)

    def settled(self, name: str, said: object, own: bool = True, usual: object = None) -> Any:
        """A setting that tokenizer.json says too: a model's class takes tokenizer_config.json's, else its own default.

        Args:
            said: the file's value. own: whether their classes of this kind have such a setting. usual: their default.
        Raises:
            InputError: they differ where classes have none.
        """
        if name not in self.config:
            if own and self.of_model and said != usual:
                self.tell(f"{name} {said}, {usual} by default in {self.given_class}")
                return usual
            return said
        value = self.flag(name, None)
        if value == said or (own and not self.generic):
            return value
        if value is None:
            return said
        raise InputError(
            f"{name} of {CONFIG} is {value}, tokenizer.json has {short(said)}: their releases differ in which one they "
            "read. Make them agree"
        )

    def added(self) -> list[Json]:
        """Added tokens, as `hf_added.token_entry` gives them."""
        return added_beside(self.config, self.numbers, self.names)

    def named(self, known: Collection[str]) -> dict[str, str]:
        """Part -> the special token that the files name for it, of those that a vocabulary has."""
        found = {}
        for part, keys in PARTS.items():
            pieces = [piece for key in keys if (piece := self.token(key)) is not None and piece in known]
            if pieces:
                found[part] = pieces[0]
        return found

    def token(self, name: str) -> str | None:
        """A special token by their name for it."""
        for where, part in ((CONFIG, self.config), (NAMES, self.names)):
            value = part.get(name)
            if isinstance(value, JsonView):
                value.read()
                value = value.get("content")
            if isinstance(value, str):
                return value
            if value is not None:
                raise InputError(f"{name} of {where} is {short(value)}, expected a token")
        return None

    def template(self, own: tuple[str, str], known: Collection[str] = (), end: str | None = None) -> tuple[str, str]:
        """What stands around texts, by add_bos_token, add_eos_token and model_input_names too.

        Args:
            own: the template of the file or the class.
            known, end: where add_bos_token and add_eos_token count, in classes without a template of their own whose files have
                no tokenizer.json: the pieces, and what bos_token and eos_token are where no file names them.
        """
        asked = {name: self.flag(f"add_{name}_token", None) for name in ("bos", "eos")}
        if known and self.class_name not in OWN_TEMPLATE and any(value is not None for value in asked.values()):
            own = by_flags(*(self._asked(name, known, end) if on else None for name, on in asked.items()))
        if own == BARE and self.class_name in OWN_TEMPLATE:
            self.tell(f"special tokens around a text, as newer releases of {self.given_class} add them")
        names = field(self.config, "model_input_names", list, CONFIG, None)
        given = (
            self.class_name != "BigBird" if names is None else "token_type_ids" in names
        )  # BigBird's calls give none
        return own if given else without_segments(own)

    def _asked(self, name: str, known: Collection[str], end: str | None) -> str | None:
        piece = self.token(f"{name}_token") or (None if self.generic else end)
        if piece is not None and piece not in known:
            raise InputError(
                f"{name}_token is {short(piece)}, which the vocabulary has not, and add_{name}_token of {CONFIG} is on"
            )
        return piece

    def left_over(self, without_effect: Iterable[str] = ()) -> Json:
        """What nobody read and is not listed, with the name of its file.

        Args:
            without_effect: further keys of tokenizer_config.json that change nothing of this kind of tokenizer.
        """
        again = self.names.plain()
        for name in (f"{part}_token" for part in ("bos", "eos", "sep", "cls", "pad", "unk", "mask")):
            said, other = self.token(name), again.get(name)
            if said is not None and said == (other.get("content") if isinstance(other, dict) else other):
                self.names.read(name)  # both files say the same
        left = self.config.unread([*WITHOUT_EFFECT, *without_effect])
        found = {f"{key} ({CONFIG})": value for key, value in left.items()}
        return self.told | found | {f"{key} ({NAMES})": value for key, value in self.names.unread(["*.__type"]).items()}

"""A model of ours as a SentenceTransformer: for whatever takes one, such as MTEB, BERTopic, LangChain and Haystack.

The library's own class does what its `encode` promises (prompts, batches, norms, tensors); its one module asks our model.
The name of this file is part of its class's, by which BERTopic knows one of theirs.
"""

import copy
import functools
import inspect
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert import text
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.options import checked
from kerasbert.storage import scratch
from kerasbert.tasks import predict
from kerasbert.tasks.adapted_models import encoder_of
from kerasbert.tasks.graph_values import run
from kerasbert.tasks.prompts import prefixed, vector_kind

if TYPE_CHECKING:
    import keras

    from kerasbert.tasks.ensemble import Ensemble


VALUES = ("sentence_embedding", "token_embeddings")
STATE = ("prompts", "default_prompt_name", "max_seq_length", "truncate_dim", "similarity_fn_name")
"""What a user may set of a SentenceTransformer."""


@checked
def sentence_transformer(
    model: "str | os.PathLike | keras.Model | Ensemble", *, pooling: str | None = None, length: int | None = None
) -> Any:
    """A `sentence_transformers.SentenceTransformer` whose vectors are those of `kb.encode`, with the model's prompts.

    Where langchain-core is installed it is LangChain's `Embeddings` too. That of a directory is pickled as the directory's path,
    so that a pool of processes loads it in each.

    Args:
        model: a run's directory or a loaded model. pooling, length: as of `kb.encode`.

    Raises:
        InputError: sentence-transformers is not installed, or no such pooling.
    """
    try:
        import sentence_transformers  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError(
            "a SentenceTransformer needs sentence-transformers (5 or later): pip install sentence-transformers; "
            "kb.encode needs nothing"
        ) from error
    place = os.path.abspath(model) if isinstance(model, str | os.PathLike) else None
    model = predict.as_model(model)
    settings = {"pooling": pooling, "length": length}
    width = predict.encode(model, ["a"], **settings).shape[-1]
    kind = vector_kind(model)
    options = {} if kind is None else kind.options
    result = _vectors()(
        modules=[_texts()(model, settings, width, place)],
        device="cpu",
        prompts=dict(options.get("prompts", {})),
        default_prompt_name=options.get("prompt_name") or None,
        similarity_fn_name="cosine",
    )
    name = "kerasbert" if place is None else os.path.basename(place)
    result.model_card_data.model_name = f"kerasbert/{name}"  # whoever compares models asks its name
    return result.eval()


def _again(model: "str | keras.Model", settings: Mapping[str, Any], state: Mapping[str, Any]) -> Any:
    """A SentenceTransformer as another was: of its model or of the path of this, with what was set of it."""
    result = sentence_transformer(model, **settings)
    for name, value in state.items():
        setattr(result, name, value)
    return result


def token_vectors(model: "keras.Model", texts: list[str], length: int, prompt: str | None) -> list[np.ndarray]:
    """What the encoder gives of each token, special ones too: a float32 [S, H] for each text.

    Args:
        length: tokens of a text at most. prompt: a text before each; None for none.

    Raises:
        InputError: the model has vectors of texts alone.
    """
    encoded = predict.encoded_for(model, prefixed(prompt, texts) if prompt else texts, length, kind=_bare(model))
    encoder = encoder_of(model)

    def function(model: "keras.Model", inputs: Mapping[str, Tensor]) -> Tensor:
        if "sequence" not in (found := model(inputs)):
            raise InputError(f"a model of the family {model.spec.family} has no vectors of tokens, only of texts")
        return found["sequence"]

    return run(predict.graph(encoder, "tokens", function, encoded.settings), encoded, length, per_token=True)


def _bare(model: "keras.Model") -> Any:
    """The kind of a model of vectors without its default prompt, None of any other."""
    return None if vector_kind(model) is None else vector_kind(model, prompt_name="")


class Answers(dict):
    """What `encode` takes of a batch; vectors of tokens are computed when they are asked for.

    Args:
        found: by name. tokens: gives vectors of tokens.
    """

    def __init__(self, found: Mapping[str, Any], tokens: Any) -> None:
        super().__init__(found)
        self.tokens = tokens

    def __missing__(self, name: str) -> Any:
        import torch  # pyright: ignore[reportMissingImports]

        if name not in ("token_embeddings", "attention_mask"):
            raise KeyError(name)
        self["token_embeddings"] = [torch.from_numpy(each) for each in self.tokens()]
        self["attention_mask"] = [torch.ones(len(each)) for each in self["token_embeddings"]]
        return self[name]


_Module: Any = object  # beside which a class of torch stands, which is imported where it is used


class Asked(_Module):
    """Texts -> their vectors.

    Args:
        model: of ours. settings: of `kb.encode`. width: int H. place: path of its directory, if it has one.
    """

    def __init__(self, model: "keras.Model", settings: dict[str, Any], width: int, place: str | None = None) -> None:
        super().__init__()
        self.model, self.settings, self.width, self.place = model, settings, width, place
        self.max_seq_length = predict.longest(model, settings["length"])
        self.bare = {"prompt_name": ""} if vector_kind(model) is not None else {}

    def preprocess(self, inputs: Iterable[str], prompt: str | None = None, **_: object) -> dict[str, object]:
        return {"texts": list(inputs), "prompt": prompt}

    tokenize = preprocess  # its name in release 5, which puts prompts before the texts itself

    def forward(self, features: dict[str, Tensor], **_: object) -> dict[str, Tensor]:
        import torch  # pyright: ignore[reportMissingImports]

        prompt = features.get("prompt")
        asked = {"prompt": prompt} if prompt else self.bare
        # whoever uses theirs sets max_seq_length
        settings: dict[str, Any] = {**self.settings, "length": self.max_seq_length, **asked}
        vectors = predict.encode(self.model, features["texts"], **settings)
        tokens = functools.partial(token_vectors, self.model, features["texts"], self.max_seq_length, prompt)
        return Answers(features | {"sentence_embedding": torch.from_numpy(vectors)}, tokens)

    def get_embedding_dimension(self) -> int:
        return self.width

    get_sentence_embedding_dimension = get_embedding_dimension

    @functools.cached_property
    def tokenizer(self) -> Any:
        return _theirs(self.model, self.max_seq_length)


@functools.cache
def _texts() -> type:
    """The class of the one module; torch is there where sentence-transformers is."""
    import torch  # pyright: ignore[reportMissingImports]

    return type("Texts", (Asked, torch.nn.Module), {})


def _theirs(model: "keras.Model", length: int) -> Any:
    """The model's tokenizer as one of transformers."""
    from transformers import PreTrainedTokenizerFast  # pyright: ignore[reportMissingImports]

    tokenizer = model.tokenizer
    with scratch.folder() as folder:
        text.save_hf(tokenizer, Path(folder) / "tokenizer.json")
        names = {f"{part}_token": piece for part, piece in tokenizer.specials.items()}
        file = str(Path(folder) / "tokenizer.json")
        return PreTrainedTokenizerFast(tokenizer_file=file, model_max_length=length, **names)


def _check_moved(dtype: Any, device: Any) -> None:
    """Refuse other types and devices of torch than those of its vectors, which theirs would pass over in silence."""
    if str(dtype) != "torch.float32" or device.type != "cpu":
        raise InputError(
            f"this SentenceTransformer gives float32 vectors on cpu, received {dtype} on {device}: "
            "TensorFlow chooses where it computes, kb.load(RUN, precision='bfloat16') in what"
        )


class Otherwise(_Module):
    """What a SentenceTransformer of a run does otherwise than theirs, and the methods of LangChain's Embeddings."""

    def encode(self, *args: Any, **kwargs: Any) -> Any:
        import torch  # pyright: ignore[reportMissingImports]

        asked = inspect.signature(super().encode).bind(*args, **kwargs).arguments
        value = asked.get("output_value", VALUES[0])
        if value not in VALUES:
            raise InputError(f"output_value is {value!r}, expected one of {', '.join(VALUES)}")
        if asked.get("kwargs", {}).get("processing_kwargs") is not None:
            raise InputError(
                "processing_kwargs is of a processor, which a model of kerasbert does not have: "
                "max_seq_length = N truncates"
            )
        device = asked.get("device") or "cpu"
        for each in device if isinstance(device, list) else [device]:
            _check_moved(torch.float32, torch.device(each))
        return super().encode(*args, **kwargs)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.encode_document(list(texts)).tolist()

    def embed_query(self, text: str) -> list[float]:
        return self.encode_query(text).tolist()

    def train(self, mode: bool = True) -> Any:
        if mode:
            raise InputError(
                "this SentenceTransformer asks a model of kerasbert, which others do not train: "
                "kerasbert finetune RUN --task pairs (sts, simcse), or --few-shot, does"
            )
        return super().train(mode)

    def _apply(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        import torch  # pyright: ignore[reportMissingImports]

        moved = fn(torch.zeros(1))  # whatever `to`, `half` and `cuda` change
        _check_moved(moved.dtype, moved.device)
        return super()._apply(fn, *args, **kwargs)

    def set_pooling_include_prompt(self, include_prompt: bool) -> None:
        raise InputError(
            f"include_prompt={include_prompt} is no setting of this SentenceTransformer: it is the model's own"
        )

    def save(self, *_: object, **__: object) -> None:
        raise InputError(
            "this SentenceTransformer asks a model of kerasbert and is not saved: "
            "kerasbert export-checkpoint RUN FOLDER --to sentence_transformers writes its folder"
        )

    def _state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in STATE}

    def __reduce__(self) -> Any:
        asks = self[0]
        if asks.place is None:
            raise InputError(
                "a SentenceTransformer of a loaded model is not pickled: "
                "make it of the model's directory, kb.sentence_transformer(RUN)"
            )
        return _again, (asks.place, asks.settings, self._state())

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copied = _again(self[0].model, self[0].settings, self._state())
        copied[0].place, copied.model_card_data = self[0].place, copy.deepcopy(self.model_card_data, memo)
        return copied


@functools.cache
def _embeddings() -> tuple[type, ...]:
    """LangChain's base class, where it is installed."""
    try:
        from langchain_core.embeddings import Embeddings  # pyright: ignore[reportMissingImports]
    except ImportError:
        return ()
    return (Embeddings,)


@functools.cache
def _vectors() -> type:
    """The class of the whole."""
    # a checker that does not have it takes this file for it
    from sentence_transformers import SentenceTransformer  # pyright: ignore[reportAttributeAccessIssue, reportMissingImports]

    names = {"__module__": __name__, "__doc__": Otherwise.__doc__}
    return type("Vectors", (Otherwise, SentenceTransformer, *_embeddings()), names)


def __getattr__(name: str) -> type:
    """The class by its name, as a pickle for a pool of processes asks for it."""
    if name == "Vectors":
        return _vectors()
    raise AttributeError(f"module {__name__} has no attribute {name}")

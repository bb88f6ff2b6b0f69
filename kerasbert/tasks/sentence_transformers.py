"""A model of ours as a SentenceTransformer: for whatever takes one, such as MTEB, BERTopic, LangChain and Haystack.

The library's own class does what its `encode` promises (prompts, batches, norms, tensors); its one module asks our model.
The name of this file is part of its class's, by which BERTopic knows one of theirs.
"""

import functools
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.tasks import predict
from kerasbert.tasks.prompts import vector_kind

if TYPE_CHECKING:
    import keras

    from kerasbert.tasks.ensemble import Ensemble


def sentence_transformer(
    model: "str | os.PathLike | keras.Model | Ensemble", *, pooling: str | None = None, length: int | None = None
) -> Any:
    """A `sentence_transformers.SentenceTransformer` whose vectors are those of `kb.encode`, with the model's prompts.

    It has LangChain's `embed_documents` and `embed_query` too.

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
    name = os.path.basename(os.path.abspath(model)) if isinstance(model, str | os.PathLike) else "kerasbert"
    model = predict.as_model(model)
    settings = {"pooling": pooling, "length": length}
    width = predict.encode(model, ["a"], **settings).shape[-1]
    kind = vector_kind(model)
    options = {} if kind is None else kind.options
    made = _vectors()(
        modules=[_texts()(model, settings, width)],
        device="cpu",
        prompts=dict(options.get("prompts", {})),
        default_prompt_name=options.get("prompt_name") or None,
        similarity_fn_name="cosine",
    )
    made.model_card_data.model_name = f"kerasbert/{name}"  # whoever compares models asks its name
    return made


@functools.cache
def _texts() -> type:
    """The class of the one module; torch is there where sentence-transformers is."""
    import torch  # pyright: ignore[reportMissingImports]

    class Texts(torch.nn.Module):
        """Texts -> their vectors.

        Args:
            model: of ours. settings: of `kb.encode`. width: int H.
        """

        def __init__(self, model: "keras.Model", settings: dict[str, Any], width: int) -> None:
            super().__init__()
            self.model, self.settings, self.width = model, settings, width
            self.max_seq_length = predict.longest(model, settings["length"])
            self.bare = {"prompt_name": ""} if vector_kind(model) is not None else {}

        def preprocess(self, inputs: Iterable[str], prompt: str | None = None, **_: object) -> dict[str, object]:
            return {"texts": list(inputs), "prompt": prompt}

        tokenize = preprocess  # its name in release 5, which puts prompts before the texts itself

        def forward(self, features: dict[str, Tensor], **_: object) -> dict[str, Tensor]:
            prompt = features.get("prompt")
            asked = {"prompt": prompt} if prompt else self.bare
            # whoever uses theirs sets max_seq_length
            settings: dict[str, Any] = {**self.settings, "length": self.max_seq_length, **asked}
            vectors = predict.encode(self.model, features["texts"], **settings)
            return features | {"sentence_embedding": torch.from_numpy(vectors)}

        def get_embedding_dimension(self) -> int:
            return self.width

        get_sentence_embedding_dimension = get_embedding_dimension

        def save(self, *_: object, **__: object) -> None:
            raise InputError(
                "this SentenceTransformer asks a model of kerasbert and is not saved: "
                "kerasbert export-checkpoint RUN FOLDER --to sentence_transformers writes its folder"
            )

    return Texts


@functools.cache
def _vectors() -> type:
    """The class of the whole."""
    # a checker that does not have it takes this file for it
    from sentence_transformers import SentenceTransformer  # pyright: ignore[reportAttributeAccessIssue, reportMissingImports]

    class Vectors(SentenceTransformer):
        """A SentenceTransformer with the two methods of LangChain's Embeddings."""

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return self.encode_document(list(texts)).tolist()

        def embed_query(self, text: str) -> list[float]:
            return self.encode_query(text).tolist()

    return Vectors

"""Build an index: the texts are counted, encoded block by block into a file beside its place, then all is put there at once."""

import inspect
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert import __version__
from kerasbert.errors import InputError
from kerasbert.options import check_names, checked
from kerasbert.retrieval import encoding, forms, graph, lexical, passages
from kerasbert.retrieval.folder import FORMAT, GRAPH, INDEX, SETTINGS, VECTORS, sealed
from kerasbert.retrieval.passages import Source
from kerasbert.retrieval.vector_file import VectorFile
from kerasbert.storage import files
from kerasbert.storage.json_view import Json
from kerasbert.tasks import predict
from kerasbert.tasks.prompts import prompt_names

if TYPE_CHECKING:
    import keras

    from kerasbert.tasks.ensemble import Ensemble


@checked
def build(
    model: "str | os.PathLike | keras.Model | Ensemble",
    texts: "str | os.PathLike | Source | Iterable[str]",
    out: str | os.PathLike,
    *,
    dtype: str = "float32",
    neighbours: bool | None = None,
    words: bool = False,
    overwrite: bool = False,
    **settings: Any,
) -> tuple[list[str], "keras.Model"]:
    """Build an index of texts; the same call goes on where an interrupted one stopped.

    Args:
        model: directory or loaded model. texts: list of str, path of a file, or a `Source`. out: folder to write.
        dtype: "float32", "float16", "int8" or "binary"; how the vectors are kept.
        neighbours: bool, whether it has a graph of neighbours (faiss), which finds nearly all of the nearest without looking at
            each; None: from 50,000 texts, where faiss is installed.
        words: bool, whether it finds texts by their words too (BM25, by bm25s).
        overwrite: bool, replace an index that is there.
        settings: `length`, `language`, `pooling`, `dims`, `prompt_name` of `kb.encode`, and `precision` of `kb.load`, which
            holds for the queries too. By default the model's prompt
            "document" or "passage", where it has one, stands before the texts and "query" before queries.

    Returns:
        lines of what a user cannot see in it, and the loaded model.

    Raises:
        InputError: no text, an id there twice, a place that is not ours, faiss missing where it is asked for.
    """
    own = {*inspect.signature(build).parameters} - {"settings"}
    check_names("Index.build", settings, (*own, *SETTINGS, "precision"))
    forms.check(dtype)
    if neighbours and graph.library() is None:
        raise InputError(
            "a graph of neighbours needs faiss: pip install 'kerasbert[search]', or leave --neighbours out"
        )
    if words and lexical.library() is None:
        raise InputError("an index of words needs bm25s: pip install 'kerasbert[search]', or leave --words out")
    files.check_free(out, overwrite, [each for each in (model, texts) if isinstance(each, str | os.PathLike)])
    source = texts if isinstance(texts, Source) else Source(texts)
    about, model = _about(model, source, dtype, settings)
    settings = about["settings"]
    what = {"model": about["model"]["digest"], "texts": source.digest, "unit": True, **settings}
    with VectorFile(out, what, (source.count, about["width"]), dtype) as file:
        told = encoding.encode_into(file, model, source.texts(), settings, unit=True)
        _put(out, overwrite, about, source, file, (neighbours, words))
        file.done()
    return _told(about, source, told), model


def _about(
    model: "str | os.PathLike | keras.Model | Ensemble", source: Source, dtype: str, settings: Mapping[str, Any]
) -> tuple[Json, "keras.Model"]:
    """What index.json will say, and the loaded model."""
    path = os.path.abspath(model) if isinstance(model, str | os.PathLike) and os.path.exists(model) else model
    settings = dict(settings)
    precision = settings.pop("precision", "float32")
    model = predict.as_model(model, precision)
    predict.check_one(model)
    name, query = prompt_names(model, settings.get("prompt_name"))
    settings = settings | {"prompt_name": name}
    about = {
        "index": FORMAT,
        "version": __version__,
        "model": {
            "path": os.fspath(path) if isinstance(path, str | os.PathLike) else None,
            "digest": encoding.identity(model),
            "precision": precision,
        },
        "count": source.count,
        "ids": source.id_column is not None,  # or they are the texts' lines
        "width": encoding.width(model, source.texts(), settings),
        "dtype": dtype,
        "settings": {name: settings.get(name) for name in SETTINGS},
        "query_prompt": query,
    }
    return about, model


def _put(out: str | os.PathLike, overwrite: bool, about: Json, source: Source, file: VectorFile, parts: tuple) -> None:
    """All files of the index, at once; `parts`: whether it has a graph, and words."""
    neighbours, words = parts
    with files.new_directory(out, overwrite) as folder:
        passages.write(folder, source)
        file.copy(folder / VECTORS)
        vectors = np.load(folder / VECTORS, mmap_mode="r", allow_pickle=False)
        if neighbours or (neighbours is None and source.count >= graph.FROM and graph.library() is not None):
            about["graph"] = graph.build(vectors, about["dtype"], about["width"], folder / GRAPH)
        if words:
            lexical.build(source.texts(), folder)
            about["words"] = True
        files.write_json(folder / INDEX, sealed(folder, about))


def _told(about: Json, source: Source, told: encoding.Encoded) -> list[str]:
    """What a user cannot see in an index."""
    columns = forms.columns(about["width"], about["dtype"])
    size = about["count"] * columns * np.dtype(forms.DTYPES[about["dtype"]]).itemsize / 1e6
    lines = [f"{about['count']:,} texts, vectors of {about['width']} numbers as {about['dtype']}: {size:,.1f} MB"]
    lines += [*source.told(), *told.lines()]
    if "graph" in about:
        recall = about["graph"]["recall"]
        lines.append(
            f"a graph of neighbours finds {recall:.1%} of the {graph.TOP} nearest; search --exact compares with all"
        )
    elif about["count"] >= graph.FROM:
        lines.append(f"each query is compared with all {about['count']:,}: pip install 'kerasbert[search]' for a graph")
    return lines

"""Directories of sentence-transformers <-> a vector's task, or that of a cross-encoder.

They stand around a Hugging Face checkpoint: modules.json lists the modules of a model, which have files of their own. Known are
Transformer, Pooling, perhaps some Dense and Normalize (`vector_modules`), which give vectors, Transformer alone, a
CrossEncoder of release 5.4 and later, and StaticEmbedding in the place of Transformer and Pooling (`static_embeddings`).
What is read is what the loader of release 6.2 reads, in its order (base/modules/transformer.py, `load_config`, `__init__`).
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kerasbert.answers.vector import dense_names
from kerasbert.checkpoints import vector_modules
from kerasbert.checkpoints.cross_encoders import cross_encoder, tokenizer_length, within
from kerasbert.checkpoints.json_files import read_json
from kerasbert.errors import InputError
from kerasbert.poolings import readouts_of
from kerasbert.spec import Spec
from kerasbert.storage import files, unused
from kerasbert.storage.json_view import Json, JsonMap, JsonView

if TYPE_CHECKING:
    from kerasbert.checkpoints.readers import Tensors
    from kerasbert.text.base import Tokenizer


MODULES = "modules.json"
MODEL = "config_sentence_transformers.json"
SETTINGS = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Where the settings of a Transformer stand, the first that is there: the others are names of before 2021."""
TYPE = "sentence_transformers.models."
STATIC = "StaticEmbedding"
# keys that change no number -> why
_WITHOUT_EFFECT = {
    MODULES: {"idx": "the order is that of the list", "name": "a name", "kwargs": "arguments that a call may give"},
    MODEL: {
        "__version__": "who wrote it",
        "__version__.*": "who wrote it",
        "requirements": "packages of theirs",
        "requirements.*": "packages of theirs",
        "keep_in_fp32_modules": "all is float32 here",
    },
    "settings": {
        "unpad_inputs": "speed alone",
        "model_args": "how torch loads and computes",
        "model_kwargs": "how torch loads and computes",
        "query_expansion.*": "told as a whole",
        "*.trust_remote_code": "no code is run",
        "*.use_fast": "both tokenizers give the same ids",
        "processing_kwargs.chat_template": "of messages, which are refused",
        "processing_kwargs.common.return_tensors": "the form of arrays",
        "processing_kwargs.text.padding": "padding changes no answer",
        "processing_kwargs.text.return_tensors": "the form of arrays",
    },
    "pooling": {},
    "dense": {},
    "normalize": {},
}
_REFUSED = ("config_args", "config_kwargs", "tokenizer_args", "processor_kwargs", "processing_kwargs")
"""Keys of a Transformer's settings inside which a key that is not known may change numbers."""
_BY_CALL = ("query_length", "document_length", "query_expansion")  # of encode_query and encode_document alone


@dataclasses.dataclass
class Theirs:
    """A directory of theirs, opened.

    Args:
        folder: Path. names: of its modules. paths: of its modules.
        views: what was read of each file -> its content; a name of ours for those whose name differs.
        places: the same names -> their files.
        told: lines that a user should read.
    """

    folder: Path
    names: list[str]
    paths: list[Path]
    views: dict[str, list[JsonView]]
    places: dict[str, Path]
    told: list[str] = dataclasses.field(default_factory=list)

    @property
    def crosses(self) -> bool:
        """Whether it is a CrossEncoder."""
        return self.names == ["Transformer"]

    @property
    def static(self) -> bool:
        """Whether it is a table of vectors and their mean."""
        return self.names[0] == STATIC

    @property
    def transformer(self) -> Path:
        """The folder with the weights: older models of theirs keep them in 0_Transformer."""
        return self.paths[0]

    def view(self, name: str) -> JsonView:
        """The content of a file; an empty one where there is none."""
        return self.views[name][0]

    def leave(self) -> None:
        """Note what nobody read of the files and what may change something (`storage.unused`)."""
        for name, views in self.views.items():
            for view in views:
                unused.leave(self.places[name], view.unread([*_WITHOUT_EFFECT[name.partition("/")[0]]]))

    # What the Transformer does with a text

    def tokenizer(self, tokenizer: "Tokenizer | None") -> "Tokenizer | None":
        """The folder's tokenizer, with lower-cased texts where the settings ask for it."""
        if (
            not self.view("settings").get("do_lower_case")
            or tokenizer is None
            or getattr(tokenizer, "lowercase", False)
        ):
            return tokenizer
        if tokenizer.kind != "wordpiece":
            raise InputError(
                f"{self.places['settings']} lower-cases texts before the tokenizer, which keeps case: no such model here"
            )
        settings = tokenizer.settings()
        settings["lowercase"] = True
        return type(tokenizer)(tokenizer.vocabulary, **settings)

    def length(self, spec: Spec) -> int | None:
        """The most tokens of a text, as their loader gives it, within the model's positions; None for any number."""
        settings, where = self.view("settings"), self.places["settings"]
        longest = settings.get("max_seq_length")
        for name in ("tokenizer_args", "processor_kwargs"):
            longest = (settings.get(name) or {}).get("model_max_length", longest)
        text = (settings.get("processing_kwargs") or {}).get("text") or {}
        longest = text.get("max_length", longest)
        if text.get("truncation", True) in (False, "do_not_truncate", "only_second"):
            raise InputError(f"{where} does not truncate texts, expected that: no such model here")
        return tokenizer_length(self.transformer, spec) if longest is None else within(longest, spec, where)

    def check(self) -> None:
        """Refuse settings by which other numbers come.

        Raises:
            InputError: of one line.
        """
        settings, where = self.view("settings"), self.places["settings"]
        answers = "logits" if self.crosses else "last_hidden_state"
        wanted = {
            "transformer_task": "sequence-classification" if self.crosses else "feature-extraction",
            "module_output_name": "scores" if self.crosses else "token_embeddings",
            "tokenizer_name_or_path": None,
        }
        for key, value in wanted.items():
            said = settings.get(key, value)
            if said != value and not (said is None and key != "transformer_task"):
                raise InputError(f"{where} has {key} {said!r}, expected {value!r}: no such model here")
        modalities = settings.get("modality_config") or {}
        for name in modalities:
            how = modalities[name]
            said = (how.get("method", "forward"), how.get("method_output_name", answers))
            if name != "text" or said not in (("forward", answers), ("forward", [answers])):
                raise InputError(
                    f"{where} reads {name} by {said[0]} and {said[1]}, expected text by forward and {answers}: no such "
                    "model here"
                )
        for name in _REFUSED:
            settings.get(name)
        if given := [name for name in _BY_CALL if settings.get(name) is not None]:
            self.told.append(
                f"{where.name}: {', '.join(given)} hold for encode_query and encode_document alone: not used"
            )
        for key in settings.unread([*_WITHOUT_EFFECT["settings"]]):
            if key.partition(".")[0] in _REFUSED and settings[key.partition(".")[0]]:
                raise InputError(f"{where} has {key}, which is not computed here: no such model here")

    # Its task

    def tasks(self, spec: Spec, found: Json | None, classes: int) -> tuple[Json | None, Json | None, list[str]]:
        """The task of the classifier or None, that of vectors or None, and lines to tell; arguments as of `task`."""
        task = self.task(spec, found, classes)
        return (task, None, self.told) if self.crosses else (None, task, self.told)

    def task(self, spec: Spec, found: Json | None, classes: int) -> Json:
        """Its task, as model.json records it.

        Args:
            spec: of the encoder. found: the task of the classifier that the checkpoint holds, or None. classes: int, its
                outputs.

        Raises:
            InputError: a pooling, an activation or a setting that is not computed here.
        """
        try:
            longest = self.length(spec)
            task = self._cross_encoder(found, classes) if self.crosses else self.vector(spec)
            self.check()
        except (AttributeError, TypeError) as error:
            raise InputError(f"{self.folder} holds a damaged json file of sentence-transformers: {error}") from error
        return task | ({} if longest is None else {"length": longest})

    def vector(self, spec: Spec) -> Json:
        """The task of its vectors; `spec`: of the encoder."""
        known = not self.static
        chosen = vector_modules.pooling(self.view("pooling"), self.places["pooling"], spec.hidden) if known else "mean"
        options: Json = {"pooling": chosen}
        width = spec.hidden * len(readouts_of(chosen))
        if layers := self._dense(width):
            options["dense"], width = layers, layers[-1]["width"]
        if "Normalize" in self.names:
            options["normalize"] = True
            for key in ("module_input_name", "module_output_name"):
                said = self.view("normalize").get(key) or "sentence_embedding"
                if said != "sentence_embedding":
                    raise InputError(f"{self.places['normalize']} has {key} {said!r}, expected 'sentence_embedding'")
        model = self.view(MODEL)
        options |= self._prompts()
        if (count := model.get("truncate_dim")) is not None:
            if type(count) is not int or count < 1:
                raise InputError(f"{self.places[MODEL]} has truncate_dim {count!r}, expected a whole number above 0")
            options |= {"dimensions": count} if count < width else {}
        similarity = model.get("similarity_fn_name") or "cosine"
        if similarity != "cosine" and not (
            similarity == "dot" and options.get("normalize") and "dimensions" not in options
        ):
            self.told.append(
                f"{MODEL}: similarity_fn_name {similarity!r} is not used: search and similarity are by the cosine"
            )
        return {"kind": "vector", "inputs": "text", "options": options}

    def _prompts(self) -> Json:
        """The options by which texts get a prompt."""
        model, where = self.view(MODEL), self.places[MODEL]
        prompts = model.get("prompts") or {}
        prompts, default = (
            prompts.plain() if isinstance(prompts, JsonView) else prompts,
            model.get("default_prompt_name"),
        )
        model.read("prompts")
        if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
            raise InputError(f"{where} has prompts that are no texts by name, expected such as {{'query': 'query: '}}")
        prompts = {name: text for name, text in prompts.items() if text}
        included = self.view("pooling").get("include_prompt", True) if "pooling" in self.views else True
        known = [*(model.get("prompts") or {}), "query", "document"]
        if default is not None and default not in known:
            raise InputError(f"{where} has default_prompt_name {default!r}, expected one of {', '.join(known)}")
        if not prompts:
            return {}
        if default in prompts:
            self.told.append(f"each text gets the prompt {prompts[default]!r} ({default!r}, {MODEL}'s default)")
        else:
            self.told.append(f"prompts that encode takes by --prompt-name: {', '.join(prompts)}; none by default")
        return {
            "prompts": prompts,
            **({"prompt_name": default} if default in prompts else {}),
            **({} if included else {"include_prompt": False}),
        }

    def _dense(self, width: int) -> list[Json]:
        """The layers behind a pooling of so many numbers."""
        layers = []
        for name in self.views:
            if name.startswith("dense/"):
                layers.append(vector_modules.dense(self.view(name), self.places[name], width))
                width = layers[-1]["width"]
        return layers

    def heads(self, options: JsonMap, hidden: int, allow_pickle: bool) -> dict[str, Json]:
        """The weights of the layers behind the pooling: name of the head -> {weight: array}; `options`: of its task.

        Raises:
            InputError: weights that do not fit.
        """
        heads, width = {}, hidden * len(readouts_of(options["pooling"]))
        places = [path.parent for name, path in self.places.items() if name.startswith("dense/")]
        for name, folder, layer in zip(dense_names(options), places, options.get("dense", ())):
            heads[name] = vector_modules.read_dense(folder, layer, width, allow_pickle)
            width = layer["width"]
        return heads

    def _cross_encoder(self, found: Json | None, classes: int) -> Json:
        model = self.view(MODEL)
        if found is None:
            raise InputError(f"{self.folder} is a CrossEncoder whose checkpoint holds no classifier, expected one")
        if (model.get("prompts") or {}).get(model.get("default_prompt_name")):
            raise InputError(f"{self.places[MODEL]} puts a prompt before pairs of texts: no such model here")
        said = model.get("activation_fn")
        task, told = cross_encoder(found, classes, said, self.places[MODEL])
        self.told += told
        return task


def opened(folder: Path) -> Theirs | None:
    """A directory of theirs; None where the folder is none.

    Raises:
        InputError: a damaged list of modules, or modules that are not computed here.
    """
    if not (folder / MODULES).is_file():
        return None
    content = read_json(folder / MODULES, list)
    try:
        rows = [JsonView(each) for each in content]
        types, paths = [str(each["type"]) for each in rows], [folder / str(each["path"]) for each in rows]
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder / MODULES} is damaged, expected a list of objects with type and path") from error
    names = [name.rpartition(".")[2] for name in types]
    settled = [name for name in names if name != "Dropout"]  # which is nothing but in training
    if strange := next((name for name in types if not name.startswith("sentence_transformers.")), None):
        raise InputError(f"{folder / MODULES} has the module {strange}, which is code of its own: no such model here")
    before = 1 if settled[:1] == [STATIC] else 2
    behind = settled[before:-1] if settled[before:] and settled[-1] == "Normalize" else settled[before:]
    first = settled[:before] in ([STATIC], ["Transformer", "Pooling"])
    if settled != ["Transformer"] and not (first and set(behind) <= {"Dense"}):
        raise InputError(
            f"{folder / MODULES} has the modules {', '.join(names) or 'none'}, expected Transformer, Pooling and perhaps "
            "Dense and Normalize, StaticEmbedding in their place, or the Transformer of a CrossEncoder: no other is computed "
            "here. For the encoder alone "
            "import its Transformer's folder without modules.json"
        )
    if any(folder.resolve() not in (path.resolve(), *path.resolve().parents) for path in paths):
        raise InputError(f"{folder / MODULES} names a folder outside of {folder}")
    where = dict(zip(names, paths))
    places = {MODULES: folder / MODULES, MODEL: folder / MODEL}
    named = [paths[0] / name for name in SETTINGS]
    places["settings"] = next((path for path in named if path.is_file() and read_json(path)), named[0])
    places |= {name.lower(): where[name] / "config.json" for name in ("Pooling", "Normalize") if name in where}
    layers = [path for name, path in zip(names, paths) if name == "Dense"]
    places |= {f"dense/{i}": path / "config.json" for i, path in enumerate(layers, 1)}
    views = {
        name: [JsonView(read_json(path) if path.is_file() else {})] for name, path in places.items() if name != MODULES
    }
    kept = [path for name, path in zip(names, paths) if name != "Dropout"]
    theirs = Theirs(folder, settled, kept, {MODULES: rows, **views}, places)
    _check_kind(theirs, folder, names)
    return theirs


def _check_kind(theirs: Theirs, folder: Path, names: Sequence[str]) -> None:
    """Refuse a folder whose modules are not those of the class that it says."""
    wanted = "CrossEncoder" if theirs.crosses else "SentenceTransformer"
    asked = theirs.view("settings").get("transformer_task") == "sequence-classification"
    kind = theirs.view(MODEL).get("model_type") or ("CrossEncoder" if asked else "SentenceTransformer")
    if kind != wanted:
        raise InputError(
            f"{folder} is a {kind} with the modules {', '.join(names)}, expected Transformer and Pooling of a "
            "SentenceTransformer, or the Transformer of a CrossEncoder: no other is computed here"
        )


def write(folder: Path, task: JsonMap, spec: Spec, tensors: "Tensors | None" = None, static: bool = False) -> None:
    """Their files around a checkpoint of Hugging Face, or a table.

    Args:
        task: json of a vector's task. spec: of its encoder. tensors: Reader of the model's weights, for a task with `dense`.
        static: bool, whether it is a table and a mean.
    """
    options = {"pooling": "mean", "normalize": False} | dict(task.get("options", {}))
    layers = options.get("dense", ())
    names = [STATIC] if static else ["Transformer", "Pooling"]
    names += [*("Dense" for _ in layers), *(["Normalize"] if options["normalize"] else [])]
    paths = ["", *(f"{i}_{name}" for i, name in enumerate(names[1:], 1))]
    rows = [
        {"idx": i, "name": str(i), "path": path, "type": TYPE + name}
        for i, (name, path) in enumerate(zip(names, paths))
    ]
    files.write_json(folder / MODULES, rows)
    model = {"prompts": options.get("prompts", {}), "default_prompt_name": options.get("prompt_name") or None}
    model |= {"truncate_dim": options["dimensions"]} if options.get("dimensions") else {}
    files.write_json(folder / MODEL, {"similarity_fn_name": "cosine", **model})
    for path in paths[1:]:
        (folder / path).mkdir()
    if not static:
        longest = task.get("length") or spec.longest
        files.write_json(folder / SETTINGS[0], {"max_seq_length": longest, "do_lower_case": False})
        written = vector_modules.written_pooling(options["pooling"], spec.hidden, options.get("include_prompt", True))
        files.write_json(folder / "1_Pooling" / "config.json", written)
    width = spec.hidden * len(readouts_of(options["pooling"]))
    for name, path, layer in zip(dense_names(options), paths[1 if static else 2 :], layers):
        assert tensors is not None, "a task with dense layers needs tensors"
        vector_modules.write_dense(
            folder / path, layer, width, lambda weight, of=name: tensors.read(f"heads/{of}/{weight}")
        )
        width = layer["width"]

"""Checkpoints by their name on the Hugging Face hub, through huggingface_hub (extra `hub`), which caches them.

Only the configuration, the tokenizer and safetensors are fetched, all of one commit, whose hash is recorded.
"""

import functools
import os
import re
from pathlib import Path

from kerasbert import progress
from kerasbert.checkpoints.sentence_transformers import SETTINGS
from kerasbert.errors import InputError

FILES = (
    "config.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "model.safetensors.index.json",
    "modules.json",
    "config_sentence_transformers.json",
    *SETTINGS,
    "generation_config.json",
)
ENDINGS = tuple(  # of files, which no repository is called
    ".safetensors .json .bin .index .ckpt .pt .h5 .keras .tflite .onnx .pb .csv .tsv .jsonl .txt .xlsx .yaml .yml .gz".split()
)
ADDRESS = re.compile(r"(?:https?:/{1,2})?(?:www\.)?(?:huggingface\.co|hf\.co)/|hf:/{1,2}")  # a Path has one slash left
MODULE = re.compile(r"[1-9]_\w+/(config\.json|model\.safetensors)")  # of sentence-transformers, behind its Transformer


def plain(name: str | os.PathLike) -> tuple[str, str | None]:
    """The name, and the revision or None, of an address of a model's page on the hub; another name as it is.

    >>> plain("https://huggingface.co/google-bert/bert-base-uncased/tree/main"), plain("runs/bert")
    (('google-bert/bert-base-uncased', None), ('runs/bert', None))
    """
    said = os.fspath(name)
    found = ADDRESS.match(said)
    if not found or os.path.exists(said):
        return said, None
    parts = said[found.end() :].partition("?")[0].partition("#")[0].strip("/").removeprefix("models/").split("/")
    at = next((i for i, part in enumerate(parts) if part in ("tree", "blob", "resolve", "commit")), len(parts))
    return "/".join(parts[:at]), None if parts[at + 1 : at + 2] in ([], ["main"]) else parts[at + 1]


def fetch(name: str, revision: str | None = None, weights: bool = True) -> tuple[Path, str]:
    """The folder of a checkpoint's files, and the hash of their commit; asked for once in a process.

    Args:
        name: `bert-base-uncased` or `google-bert/bert-base-uncased`. The hub is `HF_ENDPOINT`'s where that is set.
        revision: a branch, a tag or a commit; the default branch where it is None.
        weights: False where the tokenizer is all that is wanted.

    Raises:
        InputError: huggingface_hub is not installed, the hub cannot be reached and nothing is cached, no such name or
            revision, no safetensors; the line holds the command that downloads the files by hand.
    """
    try:
        from huggingface_hub import constants
    except ImportError as error:
        raise InputError(
            f"{name} is no folder, and fetching it from the Hugging Face hub needs huggingface_hub: "
            f"pip install huggingface_hub (extras tensorflow, mobile and hub). {_by_hand(name, revision)}"
        ) from error
    return _fetch(name, revision, weights, os.environ.get("HF_ENDPOINT"), str(constants.HF_HUB_CACHE))


@functools.cache
def _fetch(name: str, revision: str | None, weights: bool, endpoint: str | None, _: str) -> tuple[Path, str]:
    """`fetch`, from a hub's address into a cache's folder."""
    try:
        _check_reachable(endpoint)
        import huggingface_hub

        info = huggingface_hub.HfApi(endpoint=endpoint).model_info(name, revision=revision, timeout=20)
    except Exception as error:  # httpx's, requests' and its own, which differ by version
        cached = _cached(name, revision, weights)
        if cached is not None and not _says_no(error):
            progress.say(f"the hub cannot be reached: {name} is commit {cached.name} of the cache")
            return cached, cached.name
        reason = " ".join(str(error).split()).partition(". ")[0][:160] or type(error).__name__
        line = f"no checkpoint at {name}, and the hub did not give it: {reason}. {_by_hand(name, revision)}"
        raise InputError(line) from error
    names = [file.rfilename for file in info.siblings or []]
    wanted = [file for file in names if file in FILES or (weights and MODULE.fullmatch(file))]
    wanted += [file for file in names if weights and file.startswith("model") and file.endswith(".safetensors")]
    if not wanted and not weights:
        raise InputError(f"{name} at {info.sha} has no file of a tokenizer, such as tokenizer.json: take another name")
    if weights and not (
        "config.json" in wanted and any(file.endswith(".safetensors") and "/" not in file for file in wanted)
    ):
        raise InputError(
            f"{name} at {info.sha} has no config.json and model.safetensors, expected both: pickles are not fetched. "
            "Take a revision that was converted (--revision refs/pr/N), or convert it and import the folder"
        )
    folder = Path()
    for file in wanted:
        try:
            path = huggingface_hub.hf_hub_download(name, file, revision=info.sha, endpoint=endpoint)
        except Exception as error:
            reason = " ".join(str(error).split())[:160] or type(error).__name__
            raise InputError(f"cannot fetch {file} of {name}: {reason}. {_by_hand(name, revision)}") from error
        folder = folder if "/" in file else Path(path).parent
    return folder, info.sha or ""


def _check_reachable(endpoint: str | None) -> None:
    """Raise an OSError where there is no way to the hub: without a network its client need not be imported (.4 CPU-s).

    Behind a proxy, which resolves names itself, only the client can tell.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise OSError("HF_HUB_OFFLINE is set")
    if not any(name.lower() in ("https_proxy", "http_proxy", "all_proxy") for name in os.environ):
        import socket
        from urllib.parse import urlsplit

        address = urlsplit(endpoint or constants.ENDPOINT)
        socket.getaddrinfo(address.hostname, address.port or 443)


def looks_like_name(name: str) -> bool:
    """Whether a name may be one on the hub, and not a path that was mistyped.

    >>> [looks_like_name(name) for name in ("bert-base-uncased", "google-bert/bert", "./bert", "a/b/c", "m.safetensors")]
    [True, True, False, False, False]
    """
    owner, _, rest = name.rpartition("/")
    plain = re.fullmatch(r"(?:\w[\w.-]*/)?\w[\w.-]*", name)
    return bool(plain) and not rest.endswith(ENDINGS) and not (owner and os.path.isdir(owner))


def _says_no(error: Exception) -> bool:
    """Whether the hub answered: no such name or revision, or not for this user."""
    return getattr(getattr(error, "response", None), "status_code", None) in (401, 403, 404)


def _cached(name: str, revision: str | None, weights: bool) -> Path | None:
    """The folder of an earlier download: of the commit `revision`, else of the commit that was fetched last."""
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}" / "snapshots"
    found = [
        path.parent
        for path in folder.glob(f"{revision or '*'}/*.json")
        if not weights or ((path.parent / "config.json").is_file() and any(path.parent.glob("*.safetensors")))
    ]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def _by_hand(name: str, revision: str | None) -> str:
    pin = f" --revision {revision}" if revision else ""
    folder = name.rpartition("/")[2]
    include = " ".join(f"--include '*.{ending}'" for ending in ("json", "txt", "model", "safetensors"))
    return (
        f"Where there is a network: hf download {name}{pin} {include} --local-dir {folder}; "
        f"then: kerasbert import ./{folder} --out DIR"
    )

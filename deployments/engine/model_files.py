"""Reads what a model's files say without loading it, from its folder or from the hub.

From a folder it reads config.json and the headers of the safetensors files (8 bytes of length, then JSON);
from the hub config.json and the counts in the index. Weights are never read.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Any

from serve_app import planning
from serve_app.engines import vocabulary_of
from serve_app.model_store import ModelStore
from serve_app.planning import ModelFiles, StoredWeights
from serve_app.planning.quantization import STORED_BYTES

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
RECORD = "data/models.json"
"""A file of ``serve_app.planning`` with the ``config.json`` of well-known models, their dates and sources."""

MAX_HEADER_BYTES = 100_000_000
"""The limit of the safetensors format."""

HUB_TIMEOUT_S = 10.0


class SourceError(Exception):
    """A model that cannot be read. ``field`` is the setting under ``models[i]`` that names it;
    ``is_remote``: the model is not on this node and would have to come from the hub."""

    def __init__(self, field: str, source: str, reason: str, works: str, *, is_remote: bool = False) -> None:
        super().__init__(f"{field} = {source!r}: {reason}; {works}")
        self.field = field
        self.source = source
        self.reason = reason
        self.works = works
        self.is_remote = is_remote


class _Unreadable(Exception):
    """A file of a model is missing or broken; the message says which."""


class ModelLibrary:
    """Looks for models in this machine's folders first, then on the hub. ``endpoint``: a hub other than the
    public one. ``recorded``: if neither has the model, take its shape from Promptly's own record."""

    def __init__(
        self,
        store: ModelStore,
        *,
        offline: bool = False,
        endpoint: str | None = None,
        recorded: bool = False,
    ) -> None:
        self._store = store
        self._offline = offline
        self._endpoint = endpoint
        self._recorded = recorded

    def read(
        self, source: str, revision: str | None = None, *, field: str = "source", vocabulary: bool = False
    ) -> ModelFiles:
        """Read a model's files. ``vocabulary``: also read the tokenizer's, if the model is a folder.

        Raises:
            SourceError: the folder or the model on the hub does not exist, the hub is unreachable, or files
            are broken.
        """
        folder = Path(self._store.resolve(source)).expanduser()
        if folder.is_dir():
            try:
                return read_folder(folder, vocabulary=vocabulary)
            except _Unreadable as error:
                raise SourceError(field, source, str(error), "copy or prepare the model again") from error
        if _is_path(source):
            raise SourceError(field, source, "no such folder", "give a folder with config.json, or a hub id")
        cached = _from_cache(source, revision, vocabulary)
        if cached is not None:
            return cached
        try:
            return self._from_elsewhere(source, revision, field)
        except SourceError as error:
            known = recorded(source) if self._recorded and error.is_remote and revision is None else None
            if known is None:
                raise
            return known

    def _from_elsewhere(self, source: str, revision: str | None, field: str) -> ModelFiles:
        if self._offline:
            raise SourceError(
                field,
                source,
                f"not prepared on this machine ({self._store.folder(source)} is missing), and the hub is off",
                "prepare it, or allow the hub (HF_HUB_OFFLINE, --offline)",
                is_remote=True,
            )
        return self._from_hub(source, revision, field)

    def _from_hub(self, source: str, revision: str | None, field: str) -> ModelFiles:
        from huggingface_hub import errors

        try:
            return _read_hub(source, revision, self._endpoint)
        except _Unreadable as error:
            raise SourceError(field, source, str(error), "use another revision of it") from error
        except errors.GatedRepoError as error:
            works = "accept its terms on the hub and set HF_TOKEN, or use a copy that is open"
            raise SourceError(field, source, "this model needs permission", works) from error
        except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
            works = "check the name (owner/name); a private model needs HF_TOKEN"
            raise SourceError(field, source, "the hub has no such model", works) from error
        except errors.RevisionNotFoundError as error:
            works = "leave `revision` out, or name a branch, tag or commit that it has"
            raise SourceError(field, source, f"the hub has no revision {revision!r} of it", works) from error
        except errors.RemoteEntryNotFoundError as error:
            works = "use a repository in the transformers format (config.json and safetensors)"
            raise SourceError(field, source, "the repository has no config.json", works) from error
        except Exception as error:  # any error of the client's network layer means: hub unreachable
            folder = self._store.folder(source)
            works = f"prepare the model on this machine ({folder}), or set HF_ENDPOINT to a mirror"
            reason = f"the hub cannot be reached ({type(error).__name__})"
            raise SourceError(field, source, reason, works, is_remote=True) from error


def recorded(source: str) -> ModelFiles | None:
    """A model's published shape, from Promptly's record of the models in its configs and guides; ``None``: it
    is not among them."""
    record = json.loads(files(planning).joinpath(RECORD).read_text(encoding="utf-8"))
    found = record["models"].get(source)
    return None if found is None else ModelFiles(found["config"], recorded=record["read"])


def _from_cache(source: str, revision: str | None, vocabulary: bool) -> ModelFiles | None:
    """The model from the hub client's cache, if its files there are complete."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(source, CONFIG, revision=revision)
        return read_folder(Path(found).parent, vocabulary=vocabulary) if isinstance(found, str) else None
    except (HFValidationError, _Unreadable):
        return None


def read_folder(folder: Path, *, vocabulary: bool = False) -> ModelFiles:
    """Raises: _Unreadable: a file is missing or broken."""
    if not (folder / CONFIG).is_file():
        raise _Unreadable(f"{folder / CONFIG} is missing")
    return ModelFiles(
        _json(folder / CONFIG), _folder_weights(folder), _vocabulary(folder) if vocabulary else {}
    )


def _folder_weights(folder: Path) -> StoredWeights | None:
    """The weights by the headers of all files that the index names, or of all files if there is no index;
    ``None`` if there are no files."""
    index = folder / INDEX
    if index.is_file():
        names = sorted(set(_json(index).get("weight_map", {}).values()))
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise _Unreadable(f"{folder / missing[0]} is missing, which {INDEX} names")
    else:
        # If the single file exists, other files may hold the same weights in another layout.
        single = (folder / SINGLE).is_file()
        names = [SINGLE] if single else sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        return None
    values: Counter[str] = Counter()
    total = 0
    for name in names:
        for kind, count, size in _tensors(folder / name):
            values[kind] += count
            total += size
    return StoredWeights(total, tuple(sorted(values.items())))


def _tensors(path: Path) -> list[tuple[str, int, int]]:
    """Type, number of values and bytes of each tensor. Raises: _Unreadable: the header or the file's length
    is wrong."""
    length = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        header_bytes = struct.unpack("<Q", start)[0] if len(start) == 8 else MAX_HEADER_BYTES + 1
        if header_bytes > min(MAX_HEADER_BYTES, length):
            raise _Unreadable(f"{path} is not a safetensors file, or is truncated")
        header = _parsed(path, file.read(header_bytes))
    header.pop("__metadata__", None)
    try:
        found = [
            (str(each["dtype"]), math.prod(each["shape"]), each["data_offsets"][1] - each["data_offsets"][0])
            for each in header.values()
        ]
        end = max((each["data_offsets"][1] for each in header.values()), default=0)
    except (KeyError, TypeError, IndexError) as error:
        raise _Unreadable(f"{path} has a header that is not in the safetensors format") from error
    if end + 8 + header_bytes != length:
        raise _Unreadable(f"{path} has {length} bytes, but its header says {end + 8 + header_bytes}")
    return found


def _read_hub(source: str, revision: str | None, endpoint: str | None) -> ModelFiles:
    """Raises: _Unreadable, and what the hub client raises."""
    from huggingface_hub import HfApi

    info = HfApi(endpoint=endpoint).model_info(
        source, revision=revision, timeout=HUB_TIMEOUT_S, expand=["safetensors"]
    )
    config = _hub_json(source, CONFIG, revision, endpoint)
    counts = getattr(getattr(info, "safetensors", None), "parameters", None)
    if counts:
        total = sum(count * STORED_BYTES.get(kind, 1.0) for kind, count in counts.items())
        return ModelFiles(config, StoredWeights(int(total), tuple(sorted(counts.items()))))
    return ModelFiles(config, _index_weights(source, revision, endpoint))


def _index_weights(source: str, revision: str | None, endpoint: str | None) -> StoredWeights | None:
    """The total size from the index of the weights; ``None`` if there is no index."""
    from huggingface_hub.errors import EntryNotFoundError

    try:
        total = _hub_json(source, INDEX, revision, endpoint).get("metadata", {}).get("total_size")
    except EntryNotFoundError:
        return None
    return None if total is None else StoredWeights(int(total))


def _hub_json(source: str, name: str, revision: str | None, endpoint: str | None) -> dict[str, Any]:
    """Fetch a JSON file in one request: the client's own download retries for half a minute if the hub does
    not answer."""
    from huggingface_hub import get_session, hf_hub_url, hf_raise_for_status
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # not in its __all__

    url = hf_hub_url(source, name, revision=revision, endpoint=endpoint)
    answer = get_session().get(url, headers=build_hf_headers(), timeout=HUB_TIMEOUT_S)
    hf_raise_for_status(answer)
    return _parsed(Path(url), answer.content)


def _vocabulary(folder: Path) -> dict[str, int]:
    """The token ids by text; empty if there is no tokenizer.json."""
    path = folder / "tokenizer.json"
    return vocabulary_of(_json(path)) if path.is_file() else {}


def _json(path: Path) -> dict[str, Any]:
    return _parsed(path, path.read_bytes())


def _parsed(path: Path, text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise _Unreadable(f"{path} is not valid JSON") from error
    if not isinstance(found, dict):
        raise _Unreadable(f"{path} is not a JSON object")
    return found


def _is_path(source: str) -> bool:
    """A hub id is ``name`` or ``owner/name``."""
    return source.startswith(("/", ".", "~")) or source.count("/") > 1 or source.endswith(".gguf")

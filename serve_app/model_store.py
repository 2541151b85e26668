"""Where model folders live on a node.

The cache folder holds one folder per hub repository (``models/<owner>--<name>``). A settings file names
models by their hub id. A node with a prepared folder loads the model from there; otherwise the hub client
gets the id.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

CACHE_ENV = "PROMPTLY_CACHE"


def default_cache_dir() -> Path:
    """``$PROMPTLY_CACHE``, else ``~/.cache/promptly``."""
    return Path(os.environ.get(CACHE_ENV) or "~/.cache/promptly").expanduser()


@dataclass(frozen=True)
class ModelStore:
    """The model folders under one cache folder."""

    cache_dir: Path

    def folder(self, repo: str) -> Path:
        """The folder that holds ``repo`` once it has been prepared."""
        return self.cache_dir / "models" / repo.replace("/", "--")

    def resolve(self, source: str) -> str:
        """The prepared folder of ``source`` if this node has one, else ``source`` itself."""
        folder = self.folder(source)
        return str(folder) if folder.is_dir() else source

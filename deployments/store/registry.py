"""The stores by the name that ``cache.store`` uses."""

from __future__ import annotations

from collections.abc import Callable

from deployments.store.base import CacheStore
from serve_app.model_store import default_cache_dir
from serve_app.settings import CacheSettings


def open_store(settings: CacheSettings, dimension: int, embedder: str) -> CacheStore:
    """Open the store that the settings name, for vectors of ``dimension`` made by ``embedder``.

    Raises:
        StoreError: it cannot be opened.
    """
    return OPENERS[settings.store](settings, dimension, embedder)


def _open_edge(settings: CacheSettings, dimension: int, embedder: str) -> CacheStore:
    from deployments.store.edge import EdgeStore

    path = settings.path or str(default_cache_dir() / "semantic-cache")
    return EdgeStore.open(path, dimension, embedder)


OPENERS: dict[str, Callable[[CacheSettings, int, str], CacheStore]] = {"qdrant_edge": _open_edge}

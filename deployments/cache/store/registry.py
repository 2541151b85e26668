"""The stores by the names that the setting ``cache.store`` accepts."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from deployments.cache.store.base import CacheStore, StoreError
from deployments.platform.secret_environment import with_secrets
from serve_app.model_store import default_cache_dir
from serve_app.settings import CacheSettings


async def open_store(settings: CacheSettings, dimension: int, embedder: str) -> CacheStore:
    """Open the store that the settings name, for vectors of ``dimension`` made by ``embedder``.

    Raises:
        StoreError: the store cannot be opened, or its encryption key is missing.
        SettingsError: the secrets file cannot be used.
    """
    opener = OPENERS[settings.store]
    if settings.encryption_key_env is None:
        return await opener(settings, dimension, embedder)
    from deployments.cache.store.sealed import SealedStore, sealer_from

    sealer = sealer_from(settings.encryption_key_env, with_secrets(os.environ))
    # Sealed entries have their own folder or collection: a cache without the key cannot read them, and a
    # cache with the key cannot read unsealed ones.
    return SealedStore(await opener(settings, dimension, f"{embedder}:sealed"), sealer)


async def _open_edge(settings: CacheSettings, dimension: int, embedder: str) -> CacheStore:
    from deployments.cache.store.edge import EdgeStore

    path = settings.path or str(default_cache_dir() / "semantic-cache")
    floor = settings.min_free_disk_bytes
    return await EdgeStore.open(path, dimension, embedder, min_free_bytes=floor)


async def _open_server(settings: CacheSettings, dimension: int, embedder: str) -> CacheStore:
    from deployments.cache.store.server import ServerStore

    if settings.qdrant is None:
        raise StoreError("cache.store is `qdrant`, but `cache.qdrant` names no server")
    return await ServerStore.open(settings.qdrant, dimension, embedder, with_secrets(os.environ))


OPENERS: dict[str, Callable[[CacheSettings, int, str], Awaitable[CacheStore]]] = {
    "qdrant_edge": _open_edge,
    "qdrant": _open_server,
}

"""The stores by the names that the setting ``cache.store`` accepts."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from deployments.cache.store.base import CacheStore, StoreError
from deployments.platform.secret_environment import with_secrets
from serve_app.cache.shards import ALONE, Place
from serve_app.model_store import default_cache_dir
from serve_app.settings import CacheSettings

FOLDER = "semantic-cache"
SHARD = "shard-"
"""The prefix of the folders of an embedded store's shards after the first. They are in the first one's
folder: ``shard-2``…"""

logger = logging.getLogger("ray.serve")


async def open_store(
    settings: CacheSettings, dimension: int, embedder: str, place: Place = ALONE
) -> CacheStore:
    """Open the store that the settings name, for vectors of ``dimension`` made by ``embedder``, for the shard
    at ``place``.

    Raises:
        StoreError: the store cannot be opened, or its encryption key is missing.
        SettingsError: the secrets file cannot be used.
    """
    opener = OPENERS[settings.store]
    if settings.encryption_key_env is None:
        return await opener(settings, dimension, embedder, place)
    from deployments.cache.store.sealed import SealedStore, sealer_from

    sealer = sealer_from(settings.encryption_key_env, with_secrets(os.environ))
    # Sealed entries have their own folder or collection: a cache without the key cannot read them, and a
    # cache with the key cannot read unsealed ones.
    return SealedStore(await opener(settings, dimension, f"{embedder}:sealed", place), sealer)


async def _open_edge(settings: CacheSettings, dimension: int, embedder: str, place: Place) -> CacheStore:
    from deployments.cache.store.edge import EdgeStore

    folder = Path(settings.path or default_cache_dir() / FOLDER)
    path = folder if place.is_first else folder / f"{SHARD}{place.shard + 1}"
    floor = settings.min_free_disk_bytes
    store = await EdgeStore.open(str(path), dimension, embedder, min_free_bytes=floor)
    if place.is_first:
        await asyncio.to_thread(_remove_shards_beyond, folder, place.of)
    return store


def _remove_shards_beyond(folder: Path, count: int) -> None:
    """Remove the folders of shards that no longer exist. No purge reaches them: if that many shards were
    configured again, they would answer with entries purged in between."""
    for path in folder.expanduser().glob(f"{SHARD}*"):
        number = path.name.removeprefix(SHARD)
        if number.isdecimal() and int(number) > count:
            shutil.rmtree(path, ignore_errors=True)
            logger.info("the cache has %d shards: %s is removed", count, path)


async def _open_server(settings: CacheSettings, dimension: int, embedder: str, place: Place) -> CacheStore:
    from deployments.cache.store.server import ServerStore

    if settings.qdrant is None:
        raise StoreError("cache.store is `qdrant`, but `cache.qdrant` names no server")
    environment = with_secrets(os.environ)
    return await ServerStore.open(settings.qdrant, dimension, embedder, environment, place)


OPENERS: dict[str, Callable[[CacheSettings, int, str, Place], Awaitable[CacheStore]]] = {
    "qdrant_edge": _open_edge,
    "qdrant": _open_server,
}

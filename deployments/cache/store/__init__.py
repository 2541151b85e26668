"""Stores for cache entries: the contract, its implementations, and how one is opened by name."""

from deployments.cache.store.base import CacheStore, Match, StoreError, StoreFull
from deployments.cache.store.registry import open_store

__all__ = ["CacheStore", "Match", "StoreError", "StoreFull", "open_store"]

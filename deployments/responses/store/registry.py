"""Stores of responses by the name that ``responses.store`` gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from deployments.responses.store.base import ResponseStore
from deployments.responses.store.sqlite import SqliteStore
from serve_app.model_store import default_cache_dir
from serve_app.settings import ResponsesSettings

FOLDER = "responses"


def _sqlite(settings: ResponsesSettings, now: float) -> ResponseStore:
    folder = Path(settings.path).expanduser() if settings.path else default_cache_dir() / FOLDER
    return SqliteStore(folder, settings, now)


STORES: dict[str, Callable[[ResponsesSettings, float], ResponseStore]] = {"sqlite": _sqlite}


def open_store(settings: ResponsesSettings, now: float) -> ResponseStore:
    """Blocks while the file is opened. ``now``: Unix seconds. Raises: StoreError."""
    return STORES[settings.store](settings, now)

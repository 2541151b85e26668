"""The store of accounts that the settings name."""

from __future__ import annotations

from pathlib import Path

from deployments.accounts.store.base import AccountStore
from deployments.accounts.store.postgres import PostgresAccounts, url_from
from deployments.accounts.store.sqlite import SqliteAccounts
from serve_app.model_store import default_cache_dir
from serve_app.settings import AccountSettings

FOLDER = "accounts"


def folder_of(settings: AccountSettings) -> Path:
    return Path(settings.path).expanduser() if settings.path else default_cache_dir() / FOLDER


def open_store(settings: AccountSettings) -> AccountStore:
    """Blocks while the database is opened. Raises: AccountsError."""
    if settings.store is not None:
        return PostgresAccounts(url_from(settings.store.url_env), settings)
    return SqliteAccounts(folder_of(settings), settings)

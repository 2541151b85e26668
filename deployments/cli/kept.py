"""What an application keeps, by its settings: the parts of a backup, how each is saved and restored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from deployments.accounts import audit_copies
from deployments.accounts.store import copies as accounts
from deployments.accounts.store.registry import folder_of
from deployments.accounts.store.schema import FILE as ACCOUNTS_FILE
from deployments.cli import kept_cache
from deployments.feedback.store import copies as feedback
from deployments.feedback.store import registry as feedback_registry
from deployments.feedback.store import schema as feedback_schema
from deployments.platform.sqlite import is_other_file, version_in
from deployments.platform.sqlite_copies import Rows
from deployments.responses.store import copies as responses
from deployments.responses.store import registry as responses_registry
from deployments.responses.store import schema as responses_schema
from serve_app.errors import BackupError
from serve_app.model_store import default_cache_dir
from serve_app.settings import AccountSettings, FeedbackSettings, ResponsesSettings, Settings
from serve_app.settings.load import load_file
from serve_app.version import VERSION

SCHEMAS: Mapping[str, int] = {
    "accounts": accounts.SCHEMA,
    "responses": responses.SCHEMA,
    "feedback": feedback.SCHEMA,
    "audit": audit_copies.SCHEMA,
    "cache": kept_cache.SCHEMA,
}
"""The newest of each part that this version reads, and the one that it writes."""

Save = Callable[[Path, str | None], tuple[Path, int] | None]
"""Given a scratch folder and a tenant: the file and its rows, ``None`` if there is nothing."""

Restore = Callable[[Path, str | None], AbstractContextManager[int]]
"""Given a member's file and a tenant: what is to be restored, until it ends; then it is."""


@dataclass(frozen=True)
class Part:
    """``file``: what a restore writes; ``None``: a database elsewhere."""

    name: str
    file: Path | None
    save: Save
    restoring: Restore


@dataclass(frozen=True)
class Kept:
    """``audit``: the folder of the audit log, ``None`` if there is none by the settings."""

    parts: tuple[Part, ...]
    audit: Path | None


def kept_by(config: Path | None) -> Kept:
    """What a config file keeps; without one, what is in the default folders.

    Raises:
        SettingsError, BackupError: the file cannot be used.
    """
    if config is None:
        return Kept(tuple(_parts(AccountSettings(), ResponsesSettings(), FeedbackSettings())), _audit())
    applications = load_file(config)
    if len(applications) != 1:
        raise BackupError(f"{config}: it has {len(applications)} applications; expected one")
    (settings,) = applications
    return _kept_of(settings)


def unusable_files(settings: Settings) -> Iterator[str]:
    """A line for each file of an application that no owner would open: it is no database, or a newer version
    has written it."""
    for part in _kept_of(settings).parts:
        if part.file is None:
            continue
        if is_other_file(part.file):
            yield (
                f"{part.file}: it is not an SQLite database, and {part.name} are kept in this file "
                f"({part.name}.path = {str(part.file.parent)!r}). Nothing was changed: move it away, or name "
                "another folder"
            )
        version = version_in(part.file)
        if version > SCHEMAS[part.name]:
            yield (
                f"{part.file}: a newer version of Promptly wrote it (schema {version}; this is {VERSION}, "
                f"which knows {SCHEMAS[part.name]}). Nothing was changed: install the newer version, or "
                "move the file away and restore a backup of before"
            )


def _kept_of(settings: Settings) -> Kept:
    held = settings.responses if settings.responses.enabled else None
    parts = tuple(_parts(settings.accounts, held, settings.feedback))
    return Kept(parts, None if settings.accounts is None else folder_of(settings.accounts))


def _audit() -> Path:
    return folder_of(AccountSettings())


def _parts(
    account: AccountSettings | None, response: ResponsesSettings | None, given: FeedbackSettings | None
) -> Iterator[Part]:
    if account is not None:
        own = account.store is None
        yield Part(
            "accounts",
            folder_of(account) / ACCOUNTS_FILE if own else None,
            partial(accounts.save_accounts, account),
            lambda saved, tenant: accounts.restoring_accounts(saved, account, tenant),
        )
    if response is not None:
        file = responses_schema.file_in(_folder(response.path, responses_registry.FOLDER))
        yield Part(
            "responses",
            file.path,
            lambda scratch, tenant: _saved(responses.ROWS, file.path, scratch, tenant),
            lambda saved, tenant: responses.ROWS.restoring(saved, file, tenant),
        )
    if given is not None:
        said = feedback_schema.file_in(_folder(given.path, feedback_registry.FOLDER))
        yield Part(
            "feedback",
            said.path,
            lambda scratch, tenant: _saved(feedback.ROWS, said.path, scratch, tenant),
            lambda saved, tenant: feedback.ROWS.restoring(saved, said, tenant),
        )


def _saved(rows: Rows, path: Path, scratch: Path, tenant: str | None) -> tuple[Path, int] | None:
    return rows.save(path, scratch, tenant) if path.exists() else None


def _folder(path: str | None, name: str) -> Path:
    return Path(path).expanduser() if path else default_cache_dir() / name

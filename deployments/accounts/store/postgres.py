"""Accounts in a Postgres database: one connection writes, another reads, each in a thread of its own.

The writing connection holds an advisory lock of the schema, so that two applications never keep one ledger.
The next call replaces a connection that was lost. psycopg is loaded with the store: it is an extra.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from deployments.accounts.store.base import Sql
from deployments.accounts.store.schema import STORE, TABLES, VERSION
from deployments.accounts.store.sql import SqlAccounts
from deployments.accounts.store.usage import USAGE_TABLES
from deployments.platform.secret_environment import with_secrets
from deployments.platform.store_threads import StoreThreads
from serve_app.accounts.keys import AccountsError
from serve_app.errors import SettingsError
from serve_app.settings import AccountSettings

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

CONNECT_S = 5
"""How long a connection may take to be made."""

OPTIONS = {
    "connect_timeout": CONNECT_S,
    # Of a server that no longer answers: the connection ends, and the next call makes another.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "application_name": "promptly",
}
SESSION = (
    "-c statement_timeout=10s -c lock_timeout=2s -c idle_in_transaction_session_timeout=10s "
    "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3"
)
"""A session that has lost its client ends, so that the lock of its owner is free for the next one."""

OWNERS_LOCK = 0x50524F4D
"""The first half of the lock's number; the other half is the schema's."""

TYPES = {"INTEGER": "BIGINT", "REAL": "DOUBLE PRECISION", "BLOB": "BYTEA", " WITHOUT ROWID": ""}
SECRET = re.compile(r"(://[^:/@\s]*:)[^@\s]*@|(password\s*=\s*)\S+", re.IGNORECASE)


class PostgresAccounts(SqlAccounts):
    """The URL is libpq's: ``postgresql://user:password@host/database?sslmode=verify-full``."""

    def __init__(self, url: str, settings: AccountSettings) -> None:
        """Blocks while the database is opened. Raises: AccountsError."""
        self._settings = settings
        self._writing = _Connection(url, is_owner=True)
        self._reading = _Connection(url, is_owner=False)
        self._threads = StoreThreads("accounts")
        try:
            self._name = self._writing.transaction(_prepare)
        except BaseException:
            self._writing.close()
            raise

    async def close(self) -> None:
        await self._threads.close(self._reading.close, self._writing.close)

    async def _write(self, work: Callable[[Sql], T]) -> T:
        return await self._run(self._threads.write(lambda: self._writing.transaction(work)))

    async def _read(self, work: Callable[[Sql], T]) -> T:
        return await self._run(self._threads.read(lambda: self._reading.transaction(work)))

    async def _run(self, done: Awaitable[T]) -> T:
        try:
            return await done
        except RuntimeError as error:  # it was closed
            raise AccountsError(f"accounts in Postgres: {error}") from error


class _Connection:
    """Made at the first call, and again after it was lost."""

    def __init__(self, url: str, *, is_owner: bool) -> None:
        self._url = url
        self._is_owner = is_owner
        self._open: psycopg.Connection[Any] | None = None

    def transaction(self, work: Callable[[Sql], T]) -> T:
        """Raises: AccountsError: nothing was written, or it is not known whether it was."""
        psycopg = _psycopg()
        try:
            connection = self.opened(psycopg)
            with connection.transaction():
                return work(_Statements(connection))
        except psycopg.Error as error:
            if self._open is not None and self._open.broken:
                self.close()
            raise AccountsError(f"accounts in Postgres: {said(error)}") from error

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def opened(self, psycopg: Any) -> psycopg.Connection[Any]:
        if self._open is not None and not self._open.closed:
            return self._open
        given = psycopg.conninfo.conninfo_to_dict(self._url)
        options = f"{SESSION} {given.pop('options', '')}"
        made = psycopg.connect(**given | OPTIONS | {"options": options}, autocommit=True)
        try:
            if self._is_owner:
                _take_lock(made)
        except BaseException:
            made.close()  # nothing is written without the lock
            raise
        self._open = made
        return self._open


@contextmanager
def transact(url: str, *, is_owner: bool) -> Iterator[Sql]:
    """One transaction that sees one moment, however long it takes. Only the owner's is kept in the end, and
    only while no other process owns the schema.

    Raises:
        AccountsError: nothing was written: it cannot be reached, is in use, or of a newer version.
    """
    psycopg = _psycopg()
    connection = _Connection(url, is_owner=is_owner)
    try:
        made = connection.opened(psycopg)
        with made.transaction(force_rollback=not is_owner):
            made.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            made.execute("SET LOCAL statement_timeout=0")
            made.execute("SET LOCAL idle_in_transaction_session_timeout=0")
            statements = _Statements(made)
            _prepare(statements)
            yield statements
    except psycopg.Error as error:
        raise AccountsError(f"accounts in Postgres: {said(error)}") from error
    finally:
        connection.close()


class _Statements:
    """``Sql`` over psycopg."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any:
        return self._connection.execute(_marked(statement), [_storable(value) for value in values])

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> Any:
        cursor = self._connection.cursor()
        cursor.executemany(_marked(statement), [[_storable(value) for value in row] for row in rows])
        return cursor


def _marked(statement: str) -> str:
    return statement.replace("?", "%s")


def _storable(value: Any) -> Any:
    """Postgres has no texts with a zero character."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


def _take_lock(connection: psycopg.Connection[Any]) -> None:
    """It holds as long as this connection. Raises: AccountsError: another one has it."""
    row = connection.execute(
        "SELECT pg_try_advisory_lock(%s, hashtext(current_schema()))", (OWNERS_LOCK,)
    ).fetchone()
    if row is None or not row[0]:
        raise AccountsError(
            "accounts in Postgres: another application keeps its accounts in this schema; "
            "give each a database or a schema (`options=-csearch_path=NAME`) of its own"
        )


def _prepare(db: Sql) -> str:
    """Make what is missing; returns the database's own name. Raises: AccountsError: it is of a newer
    version."""
    tables = TABLES + USAGE_TABLES
    for ours, theirs in TYPES.items():
        tables = tables.replace(ours, theirs)
    for statement in tables.split(";"):
        if statement.strip():
            db.execute(statement)
    known = db.execute("SELECT value FROM meta WHERE name='version'").fetchone()
    if known is not None and int(known[0]) > VERSION:
        raise AccountsError(f"accounts in Postgres: of a newer version ({known[0]}, not {VERSION})")
    put = "INSERT INTO meta VALUES(?, ?) ON CONFLICT(name) DO NOTHING"
    db.execute(put, ("version", str(VERSION)))
    db.execute(put, (STORE, secrets.token_hex(8)))
    name: str = db.execute("SELECT value FROM meta WHERE name=?", (STORE,)).fetchone()[0]
    return name


def said(error: Exception) -> str:
    """The first line of what went wrong, without a password."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return SECRET.sub(lambda found: f"{found[1] or found[2]}***", lines[0])


def url_from(variable: str) -> str:
    """Raises: AccountsError: the variable is not set."""
    try:
        url = with_secrets(os.environ).get(variable, "").strip()
    except SettingsError as error:
        raise AccountsError(str(error)) from error
    if not url:
        raise AccountsError(
            f"accounts.store: the variable {variable} (`url_env`) is not set where the owner runs"
        )
    return url


def _psycopg() -> Any:
    """Raises: AccountsError: it is not installed."""
    try:
        import psycopg
        import psycopg.conninfo
    except ImportError as error:
        raise AccountsError(
            "accounts.store needs the extra `postgres`: pip install 'promptly-serve[postgres]'"
        ) from error
    return psycopg

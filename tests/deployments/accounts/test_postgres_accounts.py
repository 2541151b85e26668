"""Accounts in a Postgres database that goes away, is locked, full, or another application's."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.accounts import accounts_handle, bearer, managed, with_accounts
from support.graph import eventually
from support.postgres import PostgresServer

from deployments.accounts.store.postgres import PostgresAccounts, said, url_from
from deployments.accounts.store.registry import open_store
from serve_app.accounts.keys import AccountsError, Outcome
from serve_app.settings import AccountSettings

URL_ENV = "PROMPTLY_TEST_ACCOUNTS_URL"
SETTINGS = AccountSettings(store={"url_env": URL_ENV})
ENDED = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name='promptly'"


@pytest.fixture
def url(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    made = postgres.new_schema()
    monkeypatch.setenv(URL_ENV, f"{made}\n")
    return made


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresAccounts]:
    store = PostgresAccounts(url, SETTINGS)
    try:
        yield store
    finally:
        await store.close()


async def works(store: PostgresAccounts) -> bool:
    try:
        return (await store.make_key(managed("acme")[1])).outcome is Outcome.KEPT
    except AccountsError:
        return False


async def test_connections_that_are_lost_are_made_anew(url: str, postgres: PostgresServer) -> None:
    async with opened(url) as store:
        kept = managed("acme")[1]
        await store.make_key(kept)
        postgres.run(ENDED)
        assert await eventually(lambda: works(store), within_s=60)

        async def is_there() -> bool:
            try:
                return await store.key(kept.record.id) == kept
            except AccountsError:
                return False

        assert await eventually(is_there, within_s=60)


async def test_a_second_owner_is_refused_until_the_first_has_ended(url: str) -> None:
    async with opened(url) as first:
        kept = managed("acme")[1]
        await first.make_key(kept)
        with pytest.raises(AccountsError, match="another application"):
            PostgresAccounts(url, SETTINGS)
    async with opened(url) as second:
        assert await second.key(kept.record.id) == kept


async def test_locked_tables_refuse_changes_and_still_answer_questions(url: str) -> None:
    import psycopg

    async with opened(url) as store:
        kept = managed("acme")[1]
        await store.make_key(kept)
        with psycopg.connect(url) as locking:
            locking.execute("LOCK TABLE keys IN EXCLUSIVE MODE")
            with pytest.raises(AccountsError, match="lock timeout"):
                await store.make_key(managed("acme")[1])
            assert await store.key(kept.record.id) == kept
        assert await works(store)


async def test_a_full_disk_of_the_server_refuses_changes_with_its_reason(url: str) -> None:
    import psycopg

    full = (
        "CREATE FUNCTION full_disk() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION "
        "'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$ LANGUAGE plpgsql",
        "CREATE TRIGGER full_disk BEFORE INSERT ON keys EXECUTE FUNCTION full_disk()",
    )
    async with opened(url) as store:
        kept = managed("acme")[1]
        await store.make_key(kept)
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in full:
                connection.execute(statement)
        with pytest.raises(AccountsError, match="No space left"):
            await store.make_key(managed("acme")[1])
        assert await store.key(kept.record.id) == kept


async def test_a_database_of_a_newer_version_is_left_alone(url: str) -> None:
    import psycopg

    async with opened(url):
        pass
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE meta SET value='99' WHERE name='version'")
    with pytest.raises(AccountsError, match="newer version"):
        PostgresAccounts(url, SETTINGS)


async def test_known_keys_work_while_the_server_is_away_and_changes_are_refused(
    tmp_path: Path, url: str, postgres: PostgresServer
) -> None:
    async with (
        accounts_handle(tmp_path, store={"url_env": URL_ENV}) as handle,
        with_accounts(handle, accounts={"call_timeout_s": 0.5}) as running,
    ):
        key, kept = managed("acme")
        await handle.target.make_key(kept)

        async def knows() -> bool:
            return (await running.post("hi", bearer(key))).status == 200

        assert await eventually(knows, within_s=30)
        postgres.stop()
        try:
            assert (await running.post("again", bearer(key))).status == 200
            async with running.http.post("/admin/keys", json={"tenant": "acme"}) as refused:
                assert refused.status == 503
                assert (await refused.json())["error"]["code"] == "accounts_unavailable"
        finally:
            postgres.start()

        async def made() -> bool:
            async with running.http.post("/admin/keys", json={"tenant": "acme"}) as answer:
                return answer.status == 201

        assert await eventually(made, within_s=60)
        assert (await running.post("after", bearer(key))).status == 200


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_ENV, raising=False)
    with pytest.raises(AccountsError, match=rf"{URL_ENV}.*url_env"):
        url_from(URL_ENV)


def test_a_server_that_is_not_there_is_said_without_the_password(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_ENV, "postgresql://user:hunter22@127.0.0.1:1/accounts")
    with pytest.raises(AccountsError, match=re.escape("127.0.0.1")) as caught:
        open_store(SETTINGS)
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize(
    "message", ["bad url postgresql://u:hunter22@h/d", "password=hunter22 host=h", "Password = hunter22"]
)
def test_passwords_in_messages_of_the_server_are_taken_out(message: str) -> None:
    assert "hunter22" not in said(ValueError(message))

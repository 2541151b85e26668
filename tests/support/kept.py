"""Places where an application keeps what it keeps, filled, and what `promptly backup` does with them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from deployments.accounts.audit_log import AuditLog
from deployments.accounts.store.base import AccountStore
from deployments.accounts.store.registry import open_store as open_accounts
from deployments.cli.main import main
from deployments.feedback.store.sqlite import SqliteFeedback
from deployments.responses.store.sqlite import SqliteStore
from serve_app.accounts.exchange import Report
from serve_app.accounts.keys import KeyQuery, State
from serve_app.accounts.refused import RefusedUser
from serve_app.audit import AuditEvent
from serve_app.feedback.values import FeedbackQuery, Said
from serve_app.quotas.limits import Limit
from serve_app.settings import AccountSettings, FeedbackSettings, ResponsesSettings
from serve_app.stored_responses.values import ChainBounds, Conversation, NewItem, Record
from serve_app.usage import Counts, UsageQuery, UsageRow
from support.accounts import managed
from support.feedback import a_request

NOW = 1_790_000_000.0
ROOMY = ChainBounds(1000, 1 << 20, 1 << 20)


OLDEST = Path(__file__).with_name("oldest.promptly")
"""What the first version with ``promptly backup`` (commit 7d332123) made of a place that its own
``Place.fill`` had filled, and of a cache with the ``PAIRS`` of its ``test_gateway_entries.py``, which live
for a century. A newer version must not make it again."""

OLDEST_UPSTREAM = "http://127.0.0.1:42205/v1"
"""The upstream of that cache's gateway."""


class Place:
    """Where one application keeps what it keeps."""

    def __init__(self, folder: Path, url_env: str | None = None) -> None:
        self.folder = folder
        store = {} if url_env is None else {"store": {"url_env": url_env}}
        self.accounts = AccountSettings(path=str(folder / "accounts"), min_free_disk_bytes=0, **store)
        self.config = folder / "config.yaml"
        folder.mkdir()
        args = {
            "models": [{"id": "m", "upstreams": [{"name": "u", "url": "http://127.0.0.1:9/v1"}]}],
            "auth": {"accounts": True},
            "accounts": {"path": str(folder / "accounts"), **store},
            "responses": {"path": str(folder / "responses")},
            "feedback": {"path": str(folder / "feedback")},
        }
        application = {"name": "promptly", "import_path": "serve_app.app:build", "args": args}
        self.config.write_text(yaml.safe_dump({"applications": [application]}))

    @asynccontextmanager
    async def owner_of_accounts(self) -> AsyncIterator[AccountStore]:
        store = open_accounts(self.accounts)
        try:
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def owner_of_responses(self) -> AsyncIterator[SqliteStore]:
        store = SqliteStore(self.folder / "responses", ResponsesSettings(min_free_disk_bytes=0), NOW)
        try:
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def owner_of_feedback(self) -> AsyncIterator[SqliteFeedback]:
        store = SqliteFeedback(self.folder / "feedback", FeedbackSettings(min_free_disk_bytes=0), None)
        try:
            yield store
        finally:
            await store.close()

    async def fill(self) -> None:
        """Two tenants, `acme` and `b`, with one of everything."""
        async with self.owner_of_accounts() as accounts:
            for tenant in ("acme", "b"):
                await accounts.make_key(managed(tenant, NOW)[1])
                await accounts.put_limit(Limit(f"tenant:{tenant}", tokens_per_day=9))
                await accounts.refuse_user(RefusedUser(tenant=tenant, user="eve", at=NOW))
            counts = Counts(requests=2, tokens_in=7, cost=0.5)
            rows = tuple(UsageRow("2026-09-21", name, "k", "", "m", counts) for name in ("acme", "b"))
            await accounts.exchange(Report(gateway="g", seq=1, usage=rows), NOW)
        async with self.owner_of_responses() as responses:
            for tenant in ("acme", "b"):
                await responses.put(response(f"resp_{tenant}", tenant), [], NOW)
                await responses.put(response(f"next_{tenant}", tenant, previous=f"resp_{tenant}"), [], NOW)
                items = [NewItem(f"i{number}", b'"%d"' % number) for number in range(3)]
                await responses.create_conversation(
                    tenant, Conversation(id=f"conv_{tenant}", created=int(NOW), metadata=b"{}"), items, NOW
                )
        async with self.owner_of_feedback() as feedback:
            for number, tenant in enumerate(("acme", "b")):
                await feedback.report([a_request(number, tenant=tenant)])
                await feedback.say(tenant, f"r{number}", "user:ann", Said(score=0.0, text="wrong"), NOW)
        log = AuditLog(self.folder / "accounts", 1 << 20, 3, NOW)
        log.write(AuditEvent(actor="ann", action="keys.create", target="x", outcome="done", at=NOW))
        log.close()

    async def found(self) -> dict[str, Any]:
        """What is there, by what it is."""
        async with self.owner_of_accounts() as accounts:
            keys = (await accounts.keys(KeyQuery(state=State.ANY))).keys
            limits, _ = await accounts.limits()
            refused = (await accounts.refused_users()).users
            usage = (await accounts.usage(UsageQuery(by=("tenant",)))).groups
        async with self.owner_of_responses() as responses:
            said = {}
            for name in ("next_acme", "next_b", "conv_acme", "conv_b"):
                tenant = name.split("_")[1]
                asked = responses.history if name.startswith("next") else responses.conversation_items
                history = await asked(tenant, name, ROOMY, NOW)
                said[name] = b"".join(history.parts)
            entries = (await responses.stats()).entries
        async with self.owner_of_feedback() as feedback:
            given = (await feedback.page(FeedbackQuery())).feedback
        return {
            "keys": sorted((key.record.id, key.version, key.revoked_at) for key in keys),
            "refused": [(each.tenant, each.user) for each in refused],
            "limits": sorted((limit.scope, limit.tokens_per_day) for limit in limits),
            "usage": sorted((group.of, group.counts.requests, group.counts.cost) for group in usage),
            "responses": (said, entries),
            "feedback": sorted((each.request.tenant, each.author, each.said.text) for each in given),
        }


def response(name: str, tenant: str, previous: str | None = None) -> Record:
    return Record(
        id=name,
        tenant=tenant,
        status="completed",
        response=json.dumps({"id": name}).encode(),
        input=json.dumps([f"asked {name}"]).encode(),
        output=json.dumps([f"said {name}"]).encode(),
        previous=previous,
    )


def new_places(folder: Path, url_env: str | None = None) -> Iterator[Place]:
    """One after the other, each of its own."""
    return (Place(folder / f"place{number}", url_env) for number in count())


def backup(place: Place, archive: Path, *more: str) -> int:
    return main(["backup", str(archive), "--config", str(place.config), *more])


def restore(place: Place, archive: Path, *more: str) -> int:
    return main(["restore", str(archive), "--config", str(place.config), *more])

"""A request is in several scopes, and each must allow it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.accounts import accounts_handle, bearer, managed, with_accounts
from support.gateway import MODEL, Running, SimSettings
from support.graph import eventually
from test_gateway_limits import knows, limited, used_of

from serve_app.quotas.limits import Limit

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
PRICES = {"model": {"cost_per_million_tokens": {"input": 1000.0, "output": 10_000.0}}}
"""So that a test's few tokens cost whole units."""

Keys = dict[str, dict[str, str]]
"""The headers of each key."""


@asynccontextmanager
async def three_keys(folder: Path, *limits: Limit, **args: Any) -> AsyncIterator[tuple[Running, Keys]]:
    """Two keys of `acme`, of the users `ann` and `bob`, and one of another tenant. A limit's `KEY` is that of
    ann."""
    async with accounts_handle(folder) as handle:
        keys: Keys = {}
        names = {}
        for name, tenant in (("ann", "acme"), ("bob", "acme"), ("stranger", "other")):
            key, kept = managed(tenant, user=name)
            await handle.target.make_key(kept)
            keys[name], names[name] = bearer(key), kept.record.id
        for limit in limits:
            given = {field: getattr(limit, field) for field in Limit.__struct_fields__ if field != "scope"}
            await handle.target.set_limit(Limit(limit.scope.replace("KEY", names["ann"]), **given))
        async with with_accounts(handle, **args) as running:
            assert await eventually(lambda: knows(running, keys["stranger"]), within_s=10)
            yield running, keys


@pytest.mark.parametrize(
    ("scope", "refused"),
    [
        ("key:KEY", {"ann"}),
        ("user:acme/ann", {"ann"}),
        ("tenant:acme", {"ann", "bob"}),
        (f"use:acme/{MODEL}", {"ann", "bob"}),
        (f"model:{MODEL}", {"ann", "bob", "stranger"}),
    ],
)
async def test_a_limit_binds_all_that_are_in_its_scope_and_nobody_else(
    tmp_path: Path, scope: str, refused: set[str]
) -> None:
    async with three_keys(tmp_path, Limit(scope, tokens_per_day=100)) as (running, keys):
        first = await running.post("hi", keys["ann"], max_tokens=90)
        assert first.status == 200, first.body
        asked = {who: await running.post("hi", key, max_tokens=99) for who, key in keys.items()}
        assert {who for who, answer in asked.items() if answer.status == 429} == refused
        for who in refused:
            assert asked[who].error["code"] == "insufficient_quota"


@pytest.mark.parametrize("narrow", ["tenant:acme", f"use:acme/{MODEL}", f"model:{MODEL}"])
async def test_a_parent_s_limit_binds_below_a_wide_limit_of_a_key(tmp_path: Path, narrow: str) -> None:
    wide = Limit("key:KEY", requests_per_minute=1000, tokens_per_day=10**6)
    async with three_keys(tmp_path, wide, Limit(narrow, requests_per_minute=2)) as (running, keys):
        statuses = [(await running.post(f"{n}", keys[who])).status for n, who in enumerate(("ann", "bob"))]
        assert statuses == [200, 200]
        refused = await running.post("third", keys["ann"])
        assert refused.status == 429
        assert "requests_per_minute is limited to 2" in refused.error["message"]


async def test_a_month_s_tokens_bind_where_the_day_s_have_room(tmp_path: Path) -> None:
    limit = Limit("tenant:acme", tokens_per_day=10**6, tokens_per_month=100)
    async with three_keys(tmp_path, limit) as (running, keys):
        refused = await running.post("hi", keys["ann"], max_tokens=101)
        assert refused.status == 429
        assert "tokens_per_month is limited to 100" in refused.error["message"]


async def test_money_is_refused_once_it_is_spent(tmp_path: Path) -> None:
    """A token of an answer costs a hundredth: 60 tokens are 0.6, and their prompt a little."""
    engine = SimSettings(itl_ms=0, tokens=60)
    async with limited(tmp_path, Limit("tenant:acme", money_per_day=1.0), engine=engine, **PRICES) as (
        running,
        handle,
        key,
    ):
        assert (await running.post("hi", key, max_tokens=60)).status == 200

        async def paid() -> bool:
            return 600_000_000 <= await used_of(handle, "money_per_day") < 700_000_000

        assert await eventually(paid, within_s=10)
        refused = await running.post("hi again", key, max_tokens=60)
        assert (refused.status, refused.error["code"]) == (429, "insufficient_quota")
        assert "money_per_day is limited to 1" in refused.error["message"]
        assert int(refused.headers["retry-after"]) <= 86_400
        assert (await running.post("a little", key, max_tokens=20)).status == 200


def events(body: bytes) -> list[dict[str, Any]]:
    lines = [line[6:] for line in body.splitlines() if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


async def test_an_answer_whose_budget_ends_says_so_as_its_api_has_it(tmp_path: Path) -> None:
    endless = SimSettings(itl_ms=2, tokens=2500)
    asked: dict[str, dict[str, Any]] = {
        MESSAGES: {"messages": [{"role": "user", "content": "tell me all"}], "max_tokens": 3000},
        RESPONSES: {"input": "tell me all", "store": False},
    }
    async with limited(tmp_path, Limit("tenant:acme", tokens_per_day=1500), engine=endless) as (
        running,
        _,
        key,
    ):
        whole = await running.send({"model": MODEL, **asked[MESSAGES]}, MESSAGES, key)
        assert whole.status == 429
        assert (whole.json["type"], whole.json["error"]["type"]) == ("error", "rate_limit_error")
        cut = await running.send({"model": MODEL, "stream": True, **asked[RESPONSES]}, RESPONSES, key)
        assert cut.status == 200, cut.body
        last = events(cut.body)[-1]
        assert last["type"] in {"error", "response.failed"}
        assert "insufficient_quota" in json.dumps(last)
        assert last["sequence_number"] == len(events(cut.body)) - 1
        spent = await running.send({"model": MODEL, **asked[RESPONSES]}, RESPONSES, key)
        assert (spent.status, spent.error["code"]) == (429, "insufficient_quota")

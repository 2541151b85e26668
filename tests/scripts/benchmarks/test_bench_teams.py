"""What the benchmark of keys and limits over HTTP reckons from what it saw."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from benchmarks.layer import MODEL as BENCH_MODEL
from benchmarks.load import Sample
from benchmarks.peers import Endpoint, PeerError, litellm_proxy
from benchmarks.table import Figure
from benchmarks.team_keys import (
    LITELLM,
    LITELLM_KEYS,
    MANY,
    ONE,
    WITHOUT,
    added,
    in_turns,
    polled,
    stored,
    worked_on_s,
)
from benchmarks.team_kills import Outcome, counted, figures_of
from benchmarks.team_limits import most_in_a_minute, share, spent
from benchmarks.team_load import chat, limit, new_key, used, with_keys
from support.accounts import accounts_handle, with_accounts
from support.gateway import SimSettings
from support.graph import ADMIN_TOKEN, eventually

from deployments.accounts.store.sqlite import SqliteAccounts
from serve_app.accounts.exchange import Report
from serve_app.request.admin_token import TOKEN_VARIABLE
from serve_app.request.auth import KeyRing, ManagedKeys
from serve_app.settings import AccountSettings, parse_args


def sample(status: int, at: float, body: bytes = b"", tokens: int = 0) -> Sample:
    return Sample(status, at, at + 0.1, body=body, tokens=tokens)


def by_name(figures: list[Figure]) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures}


def test_an_answer_used_what_it_says_last_and_a_cut_one_what_came_of_it() -> None:
    event = b'data: {"usage":{"prompt_tokens":%d,"total_tokens":9,"completion_tokens":%d}}\n\n'
    assert used(sample(200, 0.0, event % (3, 1) + event % (3, 6))) == 9
    assert used(sample(200, 0.0, b"data: {}", tokens=4)) == 4


@pytest.mark.parametrize(
    ("taken", "most"),
    [([], 0), ([(0.0, 5), (59.9, 5), (60.0, 7)], 12), ([(61.0, 1), (0.0, 1), (30.0, 1), (90.0, 1)], 2)],
)
def test_the_most_in_a_minute_is_that_of_any_60_seconds(taken: list[tuple[float, int]], most: int) -> None:
    assert most_in_a_minute(taken) == most


def test_a_share_is_of_all_minutes_that_have_begun() -> None:
    taken = [(0.5, 100), (60.5, 100), (120.5, 98), (179.0, 1000)]
    assert share(taken, 100, 175.0) == pytest.approx(298 / 300)
    assert share([(0.5, 90)], 100, 15.0) == pytest.approx(0.9)


def test_a_key_works_on_until_the_last_request_that_was_let_in() -> None:
    seen = [sample(200, 0.1), sample(200, 1.4), sample(401, 1.2), sample(401, 1.5), sample(0, 1.6)]
    assert worked_on_s(seen, 1.0) == pytest.approx(0.4)
    assert worked_on_s(seen, 2.0) == 0.0
    for nothing in ([sample(401, 0.1)], [sample(200, 0.1)], [*seen, sample(200, 2.0)]):
        with pytest.raises(RuntimeError):
            worked_on_s(nothing, 1.0)


def test_what_keys_add_is_the_difference_of_medians_and_a_missing_peer_has_no_figure() -> None:
    run = {WITHOUT: [0.010, 0.011, 0.012], ONE: [0.0112], MANY: [0.012], LITELLM: [0.030]}
    found = by_name(added([run]))
    assert found[f"added TTFT p50, {ONE}"].values == pytest.approx((0.2,))
    assert found[f"added TTFT p50, {MANY}"].target is not None
    assert f"added TTFT p50, {LITELLM_KEYS}" not in found
    beside = by_name(added([{**run, LITELLM_KEYS: [0.040]}]))[f"added TTFT p50, {LITELLM_KEYS}"]
    assert (beside.values, beside.target) == (pytest.approx((10.0,)), None)


def test_lost_usage_is_told_in_seconds_and_a_budget_in_leases() -> None:
    one = Outcome(delivered=1000, counted=900, budget=900, seconds=10.0, broken=3)
    assert (one.lost_s, one.over_leases) == (pytest.approx(1.0), pytest.approx(2.0))
    kept = Outcome(delivered=1000, counted=1010, budget=1000, seconds=10.0, broken=0)
    assert (kept.lost_s, kept.over_leases) == (0.0, 0.0)
    aimed = [figure for figure in figures_of([kept], 10) if figure.target is not None]
    assert len(aimed) == 2
    assert all(figure.met for figure in aimed)


async def test_keys_that_are_stored_before_the_start_are_found_by_their_secrets(tmp_path: Path) -> None:
    secrets = await stored(tmp_path, 3)
    store = SqliteAccounts(tmp_path / "accounts", AccountSettings(min_free_disk_bytes=0))
    try:
        changes = await store.exchange(Report(gateway="g", seq=1), 1000.0)
    finally:
        await store.close()
    known = ManagedKeys()
    known.replace({record.id: record for record in changes.keys})
    ring = KeyRing((), managed=known)
    assert [ring.identify(f"Bearer {each}").user for each in secrets] == ["user-0", "user-1", "user-2"]


def test_the_settings_of_an_application_with_keys_are_valid(tmp_path: Path) -> None:
    settings = parse_args(with_keys("http://127.0.0.1:1", tmp_path, 4), source="test")
    assert settings.accounts is not None
    assert settings.gateway.replicas == 4
    assert chat("pk", 1, 8).headers["authorization"] == "Bearer pk"


def test_without_a_database_of_its_own_litellm_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(litellm_proxy.DATABASE, raising=False)
    with (
        pytest.raises(PeerError, match="Postgres"),
        litellm_proxy.litellm_with_keys("http://127.0.0.1:1", "m"),
    ):
        raise AssertionError


async def test_streams_use_up_a_budget_and_a_revoked_key_ends_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, ADMIN_TOKEN)
    known_as = {"aliases": [BENCH_MODEL]}
    engine = SimSettings(itl_ms=0, tokens=8)
    async with (
        accounts_handle(tmp_path) as handle,
        with_accounts(handle, engine, model=known_as) as running,
    ):
        endpoint = Endpoint("gateway", running.url, BENCH_MODEL, ())
        other = await asyncio.to_thread(new_key, endpoint, "other")
        times = await in_turns({ONE: (endpoint, [other["key"]])}, 3, random.Random(1))
        assert len(times[ONE]) == 3
        made = await asyncio.to_thread(new_key, endpoint, "acme")
        await asyncio.to_thread(limit, endpoint, "tenant:acme", tokens_per_day=1000)
        samples = await spent(endpoint, made["key"], streams=8, refused_s=0.5)
        given = sum(used(each) for each in samples if not each.refused)
        assert 900 < given <= 1000

        async def all_is_counted() -> bool:
            return await asyncio.to_thread(counted, endpoint, "acme") == given

        assert await eventually(all_is_counted, within_s=30)
        seen, revoked_at = await polled(endpoint, made["id"], made["key"])
        assert worked_on_s(seen, revoked_at) <= 1.0

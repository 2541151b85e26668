"""Parts of `teams`: what keys, limits and usage add to a request, and how soon a revoked key is refused."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

from benchmarks.engines import scripted_engine
from benchmarks.layer import MODEL, settings_for
from benchmarks.load import Client, Request, Sample, percentile, run_fast
from benchmarks.options import Options
from benchmarks.peers import Endpoint, PeerError, litellm, promptly
from benchmarks.peers.litellm_proxy import litellm_with_keys
from benchmarks.peers.processes import scratch_folder
from benchmarks.table import Figure, at_most
from benchmarks.team_load import administer, application, chat, new_key, with_keys
from deployments.accounts.store.sqlite import SqliteAccounts
from serve_app.accounts.keys import ManagedKey
from serve_app.request.auth import make_key
from serve_app.settings import AccountSettings

KEYS, QUICK_KEYS, PER_TENANT, BATCH = 10_000, 200, 100, 500
TURNS, QUICK_TURNS, WARM = 600, 40, 20
"""Requests to each endpoint. Endpoints are asked in turns, so that other work on the machine affects all."""

TOKENS, ITL_MS = 5, 5.0
WIDE = {
    "key": {"requests_per_minute": 10**6, "tokens_per_day": 10**9, "parallel_requests": 1000},
    "user": {"money_per_month": 10**6},
    "tenant": {"tokens_per_minute": 10**9, "tokens_per_month": 10**12},
    "model": {"tokens_per_minute": 10**9},
    "use": {"requests_per_minute": 10**6},
}
"""Limits of every kind, none of which is reached."""

WITHOUT, ONE, MANY = "without keys", "one key", f"each time another key of {KEYS:,}"
LITELLM, LITELLM_KEYS = "LiteLLM without keys", "LiteLLM, one key of its database"

GATEWAYS, ROUNDS, QUICK_ROUNDS = 4, 10, 2
ASKERS, BEFORE_S, AFTER_S, PAUSE_S = 16, 0.5, 2.5, 0.01


def cost(options: Options) -> tuple[list[Figure], dict[str, str]]:
    """The TTFT of single requests with and without keys and limits, in turns; and why a peer was not
    measured."""
    runs: list[dict[str, list[float]]] = []
    notes: dict[str, str] = {}
    for repeat in range(options.repeats):
        found, notes = _measured(options, repeat)
        runs.append(found)
    return added(runs), notes


def added(runs: Sequence[Mapping[str, Sequence[float]]]) -> list[Figure]:
    """``runs`` has the seconds to the first token by series, for each repeat."""
    p50 = [{name: 1000 * percentile(times, 50) for name, times in run.items()} for run in runs]
    figures = []
    for name, base in ((ONE, WITHOUT), (MANY, WITHOUT), (LITELLM_KEYS, LITELLM)):
        values = tuple(run[name] - run[base] for run in p50 if name in run)
        target = at_most(0.2) if base == WITHOUT else None
        figures += [Figure(f"added TTFT p50, {name}", "ms", values, target)] if values else []
    for name in p50[0]:
        figures.append(Figure("TTFT p50", "ms", tuple(run[name] for run in p50), series=name))
    return figures


def _measured(options: Options, seed: int) -> tuple[dict[str, list[float]], dict[str, str]]:
    count = QUICK_KEYS if options.quick else KEYS
    turns = QUICK_TURNS if options.quick else TURNS
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        engine = stack.enter_context(scripted_engine(MODEL, TOKENS, ITL_MS))
        keys = asyncio.run(stored(folder, count))
        bare = stack.enter_context(promptly(settings_for(engine.url)))
        ours = stack.enter_context(promptly(with_keys(engine.url, folder, limits=WIDE)))
        ends: dict[str, tuple[Endpoint, list[str]]] = {
            WITHOUT: (bare, [""]),
            ONE: (ours, keys[:1]),
            MANY: (ours, keys),
        }
        notes = _peers(options, stack, engine, ends)
        time.sleep(3.0)  # by then all gateways know all keys
        return run_fast(in_turns(ends, turns, random.Random(seed))), notes


def _peers(
    options: Options, stack: ExitStack, engine: Endpoint, ends: dict[str, tuple[Endpoint, list[str]]]
) -> dict[str, str]:
    """Add LiteLLM; returns why it was not added, if it was not."""
    if not options.litellm:
        return {"LiteLLM": "not measured (--litellm)"}
    try:
        ends[LITELLM] = (stack.enter_context(litellm(engine.url, MODEL)), [""])
        with_database, key = stack.enter_context(litellm_with_keys(engine.url, MODEL))
        ends[LITELLM_KEYS] = (with_database, [key])
    except PeerError as error:
        return {"LiteLLM with keys": f"not measured: {str(error)[-500:]}"}
    return {}


async def stored(folder: Path, count: int) -> list[str]:
    """Write ``count`` keys to the file of an application that does not run yet; returns their secrets."""
    secrets, now = [], time.time()
    settings = AccountSettings(min_free_disk_bytes=0)
    store = SqliteAccounts(folder / "accounts", settings)
    try:
        kept = []
        for number in range(count):
            key, record = make_key(f"team-{number // PER_TENANT}", user=f"user-{number}")
            secrets.append(key)
            kept.append(ManagedKey(record=record, created_at=now, changed_at=now))
        for start in range(0, count, BATCH):
            await asyncio.gather(*(store.make_key(each) for each in kept[start : start + BATCH]))
    finally:
        await store.close()
    return secrets


async def in_turns(
    ends: Mapping[str, tuple[Endpoint, list[str]]], turns: int, chance: random.Random
) -> dict[str, list[float]]:
    """Seconds to the first token, by series. Raises: PeerError: a request failed."""
    times: dict[str, list[float]] = {name: [] for name in ends}
    async with AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(Client(end.url, limit_s=600.0))
            for name, (end, _) in ends.items()
        }
        for turn in range(WARM + turns):
            for name in chance.sample(list(ends), len(ends)):
                sample = await clients[name].send(chat(chance.choice(ends[name][1]), turn, TOKENS))
                if not sample.ok or sample.ttft_s is None:
                    raise PeerError(f"{name}: {sample.status} {sample.error} {(sample.body or b'')[:300]!r}")
                if turn >= WARM:
                    times[name].append(sample.ttft_s)
    return times


def revoked(options: Options) -> list[Figure]:
    """How long a key still works at any gateway after its revocation was answered."""
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    slowest = []
    for _ in range(options.repeats):
        with application(GATEWAYS, tokens=TOKENS, itl_ms=ITL_MS) as endpoint:
            slowest.append(max(_until_refused(endpoint) for _ in range(rounds)))
    name = f"a revoked key works on, {GATEWAYS} gateways, the longest of {rounds}"
    return [Figure(name, "s", tuple(slowest), at_most(1))]


def _until_refused(endpoint: Endpoint) -> float:
    key = new_key(endpoint, "acme")
    samples, revoked_at = run_fast(polled(endpoint, key["id"], key["key"]))
    return worked_on_s(samples, revoked_at)


async def polled(endpoint: Endpoint, key_id: str, key: str) -> tuple[list[Sample], float]:
    samples: list[Sample] = []
    asked_for = Request("/v1/models", headers={"authorization": f"Bearer {key}", "connection": "close"})
    async with Client(endpoint.url) as client:
        ends_at = client.now() + BEFORE_S + AFTER_S

        async def poll() -> None:
            while client.now() < ends_at:
                samples.append(await client.send(asked_for))
                await asyncio.sleep(PAUSE_S)

        polling = [asyncio.ensure_future(poll()) for _ in range(ASKERS)]
        await asyncio.sleep(BEFORE_S)
        await asyncio.to_thread(administer, endpoint, f"/admin/keys/{key_id}", None, "DELETE")
        revoked_at = client.now()
        await asyncio.gather(*polling)
    return samples, revoked_at


def worked_on_s(samples: Sequence[Sample], revoked_at: float) -> float:
    """Seconds from the revocation's answer to the last request that was still accepted.

    Raises:
        RuntimeError: the key never worked, or still worked in the end.
    """
    let_in = [each.sent_at for each in samples if each.status == 200]
    refused = [each.sent_at for each in samples if each.status == 401]
    if not let_in or not refused or max(let_in) > max(refused):
        raise RuntimeError("the key never worked, or was not refused")
    return max(0.0, max(let_in) - revoked_at)

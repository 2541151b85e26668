"""Keys that are made at run time: what it costs to find one key among many, and how long a gateway's exchange
with the accounts' owner takes.

A change is in force after the rest of a period (a quarter of a second) and one exchange.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.load import percentile
from benchmarks.options import Options
from benchmarks.table import Figure, at_most, write_report
from deployments.accounts.store.sqlite import SqliteAccounts
from serve_app.accounts.exchange import Changes, Report
from serve_app.accounts.keys import ManagedKey, revoked
from serve_app.request.auth import KeyRing, ManagedKeys, make_key
from serve_app.settings import AccountSettings

KEYS, STORED, QUICK_KEYS, FEW = 100_000, 5000, 300, 100
TIMES, QUICK_TIMES, EXCHANGES = 20_000, 100, 50
BATCH = 500


def ring_of(count: int) -> tuple[KeyRing, str]:
    """A ring with ``count`` keys that are made at run time, and one of the keys."""
    known = ManagedKeys()
    key, record = make_key("acme")
    others = (msgspec.structs.replace(record, id=f"{number:012x}") for number in range(count - 1))
    known.replace({each.id: each for each in (record, *others)})
    return KeyRing((), managed=known), key


def look_up_us(count: int, times: int) -> float:
    """Microseconds to identify a known key, p50."""
    ring, key = ring_of(count)
    header, found = f"Bearer {key}", []
    for _ in range(times):
        began = time.perf_counter_ns()
        ring.identify(header)
        found.append((time.perf_counter_ns() - began) / 1000)
    return percentile(found, 50)


@dataclass(frozen=True)
class Exchanges:
    """Seconds until a starting gateway has all keys; milliseconds of an exchange without changes (p50), and
    of an exchange with a change (the slowest)."""

    all_s: float
    nothing_ms: float
    change_ms: float


async def exchanges(count: int, times: int) -> Exchanges:
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteAccounts(Path(folder), AccountSettings(min_free_disk_bytes=0, max_keys=count))
        try:
            made = await _filled(store, count)
            known = ManagedKeys()
            began = time.perf_counter()
            last = await _ask(store, None, known)
            while last.more:
                last = await _ask(store, last, known)
            all_s = time.perf_counter() - began
            nothing = [await _took_ms(store, last, known) for _ in range(times)]
            changed = []
            for key in made[:times]:
                await store.change_key(revoked(key, by="", now=time.time()))
                changed.append(await _took_ms(store, last, known))
                if known.get(key.record.id) is not None:
                    raise RuntimeError("a revoked key is still known")
            return Exchanges(all_s, percentile(nothing, 50), max(changed))
        finally:
            await store.close()


async def _filled(store: SqliteAccounts, count: int) -> list[ManagedKey]:
    _, record = make_key("acme")
    now = time.time()
    records = [msgspec.structs.replace(record, id=f"{number:012x}") for number in range(count)]
    keys = [ManagedKey(record=each, created_at=now, changed_at=now) for each in records]
    for start in range(0, count, BATCH):
        await asyncio.gather(*(store.make_key(key) for key in keys[start : start + BATCH]))
    return keys


async def _took_ms(store: SqliteAccounts, last: Changes, known: ManagedKeys) -> float:
    began = time.perf_counter()
    await _ask(store, last, known)
    return (time.perf_counter() - began) * 1000


async def _ask(store: SqliteAccounts, last: Changes | None, known: ManagedKeys) -> Changes:
    store_name, version = ("", 0) if last is None else (last.store, last.keys_version)
    report = Report(gateway="benchmark", seq=1, store=store_name, keys_version=version)
    found = await store.exchange(report, time.time())
    known.change(found.keys, found.revoked)
    return found


def run(options: Options) -> list[Figure]:
    keys = QUICK_KEYS if options.quick else KEYS
    stored = QUICK_KEYS if options.quick else STORED
    times = QUICK_TIMES if options.quick else TIMES
    few, many, told = [], [], []
    for _ in range(options.repeats):
        few.append(look_up_us(FEW, times))
        many.append(look_up_us(keys, times))
        told.append(asyncio.run(exchanges(stored, min(times, stored, EXCHANGES))))
    figures = [
        Figure(f"whose key is it, of {FEW}", "µs", tuple(few)),
        Figure(f"whose key is it, of {keys:,}", "µs", tuple(many), at_most(20)),
        Figure(f"{stored:,} keys to a gateway that starts", "s", tuple(each.all_s for each in told)),
        Figure("an exchange without news, p50", "ms", tuple(each.nothing_ms for each in told)),
        Figure("one with a change, the slowest", "ms", tuple(each.change_ms for each in told), at_most(750)),
    ]
    write_report(options.out, "keys", figures, about={"keys in the file": f"{stored:,}"})
    return figures

"""Two tenants, one with a stopwatch: the short form of the benchmark of the same name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.stopwatch import OTHER, PROBER, Finding, Probe, findings, probes
from local_cache import local_cache
from support.gateway import MODEL, Running, SimSettings, gateway

from deployments.embedder.deployment import Embedder
from serve_app.embedding import EmbedderInfo, Embedding
from serve_app.model_store import ModelStore
from serve_app.settings import EmbedderSettings

SIM = SimSettings(itl_ms=1.0, tokens=3, prefill_ms_per_1k=8.0)
SLOW = replace(SIM, prefill_ms_per_1k=60.0)
"""What it makes of a prompt stands out on the busiest machine."""

SAMPLES = 14
MORE_SAMPLES = 60
ALL = probes(MODEL, "words")


class Forgetful:
    """An embedder that does not mind whose texts it remembers, as it was."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    async def embed(self, texts: list[str], tag: str = "") -> list[Embedding]:
        return await self._embedder.embed(texts)

    async def describe(self) -> EmbedderInfo:
        return await self._embedder.describe()


@pytest.fixture(scope="module")
def embedder(prepared_models: ModelStore) -> Embedder:
    source = prepared_models.resolve("sentence-transformers/all-MiniLM-L6-v2")
    return Embedder(EmbedderSettings(id="words", source=source, threads=1))


@asynccontextmanager
async def two_tenants(
    folder: Path, embeds: Any, engine: SimSettings = SIM, **settings: Any
) -> AsyncIterator[Running]:
    async with (
        local_cache(folder, embeds) as cache,
        gateway(engine, handles=cache.handles, tenants=[OTHER, PROBER], **cache.args, **settings) as running,
    ):
        yield running


async def telling(running: Running, chosen: Sequence[Probe], samples: int = SAMPLES) -> list[Finding]:
    """The probes that tell what the other tenant asked. One that seems to is measured once more, with more
    samples: a leak is there every time, chance (1 % of all runs) is not."""
    found = await findings(running.url, running.keys, chosen, samples)
    suspects = {finding.probe for finding in found if finding.tells}
    if not suspects:
        return []
    again = [probe for probe in chosen if probe.name in suspects]
    return [each for each in await findings(running.url, running.keys, again, MORE_SAMPLES) if each.tells]


async def not_seen(
    running: Running, chosen: Sequence[Probe], samples: int, keys: Mapping[str, str] | None = None
) -> list[str]:
    """The leaks that are not seen. What is there is seen with more samples on a machine that is busy.
    ``keys``: of who asks and who probes; default: two tenants'."""
    missed: list[str] = []
    for factor in (1, 3, 9):
        found = await findings(running.url, keys or running.keys, chosen, factor * samples)
        missed = [str(finding) for finding in found if not finding.tells]
        if not missed:
            break
        chosen = [probe for probe in chosen if any(line.startswith(f"{probe.name}:") for line in missed)]
    return missed


async def test_no_probe_tells_what_another_tenant_asked(folder: Path, embedder: Embedder) -> None:
    assert len(ALL) == 12
    async with two_tenants(folder, embedder) as running:
        assert [str(finding) for finding in await telling(running, ALL)] == []


async def test_the_stopwatch_sees_prefixes_that_are_shared(folder: Path, embedder: Embedder) -> None:
    """What it would say of engines that are told no salt."""
    chosen = [ALL[0], ALL[2]]
    async with two_tenants(folder, embedder, SLOW, gateway={"share_prefixes": True}) as running:
        assert await not_seen(running, chosen, SAMPLES) == []


async def test_the_stopwatch_sees_an_embedder_that_remembers_for_all(
    folder: Path, embedder: Embedder
) -> None:
    chosen = [probe for probe in ALL if probe.name == "one text's embedding"]
    async with two_tenants(folder, Forgetful(embedder)) as running:
        assert await not_seen(running, chosen, 3 * SAMPLES) == []


async def test_the_stopwatch_sees_what_a_tenant_itself_has_asked(folder: Path, embedder: Embedder) -> None:
    """The probes tell as soon as nothing is kept apart: in flight, in a session, in the cache. The same words
    in another order are another question, also to one tenant."""
    chosen = [probe for probe in ALL if probe.name != "the same words in another order"]
    async with two_tenants(folder, embedder) as running:
        same = dict.fromkeys((OTHER, PROBER), running.keys[OTHER])
        assert await not_seen(running, chosen, SAMPLES, same) == []

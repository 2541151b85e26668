"""The scripted engine's prefix cache, slots and prefill queue."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from sim_engine.prefix_cache import BLOCK
from sim_engine.text import render_chat
from support.sim import (
    CHAT,
    FAST,
    LONG,
    Sim,
    decoded,
    running,
)


async def test_a_prompt_seen_before_is_cached_but_for_its_last_part(sim: Sim) -> None:
    for _ in range(2):
        await sim.chat(LONG)
    prompt = len(render_chat([{"role": "user", "content": LONG}]))
    stats = sim.engine.stats()
    assert stats.prompt_tokens == 2 * prompt
    assert stats.cached_tokens == (prompt - 1) // BLOCK * BLOCK


async def test_prompts_share_only_their_common_beginning(sim: Sim) -> None:
    await sim.chat(LONG + "One end.")
    await sim.chat("Another beginning. " + LONG)
    assert sim.engine.stats().cached_tokens == 0
    await sim.chat(LONG + "Quite another end.")
    assert 0 < sim.engine.stats().cached_tokens <= len(render_chat([{"role": "user", "content": LONG}]))


async def test_the_next_turn_finds_the_last_answer_in_the_cache(sim: Sim) -> None:
    messages = [{"role": "user", "content": LONG}]
    answer = decoded(await sim.send(CHAT, messages=messages))["choices"][0]["message"]["content"]
    messages.append({"role": "assistant", "content": answer})
    first_turn = len(render_chat(messages)) - 1  # without the mark that asks for the next answer
    await sim.send(CHAT, messages=[*messages, {"role": "user", "content": "And then?"}])
    assert sim.engine.stats().cached_tokens == first_turn // BLOCK * BLOCK


async def test_a_full_cache_forgets_what_was_used_least_recently() -> None:
    prompt = len(render_chat([{"role": "user", "content": "A" + LONG}]))
    async with running(replace(FAST, cache_tokens=2 * (prompt + BLOCK))) as sim:
        for text in ("A", "B", "A", "C"):
            await sim.chat(text + LONG)
        cached = [sim.engine.stats().cached_tokens]
        for text in ("A", "B"):
            await sim.chat(text + LONG)
            cached.append(sim.engine.stats().cached_tokens)
    assert cached[1] - cached[0] == (prompt - 1) // BLOCK * BLOCK
    assert cached[2] - cached[1] < BLOCK * 2  # of B, at most the beginning is left


async def test_requests_beyond_the_slots_wait_until_one_is_free() -> None:
    async with running(replace(FAST, slots=2)) as sim, sim.held(3) as held:
        stats = sim.engine.stats()
        assert (stats.running, stats.waiting) == (2, 1)
        held[0].cancel()
        stats = await sim.until(lambda stats: stats.aborted == 1 and stats.waiting == 0)
        assert stats.running == 2


async def test_a_client_that_leaves_the_queue_never_runs() -> None:
    async with running(replace(FAST, slots=1)) as sim, sim.held(2) as held:
        held[1].cancel()
        stats = await sim.until(lambda stats: stats.aborted == 1)
        assert (stats.running, stats.waiting) == (1, 0)


async def test_one_prompt_is_prefilled_at_a_time() -> None:
    async with running(replace(FAST, prefill_ms_per_1k=200)) as sim:
        first = asyncio.create_task(sim.chat(LONG, max_tokens=1))
        await sim.until(lambda stats: stats.running == 1)
        second = await sim.chat("Short", max_tokens=1)
        assert first.done()
        assert second.ok


async def test_tokens_take_longer_the_more_slots_are_in_use() -> None:
    async with running(replace(FAST, slots=4, itl_growth=2.0)) as sim, sim.held(1):
        assert sim.engine.scheduler.itl_s() == pytest.approx(0.001)
        async with sim.held(2):
            assert sim.engine.scheduler.itl_s() == pytest.approx(0.002)


async def test_an_answer_that_takes_minutes_ends_when_the_engine_is_told_to_hurry() -> None:
    async with running(replace(FAST, itl_ms=200.0, tokens=1000)) as sim, asyncio.timeout(30):
        task = asyncio.create_task(sim.chat("Hello", stream=True))
        await sim.until(lambda stats: stats.running == 1)
        sim.engine.scheduler.set_pace(0.1)
        assert (await task).ok
        assert sim.engine.stats().generated_tokens > 200


async def test_a_client_that_leaves_mid_answer_frees_its_slot_at_once() -> None:
    async with running(replace(FAST, tokens=100_000, max_model_len=200_000)) as sim:
        task = asyncio.create_task(sim.chat("Hello", stream=True))
        await sim.until(lambda stats: stats.running == 1)
        task.cancel()
        stats = await sim.until(lambda stats: stats.running == 0)
        assert (stats.aborted, stats.finished) == (1, 0)

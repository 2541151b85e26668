"""Every way in which the scripted engine can fail."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict

import pytest
from benchmarks.load import Client, Request
from sim_engine import NO_FAULTS, Faults
from sim_engine.faults import parse_faults
from support.sim import (
    FAST,
    LIMIT_S,
    Sim,
    decoded,
    open_stream,
    reset_of,
    running,
)


@pytest.mark.parametrize(
    ("fault", "error", "tokens"),
    [
        ("die_before", "cut", 0),
        ("die_after=3", "cut", 3),
        ("error_after=3", "error event", 3),
        ("garbage=http", "no HTTP", 0),
        ("garbage=json", "no [DONE]", 0),
        ("status=500", "status 500", 0),
        ("die_after=100", None, FAST.tokens),
    ],
)
async def test_a_header_strikes_one_stream(sim: Sim, fault: str, error: str | None, tokens: int) -> None:
    struck = await sim.chat("Hello", {"x-sim-fault": fault}, stream=True)
    assert (struck.error, struck.tokens) == (error, tokens)
    assert (await sim.chat("Hello", stream=True)).ok
    assert sim.engine.stats().faulted == 1
    assert sim.engine.stats().running == 0


@pytest.mark.parametrize(
    ("fault", "error"),
    [("die_after=3", "cut"), ("error_after=3", "status 500"), ("status=503", "status 503")],
)
async def test_a_header_strikes_one_whole_answer(sim: Sim, fault: str, error: str) -> None:
    assert (await sim.chat("Hello", {"x-sim-fault": fault})).error == error
    assert sim.engine.stats().aborted == 0


async def test_garbage_is_an_answer_that_is_no_json(sim: Sim) -> None:
    sample = await sim.chat("Hello", {"x-sim-fault": "garbage=json"})
    with pytest.raises(ValueError, match="Expecting"):
        decoded(sample)


async def test_an_engine_at_its_limit_says_when_to_come_back(sim: Sim) -> None:
    sample = await sim.chat("Hello", {"x-sim-fault": "status=429"})
    assert sample.refused
    assert sample.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("fault", "tokens"), [("hang_after=3", 3), ("hang_after=0", 0), ("hang_before", None)]
)
async def test_a_hanging_stream_keeps_its_slot_until_the_client_leaves(
    sim: Sim, fault: str, tokens: int | None
) -> None:
    """``tokens``: after which it hangs; ``None`` for not even headers."""
    reader, writer = await open_stream(sim.url, fault)
    async with asyncio.timeout(LIMIT_S):
        if tokens is not None:
            await reader.readuntil(b"\r\n\r\n")
        for _ in range(1 + tokens if tokens else 0):  # the role is an event, too
            await reader.readuntil(b"\n\n")
    stats = await sim.until(lambda stats: stats.running == 1)
    assert stats.aborted == 0
    writer.close()
    await writer.wait_closed()
    stats = await sim.until(lambda stats: stats.running == 0)
    assert stats.aborted == 1


async def test_a_dying_engine_resets_the_connection(sim: Sim) -> None:
    reader, writer = await open_stream(sim.url, "die_after=2")
    await reset_of(reader, writer)


async def test_a_slow_first_byte_takes_no_slot_meanwhile(sim: Sim) -> None:
    task = asyncio.create_task(sim.chat("Hello", {"x-sim-fault": "first_byte_ms=50"}, stream=True))
    stats = await sim.until(lambda stats: stats.faulted == 1)
    assert (stats.running, stats.waiting) == (0, 0)
    sample = await task
    assert sample.ok
    assert sample.ttft_s is not None
    assert sample.ttft_s > 0.045


async def test_refusing_stops_listening_and_can_be_taken_back(sim: Sim) -> None:
    async with Client(sim.url, LIMIT_S) as control:
        on = await control.send(Request("/sim/faults", b'{"refuse":true}'))
        assert on.ok
        assert (await sim.chat("Hello")).error == "no connection"
        off = await control.send(Request("/sim/faults", b"{}"))
        assert off.ok
    assert (await sim.chat("Hello")).ok


async def test_refusing_resets_old_connections_as_well(sim: Sim) -> None:
    assert (await sim.chat("Hello")).ok
    await sim.engine.set_faults(Faults(refuse=True))
    assert (await sim.chat("Hello")).error == "cut"


async def test_an_engine_can_refuse_from_the_start() -> None:
    async with running(faults=Faults(refuse=True)) as sim:
        assert (await sim.chat("Hello")).error == "no connection"
        await sim.engine.set_faults(NO_FAULTS)
        assert (await sim.chat("Hello")).ok


async def test_a_fault_strikes_so_many_requests() -> None:
    async with running(faults=Faults(status=500, times=2)) as sim:
        assert [(await sim.chat("Hello")).status for _ in range(4)] == [500, 500, 200, 200]


async def test_a_fault_strikes_a_share_of_the_requests() -> None:
    async with running(faults=Faults(status=500, share=0.5)) as sim:
        statuses = [(await sim.chat("Hello", max_tokens=1)).status for _ in range(40)]
    assert 8 < statuses.count(500) < 32


async def test_a_fault_ends_by_itself(sim: Sim) -> None:
    await sim.engine.set_faults(Faults(refuse=True, for_s=0.02))
    assert (await sim.chat("Hello")).error == "no connection"
    async with asyncio.timeout(LIMIT_S):
        while not (await sim.chat("Hello")).ok:
            pass


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"dye":1}', "unknown fault 'dye'"),
        (b'{"die_after":"x"}', "cannot be 'x'"),
        (b'{"status":999}', "cannot be 999"),
        (b'{"garbage":"tea"}', "cannot be 'tea'"),
        (b'{"refuse":"perhaps"}', "cannot be 'perhaps'"),
    ],
)
async def test_wrong_faults_are_refused_by_name(sim: Sim, body: bytes, message: str) -> None:
    sample = await sim.client.send(Request("/sim/faults", body, keep_body=True))
    assert sample.status == 400
    assert message in decoded(sample)["error"]["message"]
    assert (await sim.chat("Hello", {"x-sim-fault": "dye=1"})).status == 400


def test_faults_are_written_as_names_and_values() -> None:
    assert parse_faults("die_after=5, share=0.5,refuse") == Faults(die_after=5, share=0.5, refuse=True)
    assert parse_faults("") == NO_FAULTS


async def test_faults_can_be_read_and_set_again(sim: Sim) -> None:
    faults = Faults(die_after=2, garbage="json", status=503, times=3, for_s=60.0)
    await sim.engine.set_faults(faults)
    sample = await sim.client.send(
        Request("/sim/faults", json.dumps(asdict(faults)).encode(), keep_body=True)
    )
    assert decoded(sample) == asdict(faults)


@pytest.mark.parametrize("how", ["kill", "request"])
async def test_a_killed_engine_drops_everything(sim: Sim, how: str) -> None:
    async with sim.held(2) as held:
        if how == "kill":
            await sim.engine.kill()
        else:
            assert (await sim.send("/sim/die")).error == "cut"
        async with asyncio.timeout(LIMIT_S):
            await sim.engine.ended.wait()
            assert [(await task).error for task in held] == ["cut", "cut"]
        assert (await sim.chat("Hello")).error == "no connection"
        stats = sim.engine.stats()
        assert (stats.running, stats.aborted, stats.connections) == (0, 0, 0)

"""Requests that name a session keep to one engine, in each of the ways that clients name it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.gateway import ADMIN, Running, SimSettings, chat, gateway

QUICK = SimSettings(itl_ms=0, tokens=4)
FLEET = [QUICK] * 4
SYSTEM = "You are an agent. " * 60


async def engines_of(running: Running, headers: dict[str, str], **fields: Any) -> set[str]:
    """Where five turns go, while other requests are on their way."""
    served = set()
    for turn in range(5):
        body = chat(f"{SYSTEM} turn {turn} of {headers} {fields}", **fields)
        others = [running.post(f"other {turn} {n}") for n in range(turn)]
        *_, answer = await asyncio.gather(*others, running.send(body, headers=headers))
        assert answer.status == 200, answer.body
        served.add(answer.headers["x-served-by"])
    return served


NAMES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "own header": ({"x-session-id": "one"}, {}),
    "Claude Code's header": ({"x-claude-code-session-id": "one"}, {}),
    "Codex's header": ({"session-id": "one"}, {}),
    "metadata": ({}, {"metadata": {"user_id": "one"}}),
    "prompt_cache_key": ({}, {"prompt_cache_key": "one"}),
    "conversation": ({}, {"conversation": "one"}),
}


@pytest.mark.parametrize("name", NAMES)
async def test_a_session_keeps_to_its_engine(name: str) -> None:
    headers, fields = NAMES[name]
    async with gateway(*FLEET) as running:
        assert len(await engines_of(running, headers, **fields)) == 1


async def test_two_gateways_send_a_session_to_the_same_engine_without_talking() -> None:
    async with gateway(*FLEET) as one, gateway(*FLEET) as two:
        for number in range(6):
            session = {"x-session-id": f"session-{number}"}
            homes = {
                (await running.post(f"turn of {number}", session)).headers["x-served-by"]
                for running in (one, two)
            }
            assert len(homes) == 1, session


async def test_sessions_of_the_same_name_belong_to_their_tenants() -> None:
    async with gateway(*FLEET, tenants=["a", "b", "c", "d", "e", "f"]) as running:
        homes = set()
        for tenant in running.keys.keys() - {ADMIN}:
            headers = running.headers(tenant) | {"x-session-id": "same"}
            homes.add((await running.send(chat("hi"), headers=headers)).headers["x-served-by"])
        assert len(homes) > 1


async def test_a_long_conversation_without_a_name_is_found_by_its_prefix() -> None:
    async with gateway(*FLEET) as running:
        said = [{"role": "user", "content": "A long beginning. " * 300}]
        served = set()
        for turn in range(6):
            answer = await running.send({"model": "sim", "messages": said})
            served.add(answer.headers["x-served-by"])
            said.append({"role": "assistant", "content": f"answer {turn}"})
            said.append({"role": "user", "content": f"turn {turn}"})
            await running.post(f"other {turn}")
        assert len(served) == 1, served


async def test_the_setting_turns_it_off() -> None:
    async with gateway(*FLEET, gateway={"session_affinity": False}) as running:
        assert len(await engines_of(running, {"x-session-id": "one"})) > 1

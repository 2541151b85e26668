"""Requests that name a session keep to one engine, in each of the ways that clients name it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from sim_engine import SimEngine
from support.gateway import ADMIN, Band, Running, SimSettings, chat, gateway

from serve_app.request.tenant_marks import new_secret

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


async def test_a_gateway_knows_what_another_one_has_sent_where() -> None:
    """Each prompt went to the home of a session that the second gateway does not know."""
    async with two_before(4) as (one, two, band):
        prompts = [f"Conversation {number}. " * 300 for number in range(8)]
        sent = [await one.post(text, {"x-session-id": f"s{n}"}) for n, text in enumerate(prompts)]
        await band.meet()
        again = [await two.post(f"{text} And then?") for text in prompts]
        served = [answer.headers["x-served-by"] for answer in sent]
        assert [answer.headers["x-served-by"] for answer in again] == served
        assert len(set(served)) > 1


@asynccontextmanager
async def two_before(count: int) -> AsyncIterator[tuple[Running, Running, Band]]:
    """Two gateways of one application before the same engines."""
    band, members, secret = Band(), [], new_secret()
    async with AsyncExitStack() as stack:
        for number in range(count):
            engine = SimEngine(QUICK)
            url = await engine.start()
            stack.push_async_callback(engine.stop)
            members.append({"name": f"e{number}", "url": f"{url}/v1", "kind": "vllm"})
        given: dict[str, Any] = {"band": band, "others": members, "tenant_secret": secret}
        one, two = [
            await stack.enter_async_context(gateway(**given, gateway={"replicas": 2})) for _ in range(2)
        ]
        await band.meet()
        yield one, two, band


async def test_the_setting_turns_it_off() -> None:
    async with gateway(*FLEET, gateway={"session_affinity": False}) as running:
        assert len(await engines_of(running, {"x-session-id": "one"})) > 1

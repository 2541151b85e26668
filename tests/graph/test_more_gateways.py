"""A gateway whose event loop is late by its own work gets another one beside it, and no client notices."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import aiohttp
from ray import serve
from support.graph import AS_ADMIN, CHAT, Graph, chat

CLIENTS = 4
ENOUGH = 10
"""Answers of each gateway."""

WITHIN_S = 120.0
"""The rule needs ten seconds of load, a gateway about as long to start, and a slow machine has more to do."""

BUSY = {"name": "busy", "function": "support.busy_guard:busy", "when": "before", "timeout_s": 60.0}
ONE_OR_TWO = {"replicas": 1, "max_replicas": 2, "max_loop_lag_ms": 1.0}


def running(graph: Graph) -> int:
    states: Any = serve.status().applications[graph.app].deployments["Gateway"].replica_states
    return int(states.get("RUNNING", 0))


async def test_a_second_gateway_is_added_under_load_and_answers_its_part(
    http: aiohttp.ClientSession, deploy_ready: Any
) -> None:
    args = {"gateway": ONE_OR_TWO, "guardrails": [BUSY]}
    graph: Graph = await asyncio.to_thread(deploy_ready, "one-or-two", args)
    assert running(graph) == 1
    answers: Counter[str] = Counter()
    """By the gateway's process, which the guard makes the engine say."""

    async def client() -> None:
        while len(answers) < 2 or min(answers.values()) < ENOUGH:
            async with http.post(graph.url + CHAT, json=chat("who asks?")) as response:
                assert response.status == 200, await response.text()
                answers[(await response.json())["choices"][0]["message"]["content"]] += 1

    try:
        async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as clients:
            for _ in range(CLIENTS):
                clients.create_task(client())
    except TimeoutError:
        raise AssertionError(f"{running(graph)} gateways run, and have answered {dict(answers)}") from None
    assert running(graph) == len(answers) == 2
    async with http.get(f"{graph.url}/admin/latency", headers=AS_ADMIN) as response:
        assert (await response.json())["gateways"] == 2

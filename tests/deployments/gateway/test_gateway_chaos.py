"""Engines die and come back while forty clients read: none of them notices."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from local_cache import local_cache
from sim_engine import SimEngine
from support.gateway import Faults, Running, SimSettings, gateway

ENGINES = 4
CLIENTS = 40
KILLS = 8
BETWEEN_KILLS = CLIENTS
"""Streams that end between two kills: a stream lives through two of them at most."""

SETTINGS = SimSettings(itl_ms=3, tokens=60, stop_share=0.01)
QUESTIONS = [f"question {number}" for number in range(32)]
"""Their answers differ in length, so that the clients do not keep step."""

BOUND_S = 120
"""Far beyond what a busy machine needs."""

FRESH = {"cache-control": "no-store"}


class Clients:
    """Ask one question after the other, each client on its own, until told to stop."""

    def __init__(self, running: Running, expected: dict[str, str]) -> None:
        self._running = running
        self._expected = expected
        self._numbers = count()
        self._ended = asyncio.Condition()
        self.answered = 0
        self.stopping = False
        self.wrong: list[str] = []

    async def ask(self) -> None:
        while not self.stopping:
            question = QUESTIONS[next(self._numbers) % len(QUESTIONS)]
            answer = await self._running.post(question, stream=True, temperature=0)
            try:
                if answer.text != self._expected[question]:
                    self.wrong.append(f"{question}: {answer.text!r}")
            except AssertionError:
                self.wrong.append(f"{question}: {answer.status} {answer.body[-300:]!r}")
            self.answered += 1
            async with self._ended:
                self._ended.notify_all()

    async def more(self, answers: int) -> None:
        """Wait until so many more questions are answered."""
        wanted = self.answered + answers
        async with self._ended:
            await self._ended.wait_for(lambda: self.answered >= wanted)


async def test_no_client_notices_that_engines_die_and_come_back() -> None:
    async with gateway(*[SETTINGS] * ENGINES, gateway={"max_attempts": ENGINES}) as running:
        answers = await asyncio.gather(*(running.post(question) for question in QUESTIONS))
        expected = {question: answer.text for question, answer in zip(QUESTIONS, answers, strict=True)}
        clients = Clients(running, expected)
        async with asyncio.timeout(BOUND_S), replaceable(running) as engines, asyncio.TaskGroup() as tasks:
            for _ in range(CLIENTS):
                tasks.create_task(clients.ask())
            await clients.more(BETWEEN_KILLS)
            for kill in range(KILLS):
                number = kill % ENGINES
                await engines[number].until(lambda stats: stats.running > 2)
                await replace(running, engines, number)
                await clients.more(BETWEEN_KILLS)
            clients.stopping = True
            for number in range(ENGINES):
                await running.until_serving(number, True)
        assert clients.wrong == []
        traffic = await running.traffic()
        assert traffic["continued"] >= KILLS
        assert (traffic["cut"], traffic["refused"]) == (0, 0)
        assert traffic["requests"] == clients.answered + len(QUESTIONS)
        await running.until_idle()


@asynccontextmanager
async def replaceable(running: Running) -> AsyncIterator[list[SimEngine]]:
    engines = list(running.engines)
    try:
        yield engines
    finally:
        for engine in engines:
            await engine.stop()


async def replace(running: Running, engines: list[SimEngine], number: int) -> None:
    """Kill an engine, and start another one at its address. The old one is kept for the end: it may have
    accepted a connection in its last moment."""
    port = int((await running.member(number))["url"].rpartition(":")[2])
    await engines[number].kill()
    engines.append(engines[number])
    engines[number] = SimEngine(SETTINGS)
    await engines[number].start(port=port)


async def test_clients_that_join_and_leave_do_not_disturb_each_other_while_engines_fail(
    folder: Path,
) -> None:
    """Each stream is read by whoever is furthest ahead; any of them may leave at any moment."""
    chance = random.Random(7)
    settings = SimSettings(itl_ms=1, tokens=30, stop_share=0.01)
    upstreams = [{"priority": number, "max_requests": 8} for number in range(4)]
    async with local_cache(folder, exact_entries=1, ttl_s=0.01) as cache:
        args = {**cache.args, "handles": cache.handles, "gateway": {"max_attempts": 4}}
        async with gateway(*[settings] * 4, upstreams=upstreams, **args) as running:
            texts = [await running.post(question, FRESH) for question in QUESTIONS[:6]]
            expected = dict(zip(QUESTIONS, (answer.text for answer in texts), strict=False))
            # Only one: an answer that is not streamed and breaks two members is not asked for again.
            await running.engines[0].set_faults(Faults(die_after=9, share=0.5))
            endings: Counter[str] = Counter()

            async def client() -> None:
                question = chance.choice(QUESTIONS[:6])
                patience = chance.choice([None, None, 0.0, 0.01, 0.03])
                try:
                    async with asyncio.timeout(patience):
                        answer = await running.post(question, stream=chance.random() < 0.7)
                except TimeoutError:
                    endings["left"] += 1
                    return
                assert answer.text == expected[question]
                endings[answer.headers["x-cache"]] += 1

            async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as tasks:
                for _ in range(400):
                    tasks.create_task(client())
                    await asyncio.sleep(chance.choice([0, 0, 0.002]))
            assert endings["left"] > 50
            assert endings["joined"] > 50
            assert (await running.traffic())["continued"] > 0
            assert (await running.traffic())["cut"] == 0
            await running.until_idle()
            async with asyncio.timeout(5):
                for engine in running.engines:
                    await engine.until(lambda stats: stats.running + stats.waiting == 0)

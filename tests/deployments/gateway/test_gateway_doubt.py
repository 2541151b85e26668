"""Near entries that are not simply given: the served model is asked, or its answer is compared."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import permutations
from math import log
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from local_cache import local_cache
from scripted_member import Member, listening
from support.cross_encoder import make_cross_encoder
from support.gateway import MODEL, Running, gateway
from support.graph import eventually

ASKED = "how far is it then"
NEAR = "then how far is it"
SAID = "It is 384,400 km away."
TOKENS = 100


class Engine:
    """Says the same to every question; says how likely ``yes`` is when it is asked to judge a pair."""

    def __init__(self, yes: float = 0.99) -> None:
        self.yes = yes
        self.judged: list[Any] = []
        self.fails = False
        self.tokens = TOKENS

    async def answer(self, request: web.Request) -> web.StreamResponse:
        fields = json.loads(await request.read())
        if fields.get("logprobs"):
            self.judged.append(fields)
            if self.fails:
                return web.json_response({"error": {"message": "broken on purpose"}}, status=500)
            return web.json_response(self._judgement())
        usage = {"prompt_tokens": 5, "completion_tokens": self.tokens, "total_tokens": 5 + self.tokens}
        choice = {"index": 0, "message": {"role": "assistant", "content": SAID}, "finish_reason": "stop"}
        return web.json_response(
            {"id": "1", "model": MODEL, "created": 0, "choices": [choice], "usage": usage}
        )

    def _judgement(self) -> dict[str, Any]:

        likeliest = [
            {"token": "yes", "logprob": log(self.yes)},
            {"token": "no", "logprob": log(1 - self.yes)},
        ]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": "yes"},
            "finish_reason": "length",
            "logprobs": {"content": [{"token": "yes", "logprob": 0.0, "top_logprobs": likeliest}]},
        }
        return {"id": "1", "model": MODEL, "created": 0, "choices": [choice]}


@asynccontextmanager
async def running(engine: Engine, folder: Path, **cache: Any) -> AsyncIterator[Running]:
    member = Member(engine.answer)
    async with (
        listening(member),
        local_cache(folder, race=False, **cache) as local,
        gateway(others=[member.upstream()], handles=local.handles, **local.args) as running,
    ):
        yield running


@pytest.fixture
def doubting(tmp_path: Path) -> dict[str, Any]:
    """Settings with which every near entry is in doubt, and the served model is asked."""
    encoder = {"source": make_cross_encoder(tmp_path / "model"), "least": 1.0, "device": "cpu"}
    return {
        "decision": "balanced",
        "threshold": 0.5,
        "cross_encoder": encoder,
        "ask_model": {"from_score": 0.0, "timeout_ms": 5000.0},
    }


async def stored(running: Running, count: int) -> None:
    async def so() -> bool:
        return bool((await running.get("/admin/cache"))["entries"] == count)

    assert await eventually(so, within_s=5)


async def test_what_the_model_says_yes_to_is_given_and_not_asked_again(
    folder: Path, doubting: dict[str, Any]
) -> None:
    engine = Engine()
    async with running(engine, folder, **doubting) as gate:
        await gate.post(ASKED)
        await stored(gate, 1)
        for _ in range(2):
            answer = await gate.post(NEAR)
            assert (answer.headers["x-cache"], answer.text) == ("semantic", SAID)

            async def is_remembered() -> bool:
                return (await gate.get("/admin/cache"))["queued_writes"] == 0

            assert await eventually(is_remembered, within_s=5)
        assert len(engine.judged) == 1
        (asked,) = engine.judged
        assert ASKED in asked["messages"][1]["content"]
        assert NEAR in asked["messages"][1]["content"]
        stats = await gate.get("/admin/cache")
        assert (stats["asked"], stats["semantic"], stats["misses"]) == (1, 2, 1)
        assert stats["near_misses"] == 0


async def test_what_the_model_says_no_to_is_answered_anew(folder: Path, doubting: dict[str, Any]) -> None:
    engine = Engine(yes=0.6)
    async with running(engine, folder, **doubting) as gate:
        await gate.post(ASKED)
        await stored(gate, 1)
        answer = await gate.post(NEAR)
        assert (answer.headers["x-cache"], answer.headers["x-cache-refused"]) == ("miss", "model")
        stats = await gate.get("/admin/cache")
        assert (stats["misses"], stats["near_misses"]) == (2, 1)


async def test_a_model_that_fails_to_judge_makes_a_miss(folder: Path, doubting: dict[str, Any]) -> None:
    engine = Engine()
    engine.fails = True
    async with running(engine, folder, **doubting) as gate:
        await gate.post(ASKED)
        await stored(gate, 1)
        answer = await gate.post(NEAR)
        assert (answer.headers["x-cache"], answer.headers["x-cache-refused"]) == ("miss", "in-doubt")
        assert answer.text == SAID
        assert engine.judged


async def test_an_answer_that_is_cheaper_than_the_question_is_not_asked_about(
    folder: Path, doubting: dict[str, Any]
) -> None:
    engine = Engine()
    engine.tokens = 10
    async with running(engine, folder, **doubting) as gate:
        await gate.post(ASKED)
        await stored(gate, 1)
        answer = await gate.post(NEAR)
        assert (answer.headers["x-cache"], answer.headers["x-cache-refused"]) == ("miss", "cross_encoder")
        assert not engine.judged


async def test_a_pair_that_was_reported_is_not_asked_about(folder: Path, doubting: dict[str, Any]) -> None:
    engine = Engine()
    async with running(engine, folder, **doubting) as gate:
        await gate.post(ASKED)
        await stored(gate, 1)
        entry = (await gate.post(NEAR)).headers["x-cache-entry"]
        report = {"entry": entry, "right": False, "text": NEAR}
        async with gate.http.post("/admin/cache/feedback", json=report) as response:
            assert response.status == 200
        answer = await gate.post(NEAR)
        assert (answer.headers["x-cache"], answer.headers["x-cache-refused"]) == ("miss", "blocked")


async def test_with_a_bound_fresh_answers_teach_the_cache_to_give_what_it_has(folder: Path) -> None:
    async with running(Engine(), folder, max_error_rate=0.05) as gate:
        first = await gate.post(ASKED)
        assert "x-cache-refused" not in first.headers
        await stored(gate, 1)
        orders = near_texts()
        second = await gate.post(next(orders))
        assert (second.headers["x-cache"], second.headers["x-cache-refused"]) == ("miss", "error-bound")

        async def hits() -> bool:
            return (await gate.post(next(orders))).headers["x-cache"] == "semantic"

        assert await eventually(hits, within_s=20)
        stats = await gate.get("/admin/cache")
        assert stats["explored"] >= 5
        assert stats["bound"]["observations"] >= 5


def near_texts() -> Iterator[str]:
    """The same words in other orders: the same vector, and another text."""
    words = permutations(ASKED.split())
    next(words)
    return (" ".join(order) for order in words)

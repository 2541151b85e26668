"""Asks a judge model about some of the captured answers, on idle engines, after every client.

A judgement takes room only where a member of the judge's model does nothing and no request waits for it, goes
last where engines know priorities, and is short. A judge that is away, busy or answers nonsense costs nothing
but the judgement.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass

import msgspec

from deployments.gateway.request.call import Call, Message, Purpose, SlotRequest
from deployments.gateway.send.dispatch import Dispatcher
from serve_app.admission import LAST_PRIORITY
from serve_app.errors import PromptlyError
from serve_app.feedback.judgement import judge_request, score_in
from serve_app.monitoring import metrics as names
from serve_app.monitoring.metrics import Meter
from serve_app.openai.requests import Endpoint
from serve_app.request.timing import Timeline
from serve_app.routing import RoutingRequest
from serve_app.settings.feedback import JudgeSettings

TENANT = "~judge"
"""Whose slots judgements take: no tenant has this name."""

MOST_WAITING = 256
LOOK_S = 0.1
"""Between two looks for an idle engine."""

CHARS_PER_TOKEN = 4.0

Judged = Callable[[str, float], None]
"""Given the model whose answer it is, and the score."""

Scored = Callable[[str, float, float], None]
"""Given the arm of an experiment whose answer it is, the place of what keeps that arm, and the score."""

logger = logging.getLogger("ray.serve")


@dataclass(frozen=True, slots=True)
class Trial:
    """The arm of an experiment (``NAME=ARM``) that gave an answer, and the place of what keeps that arm."""

    label: str
    place: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """``at``: since when, monotonic seconds."""

    model: str
    question: str
    answer: str
    at: float
    trial: Trial | None


class LiveJudge:
    """Made inside a running event loop; ``close`` ends it."""

    def __init__(
        self,
        settings: JudgeSettings,
        dispatcher: Dispatcher,
        judged: Judged,
        meter: Meter,
        *,
        draw: Callable[[], float] = random.random,
        scored: Scored | None = None,
    ) -> None:
        self._settings = settings
        self._dispatcher = dispatcher
        self._judged = judged
        self._meter = meter
        self._draw = draw
        self._scored = scored
        self._waiting: deque[Waiting] = deque()
        self._working = asyncio.get_running_loop().create_task(self._work(), context=Context())

    def offer(self, model: str, question: str, answer: str, trial: Trial | None = None) -> None:
        """It is judged later, or not at all."""
        if not answer or self._draw() >= self._settings.share:
            return
        if len(self._waiting) >= MOST_WAITING:
            self._count("dropped")
            return
        self._waiting.append(Waiting(model, question, answer, time.monotonic(), trial))

    async def close(self) -> None:
        self._working.cancel()
        await asyncio.gather(self._working, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            while self._waiting and self._waiting[0].at + self._settings.max_wait_s < time.monotonic():
                self._waiting.popleft()
                self._count("dropped")
            if not self._waiting or not self._dispatcher.is_idle(self._settings.model):
                continue
            kind = await self._one(self._waiting.popleft())
            self._count(kind)
            await asyncio.sleep(60.0 / self._settings.max_per_minute)

    async def _one(self, waiting: Waiting) -> str:
        """What became of it."""
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                body = await self._ask(judge_request(self._settings.model, waiting.question, waiting.answer))
        except (PromptlyError, TimeoutError):
            return "failed"
        except Exception:
            logger.exception("an answer could not be judged")
            return "failed"
        score = score_in(body)
        if score is None:
            return "unreadable"
        self._judged(waiting.model, score)
        if self._scored is not None and waiting.trial is not None:
            self._scored(waiting.trial.label, waiting.trial.place, score)
        return "scored"

    async def _ask(self, fields: dict[str, object]) -> bytes:
        """Raises: PromptlyError."""
        answer = await self._dispatcher.open(self._call(fields))
        parts: list[bytes] = []
        try:
            while part := await answer.read():
                parts.append(part)
        finally:
            answer.close()
        return b"".join(parts)

    def _call(self, fields: dict[str, object]) -> Call:
        body, path = msgspec.json.encode(fields), Endpoint.CHAT.value
        headers = {"content-type": "application/json", "x-request-id": f"judge-{os.urandom(8).hex()}"}
        slot = SlotRequest(
            account=None,
            tenant=TENANT,
            path=path,
            priority=LAST_PRIORITY,
            deadline=time.monotonic() + self._settings.timeout_s,
            timeline=Timeline(time.perf_counter_ns, time.time_ns()),
            routing=RoutingRequest(len(body) / CHARS_PER_TOKEN),
        )
        message = Message(method="POST", target=path, body=body, fields=fields, headers=headers)
        return Call(model=self._settings.model, purpose=Purpose.HELP, slot=slot, message=message, body=body)

    def _count(self, kind: str) -> None:
        self._meter.add(names.JUDGEMENTS, 1, {"kind": kind})

"""All that one gateway has of the feedback: what it tells the owner of finished requests, and its calls."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any

from deployments.gateway.feedback.capture import Capturing
from deployments.gateway.feedback.client import FeedbackClient
from deployments.gateway.feedback.judging import LiveJudge, Scored
from deployments.gateway.generation.asked import Asked
from deployments.gateway.monitoring.monitor import Monitor
from deployments.gateway.request.answer import Answer
from deployments.gateway.send.dispatch import Dispatcher
from serve_app.cache.bound import text_hash
from serve_app.errors import FeedbackUnavailable
from serve_app.feedback.judged import judged
from serve_app.feedback.values import Judged
from serve_app.monitoring import metrics as names
from serve_app.monitoring.metrics import Meter, NoMeter
from serve_app.request.record import RequestRecord
from serve_app.settings import FeedbackSettings, Settings

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

PERIOD_S = 0.25
MOST_ROWS = 1000
"""Requests of one report: some 10 ms of work for the owner."""

MOST_HITS = 4096
"""Near hits that have not finished."""

LAST_REPORT_S = 2.0

logger = logging.getLogger("ray.serve")


class GatewayFeedback:
    """Made inside a running event loop; ``close`` ends it. ``take`` is a sink of finished requests."""

    def __init__(self, settings: FeedbackSettings, handle: DeploymentHandle[Any], meter: Meter) -> None:
        self.settings = settings
        self.client = FeedbackClient(handle, settings.call_timeout_s)
        self.meter = meter
        self.capture = None if settings.capture is None else Capturing(settings.capture, self.client, meter)
        self._waiting: deque[Judged] = deque()
        self._asked: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._dropped = 0
        self._problem = ""
        self._reporting = asyncio.Lock()
        self._running = asyncio.get_running_loop().create_task(self._forever(), context=Context())

    def near_hit(self, tenant: str, request_id: str, text: str) -> None:
        """An entry of another text answers this one. Only its hash is kept, until the request has ended."""
        self._asked[tenant, request_id] = text_hash(text)
        if len(self._asked) > MOST_HITS:
            self._asked.popitem(last=False)

    def watch(self, monitor: Monitor) -> None:
        """What is seen of captured answers is counted there."""
        if self.capture is not None:
            self.capture.monitor = monitor

    def judge_at(self, dispatcher: Dispatcher, scored: Scored) -> None:
        """Where the judge model is asked, if the settings name one; ``scored`` gets experiments' scores."""
        capture, settings = self.capture, self.settings.capture
        if capture is None or capture.monitor is None or settings is None or settings.judge is None:
            return
        judge, judged = settings.judge, capture.monitor.judged
        capture.judge = LiveJudge(judge, dispatcher, judged, self.meter, scored=scored)

    def copied(self, asked: Asked, answer: Answer) -> Answer:
        return answer if self.capture is None else self.capture.copied(asked, answer)

    def take(self, record: RequestRecord) -> None:
        asked = self._asked.pop((record.tenant or "", record.request_id), None) if self._asked else None
        request = judged(record, asked)
        if request is None:
            return
        if len(self._waiting) >= self.settings.max_waiting_requests:
            self._dropped += 1
            return
        self._waiting.append(request)

    async def report(self) -> None:
        """Report to the owner what has finished.

        Raises:
            FeedbackUnavailable: the report is sent later.
        """
        async with self._reporting:
            while self._waiting:
                rows = [self._waiting[place] for place in range(min(MOST_ROWS, len(self._waiting)))]
                await self.client.call_once("report", rows)
                for _ in rows:
                    self._waiting.popleft()

    async def close(self) -> None:
        """Report what has finished until now, if the owner answers."""
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        with suppress(FeedbackUnavailable, TimeoutError):
            async with asyncio.timeout(LAST_REPORT_S):
                await self.report()
        if self.capture is not None:
            await self.capture.close()
        await self.client.close()

    async def _forever(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            try:
                await self.report()
                self._complain("")
            except FeedbackUnavailable as error:
                self._complain(error.reason)
            except Exception:
                logger.exception("the report to the owner of the feedback failed")
            if self._dropped:
                self.meter.add(names.FEEDBACK_DROPPED, self._dropped, {})
                logger.error("%d requests cannot be judged: too many wait for their owner", self._dropped)
                self._dropped = 0

    def _complain(self, problem: str) -> None:
        """Log each problem once, not at every report."""
        if problem and problem != self._problem:
            logger.error("feedback is not kept: %s", problem)
        self._problem = problem


def feedback_of(
    settings: Settings, handle: DeploymentHandle[Any] | None, meter: Meter | None
) -> GatewayFeedback | None:
    """``None`` where none is kept."""
    if settings.feedback is None or handle is None:
        return None
    meter = NoMeter() if meter is None or not settings.gateway.metrics else meter
    return GatewayFeedback(settings.feedback, handle, meter)

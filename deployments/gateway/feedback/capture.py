"""Captures requests with their answers, for the tenants and shares that the settings name.

On the path of an answer nothing is done but to keep references to its pieces. What is captured waits in a
bounded queue; decoding and redaction happen in a thread, and its owner seals and stores it.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections import Counter, deque
from collections.abc import Mapping
from contextvars import Context
from dataclasses import dataclass
from typing import Any

import msgspec

from deployments.gateway.feedback.client import FeedbackClient
from deployments.gateway.feedback.copied import CopiedAnswer
from deployments.gateway.feedback.judging import LiveJudge, Trial
from deployments.gateway.generation.asked import Asked
from deployments.gateway.monitoring.monitor import Monitor
from deployments.gateway.request.answer import Answer, Head
from serve_app.errors import FeedbackUnavailable, SettingsError
from serve_app.feedback.captured import Capture, CaptureReply, Content, Redact, content_of, is_drawn, redacted
from serve_app.feedback.traits import Traits, traits_of
from serve_app.guardrails.mask import Masker
from serve_app.monitoring import metrics as names
from serve_app.monitoring.intake import HITS
from serve_app.monitoring.metrics import Meter
from serve_app.settings.feedback import CaptureSettings

PERIOD_S = 0.5
BATCH_BYTES = 1 << 20
PAUSE_S = 30.0
"""Between two looks whether there is room again."""

EVENTS = "text/event-stream"
FULL, TOO_LARGE, WAITING, UNREADABLE, KEPT = "full", "too_large", "waiting", "unreadable", "kept"

logger = logging.getLogger("ray.serve")


Seen = tuple[Traits, Content, Trial | None]
"""What is seen of an answer, the redacted content, and the arm of an experiment that an engine answered
for."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """``fields`` are those of the request, as its guards let them pass."""

    tenant: str
    request_id: str
    at: float
    endpoint: str
    model: str
    fields: Mapping[str, Any]
    parts: list[bytes]
    streamed: bool
    complete: bool
    size: int
    trial: Trial | None


class Capturing:
    """Made inside a running event loop; ``close`` ends it, after what waits has been stored if its owner
    answers. It is long because what waits, what is counted and whether capture has stopped are one state."""

    def __init__(
        self, settings: CaptureSettings, client: FeedbackClient, meter: Meter, pause_s: float = PAUSE_S
    ) -> None:
        """Raises: SettingsError: the function for redaction, or a library of the mask, is missing."""
        self._settings = settings
        self._client = client
        self._meter = meter
        self._pause_s = pause_s
        self._redact = redaction_of(settings)
        self.monitor: Monitor | None = None
        self.judge: LiveJudge | None = None
        self._waiting: deque[Waiting] = deque()
        self._bytes = 0
        self._counted: Counter[str] = Counter()
        self._is_stopped = False
        self._running = asyncio.get_running_loop().create_task(self._forever(), context=Context())

    def copied(self, asked: Asked, answer: Answer) -> Answer:
        """The answer itself where the request is not to be captured."""
        share = self._settings.tenants.get(asked.identity.tenant, 0.0)
        name = asked.session or asked.exchange.request_id
        if not share or self._is_stopped or not is_drawn(name, share):
            return answer
        most = self._settings.max_entry_bytes - len(asked.request.body)
        if most <= 0:
            self._counted[TOO_LARGE] += 1
            return answer
        return CopiedAnswer(answer, most, lambda head, parts, whole: self._take(asked, head, parts, whole))

    def _take(self, asked: Asked, head: Head, parts: list[bytes], complete: bool) -> None:
        if head.status != 200:
            return
        if not parts:
            self._counted[TOO_LARGE] += 1
            return
        request, exchange = asked.request, asked.exchange
        size = len(request.body) + sum(map(len, parts))
        if self._bytes + size > self._settings.max_waiting_bytes:
            self._counted[WAITING] += 1
            return
        self._bytes += size
        self._waiting.append(
            Waiting(
                asked.identity.tenant,
                exchange.request_id,
                exchange.timeline.unix_ns / 1e9,
                request.endpoint.value,
                request.model,
                request.fields,
                parts,
                head.content_type.startswith(EVENTS),
                complete,
                size,
                _trial(asked),
            )
        )

    async def close(self) -> None:
        if self.judge is not None:
            await self.judge.close()
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        try:
            async with asyncio.timeout(2.0):
                await self._store_all()
        except (FeedbackUnavailable, TimeoutError):
            logger.warning("%d captured requests were not stored", len(self._waiting))

    async def _forever(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s if self._is_stopped else PERIOD_S)
            try:
                if self._is_stopped:
                    await self._ask_again()
                await self._store_all()
            except FeedbackUnavailable as error:
                if error.is_final:  # the owner said no: its disk is full, or its file failed
                    self._stop(error.reason)
            except Exception:
                logger.exception("captured requests were not stored")
                self._forget_all("failed")
            self._report()

    async def _ask_again(self) -> None:
        """Raises: FeedbackUnavailable."""
        reply: CaptureReply = await self._client.call_once("capture", [])
        if not reply.full:
            self._is_stopped = False
            logger.info("requests are captured again")

    async def _store_all(self) -> None:
        """Raises: FeedbackUnavailable: the rest waits."""
        while self._waiting and not self._is_stopped:
            batch, size = [self._waiting[0]], self._waiting[0].size
            while len(batch) < len(self._waiting) and size < BATCH_BYTES:
                batch.append(self._waiting[len(batch)])
                size += batch[-1].size
            captures, seen = await asyncio.to_thread(prepared, batch, self._redact)
            reply: CaptureReply = await self._client.call_once("capture", captures)
            if reply.full:
                self._stop("feedback.capture.max_bytes are used up")
                return
            for _ in batch:
                self._waiting.popleft()
            self._bytes -= sum(each.size for each in batch)
            self._counted[UNREADABLE] += len(batch) - len(captures)
            self._counted[KEPT] += len(captures)
            self._look_at(captures, seen)

    def _look_at(self, captures: list[Capture], seen: list[Seen]) -> None:
        for capture, (traits, content, trial) in zip(captures, seen, strict=True):
            if self.monitor is not None:
                self.monitor.sampled(
                    capture.model,
                    refuses=traits.refuses,
                    other_language=traits.other_language,
                    chars=traits.chars,
                )
            if self.judge is not None:
                self.judge.offer(capture.model, content.question, content.text, trial)

    def _stop(self, why: str) -> None:
        """Serving goes on as before; nothing waits for room."""
        if not self._is_stopped:
            logger.error("no more requests are captured: %s", why)
        self._is_stopped = True
        self._forget_all(FULL)

    def _forget_all(self, why: str) -> None:
        self._counted[why] += len(self._waiting)
        self._waiting.clear()
        self._bytes = 0

    def _report(self) -> None:
        for kind, number in self._counted.items():
            if number:
                self._meter.add(names.CAPTURES, number, {"kind": kind})
        self._counted.clear()
        self._meter.set(names.CAPTURE_STOPPED, float(self._is_stopped), {})


def _trial(asked: Asked) -> Trial | None:
    """What the cache answered is not the arm's."""
    facts = asked.exchange.facts
    if facts.experiment is None or asked.exchange.response_headers.get("x-cache") in HITS:
        return None
    return Trial(facts.experiment, facts.place)


def redaction_of(settings: CaptureSettings) -> Redact | None:
    """What changes every text before it is stored. Raises: SettingsError."""
    steps: list[Redact] = []
    if settings.mask is not None:
        steps.append(Masker(settings.mask.kinds, settings.mask.regions).masked)
    if settings.redact is not None:
        steps.append(_function(settings.redact))
    if not steps:
        return None

    def redact(text: str) -> str:
        for step in steps:
            text = step(text)
            if not isinstance(text, str):
                raise TypeError("the function for redaction returned no text")
        return text

    return redact


def _function(path: str) -> Redact:
    """Raises: SettingsError."""
    module, _, name = path.partition(":")
    try:
        found: Redact = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"feedback.capture.redact = {path!r}: {error}") from None
    return found


def prepared(batch: list[Waiting], redact: Redact | None) -> tuple[list[Capture], list[Seen]]:
    """What is to be stored, and what is to be counted of each; others are of another form, or their redaction
    failed. Runs in a thread; what goes wrong may quote a text, so only its kind is said."""
    captures: list[Capture] = []
    seen: list[Seen] = []
    for each in batch:
        try:
            content = content_of(each.fields, each.parts, streamed=each.streamed, complete=each.complete)
            traits = traits_of(content.question, content.text)
            content = content if redact is None else redacted(content, redact)
        except Exception as error:  # of the operator's function, too
            logger.warning("a request was not captured: %s", type(error).__name__)
            continue
        captures.append(
            Capture(
                tenant=each.tenant,
                request_id=each.request_id,
                at=each.at,
                endpoint=each.endpoint,
                model=each.model,
                content=msgspec.msgpack.encode(content),
            )
        )
        seen.append((traits, content, each.trial))
    return captures, seen

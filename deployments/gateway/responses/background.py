"""Responses that are generated without their client: the gateway that took the request owns them.

Each runs through the same path as any request, without a client that waits. The store knows the owner: when
this gateway is gone, the response is reported as failed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Sequence
from contextvars import Context
from dataclasses import dataclass, field

import msgspec

from deployments.gateway.request.exchange import EVENT_STREAM, Exchange, Handler
from deployments.gateway.request.finished import Finished
from deployments.gateway.responses.detached import DetachedExchange
from deployments.gateway.responses.reading import InBackground
from deployments.gateway.responses.store_client import ResponseStoreClient
from serve_app.dialects.responses.stored import queued
from serve_app.errors import NoReplica, OverCapacity, PromptlyError, ResponsesUnavailable
from serve_app.settings import ResponsesSettings
from serve_app.stored_responses.status import LEASE_S, with_status
from serve_app.stored_responses.values import Outcome, Record

BEAT_S = 1.0
"""How often a gateway that generates reports to the store: it learns of cancellations then."""

BEAT_TIMEOUT_S = LEASE_S / 2
"""A report that is older says nothing any more: the store would miss what has begun since."""

CLOSING_S = 2.0

logger = logging.getLogger("ray.serve")


@dataclass(slots=True, eq=False)
class Job:
    """One background response. ``parts`` are its events for a client that watches from the beginning."""

    record: Record
    task: asyncio.Task[None] | None = None
    watched: bool = False
    parts: list[bytes] = field(default_factory=list)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    failure: PromptlyError | None = None
    cancelled: bool = False
    begun: bool = False


class Background:
    """Made inside a running event loop. ``generate`` answers a request as if its client waited. It is one
    class because starting, watching, stopping and ending change the same jobs."""

    def __init__(
        self,
        store: ResponseStoreClient,
        settings: ResponsesSettings,
        owner: str,
        generate: Handler,
        finished: Finished,
    ) -> None:
        self._store = store
        self._settings = settings
        self._owner = owner
        self._generate = generate
        self._finished = finished
        self._jobs: dict[str, Job] = {}
        self._tenants: Counter[str] = Counter()
        self._beating: asyncio.Task[None] | None = None

    async def start(self, exchange: Exchange, work: InBackground) -> None:
        """Store the response as queued, begin it, and answer the client.

        Raises:
            OverCapacity: as many run as may.
            ResponsesUnavailable: it could not be stored; nothing was begun.
        """
        tenant = exchange.identity.tenant
        self._refuse_many(tenant)
        request = work.asked.request
        record = Record(
            id=work.ids.response,
            tenant=tenant,
            status="queued",
            response=queued(work.asked, work.ids, int(time.time())),
            input=work.items,
            previous=request.previous_response_id,
            conversation=request.conversation_id,
            owner=self._owner,
        )
        self._tenants[tenant] += 1
        try:
            if await self._store.call("put", record, []) is not Outcome.STORED:
                raise ResponsesUnavailable("it has no room")
        except BaseException:
            self._forget_tenant(tenant)
            raise
        job = Job(record, watched=bool(request.stream))
        self._jobs[record.id] = job
        detached = DetachedExchange(
            exchange,
            msgspec.json.encode(work.asked.fields),
            work.reading,
            lambda data: self._passed(job, data),
        )
        if exchange.account is not None:
            detached.account = exchange.account.handed_over(detached.timeline)
        job.task = asyncio.get_running_loop().create_task(self._run(job, detached))
        exchange.is_handed_over = True
        if self._beating is None or self._beating.done():
            self._beating = asyncio.get_running_loop().create_task(self._beat(), context=Context())
        if job.watched:
            await exchange.run(self._show(exchange, job), self._settings.ttl_s)
        else:
            await exchange.respond(200, record.response)

    def stop(self, response_id: str) -> None:
        """The response was cancelled in the store."""
        job = self._jobs.get(response_id)
        if job is not None and job.task is not None:
            job.cancelled = True
            job.task.cancel()

    async def close(self) -> None:
        """Report what runs as failed."""
        if self._beating is not None:
            self._beating.cancel()
        running = [job for job in self._jobs.values() if job.task is not None]
        for job in running:
            assert job.task is not None
            job.task.cancel()
        tasks = [job.task for job in running if job.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSING_S)

    def _refuse_many(self, tenant: str) -> None:
        for running, most, setting in (
            (self._tenants.total(), self._settings.max_background, "max_background"),
            (self._tenants[tenant], self._settings.max_background_per_tenant, "max_background_per_tenant"),
        ):
            if running >= most:
                raise OverCapacity(f"{running} background responses run (responses.{setting}).", 5)

    def _forget_tenant(self, tenant: str) -> None:
        self._tenants[tenant] -= 1
        if not self._tenants[tenant]:
            del self._tenants[tenant]

    def _passed(self, job: Job, data: bytes) -> None:
        """Bytes of its stream: the first that are no comment say that it has begun."""
        job.begun = job.begun or not data.startswith(b":")
        if job.watched:
            job.parts.append(data)
            job.more.set()

    async def _run(self, job: Job, exchange: DetachedExchange) -> None:
        try:
            await self._answered(job, exchange)
        finally:
            if exchange.body_done is not None:
                exchange.body_done()
            self._finished(exchange)
            job.task = None
            del self._jobs[job.record.id]
            self._forget_tenant(job.record.tenant)
            job.more.set()

    async def _answered(self, job: Job, exchange: DetachedExchange) -> None:
        """A response that ended well stored itself."""
        try:
            await self._generate(exchange)
        except PromptlyError as error:
            await exchange.fail(error)
        except asyncio.CancelledError:
            if job.cancelled:
                exchange.facts.client_gone = True
            else:
                await exchange.fail(NoReplica("The gateway is shutting down.", code="shutting_down"))
        except Exception:
            logger.exception("background response %s failed", job.record.id)
            await exchange.fail(PromptlyError("The gateway failed.", code="internal_error"))
        failure = exchange.failure
        if failure is None or job.cancelled:
            return
        job.failure, details = failure, failure.details
        error_fields = {"code": details.code or "server_error", "message": details.message}
        response = with_status(job.record.response, "failed", error_fields)
        try:
            await self._store.call(
                "put", msgspec.structs.replace(job.record, status="failed", response=response), []
            )
        except ResponsesUnavailable as error:  # the store ends what its owner no longer reports
            logger.warning("background response %s: its failure was not stored: %s", job.record.id, error)

    async def _show(self, exchange: Exchange, job: Job) -> None:
        """The events to a client that watches; when it leaves, the response goes on."""
        await exchange.start(200, EVENT_STREAM, {"cache-control": "no-cache"})
        shown = 0
        while True:
            job.more.clear()
            while shown < len(job.parts):
                await exchange.write(job.parts[shown])
                shown += 1
            if job.record.id not in self._jobs:
                break
            await job.more.wait()
        if job.failure is not None:
            await exchange.fail(job.failure)
        elif job.cancelled:
            await exchange.fail(PromptlyError("The response was cancelled.", code="cancelled"))
        else:
            await exchange.write(b"", more=False)

    async def _beat(self) -> None:
        """Ends when nothing runs any more. No failure ends it: without it, all that runs here would be
        reported as failed."""
        while self._jobs:
            try:
                await self._report()
                await self._mark_begun()
            except (ResponsesUnavailable, TimeoutError) as error:
                logger.warning("background responses were not reported: %r", error)
            except Exception:
                logger.exception("background responses were not reported")
            await asyncio.sleep(BEAT_S)

    async def _report(self) -> None:
        async with asyncio.timeout(BEAT_TIMEOUT_S):
            over: Sequence[str] = await self._store.call("beat", self._owner, list(self._jobs))
        for response_id in over:
            self.stop(response_id)

    async def _mark_begun(self) -> None:
        for job in list(self._jobs.values()):
            if job.begun and job.record.status == "queued":
                response = with_status(job.record.response, "in_progress")
                begun = msgspec.structs.replace(job.record, status="in_progress", response=response)
                await self._store.call("put", begun, [])
                job.record = begun

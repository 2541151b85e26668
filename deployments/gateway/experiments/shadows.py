"""Shadow requests: an experiment's candidate is asked what a client has asked, on idle engines only.

A shadow begins when the client's own answer is complete. It waits in no queue of a model's, takes room only
at an engine that is idle, goes last where engines know priorities, and is ended as soon as any request waits
for that model. No tenant pays for it, and its answer is read, measured and forgotten.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass

from deployments.gateway.experiments.trials import Trials
from deployments.gateway.placement.queue import Admission
from deployments.gateway.request.call import Call
from deployments.gateway.send.attempt import Attempt
from deployments.gateway.send.plain_answer import PlainAnswer
from deployments.gateway.send.sender import Destination, Sender
from serve_app.errors import PromptlyError
from serve_app.experiments import Assigned
from serve_app.fleet import Dispatch
from serve_app.quarantine import Quarantine
from serve_app.settings.experiments import CONTROL, ExperimentSettings, ShadowSettings

TENANT = "~shadow"
"""Whose slots shadows take: no tenant has this name."""

LOOK_S = 0.02
"""Between two looks for an idle engine, while a shadow waits."""

YIELD_S = 0.05
"""Between two looks whether a request waits, while a shadow runs."""

logger = logging.getLogger("ray.serve")


@dataclass(frozen=True, slots=True)
class Shadow:
    """``call`` makes the request when its turn has come; ``size``: bytes that it holds until then."""

    assigned: Assigned
    model: str
    size: int
    call: Callable[[], Call]


class Shadows:
    """Made inside a running event loop; ``close`` ends it. ``destinations`` by any name of a model. It is
    long because a shadow's whole life, from the list to its last byte, is here."""

    def __init__(
        self,
        experiments: tuple[ExperimentSettings, ...],
        destinations: Mapping[str, Destination],
        sender: Sender,
        trials: Trials,
    ) -> None:
        self._settings = {each.name: each.shadow for each in experiments}
        self._destinations = destinations
        self._sender = sender
        self._trials = trials
        self._quarantine = Quarantine(0.0)  # what breaks a shadow refuses no client's request
        self._queue: deque[tuple[float, Shadow]] = deque()
        self._queued_bytes = 0
        self._running: set[asyncio.Task[None]] = set()
        self._working: asyncio.Task[None] | None = None

    async def close(self) -> None:
        tasks = [*self._running, *(() if self._working is None else (self._working,))]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def offer(self, shadow: Shadow, *, ttft_ms: float | None, e2e_ms: float) -> None:
        """A client has its answer, which took so long: the candidate is asked next, if there is room."""
        experiment, settings = shadow.assigned.experiment, self._settings[shadow.assigned.experiment]
        self._trials.measured((experiment, CONTROL), ttft_ms=ttft_ms, e2e_ms=e2e_ms)
        is_full = len(self._queue) >= settings.max_queued
        if is_full or self._queued_bytes + shadow.size > settings.max_queued_bytes:
            self._trials.shadowed(experiment, "dropped_full")
            return
        self._queue.append((time.monotonic(), shadow))
        self._queued_bytes += shadow.size
        if self._working is None or self._working.done():
            # In a context of its own: what it logs belongs to no request that runs now.
            self._working = asyncio.get_running_loop().create_task(self._work(), context=Context())

    async def _work(self) -> None:
        """Until nothing waits."""
        while self._queue:
            queued_at, shadow = self._queue[0]
            settings = self._settings[shadow.assigned.experiment]
            if shadow.assigned.experiment in self._trials.stopped:
                self._leave("dropped_stopped")
            elif time.monotonic() > queued_at + settings.max_wait_s:
                self._leave("dropped_busy")
            elif len(self._running) >= settings.max_running or not self._begin(shadow, settings):
                await asyncio.sleep(LOOK_S)

    def _leave(self, event: str) -> None:
        _, shadow = self._queue.popleft()
        self._queued_bytes -= shadow.size
        self._trials.shadowed(shadow.assigned.experiment, event)

    def _begin(self, shadow: Shadow, settings: ShadowSettings) -> bool:
        """Send it if an engine is idle. From the look to the slot nothing else runs."""
        to = self._destinations[shadow.model]
        busy = busy_members(to.admission, settings.max_load)
        if busy is None:
            return False
        try:
            call = shadow.call()
            dispatch = to.admission.room.take(call.slot, busy)
        except PromptlyError as error:
            logger.info("a shadow could not be asked: %s", error.code)
            self._leave("failed")
            return True
        except Exception:
            logger.exception("a shadow of %s could not be made", shadow.assigned.experiment)
            self._leave("failed")
            return True
        if dispatch is None:
            return False
        self._leave("sent")
        task = asyncio.get_running_loop().create_task(
            self._run(shadow.assigned, settings, call, to, dispatch)
        )
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return True

    async def _run(
        self, assigned: Assigned, settings: ShadowSettings, call: Call, to: Destination, dispatch: Dispatch
    ) -> None:
        key, began = (assigned.experiment, assigned.arm), time.monotonic()
        asking = asyncio.ensure_future(self._ask(call, to, dispatch))
        try:
            while not asking.done():
                await asyncio.wait({asking}, timeout=YIELD_S)
                late = time.monotonic() > began + settings.timeout_s
                if not asking.done() and (to.admission.waiting or late):
                    self._trials.shadowed(assigned.experiment, "late" if late else "yielded")
                    return
            ttft_s = asking.result()
            e2e_ms = (time.monotonic() - began) * 1000
            self._trials.measured(key, ttft_ms=None if ttft_s is None else ttft_s * 1000, e2e_ms=e2e_ms)
            self._trials.shadowed(assigned.experiment, "answered")
        except PromptlyError:
            self._trials.measured(key, failed=True)
            self._trials.shadowed(assigned.experiment, "failed")
        except Exception:
            logger.exception("a shadow of %s failed", assigned.experiment)
            self._trials.shadowed(assigned.experiment, "failed")
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _ask(self, call: Call, to: Destination, dispatch: Dispatch) -> float | None:
        """Read the answer to its end; seconds to the first bytes of a stream. Raises: PromptlyError."""
        began, started_ns = time.monotonic(), call.slot.timeline.clock()
        try:
            response = await self._sender.send(call, to, dispatch.member.report, fresh=False)
        except BaseException:
            to.admission.end(dispatch, complete=False)
            raise
        now = time.monotonic()
        to.admission.began(dispatch, now, streamed=response.is_stream)
        attempt = Attempt(
            call,
            dispatch,
            response,
            admission=to.admission,
            quarantine=self._quarantine,
            stall_s=self._sender.stall_s,
            started_ns=started_ns,
        )
        answer = PlainAnswer(attempt, ends_with_done=True)
        try:
            while await answer.read():
                pass
        finally:
            answer.close()
        return now - began if response.is_stream else None


def busy_members(admission: Admission, max_load: float) -> set[str] | None:
    """The members that are not idle; ``None``: none is, or requests wait for the model."""
    if admission.waiting or admission.room.is_cold:
        return None
    members = admission.room.candidates()
    busy = {member.name for member in members if member.load and member.load + 1 > max_load * member.limit}
    return busy if len(busy) < len(members) else None

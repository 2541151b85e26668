"""One attempt at one member, from the first bytes of its answer to the last."""

from __future__ import annotations

import asyncio
import time

from deployments.gateway.placement.queue import Admission
from deployments.gateway.request.answer import Head
from deployments.gateway.request.call import Call, Purpose
from deployments.wire.upstream import UpstreamResponse
from serve_app.errors import UpstreamFailed
from serve_app.fleet import Dispatch
from serve_app.quarantine import Incident, Quarantine


class Attempt:
    """One member's answer, while it comes. ``read`` may be cancelled without losing bytes.

    One timer watches all of it: a time-out for every chunk would cost a tenth of the relay's time.
    """

    def __init__(
        self,
        call: Call,
        dispatch: Dispatch,
        response: UpstreamResponse,
        *,
        admission: Admission,
        quarantine: Quarantine,
        stall_s: float,
    ) -> None:
        self._call = call
        self.dispatch = dispatch
        self.response = response
        self._admission = admission
        self._quarantine = quarantine
        self._stall_s = stall_s
        self._started_ns = time.time_ns()
        self._complete = False
        self._open = True
        self._stalled = False
        self._waiting_since: float | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(stall_s, self._check)

    @property
    def member(self) -> str:
        return self.dispatch.member.name

    @property
    def can_continue(self) -> bool:
        """It is a stream with token ids: another member could go on."""
        return self.response.is_stream and self.dispatch.member.report.gives_token_ids

    @property
    def head(self) -> Head:
        response = self.response
        return Head(response.status, response.content_type, response.is_stream, self.member)

    async def read(self) -> bytes:
        """The next bytes; ``b""`` at the end.

        Raises:
            UpstreamFailed: the connection broke, or nothing came for ``stall_s`` seconds.
        """
        self._waiting_since = time.monotonic()
        try:
            chunk = await self.response.read_some()
        except UpstreamFailed as error:
            raise self._stall() if self._stalled else error from None
        finally:
            self._waiting_since = None
        self.dispatch.member.last_byte_at = time.monotonic()
        if not chunk:
            if self._stalled:
                raise self._stall()
            self._complete = True
        return chunk

    def broke(self) -> Incident:
        """Record that the answer was cut. Other requests show whether this one is to blame."""
        self._complete = False
        now = time.monotonic()
        return self._quarantine.broke(self._call.body_key, self.member, now, begun=True)

    def _check(self) -> None:
        """Close the connection if a reader has waited too long; the reader then gets an error."""
        now = time.monotonic()
        since = now if self._waiting_since is None else self._waiting_since
        if now >= since + self._stall_s:
            self._stalled = True
            self.response.abort()
        else:
            self._timer = self._loop.call_later(since + self._stall_s - now, self._check)

    def _stall(self) -> UpstreamFailed:
        return UpstreamFailed(
            f"The engine sent nothing for {self._stall_s:g} s (limits.between_tokens_timeout_s).",
            code="upstream_stalled",
        )

    def close(self) -> None:
        """Ends the request at the engine if it still runs. May be called again."""
        if self._open:
            self._open = False
            self._timer.cancel()
            self.response.close()
            purpose = self._call.purpose
            if self._complete and purpose is not Purpose.HELP and not self._quarantine.is_empty:
                self._quarantine.served(self._call.body_key)
            # Only a generated answer shows how long answers take.
            self._admission.end(self.dispatch, complete=self._complete and purpose is Purpose.ANSWER)
            self._call.slot.timeline.add("upstream", self._started_ns)

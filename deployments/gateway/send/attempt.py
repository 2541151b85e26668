"""One attempt at one member, from the first bytes of its answer to the last. Its bytes are read from the
response itself, so that no token passes here."""

from __future__ import annotations

import asyncio
import time

from deployments.gateway.placement.queue import Admission
from deployments.gateway.request.answer import Head
from deployments.gateway.request.call import Call, Purpose, Resumption
from deployments.wire.upstream import UpstreamResponse
from serve_app.errors import UpstreamFailed
from serve_app.fleet import Dispatch
from serve_app.quarantine import Incident, Quarantine


class Attempt:
    """The slot that one member's answer takes while it comes, and what became of it. Read the answer from
    ``response``; a reader that waits for more than ``stall_s`` seconds gets an error.
    ``started_ns``: since when the step `upstream` counts.

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
        started_ns: int,
    ) -> None:
        self._call = call
        self.dispatch = dispatch
        self.response = response
        self._admission = admission
        self._quarantine = quarantine
        self._stall_s = stall_s
        self._started_ns = started_ns
        self._is_broken = False
        self._open = True
        response.member = dispatch.member
        if call.slot.account is not None:
            call.slot.account.members.began(response.abort, response.end, is_stream=response.is_stream)
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(stall_s, self._check)

    @property
    def member(self) -> str:
        return self.dispatch.member.name

    @property
    def resumption(self) -> Resumption | None:
        """How another member could go on with it, if it is a stream with token ids."""
        return self._call.resumption(self.dispatch.member.report) if self.response.is_stream else None

    @property
    def head(self) -> Head:
        response = self.response
        asked = self._call.message.asks_usage(self.dispatch.member.report)
        return Head(response.status, response.content_type, response.is_stream, self.member, asked)

    def broke(self) -> Incident:
        """Record that the answer was cut. Other requests show whether this one is to blame."""
        self._is_broken = True
        now = time.monotonic()
        return self._quarantine.broke(self._call.body_key, self.member, now, begun=True)

    def _check(self) -> None:
        """Close the connection if a reader has waited too long; the reader then gets an error."""
        now = time.monotonic()
        since = self.response.waiting_since
        if since is None:
            since = now
        if now >= since + self._stall_s:
            self.response.abort(
                UpstreamFailed(
                    f"The engine sent nothing for {self._stall_s:g} s (limits.between_tokens_timeout_s).",
                    code="upstream_stalled",
                )
            )
        else:
            self._timer = self._loop.call_later(since + self._stall_s - now, self._check)

    def close(self) -> None:
        """Ends the request at the engine if it still runs. May be called again."""
        if self._open:
            self._open = False
            self._timer.cancel()
            self.response.close()
            purpose = self._call.purpose
            is_complete = self.response.is_complete and not self._is_broken
            if is_complete and purpose is not Purpose.HELP and not self._quarantine.is_empty:
                self._quarantine.served(self._call.body_key, time.monotonic())
            # Only a generated answer shows how long answers take.
            is_answer = is_complete and purpose is Purpose.ANSWER
            tokens = self.response.end.tokens(self.response.is_stream)
            self._admission.end(self.dispatch, complete=is_answer, tokens=tokens)
            self._call.slot.timeline.add("upstream", self._started_ns)

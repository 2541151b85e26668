"""Asks the served model whether a stored answer serves a new question."""

from __future__ import annotations

import asyncio

import msgspec

from deployments.gateway.request.call import Call
from deployments.gateway.send.dispatch import Dispatcher
from serve_app.cache.entry import Doubt
from serve_app.cache.grey_zone import judging_request, yes_share
from serve_app.errors import PromptlyError, UpstreamFailed
from serve_app.openai.requests import Endpoint
from serve_app.settings.cache import AskModelSettings


class ModelJudge:
    """Asks for one token of the model that would answer the request. No failure here reaches the request."""

    def __init__(self, settings: AskModelSettings, dispatcher: Dispatcher) -> None:
        self._settings = settings
        self._dispatcher = dispatcher

    async def serves(self, doubt: Doubt, text: str, call: Call) -> bool | None:
        """Whether the entry's answer serves ``text``; ``None`` if there is no room to ask, or no readable
        answer. ``call`` is the request's own: the question has its model, tenant, priority and deadline."""
        if not self._dispatcher.has_room(call.model, call.slot.tenant):
            return None
        try:
            async with asyncio.timeout(self._settings.timeout_ms / 1000):
                share = yes_share(await self._ask(_judging(call, doubt.entry.text, text)))
        except (PromptlyError, TimeoutError):
            return None
        return None if share is None else share >= self._settings.least_yes

    async def _ask(self, call: Call) -> bytes:
        answer = await self._dispatcher.open(call)
        parts: list[bytes] = []
        try:
            if answer.head.is_stream:
                raise UpstreamFailed("A stream was not asked for.", code="upstream_failed")
            while part := await answer.read():
                parts.append(part)
        finally:
            answer.close()
        return b"".join(parts)


def _judging(call: Call, first: str, second: str) -> Call:
    """A call with the judging question instead of the client's, who does not pay for it."""
    fields = judging_request(call.model, first, second)
    body = msgspec.json.encode(fields)
    return msgspec.structs.replace(
        call,
        slot=msgspec.structs.replace(call.slot, weight=1, account=None),
        message=call.message.to(Endpoint.CHAT.value, fields, body, streams=False),
        body=body,
        resumes=None,
    )

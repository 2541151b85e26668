"""Where a call enters: refuse what breaks members, make its attempts, wrap the answer that wins."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import msgspec

from deployments.gateway.request.answer import OpenAnswer
from deployments.gateway.request.at_members import awaited
from deployments.gateway.request.call import Call, Purpose
from deployments.gateway.request.order import Order
from deployments.gateway.send.attempt import Attempt
from deployments.gateway.send.attempts import Attempts
from deployments.gateway.send.continuation import ContinuedAnswer
from deployments.gateway.send.plain_answer import PlainAnswer
from deployments.gateway.send.sender import Destination, Sender
from serve_app.autoscaling import Demand
from serve_app.errors import Quarantined
from serve_app.fleet import Dispatch, EngineReport
from serve_app.openai.bounds import GENERATE, LIMIT_FIELDS, asked_output, default_output
from serve_app.quarantine import Quarantine
from serve_app.quotas.limits import MOST
from serve_app.settings.paths import ANY_TASK
from serve_app.traffic import Traffic

TRUNCATES = "truncate_prompt_tokens"
"""vLLM refuses more of a prompt than the context leaves beside the answer's limit."""

TEMPLATE_TOKENS = 1024
"""What a chat template adds to a prompt, amply."""


class Dispatcher:
    """One gateway's way to every member of every model. ``destinations`` by any name of a model, an adapter
    or an alias."""

    def __init__(
        self,
        destinations: Mapping[str, Destination],
        sender: Sender,
        quarantine: Quarantine,
        traffic: Traffic,
        *,
        max_attempts: int,
    ) -> None:
        self._destinations = destinations
        self._sender = sender
        self._quarantine = quarantine
        self.traffic = traffic
        self._max_attempts = max_attempts

    def has_room(self, model: str, tenant: str, weight: int = 1) -> bool:
        """A request of the tenant would go to a member at once."""
        return self._destinations[model].admission.has_room(tenant, weight)

    def goes_on(self, model: str) -> bool:
        """Some member of it can be told the beginning of a chat's answer."""
        members = self._destinations[model].admission.room.candidates()
        return any(member.report.resumes_chats for member in members)

    def is_idle(self, model: str) -> bool:
        """A member of it does nothing, and no request waits for it."""
        admission = self._destinations[model].admission
        return not admission.waiting and any(member.load == 0 for member in admission.room.candidates())

    def start(self, model: str) -> None:
        """A request wants this model: start a replica if it is scaled to zero."""
        self._destinations[model].admission.room.start_if_cold()

    async def open(self, call: Call) -> OpenAnswer:
        """The answer of the first member that gives one.

        Raises:
            RateLimited, BudgetSpent, LimitsUnavailable: as ``Account.place``.
            BudgetEnded: it has, while a whole answer was made.
            Quarantined: members broke on this request a moment ago.
            UpstreamRefused, OverCapacity, NoReplica, UpstreamFailed, UpstreamTimeout: as ``Attempts.begin``.
        """
        self.traffic.requests += 1
        if not self._quarantine.is_empty:
            self._refuse_what_breaks_members(call)
        to = self._destinations[call.model]
        order = None
        if call.slot.account is not None:
            order = await call.slot.account.place(_order(call, to))
            call = _limited(call, order)
        attempts = Attempts(to, self._sender, self._quarantine, self.traffic, self._max_attempts)
        with _awaited(call, order):
            attempt = await _begun(call, attempts, to)
        if attempt.resumption is not None:
            return ContinuedAnswer(call, attempt, attempts, self.traffic)
        return PlainAnswer(attempt, ends_with_done=call.purpose is not Purpose.RELAY)

    def _refuse_what_breaks_members(self, call: Call) -> None:
        left_s = self._quarantine.refused_for_s(call.body_key, time.monotonic())
        if left_s > 0:
            self.traffic.quarantined += 1
            raise Quarantined(math.ceil(left_s))


def _order(call: Call, to: Destination) -> Order:
    path, fields = call.slot.path, call.message.fields
    asked = asked_output(path, fields)
    output = None if asked is None else min(asked, MOST)  # no float and no message holds any number
    candidates = to.admission.room.candidates() if output is None else ()
    reports = [member.report for member in candidates]
    implied = default_output(path, fields) if all(each.gives_token_ids for each in reports) else None
    return Order(
        to.own,
        to.admission.room.model,
        call.slot.routing.prompt_tokens,
        implied if output is None else output,
        call.slot.weight,
        generates=call.purpose is Purpose.ANSWER or output is not None or path == GENERATE,
        streams=call.message.streams,
        hides=fields.get("include_reasoning", True) is not True,  # vLLM takes `0` and "off" for false
        size=_read_bytes(call),
        is_implied=output is None and implied is not None and path in LIMIT_FIELDS,
        is_free=path in ANY_TASK,
        longest=min((_longest(call, each) for each in reports), default=0),
    )


def _read_bytes(call: Call) -> int:
    """The body's, or as many as members may read: a text that stands there once is read with each part."""
    return call.message.size * (call.slot.weight if call.slot.in_parts else 1)


def _longest(call: Call, report: EngineReport) -> int:
    """Tokens that the member can be told as the most of an answer, and is sure to keep to; 0: none. vLLM
    refuses more than the context leaves, and takes what it is told in place of the model's own limit."""
    limits = report.token_limits
    can_be_told = call.slot.path in LIMIT_FIELDS and TRUNCATES not in call.message.fields
    if not can_be_told or not report.gives_token_ids or limits.context is None:
        return 0
    # A token has a byte of the body at least; but for pictures that it names, and what a template adds.
    prompt = max(call.message.size, 2 * call.slot.routing.prompt_tokens) + TEMPLATE_TOKENS
    own = [most for most in (limits.default, limits.cap) if most is not None]
    return max(0, math.floor(min([limits.context - prompt, *own])))


def _limited(call: Call, order: Order) -> Call:
    """The same for an answer as long as its account counts on, where the client has not said it."""
    if order.told is None:
        return call
    limit = {LIMIT_FIELDS[call.slot.path]: order.told}
    return msgspec.structs.replace(call, message=msgspec.structs.replace(call.message, answer_limit=limit))


def _awaited(call: Call, order: Order | None) -> AbstractContextManager[None]:
    """An answer whose length is seen is cut when it has begun, any other one also while it is awaited."""
    account = call.slot.account
    return nullcontext() if account is None or order is None or order.is_seen else awaited(account.members)


async def _begun(call: Call, attempts: Attempts, to: Destination) -> Attempt:
    demand = to.admission.demand
    if demand is None:
        return await attempts.begin(call)
    return await _counted(call, attempts, demand, is_cold=to.admission.room.is_cold)


async def _counted(call: Call, attempts: Attempts, demand: Demand, *, is_cold: bool) -> Attempt:
    """``Attempts.begin``, counted for the autoscaler of a model that has one."""
    slot = call.slot
    asked = demand.came(slot.routing.prompt_tokens, time.monotonic(), cold=is_cold)

    def placed(dispatch: Dispatch) -> None:
        if dispatch.member.report.is_static:
            demand.went_elsewhere(asked)

    try:
        attempt = await attempts.begin(call, placed)
    except asyncio.CancelledError:
        demand.withdrew(asked, time.monotonic())
        raise
    except BaseException:
        demand.failed(asked)
        raise
    demand.began(asked, slot.timeline.elapsed_ms() / 1000 if attempt.response.is_stream else None)
    return attempt

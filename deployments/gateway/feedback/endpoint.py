"""``/v1/feedback``: what a person says of an answer; ``/admin/feedback``: what was said."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from urllib.parse import parse_qsl
from uuid import UUID

from deployments.gateway.feedback.captures import AdminCaptures
from deployments.gateway.feedback.feedback import PERIOD_S, GatewayFeedback
from deployments.gateway.feedback.judging import Scored
from deployments.gateway.feedback.own import own
from deployments.gateway.feedback.suggestions import AdminSuggestions
from deployments.gateway.lookup.store_client import CacheClient
from deployments.gateway.request.bodies import Bodies
from deployments.gateway.request.exchange import Exchange, Handler
from deployments.gateway.send.dispatch import Dispatcher
from serve_app.errors import BadRequest, FeedbackUnavailable, NotFound
from serve_app.feedback.given import given_in, query_in, unknown_request
from serve_app.feedback.shown import shown
from serve_app.feedback.values import FeedbackPage, FeedbackQuery, Judged, Kept, Outcome, Said, author_of
from serve_app.monitoring import metrics as names

SECOND_LOOK_S = 2 * PERIOD_S
"""The answer may have come from another gateway, whose report is on its way."""

REPORT_S = 1.0

logger = logging.getLogger("ray.serve")


class FeedbackEndpoint:
    """``feedback`` is ``None`` where none is kept, ``cache`` where there is none."""

    def __init__(self, bodies: Bodies, feedback: GatewayFeedback | None, cache: CacheClient | None) -> None:
        self._bodies = bodies
        self._feedback = feedback
        self._cache = cache

    async def say(self, exchange: Exchange) -> None:
        """``POST``: an unknown request and another tenant's take the same path, so they take the same time.

        Raises:
            NotFound: it is no request of the tenant's, or too old.
            FeedbackUnavailable: the owner does not answer.
        """
        feedback, identity = self._kept(), exchange.identity
        body = await self._bodies.read(exchange, identity.tenant)
        request_id, said = given_in(body, feedback.settings)
        author = author_of(identity.user, identity.key_id)
        await _report(feedback)
        given = (identity.tenant, request_id, author, said)
        kept: Kept = await feedback.client.call("say", *given)
        if kept.outcome is Outcome.UNKNOWN:
            await asyncio.sleep(SECOND_LOOK_S)
            kept = await feedback.client.call("say", *given)
        if kept.request is None:
            raise unknown_request(request_id)
        feedback.meter.add(names.FEEDBACK_SAID, 1, {"kind": _kind(said)})
        taught = await self._teach(kept.request, said, kept.was_negative)
        await exchange.respond_json(
            {"request_id": request_id, "replaced": kept.outcome is Outcome.REPLACED, "cache_taught": taught}
        )

    async def page(self, exchange: Exchange) -> None:
        """``GET``: a page, the newest first. ``DELETE``: forget everything of a tenant. A team's own
        administrator may do both for that team. Raises: FeedbackUnavailable."""
        feedback = self._kept()
        given = dict(parse_qsl(exchange.query.decode("latin-1"), keep_blank_values=True))
        query = own(exchange, query_in(given))
        if exchange.method == "DELETE":
            await self._erase(exchange, feedback, query, given.keys() - {"tenant"})
            return
        page: FeedbackPage = await feedback.client.call("page", query)
        following = page.feedback[-1].number if page.has_more and page.feedback else None
        await exchange.respond_json(
            {
                "feedback": [shown(each) for each in page.feedback],
                "next": None if following is None else str(following),
            }
        )

    async def _erase(
        self, exchange: Exchange, feedback: GatewayFeedback, query: FeedbackQuery, others: set[str]
    ) -> None:
        """Raises: BadRequest: no tenant is named, or more than that."""
        if query.tenant is None or others:
            raise BadRequest(
                "Name the tenant whose feedback is to be forgotten, and nothing else.", param="tenant"
            )
        exchange.audit_target = f"tenant={query.tenant[:200]}"
        await _report(feedback)  # what is on its way is forgotten too
        gone: int = await feedback.client.call("erase", query.tenant, False)
        await exchange.respond_json({"tenant": query.tenant, "erased": gone})

    async def _teach(self, request: Judged, said: Said, was_negative: bool) -> bool:
        """Whether the cache has learned that the near hit was wrong, or is no longer said to be. What was
        said is kept also where the cache is away."""
        if self._cache is None or request.entry is None or request.asked is None:
            return False
        if not said.is_negative and not was_negative:
            return False
        entry = UUID(request.entry)
        try:
            return await self._cache.store.refuse(
                request.tenant, entry, request.asked, wrong=said.is_negative
            )
        except Exception as error:  # whatever it is, what was said is kept
            logger.warning("the cache did not learn from feedback: %s", type(error).__name__)
            return False

    def _kept(self) -> GatewayFeedback:
        if self._feedback is None:
            raise NotFound("No feedback is kept here: the settings have no `feedback`.", code="no_feedback")
        return self._feedback


def feedback_handlers(
    bodies: Bodies,
    feedback: GatewayFeedback | None,
    cache: CacheClient | None,
    dispatcher: Dispatcher,
    scored: Scored,
) -> dict[str, Handler]:
    """Handlers by the names that the table of routes uses. ``dispatcher``: where the judge model is asked;
    ``scored``: called with what it says of experiments' arms."""
    if feedback is not None:
        feedback.judge_at(dispatcher, scored)
    endpoint = FeedbackEndpoint(bodies, feedback, cache)
    captures = AdminCaptures(feedback)
    return {
        "feedback": endpoint.say,
        "admin_said": endpoint.page,
        "admin_captures": captures,
        "admin_suggestions": AdminSuggestions(feedback, cache),
    }


async def _report(feedback: GatewayFeedback) -> None:
    """What has finished here is known to the owner, if it answers soon; it may know it all the same."""
    with suppress(FeedbackUnavailable, TimeoutError):
        async with asyncio.timeout(REPORT_S):
            await feedback.report()


def _kind(said: Said) -> str:
    if said.score is None:
        return "other"
    return "negative" if said.is_negative else "positive"

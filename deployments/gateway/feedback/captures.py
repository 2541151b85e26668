"""``/admin/captures``: what was captured of requests and their answers."""

from __future__ import annotations

from urllib.parse import parse_qsl

from deployments.gateway.feedback.feedback import GatewayFeedback
from deployments.gateway.feedback.own import own
from deployments.gateway.request.exchange import Exchange
from serve_app.errors import BadRequest, NotFound
from serve_app.feedback.captured import CapturePage
from serve_app.feedback.given import capture_query_in
from serve_app.feedback.shown import shown_capture


class AdminCaptures:
    """``feedback`` is ``None`` where nothing is kept."""

    def __init__(self, feedback: GatewayFeedback | None) -> None:
        self._feedback = feedback

    async def __call__(self, exchange: Exchange) -> None:
        """``GET``: a page, the oldest first; with texts only where ``content=true`` asks for them.
        ``DELETE``: forget what was captured of a tenant. Raises: FeedbackUnavailable."""
        if self._feedback is None:
            raise NotFound("Nothing is captured here: the settings have no `feedback`.", code="no_feedback")
        given = dict(parse_qsl(exchange.query.decode("latin-1"), keep_blank_values=True))
        query, with_content = capture_query_in(given)
        query = own(exchange, query)
        client = self._feedback.client
        if exchange.method == "DELETE":
            if query.tenant is None or given.keys() - {"tenant"}:
                raise BadRequest(
                    "Name the tenant whose captures are to be forgotten, and nothing else.", param="tenant"
                )
            exchange.audit_target = f"tenant={query.tenant[:200]}"
            gone: int = await client.call("erase", query.tenant, True)
            await exchange.respond_json({"tenant": query.tenant, "erased": gone})
            return
        page: CapturePage = await client.call("captures", query)
        await exchange.respond_json(
            {
                "captures": [shown_capture(each, with_content=with_content) for each in page.captures],
                "next": None if page.following is None else str(page.following),
            }
        )
